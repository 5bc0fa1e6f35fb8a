/* SPDX-License-Identifier: MIT */
/* index_keys.c - the keys that a trained selector scores. */
#include "index_keys.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bank/pages.h"
#include "base/err.h"
#include "device/index_strips.h"
#include "reader.h"
#include "state_memory.h"

static size_t bytes_of(const struct index_keys *x, int n_key)
{
    return x->strips ? cb_strips_bytes(x->hd, n_key)
                     : (size_t)n_key * cb_kv_row_bytes(x->type, x->hd);
}

static int reserve(struct index_keys *x, void *state, const struct attention *a)
{
    x->at = cb_state_pages(state, cb_pages_head(bytes_of(x, a->bank->n_ctx / x->per + 1)));
    return x->at ? CB_OK : CB_ENOMEM;
}

int cb_index_rows_open(struct index_keys *x, void *state, const struct attention *a, enum kv_type t,
                       int hd, int per)
{
    if (hd % cb_kv_type[t].block)
        return cb_policy_refuse(a->policy,
                                "keys=%s: the selector's keys of %d numbers are no whole blocks "
                                "of %d; f16 and f32 fit",
                                cb_kv_type[t].name, hd, cb_kv_type[t].block);
    *x = (struct index_keys){ .type = t, .hd = hd, .per = per };
    return reserve(x, state, a);
}

int cb_index_keys_open(struct index_keys *x, void *state, const struct attention *a, int l,
                       enum index_use use, int hd, int per)
{
    const enum kv_type small = hd % cb_kv_type[KV_Q8_0].block ? KV_F16 : KV_Q8_0;
    const enum select_keys asked = a->plan[l].select.keys;
    static const enum kv_type type[] = {
        [SELECT_F32] = KV_F32, [SELECT_F16] = KV_F16, [SELECT_Q8_0] = KV_Q8_0
    };

    if (asked != SELECT_AUTO)
        return cb_index_rows_open(x, state, a, type[asked], hd, per);
    if (a->bank->type_k == KV_F32 || use == INDEX_EACH)
        return cb_index_rows_open(x, state, a, a->bank->type_k == KV_F32 ? KV_F32 : small, hd, per);
    *x = (struct index_keys){ .strips = 1, .hd = hd, .per = per };
    return reserve(x, state, a);
}

int cb_index_keys_mirror(struct index_keys *x, const struct attention *a)
{
    const size_t row = x->strips ? cb_strip_row_bytes(x->hd) : cb_kv_row_bytes(x->type, x->hd);

    x->mirror = a->dev;
    return a->dev->ops->memory->watch(a->dev, x->at, row,
                                      bytes_of(x, a->bank->n_ctx / x->per + 1) / row);
}

/* The host has changed keys at..at+n-1. */
static void wrote(const struct index_keys *x, int at, int n)
{
    const size_t first = bytes_of(x, x->strips ? at / STRIP_BLOCK * STRIP_BLOCK : at);

    if (x->mirror)
        x->mirror->ops->memory->wrote(x->mirror, x->at + first, bytes_of(x, at + n) - first);
}

void cb_index_keys_put(const struct index_keys *x, struct device *d, const float *k, int stride,
                       int n, int at)
{
    if (x->strips && d == x->mirror) {
        d->ops->strips_put(d, k, n, stride, x->hd, at, x->at);
    } else if (x->strips) {
        cb_strips_put(k, n, stride, x->hd, at, x->at);
        wrote(x, at, n);
    } else {
        d->ops->kv_encode(d, x->type, k, n, stride, x->hd, x->at + bytes_of(x, at));
        if (d != x->mirror)
            wrote(x, at, n);
    }
}

void cb_index_keys_ahead(const struct index_keys *x, const struct attention *a, int n)
{
    if (a->cold_pages && n > 0)
        cb_pages_ahead(x->at, bytes_of(x, n));
}

