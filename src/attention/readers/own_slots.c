/* SPDX-License-Identifier: MIT */
/* own_slots.c - query heads of a KV head that read different slots of it (SnapKV with a choice for
 * each query head). The KV head holds what any of them reads. A column for each of its query heads
 * says which slots this head does not read; tokens that are new have 0 there. */
#include "attention/parts.h"
#include "base/err.h"
#include "slot_lists.h"

static int open(struct attention *a, void *x)
{
    return cb_slot_lists_open(a, x, a->model->hp.n_head, 0);
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
    struct slot_lists *x = cb_reader_state(a, c->l);
    int some = 0;

    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *skip = unread(a, c->l, h);
        const int n = st->n[h / cb_attention_group(a)] - c->n;
        int32_t *idx = x->idx + (size_t)h * (size_t)a->bank->n_ctx;
        int m = 0;
        for (int i = 0; i < n; i++) {
            idx[m] = i;
            m += skip[i] == 0;
        }
        x->n[h] = m;
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

static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct slot_lists *x = cb_reader_state(a, c->l);
    struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (!a->bank->prompt_end || !list(a, c))
        return 0;
    p.by_head = 1;
    p.causal = 0;
    TRY(cb_parts_add(a, &p, &run));
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const int kv = h / cb_attention_group(a);
        run[h] = cb_store_run(st, kv, 0, st->n[kv]);
        run[h].idx = x->idx + (size_t)h * (size_t)a->bank->n_ctx;
        run[h].n = x->n[h];
    }
    TRY(add_chunk(a, c));
    return 1;
}

static void mask(const struct attention *a, int l, float *score)
{
    for (int h = 0; h < a->model->hp.n_head; h++) {
        const float *skip = unread(a, l, h);
        float *s = score + (size_t)h * (size_t)a->bank->n_ctx;
        for (int i = 0; i < a->bank->store[l].n[h / cb_attention_group(a)]; i++)
            s[i] = skip[i] == 0 ? s[i] : 0;
    }
}

static int claims(const struct claim *c)
{
    return c->row->own_slots;
}

const struct reader cb_reader_own_slots = {
    .name = "slots of each query head's own",
    .traits = READ_DENSE | READ_EXTENDS | READ_SORTED | READ_JOINS | READ_BY_HEAD,
    .claims = claims,
    .state = sizeof(struct slot_lists),
    .open = open,
    .parts = parts,
    .mask = mask,
};
