/* SPDX-License-Identifier: MIT */
/* coverage.h - how much of full attention falls on what a policy reads, and how much would fall on
 * the best choice of as many tokens (recall of attention: Cai et al. 2024, figure 8; missing mass:
 * Hao et al. 2025, figure 1c). A probe and a session with the policy are fed the same tokens. */
#ifndef COVERAGE_H
#define COVERAGE_H

#include "attention/attend.h"
#include "probe.h"

/* The full attention of the token that a probe was fed last */
struct full_rows {
    int n_layer, n_head, n_ctx;
    int n;      /* tokens, the current one among them */
    float *row; /* [n_layer][n_head][n_ctx], each with sum 1 */
};

int cb_full_rows_open(struct full_rows *r, const cb_model *m, int n_ctx);
void cb_full_rows_close(struct full_rows *r);
void cb_full_rows_look(void *rows, int l, int n_cand,
                       const struct scores *s); /* a probe's look() */

struct cover {
    double read;    /* tokens that a query head reads */
    double share;   /* of all tokens */
    double recall;  /* of full attention: the share on these tokens */
    double best;    /* the recall of the best choice of as many tokens */
    double overlap; /* the share of the best choice that is read */
    /* With a passage (Hao et al. 2025, figure 6b) */
    double hit, best_hit; /* the share of the tokens read, or of the best choice, that lies in it */
    double found;         /* the share of the passage that is read */
};

struct coverage {
    const struct full_rows *full;
    struct device *dev;
    int n_kv, n_step, cap_step;
    int from, to;      /* the passage; to 0: there is none */
    struct cover *sum; /* [n_layer][n_kv], sums over steps */
    double *missing;   /* [n_step] attention that a token misses, mean of layers and heads */
    struct read_watch watch;
    uint8_t *mark; /* [n_ctx] of one head */
    float *row;    /* [n_ctx] */
    int32_t *top;  /* [n_ctx] */
};

/* For n_step tokens. full: outlives *c. *c stays where it is while a session watches. */
int cb_coverage_open(struct coverage *c, const cb_model *m, const struct full_rows *full,
                     int n_step);
void cb_coverage_close(struct coverage *c);
/* From now on what the session's tokens read counts. The probe must have been fed each of them
 * before. */
void cb_coverage_watch(struct coverage *c, cb_session *s);
/* Means over the steps so far, of layers l..l+n_l-1 and KV heads kv..kv+n_k-1. n_step > 0 */
struct cover cb_coverage_mean(const struct coverage *c, int l, int n_l, int kv, int n_k);

#endif
