/* SPDX-License-Identifier: MIT */
/* block_means.c - each query reads the blocks of tokens whose mean key the layer's trained selector
 * scores highest, and the tokens after the last complete block (QSA: Qwen3.8-Flash-Next). Keys are
 * kept as they are made; those of a complete block become their mean, which is normed and rotated
 * as the block's first token. The score of a block is the sum over index heads of max(0, q . mean);
 * ties go to the earlier block. All heads read the same tokens. */
#include <string.h>

#include "attention/index_choice.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

enum { RAW, MEAN }; /* keys of tokens, and of complete blocks */

struct block_means {
    struct index_sets keys; /* stands first */
    struct index_choice choice;
    int ratio;       /* the smallest of any layer */
    int32_t *chosen; /* [INDEX_QUERIES][blocks that a query reads] */
    float *row;      /* [1 + hd] a key, and the mean; then cos and sin */
};

static int claims(const struct claim *c)
{
    return c->row->select.on && c->y && c->y->selector && c->y->selector->selects == SELECTS_MEANS;
}

static int ratio(const struct attention *a, int l)
{
    return a->model->layer[l].selector->ratio;
}

/* Blocks that a query reads at most */
static int n_chosen(const struct attention *a, int l)
{
    return a->model->hp.selector.top_k / ratio(a, l);
}

/* ---- open ---- */

static int open_layer(struct attention *a, struct block_means *x, int l)
{
    const int hd = a->model->hp.selector.hd, r = ratio(a, l);
    const enum kv_type raw = a->bank->type_k == KV_F32 ? KV_F32 : KV_F16;

    /* the blocks, and a tail that is no block yet */
    x->keys.most[l] = n_chosen(a, l) * r + r - 1;
    x->ratio = x->ratio && x->ratio < r ? x->ratio : r;
    TRY(cb_index_rows_open(cb_index_set(&x->keys, l, RAW), x, a, raw, hd, 1));
    TRY(cb_index_keys_open(cb_index_set(&x->keys, l, MEAN), x, a, l, INDEX_SUMS, hd, r));
    for (int i = RAW; i <= MEAN; i++)
        if (cb_index_set(&x->keys, l, MEAN)->strips && a->dev->ops->index_topk)
            TRY(cb_index_keys_mirror(cb_index_set(&x->keys, l, i), a));
    return CB_OK;
}

static int open(struct attention *a, void *state)
{
    const struct selector_params *p = &a->model->hp.selector;
    struct block_means *x = state;
    int n;

    TRY(cb_index_sets_open(a, &x->keys));
    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_reader_state(a, l) == x)
            TRY(open_layer(a, x, l));
    cb_index_sets_note(a, &x->keys, 0);
    n = p->top_k / x->ratio;
    x->chosen = cb_state_calloc(x, (size_t)n * INDEX_QUERIES, sizeof *x->chosen);
    x->row = cb_state_calloc(x, 3 * (size_t)p->hd, sizeof *x->row);
    return cb_index_choice_open(&x->choice, x, p->n_head, p->hd, a->bank->n_ctx / x->ratio, n);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct block_means *x = state;
    const struct selector_params *p = &a->model->hp.selector;
    const size_t list = (size_t)min_int(n_feed, a->chunk) * (size_t)(p->top_k + x->ratio);

    return n_most <= p->top_k ? 0
                              : list * sizeof(int32_t) +
                                    cb_index_choice_bytes(&x->choice, n_feed, n_most / x->ratio);
}

/* ---- means ---- */

static const void *raw_at(const struct index_keys *raw, int i)
{
    return raw->at + (size_t)i * cb_kv_row_bytes(raw->type, raw->hd);
}

/* The mean of block b's keys, in the memory of d, is normed, rotated, and stored by the ops of d.
 */
static void put_mean(struct attention *a, struct block_means *x, struct device *d, int l, int b,
                     float *mean)
{
    const struct layer *y = &a->model->layer[l];
    const struct rope *rope = y->rope >= 0 ? &a->rope[y->rope] : NULL;
    const struct index_keys *to = cb_index_set(&x->keys, l, MEAN);
    const int hd = to->hd;
    float *turn = x->row + 2 * hd;

    d->ops->rmsnorm(d, mean, y->selector->k_norm.w, a->model->hp.norm_eps, hd, 1, 1, hd, mean, hd);
    if (rope) {
        cb_rope_table(rope, b * ratio(a, l), 1, turn);
        d->ops->rope(d, a->model->arch->selector_rope, mean, 1, 1, hd, hd, rope->n_rot, turn);
    }
    cb_index_keys_put(to, d, mean, hd, 1, b);
}

