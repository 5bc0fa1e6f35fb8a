/* SPDX-License-Identifier: MIT */
/* pages.h - reserved address space whose pages become memory when they are first written. */
#ifndef PAGES_H
#define PAGES_H

#include <stddef.h>
#include <stdint.h>

size_t cb_pages_up(size_t bytes); /* to whole pages */
/* From one KV head's rows to the next one's: large ones begin where a huge page may. */
size_t cb_pages_head(size_t bytes);
int cb_pages_reserve(size_t bytes, void *out); /* *out: zeroed pages; CB_ENOMEM */
void cb_pages_release(void *p, size_t bytes);  /* p may be NULL */
/* The whole pages of [from, to) are memory no more; they read as 0 then. */
void cb_pages_give_back(uint8_t *from, uint8_t *to);
/* What of [from, to) fills 2 MiB pages becomes such: only then do they cost no memory that is not
 * used. */
void cb_pages_collapse(uint8_t *from, uint8_t *to);

#endif
