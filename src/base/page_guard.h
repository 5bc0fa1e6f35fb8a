/* SPDX-License-Identifier: MIT */
/* page_guard.h - ranges of memory that show files. Reading a page beyond a file's new end raises
 * SIGBUS; the program's handler asks a guard for it, which puts zeros there and notes the loss. */
#ifndef PAGE_GUARD_H
#define PAGE_GUARD_H

#include <stdatomic.h>
#include <stddef.h>

struct page_guard {
    _Atomic(struct guard_block *) first;
};

struct guarded_range;

/* Guards the pages in which at[bytes] lies. *lost becomes 1 if one of them cannot be read; it must
 * live until the range is released. NULL: out of memory */
struct guarded_range *cb_page_guard_add(struct page_guard *g, const void *at, size_t bytes,
                                        atomic_int *lost);
/* Puts zeroed memory into the range's pages, which then show no file. 0: not possible */
int cb_guarded_range_detach(const struct guarded_range *r);
/* Call before the memory is unmapped; NULL is allowed. */
void cb_guarded_range_release(struct guarded_range *r);
/* 1: `at` is guarded; its range reads as zeros from its page on. Async-signal-safe */
int cb_page_guard_lost(struct page_guard *g, const void *at);
void cb_page_guard_close(struct page_guard *g); /* when all ranges are released */

#endif
