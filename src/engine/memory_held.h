/* SPDX-License-Identifier: MIT */
/* memory_held.h - bytes that a session holds, for its memory now and for the plan of it. */
#ifndef MEMORY_HELD_H
#define MEMORY_HELD_H

#include <stdint.h>

struct cb_session;
struct store;

uint64_t cb_held_weights(const struct cb_session *s);
uint64_t cb_held_full(const struct cb_session *s, int n); /* n tokens as f16, by policy full */
uint64_t cb_held_heads(const struct store *st, int n);    /* n slots of every KV head */
/* Work space after feeds of up to n_feed tokens. A KV head has held up to n_most slots before the
 * policy dropped some, and up to n_kept after. */
uint64_t cb_held_work(const struct cb_session *s, int n_feed, int n_most, int n_kept);
/* What the head for later tokens takes: keys and values of n tokens, and work space, now or later
 */
uint64_t cb_held_mtp(const struct cb_session *s, int n, int planned);

#endif
