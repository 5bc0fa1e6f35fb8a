/* SPDX-License-Identifier: MIT */
/* states.c - the state of layers that mix tokens without keys, and its checkpoints. */
#include "states.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "checkpoint.h"
#include "pages.h"

static size_t floats(const struct states *s)
{
    return s->from[s->n_layer];
}

size_t cb_states_bytes(const struct states *s)
{
    return cb_states_is(s) ? floats(s) * sizeof *s->now : 0;
}

int cb_states_open(struct states *s, int n_layer, state_floats *floats_of, const void *arg,
                   uint64_t limit)
{
    uint64_t most;

    s->n_layer = n_layer;
    s->from = cb_calloc((size_t)n_layer + 1, sizeof *s->from);
    s->past = cb_calloc((size_t)n_layer, sizeof *s->past);
    if (!s->from || !s->past)
        return CB_ENOMEM;
    for (int l = 0; l < n_layer; l++)
        s->from[l + 1] = s->from[l] + floats_of(arg, l, &s->past[l]);
    TRY(cb_pages_reserve(cb_pages_up(floats(s) * sizeof *s->now), &s->now));
    TRY(cb_pages_reserve(cb_pages_up(floats(s) * sizeof *s->before), &s->before));
    most = (limit ? limit : STATE_LIMIT) / cb_states_bytes(s);
    s->most = (int)(most < STATE_MOST_POINTS ? most : STATE_MOST_POINTS);
    s->point = cb_calloc(STATE_MOST_POINTS + 1, sizeof *s->point);
    return s->point ? CB_OK : CB_ENOMEM;
}

/* Drops the checkpoints from number i on. */
static void drop_from(struct states *s, int i)
{
    while (s->n > i)
        cb_checkpoint_drop(s->point[--s->n].x);
}

/* Drops number i alone. */
static void drop_one(struct states *s, int i)
{
    cb_checkpoint_drop(s->point[i].x);
    memmove(&s->point[i], &s->point[i + 1], (size_t)(s->n - i - 1) * sizeof *s->point);
    s->n--;
}

void cb_states_close(struct states *s)
{
    drop_from(s, 0);
    cb_pages_release(s->now, cb_states_bytes(s));
    cb_pages_release(s->before, cb_states_bytes(s));
    free(s->point);
    free(s->from);
    free(s->past);
    *s = (struct states){ 0 };
}

uint64_t cb_states_points(const struct states *s)
{
    return (uint64_t)s->n * cb_states_bytes(s);
}

/* Is a checkpoint at `at` kept when the last one is at `last`? */
static int stays(int at, int last)
{
    return at % STATE_EVERY == 0 || at > last - STATE_EVERY;
}

uint64_t cb_states_planned(const struct states *s, int n_prompt, int n_gen)
{
    const int end = n_prompt / STATE_GRID * STATE_GRID;
    const int last = (n_prompt + n_gen) / STATE_GRID * STATE_GRID;
    int n = 0;

    for (int at = STATE_GRID; at <= last; at += STATE_GRID)
        n += (at % STATE_EVERY == 0 || at >= end) && stays(at, last);
    return (uint64_t)min_int(n, s->most) * cb_states_bytes(s);
}

/* ---- what is in progress ---- */

void cb_states_keep(struct states *s)
{
    memcpy(s->before, s->now, cb_states_bytes(s));
    s->has_before = 1;
    s->draft = 0;
}

void cb_states_back(struct states *s, int n)
{
    if (s->has_before)
        memcpy(s->now, s->before, cb_states_bytes(s));
    while (s->n && s->point[s->n - 1].at > n) /* of the prompt that is given up */
        drop_from(s, s->n - 1);
}

void cb_states_drop(struct states *s)
{
    s->has_before = s->draft = 0;
}

static void swap(struct states *s)
{
    float *now = s->now;

    s->now = s->before;
    s->before = now;
}

void cb_states_drafting(struct states *s)
{
    s->drafting = 1;
    s->draft = s->whole = 0;
}

void cb_states_drafted(struct states *s, int n)
{
    swap(s);
    s->drafting = 0;
    s->draft = n;
}

