/* SPDX-License-Identifier: MIT */
/* gpu_heads.c - scores of a token's candidates by the largest logit of any head, and the candidates
 * that score best. The host waits neither for the logits that attention has left on the device nor
 * for the list, which the next layers' ops read there. */
#include "gpu.h"
#include "gpu_blocks.h"
#include "gpu_pages.h"

enum { ITEMS = 64, PIECE = 1024 }; /* of a group, in select.cl; logits that it sums */

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static int pieces(int n)
{
    return (n + PIECE - 1) / PIECE;
}

/* Of log-sum-exps: of heads, after those of their pieces */
static size_t work_bytes(int n_head, int n)
{
    return floats(2 * (int64_t)n_head * (pieces(n) + 1));
}

/* x[n_head][stride] -> best[n], all on the device */
static void best_of_heads(struct gpu *g, const float *x, int stride, int n_head, int n, int normed,
                          float *best)
{
    struct gpu_program *p = cb_gpu_program(g, GPU_SELECT, (struct gpu_options){ 0 });
    const size_t parts[3] = { (size_t)n_head, (size_t)pieces(n), 1 };
    const size_t heads[3] = { (size_t)n_head, 1, 1 };
    float *part = normed ? cb_gpu_scratch(g, work_bytes(n_head, n)) : NULL;
    float *lse = part ? part + 2 * (ptrdiff_t)n_head * pieces(n) : NULL;
    const struct gpu_arg of_part[] = { GPU_P(x), GPU_I(stride), GPU_I(n), GPU_I(PIECE),
                                       GPU_P(part) };
    const struct gpu_arg of_head[] = { GPU_P(part), GPU_I(pieces(n)), GPU_P(lse) };
    const struct gpu_arg arg[] = { GPU_P(x),   GPU_I(stride), GPU_I(n_head), GPU_I(normed),
                                   GPU_P(lse), GPU_P(best),   GPU_L(n) };

    if (normed) {
        cb_gpu_run(g, p, "part_lse", parts, ITEMS, of_part, 5, NULL);
        cb_gpu_run(g, p, "head_lse", heads, ITEMS, of_head, 3, NULL);
    }
    cb_gpu_run_each(g, p, "best_head", n, arg, 7);
}

void cb_gpu_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best)
{
    struct gpu *g = cb_gpu_of(d);
    const float *x;
    float *to;

    if (n < 1)
        return;
    x = cb_gpu_in(g, logit, floats((int64_t)(n_head - 1) * stride + n));
    to = cb_gpu_out(g, best, floats(n));
    best_of_heads(g, x, stride, n_head, n, normed, to);
    cb_gpu_done(g);
}

/* 0: there is no room. */
static int choose(struct gpu *g, struct gpu_program *p, const struct head_topk *t, const float *x)
{
    const int n = t->k + t->after;
    const size_t found_bytes = (size_t)(n + 1) * sizeof(int32_t);
    const size_t bytes = cb_gpu_aligned(sizeof(struct gpu_pages)) + cb_gpu_aligned(floats(t->n)) +
                         cb_gpu_aligned(work_bytes(t->n_head, t->n)) + cb_gpu_aligned(found_bytes) +
                         cb_gpu_pick_bytes(1, t->n);
    struct gpu_pages *of;
    void *on, *host;
    int32_t *found;
    float *score;

    if (!cb_gpu_stage_fits(g, bytes))
        return 0;
    cb_gpu_stage_reserve(g, bytes);
    on = cb_gpu_room_beside(g, sizeof *of, &host);
    score = cb_gpu_scratch(g, floats(t->n));
    found = cb_gpu_room_for(g, found_bytes);
    if (!on || !score || !found)
        return 1; /* it has failed */
    of = host;
    *of =
        (struct gpu_pages){ .n_page = t->n, .page = 1, .lo = t->lo, .k = t->k, .after = t->after };
    cb_gpu_send(g, on, of, sizeof *of);
    best_of_heads(g, x, g->logits.stride, t->n_head, t->n, t->normed, score);
    cb_gpu_pick_pages(g, p, on, score, 1, t->n, found);
    cb_gpu_fetch_rows(g, t->idx, found + 1, (size_t)t->k * sizeof *found);
    g->lists_sent = g->emptied + 1;
    g->logits.to = NULL;
    const struct gpu_found list = { .to = t->idx,
                                    .on = found,
                                    .n_list = 1,
                                    .n = n,
                                    .stride = 1,
                                    .end = t->lo + t->n + t->after,
                                    .sent = 1 };
    cb_gpu_found_end(g, list, 1);
    return 1;
}

/* Where the device has the candidates' logits; NULL: it has not */
static const float *logits_of(const struct gpu *g, const struct head_topk *t)
{
    const struct gpu_logits *x = &g->logits;
    const intptr_t at = ((intptr_t)t->logit - (intptr_t)x->to) / (intptr_t)sizeof *t->logit;

    return x->to && x->to_stride == t->stride && x->n_head == t->n_head && at >= 0 &&
                   at + t->n <= x->n
               ? x->on + at
               : NULL;
}

int cb_gpu_head_topk(struct device *d, const struct head_topk *t)
{
    struct gpu *g = cb_gpu_of(d);
    const float *x = logits_of(g, t);
    struct gpu_program *p;

    cb_gpu_found_begin(g);
    if (g->status)
        return 1;
    p = x ? cb_gpu_pages_program(g) : NULL;
    if (p && choose(g, p, t, x))
        return 1;
    if (x) {
        cb_gpu_logits_home(g);
        cb_gpu_finish(g);
    }
    return 0;
}
