/* SPDX-License-Identifier: MIT */
/* gpu_left.h - what an op has left on the device for the next ones, which the host may never need.
 */
#ifndef GPU_LEFT_H
#define GPU_LEFT_H

#include <stdint.h>

/* Lists of n slots below `end` that a search has left on the device, at on[h * (n + 1) + 1], after
 * their number; they are not yet at the host's to[h * stride] */
struct gpu_found {
    int32_t *to; /* NULL: none */
    const int32_t *on;
    int n_list, n, stride, end;
    int used; /* 1: their op has read them on the device, so the host may do without */
    int sent; /* 1: they are on their way, and several ops may read them meanwhile */
};

/* Logits on[n_head][stride] that attention has left on the device; they are not yet at the host's
 * to[n_head][to_stride] */
struct gpu_logits {
    float *to; /* NULL: none */
    const float *on;
    int n_head, n, stride, to_stride;
    uint64_t missed_feed; /* the last token whose logits could not be left, for want of rows */
    int missed;           /* how many tokens up to that one, in turn */
};

#endif
