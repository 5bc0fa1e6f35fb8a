/* SPDX-License-Identifier: MIT */
/* gen_ruler_qa.c - RULER's questions about documents: the question's own documents among those of
 * other questions. The file has one JSON object a line: question, answers, documents (or one as
 * context). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_lenient.h"
#include "base/plain_text.h"
#include "gen_ruler.h"

struct qa {
    json_t *lines;     /* array of objects */
    const char **text; /* [n_text] documents of all questions */
    int n_text;
    int own_from, own_to; /* the range of the asked question's documents */
    const char *question;
    struct rng rng;
    int *order; /* [n_text] work space */
};

/* The task's file. The option is "FILE" for both tasks, or "FILE1,FILE2". */
const char *cb_ruler_qa_file(const struct gen *g, const struct ruler_task *t)
{
    const char *comma = g->qa_file ? strchr(g->qa_file, ',') : NULL;
    return comma && !strcmp(t->name, "qa_2") ? comma + 1 : g->qa_file;
}

static int add_line(const char *path, int n, const char *line, json_t **out)
{
    json_error_t e;
    json_t *o;
    int err = cb_json_load(line, strlen(line), 0, &e, &o);

    if (err == CB_ENOMEM)
        return err;
    err = CB_OK;
    if (!json_is_object(o))
        err = cb_fail(CB_EFORMAT, "%s: line %d: %s", path, n, o ? "not an object" : e.text);
    else if (!json_is_string(json_object_get(o, "question")) ||
             !json_array_size(json_object_get(o, "answers")))
        err = cb_fail(CB_EFORMAT, "%s: line %d: no question or no answers", path, n);
    cb_json_add(out, o);
    return err || *out ? err : cb_json_fail(path);
}

static int read_lines(const char *path, json_t **out)
{
    struct buf line = { 0 };
    int err;
    FILE *f = fopen(path, "re");

    if (!f)
        return cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    *out = json_array();
    for (int n = 1; (err = cb_plain_line(f, path, n, &line)) > 0; n++) {
        err = line.s[strspn(line.s, " \t\r\n")] ? add_line(path, n, line.s, out) : CB_OK;
        if (err)
            break;
    }
    cb_buf_free(&line);
    fclose(f);
    if (!err && !json_array_size(*out))
        err = cb_fail(CB_EFORMAT, "%s: no questions", path);
    return err;
}

static size_t n_documents(const json_t *o)
{
    const json_t *d = json_object_get(o, "documents");
    return d ? json_array_size(d) : json_is_string(json_object_get(o, "context"));
}

static int gather(struct qa *x, size_t asked)
{
    json_t *o;
    size_t i, n = 0;

    json_array_foreach(x->lines, i, o) n += n_documents(o);
    x->text = cb_calloc(n ? n : 1, sizeof *x->text);
    x->order = cb_calloc(n ? n : 1, sizeof *x->order);
    if (!x->text || !x->order)
        return CB_ENOMEM;
    json_array_foreach(x->lines, i, o)
    {
        const json_t *d = json_object_get(o, "documents");
        if (i == asked)
            x->own_from = x->n_text;
        for (size_t j = 0; j < n_documents(o); j++) {
            const char *s =
                json_string_value(d ? json_array_get(d, j) : json_object_get(o, "context"));
            if (s)
                x->text[x->n_text++] = s;
        }
        if (i == asked)
            x->own_to = x->n_text;
    }
    return x->own_from < x->own_to ? CB_OK
                                   : cb_fail(CB_EFORMAT, "question %zu: no documents", asked + 1);
}

static int build(void *arg, int units, struct buf *context, struct buf *question)
{
    static const char task[] = "Answer the question from the documents. Give the answer alone, "
                               "without any other words.\n\n";
    struct qa *x = arg;
    struct rng r = x->rng;
    const int own = x->own_to - x->own_from;
    int n = 0;

    for (int i = 0; i < x->n_text; i++) /* the other documents, in a fixed order */
        if (i < x->own_from || i >= x->own_to)
            x->order[n++] = i;
    cb_rng_shuffle(&r, x->order, n);
    n = units < n ? units : n;
    for (int i = 0; i < own; i++)
        x->order[n++] = x->own_from + i;
    cb_rng_shuffle(&r, x->order, n);
    cb_buf_text(context, task);
    for (int i = 0; i < n; i++)
        cb_buf_print(context, "Document %d:\n%s\n\n", i + 1, x->text[x->order[i]]);
    cb_buf_print(question, "%sQuestion: %s\nAnswer:", task, x->question);
    return CB_OK;
}

static int make(const struct gen *g, const struct ruler_task *t, struct qa *x, int length,
                int index, struct item_list *out)
{
    const size_t asked = (size_t)index % json_array_size(x->lines);
    const json_t *o = json_array_get(x->lines, asked), *list = json_object_get(o, "answers");
    const size_t n = json_array_size(list);
    const char **answer = cb_calloc(n, sizeof *answer);
    struct made m = { .task = t->name,
                      .metric = t->metric,
                      .length = length,
                      .depth = -1,
                      .index = index,
                      .max_new = t->max_new,
                      .answer = answer };
    struct recipe recipe = { build, x, 0, 0, t->max_new };
    int err = answer ? gather(x, asked) : CB_ENOMEM;

    for (size_t i = 0; !err && i < n; i++)
        if (json_is_string(json_array_get(list, i)))
            answer[m.n_answer++] = json_string_value(json_array_get(list, i));
    x->question = json_string_value(json_object_get(o, "question"));
    x->rng = cb_rng_for(g->seed, t->name, length, 0, index);
    recipe.max_units = x->n_text - (x->own_to - x->own_from);
    if (!err)
        err = cb_gen_item(g, &recipe, &m, out);
    free(answer);
    return err;
}

int cb_ruler_qa(const struct gen *g, const struct ruler_task *t, int length, int index,
                struct item_list *out)
{
    struct qa x = { 0 };
    char path[4096];
    int err;

    snprintf(path, sizeof path, "%.*s", (int)strcspn(g->qa_file, ","), g->qa_file);
    err = read_lines(strcmp(t->name, "qa_2") ? path : cb_ruler_qa_file(g, t), &x.lines);
    if (!err)
        err = make(g, t, &x, length, index, out);
    json_decref(x.lines);
    free(x.text);
    free(x.order);
    return err;
}
