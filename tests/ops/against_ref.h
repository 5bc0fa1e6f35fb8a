/* SPDX-License-Identifier: MIT */
/* against_ref.h - for tests of ops on every ISA of this machine against the reference device:
 * devices, random numbers, buffers that start out as NaN and end at a guard page. A test program
 * includes it once. */
#ifndef AGAINST_REF_H
#define AGAINST_REF_H

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/guard.h"
#include "kit/inside.h"
#include "kit/isa.h"
#include "kit/suite.h"

enum { MAX_IN = 2048, MAX_HEAD = 32, MAX_HD = 576, MAX_CTX = 5000 };

static const int head_dims[] = { 64, 32, 128, 80, 96, 256, 40, 20, 576, 112 };

/* xorshift64*; uniform in [-1, 1) and whole numbers below n */
static uint64_t seed;

static inline uint64_t next(void)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return seed * 0x2545f4914f6cdd1dULL >> 32;
}

static inline float uniform(void)
{
    return (float)next() * 0x1p-31f - 1.0f;
}

static inline int below(int n)
{
    return (int)(next() % (uint64_t)n);
}

static inline float *floats(size_t n)
{
    float *x = cb_guarded(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = uniform();
    return x;
}

/* Numbers whose products and sums are exact, so that many of them are alike */
static inline void make_whole(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = rintf(x[i] * 3);
}

static inline float *copy(const float *x, size_t n)
{
    float *y = cb_guarded(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static inline int32_t *ints(size_t n)
{
    return cb_guarded(n * sizeof(int32_t));
}

/* What is not written stays NaN. */
static inline float *poisoned(size_t n)
{
    return cb_guarded(n * sizeof(float));
}

static inline void same(const char *what, const float *got, const float *want, size_t n, float tol)
{
    for (size_t i = 0; i < n; i++) {
        if (got[i] == want[i])
            continue; /* also infinities */
        if (!(fabsf(got[i] - want[i]) <= tol * (1.0f + fabsf(want[i]))))
            ck_abort_msg("%s: [%zu of %zu] is %.9g, should be %.9g", what, i, n, (double)got[i],
                         (double)want[i]);
    }
}

static inline void reserve(struct device *d)
{
    ck_assert(d->ops->reserve(d, 600, MAX_IN, MAX_IN, MAX_HEAD, MAX_HD, MAX_CTX) >= 0);
}

static struct device *ref;
static struct device *dev; /* of the ISA under test */

/* Opens dev; 0: the machine lacks the ISA, so the test is skipped */
static inline int open_isa(int isa, int threads)
{
    dev = cb_isa_open_or_skip(isa, threads);
    if (dev)
        reserve(dev);
    return dev != NULL;
}

static inline void set_up(void)
{
    seed = 88172645463325252ULL;
    ck_assert_int_eq(cb_device_open("ref", 2, &ref), 0);
    reserve(ref);
}

static inline void tear_down(void)
{
    cb_device_close(dev);
    cb_device_close(ref);
    dev = ref = NULL;
}

/* n_kv areas, `bytes` bytes apart, of n rows each */
static inline void watch_areas(const uint8_t *at, int n_kv, size_t bytes, int n, int on)
{
    const struct device_memory *m = dev->ops->memory;

    for (int h = 0; h < n_kv; h++)
        if (on)
            ck_assert_ok(m->watch(dev, at + (size_t)h * bytes, bytes / (size_t)n, (size_t)n));
        else
            m->unwatch(dev, at + (size_t)h * bytes);
}

#endif
