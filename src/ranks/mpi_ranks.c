/* SPDX-License-Identifier: MIT */
/* mpi_ranks.c - a team of processes over MPI 3.1. All calls are non-blocking ones that are tested
 * until they are done, a rank is lost, or the deadline has passed. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "par/cpus.h"
#include "pulse.h"
#include "rank_wait.h"
#include "ranks.h"
#include "timer_slack.h"

static const double CALL_S = 60, LIFE_S = 3;
/* Who is waited for: rank 0, which waits for a user; a rank that has what all need; all ranks; one
 * rank, for as long as it takes */
enum wait_kind { WAIT_USER, WAIT_ONE, WAIT_ALL, WAIT_PEER, N_WAIT };

struct ranks {
    MPI_Comm comm, of_pulse;
    int me, n;
    char (*host)[RANKS_HOST]; /* [n] */
    double call_s, delay_s, byte_s;
    struct pulse *pulse; /* NULL: alone */
    struct ranks_traffic traffic;
    int64_t begun; /* calls of all ranks */
    struct rank_wait wait[N_WAIT];
    int crowded; /* 1: this machine has more ranks than cores for them */
};

int cb_ranks_built(void)
{
    return 1;
}

int cb_ranks_n(const struct ranks *r)
{
    return r ? r->n : 1;
}

int cb_ranks_me(const struct ranks *r)
{
    return r ? r->me : 0;
}

const char *cb_ranks_host(const struct ranks *r, int rank)
{
    return r->host[rank];
}

struct ranks_traffic cb_ranks_traffic(const struct ranks *r)
{
    return r->traffic;
}

/* ---- waiting ---- */

static int mpi_failed(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;

    MPI_Error_string(code, text, &n);
    return cb_fail(CB_EIO, "ranks: %s: %s", what, text);
}

static int rank_failed(const struct ranks *r, int rank, const char *why)
{
    return cb_fail(CB_EIO, "rank %d of %d (%s): %s", rank, r->n, r->host[rank], why);
}

static int is_late(const struct ranks *r, enum wait_kind kind, double waited_s)
{
    return r->pulse && (kind == WAIT_ONE || kind == WAIT_ALL) && waited_s > r->call_s;
}

/* Tests until the call is done, with pauses. */
static int done(struct ranks *r, MPI_Request *q, enum wait_kind kind)
{
    struct rank_wait *w = &r->wait[kind];
    const double start = cb_now_s();
    struct timespec t = { 0, 0 };
    double least_s = 0;
    int flag = 0;

    for (;;) {
        const int code = MPI_Test(q, &flag, MPI_STATUS_IGNORE);
        const int lost = r->pulse && !flag ? cb_pulse_lost(r->pulse) : -1;
        const double waited_s = cb_now_s() - start;
        if (code)
            return mpi_failed("a call failed", code);
        if (flag) {
            cb_rank_wait_learn(w, least_s);
            return CB_OK;
        }
        if (lost >= 0)
            return rank_failed(r, lost, "gives no sign of life");
        if (is_late(r, kind, waited_s))
            return rank_failed(r, cb_pulse_latest(r->pulse), "is late; it lives, but computes on");
        least_s = waited_s;
        t.tv_nsec = (long)cb_rank_wait_pause(w, waited_s, r->crowded);
        if (t.tv_nsec)
            nanosleep(&t, NULL);
    }
}

static int begin(struct ranks *r, size_t bytes)
{
    if (bytes > INT_MAX)
        return cb_fail(CB_EUNSUPPORTED, "ranks: a message of %zu bytes", bytes);
    r->traffic.calls++;
    r->traffic.bytes += bytes;
    if (r->pulse)
        cb_pulse_begun(r->pulse, ++r->begun);
    return CB_OK;
}

int cb_ranks_tell(struct ranks *r, int from, void *buf, size_t bytes, int idle)
{
    MPI_Request q;
    int code;

    if (!r || r->n == 1)
        return CB_OK;
    TRY(begin(r, bytes));
    code = MPI_Ibcast(buf, (int)bytes, MPI_BYTE, from, r->comm, &q);
    return code ? mpi_failed("tell", code) : done(r, &q, idle ? WAIT_USER : WAIT_ONE);
}

/* As long as a message of which `bytes` come to this rank would take more on a slower network */
static void delay(const struct ranks *r, size_t bytes)
{
    const double s = r->delay_s + r->byte_s * (double)bytes;
    const struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    if (s > 0)
        nanosleep(&t, NULL);
}

int cb_ranks_share(struct ranks *r, const void *mine, size_t bytes, void *all)
{
    MPI_Request q;
    int code;

    if (!r || r->n == 1) {
        memcpy(all, mine, bytes);
        return CB_OK;
    }
    TRY(begin(r, bytes));
    code = MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, r->comm, &q);
    TRY(code ? mpi_failed("share", code) : done(r, &q, WAIT_ALL));
    delay(r, bytes * (size_t)(r->n - 1));
    return CB_OK;
}

enum { PIECE = 1 << 30 }; /* bytes of a message between two ranks */

int cb_ranks_send(struct ranks *r, int to, const void *buf, size_t bytes)
{
    MPI_Request q;

    r->traffic.calls++;
    r->traffic.bytes += bytes;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = bytes - i < PIECE ? bytes - i : PIECE;
        if (MPI_Isend((const char *)buf + i, (int)n, MPI_BYTE, to, 0, r->comm, &q))
            return cb_fail(CB_EIO, "ranks: a message to rank %d failed", to);
        TRY(done(r, &q, WAIT_PEER));
    }
    return CB_OK;
}

