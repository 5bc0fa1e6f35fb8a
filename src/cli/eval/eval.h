/* SPDX-License-Identifier: MIT */
/* eval.h - shared by the tasks of eval. */
#ifndef EVAL_H
#define EVAL_H

#include "cli/cmd.h"

/* -log softmax(logits)[id], in double */
double cb_nll(const float *logits, int n_vocab, int32_t id);
int32_t cb_argmax(const float *logits, int n_vocab); /* the lower id where equal */
/* KL(p || q) of the softmax of two rows of logits */
double cb_kl(const float *p, const float *q, int n_vocab);

/* Sums of negative log-likelihoods. */
struct score_sum {
    int64_t n;
    double sum, sum2;
};
void cb_score_add(struct score_sum *s, double nll);
double cb_score_mean(const struct score_sum *s);
double cb_score_error(const struct score_sum *s); /* standard error of the mean */

/* --context and --target, tokenized apart. The context may be --bank's, or follow it. */
struct pair {
    int32_t *ctx, *tgt;
    int n_ctx, n_tgt;
};
int cb_pair_given(const struct opts *o); /* CB_USAGE when one is missing */
int cb_pair_read(const struct opts *o, const struct engine *e, struct pair *out);
/* Opens the session that they fit into; what --bank holds of the context is taken out of it. */
int cb_pair_open(const struct opts *o, struct engine *e, struct pair *p);
void cb_pair_free(struct pair *p);

#endif
