/* SPDX-License-Identifier: MIT */
/* drafter.h - guesses the next tokens from the timeline itself: what followed the longest earlier
 * occurrence of its last tokens (prompt look-up, Saxena 2023). Answers about a document quote it.
 */
#ifndef DRAFTER_H
#define DRAFTER_H

#include <stdint.h>

struct drafter;

int cb_drafter_new(struct drafter **out); /* CB_ENOMEM */
void cb_drafter_free(struct drafter *d);  /* NULL is allowed */
/* Guesses up to `most` tokens after tokens[n], a timeline that the drafter has seen before or not
 * -> draft. Returns their number; 0 where nothing earlier ends alike, or without memory. */
int cb_drafter_guess(struct drafter *d, const int32_t *tokens, int n, int32_t *draft, int most);

#endif
