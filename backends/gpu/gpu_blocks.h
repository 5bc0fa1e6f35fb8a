/* SPDX-License-Identifier: MIT */
/* gpu_blocks.h - what a search reads: blocks of sketches, or pages' bounds, that the bank has and
 * the mirror copies; and lists that it leaves on the device. */
#ifndef GPU_BLOCKS_H
#define GPU_BLOCKS_H

#include "gpu_mirror.h"

/* n_block blocks of each KV head; block b is in the mirror's page (first + b) >> shift of n_page */
struct gpu_blocks {
    const uint8_t *at; /* KV head h's first block is at + h * head_bytes */
    size_t head_bytes, bytes;
    int n_kv, n_block;
    int first, shift, n_page;
};

/* Fills in where the blocks are in the mirror. 0: they are not the bank's. */
int cb_gpu_blocks_of(const struct gpu *g, struct gpu_blocks *b);
/* Brings the blocks that the mirror has not -> page[n_kv][n_page] on the device. 0: there is no
 * room for all of them. */
int cb_gpu_blocks_bring(struct gpu *g, const struct gpu_blocks *b, uint64_t *page);

/* A search by the kernels of a program that is made for it. choose(g, p, x) is 0 where there is no
 * room for what it reads; so is this then, or where kernels cannot read the blocks. */
int cb_gpu_search(struct gpu *g, struct gpu_blocks *b, struct gpu_program *(*program)(struct gpu *),
                  int (*choose)(struct gpu *, struct gpu_program *, void *), void *x);
/* Reserves work[bytes]. What the kernels of a search are to know, known[n], and after it the
 * addresses of the mirror's pages, which get what they lack -> where both are on the device. NULL:
 * there is no room for all that, or something has failed */
void *cb_gpu_search_begin(struct gpu *g, const struct gpu_blocks *b, const void *known, size_t n,
                          size_t work);
/* n times `size` bytes on the device until the op ends, of which there is enough; *bytes grows by
 * them. Where g is NULL they are only counted. */
void *cb_gpu_search_room(struct gpu *g, size_t *bytes, size_t n, size_t size);

/* As in long_list.cl: numbers that a group has of a long list, and how they are counted */
enum { LIST_PIECE = 4096, LIST_PASSES = 3, LIST_COUNTS = LIST_PASSES * 2048 };

static inline int cb_gpu_list_pieces(int n)
{
    return (n + LIST_PIECE - 1) / LIST_PIECE;
}

/* The query in the host's memory, which the caller frees where it is another; NULL: something has
 * failed */
float *cb_gpu_query_home(struct gpu *g, const float *q, int n);
/* The kernels of a search. NULL: they do not compile, which is tried once; `note` says so. */
struct gpu_program *cb_gpu_search_program(struct gpu *g, enum gpu_text text, enum gpu_note note,
                                          const char *why);

/* A search begins: lists of another session's come home, those of the last one are done with. */
void cb_gpu_found_begin(struct gpu *g);
/* It ends with these lists. later: they may stay on the device */
void cb_gpu_found_end(struct gpu *g, struct gpu_found found, int later);

#endif
