/* SPDX-License-Identifier: MIT */
/* pyramidinfer.c - PyramidInfer (Yang et al., 2024): a prompt's last tokens say which of the others
 * matter, and the next layer computes only those, so that layers compute and hold fewer and fewer
 * tokens. Generated tokens that leave the recent part are thinned out a block at a time. */
#include <math.h>

#include "policy/policy.h"

enum { RECENT, DECAY, CONTEXT, INTERVAL, SINK, WEIGHT, BLOCK, KEEP, GEN_DECAY };

static const struct method_opt opts[] = {
    [RECENT] = { "recent", NULL, "share of a prompt, its last tokens, that choose and stay",
                 OPT_NUM, 0.2, 0, 0.95, NULL },
    [DECAY] = { "decay", NULL,
                "share of the tokens before them that the last layers leave to the next one; "
                "1 in layer 0, between on a cosine",
                OPT_NUM, 0.9, 0.01, 1, NULL },
    [CONTEXT] = { "context", "tokens", "tokens before the recent ones that stay in any layer",
                  OPT_INT, 64, 0, 1e9, NULL },
    [INTERVAL] = { "interval", "layers", "every n-th layer drops tokens", OPT_INT, 1, 1, 1000,
                   NULL },
    [SINK] = { "sink", "tokens", "first tokens, which stay", OPT_INT, 4, 0, 65536, NULL },
    [WEIGHT] = { "weight", NULL, "weight of the newest token that chooses; that of the oldest is 1",
                 OPT_NUM, 1.2, 0, 100, NULL },
    [BLOCK] = { "block", "tokens", "generated tokens that are thinned out together", OPT_INT, 16, 1,
                65536, NULL },
    [KEEP] = { "keep", NULL, "share of such a block that layer 0 keeps; 1, with gen_decay=1: all",
               OPT_NUM, 0.9, 0, 1, NULL },
    [GEN_DECAY] = { "gen_decay", NULL,
                    "share of that share that the last layers keep, between on a cosine", OPT_NUM,
                    0.1, 0, 1, NULL },
    { .name = NULL },
};

/* Layer state, set by a prompt. */
struct st {
    int recent; /* generated tokens that are not thinned out yet */
    int past;   /* slots that are not looked at again, and the newest of them once more; 0: none */
};

/* 1 in layer 0, and nearly `least` in the last one */
static double cosine(const struct policy *p, int l, double least)
{
    const double turn = acos(-1) * l / p->sh.n_layer;
    return l ? (1 - least) * (cos(turn) + 1) / 2 + least : 1;
}

static int last_of(const struct policy *p, int fed)
{
    return (int)(p->val[RECENT].num * fed);
}

/* Of n tokens of a prompt of `fed` that layer l has computed, how many the next layer computes */
static int passing(const struct policy *p, int l, int n, int fed, int sink)
{
    const int ends = 1 + last_of(p, fed), context = n - ends;
    const double share = cosine(p, l, p->val[DECAY].num);
    const int least = (int)fmin(p->val[CONTEXT].num, fed - ends), keep = (int)(context * share);

    if (l % (int)p->val[INTERVAL].num || keep <= least || keep <= sink)
        return n;
    return ends + keep;
}

/* How many tokens of a block are kept */
static int thinned(const struct policy *p, int l)
{
    const double share = p->val[KEEP].num * cosine(p, l, p->val[GEN_DECAY].num);
    return (int)fmax(1, p->val[BLOCK].num * share);
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int block = (int)p->val[BLOCK].num;
    int thins = 0;

    for (int l = 0; l < sh->n_layer; l++)
        thins |= thinned(p, l) < block;
    p->slot_floats = thins;
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].narrows = l && l + 1 < sh->n_layer && p->val[DECAY].num < 1;
        row[l].score = (struct score_plan){ .when = thins            ? WHEN_ALWAYS
                                                    : row[l].narrows ? WHEN_PROMPT
                                                                     : WHEN_NEVER,
                                            .heads = MEAN_HEADS,
                                            .window = p->val[RECENT].num > 0 ? 0 : 1,
                                            .share = p->val[RECENT].num,
                                            .last = (float)p->val[WEIGHT].num };
    }
    return 0;
}

static int pass(struct policy *p, int l, void *state, const struct scores *s, int n, int *out)
{
    const int fed = cb_view_fed(p), before = s->n - n;
    const int sink = before ? 0 : (int)p->val[SINK].num, m = passing(p, l, n, fed, sink);

    (void)state;
    return m == n ? n : cb_keep_top(s->s + before, NULL, n, m, sink, 1 + last_of(p, fed), out);
}

/* A block begins after the last slot that an earlier one has left. Each of its tokens is weighed
 * by the same number of queries, the last ones before the block is thinned out: so the first token
 * of a block starts to count `block` queries after its own, the next one a query earlier. */
static void add(struct policy *p, int l, const struct st *st, const struct scores *s, int first)
{
    const int n = cb_view_len(p, l, 0), block = (int)p->val[BLOCK].num;
    const double more = st->recent ? (p->val[WEIGHT].num - 1) / st->recent : 0;
    float *sum = cb_view_col(p, l, 0, 0);

    for (int j = first; j < n; j++) {
        const int age = n - 1 - j, from = block - (j - first) % block;
        if (age >= from)
            sum[j] += s->s[j] * (float)(1 + more * (age - from));
    }
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), block = (int)p->val[BLOCK].num, keep = thinned(p, l);
    const int first = st->past - 1;
    int m;

    if (cb_evict_at_prompt(e)) {
        *st = (struct st){ last_of(p, cb_view_fed(p)), n };
        return 0;
    }
    if (!st->past || keep == block)
        return 0;
    add(p, l, st, s, first);
    if (n - st->recent - st->past < block)
        return 0;
    m = cb_keep_top(cb_view_col(p, l, 0, 0), NULL, n, n - block + keep, first, n - first - block,
                    cb_evict_tmp(e));
    st->past += keep;
    return m < 0 ? m : cb_evict_keep_all_heads(e, cb_evict_tmp(e), m);
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    const int block = (int)p->val[BLOCK].num, recent = last_of(p, n_prompt);
    const int blocks = n_prompt && n_gen > recent ? (n_gen - recent) / block : 0;
    int n = n_prompt;

    for (int i = 0; i < l; i++)
        n = p->plan[i].narrows ? passing(p, i, n, n_prompt, (int)p->val[SINK].num) : n;
    return n + n_gen - blocks * (block - thinned(p, l));
}

const struct method cb_method_pyramidinfer = {
    .name = "pyramidinfer",
    .cite = "Yang et al., arXiv:2405.12532",
    .brief = "upper layers compute and keep only the tokens that the end of the prompt attends to",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .compact = compact,
    .pass = pass,
    .slots = slots_after,
};
