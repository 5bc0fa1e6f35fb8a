/* SPDX-License-Identifier: MIT */
/* block_patterns.c - MInference (Jiang et al. 2024): a query head reads by one of three patterns.
 *
 *   A-shape          the first tokens and the last ones
 *   vertical-slash   columns and diagonals that the chunk's last queries attend to most
 *   block-sparse     the blocks whose mean key goes best with the mean query of a block
 *
 * The chunk's last 64 queries say what a pattern holds of a head's attention. Diagonals become the
 * blocks of 128 that they cross; columns outside these are gathered. */
#include "block_patterns.h"

#include <math.h>
#include <string.h>

#include "attention/parts.h"
#include "attention/state_memory.h"
#include "bank/store_prepack.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/prompt_blocks.h"

enum { BLOCK = KV_PREPACK, FIRST_COLUMNS = 30, NEAR_DIAGONALS = 100 }; /* always among the lines */

struct block_patterns {
    struct block_plan plan;
    int n_head, n_kv, hd, n_row, n_ctx; /* n_row: most rows of a chunk */
    float *column, *diagonal;           /* [n_head][n_ctx] as in struct line_sums */
    int32_t *vertical, *slash;          /* [n_head][plan's] lines chosen, ascending */
    int n_vertical, n_slash;            /* of the chunk */
    float *key;                         /* [n_kv][blocks][hd] mean keys of the layer's blocks */
    int n_key;                          /* blocks that have one */
    float *score;                       /* [n_head][blocks] */
    uint8_t *try;                       /* [n_head][blocks] a row of a pattern that is tried */
    int32_t *idx;                       /* [n_head][n_row][plan's vertical] */
    int *n_idx;                         /* [n_head][n_row] */
    float *rows;                        /* [BLOCK][hd] keys of a block */
    uint8_t *stored;                    /* the same, as stored, of a prepacked block */
};

/* ---- open ---- */

int cb_block_patterns_open(const struct attention *a, void *state, const struct block_plan *plan,
                           struct block_patterns **out)
{
    struct block_patterns *p = *out = cb_state_calloc(state, 1, sizeof *p);
    const size_t nh = (size_t)a->model->hp.n_head, n_kv = (size_t)a->bank->n_kv;
    const size_t ctx = (size_t)a->bank->n_ctx, hd = (size_t)a->bank->hd, cols = ctx / BLOCK + 1;

    if (!p)
        return CB_ENOMEM;
    p->plan = *plan;
    p->plan.vertical = min_int(plan->vertical, a->bank->n_ctx);
    p->plan.slash = min_int(plan->slash, a->bank->n_ctx);
    p->n_head = (int)nh;
    p->n_kv = (int)n_kv;
    p->hd = (int)hd;
    p->n_row = plan->chunk / BLOCK;
    p->n_ctx = (int)ctx;
    p->column = cb_state_alloc(state, nh * ctx, sizeof *p->column);
    p->diagonal = cb_state_alloc(state, nh * ctx, sizeof *p->diagonal);
    p->vertical = cb_state_alloc(state, nh * (size_t)p->plan.vertical, sizeof *p->vertical);
    p->slash = cb_state_alloc(state, nh * (size_t)p->plan.slash, sizeof *p->slash);
    p->key = cb_state_alloc(state, n_kv * cols * hd, sizeof *p->key);
    p->score = cb_state_alloc(state, nh * cols, sizeof *p->score);
    p->try = cb_state_alloc(state, nh * cols, sizeof *p->try);
    p->idx =
        cb_state_alloc(state, nh * (size_t)p->n_row * (size_t)p->plan.vertical, sizeof *p->idx);
    p->n_idx = cb_state_alloc(state, nh * (size_t)p->n_row, sizeof *p->n_idx);
    p->rows = cb_state_alloc(state, BLOCK * hd, sizeof *p->rows);
    p->stored = cb_state_alloc(state, BLOCK, cb_kv_row_bytes(a->bank->type_k, (int)hd));
    return cb_state_status(state);
}

