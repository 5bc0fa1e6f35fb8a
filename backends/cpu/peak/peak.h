/* SPDX-License-Identifier: MIT */
/* peak.h - the measured peak rates of this machine, to compare kernels with. */
#ifndef PEAK_H
#define PEAK_H

#include "device/device.h"

enum limit {
    LIMIT_READ_1, /* one thread reads memory in order */
    LIMIT_READ,   /* all of the device's threads, as in all rows below */
    LIMIT_GATHER_128,
    LIMIT_GATHER_512, /* blocks of 512 bytes (above: 128) at random places */
    LIMIT_F32,        /* multiply and add from registers */
    LIMIT_BF16,
    LIMIT_INT8,
    LIMIT_COUNT
};

extern const char *const cb_limit_name[LIMIT_COUNT];

static inline int cb_limit_is_read(enum limit l)
{
    return l <= LIMIT_GATHER_512;
}

/* -> what[LIMIT_COUNT]: reads in bytes per second, the rest in operations per second; a product and
 * its addition count as two. 0: the ISA of this CPU device has no such unit. The best of several
 * rounds. */
int cb_cpu_limits(struct device *d, double *what);

/* ISAs that are built in and supported by this machine, best first; NULL past the last. */
const char *cb_cpu_isa_at(int i);

#endif
