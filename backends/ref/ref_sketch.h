/* SPDX-License-Identifier: MIT */
/* ref_sketch.h - sketched keys on the reference device. */
#ifndef REF_SKETCH_H
#define REF_SKETCH_H

#include "device/device.h"

void cb_ref_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch);
void cb_ref_sketch_topk(struct device *d, const struct sketch_topk *s);

#endif
