/* SPDX-License-Identifier: MIT */
/* kern_peak.h - the peak rates of an ISA, measured beside its kernels: pure memory reads, and
 * multiply-adds from registers. */
#ifndef KERN_PEAK_H
#define KERN_PEAK_H

#include <stddef.h>
#include <stdint.h>

struct kern_peak {
    /* reads n bytes in order and returns their exclusive or; n is a multiple of 64, p 64-byte
     * aligned */
    uint64_t (*read)(const void *p, size_t n);
    /* the same over blocks idx[n] of `bytes` bytes each, a multiple of 64 */
    uint64_t (*gather)(const void *p, const uint32_t *idx, int n, size_t bytes);
    /* n rounds of multiply-adds from registers; returns the operations, two a product. NULL: no
     * such unit */
    int64_t (*f32)(int n), (*bf16)(int n), (*int8)(int n);
};

extern const struct kern_peak cb_peak_scalar, cb_peak_avx2, cb_peak_avxvnni, cb_peak_avx512,
    cb_peak_avx512vnni, cb_peak_amx, cb_peak_neon, cb_peak_i8mm, cb_peak_bf16;
/* The bf16 of an AVX-512 tier on machines with that feature, which no other kernel uses */
extern const struct kern_peak cb_peak_avx512bf16;

#endif
