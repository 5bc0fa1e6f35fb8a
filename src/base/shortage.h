/* SPDX-License-Identifier: MIT */
/* shortage.h - whether this thread asked for memory that was not there. Whoever makes something of
 * many parts asks, since not every part says that it lacks something. */
#ifndef SHORTAGE_H
#define SHORTAGE_H

/* 1: an allocation by cb_calloc() and its kin has failed since the thread last called _forget() */
int cb_memory_failed(void);
void cb_memory_forget(void);

#endif
