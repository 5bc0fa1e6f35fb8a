/* SPDX-License-Identifier: MIT */
/* selected_blocks.c - each query reads the blocks of tokens that the layer's trained selector
 * scores highest, and the newest blocks (MSA: MiniMax-M3). Each KV head has an index head, and a
 * choice of its own. The score of a block is the largest q . k of its visible tokens; ties go to
 * the earlier block. Blocks lie at multiples of their size, and all visible tokens of a chosen one
 * are read. */
#include <math.h>
#include <string.h>

#include "attention/index_keys.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "par/par.h"
#include "whole.h"

enum {
    MOST_READ = 1 << 24,
    SCORED = 8 /* queries of a prompt that are scored at once */
};

struct selected_blocks {
    struct index_sets keys; /* stands first */
    int *n;                 /* [chunk][n_head] how many tokens each list has */
    float *logit;           /* [SCORED][n_head][n_ctx] of index heads; 0 between queries */
    int n_zero;             /* of each row, which have been made 0 so far */
    float *score;           /* [SCORED][n_head][blocks of n_ctx] */
    int32_t *chosen;        /* [top_k] */
};

extern const struct reader cb_reader_selected_blocks;

static int claims(const struct claim *c)
{
    return c->row->select.on && c->y && c->y->selector && c->y->selector->selects == SELECTS_BLOCKS;
}

/* Tokens that a query reads at most */
static int most_read(const struct attention *a)
{
    const struct selector_params *p = &a->model->hp.selector;

    return p->top_k < MOST_READ / p->block ? p->top_k * p->block : MOST_READ;
}

static int n_block(const struct attention *a, int n)
{
    const int block = a->model->hp.selector.block;

    return n / block + (n % block > 0);
}

/* ---- open ---- */

static int open(struct attention *a, void **state)
{
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_ctx = (size_t)a->bank->n_ctx, n_head = (size_t)p->n_head;
    struct selected_blocks *x;

    TRY(cb_index_sets_new(a, sizeof *x, state));
    x = *state;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_is(a, l, &cb_reader_selected_blocks))
            TRY(cb_index_keys_open(cb_index_set(&x->keys, l, 0), x, a, l, INDEX_EACH, p->hd, 1));
    /* memory for these is committed page by page as the context grows */
    x->n = cb_state_calloc(x, (size_t)a->chunk * n_head, sizeof *x->n);
    x->logit = cb_state_alloc(x, SCORED * n_head * n_ctx, sizeof *x->logit);
    x->score =
        cb_state_alloc(x, SCORED * n_head * (size_t)n_block(a, a->bank->n_ctx), sizeof *x->score);
    x->chosen = cb_state_calloc(x, (size_t)min_int(p->top_k, n_block(a, a->bank->n_ctx)),
                                sizeof *x->chosen);
    return cb_state_status(x);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_head = (size_t)p->n_head, k = (size_t)most_read(a);
    const size_t list = (size_t)min_int(n_feed, a->chunk) * n_head * (k + 1) * sizeof(int32_t);

    (void)state;
    return n_block(a, n_most) <= p->top_k
               ? 0
               : list + SCORED * n_head * (size_t)(n_most + n_block(a, n_most)) * sizeof(float);
}

/* ---- choosing ---- */

/* A chunk's queries all see more than top_k blocks, or none does. */
static int room(const struct attention *a, int l, int i)
{
    const int pos = a->bank->n_seen + i, k = most_read(a);

    (void)l;
    return pos < k ? k - pos : INT32_MAX;
}

/* ---- scores of blocks ---- */

enum { RUN = 64 }; /* blocks of an item of the loop */

/* Rows of logits and of scores: of each query, of each head */
struct maxima {
    float *logit, *score; /* at logit_stride, and at score_stride */
    size_t logit_stride, score_stride;
    int n_head, block, n_run;
    int n; /* tokens that the first query sees; the next one sees one more */
};

/* The largest of n numbers, in 8 lanes. They become 0. */
static float take_largest(float *x, int n)
{
    float lane[8], best = -INFINITY;
    int j = 0;

    for (int i = 0; i < 8; i++)
        lane[i] = -INFINITY;
    for (; j + 8 <= n; j += 8)
        for (int i = 0; i < 8; i++)
            lane[i] = x[j + i] > lane[i] ? x[j + i] : lane[i];
    for (; j < n; j++)
        best = x[j] > best ? x[j] : best;
    for (int i = 0; i < 8; i++)
        best = lane[i] > best ? lane[i] : best;
    memset(x, 0, (size_t)n * sizeof *x);
    return best;
}

