/* SPDX-License-Identifier: MIT */
/* metric.c - scores of answers. Text is compared byte by byte after lower-casing ASCII, as the
 * benchmarks do with English text; in languages without blanks by characters. */
#include "metric.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

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

/* NORMAL: lower case, without punctuation and articles (SQuAD's rule); CHARACTERS: each is a word,
 * in lower case, but for blanks, punctuation and symbols (InfiniteBench's rule for Chinese) */
enum { PLAIN, NORMAL, CHARACTERS };

static int is_mark(utf8proc_int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_PC ... UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
        return 1;
    default:
        return 0;
    }
}

static int split_characters(const char *text, struct words *out)
{
    const size_t n = strlen(text);
    const utf8proc_uint8_t *at = (const utf8proc_uint8_t *)text, *end = at + n;
    char *to;

    /* the lower case of a character of one or two bytes may have three */
    *out = (struct words){ cb_calloc(4 * n + 1, 1), cb_calloc(n + 1, sizeof *out->w), 0 };
    if (!out->buf || !out->w)
        return CB_ENOMEM;
    to = out->buf;
    while (at < end) {
        utf8proc_int32_t c;
        const utf8proc_ssize_t len = utf8proc_iterate(at, end - at, &c);
        at += len > 0 ? len : 1;
        if (len <= 0 || is_mark(c))
            continue;
        out->w[out->n++] = to;
        to += utf8proc_encode_char(utf8proc_tolower(c), (utf8proc_uint8_t *)to) + 1;
    }
    return CB_OK;
}

