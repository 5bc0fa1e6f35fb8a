/* SPDX-License-Identifier: MIT */
/* ref_blocks.h - estimates for blocks on the reference device. */
#ifndef REF_BLOCKS_H
#define REF_BLOCKS_H

#include "device/device.h"

void cb_ref_block_mass(struct device *d, const struct block_mass *s);
void cb_ref_line_sums(struct device *d, const struct line_sums *s);

#endif
