/* SPDX-License-Identifier: MIT */
/* par.c - the loops of a team.
 *
 * If every loop ended in a barrier for all threads, each loop would wait for a thread that has lost
 * its core. Here a region is opened once for each token or prompt (cb_par_run). Its threads take
 * items from the loops that the first thread offers, and a loop is over when its items are done,
 * whichever threads did them. Idle threads spin briefly, then sleep. A thread whose core another
 * program keeps busy backs off for a while (backoff.h). */
#include "par.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "affinity.h"
#include "backoff.h"
#include "base/err.h"
#include "futex.h"
#include "spin.h"
#include "team.h"

#define CLOSED UINT32_MAX

/* A ticket is a cache line that each item takes to another core. With more threads than this the
 * line moves more than they compute. */
enum { PART_THREADS = 16 };

/* A part of the current loop's items: those of up to PART_THREADS threads of a node. High half: the
 * loop's number; low half: the next item, or CLOSED. A thread reads the loop's fields, then takes
 * an item by a compare-and-swap of the whole ticket, which fails if the loop has changed. */
struct ticket {
    _Alignas(64) _Atomic uint64_t next;
};

struct par {
    int n;
    _Atomic int n_busy; /* threads that work; those above sleep */
    struct affinity affinity;
    struct team *team;    /* NULL: the calling thread alone */
    int *bound;           /* [n] system thread that was bound as each of the team */
    void *before;         /* [CB_AFFINITY_BYTES] the calling thread's affinity before the region */
    size_t scratch_bytes; /* for each thread but the first */
    size_t shared_bytes;  /* for the first one, no fewer */
    void **scratch;       /* [n] */
    struct backoff *backoff; /* [n] each used by its own thread only */

    int inside;            /* 1: a region is open; only the first thread reads it */
    int node_parts;        /* parts that the items of each node are cut into */
    int *own;              /* [n] the part that a thread begins with, on its node */
    struct ticket *ticket; /* [affinity.n_node][node_parts] of the current loop */
    _Alignas(64) _Atomic(par_fn) fn;
    void *_Atomic ctx;
    _Atomic uint32_t n_item;
    _Alignas(64) _Atomic uint32_t todo; /* items not yet done; the first thread sleeps on it */
    _Atomic uint32_t first_sleeps;
    _Atomic int64_t slept_ns;           /* when it fell asleep */
    _Alignas(64) _Atomic uint32_t bell; /* idle threads sleep on it */
    _Atomic uint32_t sleepers;
    _Atomic uint32_t over; /* the region has ended; threads that stay away sleep on it */
    _Atomic uint32_t n_away;
};

static void serve(void *arg, int thread);

static int n_part(const struct par *p)
{
    return p->affinity.n_node * p->node_parts;
}

/* Parts of a node, enough for the one with the most threads; and which one each thread begins with:
 * those of a node are dealt out evenly. */
static int cut_nodes(struct par *p)
{
    const int *node = p->affinity.node;
    int most = 1;

    p->own = cb_calloc((size_t)p->n, sizeof *p->own);
    if (!p->own)
        return CB_ENOMEM;
    for (int i = 0, first = 0; i < p->n; i++) {
        if (node[i] != node[first])
            first = i;
        most = i - first + 1 > most ? i - first + 1 : most;
    }
    p->node_parts = (most + PART_THREADS - 1) / PART_THREADS;
    for (int i = 0, first = 0; i < p->n; i++) {
        if (node[i] != node[first])
            first = i;
        p->own[i] = (int)((int64_t)(i - first) * p->node_parts / most);
    }
    return CB_OK;
}

static int open_par(struct par *p)
{
    p->n = p->affinity.n_threads;
    atomic_init(&p->n_busy, p->n);
    TRY(cut_nodes(p));
    p->ticket = cb_alloc_aligned((size_t)n_part(p), sizeof *p->ticket);
    p->scratch = cb_calloc((size_t)p->n, sizeof *p->scratch);
    p->bound = cb_calloc((size_t)p->n, sizeof *p->bound);
    p->backoff = cb_alloc_aligned((size_t)p->n, sizeof *p->backoff);
    p->before = p->affinity.binds ? cb_calloc(1, CB_AFFINITY_BYTES) : NULL;
    if (!p->ticket || !p->scratch || !p->bound || !p->backoff || (p->affinity.binds && !p->before))
        return CB_ENOMEM;
    for (int i = 0; i < p->n; i++)
        p->backoff[i] = cb_backoff_none;
    for (int k = 0; k < n_part(p); k++)
        atomic_init(&p->ticket[k].next, CLOSED);
    atomic_init(&p->over, 1);
    return p->n > 1 ? cb_team_start(p->n, serve, p, &p->team) : CB_OK;
}

int cb_par_new_at(struct affinity *affinity, struct par **out)
{
    struct par *p = cb_alloc_aligned(1, sizeof *p);
    int err = CB_ENOMEM;

    if (p) {
        memset(p, 0, sizeof *p);
        p->affinity = *affinity;
        *affinity = (struct affinity){ 0 };
        err = open_par(p);
    }
    if (err) {
        cb_affinity_free(affinity);
        cb_par_free(p);
        return err;
    }
    *out = p;
    return CB_OK;
}

