/* SPDX-License-Identifier: MIT */
/* gpu_blocks.c - the blocks that a search reads, in the mirror. */
#include "gpu_blocks.h"

#include <string.h>

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

void *cb_gpu_search_begin(struct gpu *g, const struct gpu_blocks *b, const void *known, size_t n,
                          size_t work)
{
    const size_t all = n + (size_t)(b->n_kv * b->n_page) * sizeof(uint64_t);
    const size_t bytes = cb_gpu_aligned(all) + work;
    void *host, *on;

    if (!cb_gpu_stage_fits(g, bytes))
        return NULL;
    cb_gpu_stage_reserve(g, bytes);
    on = cb_gpu_room_beside(g, all, &host);
    if (!on)
        return NULL;
    memcpy(host, known, n);
    if (!cb_gpu_blocks_bring(g, b, (uint64_t *)(void *)((char *)host + n)))
        return NULL;
    cb_gpu_send(g, on, host, all);
    return on;
}

void *cb_gpu_search_room(struct gpu *g, size_t *bytes, size_t n, size_t size)
{
    *bytes += cb_gpu_aligned(n * size);
    return g ? cb_gpu_scratch(g, n * size) : NULL;
}

float *cb_gpu_query_home(struct gpu *g, const float *q, int n)
{
    return g->status ? NULL : cb_gpu_to_host(g, q, (size_t)n * sizeof *q);
}

struct gpu_program *cb_gpu_search_program(struct gpu *g, enum gpu_text text, enum gpu_note note,
                                          const char *why)
{
    struct gpu_program *p;

    if (g->said & 1u << note)
        return NULL;
    p = cb_gpu_program(g, text, (struct gpu_options){ 0 });
    if (!p) {
        cb_gpu_say(g, note, why);
        g->said |= 1u << note; /* also where nobody listens */
    }
    return p;
}

void cb_gpu_found_begin(struct gpu *g)
{
    if (g->found.to && !g->found.used && !g->found.sent)
        cb_gpu_found_home(g);
    g->found.to = NULL;
}

void cb_gpu_found_end(struct gpu *g, struct gpu_found found, int later)
{
    g->found = found;
    cb_gpu_done(g);
    if (!later)
        cb_gpu_found_home(g);
}

int cb_gpu_search(struct gpu *g, struct gpu_blocks *b, struct gpu_program *(*program)(struct gpu *),
                  int (*choose)(struct gpu *, struct gpu_program *, void *), void *x)
{
    struct gpu_program *p;
    int done;

    cb_gpu_found_begin(g);
    if (g->status)
        return 1;
    p = g->stream_kv || !cb_gpu_blocks_of(g, b) ? NULL : program(g);
    done = p && choose(g, p, x);
    g->locked = 0;
    return done;
}
