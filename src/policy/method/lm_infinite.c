/* SPDX-License-Identifier: MIT */
/* lm_infinite.c - LM-Infinite (Han et al. 2024): every query sees the last tokens at their
 * distances, and the first ones as if they were one window away. */
#include "policy/policy.h"

enum { SINK, WINDOW };
enum { DROP_EVERY = 512 };

static const struct method_opt opts[] = {
    [SINK] = { "sink", "tokens", "first tokens, always kept", OPT_INT, 10, 0, 4096, NULL },
    [WINDOW] = { "window", "tokens",
                 "last tokens that a query sees, itself included; also the distance of the first "
                 "ones; at most what the model was trained on",
                 OPT_INT, 4096, 1, 1e9, NULL },
    { .name = NULL },
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].rolling = ROLL_CLAMPED;
        row[l].prompt_sink = (int)p->val[SINK].num;
        row[l].prompt_window = (int)p->val[WINDOW].num;
        row[l].drop_every = DROP_EVERY;
    }
    return 0;
}

/* Tokens that stay for the next one, which is in its own window */
static int keep(const struct policy *p)
{
    return (int)(p->val[SINK].num + p->val[WINDOW].num) - 1;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    const int n = cb_view_len(p, l, 0), sink = (int)p->val[SINK].num;
    int *slot = cb_evict_tmp(e);

    (void)state;
    (void)s;
    return cb_evict_keep_all_heads(e, slot, cb_keep_ends(n, sink, keep(p) - sink, slot));
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int n = n_prompt + n_gen;

    (void)l;
    return n < keep(p) ? n : keep(p);
}

const struct method cb_method_lm_infinite = {
    .name = "lm-infinite",
    .cite = "Han et al., arXiv:2308.16137",
    .brief = "keeps the last tokens, and the first ones, which are seen from one distance",
    .opts = opts,
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
