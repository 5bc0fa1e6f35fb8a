/* SPDX-License-Identifier: MIT */
/* h2o.c - H2O (Zhang et al., 2023): keeps the tokens with the largest accumulated attention (heavy
 * hitters) and the most recent ones. Scores accumulate over every query of the prompt and every
 * decode step. A token is dropped after the attention of a step, in which it still took part. */
#include <string.h>

#include "policy/policy.h"

enum { BUDGET, RECENT, GROUP, DROP, CHUNK, POSITIONS, DECODE };
enum { GROUP_MAX, GROUP_MEAN };
enum { AT_PROMPT_END, AT_FIRST_STEP, IN_CHUNKS };
enum { KEPT, ROLLED };
enum { BOUNDED, GROW };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept; below 1 a share of the prompt", OPT_NUM, 1024,
                 1e-6, 1e9, NULL },
    [RECENT] = { "recent", "tokens", "last tokens among them; below 1 a share of the budget",
                 OPT_NUM, 0.5, 0, 1e9, NULL },
    [GROUP] = { "group", NULL, "how the sums of a KV head's query heads combine", OPT_CHOICE,
                GROUP_MAX, 0, 0, "max mean" },
    [DROP] = { "drop", NULL,
               "when tokens of the prompt go: at its end, after the first generated token, or also "
               "within it",
               OPT_CHOICE, AT_PROMPT_END, 0, 0, "prompt-end first-decode chunk" },
    [CHUNK] = { "chunk", "tokens", "drop=chunk: after every n tokens of the prompt", OPT_INT, 4096,
                1, 1 << 20, NULL },
    [POSITIONS] = { "positions", NULL,
                    "kept: distances in the text; rolled: distances in the cache, as in the "
                    "published "
                    "code for streams",
                    OPT_CHOICE, KEPT, 0, 0, "kept rolled" },
    [DECODE] = { "decode", NULL, "bounded: one token goes at each step; grow: none does",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int budget; /* a budget below 1 as a count, set by the last prompt */
};

/* The accumulated scores are columns of the store: one column for the mean, which differs from the
 * sum by a factor only; for the maximum one column for each query head, because the maximum of sums
 * is not the sum of maxima. */
static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int max = p->val[GROUP].num == GROUP_MAX;

    if (p->val[BUDGET].num >= 1 && p->val[RECENT].num > p->val[BUDGET].num)
        return cb_policy_refuse(p, "recent=%.10g: more than the budget of %.10g",
                                p->val[RECENT].num, p->val[BUDGET].num);
    if (p->val[DROP].num == AT_FIRST_STEP && p->val[DECODE].num == GROW)
        return cb_policy_refuse(p, "drop=first-decode: needs decode=bounded");
    p->slot_floats = max ? sh->n_head / sh->n_kv : 1;
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].score =
            (struct score_plan){ .when = p->val[DECODE].num == GROW ? WHEN_PROMPT : WHEN_ALWAYS,
                                 .heads = EACH_HEAD,
                                 .sums = 1 };
        row[l].rolling = p->val[POSITIONS].num == ROLLED ? ROLL_COMPACT : ROLL_NOT;
        row[l].drop_every = p->val[DROP].num == IN_CHUNKS ? (int)p->val[CHUNK].num : 0;
    }
    return 0;
}

/* -> score[n] of one KV head's slots */
static void heaviness(struct policy *p, int l, int kv, int n, float *score)
{
    memcpy(score, cb_view_col(p, l, kv, 0), (size_t)n * sizeof *score);
    for (int c = 1; c < p->slot_floats; c++) {
        const float *sum = cb_view_col(p, l, kv, c);
        for (int i = 0; i < n; i++)
            score[i] = score[i] > sum[i] ? score[i] : sum[i];
    }
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    float *score = cb_evict_row(e);
    int keep, recent;

    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, p->val[BUDGET].num, prompt, &st->budget);
    if (keep < 0 || n <= keep || (prompt && p->val[DROP].num == AT_FIRST_STEP))
        return keep < 0 ? keep : 0;
    recent = cb_keep_part(p->val[RECENT].num, keep);
    for (int h = 0, err; h < p->sh.n_kv; h++) {
        heaviness(p, l, h, n, score);
        err = cb_evict_keep_top(e, h, score, NULL, n, keep, 0, recent);
        if (err)
            return err;
    }
    return 0;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    if (p->val[DROP].num == AT_FIRST_STEP && !n_gen)
        return n_prompt;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, p->val[DECODE].num == GROW);
}

const struct method cb_method_h2o = {
    .name = "h2o",
    .cite = "Zhang et al., arXiv:2306.14048",
    .brief = "keeps the tokens with the most attention so far, and the last ones",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