int cb_ranks_receive(struct ranks *r, int from, void *buf, size_t bytes)
{
    MPI_Request q;

    for (size_t i = 0, n; i < bytes; i += n) {
        n = bytes - i < PIECE ? bytes - i : PIECE;
        if (MPI_Irecv((char *)buf + i, (int)n, MPI_BYTE, from, 0, r->comm, &q))
            return cb_fail(CB_EIO, "ranks: a message from rank %d failed", from);
        TRY(done(r, &q, WAIT_PEER));
    }
    delay(r, bytes);
    return CB_OK;
}

/* ---- join, leave ---- */

/* Every rank knows the others' hosts, for messages. */
static int share_hosts(struct ranks *r)
{
    char name[MPI_MAX_PROCESSOR_NAME] = "", mine[RANKS_HOST] = "";
    int n = 0;

    r->host = cb_calloc((size_t)r->n, sizeof *r->host);
    if (!r->host)
        return CB_ENOMEM;
    MPI_Get_processor_name(name, &n);
    memccpy(mine, name, 0, sizeof mine - 1);
    memcpy(r->host[r->me], mine, sizeof mine);
    return cb_ranks_share(r, mine, sizeof mine, r->host);
}

/* Processors that the ranks of this machine may use, all together, are fewer than they. */
static int find_crowd(struct ranks *r)
{
    unsigned char *allowed = cb_calloc(2, CB_MAX_CPU), *all = allowed + CB_MAX_CPU;
    MPI_Comm here;
    int n_here = 0, n_cpu = 0;

    if (!allowed)
        return CB_ENOMEM;
    (void)cb_cpus_allowed(allowed, CB_MAX_CPU);
    MPI_Comm_split_type(r->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &n_here);
    MPI_Allreduce(allowed, all, CB_MAX_CPU, MPI_UNSIGNED_CHAR, MPI_BOR, here);
    for (int i = 0; i < CB_MAX_CPU; i++)
        n_cpu += all[i];
    MPI_Comm_free(&here);
    free(allowed);
    r->crowded = n_cpu && n_here > n_cpu; /* 0: the system does not say */
    return CB_OK;
}

static int open_team(struct ranks *r, const struct ranks_params *p)
{
    struct ranks_params of_pulse = *p;
    int level = 0, code;

    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code)
        return mpi_failed("MPI does not start", code);
    if (level < MPI_THREAD_MULTIPLE)
        return cb_fail(CB_EUNSUPPORTED, "ranks: this MPI is not for several threads");
    MPI_Comm_dup(MPI_COMM_WORLD, &r->comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &r->of_pulse);
    MPI_Comm_set_errhandler(r->comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(r->of_pulse, MPI_ERRORS_RETURN);
    MPI_Comm_rank(r->comm, &r->me);
    MPI_Comm_size(r->comm, &r->n);
    r->delay_s = p->delay_s;
    r->byte_s = p->byte_s;
    r->call_s = p->call_s > 0 ? p->call_s : CALL_S;
    of_pulse.life_s = p->life_s > 0 ? p->life_s : LIFE_S;
    if (r->n > RANKS_MOST)
        return cb_fail(CB_EUNSUPPORTED, "ranks: %d of them; at most %d", r->n, RANKS_MOST);
    cb_timer_slack_least();
    TRY(share_hosts(r));
    TRY(find_crowd(r));
    return r->n > 1 ? cb_pulse_start(r->of_pulse, &of_pulse, (const char(*)[RANKS_HOST])r->host,
                                     &r->pulse)
                    : CB_OK;
}

int cb_ranks_join(const struct ranks_params *p, struct ranks **out)
{
    struct ranks *r = *out = cb_calloc(1, sizeof *r);
    int err;

    if (!r)
        return CB_ENOMEM;
    err = open_team(r, p);
    if (err) {
        free(r->host);
        free(r);
        *out = NULL;
    }
    return err;
}

int cb_ranks_near(struct ranks *r, int number, struct ranks **out)
{
    struct ranks *x = *out = cb_calloc(1, sizeof *x);
    MPI_Comm here;

    if (!x)
        return CB_ENOMEM;
    MPI_Comm_split_type(r->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    MPI_Comm_split(here, number, 0, &x->comm);
    MPI_Comm_free(&here);
    MPI_Comm_set_errhandler(x->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(x->comm, &x->me);
    MPI_Comm_size(x->comm, &x->n);
    x->call_s = r->call_s;
    x->crowded = r->crowded;
    return CB_OK;
}

void cb_ranks_part(struct ranks *r)
{
    if (r)
        MPI_Comm_free(&r->comm);
    free(r);
}

void cb_ranks_leave(struct ranks *r)
{
    MPI_Request q;

    if (!r)
        return;
    if (MPI_Ibarrier(r->comm, &q) == MPI_SUCCESS)
        (void)done(r, &q, WAIT_ALL);
    cb_pulse_stop(r->pulse);
    MPI_Finalize();
    free(r->host);
    free(r);
}

void cb_ranks_end(struct ranks *r, int status)
{
    if (r)
        MPI_Abort(MPI_COMM_WORLD, status);
}
