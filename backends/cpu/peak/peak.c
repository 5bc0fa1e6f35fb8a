/* SPDX-License-Identifier: MIT */
/* peak.c - measures the machine's peak rates: memory reads, and multiply-adds from registers. */
#include "peak.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/linux_flags.h"
#include "cpu/kern.h"
#include "kern_peak.h"
#include "par/cpus.h"

enum {
    HUGE_PAGE = 2 << 20,
    TIMES_CACHES = 16, /* bytes read, in sizes of the caches: so hardly any come from a cache */
    PIECE = 1 << 20,   /* bytes an item of the ordered read */
    BLOCKS = 4096,     /* blocks an item of the random read */
    N_GATHER = 128,    /* items of the random read */
    SPINS = 200000,
    ROUNDS = 5
};

struct job {
    struct par *par;
    const struct kern_peak *k;
    int64_t (*bf16)(int n);
    char *mem;     /* [bytes] */
    size_t bytes;  /* whole pieces */
    uint32_t *idx; /* [BLOCKS * N_GATHER] random words */
    size_t block;  /* bytes */
    int64_t (*spin)(int n);
    _Atomic uint64_t sink; /* keeps the compiler from dropping the reads */
    atomic_llong ops;
    int n;
    par_fn item;
    double best_s;
};

static void touch(void *ctx, int i, int thread)
{
    const struct job *job = ctx;

    (void)thread;
    memset(job->mem + (size_t)i * PIECE, i, PIECE);
}

static void read_piece(void *ctx, int i, int thread)
{
    struct job *job = ctx;

    (void)thread;
    atomic_fetch_xor(&job->sink, job->k->read(job->mem + (size_t)i * PIECE, PIECE));
}

static void read_blocks(void *ctx, int i, int thread)
{
    struct job *job = ctx;
    const uint32_t n = (uint32_t)(job->bytes / job->block);
    uint32_t idx[BLOCKS];

    (void)thread;
    for (int j = 0; j < BLOCKS; j++)
        idx[j] = job->idx[i * BLOCKS + j] % n;
    atomic_fetch_xor(&job->sink, job->k->gather(job->mem, idx, BLOCKS, job->block));
}

static void spin(void *ctx, int i, int thread)
{
    struct job *job = ctx;

    (void)i, (void)thread;
    atomic_fetch_add(&job->ops, job->spin(SPINS));
}

/* Runs for at least 0.1 s: other processes may hold the cores at first. */
static void rounds(void *ctx)
{
    const double begin = cb_now_s();
    struct job *job = ctx;

    for (int r = 0; r <= ROUNDS || cb_now_s() - begin < 0.1; r++) { /* the first round warms up */
        const double start = cb_now_s();
        double s;

        atomic_store(&job->ops, 0);
        cb_par_for(job->par, job->n, job->item, job);
        s = cb_now_s() - start;
        if (r && (r == 1 || s < job->best_s))
            job->best_s = s;
    }
}

/* Seconds for n items: the fastest round */
static double time_items(struct job *job, int n, par_fn item)
{
    job->n = n;
    job->item = item;
    cb_par_run(job->par, rounds, job);
    return job->best_s;
}

static double time_spin(struct job *job, int64_t (*fn)(int n))
{
    double s;

    if (!fn)
        return 0;
    job->spin = fn;
    s = time_items(job, 4 * cb_par_threads(job->par), spin);
    return (double)atomic_load(&job->ops) / s;
}

static double time_gather(struct job *job, size_t block)
{
    job->block = block;
    return (double)block * BLOCKS * N_GATHER / time_items(job, N_GATHER, read_blocks);
}

static double time_read(struct job *job)
{
    return (double)job->bytes / time_items(job, (int)(job->bytes / PIECE), read_piece);
}

static int read_alone(struct job *job, double *out)
{
    struct par *all = job->par;

    TRY(cb_par_new(1, &job->par));
    *out = time_read(job);
    cb_par_free(job->par);
    job->par = all;
    return CB_OK;
}

#ifdef HAVE_ISA_AVX512BF16
#define AVX512_BF16 cb_peak_avx512bf16.bf16
#else
#define AVX512_BF16 NULL
#endif

/* No kernel of AVX-512 uses its products of bf16, so no tier requires them. */
static int64_t (*bf16_of(const struct cpu_kern *k))(int n)
{
    const uint32_t needs = CPU_AVX512BW | CPU_AVX512_BF16;

    if (k->needs & CPU_AVX512BW && (cb_cpu_features() & needs) == needs)
        return AVX512_BF16;
    return k->peak->bf16;
}

static int measure(struct job *job, double *what)
{
    uint32_t x = 1;

    for (int i = 0; i < BLOCKS * N_GATHER; i++) {
        x = x * 1664525u + 1013904223u;
        job->idx[i] = x >> 4;
    }
    cb_par_for(job->par, (int)(job->bytes / PIECE), touch, job);
    TRY(read_alone(job, &what[LIMIT_READ_1]));
    what[LIMIT_READ] = time_read(job);
    what[LIMIT_GATHER_128] = time_gather(job, 128);
    what[LIMIT_GATHER_512] = time_gather(job, 512);
    what[LIMIT_F32] = time_spin(job, job->k->f32);
    what[LIMIT_BF16] = time_spin(job, job->bf16);
    what[LIMIT_INT8] = time_spin(job, job->k->int8);
    return CB_OK;
}

int cb_cpu_limits(struct device *d, double *what)
{
    struct job job = { .par = d->par, .k = cb_cpu_kern(d)->peak, .bf16 = bf16_of(cb_cpu_kern(d)) };
    const size_t cold = cb_cpus_cold_bytes("/sys/devices/system/cpu", TIMES_CACHES);
    void *mem = NULL;
    int err = CB_ENOMEM;

    job.bytes = (cold / PIECE + 1) * PIECE;
    job.idx = cb_calloc(BLOCKS * N_GATHER, sizeof *job.idx);
    if (job.idx && !posix_memalign(&mem, HUGE_PAGE, job.bytes)) {
        madvise(mem, job.bytes, MADV_HUGEPAGE); /* a hint: small pages work, more slowly */
        job.mem = mem;
        err = measure(&job, what);
    }
    free(mem);
    free(job.idx);
    return err;
}
