/* SPDX-License-Identifier: MIT */
/* d2o.c - D2O (Wan et al., 2024): sinks, heavy hitters and recent tokens, more of them in layers
 * whose attention is spread out (section 4.1). Dropped tokens may be merged into kept ones
 * (d2o_merge.c). */
#include "d2o.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUDGET,
    RECENT,
    SINK,
    LAYERS,
    PRESET,
    ALPHA,
    GATE,
    PROTECT,
    MERGE,
    SIMILAR,
    BETA,
    MERGE_SINKS,
    MERGE_KEYS,
    DROP,
    DECODE
};
enum { SOFTMAX, GATED, FIRST2, UNIFORM, MEASURED, PAPER };
enum { AT_PROMPT_END, AT_FIRST_STEP };
enum { BOUNDED, GROW };
enum { ALL = 1000000000 };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens",
                 "tokens kept besides the sinks, mean over layers; below 1 a share of the prompt",
                 OPT_NUM, 0.2, 1e-6, 1e9, NULL },
    [RECENT] = { "recent", "tokens", "last tokens among them; below 1 a share of the budget",
                 OPT_NUM, 0.25, 0, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always kept", OPT_INT, 4, 0, 1e9, NULL },
    [LAYERS] = { "layers", NULL,
                 "how the budget is split; first2: all in the lowest two; preset: as measured "
                 "before, see preset; paper: dense layers keep alpha budgets, the others one",
                 OPT_CHOICE, SOFTMAX, 0, 0, "softmax gate first2 uniform preset paper" },
    [PRESET] = { "preset", "file",
                 "layers=preset: as calibrate density writes it; default: the model's", OPT_FILE, 0,
                 0, 0, NULL },
    [ALPHA] = { "alpha", NULL,
                "layers=gate and paper: a dense layer's budget beside a sparse one's", OPT_NUM, 3,
                1, 1000, NULL },
    [GATE] = { "gate", NULL,
               "layers=gate: dense up to this variance a prompt token; layers=paper: dense up to "
               "this variance, 100 if not given",
               OPT_NUM, 0.1, 0, 1e9, NULL },
    [PROTECT] = { "protect", "layers",
                  "layers that keep all, beside the budget: 0+1+31; compat: the lowest two and "
                  "the last, as the published code",
                  OPT_LIST, 0, 0, 0, NULL },
    [MERGE] = { "merge", NULL,
                "weights of merged tokens: e^similarity; with the paper's sum in each numerator; "
                "the published code's; equal; or no merging",
                OPT_CHOICE, D2O_EQ11, 0, 0, "eq11 printed code avg off" },
    [SIMILAR] = { "similar", NULL,
                  "what two tokens are compared by; each: a key is merged into the most similar "
                  "key, a value into the most similar value",
                  OPT_CHOICE, D2O_KEYS, 0, 0, "keys values each" },
    [BETA] = { "beta", NULL, "weight of the newest similarity in the threshold", OPT_NUM, 0.7, 0, 1,
               NULL },
    [MERGE_SINKS] = { "merge_sinks", NULL, "tokens may be merged into sinks", OPT_FLAG, 1, 0, 1,
                      NULL },
    [MERGE_KEYS] = { "merge_keys", NULL, "keys are merged as well as values", OPT_FLAG, 1, 0, 1,
                     NULL },
    [DROP] = { "drop", NULL,
               "when tokens of the prompt go: at its end, or after the first generated token, as "
               "in "
               "the published code",
               OPT_CHOICE, AT_PROMPT_END, 0, 0, "prompt-end first-decode" },
    [DECODE] = { "decode", NULL, "bounded: one token goes at each step; grow: none does",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

struct layer_budget {
    double spread;     /* spread of the attention, as layers= defines it */
    double unit;       /* layers=gate: what the spread is compared with, see observe() */
    int heavy, recent; /* the layer's budget */
};

/* State of the whole method. After it lie double real[n_layer] and the thresholds
 * tau[n_layer][n_kv][n_tau()]. */
struct st {
    int ready;                    /* layers have their budgets */
    int waits;                    /* a prompt ended, and the next token drops (AT_FIRST_STEP) */
    int evicts;                   /* something was dropped: the token budgets are fixed now */
    struct layer_budget layer[1]; /* [n_layer] */
};

static double *real(const struct policy *p)
{
    struct st *st = p->state;
    void *behind = st->layer + p->sh.n_layer;
    return behind;
}

/* Thresholds of a KV head: of keys or of values, or of each */
static int n_tau(const struct policy *p)
{
    return p->val[SIMILAR].num == D2O_EACH ? 2 : 1;
}

/* Do variances of the layers' columns tell dense layers from sparse ones? */
static int gated(const struct policy *p)
{
    return p->val[LAYERS].num == GATED || p->val[LAYERS].num == PAPER;
}

/* Are budgets set when all layers have been compared? */
static int compares(const struct policy *p)
{
    return p->val[LAYERS].num == SOFTMAX || gated(p);
}

/* 1: layer l keeps all tokens */
static int is_protected(const struct policy *p, int l)
{
    const char *at = p->val[PROTECT].text;

    if (l < 2 && p->val[LAYERS].num == FIRST2)
        return 1;
    if (at && !strcmp(at, "compat"))
        return l < 2 || l == p->sh.n_layer - 1;
    for (; at; at = strchr(at, '+') ? strchr(at, '+') + 1 : NULL)
        if (strtol(at, NULL, 10) == l)
            return 1;
    return 0;
}

static int check_protect(const struct policy *p, const struct shape *sh)
{
    const char *text = p->val[PROTECT].text;
    char *mark;
    int err;

    if (!text || !strcmp(text, "compat"))
        return 0;
    mark = calloc((size_t)sh->n_layer, 1);
    err = mark ? cb_policy_layers(p, PROTECT, sh, mark) : cb_policy_no_memory(p);
    free(mark);
    return err;
}

/* The layers' spreads, [n_layer] */
static int measured(struct policy *p)
{
    struct preset *x;
    int err = cb_preset_open(p, p->val[PRESET].text, &x);

    if (err)
        return err;
    if (!x)
        return cb_policy_refuse(p,
                                "layers=preset: needs preset=FILE, as calibrate density writes it");
    p->mem = malloc((size_t)p->sh.n_layer * sizeof(double));
    err =
        p->mem ? cb_preset_numbers(p, x, "spread", p->mem, p->sh.n_layer) : cb_policy_no_memory(p);
    snprintf(p->note, sizeof p->note, "policy d2o: budgets as preset %.190s measured",
             cb_preset_path(x));
    cb_preset_close(x);
    return err;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const size_t n = (size_t)sh->n_layer, n_kv = (size_t)sh->n_kv;
    int err = check_protect(p, sh);

    if (!err && p->val[LAYERS].num == MEASURED)
        err = measured(p);
    else if (!err && p->val[PRESET].set)
        err = cb_policy_refuse(p, "preset: goes with layers=preset");
    if (!err && p->val[DROP].num == AT_FIRST_STEP && p->val[DECODE].num == GROW)
        err = cb_policy_refuse(p, "drop=first-decode: needs decode=bounded");
    if (!err && sh->one_row && p->val[MERGE_KEYS].num == 0)
        err = cb_policy_refuse(p, "merge_keys=0: the model stores one row as key and value");
    if (!err && sh->one_row && p->val[SIMILAR].num != D2O_KEYS)
        err = cb_policy_refuse(p, "similar: the model stores one row as key and value");
    if (!err && p->val[SIMILAR].num == D2O_EACH && p->val[MERGE_KEYS].num == 0)
        err = cb_policy_refuse(p, "similar=each: needs merge_keys=1");
    if (err)
        return err;
    p->at_most = p->val[LAYERS].num == PAPER; /* which layers are dense depends on the text */
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].score.when = p->val[DECODE].num == GROW ? WHEN_PROMPT : WHEN_ALWAYS;
        row[l].score.heads = EACH_HEAD;
        row[l].score.sums = 1;
        row[l].late = compares(p); /* budgets need all layers' scores */
    }
    return cb_policy_state(p, sizeof(struct st) + n * sizeof(struct layer_budget) +
                                  (n + n * n_kv * (size_t)n_tau(p)) * sizeof(double));
}

