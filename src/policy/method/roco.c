/* SPDX-License-Identifier: MIT */
/* roco.c - RoCo (Ren and Zhu, 2024): of the tokens whose attention from query to query is steady,
 * those with the lowest mean attention are evicted. A prompt is read dense up to the budget, then
 * piece by piece, and each piece evicts as many tokens as it has. */
#include <math.h>

#include "policy/policy.h"

enum { BUDGET, STRIDE, EXEMPT, SINK, TAIL };
enum { SUM, SQUARES, COUNT, N_COL }; /* columns: over the queries that have seen the slot */

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept; below 1 a share of the prompt", OPT_NUM, 1024,
                 1e-6, 1e9, NULL },
    [STRIDE] = { "stride", "tokens", "tokens of a prompt after which slots go", OPT_INT, 32, 1,
                 65536, NULL },
    [EXEMPT] = { "exempt", NULL,
                 "share of the budget that stays for its unsteady attention, the first tokens "
                 "besides",
                 OPT_NUM, 0.1, 0, 1, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always kept", OPT_INT, 4, 0, 65536, NULL },
    [TAIL] = { "tail", "tokens", "last tokens, always kept", OPT_INT, 10, 0, 65536, NULL },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int share; /* a budget below 1 as a count, set by the last prompt */
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double ends = p->val[SINK].num + p->val[TAIL].num;

    if (p->val[BUDGET].num >= 1 && p->val[BUDGET].num <= ends)
        return cb_policy_refuse(p, "budget=%.10g: must be more than sink + tail = %.10g",
                                p->val[BUDGET].num, ends);
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].score = (struct score_plan){ .when = WHEN_ALWAYS, .squares = 1 };
        row[l].drop_every = (int)p->val[STRIDE].num;
    }
    return 0;
}

/* Adds the scores of the queries since the last call. */
static void add(struct policy *p, int l, int kv, const struct scores *s)
{
    const int n = cb_view_len(p, l, kv);
    const size_t row = (size_t)kv * (size_t)s->stride;
    float *sum = cb_view_col(p, l, kv, SUM), *squares = cb_view_col(p, l, kv, SQUARES);
    float *count = cb_view_col(p, l, kv, COUNT);

    for (int j = 0; j < n; j++) {
        const float x = s->s[row + (size_t)j];
        sum[j] += x;
        squares[j] += s->squares ? s->squares[row + (size_t)j] : x * x;
        count[j] += (float)(s->n_query < n - j ? s->n_query : n - j); /* a query sees no later */
    }
}

/* What a KV head's slots have had: mean attention, or its standard deviation -> out[n] */
static void measure(struct policy *p, int l, int kv, int n, int deviation, float *out)
{
    const float *sum = cb_view_col(p, l, kv, SUM), *squares = cb_view_col(p, l, kv, SQUARES);
    const float *count = cb_view_col(p, l, kv, COUNT);

    for (int j = 0; j < n; j++) {
        const double c = count[j] > 0 ? (double)count[j] : 1, mean = (double)sum[j] / c;
        const double var = (double)squares[j] / c - mean * mean;
        out[j] = (float)(deviation ? sqrt(var > 0 ? var : 0) : mean);
    }
}

/* A KV head keeps `keep` slots: the ends; the `exempt` slots whose attention is least steady; and
 * of the `steady` others those with the largest means. At least as many are steady as are
 * evicted. */
static int keep_head(struct policy *p, int l, int kv, struct eviction *e, int keep)
{
    const int n = cb_view_len(p, l, kv), sink = (int)p->val[SINK].num, tail = (int)p->val[TAIL].num;
    const int rest = keep - (int)(p->val[EXEMPT].num * keep) - sink;
    const int steady = rest > n - keep ? rest : n - keep, exempt = n - sink - tail - steady;
    float *row = cb_evict_row(e);
    int *slot = cb_evict_tmp(e), m;

    measure(p, l, kv, n, 1, row);
    m = cb_keep_top(row, NULL, n, sink + tail + (exempt > 0 ? exempt : 0), sink, tail, slot);
    if (m < 0)
        return m;
    measure(p, l, kv, n, 0, row);
    for (int i = 0; i < m; i++)
        row[slot[i]] = INFINITY;
    return cb_evict_keep_top(e, kv, row, NULL, n, keep, sink, tail);
}

/* What a prompt attends to before it has filled the budget does not count. */
static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    const int keep = cb_policy_budget(p, p->val[BUDGET].num, prompt, &st->share);
    int err = 0;

    if (keep < 0 || (prompt && n <= keep))
        return keep < 0 ? keep : 0;
    for (int h = 0; h < p->sh.n_kv && !err; h++) {
        add(p, l, h, s);
        if (n > keep)
            err = keep_head(p, l, h, e, keep);
    }
    return err;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, 0);
}

const struct method cb_method_roco = {
    .name = "roco",
    .cite = "Ren and Zhu, arXiv:2402.06262",
    .brief = "drops the tokens that get little attention and get it steadily",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .slot_floats = N_COL,
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
