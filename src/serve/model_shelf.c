/* SPDX-License-Identifier: MIT */
/* model_shelf.c - the models that requests may name. One thread at a time opens or closes models
 * (`busy`); the lock is never held meanwhile. */
#include "model_shelf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "exchange.h"

static const double poll_s = 0.25; /* how often a client that waits is asked whether it is there */

struct place {
    enum shelf_state state;
    struct server *server; /* of a model that is loaded or leaves */
    int users;             /* requests that have it */
    double used_s;         /* when the last one gave it back */
    float *scale;          /* [n_adapter] */
};

struct model_shelf {
    struct model_shelf_params p;
    time_t begun;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock: */
    struct place *at; /* [models.n] */
    int busy, stopping;
    struct scheduler_stats past; /* of models that were closed */
};

/* ---- numbers ---- */

static void add_histogram(struct histogram *sum, const struct histogram *h)
{
    for (int i = 0; i < CB_BUCKETS; i++)
        sum->count[i] += h->count[i];
    sum->n += h->n;
    sum->sum += h->sum;
}

static void add_counts(struct scheduler_stats *sum, const struct scheduler_stats *s)
{
    sum->ordered += s->ordered;
    sum->refused += s->refused;
    for (size_t i = 0; i < sizeof s->ended / sizeof *s->ended; i++)
        sum->ended[i] += s->ended[i];
    sum->prompt_tokens += s->prompt_tokens;
    sum->cached_tokens += s->cached_tokens;
    sum->made_tokens += s->made_tokens;
    sum->hit_tokens += s->hit_tokens;
    sum->saved_tokens += s->saved_tokens;
    sum->save_failures += s->save_failures;
    sum->drafted += s->drafted;
    sum->accepted += s->accepted;
    sum->batches += s->batches;
    sum->batched += s->batched;
    sum->read_bytes += s->read_bytes;
    sum->prompt_s += s->prompt_s;
    sum->decode_s += s->decode_s;
    add_histogram(&sum->first_token, &s->first_token);
    add_histogram(&sum->between, &s->between);
}

static void add_gauges(struct scheduler_stats *sum, const struct scheduler_stats *s)
{
    sum->bank_bytes += s->bank_bytes;
    sum->waiting += s->waiting;
    sum->reading += s->reading;
    sum->writing += s->writing;
}

/* ---- memory ---- */

/* What a loaded model takes: weights and work space, and the banks, or their limit if there is one
 */
static uint64_t bytes_of(const struct server *v)
{
    const uint64_t limit = v->m.scheduler.slots.most_bytes;
    struct scheduler_stats stats;

    cb_scheduler_stats(v->scheduler, &stats);
    return v->m.bytes + (limit ? limit : stats.bank_bytes);
}

static uint64_t bytes_in_use(const struct model_shelf *s)
{
    uint64_t sum = 0;

    for (int i = 0; i < s->p.models.n; i++)
        sum += s->at[i].server ? bytes_of(s->at[i].server) : 0;
    return sum;
}

/* The model that is to go: of those that nobody uses, else of all, the one used least recently; -1:
 * there is none */
static int oldest(const struct model_shelf *s, int but, int idle_only)
{
    int best = -1;

    for (int i = 0; i < s->p.models.n; i++) {
        const struct place *p = &s->at[i], *b = best < 0 ? NULL : &s->at[best];
        if (p->state != SHELF_LOADED || i == but || (idle_only && p->users))
            continue;
        if (!b || !p->users > !b->users || (!p->users == !b->users && p->used_s < b->used_s))
            best = i;
    }
    return best;
}

/* ---- opening and closing, by the thread that is busy ---- */

/* Under the lock, which it gives up meanwhile */
static void unload(struct model_shelf *s, int i)
{
    struct place *p = &s->at[i];
    struct server *v = p->server;
    struct scheduler_stats stats;

    p->state = SHELF_LEAVING;
    pthread_mutex_unlock(&s->lock);
    cb_scheduler_stop(v->scheduler, 0);
    cb_scheduler_stats(v->scheduler, &stats);
    pthread_mutex_lock(&s->lock);
    add_counts(&s->past, &stats);
    p->server = NULL;
    pthread_mutex_unlock(&s->lock);
    cb_server_close(v);
    pthread_mutex_lock(&s->lock);
    p->state = SHELF_UNLOADED;
}

