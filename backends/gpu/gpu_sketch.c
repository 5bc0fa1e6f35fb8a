/* SPDX-License-Identifier: MIT */
/* gpu_sketch.c - searches of sketched keys. The CPU draws sketches in the bank, and the mirror has
 * copies of them, which search.cl scores; the slots that it finds are lists of the host. The CPU
 * searches where there is no room for all sketches of a layer. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/sketch.h"
#include "gpu.h"
#include "gpu_blocks.h"

/* ---- what the CPU does ---- */

/* Rows that the device has stored must be there. 0: something has failed. */
static int host_ready(struct gpu *g)
{
    cb_gpu_finish(g);
    return !g->status;
}

void cb_gpu_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch)
{
    struct gpu *g = cb_gpu_of(d);

    if (host_ready(g))
        g->host.ops->sketch(&g->host, t, rows, n_block, hd, bits, n_out, sketch);
    cb_gpu_wrote(g, sketch, (size_t)n_block * cb_sketch_bytes(bits, hd));
}

static void topk_on_host(struct gpu *g, const struct sketch_topk *s)
{
    struct sketch_topk host = *s;
    float *q = cb_gpu_query_home(g, s->q, s->n_head * s->hd);

    host.q = q;
    if (q && !g->status) {
        g->host.ops->sketch_topk(&g->host, &host);
        g->traffic.host_sketches += (uint64_t)s->n_kv * (uint64_t)s->n_block;
    }
    if (q != s->q)
        free(q);
}

/* ---- on the device ---- */

/* As struct search in search.cl */
struct gpu_search {
    uint64_t may_rest;
    uint32_t weight[32], log[32];
    float unit, unit_mult, middle;
    int32_t group, hd, pad, bits, down;
    int32_t n_block, n_page, first, shift, block_bytes;
    int32_t n_strip, n_all;
    int32_t lo, hi, k, has_miss, before, after;
};

enum {
    ITEMS = 128, /* a group's, in search.cl */
};

/* A search, and its work space on the device */
struct search {
    const struct sketch_topk *s;
    struct gpu_search of;
    struct gpu_blocks b;
    int n_piece;
    uint64_t *page;  /* [n_kv][n_page] of the host: where the mirror's pages lie */
    int32_t *result; /* [n_kv] lists of the host: how many slots, and they */
    void *on_of, *on_page, *q, *strips, *score, *top, *sum, *rank, *count, *part, *end, *found;
};

/* What the kernels are to know. 0: the sketches are not the bank's. */
static int describe(struct gpu *g, struct search *x)
{
    const struct sketch_topk *s = x->s;
    struct gpu_search *of = &x->of;

    x->b = (struct gpu_blocks){ .at = s->sketch,
                                .head_bytes = s->head_bytes,
                                .bytes = cb_sketch_bytes(s->bits, s->hd),
                                .n_kv = s->n_kv,
                                .n_block = s->n_block };
    if (!cb_gpu_blocks_of(g, &x->b))
        return 0;
    of->shift = x->b.shift;
    of->first = x->b.first;
    of->n_page = x->b.n_page;
    of->block_bytes = (int32_t)x->b.bytes;
    for (int i = 0; i < 32; i++) {
        of->weight[i] = cb_sketch_weight[i];
        of->log[i] = cb_sketch_log[i];
    }
    of->may_rest = cb_sketch_rest(s->miss);
    of->has_miss = s->miss > 0;
    of->unit = cb_sketch_scale(s->scale);
    of->unit_mult = cb_sketch_mult_unit(s->bits);
    of->middle = cb_sketch_middle(s->bits);
    of->down = cb_sketch_shift(s->bits);
    of->group = s->n_head / s->n_kv;
    of->hd = s->hd;
    of->pad = cb_sketch_pad(s->hd);
    of->bits = s->bits;
    of->n_block = s->n_block;
    of->n_all = of->pad / SKETCH_STRIP;
    of->n_strip = s->half ? cb_sketch_half(s->hd) : of->n_all;
    of->lo = s->lo;
    of->hi = s->hi;
    of->k = s->k;
    of->before = s->later ? s->before : 0;
    of->after = s->later ? s->after : 0;
    x->n_piece = cb_sketch_pieces(s->n_block);
    return 1;
}

