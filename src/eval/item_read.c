/* SPDX-License-Identifier: MIT */
/* item_read.c - items from JSON lines: the suite's own form, LongBench's, InfiniteBench's and
 * L-Eval's. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json_lenient.h"
#include "base/plain_text.h"
#include "base/suggest.h"
#include "item.h"
#include "metric.h"
#include "published.h"

struct reader {
    const char *path;
    char task[128]; /* from the file's name, where lines name no task */
    int line;
    struct templates *templates; /* read when first needed */
};

static const char *text(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_string(v) ? json_string_value(v) : NULL;
}

/* ---- where the question begins in a prompt that is one text ---- */

/* The question is the prompt's last paragraph or, if that is too long for a question, its last
 * line. NULL: neither. */
static const char *find_question(const char *prompt)
{
    enum { LONGEST = 500 };
    const size_t n = strlen(prompt), look = n < 2000 ? n : 2000;
    const char *blank = NULL, *line = NULL;

    for (const char *c = prompt + n - look; *c; c++)
        if (*c == '\n' && c > prompt && c[1]) {
            line = c + 1;
            if (c[1] == '\n' && c[2])
                blank = c + 2;
        }
    return blank && strlen(blank) <= LONGEST ? blank : line;
}

static int split_prompt(const char *prompt, char **context)
{
    const char *q = find_question(prompt);
    const size_t n = q ? (size_t)(q - prompt) : strlen(prompt);

    *context = cb_calloc(n + 1, 1);
    if (!*context)
        return CB_ENOMEM;
    memcpy(*context, prompt, n);
    return CB_OK;
}

/* ---- lists of strings ---- */

enum { MAX_TEXTS = 64, MOST_NEW = 1 << 16, LONGEST_ANSWER = 1 << 16 };

/* A string or an array of strings or numbers -> out[<= MAX_TEXTS] that point into `hold` or v */
static int strings(const json_t *v, const char **out, char (*hold)[32])
{
    const size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v) ? 1 : 0;
    int m = 0;

    for (size_t i = 0; i < n && m < MAX_TEXTS; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        if (json_is_string(x))
            out[m++] = json_string_value(x);
        else if (json_is_number(x)) {
            snprintf(hold[m], sizeof hold[m], "%.15g", json_number_value(x));
            out[m] = hold[m];
            m++;
        }
    }
    return m;
}

static int set_classes(struct item *it, const json_t *v)
{
    const char *c[MAX_TEXTS];
    char hold[MAX_TEXTS][32];
    const int n = strings(v, c, hold);

    if (n && !(it->classes = cb_calloc((size_t)n, sizeof *it->classes)))
        return CB_ENOMEM;
    for (; it->n_class < n; it->n_class++)
        if (!(it->classes[it->n_class] = strdup(c[it->n_class])))
            return cb_fail(CB_ENOMEM, "out of memory");
    return CB_OK;
}

/* ---- the forms ---- */

static const char *item_id(const struct reader *r, const json_t *o, char (*buf)[160])
{
    const char *id = text(o, "_id");
    const json_t *number = json_object_get(o, "id");

    if (id)
        return id;
    snprintf(*buf, sizeof *buf, "%s-%lld", r->task,
             json_is_integer(number) ? (long long)json_integer_value(number) : (long long)r->line);
    return *buf;
}

/* max_new: tokens of an answer, 64 where the line does not say */
static int answer_length(const json_t *o, int *out)
{
    const json_t *v = json_object_get(o, "max_new");

    *out = 64;
    if (!v || json_is_null(v))
        return CB_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > MOST_NEW)
        return cb_fail(CB_EFORMAT, "max_new: is not a whole number from 1 to %d", MOST_NEW);
    *out = (int)json_integer_value(v);
    return CB_OK;
}

/* Some metrics compare each part of an answer with each part of the reference. */
static int check_answers(const char *const *answer, int n)
{
    for (int i = 0; i < n; i++)
        if (strlen(answer[i]) > LONGEST_ANSWER)
            return cb_fail(CB_EFORMAT, "answers: one is longer than %d bytes", LONGEST_ANSWER);
    return CB_OK;
}

static const char *metric_name(const void *ctx, int i)
{
    const struct metric *m = cb_metric_at(i);

    (void)ctx;
    return m ? m->name : NULL;
}

static int no_metric(const char *name)
{
    char list[240];

    cb_name_list(list, sizeof list, metric_name, NULL);
    return cb_fail(CB_EFORMAT, "metric %s: unknown; there are %s", name, list);
}

