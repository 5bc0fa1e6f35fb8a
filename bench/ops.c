/* SPDX-License-Identifier: MIT */
/* ops.c - times matrix products, type by type and ISA by ISA, beside this machine's own limits: how fast
 * its threads read memory, and how fast they multiply from registers. Usage: bench/ops [THREADS] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend.h"
#include "err.h"
#include "kern.h"
#include "kern_mm.h"

struct shape {
    const char *model;
    enum dtype type;
    int n_in, n_out;
};

static const struct shape shapes[] = {
    { "SmolLM2-135M", DT_Q4_1, 576, 1536 },   { "SmolLM2-135M", DT_Q4_1, 1536, 576 },
    { "Qwen2.5-0.5B", DT_Q5_0, 896, 4864 },   { "Qwen2.5-0.5B", DT_Q4_K, 4864, 896 },
    { "Qwen2.5-0.5B", DT_Q6_K, 4864, 896 },   { "Qwen2.5-0.5B", DT_Q8_0, 896, 128 },
    { "Qwen2.5-0.5B", DT_Q8_0, 896, 151936 }, { "Llama-8B", DT_Q4_K, 4096, 14336 },
    { "Llama-8B", DT_Q6_K, 14336, 4096 },     { "Llama-8B", DT_Q4_0, 4096, 1024 },
    { "Llama-8B", DT_Q5_1, 4096, 4096 },      { "Llama-8B", DT_Q5_K, 4096, 4096 },
    { "Qwen2.5-0.5B", DT_F32, 896, 4864 },    { "Qwen2.5-0.5B", DT_F16, 896, 4864 },
    { "Qwen2.5-0.5B", DT_BF16, 896, 4864 },
};

enum {
    COLD_BYTES =
        128 << 20, /* of weights that a decode measurement goes through: more than caches hold */
    MOST_WEIGHTS = 512,
    PREFILL_TOK = 512,
    SAMPLE_ROWS = 64
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct limit_job {
    const struct kern_mm *k;
    const uint64_t *mem;
    uint64_t sink[4096];
};

enum { READ_PIECE = 1 << 20, BURN_LOOPS = 200000 };

