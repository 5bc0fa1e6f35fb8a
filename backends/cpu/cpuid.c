/* SPDX-License-Identifier: MIT */
/* cpuid.c - feature detection and nothing else. */
#include "cpuid.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

/* Not every compiler's __builtin_cpu_supports() knows the name. */
static int has_f16c(void)
{
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
           __builtin_cpu_supports("avx512vbmi");
}

static int has_neon(void)
{
    return 0;
}

static int has_i8mm(void)
{
    return 0;
}

static int has_bf16(void)
{
    return 0;
}

#else

static int has_avx2(void)
{
    return 0;
}

static int has_avx512(void)
{
    return 0;
}

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

static int has_neon(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static int has_i8mm(void)
{
    return has_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

static int has_bf16(void)
{
    return has_i8mm() && (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
}
#else
static int has_neon(void)
{
    return 0;
}

static int has_i8mm(void)
{
    return 0;
}

static int has_bf16(void)
{
    return 0;
}
#endif
#endif

int cb_cpu_has(enum cpu_isa isa)
{
    switch (isa) {
    case CPU_SCALAR:
        return 1;
    case CPU_AVX2:
        return has_avx2();
    case CPU_AVX512:
        return has_avx512();
    case CPU_NEON:
        return has_neon();
    case CPU_I8MM:
        return has_i8mm();
    case CPU_BF16:
        return has_bf16();
    case CPU_ISA_COUNT:
        break;
    }
    return 0;
}
