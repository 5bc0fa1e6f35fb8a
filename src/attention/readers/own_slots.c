/* SPDX-License-Identifier: MIT */
/* own_slots.c - query heads of a KV head that read different slots of it (SnapKV with a choice for
 * each query head). The KV head holds what any of them reads. A column for each of its query heads
 * says which slots this head does not read; tokens that are new have 0 there. */
#include "own_slots.h"

#include <stdlib.h>

#include "attention/parts.h"
#include "base/err.h"

struct own_slots {
    int32_t *idx; /* [n_head][n_ctx] slots that the head reads, ascending */
    int *n;       /* [n_head] */
};

int cb_own_slots_open(struct attention *a)
{
    const size_t nh = (size_t)a->model->hp.n_head;
    struct own_slots *x;
    int any = 0;

    for (int l = 0; l < a->bank->n_layer; l++)
        any |= cb_own_slots_is(a, l);
    if (!any)
        return CB_OK;
    x = a->own_slots = cb_calloc(1, sizeof *x);
    if (!x)
        return CB_ENOMEM;
    /* memory for the list is committed page by page as the context grows */
    x->idx = cb_alloc_aligned(nh * (size_t)a->bank->n_ctx, sizeof *x->idx);
    x->n = cb_calloc(nh, sizeof *x->n);
    return x->idx && x->n ? CB_OK : CB_ENOMEM;
}

void cb_own_slots_close(struct attention *a)
{
    if (!a->own_slots)
        return;
    free(a->own_slots->idx);
    free(a->own_slots->n);
    free(a->own_slots);
}

size_t cb_own_slots_bytes(const struct attention *a, int n_most)
{
    return a->own_slots ? (size_t)a->model->hp.n_head * (size_t)n_most * sizeof(int32_t) : 0;
}

/* For each slot of its KV head, not 0: query head h does not read it */
static const float *unread(const struct attention *a, int l, int h)
{
    const int group = cb_attention_group(a);
    return cb_store_col(&a->bank->store[l], h / group, h % group);
}

/* Lists what each head reads of the slots before the chunk. Returns 0 if that is all of them. */
static int list(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    int some = 0;

    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *skip = unread(a, c->l, h);
        const int n = st->n[h / cb_attention_group(a)] - c->n;
        int32_t *idx = a->own_slots->idx + (size_t)h * (size_t)a->bank->n_ctx;
        int m = 0;
        for (int i = 0; i < n; i++) {
            idx[m] = i;
            m += skip[i] == 0;
        }
        a->own_slots->n[h] = m;
        some |= m < n;
    }
    return some;
}

/* The chunk itself, which every head reads */
static int add_chunk(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    p.joins = 1;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < st->n_kv; h++)
        run[h] = cb_store_run(st, h, st->n[h] - c->n, st->n[h]);
    return CB_OK;
}

int cb_own_slots_parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (!cb_own_slots_is(a, c->l) || !a->bank->prompt_end || !list(a, c))
        return 0;
    p.by_head = 1;
    p.causal = 0;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const int kv = h / cb_attention_group(a);
        run[h] = cb_store_run(st, kv, 0, st->n[kv]);
        run[h].idx = a->own_slots->idx + (size_t)h * (size_t)a->bank->n_ctx;
        run[h].n = a->own_slots->n[h];
    }
    TRY(add_chunk(a, c));
    return 1;
}

void cb_own_slots_mask(const struct attention *a, int l, float *score)
{
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *skip = unread(a, l, h);
        float *s = score + (size_t)h * (size_t)a->bank->n_ctx;
        for (int i = 0; i < a->bank->store[l].n[h / cb_attention_group(a)]; i++)
            s[i] = skip[i] == 0 ? s[i] : 0;
    }
}
