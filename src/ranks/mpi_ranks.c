/* SPDX-License-Identifier: MIT */
/* mpi_ranks.c - a team of processes over MPI 3.1. All calls are non-blocking ones that are tested
 * until they are done, a rank is lost, or the deadline has passed. */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "pulse.h"
#include "ranks.h"

static const double CALL_S = 60, LIFE_S = 3;
/* While it waits, a rank tests without a pause for SPIN tests, then gives its core to others, then
 * sleeps for longer and longer. */
enum { SPIN = 200, YIELD = 2000, MOST_SLEEP_NS = 1000000 };

struct ranks {
    MPI_Comm comm, of_pulse;
    int me, n;
    char (*host)[RANKS_HOST]; /* [n] */
    double call_s, delay_s, byte_s;
    struct pulse *pulse; /* NULL: alone */
    struct ranks_traffic traffic;
    int64_t begun; /* calls of all ranks */
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

static void pause_after(int n_test)
{
    struct timespec t = { 0, 1000 };

    if (n_test < SPIN)
        return;
    if (n_test < YIELD) {
        sched_yield();
        return;
    }
    t.tv_nsec = 20000L * (n_test - YIELD + 1);
    if (t.tv_nsec > MOST_SLEEP_NS)
        t.tv_nsec = MOST_SLEEP_NS;
    nanosleep(&t, NULL);
}

/* Tests until the call is done. `idle`: only a lost rank ends it. */
static int done(struct ranks *r, MPI_Request *q, int idle)
{
    const double start = cb_now_s();
    int flag = 0;

    for (int i = 0; !flag; i += i < INT_MAX) {
        const int code = MPI_Test(q, &flag, MPI_STATUS_IGNORE);
        const int lost = r->pulse ? cb_pulse_lost(r->pulse) : -1;
        if (code)
            return mpi_failed("a call failed", code);
        if (!flag && lost >= 0)
            return rank_failed(r, lost, "gives no sign of life");
        if (!flag && !idle && i > YIELD && cb_now_s() - start > r->call_s)
            return rank_failed(r, cb_pulse_latest(r->pulse), "is late; it lives, but computes on");
        if (!flag)
            pause_after(i);
    }
    return CB_OK;
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
    return code ? mpi_failed("tell", code) : done(r, &q, idle);
}

/* As long as a message with `bytes` of each rank would take more on a slower network */
static void delay(const struct ranks *r, size_t bytes)
{
    const double s = r->delay_s + r->byte_s * (double)bytes * (r->n - 1);
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
    TRY(code ? mpi_failed("share", code) : done(r, &q, 0));
    delay(r, bytes);
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
        TRY(done(r, &q, 1));
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
        TRY(done(r, &q, 1));
    }
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
    TRY(share_hosts(r));
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

void cb_ranks_leave(struct ranks *r)
{
    MPI_Request q;

    if (!r)
        return;
    if (MPI_Ibarrier(r->comm, &q) == MPI_SUCCESS)
        (void)done(r, &q, 0);
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
