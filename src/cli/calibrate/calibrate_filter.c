/* SPDX-License-Identifier: MIT */
/* calibrate_filter.c - ctxbank calibrate filter-layers: finds the layers that choose for OmniKV.
 * Sets of layers whose choices cover most of the other layers' attention are tried against the full
 * cache; the smallest set that keeps its answers is taken. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "calibrate.h"
#include "calibrate/filter.h"
#include "calibrate/trial.h"
#include "calibrate_trial.h"
#include "cli/output/chart.h"
#include "cli/output/log.h"

enum { MAX_SETS = 24, STEPS = 16 };

struct work {
    struct calibrate *c;
    struct recall recall;
    double *at; /* [n_layer][n_layer] */
    struct filter_set set[MAX_SETS];
    int n_dense[MAX_SETS], n_set;
    struct filter_set paper; /* n 0: none */
    char spec[MAX_SETS][96];
    struct trials t;
};

/* ---- candidates ---- */

static void add_set(struct work *w, const struct filter_set *set, int wait)
{
    char *s = w->spec[w->n_set];
    const size_t cap = sizeof w->spec[0];
    size_t n = (size_t)snprintf(s, cap, "omnikv:budget=%d,wait=%d,filter=", w->recall.k, wait);

    for (int i = 0; i < set->n; i++)
        n += (size_t)snprintf(s + n, cap - n, "%s%d", i ? "+" : "", set->layer[i]);
    w->set[w->n_set] = *set;
    w->n_dense[w->n_set++] = cb_filter_dense(set, w->recall.n_layer, wait);
}

/* One set for each number of layers that read everything, up to two fifths of all layers. The last
 * one is the paper's, which is measured but not chosen. */
static void candidates(struct work *w)
{
    const int n_layer = w->recall.n_layer;
    struct filter_set set;

    for (int a = 0; a < n_layer; a++)
        for (int b = a; b < n_layer; b++)
            w->at[a * n_layer + b] = cb_recall_at(&w->recall, a, b);
    for (int n = 3; n <= (2 * n_layer + 4) / 5 && w->n_set < MAX_SETS - 1; n++)
        if (cb_filter_best(w->at, n_layer, n, &set))
            add_set(w, &set, 0);
    if (w->n_set && cb_filter_paper(w->at, n_layer, &w->paper))
        add_set(w, &w->paper, 1);
}

/* ---- results ---- */

static const char *layers_of(const struct work *w, int i)
{
    return strrchr(w->spec[i], '=') + 1;
}

static int is_paper(const struct work *w, int i)
{
    return w->paper.n && i == w->n_set - 1;
}

static json_t *list_of(const struct filter_set *set)
{
    json_t *list = json_array();

    for (int i = 0; i < set->n; i++)
        cb_json_add(&list, json_integer(set->layer[i]));
    return list;
}

static json_t *rows(const struct work *w)
{
    json_t *a = json_array();

    for (int i = 0; i < w->n_set; i++) {
        json_t *row = cb_trials_row(&w->t, i);
        cb_json_set(&row, "filter", json_string(layers_of(w, i)));
        cb_json_set(&row, "wait", json_integer(is_paper(w, i)));
        cb_json_set(&row, "dense_layers", json_integer(w->n_dense[i]));
        cb_json_set(&row, "recall",
                    json_real(1 - w->set[i].lost / (w->recall.n_layer - w->n_dense[i])));
        cb_json_add(&a, row);
    }
    return a;
}

static void print_table(const struct work *w, int chosen)
{
    const int n_layer = w->recall.n_layer;

    printf("| layer | ability, next 4 | next 8 | next 16 |\n| --- | --- | --- | --- |\n");
    for (int l = 0; l < n_layer; l++)
        printf("| %d | %.3f | %.3f | %.3f |\n", l, cb_recall_ability(&w->recall, l, 4),
               cb_recall_ability(&w->recall, l, 8), cb_recall_ability(&w->recall, l, 16));
    printf("\n| filter layers | layers that read all | recall | answers held | same token | KLD | "
           "read |  |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < w->n_set; i++) {
        printf("| %s | %d of %d | %.3f | ", layers_of(w, i), w->n_dense[i], n_layer,
               1 - w->set[i].lost / (n_layer - w->n_dense[i]));
        cb_trials_print(&w->t, i);
        printf(" | %s |\n", is_paper(w, i) ? "paper's, wait=1" : cb_trials_mark(&w->t, i, chosen));
    }
}

static int draw(const struct work *w)
{
    const char *path = cb_opt_text(w->c->o, ARG_CAL_PLOT);
    char title[160];

    snprintf(title, sizeof title,
             "%.60s: attention of layer (across) on the %d tokens that layer (down) chose",
             w->c->e.info.name, w->recall.k);
    return path ? cb_chart_grid(path, title, w->at, w->recall.n_layer) : CB_OK;
}

static int report(struct work *w)
{
    const int chosen = cb_trials_choose(&w->t, w->n_set - (w->paper.n > 0));
    json_t *values = json_pack("{s:o}", "filter", list_of(&w->set[chosen]));

    if (w->paper.n)
        cb_json_set(&values, "paper", list_of(&w->paper));
    if (!cb_opt_flag(w->c->o, ARG_JSON))
        print_table(w, chosen);
    cb_json_set(&w->c->made, "budget", json_integer(w->recall.k));
    cb_trials_made(&w->t, chosen, &w->c->made);
    TRY(draw(w));
    return cb_calibrate_save(w->c, "omnikv", "", values, rows(w));
}

/* ---- the work ---- */

static int try_sets(struct work *w)
{
    const char *spec[MAX_SETS];

    for (int i = 0; i < w->n_set; i++)
        spec[i] = w->spec[i];
    return cb_trials_run(&w->t, w->c, spec, w->n_set, STEPS);
}

static int work_with(struct work *w)
{
    struct calibrate *c = w->c;
    const int n_layer = c->e.info.n_policy_layer;
    const struct probe probe = { cb_recall_look, &w->recall, 0 };

    w->at = cb_calloc((size_t)n_layer * (size_t)n_layer, sizeof *w->at);
    if (!w->at)
        return CB_ENOMEM;
    TRY(cb_recall_open(&w->recall, c->e.model, cb_trials_budget(c, 8), c->n_ctx));
    TRY(cb_trials_open(&w->t, c, KEEP_ANSWERS));
    TRY(cb_trials_probe(&w->t, c, &probe, STEPS));
    candidates(w);
    if (!w->n_set)
        return cb_fail(CB_EUNSUPPORTED, "model: %d layers are too few for filter layers", n_layer);
    TRY(try_sets(w));
    return report(w);
}

static int filter_layers(struct calibrate *c)
{
    struct work *w = cb_calloc(1, sizeof *w);
    int err;

    if (!w)
        return CB_ENOMEM;
    w->c = c;
    err = work_with(w);
    cb_trials_close(&w->t);
    cb_recall_close(&w->recall);
    free(w->at);
    free(w);
    return err;
}

static int run(const struct opts *o)
{
    return cb_calibrate_run(o, 4 * STEPS, filter_layers);
}

const struct cmd cb_cmd_calibrate_filter = {
    .name = "calibrate filter-layers",
    .operands = "",
    .brief = "find the layers that choose tokens for the others (omnikv)",
    .sets = SET_CALIBRATE | SET_TRIAL | SET_MODEL | SET_ENGINE | SET_THREADS | SET_JSON |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
    .no_split = "it tries methods that only this process knows",
};
