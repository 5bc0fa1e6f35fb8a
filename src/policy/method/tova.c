/* SPDX-License-Identifier: MIT */
/* tova.c - TOVA (Oren et al., 2024, section 3.2): keeps the tokens that the current query attends
 * to most. */
#include "policy/policy.h"

enum { BUDGET };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept; below 1 a share of the prompt", OPT_NUM, 1024,
                 1e-6, 1e9, NULL },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int share; /* a budget below 1 as a count, set by the last prompt */
};

/* One row of scores for each layer: the mean over all heads, for the last query of a prompt or of a
 * step. */
static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    (void)p;
    for (int l = 0; l < sh->n_layer; l++)
        row[l].score = (struct score_plan){ .when = WHEN_ALWAYS, .window = 1, .heads = MEAN_HEADS };
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    float *age = cb_evict_row(e); /* of equal ones the newer stays */
    const int n = cb_view_len(p, l, 0);
    const int keep = cb_policy_budget(p, p->val[BUDGET].num, cb_evict_at_prompt(e), &st->share);
    int err = 0;

    if (keep < 0 || n <= keep)
        return keep < 0 ? keep : 0;
    for (int i = 0; i < n; i++)
        age[i] = (float)i;
    for (int h = 0; h < p->sh.n_kv && !err; h++)
        err = cb_evict_keep_top(e, h, s->s, age, n, keep, 0, 0);
    return err;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, 0);
}

const struct method cb_method_tova = {
    .name = "tova",
    .cite = "Oren et al., arXiv:2401.06104",
    .brief = "keeps the tokens that the current query attends to most",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
