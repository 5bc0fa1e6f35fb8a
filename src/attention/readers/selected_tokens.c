/* SPDX-License-Identifier: MIT */
/* selected_tokens.c - each query reads the tokens that the layer's trained selector scores highest,
 * the same in all heads (DSA: DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1, equations 1 and 2). The
 * score of a token is the sum over index heads of w * max(0, q . k); ties go to the earlier token.
 * A query that sees no more than top_k tokens reads them all. Layers without a selector's matrices
 * read what an earlier layer has chosen for the same token. */
#include <stdlib.h>
#include <string.h>

#include "attention/index_keys.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

enum { SCORED = 8 }; /* queries of a prompt that are scored at once */

struct selected_tokens {
    struct index_keys *keys; /* [n_layer] */
    int reused;              /* 1: later layers read what earlier ones chose */
    int cap;                 /* tokens that `list` holds */
    int32_t *list; /* [cap][top_k] what each token of a chunk reads, or of a feed where reused */
    float *score;  /* [SCORED][n_ctx] */
};

extern const struct reader cb_reader_selected_tokens;

static int claims(const struct layer_plan *row, int n_layer, int l, const struct layer *y)
{
    (void)n_layer;
    return row[l].select.on && y && y->selector && y->selector->selects == SELECTS_TOKENS;
}

/* Does layer l score tokens itself? */
static int scores(const struct attention *a, int l)
{
    return cb_reader_is(a, l, &cb_reader_selected_tokens) && !a->model->layer[l].selector->back;
}

/* ---- open ---- */

