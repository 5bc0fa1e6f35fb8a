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

/* The query in the host's memory, which the caller frees where it is another; NULL: something has
 * failed */
float *cb_gpu_query_home(struct gpu *g, const float *q, int n);
/* The kernels of a search. NULL: they do not compile, which is tried once; the note `bit` says so.
 */
struct gpu_program *cb_gpu_search_program(struct gpu *g, enum gpu_text text, int bit,
                                          const char *why);

/* A search begins: lists of another session's come home, those of the last one are done with. */
void cb_gpu_found_begin(struct gpu *g);

#endif
