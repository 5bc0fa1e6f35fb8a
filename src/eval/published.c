/* SPDX-License-Identifier: MIT */
/* published.c - reads the prompts of benchmarks from templates.json. */
#include "published.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_lenient.h"
#include "base/suggest.h"
#include "base/words.h"
#include "data.h"
#include "metric.h"

struct templates {
    json_t *root; /* owns the texts */
    struct template *at;
    int n;
};

static int add(struct templates *t, const char *name, const json_t *o)
{
    struct template *x = &t->at[t->n];
    const char *metric = json_string_value(json_object_get(o, "metric"));

    *x = (struct template){
        .name = name,
        .prompt = json_string_value(json_object_get(o, "prompt")),
        .metric = metric ? cb_metric_find(metric) : NULL,
        .max_new = (int)json_integer_value(json_object_get(o, "max_new")),
        .chat = json_is_true(json_object_get(o, "chat")),
        .stop_at_line = json_is_true(json_object_get(o, "stop_at_line")),
    };
    if (!x->prompt || !strstr(x->prompt, "{context}"))
        return cb_fail(CB_EFORMAT, "templates.json: %s: prompt has no {context}", name);
    if (metric && !x->metric)
        return cb_fail(CB_EFORMAT, "templates.json: %s: metric %s: unknown", name, metric);
    if (x->max_new < 1)
        return cb_fail(CB_EFORMAT, "templates.json: %s: max_new is not positive", name);
    t->n++;
    return CB_OK;
}

static int add_all(struct templates *t)
{
    json_t *all = json_object_get(t->root, "benchmarks"), *set, *one;
    const char *name;
    size_t n = 0;

    json_object_foreach(all, name, set) n += json_object_size(json_object_get(set, "tasks"));
    t->at = cb_calloc(n ? n : 1, sizeof *t->at);
    if (!t->at)
        return CB_ENOMEM;
    json_object_foreach(all, name, set)
    {
        const char *task;
        json_object_foreach(json_object_get(set, "tasks"), task, one) TRY(add(t, task, one));
    }
    return CB_OK;
}

int cb_templates_open(struct templates **out)
{
    struct buf text = { 0 };
    struct templates *t;
    char path[PATH_MAX];
    json_error_t e;
    int err;

    *out = NULL;
    TRY(cb_data_find("templates.json", path, sizeof path));
    t = cb_calloc(1, sizeof *t);
    if (!t)
        return CB_ENOMEM;
    err = cb_file_read_path(path, &text);
    if (!err) {
        err = cb_json_load(text.s, text.n, JSON_REJECT_DUPLICATES, &e, &t->root);
        if (err == CB_EFORMAT)
            err = cb_fail(CB_EFORMAT, "%s: line %d: %s", path, e.line, e.text);
    }
    cb_buf_free(&text);
    if (!err)
        err = add_all(t);
    if (err) {
        cb_templates_close(t);
        return err;
    }
    *out = t;
    return CB_OK;
}

void cb_templates_close(struct templates *t)
{
    if (!t)
        return;
    json_decref(t->root);
    free(t->at);
    free(t);
}

static const char *name_at(const void *ctx, int i)
{
    const struct templates *t = ctx;
    return i < t->n ? t->at[i].name : NULL;
}

const struct template *cb_template_at(const struct templates *t, int i)
{
    return i >= 0 && i < t->n ? &t->at[i] : NULL;
}

const struct template *cb_template_find(const struct templates *t, const char *task)
{
    const int i = cb_name_find(task, strlen(task), name_at, t);
    return i < 0 ? NULL : &t->at[i];
}

const char *cb_template_nearest(const struct templates *t, const char *task)
{
    return cb_name_nearest(task, strlen(task), name_at, t);
}

/* ---- filling in ---- */

static const char *option(const json_t *options, int i)
{
    const char *s = json_string_value(json_array_get(options, (size_t)i));
    return s ? s : "";
}

/* Appends from..to of the template, filled in. */
static void fill(struct buf *b, const char *from, const char *to, const struct filling *f)
{
    while (from < to) {
        const char *open = memchr(from, '{', (size_t)(to - from));
        if (!open)
            open = to;
        cb_buf_add(b, from, (size_t)(open - from));
        from = open;
        if (from == to)
            return;
        if (cb_begins(from, "{input}")) {
            cb_buf_text(b, f->input);
            from += 7;
        } else if (cb_begins(from, "{words}")) {
            cb_buf_print(b, "%d", f->words);
            from += 7;
        } else if (from[1] >= 'A' && from[1] <= 'D' && from[2] == '}') {
            cb_buf_text(b, option(f->options, from[1] - 'A'));
            from += 3;
        } else {
            cb_buf_add(b, from++, 1);
        }
    }
}

int cb_template_fill(const struct template *t, const struct filling *f, char **before, char **after)
{
    const char *at = strstr(t->prompt, "{context}"), *rest = at + strlen("{context}");
    struct buf b = { 0 }, a = { 0 };

    fill(&b, t->prompt, at, f);
    cb_buf_text(&b, f->context);
    fill(&a, rest, rest + strlen(rest), f);
    *before = cb_buf_take(&b);
    *after = cb_buf_take(&a);
    return *before && *after ? CB_OK : CB_ENOMEM;
}
