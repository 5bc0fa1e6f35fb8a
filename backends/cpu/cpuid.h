/* SPDX-License-Identifier: MIT */
/* cpuid.h - which vector instructions this machine and its kernel let us use. */
#ifndef CPUID_H
#define CPUID_H

#include <stdint.h>

enum cpu_isa { CPU_SCALAR, CPU_AVX2, CPU_AVX512, CPU_NEON, CPU_ISA_COUNT };

/* 1 if every instruction of that level (the flags of local.mk) can run here. */
int cb_cpu_has(enum cpu_isa isa);

#endif
