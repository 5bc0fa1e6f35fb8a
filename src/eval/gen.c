/* SPDX-License-Identifier: MIT */
/* gen.c - shared by the generators: random numbers, words, and fitting to a length in tokens. */
#include "gen.h"

#include <stdio.h>

#include "base/err.h"
#include "base/splitmix.h"
#include "metric.h"

/* ---- chance ---- */

int cb_rng_below(struct rng *r, int n)
{
    return (int)((cb_splitmix(&r->s) >> 32) * (uint64_t)n >> 32);
}

struct rng cb_rng_for(uint64_t seed, const char *task, int a, int b, int c)
{
    const int n[] = { a, b, c };
    struct rng r = { seed };

    for (; *task; task++)
        r.s = cb_splitmix(&r.s) ^ (unsigned char)*task;
    for (int i = 0; i < 3; i++)
        r.s = cb_splitmix(&r.s) ^ (uint64_t)n[i];
    return r;
}

void cb_rng_shuffle(struct rng *r, int *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        const int j = cb_rng_below(r, i + 1), t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

void cb_rng_choose(struct rng *r, int *x, int k, int n)
{
    for (int i = 0; i < k; i++) { /* Floyd: no list of n is needed */
        const int top = n - k + i;
        int t = cb_rng_below(r, top + 1);
        for (int j = 0; j < i; j++)
            if (x[j] == t) {
                t = top;
                break;
            }
        x[i] = t;
    }
}

/* ---- words ---- */

static const char *const adjective[64] = {
    "amber",   "ancient", "bitter", "blank",  "brave",  "brisk",  "calm",   "clever",
    "coarse",  "crisp",   "damp",   "dark",   "deep",   "dense",  "dry",    "eager",
    "early",   "empty",   "faint",  "fancy",  "fierce", "flat",   "fresh",  "gentle",
    "giant",   "golden",  "grim",   "happy",  "hollow", "honest", "humble", "idle",
    "jolly",   "keen",    "large",  "late",   "lively", "lonely", "loud",   "lucky",
    "mellow",  "merry",   "mild",   "modern", "narrow", "noble",  "odd",    "pale",
    "patient", "plain",   "proud",  "quick",  "quiet",  "rapid",  "rough",  "royal",
    "rusty",   "sharp",   "shy",    "silent", "smooth", "solid",  "tender", "wild",
};
static const char *const noun[64] = {
    "anchor",  "apple",  "arrow",  "badge",   "barrel", "basket",  "beacon", "bell",
    "blanket", "bottle", "branch", "bridge",  "bucket", "button",  "cabin",  "candle",
    "canyon",  "carpet", "castle", "chapel",  "cloud",  "compass", "copper", "cottage",
    "desert",  "engine", "falcon", "feather", "fiddle", "forest",  "garden", "glacier",
    "hammer",  "harbor", "helmet", "island",  "jacket", "kettle",  "ladder", "lantern",
    "letter",  "marble", "meadow", "mirror",  "needle", "orchard", "paddle", "pebble",
    "pepper",  "pillow", "planet", "pocket",  "rabbit", "ribbon",  "river",  "saddle",
    "shadow",  "spider", "temple", "timber",  "tunnel", "valley",  "violin", "window",
};

const char *cb_value_name(enum value_kind k, int many)
{
    static const char *const one[] = { "word", "number", "uuid" };
    static const char *const all[] = { "words", "numbers", "uuids" };
    return many ? all[k] : one[k];
}

void cb_pair_word(int i, char (*out)[48])
{
    snprintf(*out, sizeof *out, "%s-%s", adjective[i % 64], noun[i / 64 % 64]);
}

void cb_value(struct rng *r, enum value_kind k, char (*out)[48])
{
    const uint64_t x = cb_splitmix(&r->s), y = cb_splitmix(&r->s);

    if (k == VALUE_WORDS)
        cb_pair_word((int)(x % PAIR_WORDS), out);
    else if (k == VALUE_NUMBERS)
        snprintf(*out, sizeof *out, "%d", 1000000 + (int)(x % 9000000));
    else /* as version 4 */
        snprintf(*out, sizeof *out, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(x >> 32),
                 (unsigned)(x >> 16 & 0xffff), (unsigned)(x & 0xfff),
                 (unsigned)(y >> 48 & 0x3fff) | 0x8000, (unsigned long long)(y & 0xffffffffffffu));
}

const char *cb_noise(int i)
{
    static const char *const noise[] = { "The grass is green.", "The sky is blue.",
                                         "The sun is yellow.", "Here we go.",
                                         "There and back again." };
    return noise[i % 5];
}

/* ---- length ---- */

static int build(const struct gen *g, const struct recipe *r, int units, struct buf *context,
                 struct buf *question)
{
    int n, m;

    cb_buf_clear(context);
    cb_buf_clear(question);
    TRY(r->build(r->arg, units, context, question));
    if (context->failed || question->failed)
        return CB_ENOMEM;
    n = g->count(g->arg, context->s, context->n);
    m = n < 0 ? n : g->count(g->arg, question->s, question->n);
    return m < 0 ? m : n + m;
}

/* Token counts are nearly linear in units: a secant step lands close, bisection finishes. */
static int fit(const struct gen *g, const struct recipe *r, int length, struct buf *context,
               struct buf *question)
{
    const int target = length - r->max_new - g->reserve;
    int lo = r->min_units, hi = r->max_units + 1, n_lo, n_hi = 0, best = lo;

    n_lo = build(g, r, lo, context, question);
    if (n_lo < 0)
        return n_lo;
    if (n_lo > target)
        return cb_fail(CB_EARG,
                       "length %d: too short for this task, which needs %d tokens and %d for the "
                       "answer",
                       length, n_lo + g->reserve, r->max_new);
    for (int step = 0; hi - lo > 1 && n_lo < target - target / 200; step++) {
        const int known = n_hi > n_lo;
        double guess =
            known ? lo + (double)(hi - lo) * (target - n_lo) / (n_hi - n_lo) : 2.0 * lo + 64;
        int at, n;
        if (known && step > 6)
            guess = lo + (hi - lo) / 2;
        at = guess >= hi ? hi - 1 : (int)guess <= lo ? lo + 1 : (int)guess;
        n = build(g, r, at, context, question);
        if (n < 0)
            return n;
        best = at;
        if (n <= target) {
            lo = at;
            n_lo = n;
        } else {
            hi = at;
            n_hi = n;
        }
    }
    if (best == lo)
        return CB_OK;
    n_lo = build(g, r, lo, context, question);
    return n_lo < 0 ? n_lo : CB_OK;
}

int cb_gen_add(const struct made *m, const struct buf *id, const struct buf *context,
               const struct buf *question, struct item_list *out)
{
    struct item it = { 0 };

    if (id->failed || context->failed || question->failed)
        return CB_ENOMEM;
    TRY(cb_item_make(&it, id->s, m->task, context->s, question->s, m->answer, m->n_answer));
    it.metric = cb_metric_find(m->metric);
    it.max_new = m->max_new;
    it.length = m->length;
    it.depth = m->depth;
    it.chat = m->chat;
    it.stop_at_line = m->stop_at_line;
    return cb_item_add(out, &it);
}

int cb_gen_item(const struct gen *g, const struct recipe *r, const struct made *m,
                struct item_list *out)
{
    struct buf context = { 0 }, question = { 0 }, id = { 0 };
    int err = fit(g, r, m->length, &context, &question);

    cb_buf_print(&id, "%s-%d", m->task, m->length);
    if (m->depth >= 0)
        cb_buf_print(&id, "-d%d", m->depth);
    cb_buf_print(&id, "-s%llu-%d", (unsigned long long)g->seed, m->index);
    if (!err)
        err = cb_gen_add(m, &id, &context, &question, out);
    cb_buf_free(&context);
    cb_buf_free(&question);
    cb_buf_free(&id);
    return err;
}
