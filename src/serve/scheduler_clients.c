/* SPDX-License-Identifier: MIT */
/* scheduler_clients.c - the clients' side of a scheduler: it opens and closes, takes orders, is
 * waited for, and says what it does. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "scheduler_state.h"

const struct scheduler_params *cb_scheduler_params(const struct scheduler *s)
{
    return &s->p;
}

/* ---- clients ---- */

/* Jobs that have not ended */
static uint64_t n_alive(const struct scheduler_stats *s)
{
    uint64_t n = s->ordered;

    for (size_t i = 0; i < sizeof s->ended / sizeof *s->ended; i++)
        n -= s->ended[i];
    return n;
}

enum order_status cb_scheduler_order(struct scheduler *s, struct job_group *g)
{
    enum order_status status = ORDER_TAKEN;
    struct job **at = &s->inbox;

    pthread_mutex_lock(&s->lock);
    if (s->stopping)
        status = ORDER_STOPPING;
    else if (n_alive(&s->stats) + (uint64_t)g->n > (uint64_t)(s->p.most_waiting + s->p.slots.n))
        status = ORDER_TOO_MANY;
    s->stats.refused += status != ORDER_TAKEN;
    if (status == ORDER_TAKEN) {
        while (*at)
            at = &(*at)->next;
        for (int i = 0; i < g->n; i++) {
            g->job[i].times.ordered = cb_now_s();
            *at = &g->job[i];
            at = &g->job[i].next;
        }
        g->n_left = g->n + 1;
        s->stats.waiting += g->n;
        s->stats.ordered += (uint64_t)g->n;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* The job that has something for the client, or -1 */
static int news(struct job_group *g, int *ended)
{
    for (int i = 0; i < g->n; i++) {
        struct job *j = &g->job[i];
        if (j->told)
            continue;
        const int fresh = cb_job_take(j);
        *ended = j->state == JOB_ENDED;
        j->told = *ended;
        if (fresh || *ended)
            return i;
    }
    return -1;
}

int cb_scheduler_wait(struct scheduler *s, struct job_group *g, double timeout_s, int *ended)
{
    const struct timespec until = cb_clock_in(timeout_s);
    int i, late = 0;

    pthread_mutex_lock(&s->lock);
    while ((i = news(g, ended)) < 0 && !late)
        late = pthread_cond_timedwait(&g->changed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
    return i;
}

static int began(const struct job_group *g)
{
    for (int i = 0; i < g->n; i++)
        if (g->job[i].state != JOB_WAITS)
            return 1;
    return 0;
}

int cb_scheduler_began(struct scheduler *s, struct job_group *g, double timeout_s)
{
    const struct timespec until = cb_clock_in(timeout_s);
    int yes, late = 0;

    pthread_mutex_lock(&s->lock);
    while (!(yes = began(g)) && !late)
        late = pthread_cond_timedwait(&g->changed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
    return yes;
}

const struct job_end *cb_scheduler_failure(struct scheduler *s, struct job_group *g)
{
    const struct job_end *end = NULL;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < g->n && !end; i++)
        if (g->job[i].state == JOB_ENDED && g->job[i].end.status)
            end = &g->job[i].end;
    pthread_mutex_unlock(&s->lock);
    return end;
}

void cb_scheduler_release(struct scheduler *s, struct job_group *g)
{
    int left;

    pthread_mutex_lock(&s->lock);
    g->cancelled = 1;
    left = --g->n_left;
    pthread_mutex_unlock(&s->lock);
    if (!left)
        cb_group_free(g);
}

int cb_scheduler_is_over(struct scheduler *s)
{
    int yes;

    pthread_mutex_lock(&s->lock);
    yes = s->stopping > 1;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

void cb_scheduler_stats(struct scheduler *s, struct scheduler_stats *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

void cb_scheduler_views(struct scheduler *s, struct slot_view *view)
{
    pthread_mutex_lock(&s->lock);
    memcpy(view, s->view, (size_t)s->p.slots.n * sizeof *view);
    pthread_mutex_unlock(&s->lock);
}

/* ---- open and close ---- */

static int open_parts(struct scheduler *s)
{
    const size_t n = (size_t)s->p.slots.n;

    TRY(cb_pool_open(&s->p.slots, &s->slots));
    s->view = cb_calloc(n, sizeof *s->view);
    s->used = cb_calloc((size_t)s->p.n_tenant, sizeof *s->used);
    s->batch = cb_calloc(n, sizeof *s->batch);
    s->session = cb_calloc(n, sizeof *s->session);
    s->token = cb_calloc(n, sizeof *s->token);
    if (!s->view || !s->used || !s->batch || !s->session || !s->token)
        return CB_ENOMEM;
    return pthread_create(&s->thread, NULL, cb_scheduler_engine, s)
               ? cb_fail(CB_ENOMEM, "scheduler: the system refused a thread")
               : CB_OK;
}

static void free_parts(struct scheduler *s)
{
    cb_pool_close(&s->slots);
    free(s->view);
    free(s->used);
    free(s->batch);
    free(s->session);
    free(s->token);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->over);
    free(s);
}

int cb_scheduler_open(const struct scheduler_params *p, struct scheduler **out)
{
    struct scheduler *s = cb_calloc(1, sizeof *s);
    int rc;

    *out = NULL;
    if (!s)
        return CB_ENOMEM;
    s->p = *p;
    pthread_mutex_init(&s->lock, NULL);
    cb_clock_cond(&s->work);
    cb_clock_cond(&s->over);
    rc = open_parts(s);
    if (rc)
        free_parts(s);
    else
        *out = s;
    return rc;
}

void cb_scheduler_stop(struct scheduler *s, double grace_s)
{
    const struct timespec until = cb_clock_in(grace_s);

    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_cond_broadcast(&s->work);
    while (!s->has_ended && !pthread_cond_timedwait(&s->over, &s->lock, &until))
        ;
    s->stopping = 2;
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
}

void cb_scheduler_close(struct scheduler *s)
{
    if (s)
        free_parts(s);
}
