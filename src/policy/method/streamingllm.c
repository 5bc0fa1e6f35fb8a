/* SPDX-License-Identifier: MIT */
/* streamingllm.c - StreamingLLM (Xiao et al., 2024): keeps the first tokens, which act as attention
 * sinks, and the last ones. With rolling positions (section 3.2) distances are counted within the
 * cache, so a stream never leaves the range that the model was trained on. */
#include "policy/policy.h"

enum { BUDGET, SINK, RECENT, POSITIONS, DECODE };
enum { ROLLED, KEPT };
enum { BOUNDED, GROW };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept, sinks among them; below 1 a share of the prompt",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always kept", OPT_INT, 4, 0, 1e9, NULL },
    [RECENT] = { "recent", "tokens", "last tokens kept, instead of budget; 0 = what budget leaves",
                 OPT_INT, 0, 0, 1e9, NULL },
    [POSITIONS] = { "positions", NULL, "rolled: distances inside the cache; kept: the true ones",
                    OPT_CHOICE, ROLLED, 0, 0, "rolled kept" },
    [DECODE] = { "decode", NULL, "bounded: the oldest recent token goes at each step; grow: none",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int budget; /* a budget below 1 as a count, set by the last prompt */
};

static double budget(const struct policy *p)
{
    const double recent = p->val[RECENT].num;
    return recent > 0 ? recent + p->val[SINK].num : p->val[BUDGET].num;
}

static int plan(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    if (p->val[RECENT].num > 0 && p->val[BUDGET].set)
        return cb_policy_refuse(p, "budget and recent: give one of them");
    if (budget(p) >= 1 && p->val[SINK].num >= budget(p))
        return cb_policy_refuse(p, "sink=%g: leaves no recent tokens in a budget of %g",
                                p->val[SINK].num, budget(p));
    for (int l = 0; l < sh->n_layer; l++)
        row[l].rolling = p->val[POSITIONS].num == ROLLED;
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    int *slot = cb_evict_tmp(e), sink = (int)p->val[SINK].num, keep;

    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, budget(p), prompt, &st->budget);
    if (keep < 0)
        return keep;
    if (sink >= keep) /* with a share of a short prompt; the newest token always stays */
        sink = keep - 1;
    return cb_evict_keep_all_heads(e, slot, cb_keep_ends(n, sink, keep - sink, slot));
}

static int slots(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(budget(p), n_prompt, n_gen, p->val[DECODE].num == GROW);
}

const struct method cb_method_streamingllm = {
    .name = "streamingllm",
    .cite = "Xiao et al., arXiv:2309.17453",
    .brief = "keeps the first tokens (sinks) and the last ones",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan,
    .compact = compact,
    .slots = slots,
};
