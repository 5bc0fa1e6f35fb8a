/* SPDX-License-Identifier: MIT */
/* state_memory.h - the state of a reader, a form of prefill or a scoring, and memory that is freed
 * with it. Such a state needs no close() of its own. */
#ifndef STATE_MEMORY_H
#define STATE_MEMORY_H

#include <stddef.h>

struct device;

void *cb_state_new(size_t size); /* zeroed, 64-byte aligned; NULL: no memory */
void cb_state_free(void *state); /* NULL is allowed */

/* As cb_alloc_aligned(), cb_calloc() and cb_device_alloc(); NULL: no memory */
void *cb_state_alloc(void *state, size_t n, size_t size);
void *cb_state_calloc(void *state, size_t n, size_t size);
void *cb_state_device(void *state, struct device *d, size_t n, size_t size);
int cb_state_status(const void *state);   /* CB_ENOMEM: one of them was NULL */
size_t cb_state_bytes(const void *state); /* of all of them */

#endif
