/* SPDX-License-Identifier: MIT */
/* fork.c - splits a timeline into two. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "in_step.h"
#include "mtp_drafter.h"
#include "session_state.h"
#include "snapshot.h"

/* Has the snapshot little of what the session holds by now? */
static int is_poor(const struct cb_session *s)
{
    return !s->snapshot || 2 * (int64_t)s->n_shared < s->bank.n_seen;
}

static void take_snapshot(struct cb_session *s, const struct area *a, int n)
{
    cb_snapshot_drop(&s->snapshot);
    s->snapshot = cb_snapshot_take(a, n);
    s->n_shared = INT32_MAX;
}

/* Bytes of an area that the snapshot has as they are now. A block that is not whole is prepacked
 * later. */
static size_t unchanged(const struct cb_session *s, const struct area *a)
{
    return s->n_shared == INT32_MAX
               ? a->bytes
               : cb_session_area_of(s, a, s->n_shared / KV_PREPACK * KV_PREPACK);
}

static void copy_area(const struct area *to, const struct area *from, const struct cb_session *s)
{
    const size_t same = unchanged(s, from);
    const size_t shown = same ? min_size(cb_snapshot_show(s->snapshot, to), same) : 0;

    memcpy((uint8_t *)to->at + shown, (uint8_t *)from->at + shown, from->bytes - shown);
}

/* Most rows come from a snapshot, which the next copy shares as well, and the copy's own copies;
 * later rows and the lists beside them are copied. Checkpoints are shared. */
static int copy_areas(struct cb_session *to, struct cb_session *from)
{
    struct area *a = NULL, *b = NULL;
    int n = 0, err;

    err = cb_session_areas(from, &a, &n);
    if (!err)
        err = cb_session_areas(to, &b, &n);
    if (!err && is_poor(from))
        take_snapshot(from, a, n);
    for (int i = 0; !err && i < n; i++)
        if (a[i].kind != AREA_CHECKPOINT)
            copy_area(&b[i], &a[i], from);
    if (!err)
        cb_states_share(&to->bank.states, &from->bank.states);
    if (!err)
        to->snapshot = cb_snapshot_share(from->snapshot);
    to->n_shared = from->n_shared;
    if (!err)
        cb_session_wrote(to, b, n);
    free(a);
    free(b);
    return err;
}

static int copy_state(struct cb_session *to, struct cb_session *from);

/* What the head for later tokens holds */
static int copy_mtp(struct mtp_drafter *to, const struct mtp_drafter *from)
{
    TRY(copy_state(to->s, from->s));
    memcpy(to->state, from->state,
           (size_t)from->n * (size_t)from->s->model->hp.n_embd * sizeof *to->state);
    to->n = from->n;
    to->at = from->at;
    to->base = from->base;
    return CB_OK;
}

static int copy_state(struct cb_session *to, struct cb_session *from)
{
    int32_t *counts = cb_calloc((size_t)cb_session_n_counts(from), sizeof *counts);
    int err = counts ? CB_OK : CB_ENOMEM;

    if (!err) {
        cb_session_counts(from, counts);
        err = cb_session_set_counts(to, counts);
    }
    free(counts);
    TRY(err);
    to->bank.peak_bytes = from->bank.peak_bytes;
    to->bank.read_bytes = from->bank.read_bytes;
    to->n_prefill_exact = from->n_prefill_exact;
    to->top = from->top;
    to->prune_stats = from->prune_stats;
    TRY(copy_areas(to, from));
    if (!cb_mtp_drafter_of(from))
        return CB_OK;
    TRY(cb_mtp_drafter_open(to));
    return copy_mtp(cb_mtp_drafter_of(to), cb_mtp_drafter_of(from));
}

static int fork_here(const cb_session *s, cb_session **out)
{
    /* a method outside the table cannot be opened by name */
    const struct method *own = cb_policy_is_listed(s->policy) ? NULL : s->policy->m;
    int err;

    TRY(cb_session_open_as(s->model, &s->params, own, s->policy->arg, out));
    err = copy_state(*out, (cb_session *)(uintptr_t)s); /* a snapshot of it changes no results */
    return err ? err : cb_session_check_files(s);
}

int cb_session_fork(const cb_session *s, cb_session **out)
{
    cb_session *f = NULL;
    int err;

    *out = NULL;
    TRY(cb_session_check_idle(s));
    TRY(cb_in_step_begin(s, VERB_FORK, NULL, 0));
    err = fork_here(s, &f);
    if (s->in_step)
        err = cb_in_step_end_open(s->model, f, err);
    if (err)
        cb_session_close(f);
    else
        *out = f;
    return err;
}

void cb_session_keep_shared(struct cb_session *s, int n)
{
    if (s->snapshot && !(cb_snapshot_has_others(s->snapshot) && cb_session_extends(s)))
        cb_snapshot_drop(&s->snapshot);
    s->n_shared = min_int(s->n_shared, n);
}