/* Block b of layer l is complete: the mean of its tokens' keys is stored. */
static void finish(struct attention *a, struct block_means *x, int l, int b)
{
    const struct index_keys *raw = cb_index_set(&x->keys, l, RAW);
    const int hd = raw->hd, r = ratio(a, l);
    float *key = x->row, *mean = key + hd;

    memset(mean, 0, (size_t)hd * sizeof *mean);
    for (int i = 0; i < r; i++) {
        a->host->ops->kv_decode(a->host, raw->type, raw_at(raw, b * r + i), NULL, 1, hd, key);
        for (int j = 0; j < hd; j++)
            mean[j] += key[j];
    }
    for (int j = 0; j < hd; j++)
        mean[j] /= (float)r;
    put_mean(a, x, a->host, l, b, mean);
}

/* The same by the device, which has made the keys of c: the mean takes the place of the last one,
 * which is stored. The CPU does it where kernels cannot read all of them. */
static int finish_there(struct attention *a, struct block_means *x, const struct chunk *c, int b)
{
    const struct index_keys *raw = cb_index_set(&x->keys, c->l, RAW);
    const int r = ratio(a, c->l);
    float *mean = (float *)(uintptr_t)c->index.k;

    if (a->dev->ops->mean_rows(a->dev, raw->type, raw_at(raw, b * r), r, raw->hd, mean)) {
        put_mean(a, x, a->dev, c->l, b, mean);
        return CB_OK;
    }
    TRY(cb_device_wait(a->dev));
    finish(a, x, c->l, b);
    return CB_OK;
}

static int stored(struct attention *a, const struct chunk *c)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int r = ratio(a, c->l);

    TRY(cb_index_stored(a, c));
    for (int b = c->pos0 / r; b < (c->pos0 + c->n) / r; b++)
        if (c->index.far)
            TRY(finish_there(a, x, c, b));
        else
            finish(a, x, c->l, b);
    return CB_OK;
}

/* ---- choosing ---- */

/* What tokens i..i+m-1 of c read -> x->chosen */
static void choose(struct attention *a, const struct chunk *c, int i, int m)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int k = n_chosen(a, c->l);
    const struct index_queries q = { c->index.q + (size_t)i * (size_t)c->index.stride, NULL,
                                     c->index.stride, m };
    int n[INDEX_QUERIES];

    for (int j = 0; j < m; j++)
        n[j] = (c->pos0 + i + j + 1) / ratio(a, c->l);
    cb_index_choose(&x->choice, a, cb_index_set(&x->keys, c->l, MEAN), &q, n, k, x->chosen,
                    (size_t)k);
}

/* ---- parts ---- */

/* What the decoded token of c reads -> list; returns how many tokens */
static int choose_one(struct attention *a, const struct chunk *c, int32_t *list)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int k = n_chosen(a, c->l), r = ratio(a, c->l), n = c->pos0 + 1;
    struct index_rows of = c->index;

    of.weight = NULL;
    cb_index_choose_one(&x->choice, a, cb_index_set(&x->keys, c->l, MEAN), &of, n / r, k, n % r,
                        !a->cold_pages, list);
    a->bank->read_bytes += cb_index_choice_reads(cb_index_set(&x->keys, c->l, MEAN), n / r, k);
    return k * r + n % r;
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int each = x->keys.most[c->l], k = n_chosen(a, c->l);

    if (c->pos0 + c->n <= each)
        return 0;
    TRY(cb_index_sets_fit(&x->keys, (size_t)c->n, (size_t)each));
    for (int i = 0; i < c->n; i++) {
        const struct part p = cb_parts_one(a, c, i);
        int32_t *list = x->keys.list + (size_t)i * (size_t)each;
        int n;
        if (!a->bank->decoding && i % INDEX_QUERIES == 0)
            choose(a, c, i, min_int(INDEX_QUERIES, c->n - i));
        n = a->bank->decoding ? choose_one(a, c, list)
                              : cb_index_tokens(x->chosen + i % INDEX_QUERIES * k, k,
                                                ratio(a, c->l), c->pos0 + i + 1, list);
        TRY(cb_parts_add_list(a, c, &p, list, n));
    }
    return 1;
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct block_means *x = cb_reader_state(a, l);
    const int k = x->keys.most[l];

    (void)p;
    *scanned = n > k ? cb_index_choice_reads(cb_index_set(&x->keys, l, MEAN), n / ratio(a, l),
                                             n_chosen(a, l))
                     : 0;
    return *scanned + cb_whole_rows_bytes(&a->bank->store[l], min_int(n, k));
}

const struct reader cb_reader_block_means = {
    .name = "blocks whose mean keys the layer's own selector names",
    .traits = READ_EXTENDS | READ_SORTED | READ_INDEX,
    .claims = claims,
    .state = sizeof(struct block_means),
    .open = open,
    .work_bytes = work_bytes,
    .stored = stored,
    .parts = parts,
    .read_bytes = read_bytes,
    INDEX_HOOKS,
};
