/* SPDX-License-Identifier: MIT */
/* metric.c - scores of answers. Text is compared byte by byte after lower-casing ASCII, as the
 * benchmarks do with English text. */
#include "metric.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* ---- words ---- */

struct words {
    char *buf;
    char **w; /* [n] into buf */
    int n;
};

static void words_free(struct words *x)
{
    free(x->buf);
    free(x->w);
}

static int is_article(const char *w)
{
    return !strcmp(w, "a") || !strcmp(w, "an") || !strcmp(w, "the");
}

enum { PLAIN, NORMAL }; /* NORMAL: lower case, without punctuation and articles (SQuAD's rule) */

static int split(const char *text, int how, struct words *out)
{
    const size_t n = strlen(text);
    size_t m = 0;

    *out = (struct words){ cb_calloc(n + 1, 1), cb_calloc(n / 2 + 1, sizeof *out->w), 0 };
    if (!out->buf || !out->w)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (how == PLAIN || !ispunct(c))
            out->buf[m++] = how == NORMAL ? (char)tolower(c) : (char)c;
    }
    for (char *at = out->buf; *(at += strspn(at, " \t\r\n\v\f"));) {
        char *word = at;
        at += strcspn(at, " \t\r\n\v\f");
        if (*at)
            *at++ = '\0';
        if (how == PLAIN || !is_article(word))
            out->w[out->n++] = word;
    }
    return CB_OK;
}

