/* SPDX-License-Identifier: MIT */
/* kern_peak.h - what an ISA can do at most, for measurements beside its kernels: reads that do
 * nothing else, and multiply-and-add from registers. */
#ifndef KERN_PEAK_H
#define KERN_PEAK_H

#include <stddef.h>
#include <stdint.h>

struct kern_peak {
    /* n bytes in order, n a multiple of 64, p aligned to as much -> their exclusive or */
    uint64_t (*read)(const void *p, size_t n);
    /* the same over blocks idx[n] of so many bytes each, a multiple of 64 */
    uint64_t (*gather)(const void *p, const uint32_t *idx, int n, size_t bytes);
    /* multiply and add from registers n times -> operations of that, two a product; NULL: no such
     * unit */
    int64_t (*f32)(int n), (*bf16)(int n), (*int8)(int n);
};

extern const struct kern_peak cb_peak_scalar, cb_peak_avx2, cb_peak_avx512, cb_peak_neon;

#endif
