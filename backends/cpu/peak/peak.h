/* SPDX-License-Identifier: MIT */
/* peak.h - the measured peak rates of this machine, to compare kernels with. */
#ifndef PEAK_H
#define PEAK_H

#include "device/device.h"
#include "device/limits.h"

/* The op `limits`: those of the ISA that this CPU device uses */
int cb_cpu_limits(struct device *d, double *what);

#endif