static void run_of_blocks(void *arg, int item, int thread)
{
    const struct maxima *m = arg;
    const int row = item / m->n_run, from = item % m->n_run * RUN, n = m->n + row / m->n_head;
    float *x = m->logit + (size_t)row * m->logit_stride;

    (void)thread;
    for (int b = from; b < from + RUN && b * m->block < n; b++)
        m->score[(size_t)row * m->score_stride + (size_t)b] =
            take_largest(x + (size_t)b * (size_t)m->block, min_int(m->block, n - b * m->block));
}

/* Scores of the blocks that tokens i..i+m-1 of c see -> x->score */
static void score(struct attention *a, const struct chunk *c, int i, int m)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_ctx = (size_t)a->bank->n_ctx, all = (size_t)n_block(a, a->bank->n_ctx);
    const int n = c->pos0 + i + m;
    struct maxima y = { x->logit, x->score, n_ctx, all, p->n_head, p->block, 0, n - m + 1 };

    y.n_run = (n_block(a, n) - 1) / RUN + 1;
    for (int r = 0; n > x->n_zero && r < SCORED * p->n_head; r++) /* the maxima leave 0 */
        memset(x->logit + (size_t)r * n_ctx + x->n_zero, 0,
               (size_t)(n - x->n_zero) * sizeof *x->logit);
    x->n_zero = max_int(n, x->n_zero);
    cb_index_keys_logits(cb_index_set(&x->keys, c->l, 0), a, c, i, m, n, 1, x->logit,
                         a->bank->n_ctx);
    cb_par_for(a->dev->par, m * p->n_head * y.n_run, run_of_blocks, &y);
    for (int r = 0; r < m * p->n_head; r++) {
        const int blocks = n_block(a, y.n + r / p->n_head);
        for (int b = max_int(0, blocks - p->local); b < blocks; b++)
            x->score[(size_t)r * all + (size_t)b] = INFINITY;
    }
}

/* What token i of c, which sees n tokens, reads in KV head h: blocks `chosen` -> list; returns how
 * many tokens */
static int list_tokens(const int32_t *chosen, int k, int block, int n, int32_t *list)
{
    int m = 0;

    for (int i = 0; i < k; i++)
        for (int j = chosen[i] * block; j < n && j < (chosen[i] + 1) * block; j++)
            list[m++] = j;
    return m;
}

/* Chooses for tokens i..i+m-1 of c: their lists of all heads */
static void choose(struct attention *a, const struct chunk *c, int i, int m)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const size_t all = (size_t)n_block(a, a->bank->n_ctx), k = (size_t)most_read(a);

    score(a, c, i, m);
    for (int r = 0; r < m * p->n_head; r++) {
        const size_t at = (size_t)i * (size_t)p->n_head + (size_t)r;
        const int n = c->pos0 + i + r / p->n_head + 1;
        a->dev->ops->topk(a->dev, x->score + (size_t)r * all, n_block(a, n), p->top_k, x->chosen);
        x->n[at] = list_tokens(x->chosen, p->top_k, p->block, n, x->keys.list + at * k);
    }
}

/* ---- parts ---- */

static int parts(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const size_t n_kv = (size_t)a->bank->store[c->l].n_kv, each = (size_t)most_read(a);

    if (c->pos0 + c->n <= most_read(a))
        return 0;
    TRY(cb_index_sets_fit(&x->keys, (size_t)c->n * n_kv, each));
    for (int i = 0; i < c->n; i += SCORED)
        choose(a, c, i, min_int(SCORED, c->n - i));
    for (int i = 0; i < c->n; i++)
        TRY(cb_parts_add_lists(a, c, i, x->keys.list + (size_t)i * n_kv * each, each,
                               x->n + (size_t)i * n_kv));
    if (a->bank->decoding)
        a->bank->read_bytes += cb_index_keys_scanned(cb_index_set(&x->keys, c->l, 0), c->pos0 + 1);
    return 1;
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct selected_blocks *x = cb_reader_state(a, l);
    const int k = most_read(a);

    (void)p;
    *scanned = n > k ? cb_index_keys_scanned(cb_index_set(&x->keys, l, 0), n) : 0;
    return *scanned + cb_whole_rows_bytes(&a->bank->store[l], min_int(n, k));
}

const struct reader cb_reader_selected_blocks = {
    .name = "blocks that the layer's own selector names",
    .traits = READ_EXTENDS | READ_SORTED,
    .claims = claims,
    .open = open,
    .work_bytes = work_bytes,
    .room = room,
    .stored = cb_index_stored,
    .parts = parts,
    .read_bytes = read_bytes,
    INDEX_HOOKS,
};