static void read_piece(void *ctx, int i, int thread)
{
    struct limit_job *job = ctx;
    const uint64_t *p = job->mem + (size_t)i * (READ_PIECE / sizeof *p);
    uint64_t s[8] = { 0 };

    for (size_t j = 0; j < READ_PIECE / sizeof *p; j += 8)
        for (int l = 0; l < 8; l++)
            s[l] ^= p[j + (size_t)l];
    job->sink[thread % 4096] ^= s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

static void burn_int8(void *ctx, int i, int thread)
{
    (void)i, (void)thread;
    ((struct limit_job *)ctx)->k->burn_int8(BURN_LOOPS);
}

static void burn_f32(void *ctx, int i, int thread)
{
    (void)i, (void)thread;
    ((struct limit_job *)ctx)->k->burn_f32(BURN_LOOPS);
}

static double best_of(struct par *par, int n, par_fn fn, void *ctx)
{
    double best = 1e30;

    for (int r = 0; r < 5; r++) {
        const double t = now();
        cb_par_for(par, n, fn, ctx);
        best = now() - t < best ? now() - t : best;
    }
    return best;
}

struct limits {
    double read_gb, int8_gop, f32_gop; /* a second; 0: not known for this ISA */
};

static int measure_limits(struct device *d, struct limits *l)
{
    struct limit_job *job = cb_calloc(1, sizeof *job);
    const int n = 4 * cb_par_threads(d->par);
    uint64_t *mem = cb_alloc_aligned(COLD_BYTES, 1);

    *l = (struct limits){ 0 };
    if (!job || !mem) {
        free(job);
        free(mem);
        return CB_ENOMEM;
    }
    memset(mem, 1, COLD_BYTES);
    job->mem = mem;
    job->k = cb_cpu_kern(d)->mm;
    l->read_gb = 1e-9 * COLD_BYTES / best_of(d->par, COLD_BYTES / READ_PIECE, read_piece, job);
    if (job->k->burn_int8)
        l->int8_gop =
            1e-9 * n * (double)job->k->burn_int8(BURN_LOOPS) / best_of(d->par, n, burn_int8, job);
    if (job->k->burn_f32)
        l->f32_gop =
            1e-9 * n * (double)job->k->burn_f32(BURN_LOOPS) / best_of(d->par, n, burn_f32, job);
    free(job);
    free(mem);
    return CB_OK;
}

/* n copies of a matrix whose first rows are random and repeat */
static int load_copies(struct device *d, const struct shape *s, struct weight *w, int n,
                       uint8_t *raw)
{
    const size_t sample = cb_row_bytes(s->type, (int64_t)s->n_in * SAMPLE_ROWS);
    const size_t all = cb_row_bytes(s->type, (int64_t)s->n_in * s->n_out);
    float *x = cb_calloc((size_t)s->n_in * SAMPLE_ROWS, sizeof *x);

    if (!x)
        return CB_ENOMEM;
    for (int i = 0; i < s->n_in * SAMPLE_ROWS; i++)
        x[i] = (float)(i * 7919 % 1009) / 504.0f - 1;
    cb_dtype[s->type].from_f32(x, raw, (int64_t)s->n_in * SAMPLE_ROWS);
    free(x);
    for (size_t at = sample; at < all; at += sample)
        memcpy(raw + at, raw, all - at < sample ? all - at : sample);
    for (int i = 0; i < n; i++) {
        w[i] = (struct weight){ "w", s->type, s->n_in, s->n_out, raw, NULL, 0 };
        TRY(d->ops->load(d, &w[i]));
    }
    return CB_OK;
}

/* Seconds a product of n_tok tokens, the best of several rounds over n matrices. */
static double time_products(struct device *d, const struct weight *w, int n, const float *x,
                            int n_tok, float *y)
{
    double best = 1e30;

    for (int r = 0; r < 5; r++) {
        const double t = now();
        for (int i = 0; i < n; i++) {
            const struct mm m = { .w = &w[i], .y = y, .y_stride = w[i].n_out };
            d->ops->matmul(d, &m, 1, x, n_tok);
        }
        best = (now() - t) / n < best ? (now() - t) / n : best;
    }
    return best;
}

static void print_row(const struct device *d, const struct shape *s, const struct limits *l,
                      double bytes, double decode, double prefill, double load)
{
    const double gb = 1e-9 * bytes / decode;
    const double gop = 2e-9 * s->n_in * s->n_out * PREFILL_TOK / prefill;
    const double top = cb_dtype[s->type].block == 1 ? l->f32_gop : l->int8_gop;

    printf("| %s | %s | %s %dx%d | %.1f | %.0f%% | %.0f | ", d->isa, cb_dtype[s->type].name,
           s->model, s->n_out, s->n_in, gb, 100 * gb / l->read_gb, gop);
    if (top > 0)
        printf("%.0f%% | %.2f |\n", 100 * gop / top, load);
    else
        printf("? | %.2f |\n", load);
    fflush(stdout);
}

static int run_shape(struct device *d, const struct shape *s, const struct limits *l)
{
    const size_t bytes = cb_row_bytes(s->type, (int64_t)s->n_in * s->n_out);
    const size_t rows = s->n_out > SAMPLE_ROWS ? (size_t)s->n_out : SAMPLE_ROWS;
    const int wanted = (int)(COLD_BYTES / bytes) + 1;
    const int n = wanted < MOST_WEIGHTS ? wanted : MOST_WEIGHTS;
    /* a prefill never needs the logits of all tokens */
    const int n_tok = s->n_out > 100000 ? 32 : PREFILL_TOK;
    struct weight *w = cb_calloc((size_t)n, sizeof *w);
    uint8_t *raw = cb_calloc(rows, cb_row_bytes(s->type, s->n_in));
    float *x = cb_calloc(PREFILL_TOK, (size_t)s->n_in * sizeof *x);
    float *y = cb_calloc((size_t)n_tok, (size_t)s->n_out * sizeof *y);
    int err = w && raw && x && y ? CB_OK : CB_ENOMEM;
    double t = now(), load, decode;

    if (!err && d->ops->reserve(d, n_tok, s->n_in, s->n_out, 1, 64, 1) < 0)
        err = CB_ENOMEM;
    if (!err)
        err = load_copies(d, s, w, n, raw);
    if (!err) {
        load = 1e-9 * n * (double)bytes / (now() - t);
        for (int i = 0; i < PREFILL_TOK * s->n_in; i++)
            x[i] = (float)(i * 31 % 257) / 128.0f - 1;
        decode = time_products(d, w, n, x, 1, y);
        t = time_products(d, w, 1, x, n_tok, y) * PREFILL_TOK / n_tok;
        print_row(d, s, l, (double)w[0].packed_bytes, decode, t, load);
    }
    for (int i = 0; w && i < n; i++)
        d->ops->unload(d, &w[i]);
    free(w);
    free(raw);
    free(x);
    free(y);
    return err;
}

static int run_isa(const char *isa, int threads)
{
    struct device *d;
    struct limits l;
    int err;

    setenv("CTXBANK_ISA", isa, 1);
    if (cb_device_open("cpu", threads, &d))
        return CB_OK; /* not on this machine */
    err = measure_limits(d, &l);
    printf("\n%s, %d threads: read %.1f GB/s, int8 %.0f GOP/s, f32 %.0f GFLOP/s\n\n", isa,
           cb_par_threads(d->par), l.read_gb, l.int8_gop, l.f32_gop);
    printf(
        "| ISA | type | matrix | decode GB/s | of read | prefill GOP/s | of peak | load GB/s |\n");
    printf("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (size_t i = 0; !err && i < sizeof shapes / sizeof *shapes; i++)
        err = run_shape(d, &shapes[i], &l);
    cb_device_close(d);
    return err;
}

int main(int argc, char **argv)
{
    static const char *const isas[] = { "avx512", "avx2", "neon", "scalar" };
    const int threads = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0;
    const char *only = getenv("CTXBANK_ISA");
    char name[16] = "";

    if (only)
        snprintf(name, sizeof name, "%s", only);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++)
        if ((!*name || !strcmp(name, isas[i])) && run_isa(isas[i], threads)) {
            fprintf(stderr, "ops: out of memory\n");
            return 1;
        }
    return 0;
}
