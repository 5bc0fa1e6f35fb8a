/* SPDX-License-Identifier: MIT */
/* cpuid.h - vector instructions that this machine and its operating system support. */
#ifndef CPUID_H
#define CPUID_H

#include <stdint.h>

/* CPU_BF16: with i8mm */
enum cpu_isa { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON, CPU_I8MM, CPU_BF16, CPU_ISA_COUNT };

/* 1 if this machine can run every instruction of that level (the flags in local.mk). */
int cb_cpu_has(enum cpu_isa isa);

#endif
