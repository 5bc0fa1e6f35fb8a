/* SPDX-License-Identifier: MIT */
/* patience.c - how long clients may take. A thread of its own looks at them, since their own
 * threads wait for them. */
#include "patience.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/err.h"

struct client {
    struct patience *all;
    struct client *next, **at; /* at: what points to it */
    int fd;
    enum turn_of turn, of; /* of: the last turn that was the client's */
    double since, spent;   /* when its turn began; seconds that it took of earlier ones */
    size_t bytes;
};

struct patience {
    struct patience_params p;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t over;
    /* under the lock: */
    struct client *first;
    int n, ends;
};

static double allowed(const struct patience *p, const struct client *c)
{
    if (c->turn == TURN_HEADERS)
        return p->n > p->p.most - p->p.most / 8 ? p->p.hurry_s : p->p.begin_s;
    return p->p.begin_s + (double)c->bytes / p->p.rate;
}

/* Under the lock, so that fd is not closed meanwhile */
static void cut_off_the_late(struct patience *p)
{
    const double now = cb_now_s();

    for (struct client *c = p->first; c; c = c->next)
        if (c->turn != TURN_SERVER && c->spent + now - c->since > allowed(p, c))
            (void)shutdown(c->fd, SHUT_RDWR); /* its thread notices, and ends */
}

static void *look(void *arg)
{
    struct patience *p = arg;
    const double tick_s = p->p.hurry_s / 4 < 1 ? p->p.hurry_s / 4 : 1;

    pthread_mutex_lock(&p->lock);
    while (!p->ends) {
        const struct timespec until = cb_clock_in(tick_s);
        pthread_cond_timedwait(&p->over, &p->lock, &until);
        cut_off_the_late(p);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int cb_patience_new(const struct patience_params *params, struct patience **out)
{
    struct patience *p = cb_calloc(1, sizeof *p);

    *out = NULL;
    if (!p)
        return CB_ENOMEM;
    p->p = *params;
    pthread_mutex_init(&p->lock, NULL);
    cb_clock_cond(&p->over);
    if (pthread_create(&p->thread, NULL, look, p)) {
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->over);
        free(p);
        return cb_fail(CB_ENOMEM, "serve: the system refused a thread");
    }
    *out = p;
    return CB_OK;
}

void cb_patience_free(struct patience *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->ends = 1;
    pthread_cond_signal(&p->over);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->over);
    free(p);
}

struct client *cb_client_new(struct patience *p, int fd)
{
    struct client *c = cb_calloc(1, sizeof *c);

    if (!c) {
        (void)shutdown(fd, SHUT_RDWR);
        return NULL;
    }
    *c = (struct client){ .all = p, .fd = fd, .since = cb_now_s() };
    pthread_mutex_lock(&p->lock);
    c->next = p->first;
    c->at = &p->first;
    if (c->next)
        c->next->at = &c->next;
    p->first = c;
    p->n++;
    pthread_mutex_unlock(&p->lock);
    return c;
}

void cb_client_free(struct client *c)
{
    struct patience *p;

    if (!c)
        return;
    p = c->all;
    pthread_mutex_lock(&p->lock);
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    p->n--;
    pthread_mutex_unlock(&p->lock);
    free(c);
}

void cb_client_turn(struct client *c, enum turn_of turn, size_t bytes)
{
    const double now = cb_now_s();

    if (!c)
        return;
    pthread_mutex_lock(&c->all->lock);
    if (c->turn != TURN_SERVER)
        c->spent += now - c->since;
    c->since = now;
    c->turn = turn;
    if (turn != TURN_SERVER && turn != c->of) { /* another part of the exchange */
        c->of = turn;
        c->spent = 0;
        c->bytes = 0;
    }
    c->bytes += bytes;
    pthread_mutex_unlock(&c->all->lock);
}
