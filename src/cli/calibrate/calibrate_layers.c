/* SPDX-License-Identifier: MIT */
/* calibrate_layers.c - ctxbank calibrate density, pyramid, heads: how attention is spread in each
 * layer or KV head, for budgets that differ between them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"
#include "calibrate.h"
#include "calibrate/row_stats.h"
#include "cli/output/chart.h"

enum { STEPS = 8 };

static void to_mean(double *x, int n, int of)
{
    for (int i = 0; i < n && of; i++)
        x[i] /= of;
}

/* ---- density ---- */

/* Each layer's share of the budget, 1 on average: d2o's softmax. */
static void weights(const double *spread, int n, double *out)
{
    double sum = 0;

    for (int l = 0; l < n; l++)
        sum += out[l] = exp(-spread[l]);
    for (int l = 0; l < n; l++)
        out[l] *= n / sum;
}

static int report_density(struct calibrate *c, struct density *d, double *weight)
{
    const char *plot = cb_opt_text(c->o, ARG_CAL_PLOT);
    const struct curve curves[] = { { .name = "spread", .y = d->spread },
                                    { .name = "part of the budget", .y = weight, .ink = 1 } };
    const int n = d->n_layer;
    json_t *rows = json_array();
    char title[160];

    to_mean(d->spread, n, d->n_prompt);
    to_mean(d->variance, n, d->n_prompt);
    weights(d->spread, n, weight);
    if (!cb_opt_flag(c->o, ARG_JSON))
        printf("| layer | variance of the column sums | spread of the heads' | part of the budget "
               "|\n| --- | --- | --- | --- |\n");
    for (int l = 0; l < n; l++) {
        cb_json_add(&rows, json_pack("{s:i, s:f, s:f, s:f}", "layer", l, "variance", d->variance[l],
                                     "spread", d->spread[l], "budget", weight[l]));
        if (!cb_opt_flag(c->o, ARG_JSON))
            printf("| %d | %.5g | %.3f | %.3f |\n", l, d->variance[l], d->spread[l], weight[l]);
    }
    snprintf(title, sizeof title, "%.60s: variance of a layer's attention sums, and budgets",
             c->e.info.name);
    if (plot)
        TRY(cb_chart_curves(plot, title, curves, 2, n));
    cb_json_set(&c->made, "variance", cb_calibrate_list(d->variance, n));
    return cb_calibrate_save(c, "d2o", "layers=preset,",
                             json_pack("{s:o}", "spread", cb_calibrate_list(d->spread, n)), rows);
}

static int density(struct calibrate *c)
{
    const int n = c->e.info.n_policy_layer;
    struct density d;
    const struct probe probe = { cb_density_look, &d, 1 };
    double *weight = cb_calloc((size_t)n, sizeof *weight);
    int err = cb_density_open(&d, n);

    if (!err && !weight)
        err = CB_ENOMEM;
    if (!err)
        err = cb_calibrate_probe(c, &probe, 0, 0);
    if (!err)
        err = report_density(c, &d, weight);
    cb_density_close(&d);
    free(weight);
    return err;
}

/* ---- pyramid ---- */

static int report_shapes(struct calibrate *c, struct shapes *x)
{
    const char *plot = cb_opt_text(c->o, ARG_CAL_PLOT);
    const struct curve entropy = { .name = "entropy", .y = x->entropy };
    const int n = x->n_layer;
    json_t *rows = json_array();
    char title[160];

    to_mean(x->entropy, n, x->n_step);
    to_mean(x->gini, n, x->n_step);
    if (!cb_opt_flag(c->o, ARG_JSON))
        printf("| layer | entropy, nats | tokens that it counts as | Gini coefficient |\n"
               "| --- | --- | --- | --- |\n");
    for (int l = 0; l < n; l++) {
        cb_json_add(&rows, json_pack("{s:i, s:f, s:f, s:f}", "layer", l, "entropy", x->entropy[l],
                                     "support", exp(x->entropy[l]), "gini", x->gini[l]));
        if (!cb_opt_flag(c->o, ARG_JSON))
            printf("| %d | %.3f | %.1f | %.4f |\n", l, x->entropy[l], exp(x->entropy[l]),
                   x->gini[l]);
    }
    snprintf(title, sizeof title, "%.60s: entropy (nats) of a layer's attention, mean of heads",
             c->e.info.name);
    if (plot)
        TRY(cb_chart_curves(plot, title, &entropy, 1, n));
    return cb_calibrate_save(c, "pyramidkv", "shape=entropy,",
                             json_pack("{s:o, s:o}", "entropy", cb_calibrate_list(x->entropy, n),
                                       "gini", cb_calibrate_list(x->gini, n)),
                             rows);
}

