/* SPDX-License-Identifier: MIT */
/* layer_similarity.h - which layers attend alike, head by head, and the blocks of layers that
 * result (Ma et al. 2024, section 2.1, algorithm 1). */
#ifndef LAYER_SIMILARITY_H
#define LAYER_SIMILARITY_H

#include "probe.h"

struct par;

double cb_bits(const float *x, int n); /* entropy of x[n] to base 2 */
/* Jensen-Shannon divergence of p[n] and q[n], whose entropies are hp and hq: 0 = equal, 1 =
 * disjoint */
double cb_divergence(const float *p, double hp, const float *q, double hq, int n);

struct layer_similarity {
    int n_layer, n_head, n_kv, n_ctx;
    struct par *par;
    double *sum; /* [n_head][n_layer][n_layer] of similarities, b > a */
    int64_t n_step;
    double *bits; /* [n_head][n_layer] entropies of the step's rows */
    float *row;   /* [n_layer][n_head][n_ctx] of one step */
    int n;        /* entries in each row */
};

int cb_similarity_open(struct layer_similarity *a, const cb_model *m, int n_ctx);
void cb_similarity_close(struct layer_similarity *a);
void cb_similarity_look(void *alike, int l, int n_cand, const struct scores *s); /* a probe's */
double cb_similarity_at(const struct layer_similarity *a, int head, int i,
                        int j); /* i <= j; mean, 0..1 */

/* For each KV head, a layer joins the block before it if the majority of the group's heads is
 * similar (>= theta) to every layer of the block -> start[n_kv][n_layer]. Returns the share of
 * layers that share keys. */
double cb_similarity_blocks(const struct layer_similarity *a, double theta, int *start);
/* The largest theta of 0.99, 0.98, ... whose blocks share at least `share` of all keys; 0.01 if
 * none does. */
double cb_similarity_theta(const struct layer_similarity *a, double share, int *start);

#endif
