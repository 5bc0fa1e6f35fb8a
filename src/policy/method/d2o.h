/* SPDX-License-Identifier: MIT */
/* d2o.h - how D2O merges what it drops. */
#ifndef D2O_H
#define D2O_H

#include "policy/policy.h"

enum { D2O_EQ11, D2O_PRINTED, D2O_CODE, D2O_MEAN, D2O_DROP }; /* weights, as merge= counts them */

struct d2o_merge {
    int weights, keys; /* keys: 0 = values alone are merged */
    int first;         /* slots before it take nothing in */
    double beta;       /* of the threshold's moving average */
};

/* What e drops of KV head kv is merged into what resembles it most, if similar enough. tau: the
 * threshold so far, 0 = none yet. */
int cb_d2o_merge(struct eviction *e, int kv, const struct d2o_merge *how, double *tau);

#endif
