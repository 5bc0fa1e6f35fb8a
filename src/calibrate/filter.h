/* SPDX-License-Identifier: MIT */
/* filter.h - which layers can choose for later ones: the share of a layer's attention that falls on
 * the tokens chosen by an earlier layer (Hao et al. 2025, figure 1 and appendix D), and the sets of
 * filter layers that lose least. */
#ifndef FILTER_H
#define FILTER_H

#include "probe.h"

struct device;

struct recall {
    int n_layer, n_head, k; /* k tokens are chosen */
    struct device *dev;
    double *sum; /* [n_layer][n_layer], sum over steps: attention of layer b on layer a's choice, a
                    <= b */
    int64_t n_step;
    int32_t *top;         /* [n_layer][k] choices of the current step */
    int *n_top;           /* [n_layer] */
    float *score, *share; /* [n_ctx] of one layer */
};

int cb_recall_open(struct recall *r, const cb_model *m, int k, int n_ctx);
void cb_recall_close(struct recall *r);
void cb_recall_look(void *recall, int l, int n_cand, const struct scores *s); /* a probe's look() */
double cb_recall_at(const struct recall *r, int a, int b);                    /* mean, 0..1 */
/* Mean recall of layers a..a+w-1 by layer a's choice. */
double cb_recall_ability(const struct recall *r, int a, int w);

enum { MAX_FILTERS = 6 };
struct filter_set {
    int layer[MAX_FILTERS], n; /* ascending */
    double lost;               /* sum of 1 - recall over the layers that read a choice */
};

/* Finds the set of 2 to MAX_FILTERS filter layers that loses least, if n_dense layers read
 * everything: the layers up to the first filter layer, and the other filters. Layer 0 never
 * chooses. at[n_layer * n_layer]: recalls. Returns 0 if there is none. */
int cb_filter_best(const double *at, int n_layer, int n_dense, struct filter_set *out);
/* The same under the paper's conditions (section 5.1): up to three filters, fewer in shallow
 * models, the layer after each reads everything too (wait=1), and a quarter of the layers reads
 * everything at most. */
int cb_filter_paper(const double *at, int n_layer, struct filter_set *out);
/* Layers that read everything with this set, of which `wait` after each filter do */
int cb_filter_dense(const struct filter_set *set, int n_layer, int wait);

#endif