/* Waits until something changes, or it is time to ask the client. 1: continue waiting */
static int wait_change(struct model_shelf *s, int (*gone)(void *arg), void *gone_arg)
{
    const struct timespec until = cb_clock_in(poll_s);

    (void)pthread_cond_timedwait(&s->changed, &s->lock, &until);
    return !s->stopping && !(gone && gone(gone_arg));
}

/* Lets requests that have the model end, while no more get it, and closes it. */
static int retire(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg)
{
    struct place *p = &s->at[i];

    p->state = SHELF_LEAVING;
    while (p->users)
        if (!wait_change(s, gone, gone_arg)) {
            p->state = SHELF_LOADED;
            return cb_fail(CB_ECANCEL, "the request was cancelled before its model was loaded");
        }
    unload(s, i);
    return CB_OK;
}

static int make_room(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg)
{
    const uint64_t most = s->p.models.most_bytes, need = s->p.models.at[i].bytes;
    int old;

    if (most && need > most)
        return cb_fail(CB_EFULL,
                       "model: %.100s has %llu bytes, more than the %llu of --models-memory",
                       s->p.models.at[i].name, (unsigned long long)need, (unsigned long long)most);
    while (most && bytes_in_use(s) + need > most && (old = oldest(s, i, 0)) >= 0)
        TRY(retire(s, old, gone, gone_arg));
    return CB_OK;
}

/* Opening a model tells how much it takes beside its file. */
static void make_more_room(struct model_shelf *s, int i)
{
    const uint64_t most = s->p.models.most_bytes;
    int old;

    while (most && bytes_in_use(s) > most && (old = oldest(s, i, 1)) >= 0)
        unload(s, old);
}

static int load(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg)
{
    struct place *p = &s->at[i];
    struct server *v;
    int rc;

    TRY(make_room(s, i, gone, gone_arg));
    p->state = SHELF_LOADING;
    pthread_mutex_unlock(&s->lock);
    rc = cb_server_open(&s->p, i, p->scale, &v);
    pthread_mutex_lock(&s->lock);
    p->server = v;
    p->state = rc ? SHELF_UNLOADED : SHELF_LOADED;
    p->used_s = cb_now_s();
    if (!rc)
        make_more_room(s, i);
    return rc;
}

static void end_busy(struct model_shelf *s)
{
    s->busy = 0;
    pthread_cond_broadcast(&s->changed);
}

/* ---- requests ---- */

int cb_shelf_find(const struct model_shelf *s, const char *name)
{
    for (int i = 0; i < s->p.models.n; i++) {
        const struct serve_entry *e = &s->p.models.at[i];
        if (!strcmp(name, e->name))
            return i;
        for (int k = 0; k < e->n_alias; k++)
            if (!strcmp(name, e->alias[k]))
                return i;
    }
    return -1;
}

static int going_down(void)
{
    return cb_fail(CB_ECANCEL, "the server is going down");
}

/* Under the lock */
static int take_model(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg)
{
    struct place *p = &s->at[i];
    int rc;

    while (p->state != SHELF_LOADED) {
        if (s->stopping)
            return going_down();
        if (!s->busy) {
            s->busy = 1;
            rc = load(s, i, gone, gone_arg);
            end_busy(s);
            TRY(rc);
        } else if (!wait_change(s, gone, gone_arg)) {
            return s->stopping ? going_down() : cb_fail(CB_ECANCEL, "the request was cancelled");
        }
    }
    p->users++;
    return CB_OK;
}

int cb_shelf_take(struct model_shelf *s, int i, int (*gone)(void *arg), void *gone_arg,
                  struct server **out)
{
    int rc;

