/* SPDX-License-Identifier: MIT */
/* block_means.c - each query reads the blocks of tokens whose mean key the layer's trained selector
 * scores highest, and the tokens after the last complete block (QSA: Qwen3.8-Flash-Next). Keys are
 * kept as they are made; those of a complete block become their mean, which is normed and rotated
 * as the block's first token. The score of a block is the sum over index heads of max(0, q . mean);
 * ties go to the earlier block. All heads read the same tokens. */
#include <stdlib.h>
#include <string.h>

#include "attention/index_keys.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

struct block_means {
    struct index_keys *raw, *mean; /* [n_layer] keys of tokens, and of complete blocks */
    int ratio;                     /* the smallest of any layer */
    int cap;                       /* numbers that `list` holds */
    int32_t *list;                 /* what each token of a chunk reads */
    float *logit;                  /* [n_head][complete blocks of n_ctx] of index heads */
    float *score;                  /* [complete blocks of n_ctx] */
    int32_t *chosen;               /* as many */
    float *row;                    /* [1 + hd] a key, and the mean; then cos and sin */
};

extern const struct reader cb_reader_block_means;

static int claims(const struct layer_plan *row, int n_layer, int l, const struct layer *y)
{
    (void)n_layer;
    return row[l].select.on && y && y->selector && y->selector->selects == SELECTS_MEANS;
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

/* Tokens of which a query reads all: the blocks, and a tail that is no block yet */
static int most_read(const struct attention *a, int l)
{
    return n_chosen(a, l) * ratio(a, l) + ratio(a, l) - 1;
}

/* ---- open ---- */

static int open_layer(struct attention *a, struct block_means *x, int l)
{
    const int hd = a->model->hp.selector.hd, r = ratio(a, l);
    const enum kv_type raw = a->bank->type_k == KV_F32 ? KV_F32 : KV_F16;

    x->ratio = x->ratio && x->ratio < r ? x->ratio : r;
    TRY(cb_index_keys_open(&x->raw[l], a->policy, raw, hd, a->bank->n_ctx));
    return cb_index_keys_open(&x->mean[l], a->policy,
                              cb_index_keys_type(a->plan[l].select.keys, a->bank->type_k, hd), hd,
                              a->bank->n_ctx / r + 1);
}

static int open(struct attention *a, void **state)
{
    const struct selector_params *p = &a->model->hp.selector;
    struct block_means *x;
    size_t n;

    TRY(cb_index_keys_device(a));
    if (!(x = *state = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->raw = cb_calloc((size_t)a->bank->n_layer, sizeof *x->raw);
    x->mean = cb_calloc((size_t)a->bank->n_layer, sizeof *x->mean);
    for (int l = 0; x->raw && x->mean && l < a->bank->n_layer; l++)
        if (cb_reader_is(a, l, &cb_reader_block_means))
            TRY(open_layer(a, x, l));
    if (!x->ratio)
        return CB_ENOMEM;
    n = (size_t)(a->bank->n_ctx / x->ratio) + 1;
    /* memory for these is committed page by page as the context grows */
    x->logit = cb_alloc_aligned((size_t)p->n_head * n, sizeof *x->logit);
    x->score = cb_alloc_aligned(n, sizeof *x->score);
    x->chosen = cb_alloc_aligned(n, sizeof *x->chosen);
    x->row = cb_calloc(3 * (size_t)p->hd, sizeof *x->row);
    return x->logit && x->score && x->chosen && x->row ? CB_OK : CB_ENOMEM;
}

static void close(struct attention *a, void *state)
{
    struct block_means *x = state;

    for (int l = 0; x->raw && x->mean && l < a->bank->n_layer; l++) {
        cb_index_keys_close(&x->raw[l]);
        cb_index_keys_close(&x->mean[l]);
    }
    free(x->raw);
    free(x->mean);
    free(x->list);
    free(x->logit);
    free(x->score);
    free(x->chosen);
    free(x->row);
    free(x);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct block_means *x = state;
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n = (size_t)(n_most / x->ratio) + 1;
    const size_t list = (size_t)min_int(n_feed, a->chunk) * (size_t)(p->top_k + x->ratio);

    return n_most <= p->top_k
               ? 0
               : list * sizeof *x->list + n * (size_t)(p->n_head + 2) * sizeof(float);
}

/* ---- means ---- */

/* Block b of layer l is complete: the mean of its tokens' keys, normed and rotated, is stored. */
static void finish(struct attention *a, struct block_means *x, int l, int b)
{
    const struct layer *y = &a->model->layer[l];
    const struct ops *ops = a->dev->ops;
    const int hd = x->raw[l].hd, r = ratio(a, l);
    float *key = x->row, *mean = key + hd, *turn = mean + hd;
    const struct rope *rope = y->rope >= 0 ? &a->rope[y->rope] : NULL;

    memset(mean, 0, (size_t)hd * sizeof *mean);
    for (int i = 0; i < r; i++) {
        ops->kv_decode(a->dev, x->raw[l].type,
                       x->raw[l].at + ((size_t)b * (size_t)r + (size_t)i) * x->raw[l].row_bytes,
                       NULL, 1, hd, key);
        for (int j = 0; j < hd; j++)
            mean[j] += key[j];
    }
    for (int j = 0; j < hd; j++)
        mean[j] /= (float)r;
    ops->rmsnorm(a->dev, mean, y->selector->k_norm.w, a->model->hp.norm_eps, hd, 1, 1, hd, mean,
                 hd);
    if (rope) {
        cb_rope_table(rope, b * r, 1, turn);
        ops->rope(a->dev, a->model->arch->selector_rope, mean, 1, 1, hd, hd, rope->n_rot, turn);
    }
    cb_index_keys_put(&x->mean[l], a->dev, mean, hd, 1, b);
}

static int stored(struct attention *a, const struct chunk *c)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int r = ratio(a, c->l);

    cb_index_keys_put(&x->raw[c->l], a->dev, c->index.k, c->index.stride, c->n, c->pos0);
    for (int b = c->pos0 / r; b < (c->pos0 + c->n) / r; b++)
        finish(a, x, c->l, b);
    return CB_OK;
}

/* ---- choosing ---- */

/* A chunk's queries all have complete blocks to leave out, or none has. */
static int room(const struct attention *a, int l, int i)
{
    const int pos = a->bank->n_seen + i, k = most_read(a, l);

    return pos < k ? k - pos : INT32_MAX;
}

/* Token i of c, which sees n tokens -> list, and how many */
static int choose(struct attention *a, const struct chunk *c, int i, int n, int32_t *list)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const int r = ratio(a, c->l), blocks = n / r, k = n_chosen(a, c->l);
    const int stride = a->bank->n_ctx / x->ratio + 1;
    int m = 0;

    for (int h = 0; h < p->n_head; h++)
        memset(x->logit + (size_t)h * (size_t)stride, 0, (size_t)blocks * sizeof *x->logit);
    cb_index_keys_logits(&x->mean[c->l], a, c, i, 1, blocks, 0, x->logit, stride);
    memset(x->score, 0, (size_t)blocks * sizeof *x->score);
    for (int h = 0; h < p->n_head; h++) {
        const float *y = x->logit + (size_t)h * (size_t)stride;
        for (int b = 0; b < blocks; b++)
            x->score[b] += y[b] > 0 ? y[b] : 0;
    }
    a->dev->ops->topk(a->dev, x->score, blocks, k, x->chosen);
    for (int j = 0; j < k; j++)
        for (int s = x->chosen[j] * r, t = 0; t < r; t++)
            list[m++] = s + t;
    for (int s = blocks * r; s < n; s++)
        list[m++] = s;
    return m;
}

/* ---- parts ---- */

static int fit(struct block_means *x, int n, int each)
{
    int32_t *list;

    if (n > INT32_MAX / each)
        return CB_ENOMEM;
    if (n * each <= x->cap)
        return CB_OK;
    if (!(list = cb_realloc(x->list, (size_t)n * (size_t)each, sizeof *list)))
        return CB_ENOMEM;
    x->list = list;
    x->cap = n * each;
    return CB_OK;
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct block_means *x = cb_reader_state(a, c->l);
    const int each = most_read(a, c->l);

    if (c->pos0 + c->n <= each)
        return 0;
    TRY(fit(x, c->n, each));
    for (int i = 0; i < c->n; i++) {
        int32_t *list = x->list + (size_t)i * (size_t)each;
        TRY(cb_parts_add_list(a, c, i, list, choose(a, c, i, c->pos0 + i + 1, list)));
    }
    if (a->bank->decoding)
        a->bank->read_bytes += (uint64_t)((c->pos0 + 1) / ratio(a, c->l)) * x->mean[c->l].row_bytes;
    return 1;
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct block_means *x = cb_reader_state(a, l);
    const int k = most_read(a, l);

    (void)p;
    *scanned = n > k ? (uint64_t)(n / ratio(a, l)) * x->mean[l].row_bytes : 0;
    return *scanned + cb_whole_rows_bytes(&a->bank->store[l], min_int(n, k));
}

/* ---- as plain data: keys of tokens are head 0, of blocks head 1 ---- */

static int most_areas(const struct attention *a, int l)
{
    (void)a;
    (void)l;
    return 2;
}

static int areas(const struct attention *a, int l, struct area *out)
{
    const struct block_means *x = cb_reader_state(a, l);
    int n = cb_index_keys_area(&x->raw[l], l, a->bank->n_seen, out);

    if (cb_index_keys_area(&x->mean[l], l, a->bank->n_seen / ratio(a, l), out + n))
        out[n++].head = 1;
    return n;
}

static size_t area_of(const struct attention *a, const struct area *of, int n)
{
    const struct block_means *x = cb_reader_state(a, of->layer);
    const int l = of->layer;

    return of->head ? (size_t)(n / ratio(a, l)) * x->mean[l].row_bytes
                    : (size_t)n * x->raw[l].row_bytes;
}

const struct reader cb_reader_block_means = {
    .name = "blocks whose mean keys the layer's own selector names",
    .traits = READ_EXTENDS | READ_SORTED,
    .claims = claims,
    .open = open,
    .close = close,
    .work_bytes = work_bytes,
    .room = room,
    .stored = stored,
    .parts = parts,
    .read_bytes = read_bytes,
    .most_areas = most_areas,
    .areas = areas,
    .area_of = area_of,
};
