/* SPDX-License-Identifier: MIT */
/* selected_tokens.c - each query reads the tokens that the layer's trained selector scores highest,
 * the same in all heads (DSA: DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1, equations 1 and 2). The
 * score of a token is the sum over index heads of w * max(0, q . k); ties go to the earlier token.
 * A query that sees no more than top_k tokens reads them all. Layers without a selector's matrices
 * read what an earlier layer has chosen for the same token. */

#include "attention/index_choice.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

struct selected_tokens {
    struct index_sets keys; /* stands first */
    struct index_choice choice;
    int reused; /* 1: later layers read what earlier ones chose, so lists are those of a feed */
};

extern const struct reader cb_reader_selected_tokens;

static int claims(const struct claim *c)
{
    return c->row->select.on && c->y && c->y->selector && c->y->selector->selects == SELECTS_TOKENS;
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
    struct selected_tokens *x;

    TRY(cb_index_sets_new(a, sizeof *x, state));
    x = *state;
    for (int l = 0; l < a->bank->n_layer; l++) {
        x->reused |= cb_reader_is(a, l, &cb_reader_selected_tokens) && !scores(a, l);
        if (scores(a, l))
            TRY(cb_index_keys_open(cb_index_set(&x->keys, l, 0), x, a, l, INDEX_SUMS, p->hd, 1));
    }
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

/* A chunk's queries all see more than top_k tokens, or none does. */
static int room(const struct attention *a, int l, int i)
{
    const int pos = a->bank->n_seen + i, k = a->model->hp.selector.top_k;

    (void)l;
    return pos < k ? k - pos : INT32_MAX;
}

static int stored(struct attention *a, const struct chunk *c)
{
    return scores(a, c->l) ? cb_index_stored(a, c) : CB_OK;
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
    if (scores(a, c->l))
        choose(a, c, list);
    for (int i = 0; i < c->n; i++)
        TRY(cb_parts_add_list(a, c, i, list + (size_t)i * (size_t)k, k));
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
    .traits = READ_EXTENDS | READ_SORTED,
    .claims = claims,
    .open = open,
    .work_bytes = work_bytes,
    .room = room,
    .stored = stored,
    .parts = parts,
    .read_bytes = read_bytes,
    INDEX_HOOKS,
};
