/* SPDX-License-Identifier: MIT */
/* pyramidkv.c - PyramidKV (Cai et al., 2024): SnapKV with a budget that falls from the bottom to
 * the top layer; the sum is that of a uniform budget. */
#include "policy/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BUDGET,
    WINDOW,
    BETA,
    SHAPE,
    MEASURE,
    PRESET,
    BUDGETS,
    KERNEL,
    POOL,
    GROUP,
    SINK,
    FLOOR,
    DECODE,
    TAIL
};
enum { LINEAR, GEOMETRIC, EXPONENTIAL, ENTROPY, GINI };
enum { EXACT, COMPAT, KVPRESS };
enum { GROW, BOUNDED };
enum { BEFORE, OF_PROMPT };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "prompt tokens kept, mean over layers; below 1 a share",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [WINDOW] = { "window", "tokens", "last prompt tokens, which vote and stay", OPT_INT, 8, 1,
                 65536, NULL },
    [BETA] = { "beta", NULL, "the top layer chooses budget / beta tokens; 1 = all layers alike",
               OPT_NUM, 20, 1, 1e9, NULL },
    [SHAPE] = { "shape", NULL, "how budgets fall; entropy, gini: as measured, see measure",
                OPT_CHOICE, LINEAR, 0, 0, "linear geometric exponential entropy gini" },
    [MEASURE] = { "measure", NULL,
                  "of what shape=entropy and gini are taken: of other texts before, see preset, or "
                  "of the queries of this prompt that vote",
                  OPT_CHOICE, BEFORE, 0, 0, "preset prompt" },
    [PRESET] = { "preset", "file",
                 "JSON lists of each layer's entropy and gini; default: the model's", OPT_FILE, 0,
                 0, 0, NULL },
    [BUDGETS] = { "budgets", NULL,
                  "exact: the sum is kept; compat, kvpress: as those programs round", OPT_CHOICE,
                  EXACT, 0, 0, "exact compat kvpress" },
    [KERNEL] = { "kernel", "tokens", "width of the pooling, odd; 1 = none", OPT_INT, 7, 1, 255,
                 NULL },
    [POOL] = { "pool", NULL, "how votes are pooled", OPT_CHOICE, 1, 0, 0, "mean max" },
    [GROUP] = { "group", NULL,
                "how the query heads of a KV head combine, before pooling; each: they do not, and "
                "each reads the tokens that it chose, as in the published code",
                OPT_CHOICE, 0, 0, 0, "mean max each" },
    [SINK] = { "sink", "tokens", "first tokens kept whatever their votes", OPT_INT, 0, 0, 1e9,
               NULL },
    [FLOOR] = { "floor", NULL,
                "share of the tokens that a KV head chooses by itself; below 1 the heads of a "
                "layer compete for the rest by their votes (Ada-KV)",
                OPT_NUM, 1, 0, 1, NULL },
    [DECODE] = { "decode", NULL, "grow: generated tokens stay; bounded: the last `tail` of them do",
                 OPT_CHOICE, GROW, 0, 0, "grow bounded" },
    [TAIL] = { "tail", "tokens", "generated tokens kept with decode=bounded", OPT_INT, 256, 1, 1e9,
               NULL },
    { .name = NULL },
};

/* State of the whole method. Arrays [n_layer] follow: real[], with measure=prompt weight[], then as
 * ints the chosen budgets, scratch for slots(), and the slots that a KV head held at the end of the
 * prompt. p->mem: the preset's numbers, [n_layer]; or with measure=prompt a row of attention and
 * scratch, [2][n_ctx] floats. */
struct st {
    int share; /* a budget below 1 as a count, set by the last prompt */
    double real[1];
};

enum { CHOSEN, SCRATCH, FIRST, N_INTS };

static int by_prompt(const struct policy *p)
{
    return p->val[MEASURE].num == OF_PROMPT;
}

static int n_doubles(const struct policy *p)
{
    return by_prompt(p) ? 2 : 1;
}

static int *ints(const struct policy *p, int which)
{
    struct st *st = p->state;
    int *first;

    first = (int *)(st->real + (size_t)n_doubles(p) * (size_t)p->sh.n_layer);
    return first + (size_t)which * (size_t)p->sh.n_layer;
}

/* The layers' weights with shape=entropy or gini, [n_layer]; NULL: another shape */
static double *weights(const struct policy *p)
{
    struct st *st = p->state;

    return by_prompt(p) ? st->real + p->sh.n_layer : p->mem;
}

