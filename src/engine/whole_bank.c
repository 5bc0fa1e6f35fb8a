/* SPDX-License-Identifier: MIT */
/* whole_bank.c - a bank that is dealt out to ranks, as one process would have it. Slots are dealt
 * out by whole blocks, which take the same bytes on their rank as in one process: an area of all
 * ranks is their blocks in turn. */
#include "whole_bank.h"

#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "bank/store.h"
#include "bank/store_prepack.h"
#include "bank/store_sketch.h"
#include "base/array.h"
#include "base/err.h"
#include "in_step.h"
#include "orders.h"

struct whole_bank {
    struct cb_session s; /* a view: what is not of dealt layers is the session's own */
    struct store *store; /* [n_layer] */
    int32_t *made;       /* [n_layer][2] prepacked and sketched slots of all ranks */
    int *n;              /* [slots of a head], as many as heads of a layer */
    int *zero, *none;    /* of each head: no gap, not mixed; and no hole */
    char *buf;
    size_t cap;
};

/* An area that rank 0 asks for; kind 0: none is left */
struct asked {
    int32_t kind, layer, head, zero;
    uint64_t bytes;
};

/* ---- what all ranks have together ---- */

enum { PREPACKED, SKETCHED, N_MADE };

/* Sums over the ranks -> made[n_layer][N_MADE], on every rank */
static int sum_made(const struct cb_session *s, int32_t *made)
{
    const int n = N_MADE * s->bank.n_layer, n_rank = cb_ranks_n(s->in_step->team);
    int32_t *all = cb_calloc((size_t)n * (size_t)n_rank, sizeof *all);
    int err = all ? CB_OK : CB_ENOMEM;

    for (int l = 0; l < s->bank.n_layer; l++) {
        made[N_MADE * l + PREPACKED] = s->bank.store[l].prepacked;
        made[N_MADE * l + SKETCHED] = s->bank.store[l].sketched;
    }
    if (!err)
        err = cb_ranks_share(s->in_step->team, made, (size_t)n * sizeof *made, all);
    memset(made, 0, (size_t)n * sizeof *made);
    for (int i = 0; !err && i < n * n_rank; i++)
        made[i % n] += all[i];
    free(all);
    return err;
}

static void widen(struct whole_bank *w, int l)
{
    struct store *st = &w->store[l];

    st->n = st->rows = w->n;
    st->hole = w->none;
    st->mixed = st->gap_lo = st->gap_hi = w->zero;
    st->pos = NULL;
    st->dropped_at = 0;
    st->prepacked = w->made[N_MADE * l + PREPACKED];
    st->sketched = w->made[N_MADE * l + SKETCHED];
}

static int most_heads(const struct cb_session *s)
{
    int most = 1;

    for (int l = 0; l < s->bank.n_layer; l++)
        most = s->bank.store[l].n_kv > most ? s->bank.store[l].n_kv : most;
    return most;
}

static int make_view(struct whole_bank *w, const struct cb_session *s)
{
    const size_t n_layer = (size_t)s->bank.n_layer, n_kv = (size_t)most_heads(s);

    w->s = *s;
    w->store = cb_calloc(n_layer, sizeof *w->store);
    w->made = cb_calloc(n_layer * N_MADE, sizeof *w->made);
    w->n = cb_calloc(n_kv, sizeof *w->n);
    w->zero = cb_calloc(n_kv, sizeof *w->zero);
    w->none = cb_calloc(n_kv, sizeof *w->none);
    if (!w->store || !w->made || !w->n || !w->zero || !w->none)
        return CB_ENOMEM;
    memcpy(w->store, s->bank.store, n_layer * sizeof *w->store);
    w->s.bank.store = w->store;
    for (size_t h = 0; h < n_kv; h++) {
        w->n[h] = s->bank.n_seen;
        w->none[h] = -1;
    }
    return CB_OK;
}

static void release(struct whole_bank *w)
{
    free(w->store);
    free(w->made);
    free(w->n);
    free(w->zero);
    free(w->none);
    free(w->buf);
    free(w);
}

int cb_whole_bank_open(const struct cb_session *s, struct whole_bank **out)
{
    struct whole_bank *w;
    int err;

    *out = NULL;
    if (!cb_context_split_deals_any(&s->attention))
        return CB_OK;
    if (!(w = cb_calloc(1, sizeof *w)))
        return CB_ENOMEM;
    err = make_view(w, s);
    if (!err)
        err = cb_in_step_begin(s, VERB_GIVE, NULL, 0);
    if (err) {
        release(w);
        return err;
    }
    cb_context_split_forget((struct attention *)(uintptr_t)&s->attention);
    *out = w;
    err = sum_made(s, w->made);
    for (int l = 0; l < s->bank.n_layer; l++)
        if (cb_context_split_deals(&s->attention, l))
            widen(w, l);
    w->s.bank.peak_bytes = cb_bank_bytes(&w->s.bank); /* nothing was dropped */
    return err;                                       /* the caller closes it */
}