/* The answers, or the one */
static const json_t *answers_of(const json_t *o)
{
    const json_t *many = json_object_get(o, "answers");

    return many ? many : json_object_get(o, "answer");
}

/* the suite: prompt, answers, metric, max_new */
static int from_suite(struct reader *r, const json_t *o, struct item *it)
{
    const char *prompt = text(o, "prompt"), *named = text(o, "metric"), *task = text(o, "dataset");
    const char *metric = named ? named : "contains", *answer[MAX_TEXTS];
    char hold[MAX_TEXTS][32], id[160], *context;
    const int n = strings(answers_of(o), answer, hold);
    const struct metric *m = cb_metric_find(metric);
    int max_new, err;

    TRY(answer_length(o, &max_new));
    TRY(check_answers(answer, n));
    if (!m)
        return no_metric(metric);
    if (!n)
        return cb_fail(CB_EFORMAT, "answers: none");
    if (!*prompt)
        return cb_fail(CB_EFORMAT, "prompt: empty");
    TRY(split_prompt(prompt, &context));
    err = cb_item_make(it, item_id(r, o, &id), task ? task : r->task, context,
                       prompt + strlen(context), answer, n);
    free(context);
    if (err)
        return err;
    it->metric = m;
    it->max_new = max_new;
    return CB_OK;
}

static int no_template(const struct reader *r, const char *task)
{
    const char *near = cb_template_nearest(r->templates, task);

    if (near)
        return cb_fail(CB_EFORMAT, "task %s: no template; did you mean %s?", task, near);
    return cb_fail(CB_EFORMAT,
                   "task %s: no template (a question of your own has prompt and answers)", task);
}

/* If there are options, an answer that equals one of them becomes its letter. */
static void choice_letters(const json_t *options, const char **answer, int n)
{
    static const char *const letter[] = { "A", "B", "C", "D" };
    const json_t *x;
    size_t i;

    for (int a = 0; a < n; a++)
        json_array_foreach(options, i, x) if (i < 4 && json_is_string(x) &&
                                              !strcmp(json_string_value(x), answer[a]))
        {
            answer[a] = letter[i];
            break;
        }
}

/* A question of a published benchmark */
struct question {
    const char *id, *task, *context, *input;
    const char *evaluation; /* names the metric where the template has none */
    const json_t *answers, *options, *classes;
};

static int count_words(const char *s)
{
    int n = 0;

    for (; *(s += strspn(s, " \t\r\n")); s += strcspn(s, " \t\r\n"))
        n++;
    return n;
}

static int metric_of(const struct template *t, const char *evaluation, const struct metric **out)
{
    const char *e = evaluation ? evaluation : "(none)";

    *out = t->metric             ? t->metric
           : !strcmp(e, "f1")    ? cb_metric_find("qa_f1")
           : !strcmp(e, "rouge") ? cb_metric_find("rouge_words")
                                 : NULL;
    return *out ? CB_OK : cb_fail(CB_EFORMAT, "evaluation %s: unknown; there are f1, rouge", e);
}

/* Context and input go into the task's template. */
static int from_template(struct reader *r, const struct question *q, struct item *it)
{
    struct filling f = { q->context, q->input ? q->input : "", q->options, 0 };
    const struct metric *metric;
    const char *answer[MAX_TEXTS];
    char hold[MAX_TEXTS][32], *before = NULL, *after = NULL;
    const int n = strings(q->answers, answer, hold);
    const struct template *t;
    int err;

    if (!q->context || !*q->context)
        return cb_fail(CB_EFORMAT, "context: none");
    if (!n)
        return cb_fail(CB_EFORMAT, "answers: none");
    TRY(check_answers(answer, n));
    if (!r->templates)
        TRY(cb_templates_open(&r->templates));
    t = cb_template_find(r->templates, q->task);
    if (!t)
        return no_template(r, q->task);
    TRY(metric_of(t, q->evaluation, &metric));
    choice_letters(q->options, answer, n);
    f.words = count_words(answer[0]);
    err = cb_template_fill(t, &f, &before, &after);
    if (!err)
        err = cb_item_make(it, q->id, q->task, before, after, answer, n);
    free(before);
    free(after);
    if (err)
        return err;
    it->metric = metric;
    it->max_new = t->max_new;
    it->chat = t->chat;
    it->stop_at_line = t->stop_at_line;
    return set_classes(it, q->classes);
}

