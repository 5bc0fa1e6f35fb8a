/* SPDX-License-Identifier: MIT */
/* gpu_blocks.c - the blocks that a search reads, in the mirror. */
#include "gpu_blocks.h"

int cb_gpu_blocks_of(const struct gpu *g, struct gpu_blocks *b)
{
    for (int h = 0; h < b->n_kv; h++) {
        const uint8_t *block = b->at + (size_t)h * b->head_bytes;
        const struct gpu_area *a = cb_gpu_area(g, block);
        int row;
        if (!a || a->row_bytes != b->bytes)
            return 0;
        row = (int)((size_t)(block - a->rows) / b->bytes);
        b->shift = a->shift;
        b->first = row & ((1 << a->shift) - 1);
        b->n_page = ((b->first + b->n_block - 1) >> a->shift) + 1;
    }
    return 1;
}

int cb_gpu_blocks_bring(struct gpu *g, const struct gpu_blocks *b, uint64_t *page)
{
    cb_gpu_mirror_begin(g);
    for (int h = 0; h < b->n_kv; h++) {
        const uint8_t *block = b->at + (size_t)h * b->head_bytes;
        struct gpu_area *a = cb_gpu_area(g, block);
        const int row = (int)((size_t)(block - a->rows) / b->bytes);
        for (int i = 0; i < b->n_page; i++) {
            g->locked = 1;
            *page = (uintptr_t)cb_gpu_mirror_page(g, a, (row >> a->shift) + i, row + b->n_block,
                                                  GPU_MAY);
            if (!*page++)
                return 0;
        }
    }
    return !g->status;
}

void cb_gpu_found_begin(struct gpu *g)
{
    if (g->found.to && !g->found.used)
        cb_gpu_found_home(g);
    g->found.to = NULL;
}
