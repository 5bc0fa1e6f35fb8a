/* SPDX-License-Identifier: MIT */
/* ref_sketch.h - sketched keys on the reference device. */
#ifndef REF_SKETCH_H
#define REF_SKETCH_H

#include "device/device.h"

void cb_ref_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch);
void cb_ref_index_scan(struct device *d, const struct index_scan *s); /* ref_index.c */
void cb_ref_sketch_topk(struct device *d, const struct sketch_topk *s);
void cb_ref_sketch_mass(struct device *d, const struct block_mass *m); /* bits > 0 */
void cb_ref_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds);
void cb_ref_page_scores(struct device *d, const struct page_scores *s);

#endif
