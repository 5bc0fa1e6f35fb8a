/* SPDX-License-Identifier: MIT */
/* trial.h - compares policies with the full cache: how far their predictions differ, and which of
 * the full cache's right answers they give too. */
#ifndef TRIAL_H
#define TRIAL_H

#include "ctxbank.h"
#include "eval/item.h"

struct verdict {
    double kl;   /* sum over tokens of the KL divergence from the full cache */
    int same;    /* tokens with the same likeliest next token as the full cache */
    int held;    /* items that the full cache answers right and this policy answers with the same
                    tokens */
    double read; /* sum over texts and items: bytes read by a step / the full cache's */
    double kept; /* the same of the bytes held at the end */
};

struct trial {
    cb_model *model;
    const char *const *policy;                 /* [n] */
    const char *const *type_k, *const *type_v; /* [n] NULL: f16; or both NULL: all are f16 */
    int n, n_ctx;
    const struct cb_prefill *how; /* callback that can stop the trial; or NULL */
    struct verdict *of;           /* [n] owned and zeroed by the caller */
    int n_token, n_feed;          /* tokens compared; texts and items fed */
    int n_item, n_right;          /* items; those that the full cache answers right */
    float *logits;                /* used by trial.c: [max_step][n_vocab] of the full cache */
};

enum { TRIAL_STEPS = 64 }; /* most tokens of an answer, or compared tokens of a text */

/* Compares on a text: the last n_step of ids[n] are fed one by one. */
int cb_trial_text(struct trial *t, const int32_t *ids, int n, int n_step);
/* Compares on an item: the full cache answers (greedy), the policies are fed its answer. */
int cb_trial_item(struct trial *t, const struct item *it);
void cb_trial_free(struct trial *t); /* frees what the trial allocated */

#endif
