/* SPDX-License-Identifier: MIT */
/* d2o.c - D2O (Wan et al., 2024): sinks, heavy hitters and recent tokens, more of them in layers whose
 * attention is spread out (section 3.2). A dropped token is merged into the kept one with the most
 * similar key when it is similar enough (section 3.3; equation 11 with its numerator term by term, so
 * that the weights of a merge sum to one). */
#include "../policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUDGET, RECENT, SINK, LAYERS, PRESET, ALPHA, GATE, MERGE, BETA, MERGE_SINKS, DECODE };
enum { SOFTMAX, GATED, FIRST2, UNIFORM, MEASURED };
enum { EQ11, AVERAGE, NO_MERGE };
enum { BOUNDED, GROW };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "kept beside the sinks, mean over layers; below 1 a share",
                 OPT_NUM, 0.2, 1e-6, 1e9, NULL },
    [RECENT] = { "recent", "tokens", "of them, last tokens; below 1 a share of the budget", OPT_NUM,
                 0.25, 0, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always kept", OPT_INT, 4, 0, 1e9, NULL },
    [LAYERS] = { "layers", NULL,
                 "how the budget is split; first2: all in the lowest two; preset: as measured "
                 "before, see preset",
                 OPT_CHOICE, SOFTMAX, 0, 0, "softmax gate first2 uniform preset" },
    [PRESET] = { "preset", "file",
                 "layers=preset: as calibrate density writes it; default: the model's", OPT_TEXT, 0,
                 0, 0, NULL },
    [ALPHA] = { "alpha", NULL, "layers=gate: a dense layer's budget beside a sparse one's", OPT_NUM,
                3, 1, 1000, NULL },
    [GATE] = { "gate", NULL, "layers=gate: dense up to this variance a prompt token", OPT_NUM, 0.1,
               0, 1e9, NULL },
    [MERGE] = { "merge", NULL, "weights of merged tokens: by similarity, equal; or no merging",
                OPT_CHOICE, EQ11, 0, 0, "eq11 avg off" },
    [BETA] = { "beta", NULL, "weight of the newest similarity in the threshold", OPT_NUM, 0.7, 0, 1,
               NULL },
    [MERGE_SINKS] = { "merge_sinks", NULL, "tokens may be merged into sinks", OPT_FLAG, 1, 0, 1,
                      NULL },
    [DECODE] = { "decode", NULL, "bounded: one token goes at each step; grow: none does",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

struct layer {
    double spread;     /* of the attention, as the rule for layers has it */
    int heavy, recent; /* its budget */
};

/* Of the whole method; behind it double real[n_layer], similarity[n_layer][n_kv], the thresholds. */
struct st {
    int ready;             /* layers have their budgets */
    int evicts;            /* something was dropped: budgets in tokens stay as they are */
    struct layer layer[1]; /* [n_layer] */
};

static double *real(const struct policy *p)
{
    struct st *st = p->state;
    void *behind = st->layer + p->sh.n_layer;
    return behind;
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
    err = p->mem ? cb_preset_numbers(p, x, "spread", p->mem, p->sh.n_layer)
                 : cb_policy_refuse(p, "out of memory");
    snprintf(p->note, sizeof p->note, "policy d2o: budgets as preset %.190s measured",
             cb_preset_path(x));
    cb_preset_close(x);
    return err;
}

static int plan(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const size_t n = (size_t)sh->n_layer, n_kv = (size_t)sh->n_kv;
    int err = 0;

    if (p->val[LAYERS].num == MEASURED)
        err = measured(p);
    else if (p->val[PRESET].set)
        err = cb_policy_refuse(p, "preset: goes with layers=preset");
    if (err)
        return err;
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].want.when = p->val[DECODE].num == GROW ? WHEN_PROMPT : WHEN_ALWAYS;
        row[l].want.heads = EACH_HEAD;
        row[l].late = p->val[LAYERS].num <= GATED; /* layers are compared */
    }
    return cb_policy_state(p, sizeof(struct st) + n * sizeof(struct layer) +
                                  (n + n * n_kv) * sizeof(double));
}

/* softmax: mean over heads of each one's variance, scaled to 0..1; gate: that of the heads' mean */
static double spread(const struct policy *p, const struct scores *s)
{
    return p->val[LAYERS].num == GATED ? cb_scores_variance(s, 0, s->n_row) : cb_scores_spread(s);
}

static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    const int group = p->sh.n_head / p->sh.n_kv;
    struct st *st = p->state;

    (void)state;
    for (int h = 0; h < s->n_row; h++) {
        const int n = cb_view_len(p, l, h / group);
        float *acc = cb_view_col(p, l, h / group, 0);
        for (int i = 0; i < n; i++)
            acc[i] += s->s[(size_t)h * (size_t)s->stride + (size_t)i];
    }
    if (s->prompt)
        st->layer[l].spread = spread(p, s);
    return 0;
}