static int pyramid(struct calibrate *c)
{
    struct shapes x;
    const struct probe probe = { cb_shapes_look, &x, 0 };
    int err = cb_shapes_open(&x, c->e.info.n_policy_layer, c->n_ctx);

    if (!err)
        err = cb_calibrate_probe(c, &probe, STEPS, 0);
    if (!err)
        err = report_shapes(c, &x);
    cb_shapes_close(&x);
    return err;
}

/* ---- heads ---- */

/* The ends that the authors train with, or less of a short sample */
enum { SINK = 128, RECENT = 256 };

static int report_heads(struct calibrate *c, struct reach *r, double *layer)
{
    const char *plot = cb_opt_text(c->o, ARG_CAL_PLOT);
    const struct curve curve = { .name = "beyond the ends", .y = layer };
    json_t *rows = json_array();
    char title[160];

    to_mean(r->sum, r->n_layer * r->n_kv, r->n_step);
    if (!cb_opt_flag(c->o, ARG_JSON))
        printf("| layer | KV head | attention beyond the ends |\n| --- | --- | --- |\n");
    for (int i = 0; i < r->n_layer * r->n_kv; i++) {
        const int l = i / r->n_kv, kv = i % r->n_kv;
        layer[l] += r->sum[i] / r->n_kv;
        cb_json_add(&rows,
                    json_pack("{s:i, s:i, s:f}", "layer", l, "kv_head", kv, "alpha", r->sum[i]));
        if (!cb_opt_flag(c->o, ARG_JSON))
            printf("| %d | %d | %.4f |\n", l, kv, r->sum[i]);
    }
    snprintf(title, sizeof title,
             "%.60s: attention between the first %d and the last %d tokens, mean of KV heads",
             c->e.info.name, r->sink, r->recent);
    if (plot)
        TRY(cb_chart_curves(plot, title, &curve, 1, r->n_layer));
    return cb_calibrate_save(
        c, "duo", "", json_pack("{s:o}", "alpha", cb_calibrate_list(r->sum, r->n_layer * r->n_kv)),
        rows);
}

static int heads(struct calibrate *c)
{
    const int n = c->e.info.n_policy_layer;
    struct reach r;
    const struct probe probe = { cb_reach_look, &r, 0 };
    double *layer = cb_calloc((size_t)n, sizeof *layer);
    int err = cb_reach_open(&r, n, c->e.info.n_kv, min_int(SINK, c->n_ctx / 8),
                            min_int(RECENT, c->n_ctx / 4));

    if (!err && !layer)
        err = CB_ENOMEM;
    if (!err)
        err = cb_calibrate_probe(c, &probe, STEPS, 0);
    if (!err)
        err = report_heads(c, &r, layer);
    free(r.sum);
    free(layer);
    return err;
}

/* ---- the commands ---- */

#define COMMAND(id, text)                                                                          \
    static int run_##id(const struct opts *o)                                                      \
    {                                                                                              \
        return cb_calibrate_run(o, 4 * STEPS, id);                                                 \
    }                                                                                              \
    const struct cmd cb_cmd_calibrate_##id = { .name = "calibrate " #id,                           \
                                               .operands = "",                                     \
                                               .brief = text,                                      \
                                               .sets = SET_CALIBRATE | SET_MODEL | SET_ENGINE |    \
                                                       SET_THREADS | SET_JSON | SET_PROGRESS |     \
                                                       SET_GENERAL,                                \
                                               .run = run_##id,                                    \
                                               .no_split = "it tries methods that only this "      \
                                                           "process knows" };

COMMAND(density, "measure how dense each layer's attention is (d2o)")
COMMAND(pyramid, "measure the entropy of each layer's attention (pyramidkv)")
COMMAND(heads, "measure how far each KV head attends (duo)")
