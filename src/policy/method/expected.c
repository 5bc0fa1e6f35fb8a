/* SPDX-License-Identifier: MIT */
/* expected.c - Expected Attention (Devoto et al., 2025): keeps the prompt tokens that queries yet
 * to come are expected to attend to, by mean and covariance of the prompt's queries, weighted with
 * the length of their values. It does not look at a question. */
#include "policy/policy.h"

enum { BUDGET, SINK, FUTURE, EPS, FLOOR };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "prompt tokens kept; below 1 a share", OPT_NUM, 1024, 1e-6,
                 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, which are kept and get no score", OPT_INT, 4, 0,
               65536, NULL },
    [FUTURE] = { "future", "tokens", "positions after the prompt for which queries are expected",
                 OPT_INT, 512, 1, 65536, NULL },
    [EPS] = { "eps", NULL,
              "added to each expected weight; the larger, the more the values' length counts",
              OPT_NUM, 0.01, 0, 1, NULL },
    [FLOOR] = { "floor", NULL,
                "share of the tokens that a KV head chooses by itself; below 1 the heads of a "
                "layer compete for the rest by their scores (Ada-KV)",
                OPT_NUM, 0.2, 0, 1, NULL },
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
        row[l].score = (struct score_plan){ .when = WHEN_PROMPT,
                                            .heads = PER_KV_HEAD_MEAN,
                                            .sink = (int)p->val[SINK].num,
                                            .future = (int)p->val[FUTURE].num,
                                            .eps = (float)p->val[EPS].num };
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    int keep;

    if (!cb_evict_at_prompt(e))
        return 0;
    keep = cb_policy_budget(p, p->val[BUDGET].num, 1, &st->share);
    if (keep < 0)
        return keep;
    return cb_evict_keep_votes(p, l, e, s, keep, (int)p->val[SINK].num, 0, p->val[FLOOR].num);
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, 1);
}

const struct method cb_method_expected = {
    .name = "expected",
    .cite = "Devoto et al., arXiv:2510.00636",
    .brief = "keeps the prompt tokens that future queries are expected to attend to",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