/* A layer's weight in the split of the budget. */
static double weight(const struct policy *p, int l, int n)
{
    const double *given = p->mem;
    const double x = given ? given[l] : ((const struct st *)p->state)->layer[l].spread;

    if (p->val[LAYERS].num == SOFTMAX || given)
        return exp(-x);
    return p->val[LAYERS].num == GATED && x <= p->val[GATE].num * n ? p->val[ALPHA].num : 1;
}

/* The budget's parts for n tokens -> [n_layer]. Of more than a layer has, the others get the rest. */
static const double *split(const struct policy *p, int n)
{
    const double of = p->val[BUDGET].num < 1 ? p->val[BUDGET].num * n : p->val[BUDGET].num;
    const int n_layer = p->sh.n_layer;
    double *share = real(p), sum = 0;

    for (int l = 0; l < n_layer; l++)
        sum += share[l] = weight(p, l, n);
    for (int l = 0; l < n_layer; l++)
        share[l] *= of * n_layer / sum;
    cb_share_cap(share, n_layer, of * n_layer, fmax(of, n));
    return share;
}

/* n: tokens of the timeline */
static void set_budgets(struct policy *p, int n)
{
    const double *share = split(p, n), r = p->val[RECENT].num;
    struct st *st = p->state;

    for (int l = 0; l < p->sh.n_layer; l++) {
        struct layer *y = &st->layer[l];
        y->recent = (int)fmax(1, floor(r < 1 ? share[l] * r : r));
        y->heavy = (int)fmax(1, floor(r < 1 ? share[l] * (1 - r) : share[l] - r));
        if (l < 2 && p->val[LAYERS].num == FIRST2)
            y->heavy = 1000000000;
    }
    st->ready = 1;
}

/* Merges what leaves into what resembles it most, if similar enough; keep[n] stays. */
static int merge(struct policy *p, int l, int kv, struct edit *e, const int *keep, int n)
{
    double *tau = real(p) + p->sh.n_layer + l * p->sh.n_kv + kv, mean = 0; /* 0: not set */
    const struct near_slot *near;
    const int n_out = cb_view_nearest(p, l, kv, keep, n, &near), sink = (int)p->val[SINK].num;

    for (int i = 0; i < n_out; i++)
        mean += (double)near[i].cosine / n_out;
    if (n_out > 0)
        *tau = *tau != 0 ? p->val[BETA].num * mean + (1 - p->val[BETA].num) * *tau : mean;
    for (int i = 0; i < n_out; i++) {
        const double u = (double)near[i].cosine;
        const float own = p->val[MERGE].num == EQ11 ? expf(1) : 1;
        int err;
        if (u < *tau || (near[i].to < sink && p->val[MERGE_SINKS].num == 0))
            continue;
        err = cb_edit_merge(e, kv, near[i].to, own, near[i].from,
                            p->val[MERGE].num == EQ11 ? expf((float)u) : 1);
        if (err)
            return err;
    }
    return n_out < 0 ? n_out : 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct edit *e)
{
    struct st *st = p->state;
    const int prompt = cb_edit_at_prompt(e), sink = (int)p->val[SINK].num;
    int err = 0;

    (void)state;
    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    if (l == 0 && (prompt ? p->val[BUDGET].num < 1 || !st->evicts : !st->ready)) {
        if (!prompt && p->val[BUDGET].num < 1)
            return cb_policy_refuse(p, "budget=%g: a share needs a prompt", p->val[BUDGET].num);
        set_budgets(p, cb_view_seen(p));
    }
    for (int h = 0; h < p->sh.n_kv && !err; h++) {
        const int n = cb_view_len(p, l, h), recent = st->layer[l].recent;
        const int keep = sink + st->layer[l].heavy + recent;
        if (n <= keep)
            continue;
        st->evicts = 1;
        err = cb_edit_keep_top(e, h, cb_view_col(p, l, h, 0), NULL, n, keep, sink, recent);
        if (!err && p->val[MERGE].num != NO_MERGE)
            err = merge(p, l, h, e, cb_edit_kept(e, h), keep);
    }
    return err;
}

/* Where layers are compared, the mean: which of them has more only a run can tell. */
static int slots(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const double mean = p->val[BUDGET].num < 1 ? p->val[BUDGET].num * n_prompt : p->val[BUDGET].num;
    const double of = p->mem ? split(p, n_prompt)[l] : mean;
    const double r = p->val[RECENT].num, heavy = r < 1 ? of * (1 - r) : of - r;
    const double both = p->val[LAYERS].num <= GATED
                            ? of - 1 /* what two numbers rounded down cost */
                            : fmax(1, floor(heavy)) + fmax(1, floor(r < 1 ? of * r : r));
    const int keep = (int)fmin(1e9, both + p->val[SINK].num), n = n_prompt + n_gen;

    if (l < 2 && p->val[LAYERS].num == FIRST2)
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
    .plan = plan,
    .observe = observe,
    .compact = compact,
    .slots = slots,
};
