/* SPDX-License-Identifier: MIT */
/* peak_read.h - for peak_ISA.c alone: the reads, in C that the compiler vectorises to the ISA's
 * full width. */
#ifndef PEAK_READ_H
#define PEAK_READ_H

#include "kern_peak.h"

enum { PEAK_AHEAD = 4096 }; /* prefetch distance in scattered blocks, in bytes */

static inline __attribute__((always_inline)) void read_lines(const uint64_t *p, size_t n,
                                                             uint64_t *sum)
{
    for (size_t i = 0; i < n / sizeof *p; i += 8)
        for (int l = 0; l < 8; l++)
            sum[l] ^= p[i + (size_t)l];
}

static uint64_t fold(const uint64_t *s)
{
    return s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

static uint64_t read_all(const void *p, size_t n)
{
    uint64_t sum[8] = { 0 };

    read_lines(p, n, sum);
    return fold(sum);
}

static uint64_t read_blocks(const void *p, const uint32_t *idx, int n, size_t bytes)
{
    const int ahead = (int)(PEAK_AHEAD / bytes);
    const char *base = p;
    uint64_t sum[8] = { 0 };

    for (int i = 0; i < n; i++) {
        const char *next = base + (size_t)idx[i + ahead < n ? i + ahead : n - 1] * bytes;
        for (size_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(next + at);
        read_lines((const uint64_t *)(const void *)(base + (size_t)idx[i] * bytes), bytes, sum);
    }
    return fold(sum);
}

/* Keeps a value in a register and its computation in place. */
#define PEAK_KEEP(kind, x) __asm__ volatile("" : "+" kind(x))

/* Measures a unit's peak with n_sum independent sums, enough to hide its latency. Each iteration
 * sets every s[i] = STEP(s[i], w, w). A step multiplies and adds `lanes` numbers. */
#define PEAK_SPIN(name, kind, sum, n_sum, zero, operand, one, lanes, STEP)                         \
    static int64_t name(int n)                                                                     \
    {                                                                                              \
        const operand w = one;                                                                     \
        sum s[n_sum];                                                                              \
                                                                                                   \
        _Pragma("GCC unroll 16") for (int i = 0; i < n_sum; i++) s[i] = zero;                      \
        for (int k = 0; k < n; k++) {                                                              \
            _Pragma("GCC unroll 16") for (int i = 0; i < n_sum; i++)                               \
            {                                                                                      \
                s[i] = STEP(s[i], w, w);                                                           \
                PEAK_KEEP(kind, s[i]);                                                             \
            }                                                                                      \
        }                                                                                          \
        return (int64_t)n * n_sum * lanes * 2;                                                     \
    }

#endif
