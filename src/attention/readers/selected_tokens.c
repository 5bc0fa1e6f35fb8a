/* SPDX-License-Identifier: MIT */
/* selected_tokens.c - each query reads the tokens that the layer's trained selector scores highest,
 * the same in all heads (DSA: DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1, equations 1 and 2). The
 * score of a token is the sum over index heads of w * max(0, q . k); ties go to the earlier token.
 * A query that sees no more than top_k tokens reads them all. Layers without a selector's matrices
 * read what an earlier layer has chosen for the same token. */

#include "attention/index_choice.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

struct selected_tokens {
    struct index_sets keys; /* stands first */
    struct index_choice choice;
    int reused; /* 1: later layers read what earlier ones chose, so lists are those of a feed */
};

static int claims(const struct claim *c)
{
    return c->row->select.on && c->y && c->y->selector && c->y->selector->selects == SELECTS_TOKENS;
}

/* Does layer l score tokens itself? */
static int scores(const struct attention *a, int l)
{
    return !a->model->layer[l].selector->back;
}

/* ---- open ---- */

static int open(struct attention *a, void *state)
{
    const struct selector_params *p = &a->model->hp.selector;
    struct selected_tokens *x = state;

    TRY(cb_index_sets_open(a, &x->keys));
    for (int l = 0; l < a->bank->n_layer; l++) {
        if (cb_reader_state(a, l) != x)
            continue;
        x->keys.most[l] = p->top_k;
        x->reused |= !scores(a, l);
        if (!scores(a, l))
            continue;
        TRY(cb_index_keys_open(cb_index_set(&x->keys, l, 0), x, a, l, INDEX_SUMS, p->hd, 1));
        if (cb_index_set(&x->keys, l, 0)->strips && a->dev->ops->index_topk)
            TRY(cb_index_keys_mirror(cb_index_set(&x->keys, l, 0), a));
    }
    cb_index_sets_note(a, &x->keys, 0);
    return cb_index_choice_open(&x->choice, x, p->n_head, p->hd, a->bank->n_ctx, p->top_k);
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
    const size_t list = (size_t)n_list(a, x, n_feed) * k * sizeof(int32_t);

    return (size_t)n_most > k ? list + cb_index_choice_bytes(&x->choice, n_feed, n_most) : 0;
}

/* ---- choosing ---- */

static int stored(struct attention *a, const struct chunk *c)
{
    return scores(a, c->l) ? cb_index_stored(a, c) : CB_OK;
}

/* The list of a decoded token. Where layers read what others chose, a token of a draft takes the
 * place of the one before it on the device. */
static void choose_one(struct attention *a, const struct chunk *c, int32_t *list)
{
    struct selected_tokens *x = cb_reader_state(a, c->l);
    const int later = !a->cold_pages && !(x->reused && a->max_draft > 1);

    cb_index_choose_one(&x->choice, a, cb_index_set(&x->keys, c->l, 0), &c->index, c->pos0 + 1,
                        a->model->hp.selector.top_k, 0, later, list);
}

/* The lists of chunk c's tokens, from `list` on */
static void choose(struct attention *a, const struct chunk *c, int32_t *list)
{
    struct selected_tokens *x = cb_reader_state(a, c->l);
    const int k = a->model->hp.selector.top_k;

    for (int i = 0; i < c->n; i += INDEX_QUERIES) {
        const size_t at = (size_t)i * (size_t)c->index.stride;
        const struct index_queries q = { c->index.q + at, c->index.weight + at, c->index.stride,
                                         min_int(INDEX_QUERIES, c->n - i) };
        int n[INDEX_QUERIES];
        for (int j = 0; j < q.n; j++)
            n[j] = c->pos0 + i + j + 1;
        cb_index_choose(&x->choice, a, cb_index_set(&x->keys, c->l, 0), &q, n, k,
                        list + (size_t)i * (size_t)k, (size_t)k);
    }
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
    TRY(cb_index_sets_fit(&x->keys, (size_t)(first + c->n), (size_t)k));
    list = x->keys.list + (size_t)first * (size_t)k;
    if (scores(a, c->l) && a->bank->decoding)
        choose_one(a, c, list);
    else if (scores(a, c->l))
        choose(a, c, list);
    for (int i = 0; i < c->n; i++) {
        const struct part p = cb_parts_one(a, c, i);
        TRY(cb_parts_add_list(a, c, &p, list + (size_t)i * (size_t)k, k));
    }
    if (a->bank->decoding && scores(a, c->l))
        a->bank->read_bytes +=
            cb_index_choice_reads(cb_index_set(&x->keys, c->l, 0), c->pos0 + 1, k);
    return 1;
}

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct selected_tokens *x = cb_reader_state(a, l);
    const int k = a->model->hp.selector.top_k;

    (void)p;
    *scanned =
        n > k && scores(a, l) ? cb_index_choice_reads(cb_index_set(&x->keys, l, 0), n, k) : 0;
    return *scanned + cb_whole_rows_bytes(&a->bank->store[l], min_int(n, k));
}

const struct reader cb_reader_selected_tokens = {
    .name = "tokens that the layer's own selector names",
    .traits = READ_EXTENDS | READ_SORTED | READ_INDEX,
    .claims = claims,
    .state = sizeof(struct selected_tokens),
    .open = open,
    .work_bytes = work_bytes,
    .stored = stored,
    .parts = parts,
    .read_bytes = read_bytes,
    INDEX_HOOKS,
};
