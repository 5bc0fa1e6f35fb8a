/* SPDX-License-Identifier: MIT */
/* window.c - keeps only the last tokens (window attention). Quality collapses once the first
 * tokens, on which models rely, are dropped. A baseline for comparison. */
#include "policy/policy.h"

enum { BUDGET, PREFILL, DECODE };
enum { BANDED, DENSE };
enum { BOUNDED, GROW };
enum { DROP_EVERY = 512 };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept, the current one among them; below 1 a share",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [PREFILL] = { "prefill", NULL, "banded: each prompt token sees the window; dense: it sees all",
                  OPT_CHOICE, BANDED, 0, 0, "banded dense" },
    [DECODE] = { "decode", NULL, "bounded: the oldest token goes at each step; grow: none does",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int budget; /* a budget below 1 as a count, set by the last prompt */
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int share = p->val[BUDGET].num < 1, grow = p->val[DECODE].num == GROW;
    const int banded = p->val[PREFILL].num == BANDED;

    if (banded && p->val[PREFILL].set && (share || grow))
        return cb_policy_refuse(p, "prefill=banded: needs a budget in tokens and decode=bounded");
    for (int l = 0; l < sh->n_layer && banded && !share && !grow; l++) {
        row[l].window = cb_keep_budget(p->val[BUDGET].num, 0);
        row[l].drop_every = DROP_EVERY;
    }
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    int *slot = cb_evict_tmp(e), keep;

    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, p->val[BUDGET].num, prompt, &st->budget);
    if (keep < 0)
        return keep;
    return cb_evict_keep_all_heads(e, slot, cb_keep_ends(n, 0, keep, slot));
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, p->val[DECODE].num == GROW);
}

const struct method cb_method_window = {
    .name = "window",
    .cite = "Beltagy et al., Longformer, arXiv:2004.05150, section 3.1",
    .brief = "keeps the last tokens",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
