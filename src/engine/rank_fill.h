/* SPDX-License-Identifier: MIT */
/* rank_fill.h - a saved bank fills the sessions of all ranks, or none. */
#ifndef RANK_FILL_H
#define RANK_FILL_H

#include "saved_bank.h"

/* Fills the new session s with the first n tokens of a saved bank, b on this rank. After a failure,
 * also one of another rank, s can only be closed. */
int cb_rank_fill(struct cb_session *s, const struct saved_bank *b, int n);
/* The same on the other ranks, which open the file at `path`; a failure is no fault of the job. */
int cb_rank_fill_told(struct cb_session *s, const char *path, int n);

#endif
