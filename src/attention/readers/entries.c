/* SPDX-License-Identifier: MIT */
/* entries.c - beside the rows of a window, queries read entries: rows that stand for `ratio` tokens
 * each (DeepSeek-AI 2026, DeepSeek-V4, sections 2.3.1 and 2.3.2). A window of tokens is an entry as
 * soon as it is complete. Where a layer scores entries, a query reads the top_k whose sum over the
 * scoring heads of w * max(0, q . k) is largest; ties go to the earlier entry. Rows older than the
 * window are dropped. What the next entries will be made of is a state of fixed size, which goes
 * back to a checkpoint when the timeline is cut (states.h), together with the window's rows.
 *
 * The host makes entries and keeps and scores their keys; a device with memory of its own attends
 * to entries as it does to rows of the bank. */
#include <stdlib.h>

#include "attention/entry_maker.h"
#include "attention/index_choice.h"
#include "attention/parts.h"
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "bank/states.h"
#include "bank/store_areas.h"
#include "base/err.h"
#include "base/ints.h"
#include "whole.h"

/* A layer's; unused where it has no entries */
struct layer_entries {
    struct store entry;      /* rows, one KV head */
    struct index_keys index; /* keys of them that are scored */
};

struct entries {
    struct layer_entries *layer; /* [n_layer] */
    struct entry_work make;
    struct index_choice choice;
    int32_t *list; /* [chunk][top_k] */
    int most;      /* entries of a layer that scores */
    size_t list_bytes;
};

static int claims(const struct claim *c)
{
    return c->y && c->y->compressed;
}

static const struct compressed *of(const struct attention *a, int l)
{
    return a->model->layer[l].compressed;
}

/* Does layer l score its entries? Where the policy does not ask for it, all are read. */
static int scores(const struct attention *a, int l)
{
    return a->plan[l].select.on && of(a, l)->index.n > 0;
}

/* Entries that the first n tokens have made */
static int n_entry(const struct attention *a, int l, int n)
{
    return of(a, l)->ratio ? n / of(a, l)->ratio : 0;
}

static struct layer_entries *at(const struct attention *a, int l)
{
    const struct entries *x = cb_reader_state(a, l);
    return &x->layer[l];
}

/* Entries of n tokens, and their keys */
static uint64_t held_bytes(const struct attention *a, int l, int n)
{
    const struct layer_entries *e = at(a, l);

    return (uint64_t)n_entry(a, l, n) * e->entry.row_k + cb_index_keys_bytes(&e->index, n);
}

/* ---- open ---- */

static int open_layer(struct attention *a, int l, struct entries *x)
{
    struct layer_entries *e = &x->layer[l];
    const enum kv_type t = a->bank->type_k;
    const int most = n_entry(a, l, a->bank->n_ctx) + 1;

    TRY(cb_store_open(&e->entry, 1, a->model->layer[l].hd, most, t, t, 0));
    cb_store_share_rows(&e->entry);
    TRY(cb_store_mirror(&e->entry, a->dev));
    e->entry.small_pages = a->bank->small_pages;
    if (!scores(a, l))
        return CB_OK;
    x->most = max_int(x->most, most);
    return cb_index_keys_open(&e->index, x, a, l, INDEX_SUMS, of(a, l)->index.n, of(a, l)->ratio);
}

static int open_lists(const struct attention *a, struct entries *x)
{
    const struct compress_params *p = &a->model->hp.compress;
    const size_t list = (size_t)a->chunk * (size_t)p->top_k;

    if (!x->most)
        return CB_OK;
    /* memory for these is committed page by page as the context grows */
    x->list = cb_state_alloc(x, list, sizeof *x->list);
    x->list_bytes = list * sizeof *x->list;
    return cb_index_choice_open(&x->choice, x, p->n_index, p->index_hd, x->most, p->top_k);
}

static size_t floats_of(const void *model, int l, size_t *past)
{
    const struct layer *y = &((const struct cb_model *)model)->layer[l];

    *past = cb_window_floats(y);
    return *past + cb_entry_state(&y->compressed->entry) + cb_entry_state(&y->compressed->index);
}

