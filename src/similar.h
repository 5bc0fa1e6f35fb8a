/* SPDX-License-Identifier: MIT */
/* similar.h - which kept keys are most like those that go; behind cb_edit_nearest(). */
#ifndef SIMILAR_H
#define SIMILAR_H

#include "session.h"

int cb_similar_open(struct cb_session *s); /* nothing where the method does not merge */
void cb_similar_close(struct cb_session *s);
/* Work space when n_kept slots of n_most stay. */
size_t cb_similar_bytes(const struct cb_session *s, int n_most, int n_kept);
/* What slots that keep[n] leaves out resemble, or one slot that is dropped, as cb_edit_nearest() has it */
int cb_similar_all(struct cb_session *s, int l, int kv, const int *keep, int n,
                   const struct near_slot **out);
int cb_similar_one(struct cb_session *s, int l, int kv, int slot, const struct near_slot **out);
/* Columns that it needs in each store, behind the method's own */
int cb_similar_columns(const struct policy *p);
void cb_similar_forget(struct cb_session *s, int l, int kv,
                       int slot); /* the slot's key is another one */

#endif
