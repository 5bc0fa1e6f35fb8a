/* SPDX-License-Identifier: MIT */
/* ask_all.c - asks every item under every policy. */
#include "ask_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "ask_bank.h"
#include "base/err.h"
#include "base/ints.h"
#include "engine/session.h"
#include "metric.h"

/* ---- who answers ---- */

struct answerer cb_run_full(const struct run *r, enum question q)
{
    return (struct answerer){ r->who, "full", "f16", "f16", "dense", q };
}

struct answerer cb_run_policy(const struct run *r, int policy, enum question q)
{
    return (struct answerer){ r->who, r->policy[policy], r->type_k, r->type_v, r->prefill, q };
}

int cb_run_is_full(const struct run *r, int policy)
{
    return !strcmp(r->policy[policy], "full") && !strcmp(r->type_k, "f16") &&
           !strcmp(r->type_v, "f16") && !strcmp(r->prefill, "dense");
}

static const char *form_of(const struct run *r, const struct item *it)
{
    if (r->chat == CHAT_NEVER || (r->chat == CHAT_AUTO && !it->chat))
        return NULL;
    return r->form;
}

static uint64_t hash_of(const struct run *r, const struct item *it)
{
    char how[64];
    uint64_t h = cb_hash(cb_hash(0, it->context), it->question);

    for (int i = 0; i < it->n_answer; i++)
        h = cb_hash(h, it->answer[i]);
    snprintf(how, sizeof how, "%s %d %d %d", it->metric->name, it->max_new, it->stop_at_line,
             form_of(r, it) != NULL);
    return cb_hash(h, how);
}

/* ---- one item ---- */

struct seat {
    struct answerer by;
    cb_session *s;
    int done; /* 1: its answer is recorded */
};

struct table {
    struct run *r;
    const struct item *it;
    struct prompt p;
    struct seat *seat; /* [n] policies that see the question with the context come first */
    int n;
    struct buf pred;
    struct answers *have;
};

static int asked_to_stop(void *arg, int64_t done, int64_t total)
{
    const struct run *r = arg;
    (void)done;
    (void)total;
    return r->stop && r->stop(r->arg);
}

static int feed(const struct table *t, cb_session *s, int from, int to)
{
    const struct cb_prefill how = { .progress = asked_to_stop, .progress_arg = t->r };
    return from < to ? cb_session_prefill(s, t->p.ids + from, to - from, &how) : CB_OK;
}

static int first_part(const struct table *t, const struct seat *x)
{
    return x->by.question == QUESTION_BLIND ? t->p.split : t->p.n;
}

static int open_seat(const struct table *t, struct seat *x)
{
    struct cb_session_params p = {
        .n_ctx = t->p.n + t->it->max_new,
        .chunk = t->r->chunk,
        .type_k = x->by.type_k,
        .type_v = x->by.type_v,
        .policy = x->by.policy,
        .prefill = x->by.prefill,
    };

    if (t->r->choose)
        TRY(t->r->choose(t->r->arg, &p));
    return cb_session_open(t->r->model, &p, &x->s);
}

/* Opens the seat with the saved bank, and feeds what is left of its first part. 1: done; 0: the
 * bank does not fit it */
static int open_banked(struct table *t, struct seat *x)
{
    const int n = first_part(t, x);
    int n_ctx = t->p.n + t->it->max_new, same, err;

    if (!t->r->bank || !cb_ask_bank_is_of(t->r->bank, &x->by))
        return 0;
    same = cb_ask_bank_common(t->r->bank, t->p.ids, n);
    n_ctx = max_int(n_ctx, cb_session_len(t->r->bank)); /* all of it is opened before it is cut */
    err = same ? cb_session_load(t->r->model, t->r->bank_path, n_ctx, &x->s) : CB_EUNSUPPORTED;
    if (err == CB_EUNSUPPORTED) /* by its plan for this length */
        return 0;
    TRY(err);
    TRY(cb_session_truncate(x->s, same));
    TRY(feed(t, x->s, same, n));
    t->r->n_banked++;
    return 1;
}

static void close_seats(struct table *t)
{
    for (int i = 0; i < t->n; i++) {
        cb_session_close(t->seat[i].s);
        t->seat[i].s = NULL;
    }
}

static int record(struct table *t, struct seat *x, double score)
{
    struct cb_memory m;
    struct answer a = {
        .by = x->by,
        .id = t->it->id,
        .task = t->it->task,
        .pred = t->pred.s,
        .item = t->it->hash,
        .score = score,
        .length = t->it->length,
        .depth = t->it->depth,
        .prompt_tokens = t->p.n,
        .truncated = t->p.truncated,
    };

    cb_session_memory(x->s, &m);
    a.kv_bytes = m.kv_bytes;
    a.kv_full_bytes = m.kv_full_bytes;
    a.kv_read_bytes = m.kv_read_bytes_per_token;
    a.kept_min = m.kept_min;
    a.kept_max = m.kept_max;
    if (strcmp(x->by.prefill, "dense") != 0)
        a.prompt_density = m.prompt_density;
    return cb_answers_add(t->have, &a, t->it->metric->name);
}

static int answer(struct table *t, struct seat *x)
{
    double score;

    TRY(feed(t, x->s, first_part(t, x), t->p.n));
    TRY(cb_ask_answer(t->r->model, x->s, t->it, t->r->stop, t->r->arg, &t->pred));
    score = cb_ask_score(t->it, t->pred.s);
    if (score < 0)
        return CB_ENOMEM;
    TRY(record(t, x, score));
    cb_session_close(x->s);
    x->s = NULL;
    x->done = 1;
    return CB_OK;
}

