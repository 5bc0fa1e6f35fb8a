/* SPDX-License-Identifier: MIT */
/* reader_hooks.c - what the engine asks of the readers of a session's layers: as a feed goes on,
 * for the memory plan, and as plain data. */
#include "attend.h"
#include "bank/store_areas.h"
#include "base/err.h"
#include "base/ints.h"
#include "index_keys.h"
#include "reader.h"
#include "readers/whole.h"

void cb_attention_begin(struct attention *a)
{
    cb_draft_rows_feed(a);
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->begin)
            a->reading[i].r->begin(a);
}

void cb_attention_fed(struct attention *a, int n)
{
    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->fed)
            a->reading[i].r->fed(a, n);
}

int cb_attend_takes_index(const struct attention *a, int l)
{
    return a->bank->decoding && cb_reader_has(a, l, READ_INDEX) &&
           cb_index_set(cb_reader_state(a, l), l, 0)->mirror;
}

const float *cb_attend_mix(const struct mix_call *c)
{
    return c->a[0]->beside[c->l]->r->mix(c);
}

void cb_attend_passed(struct attention *a, int l, int pos)
{
    const struct reading *both[] = { a->layer[l], a->beside[l] };

    for (int k = 0; k < 2; k++)
        if (both[k] && both[k]->r->passed)
            both[k]->r->passed(a, l, pos);
}

int cb_attend_wants_guess(const struct attention *a, int l)
{
    return a->layer[l]->r->guess != NULL;
}

void cb_attend_guess(struct attention *a, int l, int i, const float *q)
{
    a->layer[l]->r->guess(a, l, i, q);
}

/* ---- the memory plan ---- */

uint64_t cb_attention_read_bytes(const struct attention *a, int l, int n, const struct planned *p,
                                 uint64_t *scanned)
{
    const struct reader *r = a->layer[l]->r;

    *scanned = 0;
    if (a->model->layer[l].kv_back)
        return cb_whole_lent_bytes(a, l, n);
    return (r->read_bytes ? r->read_bytes : cb_whole_read_bytes)(a, l, n, p, scanned);
}

uint64_t cb_attention_held_bytes(const struct attention *a, int l, int n)
{
    const struct reader *r = a->layer[l]->r;
    return r->held_bytes ? r->held_bytes(a, l, n) : 0;
}

uint64_t cb_attention_unheld_bytes(const struct attention *a, int l, int late,
                                   const struct planned *p)
{
    const struct reader *r = a->layer[l]->r;

    return r->unheld_bytes && late == cb_reader_has(a, l, READ_LATE) ? r->unheld_bytes(a, l, p) : 0;
}

int cb_attention_period(const struct attention *a)
{
    int most = 0;

    for (int i = 0; i < a->n_reading; i++)
        if (a->reading[i].r->period)
            most = max_int(most, a->reading[i].r->period(a, a->reading[i].x));
    return most;
}

/* ---- what readers remember, as plain data ---- */

int cb_attention_counts(const struct attention *a, int l, int32_t *out)
{
    return a->layer[l]->r->counts ? a->layer[l]->r->counts(a, l, out) : 0;
}

int cb_attention_set_counts(struct attention *a, int l, const int32_t *counts)
{
    return a->layer[l]->r->set_counts ? a->layer[l]->r->set_counts(a, l, counts) : CB_OK;
}

int cb_attention_areas(const struct attention *a, int l, struct area *out)
{
    return a->layer[l]->r->areas ? a->layer[l]->r->areas(a, l, out) : 0;
}

size_t cb_attention_area_of(const struct attention *a, const struct area *of, int n)
{
    const struct reader *r = a->layer[of->layer]->r;

    return r->area_of ? r->area_of(a, of, n) : 0;
}

int cb_attention_area_strips(const struct attention *a, const struct area *of)
{
    const struct reader *r = a->layer[of->layer]->r;

    return r->area_strips ? r->area_strips(a, of) : 0;
}

int cb_attention_has_strips(const struct attention *a)
{
    for (int l = 0; l < a->bank->n_layer; l++)
        for (int i = 0; i < INDEX_SORTS; i++)
            if (cb_attention_area_strips(a, &(struct area){ .layer = l, .head = i }))
                return 1;
    return 0;
}

int cb_attention_check(const struct attention *a, int l)
{
    return a->layer[l]->r->check ? a->layer[l]->r->check(a, l) : CB_OK;
}
