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
    SCORED = 32 /* queries of a prompt that are scored at once: they share the unpacked keys */
};

struct selected_blocks {
    struct index_sets keys;    /* stands first */
    int *n;                    /* [chunk][n_head] how many tokens each list has */
    float *score;              /* [SCORED][n_head][pieces of n_ctx] */
    int32_t *chosen;           /* [top_k] */
    float *query;              /* [n_head][hd] of a token whose queries came from the device */
    struct attn_blocks blocks; /* of a prompt's chunk */
    uint8_t *reads;            /* [cap] of these */
    size_t cap;
};

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

/* Largest logits that n tokens give each query and head */
static int n_piece(const struct attention *a, int n)
{
    return cb_score_piece(a->model->hp.selector.block, n) + 1;
}

/* 1: the kernels' blocks make up the selector's, so that queries of a prompt which read the same
 * ones share their keys and values. Other queries have lists. */
static int by_blocks(const struct attention *a)
{
    return a->model->hp.selector.block % KV_PREPACK == 0;
}

/* 1: the newest blocks are among the chosen ones, so that all lists of a token have the same number
 * of tokens, and the device chooses the others. */
static int device_may_choose(const struct attention *a)
{
    const struct selector_params *p = &a->model->hp.selector;

    return a->dev->ops->block_topk && p->local > 0 && p->local < p->top_k;
}

/* ---- open ---- */

static int open(struct attention *a, void *state)
{
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_head = (size_t)p->n_head;
    struct selected_blocks *x = state;

    TRY(cb_index_sets_open(a, &x->keys));
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x) {
            x->keys.most[l] = most_read(a);
            TRY(cb_index_keys_open(cb_index_set(&x->keys, l, 0), x, a, l, INDEX_EACH, p->hd, 1));
            if (device_may_choose(a))
                TRY(cb_index_keys_mirror(cb_index_set(&x->keys, l, 0), a));
        }
    cb_index_sets_note(a, &x->keys, by_blocks(a));
    /* memory for these is committed page by page as the context grows */
    x->n = cb_state_calloc(x, (size_t)a->chunk * n_head, sizeof *x->n);
    x->score =
        cb_state_alloc(x, SCORED * n_head * (size_t)n_piece(a, a->bank->n_ctx), sizeof *x->score);
    x->chosen = cb_state_calloc(x, (size_t)min_int(p->top_k, n_block(a, a->bank->n_ctx)),
                                sizeof *x->chosen);
    x->query = cb_state_alloc(x, n_head * (size_t)p->hd, sizeof *x->query);
    return CB_OK;
}

/* Bytes of what n tokens of a chunk read, which ends after `end` tokens */
static size_t reads_bytes(const struct attention *a, int n, int end)
{
    return (size_t)a->model->hp.selector.n_head * (size_t)n * ((size_t)end / KV_PREPACK + 1);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_head = (size_t)p->n_head, k = (size_t)most_read(a);
    const int n = min_int(n_feed, a->chunk), n_list = by_blocks(a) ? 1 : n;
    const size_t list = (size_t)n_list * n_head * (k + 1) * sizeof(int32_t);

    (void)state;
    if (n_block(a, n_most) <= p->top_k)
        return 0;
    return list + (by_blocks(a) ? reads_bytes(a, n, n_most) : 0) +
           (size_t)min_int(n, SCORED) * n_head * (size_t)n_piece(a, n_most) * sizeof(float);
}

/* ---- scores of blocks ---- */

/* Rows of largest logits, n_head for each query, whose pieces become blocks */
struct maxima {
    float *score; /* at `stride` */
    size_t stride;
    int n_head, block, local;
    int n; /* tokens that the first query sees; the next one sees one more */
};

/* A block's first piece does not lie before the block's place. */
static void join_pieces(void *arg, int row, int thread)
{
    const struct maxima *m = arg;
    const int n = m->n + row / m->n_head, n_block = (n - 1) / m->block + 1;
    float *x = m->score + (size_t)row * m->stride;

    (void)thread;
    for (int b = 0; b < n_block; b++) {
        const int from = b * m->block, last = min_int(from + m->block, n) - 1;
        float best = -INFINITY;
        for (int j = cb_score_piece(m->block, from); j <= cb_score_piece(m->block, last); j++)
            best = x[j] > best ? x[j] : best;
        x[b] = b >= n_block - m->local ? INFINITY : best;
    }
}

/* Scores of the blocks that tokens i..i+m-1 of c see -> x->score */
static void score(struct attention *a, const struct chunk *c, int i, int m)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const int stride = n_piece(a, a->bank->n_ctx), n = c->pos0 + i + m;
    struct maxima y = { x->score, (size_t)stride, p->n_head, p->block, p->local, n - m + 1 };

    cb_index_keys_largest(cb_index_set(&x->keys, c->l, 0), a, c, i, m, n, p->block, x->score,
                          stride);
    cb_par_for(a->dev->par, m * p->n_head, join_pieces, &y);
}

/* ---- chosen blocks ---- */

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

