/* SPDX-License-Identifier: MIT */
/* gpu_mirror.h - copies of the bank's rows on the device, in pages. */
#ifndef GPU_MIRROR_H
#define GPU_MIRROR_H

#include "gpu.h"

enum { GPU_PAGE = 16 << 10 }; /* bytes; a page holds a power of two of whole rows */
enum { GPU_MOST_MAP = 48 };

/* When pages were read last: in which feed, op and layer */
struct gpu_read {
    uint64_t feed, op, layer;
};

/* Pages that ops read again and again as a whole are not looked at one by one. */
struct gpu_again {
    int full_lo, full_hi; /* pages that are on the device, full of rows as the host has them */
    int lo, hi;           /* those of them that `last` holds for, however old they say they are */
    struct gpu_read last;
};

/* Pieces of the host's memory, one after the other, that kernels may read; where they end in it */
struct gpu_map {
    int n, failed; /* 1: no more of it can be had */
    size_t end[GPU_MOST_MAP];
};

/* Rows of the host that may be mirrored. */
struct gpu_area {
    const uint8_t *rows;
    size_t row_bytes, n_row;
    int shift; /* 1 << shift rows a page */
    int n_page;
    struct gpu_page **page; /* [n_page] NULL: not on the device */
    uint64_t *at;           /* [n_page] where they lie there; 0: nowhere */
    struct gpu_again again;
    struct gpu_chosen *chosen; /* gpu_chosen.h */
    uint64_t brought;          /* rows that lists have brought to it, as keys */
    struct gpu_cache *cache;   /* gpu_cache.h */
    struct gpu_map map;        /* gpu_map.h */
    uint64_t stored;           /* g->emptied when the device last stored rows here */
    int last;                  /* the last one of them, */
    const uint8_t *last_on;    /* and where it is on the device until the queue is empty */
};

int cb_gpu_mirror_open(struct gpu *g);
void cb_gpu_mirror_close(struct gpu *g);
void cb_gpu_mirror_drop(struct gpu *g); /* all pages have to be read again */

void cb_gpu_mirror_give_way(struct gpu *g, size_t bytes); /* until this many are free */
/* Bytes that this many bytes of rows take, whose pages are full for the most part */
uint64_t cb_gpu_mirror_takes(const struct gpu *g, uint64_t rows);
uint64_t cb_gpu_mirror_bytes(const struct gpu *g); /* of pages */

int cb_gpu_watch(struct gpu *g, const void *rows, size_t row_bytes, size_t n_row);
void cb_gpu_unwatch(struct gpu *g, const void *rows);
void cb_gpu_wrote(struct gpu *g, const void *from, size_t bytes);
int cb_gpu_areas(const struct gpu *g); /* their number */
/* The area that holds p, or NULL */
struct gpu_area *cb_gpu_area(const struct gpu *g, const void *p);

/* Begins an op: pages that it uses from here on are not given up while it lasts. */
void cb_gpu_mirror_begin(struct gpu *g);
/* Gives up all pages, if none are to stay, unless this feed's last such call named the same area.
 */
void cb_gpu_mirror_turn(struct gpu *g, const struct gpu_area *a);
/* How far pages may push others out: MAY only those that the current feed and the one before have
 * not read, MUST all that the op does not use. CHOSEN: none, and it does not count as reading: rows
 * whose rows are chosen for each token leave their place to layers that are read whole. */
enum gpu_need { GPU_CHOSEN, GPU_MAY, GPU_MUST };
/* Another layer begins. Pages that it uses, or that were brought for it, are not given up for those
 * that are brought for the next one. */
void cb_gpu_mirror_next_layer(struct gpu *g);
int cb_gpu_mirror_capacity(const struct gpu *g); /* pages that there are or can be */
/* A page of the next layer, with its rows up to `end`, comes in the second queue. 0: there is no
 * place. */
int cb_gpu_mirror_bring(struct gpu *g, struct gpu_area *a, int page, int end);
/* The page that holds `row`, with its rows up to `end` (counted in the area) as the host has them;
 * NULL: it is not on the device and there is no room. */
uint8_t *cb_gpu_mirror_page(struct gpu *g, struct gpu_area *a, int page, int end,
                            enum gpu_need need);
/* Pages page..page+n-1 are read. -> How many of them, from the first on, are known to be on the
 * device with all their rows; the others have to be asked for one by one. */
int cb_gpu_mirror_again(struct gpu *g, struct gpu_area *a, int page, int n);
/* All these pages have been found; all but the last are full. */
void cb_gpu_mirror_found(struct gpu *g, struct gpu_area *a, int page, int n);
/* Is the row on the device as the host has it? */
int cb_gpu_mirror_has(const struct gpu_area *a, int row);
int cb_gpu_mirror_has_all(struct gpu *g, struct gpu_area *a, int end); /* rows 0..end-1 */
/* Coded rows, on the device, that were stored in the area's rows first..first+n-1. Pages that begin
 * among them get a place if there is one. */
void cb_gpu_mirror_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first, int n,
                          enum gpu_need need);
/* Something of rows first..first+n-1, which lie in one page, is stored there. Where the page does
 * not have all of them, it has none from here on. fresh: nobody has stored anything of them yet, so
 * they get a place if there is one. */
void cb_gpu_mirror_changes(struct gpu *g, struct gpu_area *a, int first, int n, int fresh);
/* Pieces of memory that pages lie in: a list that ends with NULL */
void *const *cb_gpu_mirror_pieces(const struct gpu *g);

#endif
