/* SPDX-License-Identifier: MIT */
/* team_own.c - a team of POSIX threads: a thread that the system refuses is an error, and only a
 * region wakes them.
 *
 * A region ends for the calling thread when its body ends, so a thread that has lost its core holds
 * nobody up. A thread that still serves then notices the end, or continues in the next region. */
#include "team.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "futex.h"
#include "spin.h"

struct member {
    struct team *team;
    int number;
    pthread_t thread;
};

struct team {
    int n; /* threads of the team; number 0 is the thread that opens a region */
    team_fn serve;
    void *arg;
    struct member *member; /* [n] */
    pid_t pid;             /* a child of fork() inherits the memory but not the threads */
    _Alignas(64) _Atomic uint32_t turn; /* odd while a region is open; idle threads sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t quit;
};

/* Is a region open that the thread has not served, or does the team end? Its turn -> *turn */
static int may_serve(struct team *t, uint32_t served, uint32_t *turn)
{
    *turn = atomic_load(&t->turn);
    return (*turn % 2 && *turn != served) || atomic_load(&t->quit);
}

/* Waits until a region opens after the one that the thread has served, or the team ends, and
 * returns its turn. A region whose body has ended may still be open: a thread that served it again
 * would only take the core from the thread that closes it. */
static uint32_t idle(struct team *t, uint32_t served)
{
    uint32_t turn;

    for (int i = 0; i < SPIN; i++) {
        if (may_serve(t, served, &turn))
            return turn;
        cpu_relax();
    }
    atomic_fetch_add(&t->sleepers, 1);
    while (!may_serve(t, served, &turn))
        futex_wait(&t->turn, turn, 0);
    atomic_fetch_sub(&t->sleepers, 1);
    return turn;
}

static void *live(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    uint32_t served = 0;

    for (;;) {
        served = idle(t, served);
        if (atomic_load(&t->quit))
            return NULL;
        t->serve(t->arg, m->number);
    }
}

static void open_region(struct team *t)
{
    atomic_fetch_add(&t->turn, 1);
    if (atomic_load(&t->sleepers))
        futex_wake(&t->turn);
}

/* Blocks signals, which belong to the host program's threads, except those for faults of the thread
 * itself. */
static void own_signals(sigset_t *all)
{
    static const int fault[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };

    sigfillset(all);
    for (size_t i = 0; i < sizeof fault / sizeof *fault; i++)
        sigdelset(all, fault[i]);
}

static int start_one(struct team *t)
{
    struct member *m = &t->member[t->n];
    char name[16];
    int why;

    m->team = t;
    m->number = t->n;
    why = pthread_create(&m->thread, NULL, live, m);
    if (why)
        return why;
    snprintf(name, sizeof name, "ctxbank-%d", t->n++);
    pthread_setname_np(m->thread, name);
    return 0;
}

static int start_all(struct team *t, int n)
{
    sigset_t ours, was;
    int why = 0;

    own_signals(&ours);
    pthread_sigmask(SIG_SETMASK, &ours, &was);
    while (!why && t->n < n)
        why = start_one(t);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    if (why)
        return cb_fail(CB_ENOMEM, "threads: the system refuses %d (%s)", n, strerror(why));
    return CB_OK;
}

int cb_team_start(int n, team_fn serve, void *arg, struct team **out)
{
    struct team *t = cb_alloc_aligned(1, sizeof *t);
    int err;

    if (!t)
        return CB_ENOMEM;
    memset(t, 0, sizeof *t);
    t->n = 1;
    t->serve = serve;
    t->arg = arg;
    t->pid = getpid();
    t->member = cb_calloc((size_t)n, sizeof *t->member);
    err = t->member ? start_all(t, n) : CB_ENOMEM;
    if (err) {
        cb_team_stop(t);
        return err;
    }
    *out = t;
    return CB_OK;
}

void cb_team_run(struct team *t, void (*body)(void *ctx), void *ctx)
{
    open_region(t);
    body(ctx);
    atomic_fetch_add(&t->turn, 1);
}

void cb_team_stop(struct team *t)
{
    if (!t)
        return;
    atomic_store(&t->quit, 1);
    open_region(t);
    for (int i = 1; i < t->n && t->pid == getpid(); i++)
        pthread_join(t->member[i].thread, NULL);
    free(t->member);
    free(t);
}
