/* SPDX-License-Identifier: MIT */
/* isa.h - the CPU device on each instruction set, for tests of all that the machine has. */
#ifndef ISA_H
#define ISA_H

#include "device/device.h"

enum { N_ISA = 4 };
extern const char *const cb_isa[N_ISA];

/* NULL: this machine has it not, or the device refused; cb_error() says which */
struct device *cb_isa_open(int isa, int threads);
struct device *cb_isa_open_with(int isa, int threads, const char *matmul);

#endif
