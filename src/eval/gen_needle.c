/* SPDX-License-Identifier: MIT */
/* gen_needle.c - needles in a haystack on a grid of lengths and depths, and the passkey task. */
#include <stdio.h>

#include "base/err.h"
#include "gen.h"

enum { MAX_NEEDLES = 16, ALL = 1 << 24 };

/* ---- needle ---- */

struct needle {
    const struct gen *g;
    int start; /* first word taken from the haystack */
    double depth[MAX_NEEDLES];
    char key[48], value[MAX_NEEDLES][48];
    char text[MAX_NEEDLES][160];
    const char *insert[MAX_NEEDLES], *answer[MAX_NEEDLES];
};

static int build_needle(void *arg, int units, struct buf *context, struct buf *question)
{
    const struct needle *x = arg;
    const int n = x->g->n_needle;

    cb_buf_text(context, n > 1 ? "Some special magic numbers are hidden in the text below. "
                                 "Remember them: you will be asked for them at the end.\n\n"
                               : "A special magic number is hidden in the text below. "
                                 "Remember it: you will be asked for it at the end.\n\n");
    cb_hay_fill(x->g->haystack, x->start, units, x->insert, x->depth, n, context);
    cb_buf_text(context, "\n\n");
    cb_buf_print(question,
                 n > 1 ? "What are all the special magic numbers for %s in the text above? "
                         "The special magic numbers for %s in the text above are"
                       : "What is the special magic number for %s in the text above? "
                         "The special magic number for %s in the text above is",
                 x->key, x->key);
    return CB_OK;
}

/* The first needle is at `depth`, the others are evenly spread after it. */
static void set_needles(struct needle *x, int depth, struct rng *r)
{
    const int n = x->g->n_needle;

    x->start = cb_rng_below(r, x->g->haystack->n);
    while (!x->g->haystack->word[x->start].is_first)
        x->start--;
    cb_value(r, VALUE_WORDS, &x->key);
    for (int i = 0; i < n; i++) {
        cb_value(r, VALUE_NUMBERS, &x->value[i]);
        snprintf(x->text[i], sizeof x->text[i], "One of the special magic numbers for %s is: %s.",
                 x->key, x->value[i]);
        x->depth[i] = depth + i * (100.0 - depth) / n;
        x->insert[i] = x->text[i];
        x->answer[i] = x->value[i];
    }
}

static int needle(const struct gen *g, int length, int depth, int index, struct item_list *out)
{
    struct needle x = { .g = g };
    struct rng r = cb_rng_for(g->seed, "needle", length, depth, index);
    const int max_new = 24 + 12 * (g->n_needle - 1);
    const struct recipe recipe = { build_needle, &x, 0, ALL, max_new };
    const struct made m = {
        .task = "needle",
        .metric = g->n_needle > 1 ? "contains_all" : "contains",
        .length = length,
        .depth = depth,
        .index = index,
        .max_new = max_new,
        .answer = x.answer,
        .n_answer = g->n_needle,
    };

    set_needles(&x, depth, &r);
    return cb_gen_item(g, &recipe, &m, out);
}

int cb_gen_needle(const struct gen *g, struct item_list *out)
{
    if (g->n_needle < 1 || g->n_needle > MAX_NEEDLES)
        return cb_fail(CB_EARG, "needles %d: out of range 1 to %d", g->n_needle, MAX_NEEDLES);
    for (int l = 0; l < g->n_length; l++)
        for (int d = 0; d < g->n_depth; d++)
            for (int i = 0; i < g->items; i++)
                TRY(needle(g, g->length[l], g->depth[d], i, out));
    return CB_OK;
}

/* ---- pass key ---- */

struct passkey {
    int key;
    double depth; /* percent */
};

static int build_passkey(void *arg, int units, struct buf *context, struct buf *question)
{
    const struct passkey *x = arg;
    const int at = (int)(x->depth / 100 * units + 0.5);

    cb_buf_text(context, "Somewhere in a lot of text without meaning there is a pass key. Find it "
                         "and remember it: you will be asked for it at the end.\n\n");
    for (int i = 0; i <= units; i++) {
        if (i == at)
            cb_buf_print(context, "The pass key is %d. Remember it. %d is the pass key. ", x->key,
                         x->key);
        if (i < units)
            cb_buf_print(context, "%s ", cb_noise(i));
    }
    cb_buf_text(context, "\n\n");
    cb_buf_text(question, "What is the pass key? The pass key is");
    return CB_OK;
}

static int passkey(const struct gen *g, int length, int depth, int index, struct item_list *out)
{
    struct rng r = cb_rng_for(g->seed, "passkey", length, depth, index);
    struct passkey x = { .key = 10000 + cb_rng_below(&r, 90000),
                         .depth = depth < 0 ? cb_rng_below(&r, 1001) / 10.0 : depth };
    char key[48];
    const char *const answer = key;
    const struct recipe recipe = { build_passkey, &x, 0, ALL, 16 };
    const struct made m = { .task = "passkey",
                            .metric = "contains",
                            .length = length,
                            .depth = depth,
                            .index = index,
                            .max_new = 16,
                            .answer = &answer,
                            .n_answer = 1 };

    snprintf(key, sizeof key, "%d", x.key);
    return cb_gen_item(g, &recipe, &m, out);
}

int cb_gen_passkey(const struct gen *g, struct item_list *out)
{
    for (int l = 0; l < g->n_length; l++)
        for (int i = 0; i < g->items; i++) {
            if (!g->n_depth)
                TRY(passkey(g, g->length[l], -1, i, out));
            for (int d = 0; d < g->n_depth; d++)
                TRY(passkey(g, g->length[l], g->depth[d], i, out));
        }
    return CB_OK;
}
