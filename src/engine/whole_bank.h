/* SPDX-License-Identifier: MIT */
/* whole_bank.h - a bank that is dealt out to ranks, as one process would have it: what a file of it
 * says. Its rows come to rank 0 when they are asked for, one head of a layer at a time. */
#ifndef WHOLE_BANK_H
#define WHOLE_BANK_H

#include "bank/store_areas.h"
#include "session.h"

struct whole_bank;

/* Call before the device is locked. *out is NULL where this process has all of s already; else the
 * other ranks wait until cb_whole_bank_close(), which may come after any failure. */
int cb_whole_bank_open(const struct cb_session *s, struct whole_bank **out);
void cb_whole_bank_close(struct whole_bank *w);
/* s itself, or how it would be in one process; there, memory of areas of dealt layers is that of
 * cb_whole_bank_area() */
const struct cb_session *cb_whole_bank_session(const struct whole_bank *w,
                                               const struct cb_session *s);
/* What area a holds: a->at, or memory that is valid until the next call */
int cb_whole_bank_area(struct whole_bank *w, const struct area *a, const void **at);
/* On the other ranks */
int cb_whole_bank_give(struct cb_session *s);

#endif
