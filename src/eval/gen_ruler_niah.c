/* SPDX-License-Identifier: MIT */
/* gen_ruler_niah.c - RULER's retrieval tasks: needles in noise, in a text, or among other needles.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gen_ruler.h"

enum { MAX_KEYS = 4, MAX_VALUES = 4, MAX_HIDDEN = 4, ALL = 1 << 24 };

struct niah {
    const struct gen *g;
    const struct ruler_task *t;
    int start;
    char key[MAX_KEYS][48], value[MAX_HIDDEN][48];
    char text[MAX_HIDDEN][160];
    const char *insert[MAX_HIDDEN];
    double depth[MAX_HIDDEN]; /* percent, ascending */
    struct rng rng;           /* for distractors */
};

static void print_needle(struct buf *b, const struct ruler_task *t, const char *key,
                         const char *value)
{
    cb_buf_print(b, "One of the special magic %s for %s is: %s.", cb_value_name(t->value, 1), key,
                 value);
}

/* Distractors only: one line each, in the form of a needle. */
static void fill_needles(const struct niah *x, int units, struct buf *out)
{
    struct rng r = x->rng;
    int next = 0;

    for (int i = 0; i <= units; i++) {
        for (; next < x->t->n_key * x->t->n_value && x->depth[next] / 100 * units <= i; next++)
            cb_buf_print(out, "%s\n", x->insert[next]);
        if (i < units) {
            char key[48], value[48];
            cb_value(&r, x->t->key, &key);
            cb_value(&r, x->t->value, &value);
            if (strcmp(key, x->key[0])) { /* the asked key has only one answer */
                print_needle(out, x->t, key, value);
                cb_buf_text(out, "\n");
            }
        }
    }
}

void cb_ruler_noise(int units, const char *const *insert, const double *depth, int n,
                    struct buf *out)
{
    int next = 0;

    for (int i = 0; i <= units; i++) {
        for (; next < n && depth[next] / 100 * units <= i; next++)
            cb_buf_print(out, "%s ", insert[next]);
        if (i < units)
            cb_buf_print(out, "%s%s", cb_noise(i), i % 5 == 4 ? "\n" : " ");
    }
}

static void ask(const struct niah *x, struct buf *q)
{
    const struct ruler_task *t = x->t;
    const int many = t->n_value > 1 || t->n_query > 1;
    const char *name = cb_value_name(t->value, many);

    for (int again = 0; again < 2; again++) {
        cb_buf_print(q,
                     again  ? "The special magic %s for "
                     : many ? "What are all the special magic %s for "
                            : "What is the special magic %s for ",
                     name);
        for (int i = 0; i < t->n_query; i++)
            cb_buf_print(q, "%s%s", !i ? "" : i + 1 < t->n_query ? ", " : ", and ", x->key[i]);
        cb_buf_print(q, " in the text above%s", again ? (many ? " are" : " is") : "? ");
    }
}

static int build_niah(void *arg, int units, struct buf *context, struct buf *question)
{
    const struct niah *x = arg;
    const struct ruler_task *t = x->t;
    const int n = t->n_key * t->n_value;

    cb_buf_print(context,
                 "Some special magic %s are hidden in the text below. Remember them: you will be "
                 "asked for them at the end.\n",
                 cb_value_name(t->value, 1));
    if (t->hay == HAY_NEEDLES)
        fill_needles(x, units, context);
    else if (t->hay == HAY_NOISE)
        cb_ruler_noise(units, x->insert, x->depth, n, context);
    else
        cb_hay_fill(x->g->haystack, x->start, units, x->insert, x->depth, n, context);
    cb_buf_text(context, "\n");
    ask(x, question);
    return CB_OK;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void cb_ruler_depths(struct rng *r, double *depth, int n)
{
    for (int i = 0; i < n; i++)
        depth[i] = cb_rng_below(r, 1001) / 10.0;
    qsort(depth, (size_t)n, sizeof *depth, by_value);
}

/* A key unlike the i before it: each has its own answer. */
static void new_key(struct niah *x, int i, struct rng *r)
{
    int taken;

    do {
        taken = 0;
        cb_value(r, x->t->key, &x->key[i]);
        for (int j = 0; j < i; j++)
            taken |= !strcmp(x->key[j], x->key[i]);
    } while (taken);
}

static void set_niah(struct niah *x, struct rng *r)
{
    const struct ruler_task *t = x->t;
    const int n = t->n_key * t->n_value;
    int order[MAX_HIDDEN];

    if (x->g->haystack) {
        x->start = cb_rng_below(r, x->g->haystack->n);
        while (!x->g->haystack->word[x->start].is_first)
            x->start--;
    }
    for (int i = 0; i < t->n_key; i++)
        new_key(x, i, r);
    for (int i = 0; i < n; i++)
        order[i] = i;
    cb_rng_shuffle(r, order, n);
    for (int i = 0; i < n; i++) {
        struct buf b = { 0 };
        cb_value(r, t->value, &x->value[i]);
        print_needle(&b, t, x->key[i / t->n_value], x->value[i]);
        snprintf(x->text[i], sizeof x->text[i], "%s", b.s ? b.s : "");
        cb_buf_free(&b);
    }
    for (int i = 0; i < n; i++)
        x->insert[i] = x->text[order[i]];
    cb_ruler_depths(r, x->depth, n);
    x->rng = *r;
}

int cb_ruler_niah(const struct gen *g, const struct ruler_task *t, int length, int index,
                  struct item_list *out)
{
    struct niah x = { .g = g, .t = t };
    struct rng r = cb_rng_for(g->seed, t->name, length, 0, index);
    const char *answer[MAX_HIDDEN];
    const struct recipe recipe = { build_niah, &x, 0, ALL, t->max_new };
    const struct made m = { .task = t->name,
                            .metric = t->metric,
                            .length = length,
                            .depth = -1,
                            .index = index,
                            .max_new = t->max_new,
                            .answer = answer,
                            .n_answer = t->n_query * t->n_value };

    set_niah(&x, &r);
    for (int i = 0; i < m.n_answer; i++) /* the first keys are the ones asked for */
        answer[i] = x.value[i];
    return cb_gen_item(g, &recipe, &m, out);
}