    pthread_mutex_lock(&s->lock);
    rc = take_model(s, i, gone, gone_arg);
    *out = rc ? NULL : s->at[i].server;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void cb_shelf_give(struct model_shelf *s, struct server *server)
{
    struct place *p = s->at;

    pthread_mutex_lock(&s->lock);
    while (p->server != server)
        p++;
    p->users--;
    p->used_s = cb_now_s();
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void cb_shelf_tidy(struct model_shelf *s)
{
    const double after = s->p.models.unload_after_s, now = cb_now_s();

    if (after <= 0)
        return;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->p.models.n && !s->busy && !s->stopping; i++) {
        const struct place *p = &s->at[i];
        if (p->state != SHELF_LOADED || p->users || now - p->used_s < after)
            continue;
        s->busy = 1;
        unload(s, i);
        end_busy(s);
    }
    pthread_mutex_unlock(&s->lock);
}

int cb_shelf_rescale(struct model_shelf *s, int i, const float *scale, int (*gone)(void *arg),
                     void *gone_arg)
{
    struct place *p = &s->at[i];
    int rc = CB_OK;

    pthread_mutex_lock(&s->lock);
    while (!rc && s->busy)
        if (!wait_change(s, gone, gone_arg))
            rc = cb_fail(CB_ECANCEL, "the request was cancelled");
    if (!rc && s->stopping)
        rc = going_down();
    if (!rc) {
        s->busy = 1;
        if (p->state == SHELF_LOADED)
            rc = retire(s, i, gone, gone_arg);
        if (!rc)
            memcpy(p->scale, scale, (size_t)s->p.models.at[i].n_adapter * sizeof *scale);
        end_busy(s);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* ---- what is there ---- */

int cb_shelf_n(const struct model_shelf *s)
{
    return s->p.models.n;
}

int cb_shelf_several(const struct model_shelf *s)
{
    return s->p.models.several;
}

const char *cb_shelf_name(const struct model_shelf *s, int i)
{
    return s->p.models.at[i].name;
}

void cb_shelf_look(struct model_shelf *s, int i, struct shelf_view *out)
{
    const struct server *v;

    *out = (struct shelf_view){ .entry = &s->p.models.at[i], .begun = s->begun };
    pthread_mutex_lock(&s->lock);
    out->state = s->at[i].state;
    v = out->state == SHELF_LOADED ? s->at[i].server : NULL;
    if (v) {
        out->info = v->info;
        out->n_ctx = v->n_ctx;
        snprintf(out->quant, sizeof out->quant, "%s", v->info.quant);
        snprintf(out->arch, sizeof out->arch, "%s", v->info.arch);
        snprintf(out->name, sizeof out->name, "%s", v->info.name);
        out->info.quant = out->info.arch = out->info.name = out->info.chat_form = NULL;
    }
    pthread_mutex_unlock(&s->lock);
}

void cb_shelf_scales(struct model_shelf *s, int i, float *scale)
{
    pthread_mutex_lock(&s->lock);
    memcpy(scale, s->at[i].scale, (size_t)s->p.models.at[i].n_adapter * sizeof *scale);
    pthread_mutex_unlock(&s->lock);
}

void cb_shelf_stats(struct model_shelf *s, struct scheduler_stats *out)
{
    struct scheduler_stats stats;

    pthread_mutex_lock(&s->lock);
    *out = s->past;
    for (int i = 0; i < s->p.models.n; i++)
        if (s->at[i].server) {
            cb_scheduler_stats(s->at[i].server->scheduler, &stats);
            add_counts(out, &stats);
            add_gauges(out, &stats);
        }
    pthread_mutex_unlock(&s->lock);
}

struct prefix_store *cb_shelf_documents(const struct model_shelf *s)
{
    return s->p.documents;
}

/* ---- open and close ---- */

static int open_places(struct model_shelf *s)
{
    s->at = cb_calloc((size_t)s->p.models.n + 1, sizeof *s->at);
    if (!s->at)
        return CB_ENOMEM;
    for (int i = 0; i < s->p.models.n; i++) {
        const struct serve_entry *e = &s->p.models.at[i];
        s->at[i].scale = cb_calloc((size_t)e->n_adapter + 1, sizeof *s->at[i].scale);
        if (!s->at[i].scale)
            return CB_ENOMEM;
        for (int k = 0; k < e->n_adapter; k++)
            s->at[i].scale[k] = e->adapter[k].scale;
    }
    return CB_OK;
}

int cb_shelf_open(const struct model_shelf_params *p, struct model_shelf **out)
{
    struct model_shelf *s = cb_calloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return CB_ENOMEM;
    s->p = *p;
    s->begun = time(NULL);
    pthread_mutex_init(&s->lock, NULL);
    cb_clock_cond(&s->changed);
    rc = open_places(s);
    if (rc)
        cb_shelf_close(s);
    else
        *out = s;
    return rc;
}

void cb_shelf_stop(struct model_shelf *s, double grace_s)
{
    const double until = cb_now_s() + grace_s;

    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->changed);
    while (s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < s->p.models.n; i++) /* nobody opens or closes any more */
        if (s->at[i].server) {
            const double left = until - cb_now_s();
            cb_scheduler_stop(s->at[i].server->scheduler, left > 0 ? left : 0);
        }
}

void cb_shelf_close(struct model_shelf *s)
{
    if (!s)
        return;
    for (int i = 0; s->at && i < s->p.models.n; i++) {
        if (s->at[i].server)
            cb_server_close(s->at[i].server);
        free(s->at[i].scale);
    }
    free(s->at);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}
