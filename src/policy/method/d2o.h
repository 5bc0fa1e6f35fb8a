/* SPDX-License-Identifier: MIT */
/* d2o.h - how D2O merges dropped tokens. */
#ifndef D2O_H
#define D2O_H

#include "policy/policy.h"

enum { D2O_EQ11, D2O_PRINTED, D2O_CODE, D2O_MEAN, D2O_DROP }; /* weights: choices of merge= */

enum { D2O_KEYS, D2O_VALUES, D2O_EACH }; /* what is compared: choices of similar= */

struct d2o_merge {
    int weights, keys; /* keys: 0 = values alone are merged */
    int similar;
    int first;   /* nothing is merged into slots before it */
    double beta; /* of the threshold's moving average */
};

/* Merges each slot that e drops from KV head kv into the kept slot that is most similar, if the
 * similarity reaches the threshold. *tau: the threshold so far, 0 = none yet; with D2O_EACH
 * tau[2], of keys and of values. */
int cb_d2o_merge(struct eviction *e, int kv, const struct d2o_merge *how, double *tau);

#endif
