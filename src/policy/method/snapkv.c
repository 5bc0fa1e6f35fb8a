/* SPDX-License-Identifier: MIT */
/* snapkv.c - SnapKV (Li et al., 2024): at the end of a prompt its last `window` queries vote; each
 * KV head keeps the tokens with the most votes, and the window itself. Votes are attention scores
 * summed over the window and pooled along the tokens, so that neighbours of a chosen token are kept
 * too. */
#include "policy/policy.h"

enum { BUDGET, WINDOW, KERNEL, POOL, TIE, GROUP, SINK, FLOOR, DECODE, TAIL };
enum { BY_RAW, BY_INDEX };
enum { GROW, BOUNDED };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "prompt tokens kept, the window among them; below 1 a share",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [WINDOW] = { "window", "tokens", "last prompt tokens, which vote and stay", OPT_INT, 64, 1,
                 65536, NULL },
    [KERNEL] = { "kernel", "tokens", "width of the pooling, odd; 1 = none", OPT_INT, 5, 1, 255,
                 NULL },
    [POOL] = { "pool", NULL, "how votes are pooled", OPT_CHOICE, 0, 0, 0, "mean max" },
    [TIE] = { "tie", NULL,
              "of equal pooled votes: the more before pooling, then the lower position; or "
              "the lower position at once",
              OPT_CHOICE, BY_RAW, 0, 0, "raw index" },
    [GROUP] = { "group", NULL,
                "how the query heads of a KV head combine, before pooling; each: they do not, and "
                "each reads the tokens that it chose, as in the published code",
                OPT_CHOICE, 0, 0, 0, "mean max each" },
    [SINK] = { "sink", "tokens", "first tokens kept whatever their votes", OPT_INT, 0, 0, 1e9,
               NULL },
    [FLOOR] = { "floor", NULL,
                "share of the tokens that a KV head chooses by itself; below 1 the heads of a "
                "layer compete for the rest by their votes (Ada-KV)",
                OPT_NUM, 1, 0, 1, NULL },
    [DECODE] = { "decode", NULL, "grow: generated tokens stay; bounded: the last `tail` of them do",
                 OPT_CHOICE, GROW, 0, 0, "grow bounded" },
    [TAIL] = { "tail", "tokens", "generated tokens kept with decode=bounded", OPT_INT, 256, 1, 1e9,
               NULL },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int share; /* a budget below 1 as a count, set by the last prompt */
    int first; /* slots that a KV head held at the end of the prompt, in the mean */
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double least = p->val[WINDOW].num + p->val[SINK].num;

    if ((int)p->val[KERNEL].num % 2 == 0)
        return cb_policy_refuse(p, "kernel=%.10g: must be odd", p->val[KERNEL].num);
    if (p->val[BUDGET].num >= 1 && p->val[BUDGET].num <= least)
        return cb_policy_refuse(p, "budget=%.10g: must be more than window + sink = %.10g",
                                p->val[BUDGET].num, least);
    if (p->val[GROUP].num == VOTE_EACH && (p->val[DECODE].num == BOUNDED || p->val[FLOOR].num < 1))
        return cb_policy_refuse(p, "group=each: needs decode=grow and floor=1");
    for (int l = 0; l < sh->n_layer; l++)
        row[l] = cb_votes_plan(p, (int)p->val[GROUP].num, (int)p->val[WINDOW].num,
                               (int)p->val[KERNEL].num, (int)p->val[POOL].num);
    return 0;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int prompt = cb_evict_at_prompt(e);
    struct scores by;
    int keep, n, tail;

    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, p->val[BUDGET].num, prompt, &st->share);
    if (keep < 0)
        return keep;
    tail = keep + (int)p->val[TAIL].num - st->first;
    if (!prompt)
        return cb_evict_drop_tail(e, cb_view_tail(p, tail), tail);
    n = cb_evict_mean_len(e);
    st->first = n < keep ? n : keep;
    by = *s;
    if (p->val[TIE].num == BY_INDEX)
        by.raw = by.s;
    return cb_evict_keep_votes(p, l, e, &by, keep, (int)p->val[SINK].num, (int)p->val[WINDOW].num,
                               p->val[FLOOR].num);
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int keep = cb_keep_budget(p->val[BUDGET].num, n_prompt), tail = (int)p->val[TAIL].num;
    const int n =
        cb_keep_votes_most(p, n_prompt, keep, (int)p->val[SINK].num, (int)p->val[WINDOW].num) +
        n_gen;

    (void)l;
    return p->val[DECODE].num == BOUNDED && n > keep + tail ? keep + tail : n;
}

const struct method cb_method_snapkv = {
    .name = "snapkv",
    .cite = "Li et al., arXiv:2404.14469",
    .brief = "keeps the prompt tokens that its last queries attend to",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