int cb_par_new_team(const struct team_params *t, struct par **out)
{
    struct affinity affinity;

    if (t->n_threads < 0 || t->n_threads > 4096)
        return cb_fail(CB_EARG, "threads: %d is not between 1 and 4096", t->n_threads);
    TRY(cb_affinity_here(t, &affinity));
    return cb_par_new_at(&affinity, out);
}

int cb_par_new(int n_threads, struct par **out)
{
    return cb_par_new_team(&(struct team_params){ .n_threads = n_threads }, out);
}

void cb_par_free(struct par *p)
{
    if (!p)
        return;
    cb_team_stop(p->team);
    for (int i = 0; p->scratch && i < p->n; i++)
        free(p->scratch[i]);
    cb_affinity_free(&p->affinity);
    free(p->before);
    free(p->own);
    free(p->ticket);
    free(p->bound);
    free(p->backoff);
    free(p->scratch);
    free(p);
}

int cb_par_threads(const struct par *p)
{
    return p->n;
}

void cb_par_limit(struct par *p, int n)
{
    atomic_store(&p->n_busy, n);
}

int cb_par_nodes(const struct par *p)
{
    return p->affinity.n_node;
}

const char *cb_par_note(const struct par *p)
{
    return p->affinity.note;
}

/* Binds a thread unless it is bound already: it stays bound from region to region. */
static void take_affinity(struct par *p, int thread)
{
    const int id = p->affinity.binds ? (int)syscall(SYS_gettid) : 0;

    if (p->bound[thread] == id)
        return;
    p->bound[thread] = id;
    cb_affinity_bind(&p->affinity, thread);
}

/* ---- sleeping ---- */

static void ring(struct par *p)
{
    if (!atomic_load(&p->sleepers))
        return;
    atomic_fetch_add(&p->bell, 1);
    futex_wake(&p->bell);
}

/* ---- keeping away ---- */

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The first thread slept for an item that this one has just done. */
static void judge(struct par *p, int thread)
{
    struct rusage u;

    if (thread && !getrusage(RUSAGE_THREAD, &u))
        cb_backoff_judge(&p->backoff[thread], u.ru_nivcsw, atomic_load(&p->slept_ns), now_ns());
}

/* A thread beyond the limit sleeps until the region ends. */
static void keep_out(struct par *p, int thread)
{
    if (thread < atomic_load_explicit(&p->n_busy, memory_order_relaxed))
        return;
    atomic_fetch_add(&p->n_away, 1);
    while (!atomic_load(&p->over) && thread >= atomic_load(&p->n_busy))
        futex_wait(&p->over, 0, 0);
    atomic_fetch_sub(&p->n_away, 1);
}

static void keep_away(struct par *p, int thread)
{
    struct backoff *l = &p->backoff[thread];
    int64_t left;

    if (!l->until_ns)
        return;
    atomic_fetch_add(&p->n_away, 1);
    while (!atomic_load(&p->over) && (left = l->until_ns - now_ns()) > 0)
        futex_wait(&p->over, 0, left);
    atomic_fetch_sub(&p->n_away, 1);
    if (!atomic_load(&p->over))
        cb_backoff_back(l, now_ns());
}

/* ---- loops ---- */

/* First item of a part of n items */
static uint32_t part(const struct par *p, int k, uint32_t n)
{
    return (uint32_t)((uint64_t)n * (uint32_t)k / (uint32_t)n_part(p));
}

static int has_work(struct par *p)
{
    const uint32_t n = atomic_load(&p->n_item);

    for (int k = 0; k < n_part(p); k++) /* CLOSED is larger than any item */
        if ((uint32_t)atomic_load(&p->ticket[k].next) < part(p, k + 1, n))
            return 1;
    return 0;
}

/* Does items of a part of the current loop until none is left, then counts them as done: a count
 * for each item would take another line to another core. */
static void work_part(struct par *p, int k, int thread)
{
    uint32_t done = 0;

    for (;;) {
        uint64_t t = atomic_load(&p->ticket[k].next);
        const uint32_t i = (uint32_t)t;
        const par_fn fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *ctx = atomic_load_explicit(&p->ctx, memory_order_relaxed);
        const uint32_t n = atomic_load_explicit(&p->n_item, memory_order_relaxed);

        if (i >= part(p, k + 1, n))
            break;
        if (!atomic_compare_exchange_weak(&p->ticket[k].next, &t, t + 1))
            continue;
        fn(ctx, (int)i, thread);
        done++;
    }
    if (done && atomic_fetch_sub(&p->todo, done) == done && atomic_load(&p->first_sleeps)) {
        futex_wake(&p->todo);
        judge(p, thread);
    }
}

