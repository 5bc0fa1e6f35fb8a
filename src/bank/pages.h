/* SPDX-License-Identifier: MIT */
/* pages.h - reserved address space whose pages become memory when they are first written. */
#ifndef PAGES_H
#define PAGES_H

#include <stddef.h>
#include <stdint.h>

size_t cb_pages_up(size_t bytes); /* rounded up to whole pages */
/* Distance in bytes from one KV head's rows to the next head's: large heads begin on a huge-page
 * boundary. */
size_t cb_pages_head(size_t bytes);
int cb_pages_reserve(size_t bytes, void *out); /* *out: zeroed pages; CB_ENOMEM */
void cb_pages_release(void *p, size_t bytes);  /* p may be NULL */
/* Frees the memory of the whole pages in [from, to); they then read as 0. */
void cb_pages_give_back(uint8_t *from, uint8_t *to);
/* Reading a page does not bring its neighbours into memory. */
void cb_pages_scattered(uint8_t *from, size_t bytes);
/* 1: some page at the beginning of a mapped area is not in memory */
int cb_pages_on_disk(uint8_t *from, size_t bytes);
/* Turns the part of [from, to) that fills whole 2 MiB pages into huge pages: only full ones waste
 * no memory. */
void cb_pages_collapse(uint8_t *from, uint8_t *to);

#endif
