/* SPDX-License-Identifier: MIT */
/* fair_lock.h - a lock that goes to who asked first, so that threads which want it again and again
 * take turns, and that knows its holder. */
#ifndef FAIR_LOCK_H
#define FAIR_LOCK_H

struct fair_lock;

int cb_fair_lock_new(struct fair_lock **out);
void cb_fair_lock_free(struct fair_lock *l);
int cb_fair_lock_take(struct fair_lock *l); /* 1; 0: the calling thread holds it already */
void cb_fair_lock_give(struct fair_lock *l);

#endif
