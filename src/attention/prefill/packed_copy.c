/* SPDX-License-Identifier: MIT */
/* packed_copy.c - where every query head of a prompt reads blocks of its own, each would pack a
 * block's keys and values for itself, a dozen times a chunk. A copy is packed once. The rows stay
 * as they are for what reads them one by one: samples, columns, policies that choose slots. Layers
 * share the memory, since a prompt goes through one after the other. */
#include "packed_copy.h"

#include <string.h>

#include "attention/state_memory.h"
#include "bank/store_state.h"
#include "base/err.h"

struct packed_copy {
    struct device *d;
    enum kv_type type[2]; /* of keys and of values */
    int n_kv, hd, cap;    /* cap: rows of a head, whole blocks */
    int rows, prepacked;  /* rows are there; the first ones prepacked */
    char *mem[2];         /* [n_kv][cap] rows */
    float *step[2];       /* [n_kv][cap]; NULL where rows hold them */
};

int cb_packed_copy_open(const struct attention *a, void *state, struct packed_copy **out)
{
    const struct bank *b = a->bank;
    struct packed_copy *p;
    size_t n;

    *out = NULL;
    if (b->one_row || b->store[0].kivi || !a->dev->ops->can_prepack ||
        !a->dev->ops->can_prepack(a->dev, b->type_k, b->type_v, b->hd))
        return CB_OK;
    p = *out = cb_state_calloc(state, 1, sizeof *p);
    if (!p)
        return CB_ENOMEM;
    *p = (struct packed_copy){ .d = a->dev,
                               .type = { b->type_k, b->type_v },
                               .n_kv = b->n_kv,
                               .hd = b->hd,
                               .cap = (b->n_ctx + KV_PREPACK - 1) / KV_PREPACK * KV_PREPACK };
    n = (size_t)p->n_kv * (size_t)p->cap;
    for (int v = 0; v < 2; v++) {
        const int has_steps = cb_kv_has_steps(p->type[v]);
        p->mem[v] = cb_state_alloc(state, n, cb_kv_row_bytes(p->type[v], p->hd));
        p->step[v] = has_steps ? cb_state_alloc(state, n, sizeof **p->step) : NULL;
        if (!p->mem[v] || (has_steps && !p->step[v]))
            return CB_ENOMEM;
    }
    return CB_OK;
}

void cb_packed_copy_begin(struct packed_copy *p)
{
    if (p)
        p->rows = p->prepacked = 0;
}

static size_t row_at(const struct packed_copy *p, int kv, int row)
{
    return (size_t)kv * (size_t)p->cap + (size_t)row;
}

static float *step_at(const struct packed_copy *p, int v, int kv, int row)
{
    return p->step[v] ? p->step[v] + row_at(p, kv, row) : NULL;
}

void cb_packed_copy_follow(struct packed_copy *p, const struct store *st, int n)
{
    const int n_block = (n - p->prepacked) / KV_PREPACK;

    for (int i = 0; i < 2 * p->n_kv; i++) {
        const int kv = i / 2, v = i % 2;
        const size_t row = cb_kv_row_bytes(p->type[v], p->hd);
        char *mem = p->mem[v];
        memcpy(mem + row_at(p, kv, p->rows) * row, cb_store_row(st, kv, v, p->rows),
               (size_t)(n - p->rows) * row);
        p->d->ops->prepack(p->d, p->type[v], v, p->hd, mem + row_at(p, kv, p->prepacked) * row,
                           n_block, step_at(p, v, kv, p->prepacked));
    }
    p->rows = n;
    p->prepacked += n_block * KV_PREPACK;
}

struct kv_run cb_packed_copy_run(const struct packed_copy *p, int kv)
{
    return (struct kv_run){ .k = p->mem[0] + row_at(p, kv, 0) * cb_kv_row_bytes(p->type[0], p->hd),
                            .v = p->mem[1] + row_at(p, kv, 0) * cb_kv_row_bytes(p->type[1], p->hd),
                            .n = p->rows,
                            .prepacked = p->prepacked,
                            .step_k = step_at(p, 0, kv, 0),
                            .step_v = step_at(p, 1, kv, 0) };
}