/* LongBench, InfiniteBench: a question a line */
static int from_question(struct reader *r, const json_t *o, struct item *it)
{
    const char *task = text(o, "dataset");
    char id[160];
    const struct question q = { .id = item_id(r, o, &id),
                                .task = task ? task : r->task,
                                .context = text(o, "context"),
                                .input = text(o, "input"),
                                .evaluation = text(o, "evaluation"),
                                .answers = answers_of(o),
                                .options = json_object_get(o, "options"),
                                .classes = json_object_get(o, "all_classes") };

    if (!q.answers)
        return cb_fail(CB_EFORMAT, "neither prompt nor answers");
    return from_template(r, &q, it);
}

/* ---- files ---- */

void cb_item_task_of(const char *path, char *task, size_t n)
{
    const char *base = cb_file_name(path);

    snprintf(task, n, "%.*s", (int)strcspn(base, "."), base);
}

struct reading {
    struct reader r;
    void (*warn)(void *arg, const char *text);
    void *arg;
    struct item_list *out;
};

static void warn_of_line(const struct reading *x, const char *what)
{
    char why[640];

    snprintf(why, sizeof why, "%s: line %d: %s", x->r.path, x->r.line, what);
    if (x->warn)
        x->warn(x->arg, why);
}

/* Takes over an item that was made with status err. What is no item is counted; anything else that
 * fails ends the reading. */
static int hand_item(struct reading *x, struct item *it, int err)
{
    if (!err)
        return cb_item_add(x->out, it);
    cb_item_free(it);
    if (err != CB_EFORMAT)
        return err;
    warn_of_line(x, cb_error());
    x->out->n_bad++;
    return CB_OK;
}

static int needs_judge(const char *evaluation)
{
    return evaluation && (!strcmp(evaluation, "human") || !strcmp(evaluation, "LLM"));
}

/* L-Eval: a document a line, with its questions */
static int read_document(struct reading *x, const json_t *o)
{
    const json_t *asked = json_object_get(o, "instructions"),
                 *answers = json_object_get(o, "outputs");
    const size_t n = json_array_size(asked);
    struct question q = { .task = x->r.task,
                          .context = text(o, "input"),
                          .evaluation = text(o, "evaluation") };
    struct item none = { 0 };
    char id[160];
    int err = CB_OK;

    q.id = id;
    if (needs_judge(q.evaluation)) {
        warn_of_line(x, "left out, its answers need a judge");
        return CB_OK;
    }
    if (!n || json_array_size(answers) != n)
        return hand_item(
            x, &none,
            cb_fail(CB_EFORMAT, "instructions, outputs: %zu and %zu", n, json_array_size(answers)));
    for (size_t i = 0; i < n && !err; i++) {
        struct item it = { 0 };
        snprintf(id, sizeof id, "%s-%d-%zu", x->r.task, x->r.line, i + 1);
        q.input = json_string_value(json_array_get(asked, i));
        q.answers = json_array_get(answers, i);
        err = hand_item(x, &it, from_template(&x->r, &q, &it));
    }
    return err;
}

static int read_line(struct reading *x, const char *line)
{
    struct item it = { 0 };
    json_error_t e;
    json_t *o;
    int err = cb_json_load(line, strlen(line), JSON_REJECT_DUPLICATES, &e, &o);

    if (err == CB_ENOMEM)
        return err;
    if (!json_is_object(o))
        err = hand_item(x, &it, cb_fail(CB_EFORMAT, "%s", o ? "not an object" : e.text));
    else if (json_object_get(o, "instructions"))
        err = read_document(x, o);
    else
        err = hand_item(x, &it, (text(o, "prompt") ? from_suite : from_question)(&x->r, o, &it));
    json_decref(o);
    return err;
}

static int read_lines(struct reading *x, FILE *f)
{
    struct buf line = { 0 };
    int err = CB_OK;

    for (x->r.line = 1; !err && (err = cb_plain_line(f, x->r.path, x->r.line, &line)) > 0;
         x->r.line++)
        err = line.s[strspn(line.s, " \t\r\n")] ? read_line(x, line.s) : CB_OK;
    cb_buf_free(&line);
    return err;
}

int cb_item_read(const char *path, void (*warn)(void *arg, const char *text), void *arg,
                 struct item_list *out)
{
    struct reading x = { .r = { .path = path }, .warn = warn, .arg = arg, .out = out };
    FILE *f = fopen(path, "re");
    int err;

    if (!f)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    cb_item_task_of(path, x.r.task, sizeof x.r.task);
    err = read_lines(&x, f);
    fclose(f);
    cb_templates_close(x.r.templates);
    if (!err && !out->n)
        err = cb_fail(CB_EFORMAT, "%s: no item could be read", path);
    return err;
}