static int open(struct attention *a, void **state)
{
    const struct selector_params *p = &a->model->hp.selector;
    const size_t n_ctx = (size_t)a->bank->n_ctx;
    struct selected_tokens *x;

    TRY(cb_index_keys_device(a));
    if (!(x = *state = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    if (!(x->keys = cb_calloc((size_t)a->bank->n_layer, sizeof *x->keys)))
        return CB_ENOMEM;
    for (int l = 0; l < a->bank->n_layer; l++) {
        x->reused |= cb_reader_is(a, l, &cb_reader_selected_tokens) && !scores(a, l);
        if (scores(a, l))
            TRY(cb_index_keys_open(
                &x->keys[l], a->policy,
                cb_index_keys_type(a->plan[l].select.keys, a->bank->type_k, p->hd), p->hd,
                a->bank->n_ctx));
    }
    /* memory for these is committed page by page as the context grows */
    x->score = cb_alloc_aligned(SCORED * n_ctx, sizeof *x->score);
    return x->score ? CB_OK : CB_ENOMEM;
}

static void close(struct attention *a, void *state)
{
    struct selected_tokens *x = state;

    for (int l = 0; x->keys && l < a->bank->n_layer; l++)
        cb_index_keys_close(&x->keys[l]);
    free(x->keys);
    free(x->list);
    free(x->score);
    free(x);
}

/* Tokens whose lists are kept at once in feeds of n */
static int n_list(const struct attention *a, const struct selected_tokens *x, int n)
{
    return x->reused ? max_int(n, a->max_draft) : min_int(n, a->chunk);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct selected_tokens *x = state;
    const size_t k = (size_t)a->model->hp.selector.top_k;
    const size_t list = (size_t)n_list(a, x, n_feed) * k * sizeof *x->list;
    const size_t score = (size_t)min_int(n_feed, SCORED) * (size_t)n_most * sizeof *x->score;
    size_t keys = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        keys += (size_t)n_most * x->keys[l].row_bytes;
    return keys + ((size_t)n_most > k ? list + score : 0);
}

/* ---- choosing ---- */

/* A chunk's queries all see more than top_k tokens, or none does. */
static int room(const struct attention *a, int l, int i)
{
    const int pos = a->bank->n_seen + i, k = a->model->hp.selector.top_k;

    (void)l;
    return pos < k ? k - pos : INT32_MAX;
}

static int stored(struct attention *a, const struct chunk *c)
{
    const struct selected_tokens *x = cb_reader_state(a, c->l);

    if (scores(a, c->l))
        cb_index_keys_put(&x->keys[c->l], a->dev, c->index.k, c->index.stride, c->n, c->pos0);
    return CB_OK;
}

/* Scores of all tokens that queries i..i+n-1 of c see -> x->score */
static void score(struct attention *a, const struct chunk *c, int i, int n)
{
    const struct selected_tokens *x = cb_reader_state(a, c->l);
    const struct selector_params *p = &a->model->hp.selector;
    const struct index_keys *keys = &x->keys[c->l];
    const struct kv_run run = { .k = keys->at, .v = keys->at, .n = c->pos0 + i + n };
    const size_t at = (size_t)i * (size_t)c->index.stride;
    const struct score s = { .a = { .n_tok = n,
                                    .n_head = p->n_head,
                                    .n_kv = 1,
                                    .hd = p->hd,
                                    .scale = 1,
                                    .causal = 1,
                                    .type_k = keys->type,
                                    .type_v = keys->type,
                                    .run = &run,
                                    .q = c->index.q + at,
                                    .q_stride = c->index.stride },
                             .weight = c->index.weight + at,
                             .logit = 1,
                             .rectified = 1,
                             .out = x->score,
                             .out_stride = a->bank->n_ctx };

    for (int j = 0; j < n; j++)
        memset(x->score + (size_t)j * (size_t)s.out_stride, 0, (size_t)run.n * sizeof *x->score);
    a->dev->ops->score(a->dev, &s);
}

/* The lists of chunk c's tokens, from `list` on */
static void choose(struct attention *a, const struct chunk *c, int32_t *list)
{
    const struct selected_tokens *x = cb_reader_state(a, c->l);
    const int k = a->model->hp.selector.top_k;

    for (int i = 0; i < c->n; i += SCORED) {
        const int n = min_int(SCORED, c->n - i);
        score(a, c, i, n);
        for (int j = i; j < i + n; j++)
            a->dev->ops->topk(a->dev, x->score + (size_t)(j - i) * (size_t)a->bank->n_ctx,
                              c->pos0 + j + 1, k, list + (size_t)j * (size_t)k);
    }
}

/* Room for the lists of n tokens */
static int fit(struct selected_tokens *x, int n, int k)
{
    int32_t *list;

    if (n <= x->cap)
        return CB_OK;
    if (!(list = cb_realloc(x->list, (size_t)n * (size_t)k, sizeof *list)))
        return CB_ENOMEM;
    x->list = list;
    x->cap = n;
    return CB_OK;
}

/* Where the lists of chunk c begin. Layers that read them find those of the same feed. */
static int first_list(const struct attention *a, const struct selected_tokens *x,
                      const struct chunk *c)
{
    if (!x->reused)
        return 0;
    return a->bank->decoding ? a->draft_index : c->pos0 - a->bank->n_seen;
}

static int parts(struct attention *a, const struct chunk *c)
{
    struct selected_tokens *x = cb_reader_state(a, c->l);
    const int k = a->model->hp.selector.top_k, first = first_list(a, x, c);
    int32_t *list;

    if (c->pos0 + c->n <= k)
        return 0;
    TRY(fit(x, first + c->n, k));
    list = x->list + (size_t)first * (size_t)k;
    if (scores(a, c->l))
        choose(a, c, list);
    for (int i = 0; i < c->n; i++)
        TRY(cb_parts_add_list(a, c, i, list + (size_t)i * (size_t)k, k));
    if (a->bank->decoding && scores(a, c->l))
        a->bank->read_bytes += (uint64_t)(c->pos0 + 1) * x->keys[c->l].row_bytes;
    return 1;
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct selected_tokens *x = cb_reader_state(a, l);
    const int k = a->model->hp.selector.top_k;

    (void)p;
    *scanned = n > k && scores(a, l) ? (uint64_t)n * x->keys[l].row_bytes : 0;
    return *scanned + cb_whole_rows_bytes(&a->bank->store[l], min_int(n, k));
}

/* ---- as plain data ---- */

static int most_areas(const struct attention *a, int l)
{
    return scores(a, l);
}

static int areas(const struct attention *a, int l, struct area *out)
{
    const struct selected_tokens *x = cb_reader_state(a, l);

    return cb_index_keys_area(&x->keys[l], l, a->bank->n_seen, out);
}

static size_t area_of(const struct attention *a, const struct area *of, int n)
{
    const struct selected_tokens *x = cb_reader_state(a, of->layer);

    return (size_t)n * x->keys[of->layer].row_bytes;
}

const struct reader cb_reader_selected_tokens = {
    .name = "tokens that the layer's own selector names",
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
