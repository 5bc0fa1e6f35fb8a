/* SPDX-License-Identifier: MIT */
/* gen_2stage.c - 2StageRetr (Hao et al. 2025, appendix A): a dictionary from numbers to colours,
 * then an equation whose sum is the key to look up. */
#include "base/err.h"
#include "gen.h"
#include "metric.h"

enum { N_COLOUR = 16, MAX_ENTRIES = 1 << 20 };

static const char *const colour[N_COLOUR] = {
    "red",    "blue", "green", "yellow", "black", "white", "brown", "violet",
    "orange", "pink", "teal",  "maroon", "lime",  "gray",  "gold",  "silver",
};

struct stage {
    struct rng rng; /* state before the item */
    int cot;
    const char *answer; /* set by build */
};

/* Keys ascend from 0 with gaps. The question asks for the key at `share` of the list. */
static int build(void *arg, int units, struct buf *context, struct buf *question)
{
    struct stage *x = arg;
    struct rng r = x->rng;
    const int share = cb_rng_below(&r, 1 << 20), split = cb_rng_below(&r, 1 << 20);
    const int asked = 2 + (int)((int64_t)share * (units - 2) >> 20);
    int key = -1, sum = 0, a;

    cb_buf_text(context, "Let us play a game. There is a dictionary and an equation. Add the two "
                         "numbers of the equation, look the sum up in the dictionary and say its "
                         "colour.\nThe dictionary is {");
    for (int i = 0; i < units; i++) {
        const char *c;
        key += cb_rng_below(&r, 8) ? 1 : 2 + cb_rng_below(&r, 8);
        c = colour[cb_rng_below(&r, N_COLOUR)];
        cb_buf_print(context, "%s%d: %s", i ? ", " : "", key, c);
        if (i == asked) {
            sum = key;
            x->answer = c;
        }
    }
    cb_buf_text(context, "}\n\n");
    a = 1 + (int)((int64_t)split * (sum - 1) >> 20);
    cb_buf_print(question, "The equation is %d + %d = ?\n", a, sum - a);
    cb_buf_text(question, x->cot ? "First work out the sum, then say its colour, in the form: "
                                   "Since 1 + 2 = 3, the colour is \"red\".\nAnswer: Since"
                                 : "Answer with the colour alone.\nAnswer: The colour is");
    return CB_OK;
}

static int item(const struct gen *g, int cot, int length, int index, struct item_list *out)
{
    struct stage x = { cb_rng_for(g->seed, "2stage", length, 0, index), cot, NULL };
    const int max_new = cot ? 64 : 12;
    const struct recipe recipe = { build, &x, 3, MAX_ENTRIES, max_new };
    struct made m = { .task = cot ? "2stage_cot" : "2stage",
                      .metric = "contains",
                      .length = length,
                      .depth = -1,
                      .index = index,
                      .max_new = max_new,
                      .answer = &x.answer,
                      .n_answer = 1 };

    return cb_gen_item(g, &recipe, &m, out);
}

int cb_gen_2stage(const struct gen *g, int cot, struct item_list *out)
{
    for (int l = 0; l < g->n_length; l++)
        for (int i = 0; i < g->items; i++)
            TRY(item(g, cot, g->length[l], i, out));
    return CB_OK;
}

/* ---- with worked examples ---- */

enum { N_SHOWN = 3 };

struct shown {
    int n, most;            /* entries, 0 to n - 1; the largest sum */
    int sum[N_SHOWN + 1];   /* all differ; the last one is asked for */
    int first[N_SHOWN + 1]; /* number of each addition, 1 to its sum - 1 */
    const char *answer;     /* colour of the last sum */
};

/* Sums are at least 2, so that both numbers are at least 1. */
static void choose_sums(struct shown *x, struct rng *r)
{
    cb_rng_choose(r, x->sum, N_SHOWN + 1, x->most - 1);
    cb_rng_shuffle(r, x->sum, N_SHOWN + 1);
    for (int i = 0; i <= N_SHOWN; i++) {
        x->sum[i] += 2;
        x->first[i] = 1 + cb_rng_below(r, x->sum[i] - 1);
    }
}

