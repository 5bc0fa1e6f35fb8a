/* SPDX-License-Identifier: MIT */
/* gpu_index.c - keys of a trained selector, in strips: the device makes those of new tokens, which
 * go to the host's memory as stored rows do, and its mirror has copies of all, which index.cl
 * scores for a decoded token. The CPU scores them where there is no room for all of a layer. */
#include "gpu_index.h"

#include <stdlib.h>

#include "base/ints.h"
#include "device/index_strips.h"
#include "gpu_blocks.h"

enum {
    ITEMS = 128, /* as in index.cl */
    BEST_ITEMS = 256,
    MOST_HD = 128,
    WORDS = MOST_HD / 4,
    PARTS = 4, /* of a key */
};

/* As struct strips in index.cl; the addresses of the mirror's pages follow, at a multiple of 8. */
struct gpu_strips {
    int32_t n, n_head, hd, pad;
    uint32_t page_bytes;
    int32_t k, n_near, n_piece, per, after;
};

static struct gpu_program *program(struct gpu *g)
{
    return cb_gpu_search_program(g, GPU_INDEX, NOTE_INDEX,
                                 "the CPU scores a selector's keys: the kernels do not compile");
}

/* ---- new keys ---- */

/* What a key has in its block: `bytes` bytes, after those of `before` bytes of each key */
struct part {
    size_t before, bytes;
};

static void parts_of(int hd, struct part part[PARTS])
{
    const size_t half = cb_strip_half(hd);
    const size_t bytes[PARTS] = { half, sizeof(float), half, half };

    for (size_t i = 0, before = 0; i < PARTS; before += bytes[i++])
        part[i] = (struct part){ before, bytes[i] };
}

/* Copies bytes that go to the area at byte `at` to those of its pages that are on the device. */
static void mirror(struct gpu *g, const struct gpu_area *a, size_t at, const uint8_t *from,
                   size_t bytes)
{
    const size_t page_bytes = a->row_bytes << a->shift;

    for (size_t n; bytes; bytes -= n, at += n, from += n) {
        const size_t page = at / page_bytes, in = at % page_bytes;
        n = bytes < page_bytes - in ? bytes : page_bytes - in;
        if (a->at[page])
            cb_gpu_move(g, (uint8_t *)(uintptr_t)a->at[page] + in, from, n);
    }
}

/* Key j of the area's blocks, which lies in `coded` part by part */
static void place_key(struct gpu *g, struct gpu_area *a, int hd, int j, const uint8_t *coded)
{
    const int block = j / STRIP_BLOCK * STRIP_BLOCK, in = j % STRIP_BLOCK;
    struct part part[PARTS];

    for (int row = block, n; row < block + STRIP_BLOCK; row += n) {
        n = min_int(block + STRIP_BLOCK - row, (1 << a->shift) - row % (1 << a->shift));
        cb_gpu_mirror_changes(g, a, row, n, !in);
    }
    parts_of(hd, part);
    for (int i = 0; i < PARTS; i++) {
        const size_t at = (size_t)block * a->row_bytes + STRIP_BLOCK * part[i].before +
                          (size_t)in * part[i].bytes;
        mirror(g, a, at, coded + part[i].before, part[i].bytes);
        cb_gpu_fetch_rows(g, (void *)(uintptr_t)(a->rows + at), coded + part[i].before,
                          part[i].bytes);
    }
}

static void put_on_host(struct gpu *g, const float *x, int n, int stride, int hd, int at,
                        uint8_t *strips)
{
    const size_t bytes = ((size_t)(n - 1) * (size_t)stride + (size_t)hd) * sizeof *x;
    const size_t first = (size_t)(at / STRIP_BLOCK) * cb_strip_bytes(hd);
    float *host = cb_gpu_to_host(g, x, bytes);

    if (host && !g->status) {
        cb_strips_put(host, n, stride, hd, at, strips);
        cb_gpu_wrote(g, strips + first, cb_strips_bytes(hd, at + n) - first);
    }
    if (host != x)
        free(host);
}

