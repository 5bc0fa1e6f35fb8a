/* SPDX-License-Identifier: MIT */
/* gpu_pages.c - the pages that score best by bounds of their keys. Bounds are the bank's, and the
 * mirror has copies of them, which pages.cl scores. The CPU scores them where there is no room for
 * all of a layer. */
#include <stdlib.h>

#include "base/err.h"
#include "device/sketch.h"
#include "gpu.h"
#include "gpu_blocks.h"
#include "gpu_pages.h"

enum {
    SCORE_ITEMS = 128, /* as in pages.cl */
    LANES = 16,
    PICK_ITEMS = 256,
    PICK_ALONE = 8192, /* pages of a list that one group chooses from */
};

/* A choice of pages, and its work space on the device */
struct choice {
    const struct page_topk *t;
    struct gpu_blocks b;
    int n_list, n; /* slots of a list */
    void *on, *q, *score, *found;
};

/* ---- what the CPU does ---- */

void cb_gpu_page_scores(struct device *d, const struct page_scores *s)
{
    struct gpu *g = cb_gpu_of(d);
    struct page_scores host = *s;
    float *q = cb_gpu_query_home(g, s->q, s->n_head * s->hd);

    host.q = q;
    if (q && !g->status) {
        g->host.ops->page_scores(&g->host, &host);
        g->traffic.host_sketches += (uint64_t)s->n_kv * (uint64_t)s->n_page;
    }
    if (q != s->q)
        free(q);
}

/* ---- on the device ---- */

/* Work space, which has been reserved; its bytes, where g is NULL */
static size_t work_space(struct gpu *g, struct choice *x)
{
    const struct page_scores *s = &x->t->s;
    const size_t q = (size_t)(s->n_head * s->hd) * sizeof(float);
    const size_t score = (size_t)x->n_list * (size_t)s->n_page * sizeof(float);
    const size_t found = (size_t)x->n_list * (size_t)(x->n + 1) * sizeof(int32_t);

    x->q = g ? cb_gpu_in(g, s->q, q) : NULL;
    x->score = g ? cb_gpu_scratch(g, score) : NULL;
    x->found = g ? cb_gpu_room_for(g, found) : NULL; /* may stay longer */
    return cb_gpu_aligned(q) + cb_gpu_aligned(score) + cb_gpu_aligned(found) +
           cb_gpu_pick_bytes(x->n_list, s->n_page);
}

/* What the kernels are to know goes to the device. 0: there is no room. */
static int begin(struct gpu *g, struct choice *x)
{
    const struct page_scores *s = &x->t->s;
    const struct gpu_pages of = { .n_page = s->n_page,
                                  .n_block = x->b.n_page,
                                  .first = x->b.first,
                                  .shift = x->b.shift,
                                  .bytes = (int32_t)x->b.bytes,
                                  .hd = s->hd,
                                  .group = s->n_head / s->n_kv,
                                  .per = s->per,
                                  .mean = s->mean,
                                  .page = x->t->page,
                                  .lo = x->t->lo,
                                  .k = x->t->k,
                                  .before = x->t->before,
                                  .after = x->t->after };

    x->on = cb_gpu_search_begin(g, &x->b, &of, sizeof of, work_space(NULL, x));
    return x->on != NULL;
}

struct gpu_program *cb_gpu_pages_program(struct gpu *g)
{
    return cb_gpu_search_program(g, GPU_PAGES, NOTE_PAGES,
                                 "the CPU scores pages: the kernels do not compile");
}

static int pieces_of(int n_page)
{
    return n_page > PICK_ALONE ? cb_gpu_list_pieces(n_page) : 0;
}

static size_t count_bytes(int n_list)
{
    return (size_t)n_list * LIST_COUNTS * sizeof(uint32_t);
}

static size_t part_bytes(int n_list, int n_page)
{
    return (size_t)n_list * (size_t)pieces_of(n_page) * 2 * sizeof(int32_t);
}

size_t cb_gpu_pick_bytes(int n_list, int n_page)
{
    return pieces_of(n_page)
               ? cb_gpu_aligned(count_bytes(n_list)) + cb_gpu_aligned(part_bytes(n_list, n_page))
               : 0;
}