/* measure=prompt */
static int open_rows(struct policy *p, struct layer_plan *row)
{
    if (p->val[SHAPE].num < ENTROPY || p->val[PRESET].set)
        return cb_policy_refuse(p, "measure=prompt: goes with shape=entropy or gini, and with no "
                                   "preset");
    if (p->val[GROUP].num == VOTE_EACH || p->val[FLOOR].num < 1)
        return cb_policy_refuse(p, "measure=prompt: needs group=mean or max, and floor=1");
    for (int l = 0; l < p->sh.n_layer; l++)
        row[l].late = 1; /* budgets need all layers' scores */
    p->slot_floats = VOTE_COLUMNS;
    p->mem = calloc(2 * (size_t)p->sh.n_ctx, sizeof(float));
    return p->mem ? 0 : cb_policy_no_memory(p);
}

/* The layers' weights as measured before */
static int measured(struct policy *p)
{
    const int gini = p->val[SHAPE].num == GINI;
    struct preset *x;
    int err = cb_preset_open(p, p->val[PRESET].text, &x);

    if (err)
        return err;
    if (!x)
        return cb_policy_refuse(p,
                                "shape=%s: needs preset=FILE, as calibrate pyramid writes it, or "
                                "measure=prompt",
                                gini ? "gini" : "entropy");
    p->mem = malloc((size_t)p->sh.n_layer * sizeof(double));
    err = p->mem ? cb_preset_numbers(p, x, gini ? "gini" : "entropy", p->mem, p->sh.n_layer)
                 : cb_policy_no_memory(p);
    snprintf(p->note, sizeof p->note, "policy pyramidkv: budgets as preset %.190s measured",
             cb_preset_path(x));
    cb_preset_close(x);
    return err;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double least = p->val[WINDOW].num + p->val[SINK].num;
    int err;

    if ((int)p->val[KERNEL].num % 2 == 0)
        return cb_policy_refuse(p, "kernel=%.10g: must be odd", p->val[KERNEL].num);
    if (p->val[BUDGET].num >= 1 && p->val[BUDGET].num <= least)
        return cb_policy_refuse(p, "budget=%.10g: must be more than window + sink = %.10g",
                                p->val[BUDGET].num, least);
    if (p->val[SHAPE].num > LINEAR && p->val[BUDGETS].num > EXACT)
        return cb_policy_refuse(p, "budgets: those programs know shape=linear alone");
    if (p->val[GROUP].num == VOTE_EACH && (p->val[DECODE].num == BOUNDED || p->val[FLOOR].num < 1))
        return cb_policy_refuse(p, "group=each: needs decode=grow and floor=1");
    for (int l = 0; l < sh->n_layer; l++)
        row[l] = cb_votes_plan(p, (int)p->val[GROUP].num, (int)p->val[WINDOW].num,
                               (int)p->val[KERNEL].num, (int)p->val[POOL].num);
    err = by_prompt(p) ? open_rows(p, row) : p->val[SHAPE].num >= ENTROPY ? measured(p) : 0;
    if (err)
        return err;
    return cb_policy_state(
        p, sizeof(struct st) + (size_t)sh->n_layer *
                                   ((size_t)n_doubles(p) * sizeof(double) + N_INTS * sizeof(int)));
}

/* As in the authors' program: integer steps. Their rounding exceeds the budget on deep models. */
static void compat_budgets(int n_layer, int mean, int beta, int n, int cand, int *out)
{
    int low = mean / beta, high = 2 * mean - low;

    if (high >= cand) {
        high = cand;
        low = 2 * mean - high;
    }
    for (int l = 0; l < n_layer; l++)
        out[l] = n < 2 * mean ? mean : high - (n_layer > 1 ? (high - low) / (n_layer - 1) : 0) * l;
}

/* As in kvpress: `mean` includes the window, out[] does not. */
static void kvpress_budgets(const struct policy *p, double mean, int n, int *out)
{
    const int n_layer = p->sh.n_layer, window = (int)p->val[WINDOW].num;
    double low = mean / p->val[BETA].num, high = 2 * mean - low;

    if (high >= n - window) {
        high = n - window;
        low = 2 * mean - high;
    }
    for (int l = 0; l < n_layer; l++) {
        const double step = n_layer > 1 ? (high - low) / (n_layer - 1) : 0;
        const int flat = !(n >= high && high >= low && low >= window);
        out[l] = (int)fmax(1, rint(flat ? mean : high - l * step)) - window;
    }
}

static void weighted(double *real, int n, double mean, const double *weight, double max)
{
    double sum = 0;
    for (int l = 0; l < n; l++)
        sum += weight[l];
    for (int l = 0; l < n; l++) /* all alike before a prompt was measured */
        real[l] = sum > 0 ? mean * n * weight[l] / sum : mean;
    cb_share_cap(real, n, mean * n, max);
}

