/* SPDX-License-Identifier: MIT */
/* trial.h - policies beside the full cache: how far their predictions are from its, and which of
 * its right answers they give as well. */
#ifndef TRIAL_H
#define TRIAL_H

#include "ctxbank.h"
#include "eval/item.h"

struct verdict {
    double kl;   /* sum over tokens of the divergence from the full cache */
    int same;    /* tokens whose likeliest next one is the full cache's */
    int held;    /* items that the full cache answers, and this policy alike, token by token */
    double read; /* sum over texts and items: bytes that a step reads, by the full cache's */
};

struct trial {
    cb_model *model;
    const char *const *policy; /* [n] */
    int n, n_ctx;
    const struct cb_prefill *how; /* to stop it; or NULL */
    struct verdict *of;           /* [n] caller's, zeroed */
    int n_token, n_feed;          /* that were compared; texts and items */
    int n_item, n_right;          /* items; those that the full cache answers */
    float *logits;                /* trial.c's own: [max_step][n_vocab] of the full cache */
};

enum { TRIAL_STEPS = 64 }; /* most tokens of an answer, or of a text that are compared */

/* The last n_step of ids[n] are fed one by one. */
int cb_trial_text(struct trial *t, const int32_t *ids, int n, int n_step);
/* Greedy: the full cache answers, the policies are fed its answer. */
int cb_trial_item(struct trial *t, const struct item *it);
void cb_trial_free(struct trial *t); /* what it allocated itself */

#endif
