/* SPDX-License-Identifier: MIT */
/* metric.h - scores of answers, one table row a metric. A score lies in 0..1. The best score over
 * the reference answers counts, unless the metric says otherwise. */
#ifndef METRIC_H
#define METRIC_H

#include <stddef.h>

struct golds {
    const char *const *text; /* [n] reference answers */
    int n;
    const char *const *classes; /* [n_class] of a classification task, else NULL */
    int n_class;
};

struct metric {
    const char *name, *text;
    /* negative when out of memory */
    double (*score)(const char *pred, const struct golds *g);
};

const struct metric *cb_metric_at(int i); /* NULL past the last */
const struct metric *cb_metric_find(const char *name);

#endif