static uint64_t needs(const struct table *t, const struct seat *x)
{
    struct cb_memory m;
    return cb_session_plan(x->s, first_part(t, x), t->it->max_new, &m) ? 0 : m.kv_bytes;
}

/* Opens the seats that can share the prefill of t->seat[lead], as many as memory allows, and runs
 * it. Context and question are one run of tokens; a seat that is asked blind stops at the end of
 * the context. */
static int share(struct table *t, int lead)
{
    cb_session **follower = cb_calloc((size_t)t->n, sizeof *follower);
    int *upto = cb_calloc((size_t)t->n, sizeof *upto);
    const struct cb_prefill how = { .progress = asked_to_stop, .progress_arg = t->r };
    cb_session *first;
    uint64_t held = 0;
    int n = 0, err = follower && upto ? open_seat(t, &t->seat[lead]) : CB_ENOMEM;

    first = t->seat[lead].s;
    for (int i = lead + 1; !err && i < t->n; i++) {
        struct seat *x = &t->seat[i];
        if (x->done)
            continue;
        err = open_seat(t, x);
        if (err)
            break;
        held += needs(t, x);
        if (held <= t->r->share_bytes && cb_session_can_follow(x->s, first)) {
            upto[n] = first_part(t, x);
            follower[n++] = x->s;
            continue;
        }
        held -= needs(t, x);
        cb_session_close(x->s);
        x->s = NULL;
    }
    if (!err)
        err = cb_session_prefill_shared(first, follower, upto, n, t->p.ids,
                                        first_part(t, &t->seat[lead]), &how);
    free(follower);
    free(upto);
    return err;
}

static int answer_open(struct table *t, int64_t *done, int64_t total)
{
    for (int i = 0; i < t->n; i++) {
        if (!t->seat[i].s)
            continue;
        TRY(answer(t, &t->seat[i]));
        *done += t->p.n;
        if (t->r->progress)
            t->r->progress(t->r->arg, t->it->task, *done, total);
    }
    return CB_OK;
}

/* Seats that can begin with the saved bank go first, one by one. Each round then asks the first
 * open seat and the seats that share its prefill. */
static int ask_all(struct table *t, int64_t *done, int64_t total)
{
    for (int i = 0; i < t->n; i++) {
        const int banked = open_banked(t, &t->seat[i]);
        TRY(banked);
        if (banked)
            TRY(answer_open(t, done, total));
    }
    for (int lead = 0; lead < t->n; lead++) {
        if (t->seat[lead].done)
            continue;
        TRY(share(t, lead));
        TRY(answer_open(t, done, total));
    }
    return CB_OK;
}

static void seat_if_new(struct table *t, struct answerer by)
{
    if (!cb_answers_find(t->have, &by, t->it->id, t->it->hash))
        t->seat[t->n++] = (struct seat){ .by = by };
}

static void take_seats(struct table *t)
{
    const int asked[] = { [QUESTION_AWARE] = t->r->aware, [QUESTION_BLIND] = t->r->blind };

    t->n = 0;
    for (enum question q = QUESTION_AWARE; q <= QUESTION_BLIND; q++) {
        if (!asked[q])
            continue;
        seat_if_new(t, cb_run_full(t->r, q));
        for (int i = 0; i < t->r->n_policy; i++)
            if (!cb_run_is_full(t->r, i))
                seat_if_new(t, cb_run_policy(t->r, i, q));
    }
}

/* ---- all items ---- */

struct job {
    struct run *r;
    const struct item_list *items;
    struct answers *have;
    struct prompt *p; /* [items->n]; n 0: skipped */
    int64_t done, total;
};

static int prepare(struct job *j, int i, struct table *t)
{
    struct run *r = j->r;
    const struct item *it = &j->items->at[i];
    const int err =
        cb_ask_prompt(r->model, form_of(r, it), it, r->n_ctx - it->max_new, r->truncate, &j->p[i]);

    if (err == CB_EFULL) {
        r->note(r->arg, cb_error());
        r->n_long++;
        return CB_OK;
    }
    TRY(err);
    t->it = it;
    take_seats(t);
    j->total += (int64_t)t->n * j->p[i].n;
    return CB_OK;
}

static int ask_item(struct job *j, int i, struct table *t)
{
    int err;

    t->it = &j->items->at[i];
    t->p = j->p[i];
    take_seats(t);
    err = ask_all(t, &j->done, j->total);
    close_seats(t);
    return err;
}

int cb_run(struct run *r, struct item_list *items, struct answers *have)
{
    struct job j = { .r = r, .items = items, .have = have };
    struct table t = { .r = r, .have = have };
    int err = CB_OK;

    r->n_long = r->n_banked = 0;
    j.p = cb_calloc((size_t)items->n + 1, sizeof *j.p);
    t.seat = cb_calloc(2 * ((size_t)r->n_policy + 1), sizeof *t.seat);
    if (!j.p || !t.seat)
        err = CB_ENOMEM;
    for (int i = 0; i < items->n; i++)
        items->at[i].hash = hash_of(r, &items->at[i]);
    for (int i = 0; i < items->n && !err; i++)
        err = prepare(&j, i, &t);
    for (int i = 0; i < items->n && !err; i++)
        if (j.p[i].n)
            err = ask_item(&j, i, &t);
    for (int i = 0; j.p && i < items->n; i++)
        free(j.p[i].ids);
    free(j.p);
    free(t.seat);
    cb_buf_free(&t.pred);
    return err;
}
