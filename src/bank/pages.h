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
/* Asks for the pages of a mapped area, which will be read in their order. */
void cb_pages_ahead(const uint8_t *from, size_t bytes);
/* 1: some page at the beginning of a mapped area is not in memory */
int cb_pages_on_disk(uint8_t *from, size_t bytes);
/* Turns the part of [from, to) that fills whole 2 MiB pages into huge pages: only full ones waste
 * no memory. */
void cb_pages_collapse(uint8_t *from, uint8_t *to);

int cb_pages_begin_at(const void *at); /* 1: a page begins there */

/* A file in memory, for pages that several areas show. */
int cb_pages_file_open(size_t bytes); /* its descriptor; -1: the system gives none */
/* Writes it, in huge pages where these are whole. CB_ENOMEM. */
int cb_pages_file_put(int fd, size_t at, const void *from, size_t bytes);
/* Shows it at `to`, where a page begins; who writes gets pages of his own. 0: not possible, and
 * nothing has changed. */
int cb_pages_file_show(int fd, size_t at, void *to, size_t bytes);
void cb_pages_file_close(int fd); /* -1 is allowed */

#endif
