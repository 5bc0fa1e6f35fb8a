/* SPDX-License-Identifier: MIT */
/* cl_mirror.h - copies of the bank's rows on the device, in pages. */
#ifndef CL_MIRROR_H
#define CL_MIRROR_H

#include "cl.h"

enum { CL_PAGE = 16 << 10 }; /* bytes; a page holds a power of two of whole rows */

/* Rows of the host that may be mirrored. */
struct cl_area {
    const uint8_t *rows;
    size_t row_bytes, n_row;
    int shift; /* 1 << shift rows a page */
    int n_page;
    struct cl_page **page; /* [n_page] NULL: not on the device */
};

int cb_cl_mirror_open(struct cl *c);
void cb_cl_mirror_close(struct cl *c);
void cb_cl_mirror_drop(struct cl *c); /* all pages are to be read anew */

int cb_cl_watch(struct cl *c, const void *rows, size_t row_bytes, size_t n_row);
void cb_cl_unwatch(struct cl *c, const void *rows);
void cb_cl_wrote(struct cl *c, const void *from, size_t bytes);
/* The area that holds p, or NULL */
struct cl_area *cb_cl_area(const struct cl *c, const void *p);

/* Begins an op: pages that it uses from here on are not given up while it lasts. */
void cb_cl_mirror_begin(struct cl *c);
/* How far pages may push others out: MAY only those that the current feed and the one before have
 * not read, MUST all that the op does not use. */
enum cl_need { CL_MAY, CL_MUST };
/* The page that holds `row`, with its rows up to `end` (counted in the area) as the host has them;
 * NULL: it is not on the device and there is no room. */
uint8_t *cb_cl_mirror_page(struct cl *c, struct cl_area *a, int page, int end, enum cl_need need);
/* Is the row on the device as the host has it? */
int cb_cl_mirror_has(const struct cl_area *a, int row);
/* Coded rows, on the device, that were stored in the area's rows first..first+n-1. need MUST: pages
 * that begin among them get a place. */
void cb_cl_mirror_stored(struct cl *c, struct cl_area *a, const uint8_t *coded, int first, int n,
                         enum cl_need need);
/* Pieces of memory that pages lie in: a list that ends with NULL */
void *const *cb_cl_mirror_pieces(const struct cl *c);

#endif
