/* SPDX-License-Identifier: MIT */
/* simlayerkv.c - SimLayerKV (Zhang et al., 2024): a layer whose attention goes almost only to the
 * first tokens and the last ones is lazy and keeps only those; the other layers keep all. After
 * each prompt, the first generated token decides (section 5.1, decode), or the prompt's last tokens
 * have decided. A lazy layer stays lazy. A prompt that ends in a short context decides nothing:
 * where few tokens lie between the first and the last ones, every layer looks lazy.
 *
 * To compare with (figures 3 and 6), other layers are trimmed in place of the lazy ones, so that as
 * many tokens go: the least lazy layers, layers drawn at random, or all of them, the upper ones
 * more. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "policy/policy.h"

enum { SINK, RECENT, THRESHOLD, LEAST, PRESET, MODE, WINDOW, LAST, DECODE, LAYERS, AMONG, SEED };
enum { DECODE_MODE, PREFILL_MODE };
enum { BOUNDED, GROW };
enum { LAZY, NONLAZY, RANDOM, PYRAMID };
enum { AMONG_ALL, AMONG_LOWER, AMONG_UPPER };

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
    [LAYERS] = { "layers", NULL,
                 "which layers drop tokens; nonlazy, random: as many others; pyramid: all, the "
                 "upper ones more, and as many tokens in sum",
                 OPT_CHOICE, LAZY, 0, 0, "lazy nonlazy random pyramid" },
    [AMONG] = { "among", NULL, "layers=random: half of the layers that it draws from", OPT_CHOICE,
                AMONG_ALL, 0, 0, "all lower upper" },
    [SEED] = { "seed", "number", "layers=random: another number draws other layers", OPT_INT, 1, 0,
               1e9, NULL },
    { .name = NULL },
};

/* Layer state. */
struct st {
    int lazy, cut; /* cut: the layer was cut since the last prompt */
};

/* State of the method, unless layers=lazy */
struct rivals {
    int waits; /* a prompt ended, and the layers that drop are not chosen yet */
    struct rival {
        int keep;     /* tokens that it keeps once it is cut; 0: all */
        double share; /* of its attention, to the first and last tokens */
    } layer[1];       /* [n_layer] */
};

static int ends(const struct policy *p)
{
    const double n = p->val[SINK].num + p->val[RECENT].num;
    return n < 1e9 ? (int)n : 1000000000;
}

/* Takes an option from the preset unless the user set it. */
static int preset_value(struct policy *p, const struct preset *x, int opt, const char *key)
{
    return p->val[opt].set
               ? 0
               : cb_preset_number(p, x, key, opts[opt].min, opts[opt].max, &p->val[opt].num);
}

static int read_preset(struct policy *p)
{
    char little[64] = "";
    struct preset *x;
    double share;
    int err = cb_preset_open(p, p->val[PRESET].text, &x);

    if (err)
        return err;
    if (!x) {
        snprintf(p->note, sizeof p->note,
                 "policy simlayerkv: threshold %.10g, not calibrated for this model",
                 p->val[THRESHOLD].num);
        return 0;
    }
    err = preset_value(p, x, THRESHOLD, "threshold");
    if (!err)
        err = preset_value(p, x, SINK, "sink");
    if (!err)
        err = preset_value(p, x, RECENT, "recent");
    share = cb_preset_read_share(x);
    if (share > 0.95) /* no layer of the model is lazy often */
        snprintf(little, sizeof little, ", which drops little: %.0f %% was read in its trial",
                 100 * share);
    snprintf(p->note, sizeof p->note,
             "policy simlayerkv: threshold %.10g, %.10g recent, of preset %.100s%s%s",
             p->val[THRESHOLD].num, p->val[RECENT].num, cb_preset_path(x),
             cb_preset_kept(x) ? "" : ", which keeps less than it was to keep", little);
    cb_preset_close(x);
    return err;
}

static int check(const struct policy *p)
{
    if (p->val[LAYERS].num != RANDOM && (p->val[AMONG].set || p->val[SEED].set))
        return cb_policy_refuse(p, "%s: goes with layers=random",
                                p->val[AMONG].set ? "among" : "seed");
    return 0;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int prefill = p->val[MODE].num == PREFILL_MODE, rivals = p->val[LAYERS].num != LAZY;
    int err = check(p);

    if (err)
        return err;
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
    for (int l = 0; l < sh->n_layer; l++)
        row[l].late = rivals && prefill; /* which layers go depends on how many are lazy */
    return rivals ? cb_policy_state(p, sizeof(struct rivals) +
                                           (size_t)sh->n_layer * sizeof(struct rival))
                  : 0;
}

/* 1: a context of n tokens is long enough to decide */
static int long_enough(const struct policy *p, int n)
{
    return n > ends(p) && n >= p->val[LEAST].num * ends(p);
}

/* NULL: layers=lazy */
static struct rival *rival(const struct policy *p, int l)
{
    struct rivals *r = p->state;

    return r ? &r->layer[l] : NULL;
}

/* Sums the attention to the first and last tokens, averaged over heads and queries. A prompt's
 * scores cover only those tokens. */
