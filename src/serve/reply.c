/* SPDX-License-Identifier: MIT */
/* reply.c - splits a model's text, as it comes, into thoughts, text, and calls of tools. */
#include "reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/stop_text.h"

enum state {
    BEGINS,  /* nothing but white space so far */
    RESUMES, /* the same behind a thought */
    TEXT,
    THOUGHT,
    CALL,
    JSON_ALONE /* all of it is held until the end */
};

static const char think[] = "<think>", unthink[] = "</think>";
static const char fence[] = "```json";
static const char call[] = "<tool_call>", uncall[] = "</tool_call>";

void cb_reply_open(struct reply *r, const struct reply_sink *sink, const json_t *tools,
                   int in_thought)
{
    *r = (struct reply){ .sink = *sink, .tools = tools, .state = in_thought ? THOUGHT : BEGINS };
}

void cb_reply_close(struct reply *r)
{
    cb_buf_free(&r->held);
}

static void drop(struct reply *r, size_t n)
{
    if (n)
        memmove(r->held.s, r->held.s + n, r->held.n - n + 1);
    r->held.n -= n;
}

static void give_text(struct reply *r, size_t n)
{
    if (n)
        r->sink.text(r->sink.arg, r->held.s, n);
    drop(r, n);
}

static size_t blanks(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", s[i]))
        i++;
    return i;
}

/* s[n] without white space at its end */
static size_t trimmed(const char *s, size_t n)
{
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return n;
}

/* ---- calls ---- */

static int put_call(struct reply *r, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const json_t *args = json_object_get(j, "arguments");
    char *text;

    if (!args)
        args = json_object_get(j, "parameters");
    if (!name || !*name || (args && !json_is_object(args) && !json_is_string(args)))
        return 0;
    text = json_is_string(args) ? strdup(json_string_value(args))
           : args               ? json_dumps(args, 0)
                                : strdup("{}");
    if (text)
        r->sink.call(r->sink.arg, name, text);
    free(text);
    return text != NULL;
}

/* s[n], a call or a list of calls. 1: it is, and they were given out. */
static int put_calls(struct reply *r, const char *s, size_t n)
{
    json_t *j = json_loadb(s, n, JSON_DECODE_ANY, NULL);
    int ok = json_is_array(j) && json_array_size(j) > 0;

    for (size_t i = 0; ok && i < json_array_size(j); i++)
        ok = json_is_string(json_object_get(json_array_get(j, i), "name"));
    for (size_t i = 0; ok && i < json_array_size(j); i++)
        ok = put_call(r, json_array_get(j, i));
    if (json_is_object(j))
        ok = put_call(r, j);
    json_decref(j);
    return ok;
}

static int is_known(const struct reply *r, const json_t *j)
{
    const char *name = json_string_value(json_object_get(j, "name"));
    const json_t *t;
    size_t i;

    json_array_foreach(r->tools, i, t)
    {
        const char *known =
            json_string_value(json_object_get(json_object_get(t, "function"), "name"));
        if (name && known && !strcmp(name, known))
            return 1;
    }
    return 0;
}

/* A reply that is nothing but JSON. 1: it is calls of known tools, and they were given out. */
static int put_alone(struct reply *r)
{
    const char *s = r->held.s;
    size_t n = trimmed(s, r->held.n);
    int known;
    json_t *j;

    if (!strncmp(s, fence, strlen(fence)) && n > strlen(fence) + 3 &&
        !memcmp(s + n - 3, fence, 3)) {
        s += strlen(fence);
        n -= strlen(fence) + 3;
    }
    j = json_loadb(s, n, 0, NULL);
    known = is_known(r, json_is_array(j) ? json_array_get(j, 0) : j);
    json_decref(j);
    return known && put_calls(r, s, n);
}

/* ---- states: each returns 1 if what is held may tell more ---- */

static int begins(struct reply *r)
{
    const size_t at = blanks(r->held.s, r->held.n), n = r->held.n - at;
    const char *s = r->held.s + at;
    const size_t mark = strlen(think);

    if (!n)
        return 0;
    if (r->state == BEGINS && !strncmp(s, think, n < mark ? n : mark)) {
        if (n < mark)
            return 0;
        drop(r, at + mark);
        r->state = THOUGHT;
        return 1;
    }
    if (r->tools && n < strlen(fence) && !strncmp(s, fence, n))
        return 0;
    if (r->state == RESUMES || r->tools)
        drop(r, at); /* the blank lines behind a thought, and before a call */
    r->state = r->tools && (strchr("{[", *r->held.s) || !strncmp(r->held.s, fence, strlen(fence)))
                   ? JSON_ALONE
                   : TEXT;
    return 1;
}

static int in_text(struct reply *r)
{
    static const char *const marks[] = { call };
    size_t at;

    if (!r->tools) {
        give_text(r, r->held.n);
        return 0;
    }
    at = cb_stop_find(r->held.s, r->held.n, marks, 1, NULL);
    if (at == r->held.n) {
        give_text(r, trimmed(r->held.s, cb_stop_safe(r->held.s, r->held.n, marks, 1)));
        return 0;
    }
    give_text(r, trimmed(r->held.s, at));
    drop(r, blanks(r->held.s, r->held.n));
    r->state = CALL;
    return 1;
}

static int in_thought(struct reply *r)
{
    static const char *const marks[] = { unthink };
    const size_t at = cb_stop_find(r->held.s, r->held.n, marks, 1, NULL);
    const size_t safe = at < r->held.n ? at : cb_stop_safe(r->held.s, r->held.n, marks, 1);
    const size_t n = trimmed(r->held.s, safe);

    if (n)
        r->sink.thought(r->sink.arg, r->held.s, n);
    if (at == r->held.n) {
        drop(r, n);
        return 0;
    }
    drop(r, at + strlen(unthink));
    r->state = RESUMES;
    return 1;
}

static int in_call(struct reply *r)
{
    static const char *const marks[] = { uncall };
    const size_t at = cb_stop_find(r->held.s, r->held.n, marks, 1, NULL), open = strlen(call);

    if (at == r->held.n)
        return 0;
    r->state = TEXT;
    if (put_calls(r, r->held.s + open, at - open))
        drop(r, at + strlen(uncall));
    else
        give_text(r, at + strlen(uncall));
    return 1;
}

static void go_on(struct reply *r)
{
    int more = 1;

    while (more && r->held.n)
        more = r->state == TEXT      ? in_text(r)
               : r->state == THOUGHT ? in_thought(r)
               : r->state == CALL    ? in_call(r)
               : r->state < TEXT     ? begins(r)
                                     : 0;
}

void cb_reply_push(struct reply *r, const char *s, size_t n)
{
    cb_buf_add(&r->held, s, n);
    go_on(r);
}

void cb_reply_end(struct reply *r)
{
    const size_t open = strlen(call);

    if (!r->held.n)
        return;
    if (r->state == JSON_ALONE && put_alone(r))
        return;
    /* the mark that ends a call may be a token that ends the turn */
    if (r->state == CALL && put_calls(r, r->held.s + open, r->held.n - open))
        return;
    if (r->state == THOUGHT)
        r->sink.thought(r->sink.arg, r->held.s, r->held.n);
    else if (!r->tools || trimmed(r->held.s, r->held.n))
        r->sink.text(r->sink.arg, r->held.s, r->held.n);
}