/* 1: the host makes entries of layer l, which has the state x */
static int makes_entries(const struct attention *a, int l, const void *x)
{
    return cb_reader_state(a, l) == x && of(a, l)->ratio;
}

static int open(struct attention *a, void *state)
{
    struct entries *x = state;

    if (!a->host)
        return cb_fail(CB_EUNSUPPORTED,
                       "device %s does not make rows that stand for several tokens", a->dev->name);
    cb_index_note_host(a, makes_entries, x, "makes and scores rows that stand for several tokens");
    if (!(x->layer = cb_state_calloc(x, (size_t)a->bank->n_layer, sizeof *x->layer)))
        return CB_ENOMEM;
    for (int l = 0; l < a->bank->n_layer; l++)
        if (of(a, l)->ratio)
            TRY(open_layer(a, l, x));
    TRY(open_lists(a, x));
    TRY(cb_entry_work_open(&x->make, x, a->model, a->chunk));
    return cb_states_open(&a->bank->states, a->bank->n_layer, floats_of, a->model,
                          a->bank->checkpoint_bytes);
}

static void close_stores(struct attention *a, void *state)
{
    struct entries *x = state;

    for (int l = 0; x->layer && l < a->bank->n_layer; l++)
        if (of(a, l)->ratio)
            cb_store_close(&x->layer[l].entry);
}

static size_t work_bytes(const struct attention *a, const void *state, int n_feed, int n_most)
{
    const struct entries *x = state;

    (void)a, (void)n_most;
    return x->list_bytes + x->make.bytes +
           (x->most ? cb_index_choice_bytes(&x->choice, n_feed, x->most) : 0);
}

/* ---- what follows the timeline ---- */

static void cut(struct attention *a, void *state, int n)
{
    struct entries *x = state;

    for (int l = 0; l < a->bank->n_layer; l++) {
        if (x->layer[l].entry.n_kv)
            cb_store_cut(&x->layer[l].entry, n_entry(a, l, n));
        cb_bank_note_beside(a->bank, l, held_bytes(a, l, n));
    }
}

static void clear(struct attention *a, void *state)
{
    cut(a, state, 0);
}

/* Rows of the window that a checkpoint after n tokens has */
static int n_window(const struct attention *a, int l, int n)
{
    return min_int(n, a->model->layer[l].window - 1);
}

/* Slots before those rows, less whole splits: attention sums the slots of a split together, so the
 * rows must come back to the places that they had. It stands after the rows. */
static float *place(const struct attention *a, int l)
{
    return cb_states_past(&a->bank->states, l) + cb_window_floats(&a->model->layer[l]) - 1;
}

static void remember(struct attention *a, int l, int n)
{
    const struct store *st = &a->bank->store[l];
    const int held = n_window(a, l, n), first = st->n[0] - held;
    float *row = cb_states_past(&a->bank->states, l);

    for (int i = 0; i < held; i += CB_STORE_MANY)
        cb_store_get_range(st, a->dev, 0, 0, first + i, min_int(CB_STORE_MANY, held - i),
                           row + (size_t)i * (size_t)st->hd);
    *place(a, l) = (float)(first % KV_SPLIT);
}

static void begin(struct attention *a)
{
    struct bank *b = a->bank;

    if (b->decoding)
        return;
    for (int l = 0; l < b->n_layer; l++)
        remember(a, l, b->n_seen);
    cb_states_keep(&b->states);
    cb_states_prompt(&b->states, b->n_seen, b->n_seen + b->n_feed);
}

static int room(const struct attention *a, int l, int i)
{
    (void)l;
    return cb_states_room(&a->bank->states, a->bank->n_seen + i);
}

static void passed(struct attention *a, int l, int pos)
{
    if (pos % STATE_GRID == 0)
        remember(a, l, pos);
    cb_states_passed(&a->bank->states, l, pos);
}

static void fed(struct attention *a, int n)
{
    struct bank *b = a->bank;

    (void)n;
    cb_states_drop(&b->states);
    if (!b->decoding)
        return;
    for (int l = 0; b->n_seen % STATE_GRID == 0 && l < b->n_layer; l++)
        remember(a, l, b->n_seen);
    cb_states_generated(&b->states, b->n_seen);
}