void cb_block_patterns_begin(struct block_patterns *p)
{
    p->n_key = 0;
}

/* ---- what the choices are made of ---- */

/* Column and diagonal sums of the chunk's last queries, and the lines with the largest */
static void sum_lines(struct attention *a, struct block_patterns *p, const struct chunk *c)
{
    const int n_tok = min_int(LINE_QUERIES, c->n), n = c->pos0 + c->n;
    const struct attn at = cb_parts_attn(a, c->l);
    struct kv_run *run = cb_parts_runs(a, 0);
    const struct line_sums s = { .n_tok = n_tok,
                                 .n_head = p->n_head,
                                 .n_kv = p->n_kv,
                                 .hd = p->hd,
                                 .scale = at.scale,
                                 .softcap = at.softcap,
                                 .type_k = at.type_k,
                                 .run = run,
                                 .q = c->q + (size_t)(c->n - n_tok) * (size_t)c->stride,
                                 .q_stride = c->stride,
                                 .column = p->column,
                                 .diagonal = p->diagonal,
                                 .out_stride = p->n_ctx };

    for (int h = 0; h < p->n_kv; h++)
        run[h] = cb_store_run(&a->bank->store[c->l], h, 0, n);
    a->dev->ops->line_sums(a->dev, &s);
}

/* The k largest of x[n], with the first `sure` among them. x[] of these changes and comes back. */
static void largest(struct attention *a, float *x, int n, int k, int sure, int32_t *idx)
{
    float was[NEAR_DIAGONALS];

    sure = min_int(sure, n);
    memcpy(was, x, (size_t)sure * sizeof *x);
    for (int i = 0; i < sure; i++)
        x[i] = INFINITY;
    a->dev->ops->topk(a->dev, x, n, k, idx);
    memcpy(x, was, (size_t)sure * sizeof *x);
}

static void choose_lines(struct attention *a, struct block_patterns *p, int n)
{
    p->n_vertical = min_int(n, p->plan.vertical);
    p->n_slash = min_int(n, p->plan.slash);
    for (int h = 0; h < p->n_head; h++) {
        const size_t at = (size_t)h * (size_t)p->n_ctx;
        largest(a, p->column + at, n, p->n_vertical, FIRST_COLUMNS,
                p->vertical + (size_t)h * (size_t)p->plan.vertical);
        largest(a, p->diagonal + at, n, p->n_slash, NEAR_DIAGONALS,
                p->slash + (size_t)h * (size_t)p->plan.slash);
    }
}

static float *key_of(const struct block_patterns *p, int kv, int b)
{
    return p->key + ((size_t)kv * (size_t)(p->n_ctx / BLOCK + 1) + (size_t)b) * (size_t)p->hd;
}

/* Mean key of the first n tokens of block b */
static void mean_key(struct attention *a, struct block_patterns *p, const struct store *st, int kv,
                     int b, int n)
{
    const void *keys = cb_store_key_block(st, kv, b, p->stored);
    float *mean = key_of(p, kv, b);

    a->dev->ops->kv_decode(a->dev, st->type_k, keys, NULL, n, p->hd, p->rows);
    memset(mean, 0, (size_t)p->hd * sizeof *mean);
    for (int j = 0; j < n; j++)
        for (int d = 0; d < p->hd; d++)
            mean[d] += p->rows[j * p->hd + d];
    for (int d = 0; d < p->hd; d++)
        mean[d] /= (float)n;
}

/* Mean keys of the blocks up to the chunk's end. A part of a block counts until it is whole. */
static void mean_keys(struct attention *a, struct block_patterns *p, const struct chunk *c)
{
    const int end = c->pos0 + c->n;

    for (int b = p->n_key; b * BLOCK < end; b++)
        for (int kv = 0; kv < p->n_kv; kv++)
            mean_key(a, p, &a->bank->store[c->l], kv, b, min_int(BLOCK, end - b * BLOCK));
    p->n_key = end / BLOCK;
}

