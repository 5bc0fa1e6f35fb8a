/* SPDX-License-Identifier: MIT */
/* par_omp.c - par.h over OpenMP; the only file that knows it. */
#include "par.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "err.h"

struct par {
    int n;
    size_t scratch_bytes; /* a thread */
    void **scratch;       /* [n] */
};

int cb_par_default_threads(void)
{
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int cb_par_new(int n_threads, struct par **out)
{
    struct par *p;

    if (n_threads < 0 || n_threads > 4096)
        return cb_fail(CB_EARG, "threads: %d is not between 1 and 4096", n_threads);
    p = cb_calloc(1, sizeof *p);
    if (!p)
        return CB_ENOMEM;
    p->n = n_threads ? n_threads : cb_par_default_threads();
    p->scratch = cb_calloc((size_t)p->n, sizeof *p->scratch);
    if (!p->scratch) {
        free(p);
        return CB_ENOMEM;
    }
    *out = p;
    return CB_OK;
}

void cb_par_free(struct par *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n; i++)
        free(p->scratch[i]);
    free(p->scratch);
    free(p);
}

int cb_par_threads(const struct par *p)
{
    return p->n;
}

void cb_par_for(struct par *p, int n, par_fn fn, void *ctx)
{
    atomic_int next = 0;

    if (n <= 1 || p->n == 1) {
        for (int i = 0; i < n; i++)
            fn(ctx, i, 0);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel num_threads(p->n < n ? p->n : n)
    {
        const int thread = omp_get_thread_num();
        for (int i; (i = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed)) < n;)
            fn(ctx, i, thread);
    }
#else
    for (int i = 0; i < n; i++)
        fn(ctx, i, 0);
#endif
}

int cb_par_reserve(struct par *p, size_t bytes)
{
    if (bytes <= p->scratch_bytes)
        return CB_OK;
    for (int i = 0; i < p->n; i++) {
        void *q = cb_alloc_aligned(bytes, 1);
        if (!q)
            return CB_ENOMEM;
        free(p->scratch[i]);
        p->scratch[i] = q;
    }
    p->scratch_bytes = bytes;
    return CB_OK;
}

void *cb_par_scratch(const struct par *p, int thread)
{
    return p->scratch[thread];
}

size_t cb_par_scratch_bytes(const struct par *p)
{
    return p->scratch_bytes * (size_t)p->n;
}