void cb_index_keys_largest(const struct index_keys *x, const struct attention *a,
                           const struct chunk *c, int i, int m, int n, int piece, float *out,
                           int stride)
{
    const struct selector_params *p = &a->model->hp.selector;
    const struct kv_run run = { .k = x->at, .v = x->at, .n = n };
    const struct score s = { .a = { .n_tok = m,
                                    .n_head = p->n_head,
                                    .n_kv = 1,
                                    .hd = p->hd,
                                    .scale = 1,
                                    .causal = 1,
                                    .type_k = x->type,
                                    .type_v = x->type,
                                    .run = &run,
                                    .q = c->index.q + (size_t)i * (size_t)c->index.stride,
                                    .q_stride = c->index.stride },
                             .logit = 1,
                             .out = out,
                             .out_stride = stride,
                             .tok_stride = (size_t)p->n_head * (size_t)stride,
                             .piece = piece };

    cb_index_keys_ahead(x, a, n);
    for (int r = 0; r < m * p->n_head; r++)
        for (int j = 0; j <= cb_score_piece(piece, n - 1); j++)
            out[(size_t)r * (size_t)stride + (size_t)j] = -INFINITY;
    a->host->ops->score(a->host, &s);
}

size_t cb_index_keys_bytes(const struct index_keys *x, int n)
{
    return x->at ? bytes_of(x, n / x->per) : 0;
}

size_t cb_index_keys_whole(const struct index_keys *x, int n)
{
    const int n_key = n / x->per;

    return bytes_of(x, x->strips ? n_key / STRIP_BLOCK * STRIP_BLOCK : n_key);
}

uint64_t cb_index_keys_scanned(const struct index_keys *x, int n)
{
    return (uint64_t)n *
           (x->strips ? cb_strip_scan_bytes(x->hd) / STRIP_BLOCK : cb_kv_row_bytes(x->type, x->hd));
}

/* ---- of a session ---- */

/* "0-2, 5": the layers that belong to x; as many as fit */
static void list_layers(const struct attention *a, index_layer *belongs, const void *x, char *text,
                        size_t size)
{
    const int n = a->bank->n_layer;
    size_t at = 0;

    for (int l = 0, end; l < n && at < size; l = end) {
        for (end = l; end < n && belongs(a, end, x);)
            end++;
        if (end - l > 1)
            at += (size_t)snprintf(text + at, size - at, "%s%d-%d", at ? ", " : "", l, end - 1);
        else if (end > l)
            at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ", " : "", l);
        end += end == l;
    }
}

void cb_index_note_host(const struct attention *a, index_layer *belongs, const void *x,
                        const char *does)
{
    char *note = a->policy->note, layers[96] = "";
    const size_t said = strlen(note);

    if (a->host == a->dev)
        return;
    list_layers(a, belongs, x, layers, sizeof layers);
    snprintf(note + said, sizeof a->policy->note - said,
             "%s%s, device %s: the CPU %s, in layers %s", said ? "" : "policy ",
             said ? "" : a->policy->m->name, a->dev->name, does, layers);
}

static int reads(const struct attention *a, int l, const void *x)
{
    return cb_reader_state(a, l) == x;
}

void cb_index_sets_note(const struct attention *a, const struct index_sets *x, int by_blocks)
{
    int mirrors = 0;
    char does[80];

    for (int l = 0; l < a->bank->n_layer; l++)
        mirrors |= cb_index_set(x, l, 0)->mirror != NULL;
    snprintf(does, sizeof does, "scores the selectors' keys%s%s", mirrors ? " of prompts" : "",
             by_blocks ? " and attends there in prompts" : "");
    cb_index_note_host(a, reads, x, does);
}

int cb_index_sets_open(const struct attention *a, struct index_sets *x)
{
    if (!a->host)
        return cb_fail(CB_EUNSUPPORTED, "policy %s: device %s does not score a selector's keys",
                       a->policy->m->name, a->dev->name);
    x->key = cb_state_calloc(x, (size_t)a->bank->n_layer * INDEX_SORTS, sizeof *x->key);
    x->most = cb_state_calloc(x, (size_t)a->bank->n_layer, sizeof *x->most);
    return cb_state_status(x);
}