static void say_shown(struct shown *x, struct rng *r, struct buf *context, struct buf *question)
{
    const char *of[N_SHOWN + 1] = { 0 };

    for (int k = 0; k < x->n; k++) {
        const char *c = colour[cb_rng_below(r, N_COLOUR)];
        cb_buf_print(context, "The colour of %d is %s.\n", k, c);
        for (int i = 0; i <= N_SHOWN; i++)
            of[i] = x->sum[i] == k ? c : of[i];
    }
    cb_buf_text(context, "\n");
    for (int i = 0; i < N_SHOWN; i++)
        cb_buf_print(question, "%d + %d = %d, and the colour of %d is %s.\n", x->first[i],
                     x->sum[i] - x->first[i], x->sum[i], x->sum[i], of[i]);
    cb_buf_print(question, "%d + %d =", x->first[N_SHOWN], x->sum[N_SHOWN] - x->first[N_SHOWN]);
    x->answer = of[N_SHOWN];
}

static int shown_item(const struct gen *g, int entries, int most, int index, struct item_list *out)
{
    struct rng r = cb_rng_for(g->seed, "2stage_shown", entries, most, index);
    struct shown x = { .n = entries, .most = most };
    struct buf context = { 0 }, question = { 0 }, id = { 0 };
    const struct made m = { .task = "2stage_shown",
                            .metric = "contains",
                            .length = entries,
                            .depth = -1,
                            .max_new = 24,
                            .answer = &x.answer,
                            .n_answer = 1,
                            .stop_at_line = 1 };
    int err;

    choose_sums(&x, &r);
    say_shown(&x, &r, &context, &question);
    cb_buf_print(&id, "2stage_shown-%d-%d-s%llu-%d", entries, most, (unsigned long long)g->seed,
                 index);
    err = cb_gen_add(&m, &id, &context, &question, out);
    cb_buf_free(&context);
    cb_buf_free(&question);
    cb_buf_free(&id);
    return err;
}

int cb_gen_2stage_shown(const struct gen *g, int entries, int most, struct item_list *out)
{
    if (!most || most > entries - 1)
        most = entries - 1;
    if (most < N_SHOWN + 2)
        return cb_fail(CB_EARG, "2stage: sums up to %d are too few for %d examples and a question",
                       most, N_SHOWN);
    for (int i = 0; i < g->items; i++)
        TRY(shown_item(g, entries, most, i, out));
    return CB_OK;
}

/* ---- as published ---- */

static const char *const published_colour[] = {
    "red",    "green", "blue",  "yellow", "orange",  "purple", "pink",   "brown",
    "black",  "white", "gray",  "cyan",   "magenta", "indigo", "violet", "beige",
    "maroon", "navy",  "olive", "teal",   "lime",    "silver", "gold",
};
enum { N_PUBLISHED = (int)(sizeof published_colour / sizeof *published_colour) };

/* Keys are 0 to n - 1. The answer's key is any of them, the first number any up to it. */
static int published_item(const struct gen *g, int n, int index, struct item_list *out)
{
    struct rng r = cb_rng_for(g->seed, "2stage_published", n, 0, index);
    const int sum = cb_rng_below(&r, n), a = cb_rng_below(&r, sum + 1);
    struct buf context = { 0 }, question = { 0 }, id = { 0 };
    const char *answer = NULL;
    const struct made m = { .task = "2stage_published",
                            .metric = "contains",
                            .depth = -1,
                            .max_new = 64,
                            .answer = &answer,
                            .n_answer = 1,
                            .chat = 1 };
    int err;

    cb_buf_text(&context,
                "Let us play a game. There is a dictionary, whose keys are numbers, and an "
                "addition. Add, look the sum up in the dictionary, and say the value "
                "there.\nThe dictionary is {");
    for (int i = 0; i < n; i++) {
        const char *c = published_colour[cb_rng_below(&r, N_PUBLISHED)];
        cb_buf_print(&context, "%s%d: '%s'", i ? ", " : "", i, c);
        answer = i == sum ? c : answer;
    }
    cb_buf_text(&context, "}\n");
    cb_buf_print(&question,
                 "The addition is %d + %d = ?\nYou must first say the sum, and then the value that "
                 "belongs to it.",
                 a, sum - a);
    cb_buf_print(&id, "2stage_published-s%llu-%d", (unsigned long long)g->seed, index);
    err = cb_gen_add(&m, &id, &context, &question, out);
    cb_buf_free(&context);
    cb_buf_free(&question);
    cb_buf_free(&id);
    return err;
}

int cb_gen_2stage_published(const struct gen *g, struct item_list *out)
{
    static const int size[] = { 40, 50, 60, 70, 80, 90, 100, 140, 180, 200 };

    for (int i = 0; i < g->items; i++)
        TRY(published_item(g, size[i % (int)(sizeof size / sizeof *size)], i, out));
    return CB_OK;
}
