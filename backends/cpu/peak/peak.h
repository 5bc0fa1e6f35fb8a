/* SPDX-License-Identifier: MIT */
/* peak.h - the measured peak rates of this machine, to compare kernels with. */
#ifndef PEAK_H
#define PEAK_H

#include "device/device.h"
#include "device/limits.h"

/* The op `limits`: those of the ISA that this CPU device uses */
int cb_cpu_limits(struct device *d, double *what);

/* Tiers that are built in and supported by this machine, best first; NULL past the last. */
const char *cb_cpu_isa_at(int i);
/* The tier above `isa` that is built in, or NULL; missing: the features it needs that this machine
 * lacks, "avx512_vnni, avx512_vbmi" */
const char *cb_cpu_isa_above(const char *isa, char *missing, size_t size);

#endif
