/* SPDX-License-Identifier: MIT */
/* nearest_key.h - which kept keys are most like those that go; behind cb_evict_nearest(). */
#ifndef SIMILAR_H
#define SIMILAR_H

#include "session.h"

int cb_nearest_key_open(struct cb_session *s); /* nothing where the method does not merge */
void cb_nearest_key_close(struct cb_session *s);
/* Work space when n_kept slots of n_most stay. */
size_t cb_nearest_key_bytes(const struct cb_session *s, int n_most, int n_kept);
/* What slots that keep[n] leaves out resemble, or one slot that is dropped, as cb_evict_nearest()
 * has it */
int cb_nearest_key_all(struct cb_session *s, int l, int kv, const int *keep, int n,
                       const struct near_slot **out);
int cb_nearest_key_one(struct cb_session *s, int l, int kv, int slot, const struct near_slot **out);
/* Columns that it needs in each store, behind the method's own */
int cb_nearest_key_columns(const struct policy *p);
void cb_nearest_key_forget(struct cb_session *s, int l, int kv,
                           int slot); /* the slot's key is another one */

#endif
