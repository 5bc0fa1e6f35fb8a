/* SPDX-License-Identifier: MIT */
/* calibrate_similarity.c - ctxbank calibrate similarity: which layers attend alike, and PoD's
 * blocks. */
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "calibrate.h"
#include "calibrate/layer_similarity.h"
#include "cli/output/chart.h"

enum { STEPS = 16 };
enum { SINKS = 16, RECENT = 4080 }; /* near tokens, as in the paper */

struct work {
    struct calibrate *c;
    struct layer_similarity a;
    double theta, share; /* chosen theta; share of all keys that is not stored */
    int *start;          /* [n_kv][n_layer] */
    double *mean;        /* [n_layer][n_layer] similarity, mean over heads */
};

static json_t *start_of(const struct work *w, int kv)
{
    json_t *a = json_array();

    for (int l = 0; l < w->a.n_layer; l++)
        cb_json_add(&a, json_integer(w->start[kv * w->a.n_layer + l]));
    return a;
}

static void set_mean(struct work *w)
{
    const int n = w->a.n_layer;

    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double *x = &w->mean[i * n + j];
            *x = 0;
            for (int h = 0; h < w->a.n_head; h++)
                *x += cb_similarity_at(&w->a, h, i, j) / w->a.n_head;
        }
}

/* 0-1 2 3-5 */
static void print_blocks(const int *start, int n)
{
    for (int l = 0; l < n; l++) {
        int end = l;
        while (end + 1 < n && start[end + 1] == start[l])
            end++;
        if (end > l)
            printf("%s%d-%d", l ? " " : "", l, end);
        else
            printf("%s%d", l ? " " : "", l);
        l = end;
    }
}

static void print_table(const struct work *w)
{
    const int n = w->a.n_layer;

    printf("| layers | similarity |\n| --- | --- |\n");
    for (int l = 0; l + 1 < n; l++)
        printf("| %d, %d | %.3f |\n", l, l + 1, w->mean[l * n + l + 1]);
    printf("\n| KV head | blocks |\n| --- | --- |\n");
    for (int kv = 0; kv < w->a.n_kv; kv++) {
        printf("| %d | ", kv);
        print_blocks(w->start + kv * n, n);
        printf(" |\n");
    }
    printf("\ntheta %.2f; of a long context's keys and values the blocks save %.1f %%\n", w->theta,
           50 * w->share);
}

static int report(struct work *w)
{
    const char *plot = cb_opt_text(w->c->o, ARG_CAL_PLOT);
    json_t *start = json_array(), *rows = json_array();
    const int n = w->a.n_layer;
    char title[160];

    for (int kv = 0; kv < w->a.n_kv; kv++)
        cb_json_add(&start, start_of(w, kv));
    for (int l = 0; l + 1 < n; l++)
        cb_json_add(&rows, json_pack("{s:[i,i], s:f}", "layers", l, l + 1, "similarity",
                                     w->mean[l * n + l + 1]));
    if (!cb_opt_flag(w->c->o, ARG_JSON))
        print_table(w);
    snprintf(title, sizeof title, "%.60s: similarity of the attention of two layers, mean of heads",
             w->c->e.info.name);
    if (plot)
        TRY(cb_chart_grid(plot, title, w->mean, n));
    cb_json_set(&w->c->made, "theta", json_real(w->theta));
    cb_json_set(&w->c->made, "saving", json_real(w->share / 2));
    return cb_calibrate_save(
        w->c, "pod", "",
        json_pack("{s:o, s:i, s:i}", "start", start, "sinks", SINKS, "recent", RECENT), rows);
}

static int work_with(struct work *w)
{
    struct calibrate *c = w->c;
    const struct opts *o = c->o;
    const struct probe probe = { cb_similarity_look, &w->a, 0 };
    const size_t n = (size_t)c->e.info.n_policy_layer;

    w->start = cb_calloc(n * (size_t)c->e.info.n_kv, sizeof *w->start);
    w->mean = cb_calloc(n * n, sizeof *w->mean);
    if (!w->start || !w->mean)
        return CB_ENOMEM;
    TRY(cb_similarity_open(&w->a, c->e.model, c->n_ctx));
    TRY(cb_calibrate_probe(c, &probe, STEPS, 0));
    /* keys are half of the cache */
    w->theta = cb_opt_set(o, ARG_THETA)
                   ? cb_opt_real(o, ARG_THETA)
                   : cb_similarity_theta(&w->a, 2 * cb_opt_real(o, ARG_SAVING) / 100, w->start);
    w->share = cb_similarity_blocks(&w->a, w->theta, w->start);
    set_mean(w);
    return report(w);
}

static int similarity(struct calibrate *c)
{
    struct work w = { .c = c };
    const int err = work_with(&w);

    cb_similarity_close(&w.a);
    free(w.start);
    free(w.mean);
    return err;
}

static int run(const struct opts *o)
{
    return cb_calibrate_run(o, 4 * STEPS, similarity);
}

const struct cmd cb_cmd_calibrate_similarity = {
    .name = "calibrate similarity",
    .operands = "",
    .brief = "find the layers that attend alike (pod)",
    .sets = SET_CALIBRATE | SET_OWN_SIMILARITY | SET_MODEL | SET_ENGINE | SET_THREADS | SET_JSON |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
    .no_split = "it tries methods that only this process knows",
};
