/* SPDX-License-Identifier: MIT */
/* gen_ruler_more.c - RULER's variable tracking and its two tasks that count words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "gen_ruler.h"

enum { ALL = 1 << 24 };

static struct made made_of(const struct ruler_task *t, int length, int index)
{
    return (struct made){ .task = t->name,
                          .metric = t->metric,
                          .length = length,
                          .depth = -1,
                          .index = index,
                          .max_new = t->max_new };
}

/* ---- variable tracking: a chain of four assignments after the first ---- */

enum { HOPS = 4, CHAIN = HOPS + 1 };

struct chain {
    char name[CHAIN][8], value[16];
    char text[CHAIN][48];
    const char *insert[CHAIN], *answer[CHAIN];
    double depth[CHAIN];
};

struct vt {
    struct chain example, asked;
};

static void set_chain(struct chain *c, struct rng *r)
{
    snprintf(c->value, sizeof c->value, "%d", 10000 + cb_rng_below(r, 90000));
    for (int i = 0; i < CHAIN; i++) {
        for (int j = 0; j < 5; j++)
            c->name[i][j] = (char)('A' + cb_rng_below(r, 26));
        c->name[i][5] = '\0';
        if (i)
            snprintf(c->text[i], sizeof c->text[i], "VAR %s = VAR %s.", c->name[i], c->name[i - 1]);
        else
            snprintf(c->text[i], sizeof c->text[i], "VAR %s = %s.", c->name[i], c->value);
        c->insert[i] = c->text[i];
        c->answer[i] = c->name[i];
    }
    cb_ruler_depths(r, c->depth, CHAIN);
}

static void print_chain(const struct chain *c, int units, struct buf *context)
{
    cb_buf_text(context, "Remember and follow the chain of variable assignments that is hidden in "
                         "the text below.\n\n");
    cb_ruler_noise(units, c->insert, c->depth, CHAIN, context);
    cb_buf_text(context, "\n");
}

static void ask_chain(const struct chain *c, struct buf *question)
{
    cb_buf_print(question,
                 "Question: Which variables are assigned the value %s in the text above?\n"
                 "Answer: In the text above, %d variables are assigned the value %s: ",
                 c->value, CHAIN, c->value);
}

static int build_vt(void *arg, int units, struct buf *context, struct buf *question)
{
    const struct vt *x = arg;

    print_chain(&x->example, 10, context); /* one worked example */
    ask_chain(&x->example, context);
    for (int i = 0; i < CHAIN; i++)
        cb_buf_print(context, "%s%s", x->example.name[i], i + 1 < CHAIN ? ", " : "\n\n");
    print_chain(&x->asked, units, context);
    ask_chain(&x->asked, question);
    return CB_OK;
}

int cb_ruler_vt(const struct gen *g, const struct ruler_task *t, int length, int index,
                struct item_list *out)
{
    struct rng r = cb_rng_for(g->seed, t->name, length, 0, index);
    struct vt x;
    const struct recipe recipe = { build_vt, &x, 0, ALL, t->max_new };
    struct made m = made_of(t, length, index);

    set_chain(&x.example, &r);
    set_chain(&x.asked, &r);
    m.answer = x.asked.answer;
    m.n_answer = CHAIN;
    return cb_gen_item(g, &recipe, &m, out);
}

/* ---- common words: ten that come often among many that come rarely ---- */

enum { COMMON = 10, OFTEN = 30, RARELY = 3 };

struct cwe {
    struct rng rng;
    int often, rarely;
    int *list, *pick; /* work space [PAIR_WORDS * (RARELY + 1)], [PAIR_WORDS] */
    char answer[COMMON][48];
};

/* Prints the words: pick[0..9] are the common ones, the next `units` are rare. */
static void print_words(const struct cwe *x, const int *pick, int often, int rarely, int units,
                        struct rng *r, struct buf *out)
{
    int n = 0;

    for (int i = 0; i < COMMON + units; i++)
        for (int j = 0; j < (i < COMMON ? often : rarely); j++)
            x->list[n++] = pick[i];
    cb_rng_shuffle(r, x->list, n);
    cb_buf_text(out, "Below is a numbered list of words. Some of them come more often than "
                     "others. Remember those that come most often.\n");
    for (int i = 0; i < n; i++) {
        char word[48];
        cb_pair_word(x->list[i], &word);
        cb_buf_print(out, "%d. %s%s", i + 1, word, i + 1 < n ? " " : "\n");
    }
}

static const char cwe_question[] =
    "Question: Which 10 words are the most common in the list above?\n"
    "Answer: The 10 words that come most often in the list are:";

