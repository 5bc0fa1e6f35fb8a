/* SPDX-License-Identifier: MIT */
/* prompt_blocks.h - what prompts that read some blocks of the tokens before them choose the blocks
 * by. */
#ifndef PROMPT_BLOCKS_H
#define PROMPT_BLOCKS_H

#include "device.h"

/* Attention between blocks of KV_PREPACK queries and keys, estimated as in XAttention (Xu et al.
 * 2025). `stride` adjacent queries make a group and meet a group of keys in reverse order, the last
 * query the first key:
 *
 *   e[I][J] = scale / stride * sum over a < stride of q[stride I + stride - 1 - a] k[stride J + a]
 *
 * for J <= I. The softmax of a row of e is summed over the groups of a block of queries and of a
 * block of keys -> out[n_head][n_row][n_col]. Missing queries and keys count as zeros, groups
 * without a query not at all. Query i is that of entry first + i of the runs, all of which end with
 * the last query's; rows of out begin with its block.
 *
 * With bits > 0 keys are sketched (sketch.h) in place of grouped: of a block of queries the last
 * one, and every stride-th before it, spreads its softmax over the blocks before its own. That is
 * the same to the bit on all devices. */
struct block_mass {
    int n_tok, n_head, n_kv, hd, first, stride; /* stride: a power of 2 from 2 to 16; any
                                                   number with bits */
    float scale;                                /* of a logit */
    enum kv_type type_k;
    const struct kv_run *run; /* [n_kv] */
    const float *q;           /* as in struct attn */
    int q_stride;
    int bits;              /* of sketched keys, 2 or 4; 0: the runs' keys are grouped */
    const uint8_t *sketch; /* KV head h's first block is at sketch + h * head_bytes */
    size_t head_bytes;
    float *out;       /* columns after a row's own block are 0 */
    int n_row, n_col; /* blocks of the queries, and of all entries */
};

/* Attention of a few queries, the last of their runs, summed along columns and diagonals (Jiang et
 * al. 2024, MInference 1.0). Query i is that of entry n - n_tok + i, and sees the entries up to its
 * own. */
enum { LINE_QUERIES = 64 }; /* most queries of a call */
struct line_sums {
    int n_tok, n_head, n_kv, hd;
    float scale, softcap; /* as in struct attn */
    enum kv_type type_k;
    const struct kv_run *run; /* [n_kv], all with the same n */
    const float *q;           /* as in struct attn */
    int q_stride;
    float *column;   /* [n_head][out_stride] of entry j < n */
    float *diagonal; /* [n_head][out_stride] of distance j < n */
    int out_stride;
};

#endif
