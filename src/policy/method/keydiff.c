/* SPDX-License-Identifier: MIT */
/* keydiff.c - KeyDiff (Park et al., 2025): each KV head keeps the tokens whose keys are least like
 * the others, by the cosine with the mean of all keys' directions. No attention scores are needed,
 * so a prompt can be dropped as it goes: the peak is then the budget and a block. */
#include <math.h>

#include "policy/policy.h"

enum { BUDGET, SINK, DROP, BLOCK, DECODE };
enum { AT_PROMPT_END, IN_BLOCKS };
enum { GROW, BOUNDED };
enum { MAX_HD = KV_MAX_HD };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "prompt tokens kept; below 1 a share", OPT_NUM, 1024, 1e-6,
                 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens kept whatever their keys", OPT_INT, 0, 0, 1e9,
               NULL },
    [DROP] = { "drop", NULL,
               "when tokens of the prompt go: at its end, or also after each block of it",
               OPT_CHOICE, AT_PROMPT_END, 0, 0, "prompt-end chunk" },
    [BLOCK] = { "chunk", "tokens", "tokens of a block", OPT_INT, 128, 1, 1 << 20, NULL },
    [DECODE] = { "decode", NULL,
                 "grow: generated tokens stay; bounded: tokens go after each block of them",
                 OPT_CHOICE, GROW, 0, 0, "grow bounded" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int share; /* a budget below 1 as a count, set by the last prompt */
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    if (p->val[BUDGET].num >= 1 && p->val[SINK].num >= p->val[BUDGET].num)
        return cb_policy_refuse(p, "budget=%.10g: must be more than sink = %.10g",
                                p->val[BUDGET].num, p->val[SINK].num);
    for (int l = 0; l < sh->n_layer; l++)
        row[l].drop_every = p->val[DROP].num == IN_BLOCKS ? (int)p->val[BLOCK].num : 0;
    return 0;
}

static double length(const float *x, int hd)
{
    double sum = 0;

    for (int c = 0; c < hd; c++)
        sum += (double)x[c] * (double)x[c];
    return sum > 0 ? sqrt(sum) : 1;
}

/* The sum of the n keys' directions -> y[hd] */
static void directions(const struct eviction *e, int kv, int n, int hd, double *y)
{
    float x[CB_EVICT_KEYS * MAX_HD];

    for (int c = 0; c < hd; c++)
        y[c] = 0;
    for (int from = 0; from < n; from += CB_EVICT_KEYS) {
        const int m = n - from < CB_EVICT_KEYS ? n - from : CB_EVICT_KEYS;
        cb_evict_keys(e, kv, from, m, x);
        for (int i = 0; i < m; i++) {
            const float *key = x + (size_t)i * (size_t)hd;
            const double scale = 1 / length(key, hd);
            for (int c = 0; c < hd; c++)
                y[c] += (double)key[c] * scale;
        }
    }
}

/* How little each key is like the others: minus its cosine with y, but for y's length -> s[n] */
static void differences(const struct eviction *e, int kv, int n, int hd, const double *y, float *s)
{
    float x[CB_EVICT_KEYS * MAX_HD];

    for (int from = 0; from < n; from += CB_EVICT_KEYS) {
        const int m = n - from < CB_EVICT_KEYS ? n - from : CB_EVICT_KEYS;
        cb_evict_keys(e, kv, from, m, x);
        for (int i = 0; i < m; i++) {
            const float *key = x + (size_t)i * (size_t)hd;
            double sum = 0;
            for (int c = 0; c < hd; c++)
                sum -= (double)key[c] * y[c];
            s[from + i] = (float)(sum / length(key, hd));
        }
    }
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    int keep, err = 0;

    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, p->val[BUDGET].num, prompt, &st->share);
    if (keep < 0 || n <= keep || (!prompt && n < keep + (int)p->val[BLOCK].num))
        return keep < 0 ? keep : 0;
    for (int h = 0; h < p->sh.n_kv && !err; h++) {
        double y[MAX_HD];
        directions(e, h, n, p->sh.hd, y);
        differences(e, h, n, p->sh.hd, y, cb_evict_row(e));
        err = cb_evict_keep_top(e, h, cb_evict_row(e), NULL, n, keep, (int)p->val[SINK].num, 0);
    }
    return err;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int keep = cb_keep_budget(p->val[BUDGET].num, n_prompt), block = (int)p->val[BLOCK].num;
    const int n = (keep < n_prompt ? keep : n_prompt) + n_gen;

    (void)l;
    return p->val[DECODE].num == GROW || n < keep ? n : keep + (n - keep) % block;
}

const struct method cb_method_keydiff = {
    .name = "keydiff",
    .cite = "Park et al., arXiv:2504.15364",
    .brief = "keeps the tokens whose keys differ most from the others",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
