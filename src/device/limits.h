/* SPDX-License-Identifier: MIT */
/* limits.h - the peak rates of a device: bytes, operations and copies a second, measured on
 * request. */
#ifndef DEVICE_LIMITS_H
#define DEVICE_LIMITS_H

struct device;

enum limit {
    LIMIT_READ_1, /* one thread reads memory in order */
    LIMIT_READ,   /* the whole device reads its own memory, as in all rows below */
    LIMIT_GATHER_128,
    LIMIT_GATHER_512, /* blocks of 512 bytes (above: 128) at random places */
    LIMIT_F32,        /* multiply and add from registers */
    LIMIT_BF16,
    LIMIT_INT8,
    LIMIT_IN,     /* copies from the host's memory, if the device has its own */
    LIMIT_OUT,    /* copies back */
    LIMIT_LAUNCH, /* kernels that do nothing, queued one after the other */
    LIMIT_COUNT
};

extern const char *const cb_limit_name[LIMIT_COUNT];

static inline int cb_limit_is_bytes(enum limit l)
{
    return l <= LIMIT_GATHER_512 || l == LIMIT_IN || l == LIMIT_OUT;
}

/* -> what[LIMIT_COUNT], the best of several rounds: bytes, operations (a product and its addition
 * count as two), or kernels a second. 0: unknown, or nothing that the device has. */
int cb_device_limits(struct device *d, double *what);

#endif
