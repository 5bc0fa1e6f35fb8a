/* SPDX-License-Identifier: MIT */
/* row_stats.h - what attention rows of a layer look like: score at the ends, entropy, inequality,
 * variance. A probe adds to sums that are means over steps (or prompts) in the end. */
#ifndef ROWS_H
#define ROWS_H

#include "probe.h"

/* Of x[n] >= 0 that sum to 1: entropy in nats. */
double cb_rows_entropy(const float *x, int n);
/* Gini coefficient of x[n] >= 0: 0 all alike, (n - 1) / n all in one. `tmp` [n] */
double cb_rows_gini(const float *x, int n, float *tmp);

/* SimLayerKV (Zhang et al. 2024, section 3.1): mean over heads of what falls on the first `sink`
 * entries and the last `recent`, the current one among them. */
struct ends {
    int n_layer, sink, recent;
    double *sum;             /* [n_layer] */
    int n_step, n_over[101]; /* of steps and layers: those above percent i */
};
int cb_ends_open(struct ends *e, int n_layer, int sink, int recent);
void cb_ends_look(void *ends, int l, int n_cand, const struct scores *s);

/* PyramidKV: entropy and Gini coefficient of the heads' mean row. */
struct shapes {
    int n_layer;
    double *entropy, *gini; /* [n_layer] sums over steps */
    int n_step;
    float *row, *tmp; /* [n_ctx] */
};
int cb_shapes_open(struct shapes *x, int n_layer, int n_ctx);
void cb_shapes_close(struct shapes *x);
void cb_shapes_look(void *shapes, int l, int n_cand, const struct scores *s);

/* D2O (Wan et al. 2024, section 3.2): of a prompt's column sums, the variance of the heads' mean,
 * and the mean over heads of each one's variance, scaled to 0..1 between the least and the largest.
 */
struct density {
    int n_layer;
    double *variance, *spread; /* [n_layer] sums over prompts */
    int n_prompt;
    int64_t n_tok;
};
int cb_density_open(struct density *d, int n_layer);
void cb_density_close(struct density *d);
void cb_density_look(void *density, int l, int n_cand, const struct scores *s);

#endif