/* Tokens that each layer chooses besides the window, from a prompt of n tokens -> out[n_layer] */
static void budgets(const struct policy *p, int n, int budget, int *out)
{
    static void (*const shape[])(double *, int, double, double, double) = { cb_share_linear,
                                                                            cb_share_geometric,
                                                                            cb_share_exponential };
    const int n_layer = p->sh.n_layer, window = (int)p->val[WINDOW].num;
    const int mean = budget > window ? budget - window : 0, cand = n - window;
    double *real = ((struct st *)p->state)->real;

    if (n <= budget) {
        for (int l = 0; l < n_layer; l++)
            out[l] = n;
    } else if (p->val[BUDGETS].num == COMPAT) {
        compat_budgets(n_layer, mean, (int)p->val[BETA].num, n, cand, out);
    } else if (p->val[BUDGETS].num == KVPRESS) {
        kvpress_budgets(p, p->val[BUDGET].num < 1 ? p->val[BUDGET].num * n : budget, n, out);
    } else {
        if (p->val[SHAPE].num >= ENTROPY)
            weighted(real, n_layer, mean, weights(p), cand);
        else
            shape[(int)p->val[SHAPE].num](real, n_layer, mean, p->val[BETA].num, cand);
        cb_share_round(real, n_layer, mean * n_layer, out);
    }
}

/* Entries of the fullest layer when layer 0 compacts. The others have yet to get this feed. */
static int fullest(const struct policy *p)
{
    int most = 0;
    for (int l = 0; l < p->sh.n_layer; l++) {
        const int n = cb_view_len(p, l, 0) + (l ? cb_view_fed(p) : 0);
        most = n > most ? n : most;
    }
    return most;
}

static int kept(const struct policy *p, int budget, int chosen)
{
    const int window = (int)p->val[WINDOW].num;
    return chosen + (window < budget ? window : budget);
}

/* The layer's weight: mean over KV heads of the measure of the head's mean row. KV heads may hold
 * different tokens, so there is no mean row of the layer. */
static void weigh(struct policy *p, int l, const struct scores *s)
{
    float *row = p->mem, *tmp = row + p->sh.n_ctx;
    double *weight = weights(p) + l;

    *weight = 0;
    for (int h = 0; h < s->n_row; h++) {
        const float *x = s->raw + (size_t)h * (size_t)s->stride;
        const int n = cb_view_len(p, l, h);
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += (double)x[i];
        for (int i = 0; i < n; i++)
            row[i] = sum > 0 ? (float)((double)x[i] / sum) : 0;
        *weight += (p->val[SHAPE].num == GINI ? cb_row_gini(row, n, tmp) : cb_row_entropy(row, n)) /
                   s->n_row;
    }
}

static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    (void)state;
    if (by_prompt(p) && s->prompt) {
        weigh(p, l, s);
        cb_votes_store(p, l, s);
    }
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = p->state;
    const int prompt = cb_evict_at_prompt(e);
    int budget, keep, n, tail;

    (void)state;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    budget = cb_policy_budget(p, p->val[BUDGET].num, prompt && l == 0, &st->share);
    if (budget < 0)
        return budget;
    if (prompt && l == 0)
        budgets(p, fullest(p), budget, ints(p, CHOSEN));
    keep = kept(p, budget, ints(p, CHOSEN)[l]);
    tail = keep + (int)p->val[TAIL].num - ints(p, FIRST)[l];
    if (!prompt)
        return cb_evict_drop_tail(e, cb_view_tail(p, tail), tail);
    n = cb_evict_mean_len(e);
    ints(p, FIRST)[l] = n < keep ? n : keep;
    return cb_evict_keep_votes(p, l, e, s, keep, (int)p->val[SINK].num, (int)p->val[WINDOW].num,
                               p->val[FLOOR].num);
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int budget = cb_keep_budget(p->val[BUDGET].num, n_prompt), tail = (int)p->val[TAIL].num;
    int keep, n;

    budgets(p, n_prompt, budget, ints(p, SCRATCH));
    keep = kept(p, budget, ints(p, SCRATCH)[l]);
    n = cb_keep_votes_most(p, n_prompt, keep, (int)p->val[SINK].num, (int)p->val[WINDOW].num) +
        n_gen;
    return p->val[DECODE].num == BOUNDED && n > keep + tail ? keep + tail : n;
}

const struct method cb_method_pyramidkv = {
    .name = "pyramidkv",
    .cite = "Cai et al., arXiv:2406.02069",
    .brief = "SnapKV with budgets that fall from the bottom to the top layer",
    .opts = opts,
    .plan = plan_layers,
    .observe = observe,
    .compact = compact,
    .slots = slots_after,
};