void cb_gpu_strips_put(struct device *d, const float *x, int n, int stride, int hd, int at,
                       void *strips)
{
    struct gpu *g = cb_gpu_of(d);
    const size_t row = cb_strip_row_bytes(hd), groups[3] = { (size_t)n, 1, 1 };
    const size_t bytes = ((size_t)(n - 1) * (size_t)stride + (size_t)hd) * sizeof *x;
    struct gpu_area *a = cb_gpu_area(g, strips);
    struct gpu_program *p;
    uint8_t *coded;

    if (n < 1 || g->status)
        return;
    p = a && a->rows == strips && a->row_bytes == row ? program(g) : NULL;
    if (!p) {
        put_on_host(g, x, n, stride, hd, at, strips);
        return;
    }
    coded = cb_gpu_room_for(g, (size_t)n * row);
    const struct gpu_arg arg[] = { GPU_P(cb_gpu_in(g, x, bytes)), GPU_I(stride), GPU_I(hd),
                                   GPU_P(coded) };
    cb_gpu_run(g, p, "index_put", groups, ITEMS, arg, 4, NULL);
    cb_gpu_mirror_begin(g);
    for (int i = 0; coded && !g->status && i < n; i++)
        place_key(g, a, hd, at + i, coded + (size_t)i * row);
    g->traffic.kv_out_bytes += (size_t)n * row;
    cb_gpu_done(g);
}

/* ---- the best of all keys ---- */

/* A choice, and its work space on the device */
struct choice {
    const struct index_topk *t;
    struct gpu_blocks b;
    int n_piece, n;                    /* n: of the list */
    void *on, *q, *weight;             /* what is known of it */
    void *code, *step, *count;         /* of the query */
    void *score, *part, *near, *exact; /* of keys */
    void *found;
};

/* Work space, which has been reserved; its bytes, where g is NULL */
static size_t work_space(struct gpu *g, struct choice *x)
{
    const struct index_scan *s = &x->t->s;
    const size_t heads = (size_t)s->n_head, near = (size_t)x->t->n_near;
    const size_t q = heads * (size_t)s->hd * sizeof(float), w = heads * sizeof(float);
    const size_t found = (size_t)(x->n + 1) * sizeof(int32_t);
    size_t bytes = cb_gpu_aligned(q) + cb_gpu_aligned(w) + cb_gpu_aligned(found);

    x->q = g ? cb_gpu_in(g, s->q, q) : NULL;
    x->weight = g ? cb_gpu_in(g, s->weight, w) : NULL;
    x->found = g ? cb_gpu_room_for(g, found) : NULL; /* may stay longer */
    x->code = cb_gpu_search_room(g, &bytes, heads * WORDS, sizeof(uint32_t));
    x->step = cb_gpu_search_room(g, &bytes, heads, sizeof(uint32_t));
    x->count = cb_gpu_search_room(g, &bytes, LIST_COUNTS, sizeof(uint32_t));
    x->score = cb_gpu_search_room(g, &bytes, (size_t)s->n, sizeof(uint32_t));
    x->part = cb_gpu_search_room(g, &bytes, 2 * (size_t)x->n_piece, sizeof(uint32_t));
    x->near = cb_gpu_search_room(g, &bytes, near, sizeof(uint32_t));
    x->exact = cb_gpu_search_room(g, &bytes, near, sizeof(uint32_t));
    return bytes;
}

/* What the kernels are to know goes to the device. 0: there is no room. */
static int begin(struct gpu *g, struct choice *x)
{
    const struct index_scan *s = &x->t->s;
    const struct gpu_strips of = { .n = s->n,
                                   .n_head = s->n_head,
                                   .hd = s->hd,
                                   .pad = cb_strip_pad(s->hd),
                                   .page_bytes = (uint32_t)(x->b.bytes << x->b.shift),
                                   .k = x->t->k,
                                   .n_near = x->t->n_near,
                                   .n_piece = x->n_piece,
                                   .per = x->t->per,
                                   .after = x->t->after };

    x->on = cb_gpu_search_begin(g, &x->b, &of, sizeof of, work_space(NULL, x));
    return x->on != NULL;
}