/* Token i of a chunk reads blocks x->chosen in KV head h. */
static void mark_blocks(struct selected_blocks *x, const struct selector_params *p, int i, int h)
{
    const struct attn_blocks *b = &x->blocks;
    const int each = p->block / KV_PREPACK;
    uint8_t *row = x->reads + ((size_t)h * (size_t)b->n_row + (size_t)i) * (size_t)b->n_col;

    for (int j = 0; j < p->top_k; j++) {
        const int from = x->chosen[j] * each;
        memset(row + from, 1, (size_t)min_int(each, b->n_col - from));
    }
}

/* Chooses for tokens i..i+m-1 of c: what they read in all heads, as marks or as lists */
static void choose(struct attention *a, const struct chunk *c, int i, int m, int marks)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const size_t stride = (size_t)n_piece(a, a->bank->n_ctx), k = (size_t)most_read(a);

    score(a, c, i, m);
    for (int r = 0; r < m * p->n_head; r++) {
        const size_t at = (size_t)i * (size_t)p->n_head + (size_t)r;
        const int tok = i + r / p->n_head, n = c->pos0 + tok + 1;
        a->host->ops->topk(a->host, x->score + (size_t)r * stride, n_block(a, n), p->top_k,
                           x->chosen);
        if (marks)
            mark_blocks(x, p, tok, r % p->n_head);
        else
            x->n[at] = list_tokens(x->chosen, p->top_k, p->block, n, x->keys.list + at * k);
    }
}

/* The device chooses for the decoded token of c, whose lists end with the newest blocks. 0: it
 * leaves it to the CPU. */
static int device_chooses(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct index_keys *keys = cb_index_set(&x->keys, c->l, 0);
    const struct selector_params *p = &a->model->hp.selector;
    const int n = c->pos0 + 1, n_old = n_block(a, n) - p->local, first = n_old * p->block;
    const struct block_topk t = { .type = keys->type,
                                  .keys = keys->at,
                                  .q = c->index.q,
                                  .n_head = p->n_head,
                                  .hd = p->hd,
                                  .block = p->block,
                                  .n_block = n_old,
                                  .k = p->top_k - p->local,
                                  .idx = x->keys.list,
                                  .idx_stride = most_read(a),
                                  .after = n - first,
                                  .later = !a->cold_pages };

    if (!a->dev->ops->block_topk(a->dev, &t))
        return 0;
    for (int h = 0; h < p->n_head; h++) {
        int32_t *list = x->keys.list + (size_t)h * (size_t)most_read(a);
        x->n[h] = t.k * p->block;
        for (int j = first; j < n; j++)
            list[x->n[h]++] = j;
    }
    return 1;
}

/* Lists of the decoded token of c */
static void choose_one(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    struct chunk host = *c;

    if (c->index.far && device_chooses(a, c))
        return;
    if (c->index.far) {
        cb_device_copy(a->dev, x->query, c->index.q,
                       (size_t)p->n_head * (size_t)p->hd * sizeof *x->query);
        host.index.q = x->query;
    }
    choose(a, &host, 0, 1, 0);
}

/* ---- parts ---- */

/* Room for the marks of chunk c, which reads nothing yet */
static int open_marks(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const int end = c->pos0 + c->n, n_col = (end - 1) / KV_PREPACK + 1;
    const size_t bytes = reads_bytes(a, c->n, end);

    TRY(cb_state_fit(x, &x->reads, &x->cap, bytes, 1));
    memset(x->reads, 0, bytes);
    x->blocks = (struct attn_blocks){ .reads = x->reads, .n_row = c->n, .n_col = n_col, .each = 1 };
    return CB_OK;
}

/* A prompt's chunk: one part, in which each query has its blocks */
static int block_parts(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    TRY(open_marks(a, c));
    for (int i = 0; i < c->n; i += SCORED)
        choose(a, c, i, min_int(SCORED, c->n - i), 1);
    p.blocks = &x->blocks;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, 0, c->pos0 + c->n);
    return 1;
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct selected_blocks *x = cb_reader_state(a, c->l);
    const size_t n_kv = (size_t)a->bank->store[c->l].n_kv, each = (size_t)most_read(a);

    if (c->pos0 + c->n <= most_read(a))
        return 0;
    if (!a->bank->decoding && by_blocks(a))
        return block_parts(a, c);
    TRY(cb_index_sets_fit(&x->keys, (size_t)c->n * n_kv, each));
    if (a->bank->decoding)
        choose_one(a, c);
    for (int i = 0; i < c->n && !a->bank->decoding; i += SCORED)
        choose(a, c, i, min_int(SCORED, c->n - i), 0);
    for (int i = 0; i < c->n; i++) {
        const struct part p = cb_parts_one(a, c, i);
        TRY(cb_parts_add_lists(a, c, &p, x->keys.list + (size_t)i * n_kv * each, each,
                               x->n + (size_t)i * n_kv));
    }
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
    .traits = READ_EXTENDS | READ_SORTED | READ_INDEX,
    .claims = claims,
    .state = sizeof(struct selected_blocks),
    .open = open,
    .work_bytes = work_bytes,
    .stored = cb_index_stored,
    .parts = parts,
    .read_bytes = read_bytes,
    INDEX_HOOKS,
};