/* What a list and its number take */
static size_t list_bytes(const struct search *x)
{
    return (size_t)(1 + x->of.before + x->of.k + x->of.after) * sizeof(int32_t);
}

static size_t work_space(struct gpu *g, struct search *x)
{
    const struct sketch_topk *s = x->s;
    const size_t n = (size_t)s->n_block * SKETCH_BLOCK, piece = (size_t)x->n_piece;
    const size_t heads = (size_t)s->n_head, kv = (size_t)s->n_kv;
    size_t bytes = 0;

    x->strips = cb_gpu_search_room(g, &bytes, kv * (SKETCH_MAX_HD / SKETCH_STRIP), sizeof(int32_t));
    x->score = cb_gpu_search_room(g, &bytes, heads * n, sizeof(int16_t));
    x->top = cb_gpu_search_room(g, &bytes, heads * piece, sizeof(int32_t));
    x->sum = cb_gpu_search_room(g, &bytes, heads * piece, sizeof(uint32_t));
    x->rank = cb_gpu_search_room(g, &bytes, kv * n, sizeof(uint16_t));
    x->count = cb_gpu_search_room(g, &bytes, kv * SKETCH_BUCKETS, sizeof(uint32_t));
    x->part = cb_gpu_search_room(g, &bytes, kv * piece * 2, sizeof(int32_t));
    x->end = cb_gpu_search_room(g, &bytes, kv * 2, sizeof(int32_t));
    if (g) /* may stay longer */
        x->found = cb_gpu_room_for(g, kv * list_bytes(x));
    return bytes + cb_gpu_aligned(kv * list_bytes(x));
}

static void launch(struct gpu *g, struct gpu_program *p, const struct search *x)
{
    const struct sketch_topk *s = x->s;
    const size_t kv = (size_t)s->n_kv, piece = (size_t)x->n_piece;
    const size_t heads[3] = { kv, 1, 1 }, blocks[3] = { (size_t)s->n_block, kv, 1 };
    const size_t parts[3] = { piece, (size_t)s->n_head, 1 }, pieces[3] = { piece, kv, 1 };
    void *const *deep = cb_gpu_mirror_pieces(g);
    const struct gpu_arg strips[] = { GPU_P(x->on_of), GPU_P(x->on_page), GPU_P(x->q),
                                      GPU_P(x->strips), GPU_P(x->count) };
    const struct gpu_arg scan[] = { GPU_P(x->on_of), GPU_P(x->on_page), GPU_P(x->q),
                                    GPU_P(x->strips), GPU_P(x->score) };
    const struct gpu_arg weigh[] = { GPU_P(x->on_of), GPU_P(x->score), GPU_P(x->top), GPU_P(x->sum),
                                     GPU_I(x->n_piece) };
    const struct gpu_arg rank[] = { GPU_P(x->on_of), GPU_P(x->score),   GPU_P(x->top),
                                    GPU_P(x->sum),   GPU_I(x->n_piece), GPU_P(x->rank),
                                    GPU_P(x->count) };
    const struct gpu_arg count[] = { GPU_P(x->on_of),   GPU_P(x->rank), GPU_P(x->count),
                                     GPU_I(x->n_piece), GPU_P(x->part), GPU_P(x->end),
                                     GPU_P(x->found) };
    const struct gpu_arg pick[] = { GPU_P(x->on_of), GPU_P(x->rank),    GPU_P(x->part),
                                    GPU_P(x->end),   GPU_I(x->n_piece), GPU_P(x->found) };

    cb_gpu_run(g, p, "sketch_strips", heads, ITEMS, strips, 5, deep);
    cb_gpu_run(g, p, "sketch_scan", blocks, ITEMS, scan, 5, deep);
    cb_gpu_run(g, p, "sketch_weigh", parts, ITEMS, weigh, 5, NULL);
    cb_gpu_run(g, p, "sketch_rank", pieces, ITEMS, rank, 7, NULL);
    cb_gpu_run(g, p, "sketch_count", pieces, ITEMS, count, 7, NULL);
    cb_gpu_run(g, p, "sketch_pick", pieces, ITEMS, pick, 6, NULL);
}