/* softmax: mean of the heads' variances, scaled to 0..1; gate and paper: variance of the heads'
 * mean */
static double spread(const struct policy *p, const struct scores *s)
{
    return gated(p) ? cb_scores_variance(s, 0, s->n_row) : cb_scores_spread(s);
}

static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    struct st *st = p->state;

    (void)state;
    /* once KV heads hold different tokens, there is no mean over heads to take */
    if (!s->prompt || (gated(p) && st->evicts))
        return 0;
    st->layer[l].spread = spread(p, s);
    /* One column with a part c of all rows makes a variance of (c rows)^2 / columns: c^2 n for a
     * first prompt of n tokens. Later prompts have more columns than rows. */
    st->layer[l].unit = (double)s->n_query * s->n_query / s->n;
    return 0;
}

/* The variance up to which layer y is dense. Section 5.1: g = 100, whatever the prompt's length. */
static double gate(const struct policy *p, const struct layer_budget *y)
{
    if (p->val[LAYERS].num == PAPER)
        return p->val[GATE].set ? p->val[GATE].num : 100;
    return p->val[GATE].num * y->unit;
}

/* A layer's weight in the split of the budget. */
static double weight(const struct policy *p, int l)
{
    const struct layer_budget *y = &((const struct st *)p->state)->layer[l];
    const double *given = p->mem;

    if (p->val[LAYERS].num == SOFTMAX || given)
        return exp(-(given ? given[l] : y->spread));
    return gated(p) && y->spread <= gate(p, y) ? p->val[ALPHA].num : 1;
}

/* The layers' parts of the budget for n tokens -> [n_layer]. None is more than n, or less than a
 * hundredth of it (unless the mean is); the others give or get the difference. layers=paper: S and
 * alpha S, as they are (equation 4). */