/* Does its own part's items first, then those left over on its node, then on other nodes. */
static void work(struct par *p, int thread)
{
    const int n = p->affinity.n_node, near = p->affinity.node[thread];

    for (int k = 0; k < n; k++)
        for (int j = 0; j < p->node_parts; j++)
            work_part(p, (near + k) % n * p->node_parts + (p->own[thread] + j) % p->node_parts,
                      thread);
}

static void offer(struct par *p, uint32_t n, par_fn fn, void *ctx)
{
    const int last = n_part(p);
    const uint64_t number = (atomic_load(&p->ticket[0].next) >> 32) + 1;

    for (int k = 0; k < last; k++) /* threads still reading the old loop find no items */
        atomic_store(&p->ticket[k].next, number << 32 | CLOSED);
    atomic_store_explicit(&p->n_item, 0, memory_order_relaxed);
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&p->todo, n, memory_order_relaxed);
    for (int k = 0; k < last; k++)
        atomic_store(&p->ticket[k].next, (number + 1) << 32 | part(p, k, n));
    atomic_store(&p->n_item, n); /* last: a thread finds work only where its own part has begun */
    ring(p);
}

/* The first thread waits until the last item is done. */
static void await(struct par *p)
{
    uint32_t left;

    for (int i = 0; i < SPIN; i++) {
        if (!atomic_load(&p->todo))
            return;
        cpu_relax();
    }
    atomic_store(&p->slept_ns, now_ns());
    atomic_store(&p->first_sleeps, 1);
    while ((left = atomic_load(&p->todo)))
        futex_wait(&p->todo, left, 0);
    atomic_store(&p->first_sleeps, 0);
}

static void serve(void *arg, int thread)
{
    struct par *p = arg;
    int idle = 0;

    take_affinity(p, thread);
    while (!atomic_load(&p->over)) {
        keep_out(p, thread);
        keep_away(p, thread);
        if (has_work(p)) {
            work(p, thread);
            idle = 0;
        } else if (++idle < SPIN) {
            cpu_relax();
        } else {
            const uint32_t seen = atomic_load(&p->bell);
            atomic_fetch_add(&p->sleepers, 1);
            if (!has_work(p) && !atomic_load(&p->over))
                futex_wait(&p->bell, seen, 0);
            atomic_fetch_sub(&p->sleepers, 1);
            idle = 0;
        }
    }
}

struct region {
    struct par *p;
    void (*body)(void *ctx);
    void *ctx;
};

static void run_region(void *ctx)
{
    const struct region *r = ctx;

    r->body(r->ctx);
    atomic_store(&r->p->over, 1);
    if (atomic_load(&r->p->n_away))
        futex_wake(&r->p->over);
    ring(r->p);
}

/* The calling thread is the team's first thread during this region; the next region may have
 * another. */
void cb_par_run(struct par *p, void (*body)(void *ctx), void *ctx)
{
    struct region r = { p, body, ctx };
    int joined;

    if (p->inside) {
        body(ctx);
        return;
    }
    joined = cb_affinity_join(&p->affinity, p->before);
    p->inside = 1;
    if (p->team) {
        atomic_store(&p->over, 0);
        cb_team_run(p->team, run_region, &r);
    } else {
        body(ctx);
    }
    p->inside = 0;
    if (joined)
        cb_affinity_leave(p->before);
}

struct loop {
    struct par *p;
    int n;
    par_fn fn;
    void *ctx;
};

static void run_loop(void *ctx)
{
    const struct loop *x = ctx;
    cb_par_for(x->p, x->n, x->fn, x->ctx);
}

void cb_par_for(struct par *p, int n, par_fn fn, void *ctx)
{
    if (n <= 1 || atomic_load_explicit(&p->n_busy, memory_order_relaxed) == 1) {
        for (int i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
    if (!p->inside) {
        cb_par_run(p, run_loop, &(struct loop){ p, n, fn, ctx });
        return;
    }
    offer(p, (uint32_t)n, fn, ctx);
    work(p, 0);
    await(p);
}

static int renew_scratch(struct par *p, int thread, size_t bytes)
{
    void *q = cb_alloc_aligned(bytes, 1);

    if (!q)
        return CB_ENOMEM;
    free(p->scratch[thread]);
    p->scratch[thread] = q;
    return CB_OK;
}

int cb_par_reserve_shared(struct par *p, size_t bytes)
{
    if (bytes <= p->shared_bytes)
        return CB_OK;
    TRY(renew_scratch(p, 0, bytes));
    p->shared_bytes = bytes;
    return CB_OK;
}

int cb_par_reserve(struct par *p, size_t bytes)
{
    if (bytes <= p->scratch_bytes)
        return CB_OK;
    TRY(cb_par_reserve_shared(p, bytes));
    for (int i = 1; i < p->n; i++)
        TRY(renew_scratch(p, i, bytes));
    p->scratch_bytes = bytes;
    return CB_OK;
}

void *cb_par_scratch(const struct par *p, int thread)
{
    return p->scratch[thread];
}

size_t cb_par_scratch_bytes(const struct par *p)
{
    return p->shared_bytes + p->scratch_bytes * (size_t)(p->n - 1);
}
