/* SPDX-License-Identifier: MIT */
/* calibrate_lazy.c - ctxbank calibrate lazy: finds the threshold from which SimLayerKV treats a
 * layer as lazy. Thresholds are tried against the full cache; the smallest that keeps its answers
 * is taken. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "calibrate.h"
#include "calibrate/row_stats.h"
#include "calibrate_trial.h"
#include "cli/output/chart.h"

enum { SINK = 4, STEPS = 16 };

/* percent, ascending: the lower, the more layers are lazy */
static const int tried[] = { 50, 60, 70, 75, 80, 85, 90, 95, 99 };
enum { N_TRIED = (int)(sizeof tried / sizeof *tried) };

struct work {
    struct calibrate *c;
    struct ends ends;
    struct trials t;
};

static double lazy_layers(const struct work *w, int percent)
{
    return w->ends.n_step ? (double)w->ends.n_over[percent] / w->ends.n_step : 0;
}

static json_t *rows(const struct work *w)
{
    json_t *a = json_array();

    for (int i = 0; i < N_TRIED; i++) {
        json_t *row = cb_trials_row(&w->t, i);
        cb_json_set(&row, "threshold", json_real(tried[i] / 100.0));
        cb_json_set(&row, "lazy_layers", json_real(lazy_layers(w, tried[i])));
        cb_json_add(&a, row);
    }
    return a;
}

static void print_table(const struct work *w, int chosen)
{
    printf("| layer | share of the ends |\n| --- | --- |\n");
    for (int l = 0; l < w->ends.n_layer; l++)
        printf("| %d | %.3f |\n", l, w->ends.sum[l]);
    printf("\n| threshold | lazy layers | answers held | same token | KLD | read |  |\n"
           "| --- | --- | --- | --- | --- | --- | --- |\n");
    for (int i = 0; i < N_TRIED; i++) {
        printf("| %.2f | %.1f of %d | ", tried[i] / 100.0, lazy_layers(w, tried[i]),
               w->ends.n_layer);
        cb_trials_print(&w->t, i);
        printf(" | %s |\n", cb_trials_mark(&w->t, i, chosen));
    }
}

static int report(struct work *w)
{
    const char *plot = cb_opt_text(w->c->o, ARG_CAL_PLOT);
    const int chosen = cb_trials_choose(&w->t, N_TRIED);
    const struct curve curve = { .name = "share of the ends", .y = w->ends.sum };
    char title[160];

    for (int l = 0; l < w->ends.n_layer; l++)
        w->ends.sum[l] /= w->ends.n_step ? w->ends.n_step : 1;
    if (!cb_opt_flag(w->c->o, ARG_JSON))
        print_table(w, chosen);
    snprintf(title, sizeof title,
             "%.60s: attention of a layer on the first %d and the last %d tokens",
             w->c->e.info.name, SINK, w->ends.recent);
    if (plot)
        TRY(cb_chart_curves(plot, title, &curve, 1, w->ends.n_layer));
    cb_json_set(&w->c->made, "share", cb_calibrate_list(w->ends.sum, w->ends.n_layer));
    cb_trials_made(&w->t, chosen, &w->c->made);
    return cb_calibrate_save(w->c, "simlayerkv", "",
                             json_pack("{s:f, s:i, s:i}", "threshold", tried[chosen] / 100.0,
                                       "sink", SINK, "recent", w->ends.recent),
                             rows(w));
}

static int work_with(struct work *w)
{
    struct calibrate *c = w->c;
    const struct probe probe = { cb_ends_look, &w->ends, 0 };
    char text[N_TRIED][96];
    const char *spec[N_TRIED];

    TRY(cb_ends_open(&w->ends, c->e.info.n_policy_layer, SINK, cb_trials_budget(c, 4)));
    for (int i = 0; i < N_TRIED; i++) {
        snprintf(text[i], sizeof text[i], "simlayerkv:threshold=%.2f,sink=%d,recent=%d",
                 tried[i] / 100.0, SINK, w->ends.recent);
        spec[i] = text[i];
    }
    /* single needles are found long before answers with several values */
    TRY(cb_trials_open(&w->t, c, KEEP_TOKENS));
    TRY(cb_trials_probe(&w->t, c, &probe, STEPS));
    TRY(cb_trials_run(&w->t, c, spec, N_TRIED, STEPS));
    return report(w);
}

static int lazy(struct calibrate *c)
{
    struct work w = { .c = c };
    const int err = work_with(&w);

    cb_trials_close(&w.t);
    free(w.ends.sum);
    return err;
}

static int run(const struct opts *o)
{
    return cb_calibrate_run(o, 4 * STEPS, lazy);
}

const struct cmd cb_cmd_calibrate_lazy = {
    .name = "calibrate lazy",
    .operands = "",
    .brief = "find the threshold of lazy layers (simlayerkv)",
    .sets = SET_CALIBRATE | SET_TRIAL | SET_MODEL | SET_ENGINE | SET_THREADS | SET_JSON |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
    .no_split = "it tries methods that only this process knows",
};
