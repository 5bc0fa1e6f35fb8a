/* SPDX-License-Identifier: MIT */
/* state_memory.h - the state of a reader, a form of prefill or a scoring, and memory that is freed
 * with it. Such a state needs no close() of its own. */
#ifndef STATE_MEMORY_H
#define STATE_MEMORY_H

#include <stddef.h>

struct attention;
struct device;

void *cb_state_new(size_t size); /* zeroed, 64-byte aligned; NULL: no memory */
/* A state of `size` bytes, which open() fills -> *state, to be freed even after a failure; 0: none.
 * CB_ENOMEM also where memory of the state was NULL */
int cb_state_open(size_t size, int (*open)(struct attention *a, void *state), struct attention *a,
                  void **state);
void cb_state_free(void *state); /* NULL is allowed */

/* As cb_alloc_aligned(), cb_calloc() and cb_device_alloc(); NULL: no memory */
void *cb_state_alloc(void *state, size_t n, size_t size);
void *cb_state_calloc(void *state, size_t n, size_t size);
void *cb_state_device(void *state, struct device *d, size_t n, size_t size);
void *cb_state_pages(void *state, size_t bytes); /* zeroed, committed page by page as it is used */
void *cb_state_realloc(void *state, void *p, size_t n, size_t size); /* not of device or pages */
/* *p, an array with room for *cap, has room for n; what is there stays. CB_ENOMEM */
int cb_state_fit(void *state, void *p, size_t *cap, size_t n, size_t size);
void cb_state_drop(void *state, void *p); /* frees one of them; NULL is allowed */
/* [n_row][n_ctx], of which memory is committed page by page as the context grows */
void *cb_state_slots(void *state, size_t n_row, int n_ctx, size_t size);
int cb_state_status(const void *state); /* CB_ENOMEM: one of them was NULL */
/* Bytes of the state and of its memory; bytes of that memory for n_most slots. state NULL: 0 */
size_t cb_state_bytes(const void *state);
size_t cb_state_work(const void *state, int n_most);

#endif
