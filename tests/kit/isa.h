/* SPDX-License-Identifier: MIT */
/* isa.h - opens the CPU device for each instruction set, so that tests run on all that the machine
 * supports. */
#ifndef ISA_H
#define ISA_H

#include "device/device.h"

enum { N_ISA = 4 };
extern const char *const cb_isa[N_ISA];

/* NULL: the machine lacks the instruction set, or the device refused; cb_error() says which */
struct device *cb_isa_open(int isa, int threads);
struct device *cb_isa_open_with(int isa, int threads, const char *matmul);

#endif
