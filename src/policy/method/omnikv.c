/* SPDX-License-Identifier: MIT */
/* omnikv.c - OmniKV: nothing is dropped. A few filter layers read all tokens. At each decoded token
 * a filter layer chooses the tokens that the layers up to the next filter layer read, besides the
 * generated ones (Hao et al., ICLR 2025, sections 4.1 and 4.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

enum { FILTER, PRESET, WAIT, BUDGET, MEM, SELECT, WINDOW, SCORE, TAIL_MAX };
enum { LAST, UNIFORM, EXPONENTIAL };

static const struct method_opt opts[] = {
    [FILTER] = { "filter", "layers",
                 "filter layers, ascending: 2+8+18; paper: as the authors chose, two or three; "
                 "default: the model's preset, else every fifth from 2",
                 OPT_LIST, 0, 0, 0, NULL },
    [PRESET] = { "preset", "file", "instead: filter layers as calibrate filter-layers writes them",
                 OPT_FILE, 0, 0, 0, NULL },
    [WAIT] = { "wait", "layers", "layers after each filter layer that also read all", OPT_INT, 0, 0,
               1000, NULL },
    [BUDGET] = { "budget", "tokens", "tokens chosen; below 1, a share of the prompt", OPT_NUM, 2048,
                 1e-6, 1e9, NULL },
    [MEM] = { "mem", "%",
              "instead of budget: percentage of the cache that a step reads, over all layers",
              OPT_NUM, 0, 0, 100, NULL },
    [SELECT] = { "select", "",
                 "queries that choose: the last, or a window of them, all alike or each "
                 "half the next",
                 OPT_CHOICE, LAST, 0, 0, "last uniform exp" },
    [WINDOW] = { "window", "tokens",
                 "queries of select=uniform and exp, and tokens that tail_max leaves in the tail",
                 OPT_INT, 16, 1, 4096, NULL },
    [SCORE] = { "score", "",
                "what is compared: attention mass, or logits as the published code does",
                OPT_CHOICE, 0, 0, 0, "softmax raw" },
    [TAIL_MAX] = { "tail_max", "tokens",
                   "generated tokens that are read in any case; of more, all but "
                   "the last `window` become candidates",
                   OPT_INT, 1024, 1, 1e9, NULL },
    { .name = NULL },
};

/* Default filter layers, for models that were not calibrated. */
static void by_rule(struct policy *p, const struct shape *sh, char *is_filter)
{
    for (int l = sh->n_layer > 2 ? 2 : 0; l < sh->n_layer; l += 5)
        is_filter[l] = 1;
    snprintf(p->note, sizeof p->note,
             "policy omnikv: filter layers every fifth from %d: a rule, not calibrated for this "
             "model; filter= sets others, calibrate filter-layers finds them",
             sh->n_layer > 2 ? 2 : 0);
}

/* The authors' filter layers: the preset's, or those of their models, which differ in depth. */
static int by_paper(struct policy *p, const struct shape *sh, const struct preset *x,
                    char *is_filter)
{
    static const struct {
        int n_layer, filter[3];
        const char *model;
    } known[] = { { 32, { 2, 8, 18 }, "Llama 3 8B" },
                  { 48, { 6, 11, 30 }, "Yi 9B" },
                  { 80, { 4, 19, 41 }, "Llama 3.1 70B" } };

    if (x && cb_preset_has(x, "paper"))
        return cb_preset_layers(p, x, "paper", is_filter);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].n_layer == sh->n_layer) {
            for (int j = 0; j < 3; j++)
                is_filter[known[i].filter[j]] = 1;
            snprintf(p->note, sizeof p->note,
                     "policy omnikv: filter layers %d, %d, %d, which the paper found for %s; for "
                     "another model of as many layers calibrate filter-layers finds better ones",
                     known[i].filter[0], known[i].filter[1], known[i].filter[2], known[i].model);
            return 0;
        }
    return cb_policy_refuse(
        p, "filter=paper: none is known for %d layers; calibrate filter-layers finds some",
        sh->n_layer);
}

