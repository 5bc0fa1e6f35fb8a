/* SPDX-License-Identifier: MIT */
/* filter.h - which layers may choose for those behind them: how much of a layer's attention falls
 * on the tokens that an earlier one chose (Hao et al. 2025, figure 1 and appendix D), and the sets
 * of filter layers that lose least. */
#ifndef FILTER_H
#define FILTER_H

#include "probe.h"

struct device;

struct recall {
    int n_layer, n_head, k; /* k tokens are chosen */
    struct device *dev;
    double *
        sum; /* [n_layer][n_layer] over steps: attention of layer b on the choice of layer a <= b */
    int64_t n_step;
    int32_t *top;         /* [n_layer][k] the step's choices */
    int *n_top;           /* [n_layer] */
    float *score, *share; /* [n_ctx] of one layer */
};

int cb_recall_open(struct recall *r, const cb_model *m, int k, int n_ctx);
void cb_recall_close(struct recall *r);
void cb_recall_look(void *recall, int l, int n_cand, const struct scores *s); /* a probe's */
double cb_recall_at(const struct recall *r, int a, int b);                    /* mean, 0..1 */
/* Mean recall of layers a..a+w-1 by layer a's choice. */
double cb_recall_ability(const struct recall *r, int a, int w);

enum { MAX_FILTERS = 6 };
struct filter_set {
    int layer[MAX_FILTERS], n; /* ascending */
    double lost; /* sum over the layers behind that read what was chosen: 1 - recall */
};

/* The set of 2 to MAX_FILTERS filter layers, n_dense layers reading all (the first filter layer and
 * those before it, and the other filters), that loses least; layer 0 never chooses. at[n_layer *
 * n_layer]: recalls. 0: there is none. */
int cb_filter_best(const double *at, int n_layer, int n_dense, struct filter_set *out);

#endif