static const double *split(const struct policy *p, int n)
{
    const double of = p->val[BUDGET].num < 1 ? p->val[BUDGET].num * n : p->val[BUDGET].num;
    const int n_layer = p->sh.n_layer;
    double *share = real(p), sum = 0;

    for (int l = 0; l < n_layer; l++)
        sum += share[l] = weight(p, l);
    if (p->val[LAYERS].num == PAPER)
        sum = n_layer;
    for (int l = 0; l < n_layer; l++)
        share[l] *= of * n_layer / sum;
    if (p->val[LAYERS].num != PAPER)
        cb_share_clamp(share, n_layer, of * n_layer, fmin(of, 0.01 * n), fmax(of, n));
    return share;
}

/* n: tokens of the timeline */
static void set_budgets(struct policy *p, int n)
{
    const double *share = split(p, n), r = p->val[RECENT].num;
    struct st *st = p->state;

    for (int l = 0; l < p->sh.n_layer; l++) {
        struct layer_budget *y = &st->layer[l];
        y->recent = (int)fmax(1, floor(r < 1 ? share[l] * r : r));
        y->heavy = (int)fmax(1, floor(r < 1 ? share[l] * (1 - r) : share[l] - r));
        if (is_protected(p, l))
            y->heavy = ALL;
    }
    st->ready = 1;
}

/* Merges the tokens dropped from KV head kv. */
static int merge(struct policy *p, int l, int kv, struct eviction *e)
{
    double *tau = real(p) + p->sh.n_layer;
    const struct d2o_merge how = { .weights = (int)p->val[MERGE].num,
                                   .keys = (int)p->val[MERGE_KEYS].num,
                                   .similar = (int)p->val[SIMILAR].num,
                                   .first = p->val[MERGE_SINKS].num > 0 ? 0 : (int)p->val[SINK].num,
                                   .beta = p->val[BETA].num };
    return cb_d2o_merge(e, kv, &how, tau + n_tau(p) * (l * p->sh.n_kv + kv));
}

/* Does layer 0 set all budgets now? A share is one of the tokens fed so far; a count stays once
 * something was dropped. */
static int sets_budgets(const struct policy *p, struct st *st, int prompt)
{
    const int first = st->waits;

    st->waits = prompt && p->val[DROP].num == AT_FIRST_STEP;
    if (prompt || first)
        return !st->waits && (p->val[BUDGET].num < 1 || !st->evicts);
    return !st->ready;
}

/* Drops what exceeds the layer's budget, and merges it. */
static int drop(struct policy *p, int l, struct st *st, struct eviction *e)
{
    const int sink = (int)p->val[SINK].num, recent = st->layer[l].recent;
    const int keep = st->layer[l].heavy == ALL ? ALL : sink + st->layer[l].heavy + recent;
    int err = 0;

    for (int h = 0; h < p->sh.n_kv && !err; h++) {
        const int n = cb_view_len(p, l, h);
        if (n <= keep)
            continue;
        st->evicts = 1;
        err = cb_evict_keep_top(e, h, cb_view_col(p, l, h, 0), NULL, n, keep, sink, recent);
        if (!err && p->val[MERGE].num != D2O_DROP)
            err = merge(p, l, h, e);
    }
    return err;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = p->state;
    const int prompt = cb_evict_at_prompt(e), given = p->val[BUDGET].num >= 1;

    (void)state;
    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    if (!prompt && !given && !st->ready && !st->waits)
        return cb_policy_refuse(p, "budget=%.10g: a share needs a prompt", p->val[BUDGET].num);
    if (l == 0 && sets_budgets(p, st, prompt))
        set_budgets(p, cb_view_seen(p));
    return prompt && st->waits ? 0 : drop(p, l, st, e);
}

/* If layers are compared, returns the mean: only a run shows which layer gets more. layers=paper:
 * the most. */
static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const double mean = p->val[BUDGET].num < 1 ? p->val[BUDGET].num * n_prompt : p->val[BUDGET].num;
    const double of = p->mem                        ? split(p, n_prompt)[l]
                      : p->val[LAYERS].num == PAPER ? mean * p->val[ALPHA].num
                                                    : mean;
    const double r = p->val[RECENT].num, heavy = r < 1 ? of * (1 - r) : of - r;
    const double both = compares(p) ? of - 1 /* both parts are rounded down */
                                    : fmax(1, floor(heavy)) + fmax(1, floor(r < 1 ? of * r : r));
    const int keep = (int)fmin(1e9, both + p->val[SINK].num), n = n_prompt + n_gen;

    if (is_protected(p, l) || (p->val[DROP].num == AT_FIRST_STEP && !n_gen))
        return n;
    if (p->val[DECODE].num == GROW)
        return (n_prompt < keep ? n_prompt : keep) + n_gen;
    return n < keep ? n : keep;
}

const struct method cb_method_d2o = {
    .name = "d2o",
    .cite = "Wan et al., arXiv:2406.13035",
    .brief = "heavy hitters and recent tokens; similar ones are merged before they go",
    .opts = opts,
    .slot_floats = 1,
    .plan = plan_layers,
    .observe = observe,
    .compact = compact,
    .slots = slots_after,
    .merges = 1,
};