void cb_states_hold(struct states *s, int on)
{
    s->holding = on;
    if (on)
        s->draft = 0;
}

void cb_states_held(struct states *s)
{
    if (!s->drafting) {
        s->draft++;
        return;
    }
    cb_states_drafted(s, 1);
    s->whole = 1;
}

void cb_states_undraft(struct states *s)
{
    swap(s);
}

/* ---- checkpoints ---- */

/* The checkpoint that is missed least: without it, a cut between it and the next one is computed
 * from the one before. Cuts are likelier near the end, so a gap counts by its share of the tokens
 * after it. The last checkpoint stays. */
static int least(const struct states *s, int end)
{
    int best = 0;
    double cost = 0;

    for (int i = 0; i + 1 < s->n; i++) {
        const int before = i ? s->point[i - 1].at : 0;
        const double gap = s->point[i + 1].at - before;
        const double c = gap / (double)(end - s->point[i].at + STATE_GRID);
        if (!i || c < cost) {
            best = i;
            cost = c;
        }
    }
    return best;
}

/* Adds a checkpoint at `at`, after all others. NULL: the limit allows none, or no memory */
static struct state_point *add(struct states *s, int at)
{
    struct state_point p = { at, 0, NULL };

    if (!s->most)
        return NULL;
    if (s->n == s->most) /* first: the limit holds at every moment */
        drop_one(s, least(s, at));
    if (!(p.x = cb_checkpoint_new(cb_states_bytes(s))))
        return NULL;
    s->point[s->n++] = p;
    return &s->point[s->n - 1];
}

/* Drops those that were dense for being the last ones. */
static void thin(struct states *s)
{
    const int last = s->n ? s->point[s->n - 1].at : 0;
    int n = 0;

    for (int i = 0; i < s->n; i++)
        if (stays(s->point[i].at, last))
            s->point[n++] = s->point[i];
        else
            cb_checkpoint_drop(s->point[i].x);
    s->n = n;
}

static int last_at(const struct states *s)
{
    return s->n ? s->point[s->n - 1].at : 0;
}

void cb_states_prompt(struct states *s, int from, int to)
{
    const int end = to / STATE_GRID * STATE_GRID;

    if (!s->most)
        return;
    for (int at = (from / STATE_EVERY + 1) * STATE_EVERY; at < end; at += STATE_EVERY)
        if (at > last_at(s))
            add(s, at);
    if (end > from && end > last_at(s))
        add(s, end);
    thin(s);
}

int cb_states_room(const struct states *s, int pos)
{
    for (int i = 0; i < s->n; i++)
        if (s->point[i].at > pos)
            return s->point[i].at - pos;
    return INT32_MAX;
}

int cb_states_planned_room(const struct states *s, int n, int pos)
{
    const int end = n / STATE_GRID * STATE_GRID, next = STATE_EVERY - pos % STATE_EVERY;

    if (!cb_states_is(s) || !s->most || pos >= end)
        return INT32_MAX;
    return min_int(next, end - pos);
}

void cb_states_passed(struct states *s, int l, int pos)
{
    for (int i = s->n - 1; i >= 0 && s->point[i].at >= pos; i--)
        if (s->point[i].at == pos && s->point[i].done == s->from[l]) {
            memcpy(cb_checkpoint_memory(s->point[i].x) + s->from[l], s->now + s->from[l],
                   (s->from[l + 1] - s->from[l]) * sizeof *s->now);
            s->point[i].done = s->from[l + 1];
        }
}

void cb_states_generated(struct states *s, int pos)
{
    struct state_point *p;

    if (!s->most || pos % STATE_GRID || pos <= last_at(s))
        return;
    if (!(p = add(s, pos)))
        return;
    memcpy(cb_checkpoint_memory(p->x), s->now, cb_states_bytes(s));
    p->done = floats(s);
    thin(s);
}

int cb_states_last(const struct states *s, int n)
{
    for (int i = s->n; i > 0; i--)
        if (s->point[i - 1].at <= n)
            return s->point[i - 1].at;
    return 0;
}

