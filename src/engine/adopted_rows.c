/* SPDX-License-Identifier: MIT */
/* adopted_rows.c - counts from a session of another policy, and what is made from its rows. */
#include "adopted_rows.h"

#include <stdlib.h>

#include "attention/attend.h"
#include "bank/store_planes.h"
#include "bank/store_prepack.h"
#include "bank/store_sketch.h"
#include "base/err.h"

int cb_session_shares_rows(const struct cb_session *s)
{
    const struct method *m = s->policy->m;
    int shares = !m->compact && !m->layer_bytes && !s->policy->state && !s->repeat &&
                 !cb_bank_in_planes(&s->bank); /* a sketch there is part of the key */

    for (int l = 0; l < s->bank.n_layer && shares; l++) {
        const struct layer_plan *row = &s->attention.plan[l];
        shares = cb_attend_shares_rows(&s->attention, l) && row->score.when == WHEN_NEVER &&
                 !row->window && !row->prompt_window && !row->drop_every && !row->rolling;
    }
    return shares;
}

/* ---- counts ---- */

static int adopt_store(struct store *to, const struct store *from, struct device *d, int32_t *c)
{
    if (cb_store_n_counts(to) != cb_store_n_counts(from))
        return cb_fail(CB_EUNSUPPORTED, "layers of the two policies differ in their stores");
    cb_store_counts(from, c);
    return cb_store_adopt_counts(to, d, c);
}

static int adopt_stores(struct cb_session *s, const struct cb_session *from, int32_t *c)
{
    for (int l = 0; l < s->bank.n_layer; l++)
        TRY(adopt_store(&s->bank.store[l], &from->bank.store[l], s->dev, c));
    cb_states_counts(&from->bank.states, c);
    return cb_states_set_counts(&s->bank.states, c, s->bank.n_seen);
}

int cb_session_adopt_counts(struct cb_session *s, const struct cb_session *from)
{
    /* more numbers than any part of the session has */
    int32_t *c = cb_calloc((size_t)cb_session_n_counts(from), sizeof *c);
    const int locked = cb_device_lock_memory(s->dev);
    int err = c ? cb_session_adopt_timeline(s, from) : CB_ENOMEM;

    if (!err)
        err = adopt_stores(s, from, c);
    if (locked)
        cb_device_unlock(s->dev);
    free(c);
    return err;
}

int cb_adopts_area(const struct area *a)
{
    return (a->kind < AREA_SKETCH || a->kind >= AREA_TOKENS) && a->kind != AREA_COLUMN;
}

/* ---- what is made from rows ---- */

static int finish_store(struct store *s, struct device *d)
{
    if (!s->may_prepack)
        cb_store_unpack_all(s);
    return cb_store_sketch(s, d);
}

int cb_session_adopted(struct cb_session *s)
{
    int err;

    TRY(cb_device_lock(s->dev));
    err = CB_OK;
    for (int l = 0; l < s->bank.n_layer && !err; l++)
        err = finish_store(&s->bank.store[l], s->dev);
    cb_device_unlock(s->dev);
    return err;
}
