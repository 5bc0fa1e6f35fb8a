/* SPDX-License-Identifier: MIT */
/* rank_choice.h - what a decoded token reads of a layer whose slots are dealt out to ranks: each
 * rank finds the best of its own slots, and all choose the best of these. */
#ifndef RANK_CHOICE_H
#define RANK_CHOICE_H

#include "attention.h"
#include "ranks/ranks.h"

struct rank_choice;

int cb_rank_choice_open(struct ranks *team, struct rank_choice **out);
void cb_rank_choice_close(struct rank_choice *x);         /* NULL is allowed */
size_t cb_rank_choice_bytes(const struct rank_choice *x); /* buffers of messages */
/* Bytes that a rank sends for a choice in n_list lists of at most `most` entries each */
uint64_t cb_rank_choice_sends(int n_list, int most);

/* bytes of each rank -> *all, [ranks][bytes] in their order, valid until the next call */
int cb_rank_choice_share(struct rank_choice *x, const void *mine, size_t bytes, const void **all);
/* lse[n], log-sum-exps of what this rank has -> of what all have. The sum is made in the order of
 * ranks. */
int cb_rank_choice_join(struct rank_choice *x, float *lse, int n);

/* Every rank calls begin, then add for the best of what it has, then end, with the same n_list,
 * most and k. A list is chosen from as if one process had all of it: add the best `most` of a list,
 * or all where there are fewer, by ascending position; k[n_list] of a list are chosen, at most
 * `most`, those with the largest scores; ties: the lower position. */
int cb_rank_choice_begin(struct rank_choice *x, int n_list, int most);
void cb_rank_choice_add(struct rank_choice *x, int list, float score, int32_t pos);
int cb_rank_choice_end(struct rank_choice *x, struct device *d, const int *k);
/* The positions that are chosen of those that this rank has added to the list -> *n, ascending */
const int32_t *cb_rank_choice_of(const struct rank_choice *x, int list, int *n);

#endif
