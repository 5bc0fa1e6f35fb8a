/* SPDX-License-Identifier: MIT */
/* pulse.c - the thread that sends and watches signs of life. */
#include "pulse.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"

enum { TAG = 1 };
static const double BEAT_S = 0.5, LOOK_S = 0.05;
/* The first sign may take as long as the slowest rank needs to start its thread. */
static const double START_S = 30;

struct pulse {
    MPI_Comm comm;
    int me, n;
    struct ranks_params p;
    const char (*host)[RANKS_HOST];
    pthread_t thread;
    atomic_int stop, lost;
    pthread_mutex_t lock;
    int64_t *begun;    /* [n] calls begun, as far as heard; under the lock */
    int64_t *out, *in; /* [n] messages under way */
    MPI_Request sent, awaited;
    double heard_s, beat_s; /* when the last sign came, when the last one was sent */
    int heard;              /* 1: one has come */
};

/* ---- the thread ---- */

static void beat(struct pulse *p)
{
    int done = 1;

    if (p->sent != MPI_REQUEST_NULL)
        MPI_Test(&p->sent, &done, MPI_STATUS_IGNORE);
    if (!done || cb_now_s() - p->beat_s < BEAT_S)
        return;
    pthread_mutex_lock(&p->lock);
    memcpy(p->out, p->begun, (size_t)p->n * sizeof *p->out);
    pthread_mutex_unlock(&p->lock);
    MPI_Isend(p->out, p->n, MPI_INT64_T, (p->me + 1) % p->n, TAG, p->comm, &p->sent);
    p->beat_s = cb_now_s();
}

static void take_in(struct pulse *p)
{
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n; i++)
        if (i != p->me && p->in[i] > p->begun[i])
            p->begun[i] = p->in[i];
    pthread_mutex_unlock(&p->lock);
}

static void hear(struct pulse *p)
{
    const int before = (p->me + p->n - 1) % p->n;
    const double most = p->heard ? p->p.life_s : START_S;
    int done = 0;

    MPI_Test(&p->awaited, &done, MPI_STATUS_IGNORE);
    if (done) {
        take_in(p);
        p->heard_s = cb_now_s();
        p->heard = 1;
        MPI_Irecv(p->in, p->n, MPI_INT64_T, before, TAG, p->comm, &p->awaited);
    } else if (cb_now_s() - p->heard_s > most && atomic_load(&p->lost) < 0) {
        atomic_store(&p->lost, before);
        if (p->p.lost)
            p->p.lost(p->p.arg, before, p->host[before]);
    }
}

/* A process that was stopped itself finds its clock far ahead: it must not blame the others. */
static void *watch(void *arg)
{
    const struct timespec look = { 0, (long)(LOOK_S * 1e9) };
    struct pulse *p = arg;
    double last = cb_now_s();

    while (!atomic_load(&p->stop)) {
        const double now = cb_now_s();
        if (now - last > 1)
            p->heard_s = now;
        last = now;
        beat(p);
        hear(p);
        nanosleep(&look, NULL);
    }
    return NULL;
}

/* ---- start, stop, ask ---- */

static void free_pulse(struct pulse *p)
{
    free(p->begun);
    free(p->out);
    free(p->in);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int cb_pulse_start(MPI_Comm comm, const struct ranks_params *params, const char (*host)[RANKS_HOST],
                   struct pulse **out)
{
    struct pulse *p = *out = cb_calloc(1, sizeof *p);

    if (!p)
        return CB_ENOMEM;
    *p = (struct pulse){ .comm = comm, .p = *params, .host = host, .lost = -1 };
    p->sent = MPI_REQUEST_NULL;
    p->heard_s = cb_now_s();
    pthread_mutex_init(&p->lock, NULL);
    MPI_Comm_rank(comm, &p->me);
    MPI_Comm_size(comm, &p->n);
    p->begun = cb_calloc((size_t)p->n, sizeof *p->begun);
    p->out = cb_calloc((size_t)p->n, sizeof *p->out);
    p->in = cb_calloc((size_t)p->n, sizeof *p->in);
    *out = NULL;
    if (!p->begun || !p->out || !p->in) {
        free_pulse(p);
        return CB_ENOMEM;
    }
    MPI_Irecv(p->in, p->n, MPI_INT64_T, (p->me + p->n - 1) % p->n, TAG, comm, &p->awaited);
    if (pthread_create(&p->thread, NULL, watch, p)) {
        free_pulse(p);
        return cb_fail(CB_ENOMEM, "ranks: no thread for signs of life");
    }
    *out = p;
    return CB_OK;
}

/* A sign that is under way finds nobody any more: the communicator goes with the program. */
void cb_pulse_stop(struct pulse *p)
{
    if (!p)
        return;
    atomic_store(&p->stop, 1);
    pthread_join(p->thread, NULL);
    MPI_Cancel(&p->awaited);
    MPI_Wait(&p->awaited, MPI_STATUS_IGNORE);
    if (p->sent != MPI_REQUEST_NULL)
        MPI_Request_free(&p->sent);
    free_pulse(p);
}

void cb_pulse_begun(struct pulse *p, int64_t calls)
{
    pthread_mutex_lock(&p->lock);
    p->begun[p->me] = calls;
    pthread_mutex_unlock(&p->lock);
}

int cb_pulse_lost(struct pulse *p)
{
    return atomic_load(&p->lost);
}

int cb_pulse_latest(struct pulse *p)
{
    int least = 0;

    pthread_mutex_lock(&p->lock);
    for (int i = 1; i < p->n; i++)
        if (p->begun[i] < p->begun[least])
            least = i;
    pthread_mutex_unlock(&p->lock);
    return least;
}