/* The normalised words joined by single blanks; caller frees. */
static char *normal(const char *text)
{
    struct words x;
    char *s = NULL;

    if (!split(text, NORMAL, &x) && (s = cb_calloc(strlen(text) + 2, 1))) {
        char *at = s;
        for (int i = 0; i < x.n; i++) {
            if (i)
                *at++ = ' ';
            at = stpcpy(at, x.w[i]);
        }
    }
    words_free(&x);
    return s;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The number of words that two sorted lists have in common, as multisets. */
static int overlap(const struct words *a, const struct words *b)
{
    int i = 0, j = 0, c = 0;
    while (i < a->n && j < b->n) {
        const int d = strcmp(a->w[i], b->w[j]);
        c += d == 0;
        i += d <= 0;
        j += d >= 0;
    }
    return c;
}

/* ---- one answer against one reference ---- */

static double f1(const char *pred, const char *gold)
{
    struct words p = { 0 }, g = { 0 };
    double f = -1;

    if (!split(pred, NORMAL, &p) && !split(gold, NORMAL, &g)) {
        qsort(p.w, (size_t)p.n, sizeof *p.w, by_text);
        qsort(g.w, (size_t)g.n, sizeof *g.w, by_text);
        f = p.n + g.n ? 2.0 * overlap(&p, &g) / (p.n + g.n) : 1;
    }
    words_free(&p);
    words_free(&g);
    return f;
}

static double contains(const char *pred, const char *gold)
{
    return strcasestr(pred, gold) != NULL;
}

/* Compares normalised texts: equal, or gold contained in pred. */
static double normal_relation(const char *pred, const char *gold, int equal)
{
    char *p = normal(pred), *g = normal(gold);
    const double s = !p || !g ? -1 : equal ? !strcmp(p, g) : strstr(p, g) != NULL;
    free(p);
    free(g);
    return s;
}

static double contains_norm(const char *pred, const char *gold)
{
    return normal_relation(pred, gold, 0);
}

static double exact(const char *pred, const char *gold)
{
    return normal_relation(pred, gold, 1);
}

/* Multiple choice: the first A..D that stands alone. */
static double choice(const char *pred, const char *gold)
{
    for (const char *c = pred; *c; c++) {
        const int alone =
            (c == pred || !isalnum((unsigned char)c[-1])) && !isalnum((unsigned char)c[1]);
        if (*c >= 'A' && *c <= 'D' && alone)
            return *c == *gold;
    }
    return 0;
}

static double last_number(const char *pred, const char *gold)
{
    const char *last = NULL;
    size_t n = 0;
    for (const char *c = pred; *(c += strcspn(c, "0123456789")); c += n) {
        n = strspn(c, "0123456789");
        last = c;
    }
    return last && n == strlen(gold) && !strncmp(last, gold, n);
}

/* Length of the longest common subsequence of n and m symbols; eq compares symbol i of a with
 * symbol j of b. */
static int lcs(const void *a, int n, const void *b, int m,
               int (*eq)(const void *a, int i, const void *b, int j))
{
    int *row = cb_calloc((size_t)m + 1, sizeof *row), best;

    if (!row)
        return CB_ENOMEM;
    for (int i = 0; i < n; i++) {
        int diagonal = 0;
        for (int j = 0; j < m; j++) {
            const int up = row[j + 1];
            row[j + 1] = eq(a, i, b, j) ? diagonal + 1 : up > row[j] ? up : row[j];
            diagonal = up;
        }
    }
    best = row[m];
    free(row);
    return best;
}

static int same_byte(const void *a, int i, const void *b, int j)
{
    return ((const char *)a)[i] == ((const char *)b)[j];
}

static int same_word(const void *a, int i, const void *b, int j)
{
    return !strcmp(((const struct words *)a)->w[i], ((const struct words *)b)->w[j]);
}

static double share_in_common(int common, int n, int m)
{
    return common < 0 ? -1 : n + m ? 2.0 * common / (n + m) : 1;
}

/* Code similarity of the answer's first line of code: a line without `, # or //. */
static double code_sim(const char *pred, const char *gold)
{
    const char *line = pred;
    size_t n = 0;

    for (; *line; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        if (n && !memchr(line, '`', n) && !memchr(line, '#', n) && !memmem(line, n, "//", 2))
            break;
    }
    if (!*line)
        n = 0;
    return share_in_common(lcs(line, (int)n, gold, (int)strlen(gold), same_byte), (int)n,
                           (int)strlen(gold));
}

static double rouge_l(const char *pred, const char *gold)
{
    struct words p = { 0 }, g = { 0 };
    double s = -1;

    if (!split(pred, PLAIN, &p) && !split(gold, PLAIN, &g))
        s = share_in_common(lcs(&p, p.n, &g, g.n, same_word), p.n, g.n);
    words_free(&p);
    words_free(&g);
    return s;
}

/* Correct numbers / all numbers in the answer. */
static double numbers(const char *pred, const char *gold)
{
    const char *want = gold + strcspn(gold, "0123456789");
    const size_t m = strspn(want, "0123456789");
    int right = 0, all = 0;

    for (const char *c = pred; *(c += strcspn(c, "0123456789"));) {
        const size_t n = strspn(c, "0123456789");
        right += n == m && !strncmp(c, want, n);
        all++;
        c += n;
    }
    return all ? (double)right / all : 0;
}

/* ---- over the references ---- */

static double best(const char *pred, const struct golds *g,
                   double (*one)(const char *pred, const char *gold))
{
    double max = 0;
    for (int i = 0; i < g->n; i++) {
        const double s = one(pred, g->text[i]);
        if (s < 0)
            return s;
        max = s > max ? s : max;
    }
    return max;
}

#define OVER_GOLDS(name)                                                                           \
    static double any_##name(const char *pred, const struct golds *g)                              \
    {                                                                                              \
        return best(pred, g, name);                                                                \
    }
OVER_GOLDS(f1)
OVER_GOLDS(contains)
OVER_GOLDS(contains_norm)
OVER_GOLDS(exact)
OVER_GOLDS(choice)
OVER_GOLDS(last_number)
OVER_GOLDS(code_sim)
OVER_GOLDS(rouge_l)
OVER_GOLDS(numbers)

/* RULER's metric: the share of the references found in the answer, as all of them are asked for. */
static double contains_all(const char *pred, const struct golds *g)
{
    double sum = 0;
    for (int i = 0; i < g->n; i++)
        sum += contains(pred, g->text[i]);
    return g->n ? sum / g->n : 0;
}

/* 1 / number of classes named, if the right one is among them. A class whose name lies within the
 * right one's name does not count. */
static double classification(const char *pred, const struct golds *g)
{
    int named = 0, right = 0;
    for (int i = 0; g->n && i < g->n_class; i++) {
        const char *c = g->classes[i];
        const int is_gold = !strcmp(c, g->text[0]);
        if (!strstr(pred, c) || (!is_gold && strstr(g->text[0], c)))
            continue;
        named++;
        right |= is_gold;
    }
    return right ? 1.0 / named : 0;
}

static const struct metric table[] = {
    { "qa_f1", "F1 of words, without punctuation and articles", any_f1 },
    { "contains", "the answer contains the reference", any_contains },
    { "contains_all", "share of the references that the answer contains", contains_all },
    { "contains_norm", "as contains, without punctuation and articles", any_contains_norm },
    { "em", "the answer equals the reference, without punctuation and articles", any_exact },
    { "choice", "the first letter A to D that stands alone is the reference", any_choice },
    { "last_number", "the last number of the answer is the reference", any_last_number },
    { "code_sim", "similarity of the answer's first line of code, by characters", any_code_sim },
    { "rouge_l", "longest common subsequence of words, as F1", any_rouge_l },
    { "numbers", "share of the answer's numbers that are right", any_numbers },
    { "classification",
      "1 divided by the number of classes that are named, if the right one is among them",
      classification },
};

const struct metric *cb_metric_at(int i)
{
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const struct metric *cb_metric_find(const char *name)
{
    const struct metric *m;
    for (int i = 0; (m = cb_metric_at(i)); i++)
        if (!strcmp(m->name, name))
            return m;
    return NULL;
}