static int build_cwe(void *arg, int units, struct buf *context, struct buf *question)
{
    struct cwe *x = arg;
    struct rng r = x->rng;
    char word[48];

    for (int i = 0; i < PAIR_WORDS; i++)
        x->pick[i] = i;
    cb_rng_shuffle(&r, x->pick, PAIR_WORDS);
    print_words(x, x->pick + PAIR_WORDS - COMMON - 10, 3, 1, 10, &r, context); /* an example */
    cb_buf_text(context, cwe_question);
    for (int i = 0; i < COMMON; i++) {
        cb_pair_word(x->pick[PAIR_WORDS - COMMON - 10 + i], &word);
        cb_buf_print(context, " %d. %s%s", i + 1, word, i + 1 < COMMON ? "" : "\n\n");
    }
    for (int i = 0; i < COMMON; i++)
        cb_pair_word(x->pick[i], &x->answer[i]);
    print_words(x, x->pick, x->often, x->rarely, units, &r, context);
    cb_buf_text(question, cwe_question);
    return CB_OK;
}

int cb_ruler_cwe(const struct gen *g, const struct ruler_task *t, int length, int index,
                 struct item_list *out)
{
    struct cwe x = { .rng = cb_rng_for(g->seed, t->name, length, 0, index),
                     .often = OFTEN,
                     .rarely = RARELY };
    const struct recipe recipe = { build_cwe, &x, 1, PAIR_WORDS - 2 * COMMON - 10, t->max_new };
    struct made m = made_of(t, length, index);
    const char *answer[COMMON];
    int err = CB_ENOMEM;

    if (length < 4096) { /* the paper's counts do not fit: fewer of each, in the same ratio */
        x.rarely = 1;
        x.often = 10;
    }
    x.list = cb_calloc(PAIR_WORDS * (RARELY + 1), sizeof *x.list);
    x.pick = cb_calloc(PAIR_WORDS, sizeof *x.pick);
    for (int i = 0; i < COMMON; i++)
        answer[i] = x.answer[i];
    m.answer = answer;
    m.n_answer = COMMON;
    if (x.list && x.pick)
        err = cb_gen_item(g, &recipe, &m, out);
    free(x.list);
    free(x.pick);
    return err;
}

/* ---- frequent words: coded words whose counts fall with the square of their rank ---- */

enum { N_CODED = 2000, TOP = 3 };

struct fwe {
    struct rng rng;
    int *list; /* [cap] work space */
    size_t cap;
    char word[N_CODED][8];
    const char *answer[TOP];
};

/* Count of the word of rank k >= 1 among n words: zeta distribution with exponent 2. */
static int rank_count(int k, int n)
{
    return (int)(n / (1.6449340668482264 * k * k));
}

static int build_fwe(void *arg, int units, struct buf *context, struct buf *question)
{
    struct fwe *x = arg;
    struct rng r = x->rng;
    int n = 0;

    TRY(cb_grow(&x->list, &x->cap, units, sizeof *x->list));
    for (int k = 1; k <= N_CODED && n < units; k++) {
        int c = rank_count(k, units);
        for (c = c ? c : 1; c && n < units; c--)
            x->list[n++] = k - 1;
    }
    cb_rng_shuffle(&r, x->list, n);
    cb_buf_text(context, "Read the coded text below and count how often each coded word comes. "
                         "Find the three that come most often. The dots are no words.\n");
    for (int i = 0; i < n; i++)
        cb_buf_print(context, "%s ", x->list[i] ? x->word[x->list[i]] : "....");
    cb_buf_text(context, "\n");
    cb_buf_text(question, "Question: Which three words come most often in the coded text above? Do "
                          "not explain.\nAnswer: The three words that come most often in the coded "
                          "text above are:");
    return CB_OK;
}

int cb_ruler_fwe(const struct gen *g, const struct ruler_task *t, int length, int index,
                 struct item_list *out)
{
    struct rng r = cb_rng_for(g->seed, t->name, length, 0, index);
    struct fwe *x = cb_calloc(1, sizeof *x);
    const struct recipe recipe = { build_fwe, x, 64, ALL, t->max_new };
    struct made m = made_of(t, length, index);
    int err;

    if (!x)
        return CB_ENOMEM;
    for (int i = 0; i < N_CODED; i++)
        for (int j = 0; j < 6; j++)
            x->word[i][j] = (char)('a' + cb_rng_below(&r, 26));
    for (int i = 0; i < TOP; i++)
        x->answer[i] = x->word[i + 1];
    x->rng = r;
    m.answer = x->answer;
    m.n_answer = TOP;
    err = cb_gen_item(g, &recipe, &m, out);
    free(x->list);
    free(x);
    return err;
}
