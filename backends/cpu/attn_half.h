/* SPDX-License-Identifier: MIT */
/* attn_half.h - 16-bit logits of f16 and bf16 keys in prompts, where an ISA has them. */
#ifndef ATTN_HALF_H
#define ATTN_HALF_H

#include "kern_vec.h"

extern const struct kern_qk cb_qk_half_avx512;

#endif
