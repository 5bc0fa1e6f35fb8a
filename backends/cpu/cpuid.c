/* SPDX-License-Identifier: MIT */
/* cpuid.c - which features this process may use, and nothing else. */
#include "cpuid.h"

#include <stddef.h>

/* Where CPUID reports a feature: a word of struct words, a bit of it, and the register states that
 * the system must save for it (XCR0: 2 and 4 are SSE and AVX, 0xe0 AVX-512, 0x60000 AMX). */
enum { LEAF1_C, LEAF7_B, LEAF7_C, LEAF7_D, LEAF7_1_A };
enum { SAVES_AVX = 0x6, SAVES_AVX512 = 0xe6, SAVES_AMX = 0x60000 };

struct place {
    uint32_t feature;
    int word, bit;
    uint32_t saves;
};

static const struct place place[] = {
    { CPU_FMA, LEAF1_C, 12, SAVES_AVX },           { CPU_F16C, LEAF1_C, 29, SAVES_AVX },
    { CPU_AVX2, LEAF7_B, 5, SAVES_AVX },           { CPU_AVX_VNNI, LEAF7_1_A, 4, SAVES_AVX },
    { CPU_AVX512F, LEAF7_B, 16, SAVES_AVX512 },    { CPU_AVX512DQ, LEAF7_B, 17, SAVES_AVX512 },
    { CPU_AVX512BW, LEAF7_B, 30, SAVES_AVX512 },   { CPU_AVX512VL, LEAF7_B, 31, SAVES_AVX512 },
    { CPU_AVX512_VBMI, LEAF7_C, 1, SAVES_AVX512 }, { CPU_AVX512_VNNI, LEAF7_C, 11, SAVES_AVX512 },
    { CPU_AMX_BF16, LEAF7_D, 22, SAVES_AMX },      { CPU_AMX_TILE, LEAF7_D, 24, SAVES_AMX },
    { CPU_AMX_INT8, LEAF7_D, 25, SAVES_AMX },      { CPU_AVX512_BF16, LEAF7_1_A, 5, SAVES_AVX512 },
};

uint32_t cb_cpuid_features(uint32_t leaf1_c, const uint32_t leaf7[4], uint64_t xcr0)
{
    const uint32_t word[] = { leaf1_c, leaf7[0], leaf7[1], leaf7[2], leaf7[3] };
    uint32_t all = 0;

    for (size_t i = 0; i < sizeof place / sizeof *place; i++)
        if (word[place[i].word] >> place[i].bit & 1 && (xcr0 & place[i].saves) == place[i].saves)
            all |= place[i].feature;
    return all;
}

int cb_cpuid_prefetches_late(uint32_t leaf1_a, const uint32_t leaf0[3])
{
    const int amd = leaf0[0] == 0x68747541 && leaf0[1] == 0x69746e65 && leaf0[2] == 0x444d4163;
    const uint32_t base = leaf1_a >> 8 & 15,
                   family = base < 15 ? base : base + (leaf1_a >> 20 & 255);

    return amd && family == 26;
}

const char *cb_cpu_feature_name(int i)
{
    static const char *const name[CPU_FEATURES] = {
        "avx2",     "fma",      "f16c",        "avx_vnni",    "avx512f",     "avx512bw",
        "avx512dq", "avx512vl", "avx512_vnni", "avx512_vbmi", "avx512_bf16", "amx_tile",
        "amx_int8", "amx_bf16", "dotprod",     "i8mm",        "bf16"
    };

    return i >= 0 && i < CPU_FEATURES ? name[i] : NULL;
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static uint64_t saved_states(void)
{
    uint32_t a, d;

    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

uint32_t cb_cpu_features(void)
{
    enum { OSXSAVE = 1 << 27 };
    uint32_t a, b, c, d, leaf1_c, leaf7[4] = { 0 };

    if (!__get_cpuid(1, &a, &b, &leaf1_c, &d) || !(leaf1_c & OSXSAVE))
        return 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        leaf7[0] = b;
        leaf7[1] = c;
        leaf7[2] = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
            leaf7[3] = a;
    }
    return cb_cpuid_features(leaf1_c, leaf7, saved_states());
}

#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

uint32_t cb_cpu_features(void)
{
    const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);

    return (one & HWCAP_ASIMDDP ? CPU_DOTPROD : 0u) | (two & HWCAP2_I8MM ? CPU_I8MM : 0u) |
           (two & HWCAP2_BF16 ? CPU_BF16 : 0u);
}

#else

uint32_t cb_cpu_features(void)
{
    return 0;
}
#endif

#if defined(__x86_64__) || defined(__i386__)
int cb_cpu_prefetches_late(void)
{
    uint32_t a, leaf0[3], b, c, d;

    if (!__get_cpuid(0, &a, &leaf0[0], &leaf0[2], &leaf0[1]) || !__get_cpuid(1, &a, &b, &c, &d))
        return 0;
    return cb_cpuid_prefetches_late(a, leaf0);
}

#else

int cb_cpu_prefetches_late(void)
{
    return 0;
}
#endif

#if defined(__x86_64__) && defined(__linux__)
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int cb_cpu_permit_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h of Linux 5.16 */

    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) ? errno : 0;
}

#else
#include <errno.h>

int cb_cpu_permit_tiles(void)
{
    return ENOSYS;
}
#endif
