/* SPDX-License-Identifier: MIT */
/* block_prefill.h - prompts whose query heads read some blocks of the tokens before them. */
#ifndef BLOCK_PREFILL_H
#define BLOCK_PREFILL_H

#include "attention/attention.h"

/* A block and how much of the attention it holds */
struct found {
    float mass;
    int at;
};
/* For a row of blocks up to `own`: sets reads[] of the first, the last, and the best of the others
 * (ties: the lower) until those read hold `keep` of mass[own + 1]. found[own + 1] is work space. */
void cb_block_prefill_mark(const float *mass, int own, double keep, struct found *found,
                           uint8_t *reads);

/* The token that query head h's block `own` of queries reads in place of the tokens
 * first..first+n-1, which it leaves out; each is as likely as the others. n: a power of 2 */
int cb_block_prefill_sampled(int own, int h, int first, int n);

#endif