/* Reads number i into memory. If the file does not have it as it was saved, it is dropped. */
static int fetch(struct states *s, int i)
{
    struct checkpoint *x;
    int err;

    if (cb_checkpoint_memory(s->point[i].x))
        return CB_OK;
    if (!(x = cb_checkpoint_new(cb_states_bytes(s))))
        return CB_ENOMEM;
    err = cb_checkpoint_read(s->point[i].x, cb_checkpoint_memory(x));
    cb_checkpoint_drop(err ? x : s->point[i].x);
    if (err)
        drop_one(s, i);
    else
        s->point[i].x = x;
    return err;
}

int cb_states_fetch(struct states *s, int n)
{
    for (int i = s->n; i > 0; i--)
        if (s->point[i - 1].at <= n)
            return fetch(s, i - 1);
    return CB_OK;
}

void cb_states_cut(struct states *s, int at)
{
    int i = s->n;

    while (i > 0 && s->point[i - 1].at > at)
        drop_from(s, --i);
    assert(!at || (i && s->point[i - 1].at == at));
    s->has_before = s->drafting = s->draft = 0;
    if (at)
        memcpy(s->now, cb_checkpoint_memory(s->point[i - 1].x), cb_states_bytes(s));
    else
        memset(s->now, 0, cb_states_bytes(s));
}

void cb_states_fit(struct states *s)
{
    while (s->n > s->most)
        drop_one(s, s->n > 1 ? least(s, last_at(s)) : 0);
}

/* ---- as plain data ---- */

/* How many checkpoints there are, then where they stand */
int cb_states_n_counts(const struct states *s)
{
    return cb_states_is(s) ? 1 + STATE_MOST_POINTS : 0;
}

void cb_states_counts(const struct states *s, int32_t *out)
{
    if (!cb_states_is(s))
        return;
    memset(out, 0, (size_t)cb_states_n_counts(s) * sizeof *out);
    out[0] = s->n;
    for (int i = 0; i < s->n; i++)
        out[1 + i] = s->point[i].at;
}

void cb_states_uncount(int32_t *counts, int i)
{
    int32_t *at = counts + 1;

    counts[0]--;
    memmove(at + i, at + i + 1, (size_t)(counts[0] - i) * sizeof *at);
    at[counts[0]] = 0;
}

int cb_states_set_counts(struct states *s, const int32_t *counts, int n_seen)
{
    const int n = cb_states_is(s) ? counts[0] : 0;
    const int32_t *at = counts + 1;

    if (n < 0 || n > STATE_MOST_POINTS)
        return cb_fail(CB_EFORMAT, "its checkpoints contradict each other");
    for (int i = 0; i < n; i++)
        if (at[i] <= (i ? at[i - 1] : 0) || at[i] > n_seen || at[i] % STATE_GRID)
            return cb_fail(CB_EFORMAT, "its checkpoints contradict each other");
    for (s->n = 0; s->n < n; s->n++)
        s->point[s->n] = (struct state_point){ at[s->n], floats(s), NULL };
    return CB_OK;
}

int cb_states_leave(struct states *s, const struct bank_file *f)
{
    struct checkpoint **x;
    int err;

    if (!s->n)
        return CB_OK;
    if (!(x = cb_calloc((size_t)s->n, sizeof *x)))
        return CB_ENOMEM;
    err = cb_checkpoints_of_file(f, cb_states_bytes(s), x, s->n);
    for (int i = 0; i < s->n; i++)
        s->point[i].x = x[i];
    free(x);
    return err;
}

void cb_states_share(struct states *s, const struct states *from)
{
    for (int i = 0; i < s->n; i++)
        s->point[i].x = cb_checkpoint_share(from->point[i].x);
}

int cb_states_areas(const struct states *s, struct area *out)
{
    const size_t bytes = cb_states_bytes(s);
    int n = 0;

    if (!cb_states_is(s))
        return 0;
    out[n++] = (struct area){ AREA_REMEMBERED, 0, 0, 0, s->now, bytes };
    for (int i = 0; i < s->n; i++)
        out[n++] = (struct area){ AREA_CHECKPOINT, 0, i, 0, NULL, bytes };
    return n;
}