void cb_whole_bank_close(struct whole_bank *w)
{
    struct asked none = { .kind = 0 };

    if (!w)
        return;
    (void)cb_in_step_end(w->s.in_step, cb_ranks_tell(w->s.in_step->team, 0, &none, sizeof none, 1));
    release(w);
}

const struct cb_session *cb_whole_bank_session(const struct whole_bank *w,
                                               const struct cb_session *s)
{
    return w ? &w->s : s;
}

/* ---- areas ---- */

/* Bytes of a block that is dealt out, in an area */
static size_t block_bytes(const struct cb_session *s, int l, int kind)
{
    return cb_store_area_of(&s->bank.store[l], (enum area_kind)kind,
                            cb_context_split_block(&s->attention));
}

/* Blocks come in their order, each from the rank that has it. */
static int collect(struct whole_bank *w, const struct area *a, size_t each)
{
    struct ranks *team = w->s.in_step->team;
    const size_t n_rank = (size_t)cb_ranks_n(team);

    for (size_t at = 0, b = 0; at < a->bytes; at += each, b++) {
        const size_t n = a->bytes - at < each ? a->bytes - at : each;
        if (b % n_rank)
            TRY(cb_ranks_receive(team, (int)(b % n_rank), w->buf + at, n));
        else
            memcpy(w->buf + at, (const char *)a->at + b / n_rank * each, n);
    }
    return CB_OK;
}

int cb_whole_bank_area(struct whole_bank *w, const struct area *a, const void **at)
{
    struct asked ask = { (int32_t)a->kind, a->layer, a->head, 0, a->bytes };
    const int is_store = a->kind < AREA_STORE_KINDS && a->kind != AREA_COUNTS;
    size_t each;

    *at = a->at;
    if (!w || !is_store || !cb_context_split_deals(&w->s.attention, a->layer) || !a->bytes)
        return CB_OK;
    each = block_bytes(&w->s, a->layer, (int)a->kind);
    if (!each || a->from)
        return cb_fail(CB_EUNSUPPORTED,
                       "save: not yet over several ranks: what layer %d has "
                       "beside its keys and values",
                       a->layer);
    TRY(cb_grow(&w->buf, &w->cap, a->bytes, 1));
    TRY(cb_ranks_tell(w->s.in_step->team, 0, &ask, sizeof ask, 1));
    *at = w->buf;
    return collect(w, a, each);
}

/* Where this rank's part of an area begins; NULL: it has none */
static const char *place_of(const struct cb_session *s, const struct asked *ask)
{
    const struct store *st = &s->bank.store[ask->layer];

    switch (ask->kind) {
    case AREA_KEYS:
        return (const char *)cb_store_key(st, ask->head, 0);
    case AREA_VALUES:
        return (const char *)cb_store_value(st, ask->head, 0);
    case AREA_STEP_KEYS:
    case AREA_STEP_VALUES:
        return (const char *)cb_store_steps(st, ask->head, ask->kind == AREA_STEP_VALUES, 0);
    default:
        return (const char *)cb_store_sketch_at(st, ask->head, 0);
    }
}

static int send_area(const struct cb_session *s, const struct asked *ask)
{
    struct ranks *team = s->in_step->team;
    const size_t each = block_bytes(s, ask->layer, ask->kind), n_rank = (size_t)cb_ranks_n(team);
    const char *from = place_of(s, ask);

    for (size_t b = (size_t)cb_ranks_me(team); b * each < ask->bytes; b += n_rank) {
        const size_t left = (size_t)ask->bytes - b * each;
        TRY(cb_ranks_send(team, 0, from + b / n_rank * each, left < each ? left : each));
    }
    return CB_OK;
}

int cb_whole_bank_give(struct cb_session *s)
{
    int32_t *made = cb_calloc((size_t)s->bank.n_layer * N_MADE, sizeof *made);
    struct asked ask;
    int err = made ? sum_made(s, made) : CB_ENOMEM;

    free(made);
    TRY(err);
    for (;;) {
        TRY(cb_ranks_tell(s->in_step->team, 0, &ask, sizeof ask, 1));
        if (!ask.kind)
            return CB_OK;
        TRY(send_area(s, &ask));
    }
}
