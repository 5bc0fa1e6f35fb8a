/* SPDX-License-Identifier: MIT */
/* cpuid.h - vector instructions that this machine and its operating system support. */
#ifndef CPUID_H
#define CPUID_H

#include <stdint.h>

/* Bits of a set of features, as the manuals of processors name them */
enum cpu_feature {
    CPU_AVX2 = 1 << 0,
    CPU_FMA = 1 << 1,
    CPU_F16C = 1 << 2,
    CPU_AVX_VNNI = 1 << 3,
    CPU_AVX512F = 1 << 4,
    CPU_AVX512BW = 1 << 5,
    CPU_AVX512DQ = 1 << 6,
    CPU_AVX512VL = 1 << 7,
    CPU_AVX512_VNNI = 1 << 8,
    CPU_AVX512_VBMI = 1 << 9,
    CPU_AVX512_BF16 = 1 << 10,
    CPU_AMX_TILE = 1 << 11,
    CPU_AMX_INT8 = 1 << 12,
    CPU_AMX_BF16 = 1 << 13,
    CPU_DOTPROD = 1 << 14,
    CPU_I8MM = 1 << 15,
    CPU_BF16 = 1 << 16,
    CPU_FEATURES = 17 /* their number */
};

/* The features of this machine whose registers the operating system saves. */
uint32_t cb_cpu_features(void);
/* What cb_cpu_features() makes of the registers of a CPUID instruction (x86): leaf1_c is ECX of
 * leaf 1; leaf7 is EBX, ECX, EDX of leaf 7 and EAX of its subleaf 1; xcr0 are the register states
 * that the system saves. */
uint32_t cb_cpuid_features(uint32_t leaf1_c, const uint32_t leaf7[4], uint64_t xcr0);
/* 1: this processor's own prefetcher falls behind a stream of 8-bit weights. AMD's family 26 (Zen
 * 5) has such a prefetcher. */
int cb_cpu_prefetches_late(void);
/* What cb_cpu_prefetches_late() makes of EAX of leaf 1 and of EBX, EDX, ECX of leaf 0, the maker's
 * name (x86). */
int cb_cpuid_prefetches_late(uint32_t leaf1_a, const uint32_t leaf0[3]);
/* Asks the system to save the tile registers of AMX for this process. 0, or an error number: it
 * does not, and their use would end the process. */
int cb_cpu_permit_tiles(void);
/* The name of bit i of a set, "avx512_vnni"; NULL past the last */
const char *cb_cpu_feature_name(int i);

#endif
