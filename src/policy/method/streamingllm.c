/* SPDX-License-Identifier: MIT */
/* streamingllm.c - StreamingLLM (Xiao et al., 2024): keeps the first tokens, which act as attention
 * sinks, and the last ones. With rolling positions (section 3.2) distances are counted within the
 * cache, so a stream never leaves the range that the model was trained on. */
#include "policy/policy.h"

enum { BUDGET, SINK, RECENT, POSITIONS, PREFILL, DECODE };
enum { ROLLED, KEPT };
enum { DENSE, WINDOWED };
enum { BOUNDED, GROW };
enum { DROP_EVERY = 512 };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens", "tokens kept, sinks among them; below 1 a share of the prompt",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always kept; below 1 a share of the prompt",
               OPT_NUM, 4, 0, 1e9, NULL },
    [RECENT] = { "recent", "tokens", "last tokens kept, instead of budget; 0 = what budget leaves",
                 OPT_INT, 0, 0, 1e9, NULL },
    [POSITIONS] = { "positions", NULL,
                    "rolled: distances in the cache; kept: distances in the text", OPT_CHOICE,
                    ROLLED, 0, 0, "rolled kept" },
    [PREFILL] = { "prefill", NULL,
                  "dense: each prompt token sees all before it; windowed: what it would see had "
                  "the "
                  "prompt been generated",
                  OPT_CHOICE, DENSE, 0, 0, "dense windowed" },
    [DECODE] = { "decode", NULL, "bounded: the oldest recent token goes at each step; grow: none",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int budget, sink; /* shares as counts, set by the last prompt */
    int left;         /* first tokens left by the last drop, + 1; 0: nothing was dropped */
};

static double budget(const struct policy *p)
{
    const double recent = p->val[RECENT].num;
    return recent > 0 ? recent + p->val[SINK].num : p->val[BUDGET].num;
}

static int check(const struct policy *p)
{
    const double sink = p->val[SINK].num;
    const int shares = (sink > 0 && sink < 1) || budget(p) < 1;

    if (sink > 1 && sink != (double)(int)sink)
        return cb_policy_refuse(p, "sink=%.10g: must be an integer, or below 1", sink);
    if (sink > 0 && sink < 1 && budget(p) >= 1)
        return cb_policy_refuse(p, "sink=%.10g: a share goes with a budget below 1", sink);
    if (p->val[RECENT].num > 0 && p->val[BUDGET].set)
        return cb_policy_refuse(p, "budget and recent: give one of them");
    if ((budget(p) >= 1 || sink < 1) && sink >= budget(p))
        return cb_policy_refuse(p, "sink=%.10g: leaves no recent tokens in a budget of %.10g", sink,
                                budget(p));
    if (p->val[PREFILL].num == WINDOWED && (shares || p->val[DECODE].num == GROW))
        return cb_policy_refuse(p, "prefill=windowed: needs a budget in tokens and decode=bounded");
    return 0;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int sink = (int)p->val[SINK].num, windowed = p->val[PREFILL].num == WINDOWED;
    const int err = check(p);

    for (int l = 0; l < sh->n_layer && !err; l++) {
        row[l].rolling = p->val[POSITIONS].num == ROLLED ? ROLL_RUNS : ROLL_NOT;
        if (!windowed)
            continue;
        /* a generated token sees the recent ones and itself, before the oldest goes */
        row[l].prompt_window = cb_keep_budget(budget(p), 0) - sink + 1;
        row[l].prompt_sink = sink;
        row[l].drop_every = DROP_EVERY;
    }
    return err;
}

/* First tokens to keep of n slots. Later prompts cannot have more than an earlier drop left. */
static int sinks(struct policy *p, struct st *st, int n, int keep, int prompt)
{
    const double want = p->val[SINK].num;
    int sink;

    if (prompt && want < 1)
        st->sink = cb_keep_part(want, cb_view_seen(p));
    sink = want < 1 ? st->sink : (int)want;
    if (sink >= keep) /* with a share of a short prompt; the newest token always stays */
        sink = keep - 1;
    if (st->left && sink > st->left - 1)
        sink = st->left - 1;
    if (n > keep)
        st->left = sink + 1;
    return sink;
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    int *slot = cb_evict_tmp(e), sink, keep;

    (void)s;
    if (!prompt && p->val[DECODE].num == GROW)
        return 0;
    keep = cb_policy_budget(p, budget(p), prompt, &st->budget);
    if (keep < 0)
        return keep;
    sink = sinks(p, st, n, keep, prompt);
    return cb_evict_keep_all_heads(e, slot, cb_keep_ends(n, sink, keep - sink, slot));
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
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
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