static int by_preset(struct policy *p, const struct shape *sh, int paper, char *is_filter)
{
    struct preset *x;
    int err = cb_preset_open(p, p->val[PRESET].text, &x);

    if (err)
        return err;
    if (paper) {
        err = by_paper(p, sh, x, is_filter);
        cb_preset_close(x);
        return err;
    }
    if (!x) {
        by_rule(p, sh, is_filter);
        return 0;
    }
    err = cb_preset_layers(p, x, "filter", is_filter);
    snprintf(p->note, sizeof p->note, "policy omnikv: filter layers of preset %.150s%s",
             cb_preset_path(x),
             cb_preset_kept(x) ? "" : ", which keep less than they were to keep");
    cb_preset_close(x);
    return err;
}

/* filter= -> is_filter[n_layer], or the preset's */
static int filters(struct policy *p, const struct shape *sh, char *is_filter)
{
    const int paper = p->val[FILTER].set && !strcmp(p->val[FILTER].text, "paper");

    if (p->val[FILTER].set && p->val[PRESET].set && !paper)
        return cb_policy_refuse(p, "filter and preset: either, not both");
    return p->val[FILTER].set && !paper ? cb_policy_layers(p, FILTER, sh, is_filter)
                                        : by_preset(p, sh, paper, is_filter);
}

/* Share of the candidates that each sparse layer may read so that all layers together read mem
 * percent, if n_dense layers read all. */
static int mem_share(struct policy *p, const struct shape *sh, int n_dense, double *share)
{
    const double a = (double)n_dense / sh->n_layer, mem = p->val[MEM].num / 100;

    if (p->val[BUDGET].set)
        return cb_policy_refuse(p, "budget and mem: either, not both");
    if (mem < a || n_dense == sh->n_layer)
        return cb_policy_refuse(p,
                                "mem=%.10g: the %d of %d layers that read all are %.4g%% already",
                                p->val[MEM].num, n_dense, sh->n_layer, 100 * a);
    *share = (mem - a) / (1 - a);
    return *share > 0 ? 0
                      : cb_policy_refuse(p, "mem=%.10g: leaves nothing to read", p->val[MEM].num);
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *lay)
{
    const double budget = p->val[BUDGET].num;
    const int select = (int)p->val[SELECT].num, wait = (int)p->val[WAIT].num;
    double share = budget < 1 ? budget : 0;
    int filter = -1, n_dense = 0, err;
    char *is_filter = p->mem = calloc((size_t)sh->n_layer, 1);

    if (!is_filter)
        return cb_policy_no_memory(p);
    err = filters(p, sh, is_filter);
    for (int l = 0; !err && l < sh->n_layer; l++) {
        filter = is_filter[l] ? l : filter;
        n_dense += filter < 0 || l <= filter + wait;
    }
    if (!err && p->val[MEM].set)
        err = mem_share(p, sh, n_dense, &share);
    if (err)
        return err;
    filter = -1;
    for (int l = 0; l < sh->n_layer; l++) {
        if (is_filter[l]) {
            filter = l;
            lay[l].choice =
                (struct choice_plan){ .k = (int)budget,
                                      .share = share,
                                      .window = select == LAST ? 1 : (int)p->val[WINDOW].num,
                                      .decay = select == EXPONENTIAL ? 0.5f : 1,
                                      .logits = p->val[SCORE].num > 0,
                                      .tail = (int)p->val[TAIL_MAX].num,
                                      .tail_left = (int)p->val[WINDOW].num };
        } else if (filter >= 0 && l > filter + wait) {
            lay[l].reads = filter;
        }
    }
    return 0;
}

const struct method cb_method_omnikv = {
    .name = "omnikv",
    .cite =
        "Hao et al., ICLR 2025: OmniKV, Dynamic Context Selection for Efficient Long-Context LLMs",
    .brief = "drops nothing; most layers read what the last filter layer chose",
    .opts = opts,
    .plan = plan_layers,
};