/* The rows of the window before position n become the store's, after rows that nobody reads. */
static int window_back(struct attention *a, int l, int n, int32_t *pos, float *none)
{
    struct store *st = &a->bank->store[l];
    const float *row = cb_states_past(&a->bank->states, l);
    const int held = n_window(a, l, n), before = min_int((int)*place(a, l), n - held);

    cb_store_cut(st, 0);
    if (!held)
        return CB_OK;
    for (int i = 0; i < before + held; i++)
        pos[i] = n - held - before + i;
    TRY(cb_store_append(st, a->dev, none, none, st->hd, before, pos[0]));
    TRY(cb_store_append(st, a->dev, row, row, st->hd, held, n - held));
    return before + held < n ? cb_store_set_pos(st, pos, before + held) : CB_OK;
}

static int resume(struct attention *a, void *state, int n)
{
    int32_t *pos = cb_calloc((size_t)a->model->hp.window + KV_SPLIT, sizeof *pos);
    float *none = cb_calloc((size_t)KV_SPLIT * (size_t)a->model->hp.hd_max, sizeof *none);
    int err = pos && none ? CB_OK : CB_ENOMEM;

    (void)state;
    for (int l = 0; !err && l < a->bank->n_layer; l++)
        err = window_back(a, l, n, pos, none);
    free(pos);
    free(none);
    return err;
}

/* ---- a chunk ---- */

/* What c completes of m -> x->make.row; returns how many */
static int make(struct attention *a, const struct chunk *c, const struct compressor *m, int value,
                int logit, float *state)
{
    struct entries *x = cb_reader_state(a, c->l);

    return cb_entry_make(a, &a->model->layer[c->l], m, c->made + value, c->made + logit,
                         c->made_stride, c->n, c->pos0, state, &x->make);
}

/* The entries that c completes are stored, and their keys. */
static int stored(struct attention *a, const struct chunk *c)
{
    const struct compressed *y = of(a, c->l);
    const struct entry_columns col = cb_entry_columns(y);
    struct layer_entries *e = at(a, c->l);
    float *state = cb_states_matrix(&a->bank->states, c->l);
    const float *row = ((const struct entries *)cb_reader_state(a, c->l))->make.row;
    int n;

    if (!y->ratio)
        return CB_OK;
    n = make(a, c, &y->entry, col.value, col.logit, state);
    if (n)
        TRY(cb_store_append(&e->entry, a->dev, row, row, y->entry.n, n, 0));
    if (scores(a, c->l)) {
        n = make(a, c, &y->index, col.index_value, col.index_logit,
                 state + cb_entry_state(&y->entry));
        cb_index_keys_put(&e->index, a->host, row, y->index.n, n, n_entry(a, c->l, c->pos0));
    }
    cb_bank_note_beside(a->bank, c->l, held_bytes(a, c->l, c->pos0 + c->n));
    return CB_OK;
}

/* Queries first..first+n-1 of c read n_e entries beside the window: all of them, or a list. */
static int add_part(struct attention *a, const struct chunk *c, int first, int n, int n_e,
                    const int32_t *list, int k)
{
    struct part p = cb_parts_some(a, c, first, n);
    struct kv_run *run;

    p.causal = p.window = 0;
    p.joins = p.elsewhere = 1;
    TRY(cb_parts_add(a, &p, &run));
    run[0] = cb_store_run(&at(a, c->l)->entry, 0, 0, n_e);
    if (list) {
        run[0].idx = list;
        run[0].n = k;
    }
    return CB_OK;
}