/* ---- patterns ---- */

/* A chunk and what is chosen for it */
struct choosing {
    struct attention *a;
    struct block_patterns *p;
    const struct chunk *c;
    const struct attn_blocks *b;
    uint8_t *reads;
};

/* Each marks the blocks that head h's queries in block `own` read. */
typedef void (*pattern_fn)(const struct choosing *x, int h, int own, uint8_t *reads);

static void a_shape(const struct choosing *x, int h, int own, uint8_t *reads)
{
    const struct block_plan *plan = &x->p->plan;

    (void)h;
    for (int j = 0; j <= own; j++)
        reads[j] = j * BLOCK < plan->sink || (own - j - 1) * BLOCK + 1 < plan->local;
}

/* The blocks that the chosen diagonals cross */
static void vertical_slash(const struct choosing *x, int h, int own, uint8_t *reads)
{
    const struct block_patterns *p = x->p;
    const int32_t *slash = p->slash + (size_t)h * (size_t)p->plan.slash;

    for (int i = 0; i < p->n_slash; i++) {
        const int last = (own + 1) * BLOCK - 1 - slash[i], first = last - BLOCK + 1;
        if (last >= 0)
            reads[last / BLOCK] = 1;
        if (first >= 0)
            reads[first / BLOCK] = 1;
    }
}

static void mean_query(const struct choosing *x, int h, int own, float *mean)
{
    const struct chunk *c = x->c;
    const int hd = x->p->hd, begin = max_int(own * BLOCK, c->pos0);
    const int end = min_int((own + 1) * BLOCK, c->pos0 + c->n);

    memset(mean, 0, (size_t)hd * sizeof *mean);
    for (int i = begin - c->pos0; i < end - c->pos0; i++)
        for (int d = 0; d < hd; d++)
            mean[d] += c->q[(int64_t)i * c->stride + (int64_t)h * hd + d];
    for (int d = 0; d < hd; d++)
        mean[d] /= (float)(end - begin);
}

/* The blocks with the largest products of means, and the queries' own */
static void block_sparse(const struct choosing *x, int h, int own, uint8_t *reads)
{
    struct block_patterns *p = x->p;
    const int kv = h / (p->n_head / p->n_kv), n = min_int(p->plan.n_block, own + 1);
    float *score = p->score + (size_t)h * (size_t)(p->n_ctx / BLOCK + 1);
    float q[KV_MAX_HD];

    mean_query(x, h, own, q);
    for (int j = 0; j < own; j++) {
        const float *k = key_of(p, kv, j);
        score[j] = 0;
        for (int d = 0; d < p->hd; d++)
            score[j] += q[d] * k[d];
    }
    reads[own] = 1;
    for (int i = 1; i < n; i++) {
        int best = -1;
        for (int j = 0; j < own; j++)
            if (!reads[j] && (best < 0 || score[j] > score[best]))
                best = j;
        reads[best] = 1;
    }
}

static const pattern_fn patterns[] = { a_shape, vertical_slash, block_sparse };
enum { N_PATTERN = 3, VERTICAL_SLASH = 1 };

/* Share of the last queries' attention that a row of marks holds, with the chosen columns or
 * without; *cost: entries read */
static double holds(const struct choosing *x, int h, const uint8_t *reads, int columns, int *cost)
{
    const struct block_patterns *p = x->p;
    const float *column = p->column + (size_t)h * (size_t)p->n_ctx;
    const int32_t *vertical = p->vertical + (size_t)h * (size_t)p->plan.vertical;
    const int n = x->c->pos0 + x->c->n;
    double sum = 0;

    *cost = 0;
    for (int j = 0; j < n; j++)
        if (reads[j / BLOCK]) {
            sum += (double)column[j];
            ++*cost;
        }
    for (int i = 0; columns && i < p->n_vertical; i++)
        if (!reads[vertical[i] / BLOCK]) {
            sum += (double)column[vertical[i]];
            ++*cost;
        }
    return sum / min_int(LINE_QUERIES, x->c->n);
}