static int observe(struct policy *p, int l, void *state, const struct scores *s)
{
    struct st *st = state;
    struct rival *r = rival(p, l);
    const int n = s->n, sink = (int)p->val[SINK].num, recent = (int)p->val[RECENT].num;
    double score = 0;

    if (!s->prompt) /* only the first generated token decides */
        cb_policy_watch(p, l, WHEN_NEVER);
    if (!long_enough(p, n) || (r && r->keep)) /* a trimmed layer says nothing of the text */
        return 0;
    for (int i = 0; i < n; i++)
        if (s->prompt || i < sink || i >= n - recent)
            score += (double)s->s[i];
    st->lazy |= score / s->n_query > p->val[THRESHOLD].num;
    if (r)
        r->share = score / s->n_query;
    return 0;
}

/* ---- layers that drop in place of lazy ones ---- */

static int is_lazy(const struct policy *p, int l)
{
    return ((const struct st *)p->layer_state[l])->lazy;
}

/* May layer l drop in place of a lazy one? */
static int candidate(const struct policy *p, int l)
{
    const int half = p->sh.n_layer / 2;

    if (rival(p, l)->keep)
        return 0;
    if (p->val[LAYERS].num == NONLAZY)
        return !is_lazy(p, l) && l < p->sh.n_layer - (int)p->val[LAST].num;
    return p->val[AMONG].num == AMONG_ALL || (p->val[AMONG].num == AMONG_LOWER) == (l < half);
}

/* The candidate with the smallest share of attention at the ends, or the one that is drawn first;
 * -1: there is none */
static int next_layer(const struct policy *p)
{
    double least = 0;
    int best = -1;

    for (int l = 0; l < p->sh.n_layer; l++) {
        const double x = p->val[LAYERS].num == NONLAZY
                             ? rival(p, l)->share
                             : cb_policy_draw((uint64_t)p->val[SEED].num, l);
        if (candidate(p, l) && (best < 0 || x < least)) {
            best = l;
            least = x;
        }
    }
    return best;
}

/* Budgets fall along a line to the two ends in the last layer; as many of n tokens go as n_lazy
 * layers would drop. */
static int fall(struct policy *p, int n, int n_lazy)
{
    const int n_layer = p->sh.n_layer, total = n * n_layer - n_lazy * (n - ends(p));
    double *share = calloc((size_t)n_layer, sizeof *share);
    int *keep = calloc((size_t)n_layer, sizeof *keep);
    const double mean = (double)total / n_layer;

    if (share && keep) {
        cb_share_linear(share, n_layer, mean, mean / ends(p), n);
        cb_share_round(share, n_layer, total, keep);
    }
    for (int l = 0; share && keep && l < n_layer; l++)
        rival(p, l)->keep = keep[l] < n ? keep[l] : 0;
    free(keep);
    free(share);
    return share && keep ? 0 : cb_policy_no_memory(p);
}

/* All layers were observed: those that drop instead of the lazy ones */
static int choose(struct policy *p)
{
    const int n = cb_view_seen(p);
    int n_lazy = 0, n_drop = 0, l;

    ((struct rivals *)p->state)->waits = 0;
    for (l = 0; l < p->sh.n_layer; l++) {
        n_lazy += is_lazy(p, l);
        n_drop += rival(p, l)->keep > 0;
    }
    if (p->val[LAYERS].num == PYRAMID)
        return n_lazy ? fall(p, n, n_lazy) : 0;
    for (; n_drop < n_lazy && (l = next_layer(p)) >= 0; n_drop++)
        rival(p, l)->keep = ends(p);
    return 0;
}

/* Chooses when all layers were observed: before the first layer drops after a prompt that decides,
 * or at the last layer of the token that decides. */
static int choose_when_observed(struct policy *p, int l, int prompt)
{
    struct rivals *r = p->state;
    const int prefill = p->val[MODE].num == PREFILL_MODE;

    if (!r)
        return 0;
    r->waits |= prompt && !l;
    return r->waits && prompt == prefill && l == (prompt ? 0 : p->sh.n_layer - 1) ? choose(p) : 0;
}

/* ---- what is dropped ---- */

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
    const int err = choose_when_observed(p, l, prompt), sink = (int)p->val[SINK].num;
    int *slot = cb_evict_tmp(e), keep;

    (void)s;
    if (err)
        return err;
    keep = p->state ? rival(p, l)->keep : st->lazy ? ends(p) : 0;
    if (prompt)
        st->cut = 0;
    if (prompt && p->val[MODE].num == DECODE_MODE)
        cb_policy_watch(p, l, undecided(p, l, st, n) ? WHEN_STEP : WHEN_NEVER);
    if (!keep || n <= keep || (prompt && p->val[MODE].num == DECODE_MODE) ||
        (st->cut && p->val[DECODE].num == GROW))
        return 0;
    st->cut = 1;
    return cb_evict_keep_all_heads(e, slot, cb_keep_ends(n, sink, keep - sink, slot));
}

const struct method cb_method_simlayerkv = {
    .name = "simlayerkv",
    .cite = "Zhang et al., arXiv:2410.13846",
    .brief = "lazy layers keep the first and last tokens, the others all",
    .opts = opts,
    .layer_bytes = sizeof(struct st),
    .plan = plan_layers,
    .observe = observe,
    .compact = compact,
};