/* Query i of c reads the best of n_e entries. */
static int add_best(struct attention *a, const struct chunk *c, int i, int n_e)
{
    struct entries *x = cb_reader_state(a, c->l);
    const struct entry_columns col = cb_entry_columns(of(a, c->l));
    const float *made = c->made + (size_t)i * (size_t)c->made_stride;
    const struct index_queries q = { made + col.q, made + col.weight, c->made_stride, 1 };
    const int k = a->model->hp.compress.top_k;
    int32_t *list = x->list + (size_t)i * (size_t)k;

    cb_index_choose(&x->choice, a, &at(a, c->l)->index, &q, &n_e, k, list, (size_t)k);
    if (a->bank->decoding)
        a->bank->read_bytes += cb_index_choice_reads(&at(a, c->l)->index, n_e, k);
    return add_part(a, c, i, 1, n_e, list, k);
}

/* Neighbouring queries that see the same entries share a part. */
static int parts(struct attention *a, const struct chunk *c)
{
    const int ratio = of(a, c->l)->ratio, k = a->model->hp.compress.top_k;

    TRY(cb_parts_whole(a, c, NULL));
    for (int i = 0, n = 1; ratio && i < c->n; i += n) {
        const int n_e = n_entry(a, c->l, c->pos0 + i + 1);
        const int best = scores(a, c->l) && n_e > k;
        n = best ? 1 : min_int(c->n - i, ratio - (c->pos0 + i + 1) % ratio);
        if (n_e)
            TRY(best ? add_best(a, c, i, n_e) : add_part(a, c, i, n, n_e, NULL, 0));
    }
    return 1;
}

/* ---- for the memory plan ---- */

static uint64_t read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                           uint64_t *scanned)
{
    const struct layer_entries *e = at(a, l);
    const int seen = n_entry(a, l, p->n_prompt + p->n_gen), k = a->model->hp.compress.top_k;
    const int best = scores(a, l) && seen > k;

    *scanned = best ? cb_index_choice_reads(&e->index, seen, k) : 0;
    return cb_whole_read_bytes(a, l, n, p, scanned) + *scanned +
           (uint64_t)(best ? k : seen) * e->entry.row_k;
}

/* ---- as plain data: as many rows as the timeline's length says ---- */

static int areas(const struct attention *a, int l, struct area *out)
{
    struct layer_entries *e = at(a, l);
    const int n = n_entry(a, l, a->bank->n_seen);

    if (!out || !n)
        return out ? 0 : 2;
    e->entry.n[0] = e->entry.rows[0] = n; /* of a session that is filled from elsewhere */
    out[0] = (struct area){
        AREA_ENTRIES, l, 0, 0, cb_store_key(&e->entry, 0, 0), (size_t)n * e->entry.row_k
    };
    if (scores(a, l))
        out[1] = (struct area){
            AREA_ENTRIES, l, 1, 0, e->index.at, cb_index_keys_bytes(&e->index, a->bank->n_seen)
        };
    return 1 + scores(a, l);
}

static size_t area_of(const struct attention *a, const struct area *area, int n)
{
    const struct layer_entries *e = at(a, area->layer);

    return area->head ? cb_index_keys_whole(&e->index, n)
                      : (size_t)n_entry(a, area->layer, n) * e->entry.row_k;
}

static int area_strips(const struct attention *a, const struct area *area)
{
    const struct layer_entries *e = at(a, area->layer);

    return area->head && e->index.strips ? e->index.hd : 0;
}

static int check(const struct attention *a, int l)
{
    cb_bank_note_beside(a->bank, l, held_bytes(a, l, a->bank->n_seen));
    return CB_OK;
}

const struct reader cb_reader_entries = {
    .name = "a window, and rows that stand for several tokens",
    .traits = READ_ANY_ORDER | READ_JOINS | READ_WINDOW | READ_RESUMES,
    .undraftable = "a layer has rows that stand for several tokens",
    .no_choice = "the model's layers read rows that stand for several tokens",
    .claims = claims,
    .state = sizeof(struct entries),
    .open = open,
    .close = close_stores,
    .clear = clear,
    .work_bytes = work_bytes,
    .cut = cut,
    .resume = resume,
    .begin = begin,
    .fed = fed,
    .room = room,
    .passed = passed,
    .stored = stored,
    .parts = parts,
    .read_bytes = read_bytes,
    .held_bytes = held_bytes,
    .areas = areas,
    .area_of = area_of,
    .area_strips = area_strips,
    .check = check,
};