/* The cheapest pattern that holds enough, else the one that holds most */
static int best_pattern(const struct choosing *x, int h)
{
    struct block_patterns *p = x->p;
    const size_t n_col = (size_t)(p->n_ctx / BLOCK + 1);
    const int own = (x->c->pos0 + x->c->n - 1) / BLOCK;
    uint8_t *reads = p->try + (size_t)h * n_col;
    int best = -1, best_cost = 0;
    double best_share = 0;

    for (int i = 0; i < N_PATTERN; i++) {
        int cost, better;
        double share;
        memset(reads, 0, n_col);
        patterns[i](x, h, own, reads);
        share = holds(x, h, reads, i == VERTICAL_SLASH, &cost);
        better = share >= p->plan.recall ? best_share < p->plan.recall || cost < best_cost
                                         : best_share < p->plan.recall && share > best_share;
        if (best >= 0 && !better)
            continue;
        best = i;
        best_cost = cost;
        best_share = share;
    }
    return best;
}

/* The chosen columns before block `own` and outside the blocks that its row reads */
static void gather(const struct choosing *x, int h, int row, int own, const uint8_t *reads)
{
    struct block_patterns *p = x->p;
    const size_t at = (size_t)h * (size_t)p->n_row + (size_t)row;
    const int32_t *vertical = p->vertical + (size_t)h * (size_t)p->plan.vertical;
    int32_t *idx = p->idx + at * (size_t)p->plan.vertical;
    int n = 0;

    for (int i = 0; i < p->n_vertical && vertical[i] < own * BLOCK; i++)
        if (!reads[vertical[i] / BLOCK])
            idx[n++] = vertical[i];
    p->n_idx[at] = n;
}

static void choose_head(void *ctx, int h, int thread)
{
    const struct choosing *x = ctx;
    struct block_patterns *p = x->p;
    const int pattern =
        p->plan.pattern == PATTERN_BEST ? best_pattern(x, h) : (int)p->plan.pattern - 1;
    const int first = x->c->pos0 / BLOCK;

    (void)thread;
    for (int r = 0; r < x->b->n_row; r++) {
        uint8_t *reads =
            x->reads + ((size_t)h * (size_t)x->b->n_row + (size_t)r) * (size_t)x->b->n_col;
        memset(reads, 0, (size_t)x->b->n_col);
        patterns[pattern](x, h, first + r, reads);
        p->n_idx[h * p->n_row + r] = 0;
        if (pattern == VERTICAL_SLASH)
            gather(x, h, r, first + r, reads);
    }
}

void cb_block_patterns_choose(struct attention *a, struct block_patterns *p, const struct chunk *c,
                              const struct attn_blocks *b, uint8_t *reads)
{
    struct choosing x = { a, p, c, b, reads };
    const enum pattern pattern = p->plan.pattern;

    if (pattern == PATTERN_BEST || pattern == PATTERN_VERTICAL_SLASH) {
        sum_lines(a, p, c);
        choose_lines(a, p, c->pos0 + c->n);
    }
    if (pattern == PATTERN_BEST || pattern == PATTERN_BLOCK_SPARSE)
        mean_keys(a, p, c);
    cb_par_for(a->dev->par, p->n_head, choose_head, &x);
}

int cb_block_patterns_columns(const struct block_patterns *p, int h, int r, const int32_t **idx)
{
    const size_t at = (size_t)h * (size_t)p->n_row + (size_t)r;

    *idx = p->idx + at * (size_t)p->plan.vertical;
    return p->n_idx[at];
}
