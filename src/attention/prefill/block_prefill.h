/* SPDX-License-Identifier: MIT */
/* block_prefill.h - prompts whose query heads read some blocks of the tokens before them. */
#ifndef BLOCK_PREFILL_H
#define BLOCK_PREFILL_H

#include "attention/attention.h"

/* form: for messages. Call close() even after a failure. */
int cb_block_prefill_open(struct attention *a, const struct policy *form,
                          const struct block_plan *plan);
void cb_block_prefill_close(struct attention *a);
size_t cb_block_prefill_bytes(const struct attention *a);

/* How many tokens may go through a layer at once, from position pos: chunks end with blocks */
int cb_block_prefill_room(const struct attention *a, int pos);
/* Call after n new tokens of layer l are stored. */
void cb_block_prefill_prepare(struct attention *a, int l, int n);
/* As in sparse_prefill.h */
int cb_block_prefill_parts(struct attention *a, const struct chunk *c);
int cb_block_prefill_partly(const struct attention *a, int l);

/* A block and how much of the attention it holds */
struct found {
    float mass;
    int at;
};
/* For a row of blocks up to `own`: sets reads[] of the first, the last, and the best of the others
 * (ties: the lower) until those read hold `keep` of mass[own + 1]. found[own + 1] is work space. */
void cb_block_prefill_mark(const float *mass, int own, double keep, struct found *found,
                           uint8_t *reads);

/* Of the tokens first..first+n-1, which query head h's block `own` of queries leaves out, the one
 * that it reads in place of them: each is as likely as the others. n: a power of 2 */
int cb_block_prefill_sampled(int own, int h, int first, int n);

#endif
