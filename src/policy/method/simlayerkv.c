/* SPDX-License-Identifier: MIT */
/* simlayerkv.c - SimLayerKV (Zhang et al., 2024): a layer whose attention goes almost only to the
 * first tokens and the last ones is lazy and keeps only those; the other layers keep all. After
 * each prompt, the first generated token decides (section 5.1, decode), or the prompt's last tokens
 * have decided. A lazy layer stays lazy. A prompt that ends in a short context decides nothing:
 * where few tokens lie between the first and the last ones, every layer looks lazy. */
#include <stdio.h>

#include "policy/policy.h"

enum { SINK, RECENT, THRESHOLD, LEAST, PRESET, MODE, WINDOW, LAST, DECODE };
enum { DECODE_MODE, PREFILL_MODE };
enum { BOUNDED, GROW };

static const struct method_opt opts[] = {
    [SINK] = { "sink", "tokens", "first tokens that a lazy layer keeps", OPT_INT, 4, 0, 1e9, NULL },
    [RECENT] = { "recent", "tokens",
                 "last tokens that a lazy layer keeps, the current one among them", OPT_INT, 1024,
                 1, 1e9, NULL },
    [THRESHOLD] = { "threshold", NULL,
                    "a layer is lazy if its attention to both is at least this share (the paper's "
                    "delta)",
                    OPT_NUM, 0.9, -1, 1, NULL },
    [LEAST] = { "least", NULL,
                "in contexts shorter than this multiple of sink + recent no layer is lazy; 1: as "
                "in the paper",
                OPT_NUM, 2, 1, 1e9, NULL },
    [PRESET] = { "preset", "file",
                 "threshold, sink and recent as calibrate lazy writes them; default: the model's",
                 OPT_FILE, 0, 0, 0, NULL },
    [MODE] = { "mode", NULL,
               "what decides: decode: the first generated token; prefill: the last tokens of the "
               "prompt",
               OPT_CHOICE, DECODE_MODE, 0, 0, "decode prefill" },
    [WINDOW] = { "window", "tokens", "last prompt tokens that decide with mode=prefill", OPT_INT,
                 32, 1, 65536, NULL },
    [LAST] = { "keep_last", NULL, "the last layer is never lazy", OPT_FLAG, 0, 0, 1, NULL },
    [DECODE] = { "decode", NULL,
                 "bounded: lazy layers drop a token at each step; grow: they drop tokens once",
                 OPT_CHOICE, BOUNDED, 0, 0, "bounded grow" },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int lazy, cut; /* cut: the layer was cut since the last prompt */
};

static int ends(const struct policy *p)
{
    const double n = p->val[SINK].num + p->val[RECENT].num;
    return n < 1e9 ? (int)n : 1000000000;
}

/* Takes an option from the preset unless the user set it. */
static int take(struct policy *p, const struct preset *x, int opt, const char *key)
{
    return p->val[opt].set
               ? 0
               : cb_preset_number(p, x, key, opts[opt].min, opts[opt].max, &p->val[opt].num);
}

static int read_preset(struct policy *p)
{
    struct preset *x;
    int err = cb_preset_open(p, p->val[PRESET].text, &x);

    if (err)
        return err;
    if (!x) {
        snprintf(p->note, sizeof p->note,
                 "policy simlayerkv: threshold %.10g, not calibrated for this model",
                 p->val[THRESHOLD].num);
        return 0;
    }
    err = take(p, x, THRESHOLD, "threshold");
    if (!err)
        err = take(p, x, SINK, "sink");
    if (!err)
        err = take(p, x, RECENT, "recent");
    snprintf(p->note, sizeof p->note,
             "policy simlayerkv: threshold %.10g, %.10g recent, of preset %.120s%s",
             p->val[THRESHOLD].num, p->val[RECENT].num, cb_preset_path(x),
             cb_preset_kept(x) ? "" : ", which keeps less than it was to keep");
    cb_preset_close(x);
    return err;
}

static int plan(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int prefill = p->val[MODE].num == PREFILL_MODE;
    int err = 0;

    p->at_most = 1; /* possibly no layer is lazy */
    /* a user's threshold without a preset goes with the user's sink and recent */
    if (!p->val[THRESHOLD].set || p->val[PRESET].set)
        err = read_preset(p);
    if (err)
        return err;
    for (int l = 0; l < sh->n_layer - (int)p->val[LAST].num; l++)
        row[l].score = (struct score_plan){ .when = prefill ? WHEN_PROMPT : WHEN_STEP,
                                            .window = prefill ? (int)p->val[WINDOW].num : 0,
                                            .heads = MEAN_HEADS,
                                            .sink = prefill ? (int)p->val[SINK].num : 0,
                                            .band = prefill ? (int)p->val[RECENT].num : 0 };
    return 0;
}

/* 1: a context of n tokens is long enough to decide */
static int long_enough(const struct policy *p, int n)
{
    return n > ends(p) && n >= p->val[LEAST].num * ends(p);
}

/* Sums the attention to the first and last tokens, averaged over heads and queries. A prompt's
 * scores cover only those tokens. */
static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    struct st *st = state;
    const int n = s->n, sink = (int)p->val[SINK].num, recent = (int)p->val[RECENT].num;
    double score = 0;

    if (!s->prompt) /* only the first generated token decides */
        cb_policy_watch(p, l, WHEN_NEVER);
    if (!long_enough(p, n))
        return 0;
    for (int i = 0; i < n; i++)
        if (s->prompt || i < sink || i >= n - recent)
            score += (double)s->s[i];
    st->lazy |= score / s->n_query > p->val[THRESHOLD].num;
    return 0;
}

/* Will the first generated token decide on layer l, which holds n tokens after a prompt? */
static int undecided(const struct policy *p, int l, const struct st *st, int n)
{
    return p->val[MODE].num == DECODE_MODE && !st->lazy &&
           l < p->sh.n_layer - (int)p->val[LAST].num && long_enough(p, n + 1);
}

static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    struct st *st = state;
    const int n = cb_view_len(p, l, 0), prompt = cb_evict_at_prompt(e);
    int *slot = cb_evict_tmp(e);

    (void)s;
    if (prompt)
        st->cut = 0;
    if (prompt && p->val[MODE].num == DECODE_MODE)
        cb_policy_watch(p, l, undecided(p, l, st, n) ? WHEN_STEP : WHEN_NEVER);
    if (!st->lazy || n <= ends(p) || (prompt && p->val[MODE].num == DECODE_MODE) ||
        (st->cut && p->val[DECODE].num == GROW))
        return 0;
    st->cut = 1;
    return cb_evict_keep_all_heads(
        e, slot, cb_keep_ends(n, (int)p->val[SINK].num, (int)p->val[RECENT].num, slot));
}

const struct method cb_method_simlayerkv = {
    .name = "simlayerkv",
    .cite = "Zhang et al., arXiv:2410.13846",
    .brief = "lazy layers keep the first and last tokens, the others all",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan,
    .observe = observe,
    .compact = compact,
};