void cb_index_sets_close(struct attention *a, void *state)
{
    const struct index_sets *x = state;

    for (int i = 0; x->key && i < a->bank->n_layer * INDEX_SORTS; i++)
        if (x->key[i].mirror)
            x->key[i].mirror->ops->memory->unwatch(x->key[i].mirror, x->key[i].at);
}

int cb_index_sets_fit(struct index_sets *x, size_t n, size_t each)
{
    return cb_state_fit(x, &x->list, &x->cap, n * each, sizeof *x->list);
}

int cb_index_room(const struct attention *a, int l, int i)
{
    const struct index_sets *x = cb_reader_state(a, l);
    const int pos = a->bank->n_seen + i;

    return pos < x->most[l] ? x->most[l] - pos : INT32_MAX;
}

static const struct index_keys *keys_of(const struct attention *a, int l)
{
    return cb_index_set(cb_reader_state(a, l), l, 0);
}

uint64_t cb_index_held_bytes(const struct attention *a, int l, int n)
{
    const struct index_keys *x = keys_of(a, l);
    uint64_t sum = 0;

    for (int i = 0; i < INDEX_SORTS; i++)
        sum += cb_index_keys_bytes(&x[i], n);
    return sum;
}

/* The bytes of layer l after n tokens are the bank's. */
static void note(const struct attention *a, int l, int n)
{
    cb_bank_note_beside(a->bank, l, cb_index_held_bytes(a, l, n));
}

/* What a prompt has filled of the keys' 2 MiB pages becomes huge pages: a scan reads them all. */
static void collapse(const struct index_keys *x, const struct attention *a, int n)
{
    const size_t page = cb_pages_head(1 << 21), had = cb_index_keys_whole(x, a->bank->n_seen);

    if (!a->bank->small_pages && !a->cold_pages)
        cb_pages_collapse(x->at + had / page * page, x->at + cb_index_keys_whole(x, n));
}

int cb_index_stored(struct attention *a, const struct chunk *c)
{
    const struct index_keys *x = cb_index_set(cb_reader_state(a, c->l), c->l, 0);

    cb_index_keys_put(x, c->index.far ? a->dev : a->host, c->index.k, c->index.stride, c->n,
                      c->pos0);
    if (!a->bank->decoding && c->pos0 + c->n == c->pos_end)
        collapse(x, a, c->pos_end);
    note(a, c->l, c->pos0 + c->n);
    return CB_OK;
}

void cb_index_cut(struct attention *a, void *state, int n)
{
    const struct index_sets *x = state;

    for (int l = 0; l < a->bank->n_layer; l++)
        if (cb_index_set(x, l, 0)->at)
            note(a, l, n);
}

void cb_index_clear(struct attention *a, void *state)
{
    cb_index_cut(a, state, 0);
}

int cb_index_areas(const struct attention *a, int l, struct area *out)
{
    const struct index_keys *x = keys_of(a, l);
    int n = 0;

    if (!out)
        return INDEX_SORTS;
    for (int i = 0; i < INDEX_SORTS; i++) {
        const size_t bytes = cb_index_keys_bytes(&x[i], a->bank->n_seen);
        if (bytes)
            out[n++] = (struct area){ AREA_INDEX_KEYS, l, i, 0, x[i].at, bytes };
    }
    return n;
}

size_t cb_index_area_of(const struct attention *a, const struct area *of, int n)
{
    return cb_index_keys_whole(&keys_of(a, of->layer)[of->head], n);
}

int cb_index_area_strips(const struct attention *a, const struct area *of)
{
    const struct index_keys *x = &keys_of(a, of->layer)[of->head];

    return x->strips ? x->hd : 0;
}

int cb_index_check(const struct attention *a, int l)
{
    note(a, l, a->bank->n_seen);
    return CB_OK;
}
