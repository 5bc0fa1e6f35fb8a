/* SPDX-License-Identifier: MIT */
/* fair_lock.h - a first-come, first-served lock that knows its holder: threads that take it again
 * and again take turns. */
#ifndef FAIR_LOCK_H
#define FAIR_LOCK_H

struct fair_lock;

int cb_fair_lock_new(struct fair_lock **out);
void cb_fair_lock_free(struct fair_lock *l);
int cb_fair_lock_take(struct fair_lock *l); /* 1; 0: the calling thread holds it already */
void cb_fair_lock_give(struct fair_lock *l);
/* 1: the calling thread holds it, or nobody has ever taken it. For asserts */
int cb_fair_lock_is_mine(struct fair_lock *l);

#endif