static int split(const char *text, int how, struct words *out)
{
    const size_t n = strlen(text);
    size_t m = 0;

    if (how == CHARACTERS)
        return split_characters(text, out);
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

static double f1_of(const char *pred, const char *gold, int how)
{
    struct words p = { 0 }, g = { 0 };
    double f = -1;

    if (!split(pred, how, &p) && !split(gold, how, &g)) {
        qsort(p.w, (size_t)p.n, sizeof *p.w, by_text);
        qsort(g.w, (size_t)g.n, sizeof *g.w, by_text);
        f = p.n + g.n ? 2.0 * overlap(&p, &g) / (p.n + g.n) : 1;
    }
    words_free(&p);
    words_free(&g);
    return f;
}

static double f1(const char *pred, const char *gold)
{
    return f1_of(pred, gold, NORMAL);
}

static double f1_chars(const char *pred, const char *gold)
{
    return f1_of(pred, gold, CHARACTERS);
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

static double rouge_of(const char *pred, const char *gold, int how)
{
    struct words p = { 0 }, g = { 0 };
    double s = -1;

    if (!split(pred, how, &p) && !split(gold, how, &g))
        s = share_in_common(lcs(&p, p.n, &g, g.n, same_word), p.n, g.n);
    words_free(&p);
    words_free(&g);
    return s;
}

static double rouge_l(const char *pred, const char *gold)
{
    return rouge_of(pred, gold, PLAIN);
}

static double rouge_chars(const char *pred, const char *gold)
{
    return rouge_of(pred, gold, CHARACTERS);
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

/* ROUGE as the package rouge_score has it: words of letters and digits. */
static double rouge_words(const char *pred, const char *gold)
{
    const char *const from[] = { pred, gold };
    struct words x[2] = { { 0 }, { 0 } };
    char *plain[2] = { NULL, NULL };
    double s = -1;
    int err = CB_OK;

    for (int i = 0; i < 2 && !err; i++) {
        const size_t n = strlen(from[i]);
        plain[i] = cb_calloc(n + 1, 1);
        for (size_t j = 0; plain[i] && j < n; j++) {
            const unsigned char c = (unsigned char)from[i][j];
            plain[i][j] = c < 128 && isalnum(c) ? (char)tolower(c) : ' ';
        }
        err = plain[i] ? split(plain[i], PLAIN, &x[i]) : CB_ENOMEM;
    }
    if (!err)
        s = x[0].n && x[1].n
                ? share_in_common(lcs(&x[0], x[0].n, &x[1], x[1].n, same_word), x[0].n, x[1].n)
                : 0;
    for (int i = 0; i < 2; i++) {
        free(plain[i]);
        words_free(&x[i]);
    }
    return s;
}

/* ---- L-Eval's exams ---- */

enum { ALL_OPTIONS = 15 };

static int option_bit(char c)
{
    return c >= 'A' && c <= 'D' ? 1 << (c - 'A') : 0;
}

/* The options in the reference's first word; where it names none, the first one. */
static int gold_options(const char *gold)
{
    const char *word = gold + strspn(gold, " \t\r\n");
    int set = 0;

    for (; *word && !isspace((unsigned char)*word); word++)
        set |= option_bit(*word);
    return set ? set : 1;
}

/* The first A to D, also within a word; where there is none, A is guessed. A few letters in a row
 * and nothing else are no choice. */
static double exam_option(const char *pred, const char *gold)
{
    const char *c = pred + strcspn(pred, "ABCD");

    if (!*pred || (pred[1] && strstr("ABCD", pred)))
        return 0;
    return (*c ? option_bit(*c) : 1) == gold_options(gold);
}

/* The letters that begin the answer if there are several; else these and all before "Question" that
 * a blank, a dot or a bracket follows. */
static int options_named(const char *pred)
{
    const size_t n = strspn(pred, "ABCD");
    const char *rest = pred + n, *end = strstr(rest, "Question");
    int set = 0;

    for (size_t i = 0; i < n; i++)
        set |= option_bit(pred[i]);
    if (n > 1 || (n && !*rest))
        return set;
    for (end = end ? end : rest + strlen(rest); rest + 1 < end; rest++)
        if (isspace((unsigned char)rest[1]) || rest[1] == '.' || rest[1] == ')')
            set |= option_bit(*rest);
    return set ? set : 1;
}

/* Several options can be right: a part of them is worth a quarter. */
static double exam_options(const char *pred, const char *gold)
{
    const int named = options_named(pred), right = gold_options(gold);

    if (!*pred)
        return 0;
    return named == right ? 1 : named & ~right & ALL_OPTIONS ? 0 : 0.25;
}

/* The whole number after "The answer is", or in the last word with a digit of the first paragraph
 * -> its digits, count */
static size_t answered(const char *s, char (*digits)[32])
{
    static const char begin[] = "The answer is ";
    const char *word = strstr(s, begin), *end = strstr(s, "\n\n");
    size_t n = 0;

    word = word ? word + sizeof begin - 1 : NULL;
    if (word && (!*word || isspace((unsigned char)*word)))
        word = NULL;
    for (const char *c = end ? end : s + strlen(s); !word && c > s; c--)
        if (isdigit((unsigned char)c[-1]))
            for (word = c - 1; word > s && !isspace((unsigned char)word[-1]);)
                word--;
    for (; word && *word && !isspace((unsigned char)*word) && *word != '.'; word++)
        if (isdigit((unsigned char)*word) && n < sizeof *digits - 1)
            (*digits)[n++] = *word;
    (*digits)[n] = '\0';
    return n;
}

static double exam_number(const char *pred, const char *gold)
{
    char p[32], g[32];

    return answered(pred, &p) && answered(gold, &g) && strtod(p, NULL) == strtod(g, NULL);
}

/* Without blanks */
static char *dense(const char *s, size_t n)
{
    char *out = cb_calloc(n + 1, 1), *at = out;

    for (size_t i = 0; out && i < n; i++)
        if (s[i] != ' ')
            *at++ = s[i];
    return out;
}

/* The first line with more than a letter contains the reference, whatever the blanks. */
static double exam_text(const char *pred, const char *gold)
{
    const char *line = pred;
    size_t n = strcspn(line, "\n");
    char *p, *g;
    double s;

    while (n < 2 && line[n])
        n = strcspn(line += n + 1, "\n");
    if (n < 2)
        n = strlen(line = pred);
    p = dense(line, n);
    g = dense(gold, strlen(gold));
    s = !p || !g ? -1 : strcasestr(p, g) != NULL;
    free(p);
    free(g);
    return s;
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
OVER_GOLDS(f1_chars)
OVER_GOLDS(contains)
OVER_GOLDS(contains_norm)
OVER_GOLDS(exact)
OVER_GOLDS(choice)
OVER_GOLDS(last_number)
OVER_GOLDS(code_sim)
OVER_GOLDS(rouge_l)
OVER_GOLDS(rouge_chars)
OVER_GOLDS(numbers)
OVER_GOLDS(rouge_words)
OVER_GOLDS(exam_option)
OVER_GOLDS(exam_options)
OVER_GOLDS(exam_number)
OVER_GOLDS(exam_text)

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
    { "f1_chars", "F1 of characters but for blanks and punctuation, for Chinese", any_f1_chars },
    { "contains", "the answer contains the reference", any_contains },
    { "contains_all", "share of the references that the answer contains", contains_all },
    { "contains_norm", "as contains, without punctuation and articles", any_contains_norm },
    { "em", "the answer equals the reference, without punctuation and articles", any_exact },
    { "choice", "the first letter A to D that stands alone is the reference", any_choice },
    { "last_number", "the last number of the answer is the reference", any_last_number },
    { "code_sim", "similarity of the answer's first line of code, by characters", any_code_sim },
    { "rouge_l", "longest common subsequence of words, as F1", any_rouge_l },
    { "rouge_chars", "as rouge_l, of characters as in f1_chars", any_rouge_chars },
    { "numbers", "share of the answer's numbers that are right", any_numbers },
    { "rouge_words", "as rouge_l, of words of letters and digits in lower case", any_rouge_words },
    { "exam_option", "the answer's first letter A to D is the reference's", any_exam_option },
    { "exam_options", "the letters A to D are the reference's; a part of them counts a quarter",
      any_exam_options },
    { "exam_number", "the number after 'The answer is', or the last one, is the reference",
      any_exam_number },
    { "exam_text", "the answer's first line contains the reference, whatever the blanks",
      any_exam_text },
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
