/* SPDX-License-Identifier: MIT */
/* peak.h - what this machine can do at most, measured: what kernels are held against. */
#ifndef PEAK_H
#define PEAK_H

#include "device/device.h"

enum limit {
    LIMIT_READ_1, /* one thread reads memory in order */
    LIMIT_READ,   /* all of the device's threads, as in those below */
    LIMIT_GATHER_128,
    LIMIT_GATHER_512, /* blocks of so many bytes at random places */
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

/* -> what[LIMIT_COUNT]: reads in bytes a second, the rest in operations a second, a product and its
 * sum being two; 0 where the ISA of this CPU device has no unit for it. The best of several rounds.
 */
int cb_cpu_limits(struct device *d, double *what);

/* ISAs that are built in and that this machine has, best first; NULL past the last. */
const char *cb_cpu_isa_at(int i);

#endif