static void launch(struct gpu *g, struct gpu_program *p, const struct choice *x)
{
    const struct index_scan *s = &x->t->s;
    const size_t heads[3] = { (size_t)s->n_head, 1, 1 }, one[3] = { 1, 1, 1 };
    const size_t blocks[3] = { (size_t)x->b.n_block / STRIP_BLOCK, 1, 1 };
    const size_t pieces[3] = { (size_t)x->n_piece, 1, 1 }, near[3] = { (size_t)x->t->n_near, 1, 1 };
    const void *page = (const char *)x->on + sizeof(struct gpu_strips);
    void *const *deep = cb_gpu_mirror_pieces(g);
    const struct gpu_arg query[] = { GPU_P(x->on),   GPU_P(x->q),    GPU_P(x->weight),
                                     GPU_P(x->code), GPU_P(x->step), GPU_P(x->count) };
    const struct gpu_arg scan[] = { GPU_P(x->on), GPU_P(page), GPU_P(x->code), GPU_P(x->step),
                                    GPU_P(x->score) };
    const struct gpu_arg part[] = { GPU_P(x->on), GPU_P(x->score), GPU_P(x->count),
                                    GPU_P(x->part) };
    const struct gpu_arg list[] = { GPU_P(x->on), GPU_P(x->score), GPU_P(x->count), GPU_P(x->part),
                                    GPU_P(x->near) };
    const struct gpu_arg exact[] = { GPU_P(x->on),     GPU_P(page),    GPU_P(x->q),
                                     GPU_P(x->weight), GPU_P(x->near), GPU_P(x->exact) };
    const struct gpu_arg best[] = { GPU_P(x->on), GPU_P(x->near), GPU_P(x->exact),
                                    GPU_P(x->found) };

    cb_gpu_run(g, p, "index_query", heads, ITEMS, query, 6, NULL);
    cb_gpu_run(g, p, "index_scan", blocks, ITEMS, scan, 5, deep);
    for (int pass = 0; pass < LIST_PASSES; pass++) {
        const struct gpu_arg count[] = { GPU_P(x->on), GPU_P(x->score), GPU_I(pass),
                                         GPU_P(x->count) };
        cb_gpu_run(g, p, "index_count", pieces, ITEMS, count, 4, NULL);
    }
    cb_gpu_run(g, p, "index_part", pieces, ITEMS, part, 4, NULL);
    cb_gpu_run(g, p, "index_list", pieces, ITEMS, list, 5, NULL);
    cb_gpu_run(g, p, "index_near", near, ITEMS, exact, 6, deep);
    cb_gpu_run(g, p, "index_best", one, BEST_ITEMS, best, 4, NULL);
}

static int choose(struct gpu *g, struct gpu_program *p, void *choice)
{
    struct choice *x = choice;
    const struct index_topk *t = x->t;

    if (t->s.hd > MOST_HD || x->b.first || x->b.bytes * (size_t)x->b.n_block > UINT32_MAX ||
        !begin(g, x))
        return 0;
    work_space(g, x);
    launch(g, p, x);
    g->traffic.hit_sketches += (uint64_t)x->b.n_block / STRIP_BLOCK;
    const struct gpu_found found = { .to = t->idx,
                                     .on = x->found,
                                     .n_list = 1,
                                     .n = x->n,
                                     .stride = x->n,
                                     .end = t->s.n * t->per + t->after };
    cb_gpu_found_end(g, found, t->later);
    return 1;
}

int cb_gpu_index_topk(struct device *d, const struct index_topk *t)
{
    struct gpu *g = cb_gpu_of(d);
    const int n_block = (t->s.n + STRIP_BLOCK - 1) / STRIP_BLOCK;
    struct choice x = { .t = t,
                        .b = { .at = t->s.keys,
                               .bytes = cb_strip_row_bytes(t->s.hd),
                               .n_kv = 1,
                               .n_block = n_block * STRIP_BLOCK },
                        .n_piece = cb_gpu_list_pieces(t->s.n),
                        .n = t->k * t->per + t->after };

    return cb_gpu_search(g, &x.b, program, choose, &x);
}