static void give(const struct search *x)
{
    const struct sketch_topk *s = x->s;
    const int32_t *found = x->result;

    for (int h = 0; h < s->n_kv; h++, found += list_bytes(x) / sizeof *found) {
        s->n[h] = found[0];
        memcpy(s->idx + (size_t)h * (size_t)s->idx_stride, found + 1 + x->of.before,
               (size_t)found[0] * sizeof *found);
    }
}

/* The lists stay on the device, and what reads them there does not wait. */
static void leave(struct gpu *g, const struct search *x)
{
    const struct sketch_topk *s = x->s;

    for (int h = 0; h < s->n_kv; h++)
        s->n[h] = s->k; /* there are more candidates */
    g->found = (struct gpu_found){ .to = s->idx - s->before,
                                   .on = x->found,
                                   .n_list = s->n_kv,
                                   .n = s->before + s->k + s->after,
                                   .stride = s->idx_stride,
                                   .end = s->hi + s->after };
}

/* 1: done; 0: the CPU has to do it */
static int topk(struct gpu *g, struct gpu_program *p, struct search *x)
{
    const struct sketch_topk *s = x->s;
    const size_t n_page = (size_t)s->n_kv * (size_t)x->of.n_page;
    const size_t results = (size_t)s->n_kv * list_bytes(x);
    const size_t q_bytes = (size_t)s->n_head * (size_t)s->hd * sizeof(float);
    const size_t bytes = work_space(NULL, x) + cb_gpu_aligned(sizeof x->of) +
                         cb_gpu_aligned(n_page * sizeof *x->page) + cb_gpu_aligned(q_bytes);
    int later;

    if (!cb_gpu_stage_fits(g, bytes))
        return 0;
    cb_gpu_stage_reserve(g, bytes);
    x->page = cb_calloc(n_page, sizeof *x->page);
    x->result = cb_calloc(results, 1);
    if (!x->page || !x->result) {
        cb_gpu_fail_memory(g, "search");
        return 1;
    }
    if (!cb_gpu_blocks_bring(g, &x->b, x->page))
        return 0;
    x->on_of = cb_gpu_in(g, &x->of, sizeof x->of);
    x->on_page = cb_gpu_in(g, x->page, n_page * sizeof *x->page);
    x->q = cb_gpu_in(g, s->q, q_bytes);
    work_space(g, x);
    launch(g, p, x);
    later = s->later && s->k < s->hi - s->lo && !cb_gpu_stage_ends(g) && !g->status;
    if (!later)
        cb_gpu_back(g, x->result, results, x->found, results, results, 1);
    cb_gpu_done(g);
    if (later)
        leave(g, x);
    else if (!g->status)
        give(x);
    if (!g->status) {
        g->traffic.hit_sketches += (uint64_t)s->n_kv * (uint64_t)s->n_block;
    }
    return 1;
}

void cb_gpu_sketch_topk(struct device *d, const struct sketch_topk *s)
{
    struct gpu *g = cb_gpu_of(d);
    struct search x = { .s = s };
    struct gpu_program *p;
    int done = 0;

    cb_gpu_found_begin(g);
    for (int h = 0; h < s->n_kv; h++)
        s->n[h] = 0;
    if (g->status || s->k < 1)
        return;
    p = g->stream_kv || !describe(g, &x)
            ? NULL
            : cb_gpu_search_program(g, GPU_SEARCH, NOTE_SKETCHES,
                                    "the CPU searches sketches: the kernels do not compile");
    if (p)
        done = topk(g, p, &x);
    g->locked = 0;
    free(x.page);
    free(x.result);
    if (!done)
        topk_on_host(g, s);
}
