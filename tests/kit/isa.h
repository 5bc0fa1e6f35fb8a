/* SPDX-License-Identifier: MIT */
/* isa.h - opens the CPU device for each instruction set, and accelerators, so that tests run on all
 * that the machine supports. */
#ifndef ISA_H
#define ISA_H

#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "device/device.h"
#include "suite.h"

/* Those that are built in, worst first. Tests of matrix products run up to N_ISA_MM. */
enum {
    ISA_SCALAR,
#ifdef HAVE_ISA_AVX2
    ISA_AVX2,
#endif
#ifdef HAVE_ISA_AVXVNNI
    ISA_AVXVNNI,
#endif
#ifdef HAVE_ISA_AVX512
    ISA_AVX512BW,
#endif
#ifdef HAVE_ISA_AVX512VNNI
    ISA_AVX512VNNI,
#endif
#ifdef HAVE_ISA_AVX512VBMI
    ISA_AVX512VBMI,
#endif
#ifdef HAVE_ISA_NEON
    ISA_NEON,
#endif
#ifdef HAVE_ISA_I8MM
    ISA_I8MM,
#endif
#ifdef HAVE_ISA_BF16
    ISA_BF16,
#endif
    N_ISA,
#ifdef HAVE_ISA_AMX
    ISA_AMX = N_ISA, /* the last but for products of many tokens */
    N_ISA_MM,
#else
    N_ISA_MM = N_ISA,
#endif
    CB_ISA_OPENCL = N_ISA_MM,
    CB_ISA_CUDA
};

extern const char *const cb_isa[CB_ISA_CUDA + 1]; /* of the CPU, then "opencl", "cuda" */

/* The devices that a test program of ops is for: the CPU's instruction sets, or, compiled with
 * -DON_OPENCL or -DON_CUDA, an accelerator. Such a program ends with CB_SKIPPED (suite.h) where
 * there is none. */
#if defined ON_OPENCL
enum { ISA_FROM = CB_ISA_OPENCL, ISA_TO = CB_ISA_OPENCL + 1 };
#elif defined ON_CUDA
enum { ISA_FROM = CB_ISA_CUDA, ISA_TO = CB_ISA_CUDA + 1 };
#else
enum { ISA_FROM = 0, ISA_TO = N_ISA };
#endif
int cb_isa_has_device(const char *name);
/* A driver compiles for each form of attention, which takes longer than the case. CUDA's kernels
 * are OpenCL's, and the driver that pretends is slow. */
enum {
    IS_CUDA = (int)ISA_FROM == (int)CB_ISA_CUDA,
    FEWER = IS_CUDA         ? 8
            : ISA_FROM      ? 4
            : CB_SLOWED > 1 ? 8
                            : 1
};
/* 1: a CUDA driver that pretends, on which a case takes minutes (CTXBANK_TEST_CUDA=real: a card) */
static inline int cb_isa_pretends(void)
{
    const char *which = getenv("CTXBANK_TEST_CUDA");

    return IS_CUDA && !(which && !strcmp(which, "real"));
}
static inline int cb_isa_any(void)
{
    return !ISA_FROM || cb_isa_has_device(cb_isa[ISA_FROM]);
}

/* NULL: the machine lacks the instruction set, or the device refused; cb_error() says which */
struct device *cb_isa_open(int isa, int threads);
/* The same; where it is NULL the test counts as skipped (suite.h) */
struct device *cb_isa_open_or_skip(int isa, int threads);
struct device *cb_isa_open_with(int isa, int threads, const char *matmul);

#endif