void cb_gpu_pick_pages(struct gpu *g, struct gpu_program *p, const void *of, const float *score,
                       int n_list, int n_page, int32_t *found)
{
    const int n_piece = pieces_of(n_page);
    const size_t lists[3] = { (size_t)n_list, 1, 1 };
    const size_t pieces[3] = { (size_t)n_piece, (size_t)n_list, 1 };
    void *count = n_piece ? cb_gpu_scratch(g, count_bytes(n_list)) : NULL;
    void *part = n_piece ? cb_gpu_scratch(g, part_bytes(n_list, n_page)) : NULL;
    const struct gpu_arg alone[] = { GPU_P(of), GPU_P(score), GPU_P(found) };
    const struct gpu_arg clear[] = { GPU_P(count) };
    const struct gpu_arg parts[] = { GPU_P(of), GPU_P(score), GPU_P(count), GPU_I(n_piece),
                                     GPU_P(part) };
    const struct gpu_arg list[] = { GPU_P(of),      GPU_P(score), GPU_P(count),
                                    GPU_I(n_piece), GPU_P(part),  GPU_P(found) };

    if (!n_piece) {
        cb_gpu_run(g, p, "pick_pages", lists, PICK_ITEMS, alone, 3, NULL);
        return;
    }
    cb_gpu_run(g, p, "clear_counts", lists, PICK_ITEMS, clear, 1, NULL);
    for (int pass = 0; pass < LIST_PASSES; pass++) {
        const struct gpu_arg counts[] = { GPU_P(of), GPU_P(score), GPU_I(pass), GPU_P(count) };
        cb_gpu_run(g, p, "count_pages", pieces, PICK_ITEMS, counts, 4, NULL);
    }
    cb_gpu_run(g, p, "part_pages", pieces, PICK_ITEMS, parts, 5, NULL);
    cb_gpu_run(g, p, "list_pages", pieces, PICK_ITEMS, list, 6, NULL);
}

static void launch(struct gpu *g, struct gpu_program *p, const struct choice *x)
{
    const size_t each = SCORE_ITEMS / LANES, n_page = (size_t)x->t->s.n_page;
    const size_t pages[3] = { (n_page + each - 1) / each, (size_t)x->n_list, 1 };
    const struct gpu_arg score[] = { GPU_P(x->on), GPU_P((char *)x->on + sizeof(struct gpu_pages)),
                                     GPU_P(x->q), GPU_P(x->score) };

    cb_gpu_run(g, p, "score_pages", pages, SCORE_ITEMS, score, 4, cb_gpu_mirror_pieces(g));
    cb_gpu_pick_pages(g, p, x->on, x->score, x->n_list, x->t->s.n_page, x->found);
}

static int choose(struct gpu *g, struct gpu_program *p, void *choice)
{
    struct choice *x = choice;
    const struct page_topk *t = x->t;

    if (!begin(g, x))
        return 0;
    work_space(g, x);
    launch(g, p, x);
    g->traffic.hit_sketches += (uint64_t)t->s.n_kv * (uint64_t)t->s.n_page;
    const struct gpu_found found = { .to = t->idx - t->before,
                                     .on = x->found,
                                     .n_list = x->n_list,
                                     .n = x->n,
                                     .stride = t->idx_stride,
                                     .end = t->lo + t->s.n_page * t->page + t->after };
    cb_gpu_found_end(g, found, t->later);
    return 1;
}

int cb_gpu_page_topk(struct device *d, const struct page_topk *t)
{
    struct gpu *g = cb_gpu_of(d);
    const struct page_scores *s = &t->s;
    struct choice x = { .t = t,
                        .b = { .at = s->bounds,
                               .head_bytes = s->head_bytes,
                               .bytes = cb_bounds_bytes(s->hd),
                               .n_kv = s->n_kv,
                               .n_block = s->n_page },
                        .n_list = s->n_head / s->per,
                        .n = t->before + t->k * t->page + t->after };

    return cb_gpu_search(g, &x.b, cb_gpu_pages_program, choose, &x);
}
