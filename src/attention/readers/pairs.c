/* SPDX-License-Identifier: MIT */
/* pairs.c - a layer reads the shared directions of a pair as rows: the later one's store has them
 * as its own rows, the earlier one's are restored into a copy that all pairs use in turn. So every
 * kernel, and whatever reads rows, serves merged slots. A prompt's queries see rows that are not
 * merged yet as they were stored, since the pair is merged when the later layer is through. */
#include <math.h>

#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "bank/store_pair.h"
#include "bank/store_prefetch.h"
#include "base/err.h"

struct pairs {
    int tail; /* as planned; the same in all layers */
    struct pair_work work;
    uint8_t *row[2]; /* keys, values of a layer, laid out as in a store; equal with one_row */
};

/* ---- open ---- */

/* Does the plan merge layer l with the one before it? */
static int ends_pair(const struct attention *a, int l)
{
    return l > 0 && l < a->bank->n_layer && a->plan[l].pair.tail > 0;
}

static int claims(const struct claim *c)
{
    return (c->l > 0 && c->row->pair.tail > 0) ||
           (c->l + 1 < c->n_layer && c->row[1].pair.tail > 0);
}

static int fits(const struct attention *a, int l)
{
    for (int i = l - 1; i <= l; i++)
        if (a->model->layer[i].window)
            return cb_policy_refuse(a->policy,
                                    "layer %d has a window, whose slots are dropped in one layer "
                                    "of a pair before they are in the other",
                                    i);
    if (cb_bank_has_kivi(a->bank))
        return cb_policy_refuse(a->policy, "not with keys or values of type kivi: merged ones are "
                                           "stored as rows");
    return CB_OK;
}

/* Memory of the rows is committed page by page as the context grows. */
static int open_rows(struct attention *a, struct pairs *x)
{
    const struct store *st = cb_attention_typical(a);

    for (int v = 0; v < cb_store_sides(st); v++) {
        x->row[v] = cb_state_pages(x, (v ? st->head_v : st->head_k) * (size_t)st->n_kv);
    }
    if (st->one_row)
        x->row[1] = x->row[0];
    return cb_state_status(x);
}

static int open(struct attention *a, void *state)
{
    const size_t n_ctx = (size_t)a->bank->n_ctx;
    struct pairs *x = state;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (ends_pair(a, l)) {
            TRY(fits(a, l));
            TRY(cb_store_pair(&a->bank->store[l - 1], &a->bank->store[l]));
            x->tail = a->plan[l].pair.tail;
        }
    x->work.angle = cb_state_alloc(x, n_ctx, sizeof *x->work.angle);
    x->work.first = cb_state_alloc(x, n_ctx, sizeof *x->work.first);
    return open_rows(a, x);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct store *st = cb_attention_typical(a);
    const struct pairs *x = state;

    (void)n_feed;
    return (size_t)n_most * ((size_t)st->n_kv * cb_store_slot_bytes(st) + sizeof *x->work.angle +
                             sizeof *x->work.first);
}

/* ---- merging and reading ---- */

/* Of n merged slots, how many are retained */
static int retained(const struct pair_plan *p, int n)
{
    const double keep = p->retain < 1 ? ceil(p->retain * n) : p->retain;
    return keep < n ? (int)keep : n;
}

/* Where layer l ends a pair, a prompt's slots are merged, or the generated ones when there are
 * enough. */
static int settle(struct attention *a, int l)
{
    struct pairs *x = cb_reader_state(a, l);
    const struct pair_plan *p = &a->plan[l].pair;
    struct store *st = &a->bank->store[l - ends_pair(a, l)];
    const int n = st->n[0];

    if (ends_pair(a, l) && (!a->bank->decoding || n - st->merged >= p->tail))
        cb_store_pair_merge(st, a->dev, n, p->t, retained(p, n), &x->work);
    return CB_OK;
}

static const char *uncut(const struct attention *a, const void *x, int n)
{
    (void)x;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (a->bank->store[l].merged > n)
            return "it has merged tokens since";
    return NULL;
}

/* The part's rows are valid until the next call. */
static int parts(struct attention *a, const struct chunk *c)
{
    const struct store *st = &a->bank->store[c->l];
    const struct pairs *x = cb_reader_state(a, c->l);
    const struct part p = cb_parts_of(a, c);
    struct kv_run *run;

    if (!st->merged)
        return 0;
    for (int h = 0; a->cold_pages && h < st->n_kv; h++)
        cb_store_prefetch(st->later, h, NULL, st->merged);
    TRY(cb_device_wait(a->dev)); /* the host reads the rows that ops have stored */
    TRY(cb_parts_add(a, &p, &run));
    cb_store_pair_restore(st, a->dev, st->n[0], x->row[0], x->row[1]);
    TRY(cb_device_wait(a->dev)); /* and writes others that ops read */
    for (int h = 0; h < st->n_kv; h++)
        run[h] = (struct kv_run){ .n = st->n[h],
                                  .k = x->row[0] + st->head_k * (size_t)h,
                                  .v = x->row[1] + st->head_v * (size_t)h };
    return 1;
}

/* ---- the plan ---- */

/* The earlier layer of a pair holds what is retained. */
static uint64_t unheld_bytes(const struct attention *a, int l, const struct planned *p)
{
    const struct pairs *x = cb_reader_state(a, l);
    const struct store *st = &a->bank->store[l];
    int n;

    if (!ends_pair(a, l + 1))
        return 0;
    n = p->n_prompt + p->n_gen / x->tail * x->tail;
    return (uint64_t)st->n_kv * cb_store_pair_saved(st, n, retained(&a->plan[l + 1].pair, n));
}

static int period(const struct attention *a, const void *state)
{
    const struct pairs *x = state;

    (void)a;
    return x->tail;
}

const struct reader cb_reader_pairs = {
    .name = "directions shared with an adjacent layer",
    .traits = READ_DENSE | READ_ANY_ORDER | READ_UNDOES | READ_LATE,
    .undraftable = "it measures, drops or merges tokens as they come",
    .claims = claims,
    .state = sizeof(struct pairs),
    .open = open,
    .work_bytes = work_bytes,
    .uncut = uncut,
    .parts = parts,
    .settle = settle,
    .unheld_bytes = unheld_bytes,
    .period = period,
};
