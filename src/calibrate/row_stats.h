/* SPDX-License-Identifier: MIT */
/* row_stats.h - statistics of a layer's attention rows: share on the first and last tokens,
 * entropy, inequality, variance. A probe adds to the sums; the final values are means over steps
 * (or prompts). */
#ifndef ROW_STATS_H
#define ROW_STATS_H

#include "probe.h"

/* SimLayerKV (Zhang et al. 2024, section 5.1): attention on the first `sink` and the last `recent`
 * entries, the current one among them; mean over heads. */
struct ends {
    int n_layer, sink, recent;
    double *sum;             /* [n_layer] */
    int n_step, n_over[101]; /* n_over[i]: steps and layers with more than i percent */
};
int cb_ends_open(struct ends *e, int n_layer, int sink, int recent);
void cb_ends_look(void *ends, int l, int n_cand, const struct scores *s);

/* The same of every step, for a map (figure 4) */
struct ends_map {
    int n_layer, sink, recent;
    double *share; /* [n_layer][cap_step] */
    int n_step, cap_step;
};
int cb_ends_map_open(struct ends_map *m, int n_layer, int n_step, int sink, int recent);
void cb_ends_map_look(void *map, int l, int n_cand, const struct scores *s);

/* DuoAttention: what each KV head attends to between the first tokens and the last ones, in the
 * query head of its group that does so most. */
struct reach {
    int n_layer, n_kv, sink, recent;
    double *sum; /* [n_layer][n_kv] */
    int n_step;
};
int cb_reach_open(struct reach *r, int n_layer, int n_kv, int sink, int recent);
void cb_reach_look(void *reach, int l, int n_cand, const struct scores *s);

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

/* D2O (Wan et al. 2024, section 4.1), from a prompt's column sums: the variance of the heads' mean,
 * and the mean over heads of each head's variance after scaling to 0..1 between its least and its
 * largest sum. */
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
