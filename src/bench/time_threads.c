/* SPDX-License-Identifier: MIT */
/* time_threads.c - times the products of a small model with some of a device's threads: of one
 * token, which read memory, and of a prompt, which multiply. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/device.h"
#include "par/par.h"
#include "thread_choice.h"

enum {
    N_IN = 2048,
    N_OUT = 4096,
    N_TOK = 64,             /* of a prompt */
    LEAST_BYTES = 64 << 20, /* of all matrices */
    MOST_MATRICES = 100     /* 460 MB */
};

struct thread_rig {
    struct device *d;
    struct weight w[MOST_MATRICES];
    int n; /* matrices */
    uint8_t *raw;
    float *x, *y;
    double seconds; /* that the next loop takes */
    int n_tok;
    int64_t done; /* tokens through all matrices in that time */
    double took;
};

/* So many matrices that caches do not hold them */
static int matrices(size_t bytes, uint64_t most_bytes)
{
    uint64_t want = 2 * cb_cpus_last_caches("/sys/devices/system/cpu");
    int n;

    want = want < LEAST_BYTES ? LEAST_BYTES : want;
    want = !most_bytes ? LEAST_BYTES : want > most_bytes ? most_bytes : want;
    n = (int)(want / bytes < MOST_MATRICES ? want / bytes : MOST_MATRICES);
    return n > 0 ? n : 1;
}

static int load(struct thread_rig *b, uint64_t most_bytes)
{
    const size_t bytes = cb_row_bytes(DT_Q4_0, (int64_t)N_IN * N_OUT);
    const int n = matrices(bytes, most_bytes);

    b->raw = cb_calloc(bytes, 1);
    b->x = cb_calloc((size_t)N_TOK * N_IN, sizeof *b->x);
    b->y = cb_calloc((size_t)N_TOK * N_OUT, sizeof *b->y);
    if (!b->raw || !b->x || !b->y)
        return CB_ENOMEM;
    for (size_t i = 0; i < bytes; i++) /* any two bytes from 32 to 63 are an ordinary half */
        b->raw[i] = (uint8_t)(32 + i % 31);
    for (size_t i = 0; i < (size_t)N_TOK * N_IN; i++)
        b->x[i] = (float)(int)(i % 17) - 8;
    if (b->d->ops->reserve(b->d, N_TOK, N_IN, N_OUT, 1, 64, 1) < 0)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++) {
        b->w[i] = (struct weight){
            .name = "w", .type = DT_Q4_0, .n_in = N_IN, .n_out = N_OUT, .raw = b->raw
        };
        TRY(b->d->ops->load(b->d, &b->w[i]));
        b->n++;
    }
    return CB_OK;
}

static void close_rig(struct thread_rig *b)
{
    for (int i = 0; i < b->n; i++)
        b->d->ops->unload(b->d, &b->w[i]);
    cb_device_close(b->d);
    free(b->raw);
    free(b->x);
    free(b->y);
    free(b);
}

static int open_rig(const struct thread_bench *bench, struct thread_rig **out)
{
    const struct team_params team = { .n_threads = bench->most };
    const struct device_want want = { .isa = bench->isa };
    struct thread_rig *b = cb_calloc(1, sizeof *b);
    int err;

    if (!b)
        return CB_ENOMEM;
    err = cb_device_open_team("cpu", &team, &want, &b->d);
    if (!err)
        err = load(b, bench->most_bytes);
    if (err)
        close_rig(b);
    else
        *out = b;
    return err;
}

void cb_thread_bench_close(struct thread_bench *b)
{
    if (b->rig)
        close_rig(b->rig);
    b->rig = NULL;
}

static void multiply(void *ctx)
{
    struct thread_rig *b = ctx;
    const double start = cb_now_s();
    int64_t n = 0;

    do {
        const struct weight *w = &b->w[n % b->n];
        const struct mm m = {
            .w = w, .y = b->y, .y_stride = N_OUT, .bits = b->n_tok == 1 ? 16 : 8
        };
        b->d->ops->matmul(b->d, &m, 1, b->x, b->n_tok);
        n++;
        b->took = cb_now_s() - start;
    } while (b->took < b->seconds);
    b->done = n * b->n_tok;
}

static double tokens_per_s(struct thread_rig *b, int n_tok, double seconds)
{
    b->n_tok = n_tok;
    b->seconds = seconds;
    cb_par_run(b->d->par, multiply, b);
    return (double)b->done / b->n / b->took;
}

int cb_thread_bench_time(void *bench, int n_threads, double seconds, struct thread_speed *out)
{
    struct thread_bench *want = bench;
    struct thread_rig *b;

    if (!want->rig)
        TRY(open_rig(want, &want->rig));
    b = want->rig;
    TRY(cb_device_lock(b->d));
    cb_par_limit(b->d->par, n_threads);
    (void)tokens_per_s(b, 1, 0.1 * seconds); /* wakes the threads */
    out->token = tokens_per_s(b, 1, seconds);
    out->prompt = tokens_per_s(b, N_TOK, seconds);
    cb_device_unlock(b->d);
    return CB_OK;
}
