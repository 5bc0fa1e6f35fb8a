/* SPDX-License-Identifier: MIT */
/* gpu_peak.c - measures what an accelerator does at most: reads of its memory, products, copies
 * from and to the host, kernels that do nothing. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "device/limits.h"
#include "gpu.h"

enum {
    ITEMS = 64,
    MOST_GROUPS = 2048,
    STEP =
        16 * ITEMS * 8, /* bytes that a group of read_all() reads at a time: READS words an item */
    LOOPS = 64,
    SUMS = 8,               /* of multiply_add() */
    MOST_BYTES = 128 << 20, /* read; more than caches hold */
    MOST_COPY = 32 << 20,
    ROUNDS = 5
};
static const double least_s = 5e-3, enough_s = 0.15; /* a round; all of them */

struct peak {
    struct gpu *g;
    struct gpu_program *program;
    uint8_t *on, *sum; /* [n_read] bytes; a result an item */
    void *host;        /* [n_copy] bytes */
    size_t n_read, n_copy;
    size_t groups;
};

/* ---- what is timed, n times ---- */

static void read_all(struct peak *k, int n)
{
    const size_t groups[3] = { k->groups, 1, 1 };
    const struct gpu_arg arg[] = { GPU_P(k->on), GPU_I((int32_t)(k->n_read / STEP / k->groups)),
                                   GPU_P(k->sum) };

    for (int i = 0; i < n; i++)
        cb_gpu_run(k->g, k->program, "read_all", groups, ITEMS, arg, 3, NULL);
}

static void spin(struct peak *k, size_t n_group, int loops)
{
    const size_t groups[3] = { n_group, 1, 1 };
    const struct gpu_arg arg[] = { GPU_I(loops), GPU_F(0.5f), GPU_P(k->sum) };

    cb_gpu_run(k->g, k->program, "multiply_add", groups, ITEMS, arg, 3, NULL);
}

static void multiply(struct peak *k, int n)
{
    spin(k, k->groups, n * LOOPS);
}

static void launch(struct peak *k, int n)
{
    for (int i = 0; i < n; i++)
        spin(k, 1, 0);
}

static void copy(struct peak *k, void *to, const void *from)
{
    const int err = k->g->status ? 0 : k->g->driver->copy(k->g, to, from, k->n_copy);

    if (err)
        cb_gpu_fail(k->g, "copy", err);
}

static void copy_in(struct peak *k, int n)
{
    for (int i = 0; i < n; i++)
        copy(k, k->on, k->host);
}

static void copy_out(struct peak *k, int n)
{
    for (int i = 0; i < n; i++)
        copy(k, k->host, k->on);
}

/* ---- the clock ---- */

static double seconds(struct peak *k, void (*fn)(struct peak *k, int n), int n)
{
    const double start = cb_now_s();

    fn(k, n);
    cb_gpu_finish(k->g);
    return cb_now_s() - start;
}

/* Times a second that fn is done, when many are queued. */
static double rate(struct peak *k, void (*fn)(struct peak *k, int n))
{
    double best = seconds(k, fn, 1), sum;
    int n = 1;

    while (best < least_s && n < 1 << 20 && !k->g->status)
        best = seconds(k, fn, n *= 2);
    sum = best;
    for (int r = 1; r < ROUNDS && sum < enough_s && !k->g->status; r++) {
        const double s = seconds(k, fn, n);
        best = s < best ? s : best;
        sum += s;
    }
    return n / best;
}

/* ---- the measurement ---- */

/* Memory that nobody has written may be all the same page. */
static void fill(struct peak *k)
{
    memset(k->host, 1, k->n_copy);
    for (size_t at = 0; at < k->n_read && !k->g->status; at += k->n_copy) {
        const int err = k->g->driver->copy(k->g, k->on + at, k->host, k->n_copy);
        if (err)
            cb_gpu_fail(k->g, "copy", err);
    }
    cb_gpu_finish(k->g);
}

/* A quarter of what is free, in equal pieces for all groups, and several copies' */
static void choose_sizes(struct peak *k)
{
    const size_t quarter = cb_gpu_room(k->g) / 4, room = quarter > STEP ? quarter : STEP;
    const size_t most = room < MOST_BYTES ? room : MOST_BYTES;

    k->groups = MOST_GROUPS;
    while (k->groups > 1 && k->groups * STEP > most)
        k->groups /= 2;
    k->n_copy = k->groups * STEP;
    while (2 * k->n_copy <= most && 2 * k->n_copy <= MOST_COPY)
        k->n_copy *= 2;
    k->n_read = most / k->n_copy * k->n_copy;
}

static int peak_open(struct peak *k)
{
    struct gpu *g = k->g;

    k->program = cb_gpu_program(g, GPU_PEAK, (struct gpu_options){ 0 });
    if (!k->program)
        return CB_EUNSUPPORTED;
    choose_sizes(k);
    k->host = g->driver->alloc_host(g, k->n_copy);
    k->on = cb_gpu_alloc(g, k->n_read);
    k->sum = cb_gpu_alloc(g, k->groups * ITEMS * 8);
    if (!k->host || !k->on || !k->sum)
        return k->host ? CB_ENOMEM : cb_fail(CB_ENOMEM, "device %s: out of host memory", g->name);
    fill(k);
    return CB_OK;
}

static int measure(struct peak *k, double *what)
{
    double flop;

    TRY(peak_open(k));
    flop = 2.0 * SUMS * LOOPS * ITEMS * (double)k->groups;
    what[LIMIT_READ] = (double)k->n_read * rate(k, read_all);
    what[LIMIT_F32] = flop * rate(k, multiply);
    what[LIMIT_IN] = (double)k->n_copy * rate(k, copy_in);
    what[LIMIT_OUT] = (double)k->n_copy * rate(k, copy_out);
    what[LIMIT_LAUNCH] = rate(k, launch);
    return cb_gpu_check(k->g);
}

int cb_gpu_limits(struct device *d, double *what)
{
    struct peak k = { .g = cb_gpu_of(d) };
    const int err = measure(&k, what);

    cb_gpu_finish(k.g);
    cb_gpu_free(k.g, k.on);
    cb_gpu_free(k.g, k.sum);
    k.g->driver->free_host(k.g, k.host);
    return err;
}
