/* SPDX-License-Identifier: MIT */
/* isa.h - opens the CPU device for each instruction set, so that tests run on all that the machine
 * supports. */
#ifndef ISA_H
#define ISA_H

#include "config.h"
#include "device/device.h"

/* Those that are built in, worst first */
enum {
    ISA_SCALAR,
#ifdef HAVE_ISA_AVX2
    ISA_AVX2,
#endif
#ifdef HAVE_ISA_AVX512
    ISA_AVX512,
#endif
#ifdef HAVE_ISA_NEON
    ISA_NEON,
#endif
    N_ISA
};
extern const char *const cb_isa[N_ISA];

/* NULL: the machine lacks the instruction set, or the device refused; cb_error() says which */
struct device *cb_isa_open(int isa, int threads);
/* The same; where it is NULL the test counts as skipped (suite.h) */
struct device *cb_isa_open_or_skip(int isa, int threads);
struct device *cb_isa_open_with(int isa, int threads, const char *matmul);

#endif
