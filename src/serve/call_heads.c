/* SPDX-License-Identifier: MIT */
/* call_heads.c - where a call begins: its name, and in which form its arguments follow. */
#include <string.h>

#include "base/json_lenient.h"
#include "call_text.h"

/* What stands around single calls within a form */
static const char *const before_call[] = { "<｜tool▁call▁begin｜>",
                                           "<｜tool_call_begin｜>",
                                           "<｜tool call begin｜>",
                                           "function<｜tool_sep｜>",
                                           "function<｜tool sep｜>",
                                           "<|tool_call_begin|>",
                                           "function<｜tool▁sep｜>",
                                           "functions.",
                                           "tool_code",
                                           "tool_call",
                                           "json",
                                           "python" };
/* What stands between a name and its arguments */
static const char *const before_args[] = { "[ARGS]",
                                           "<|tool_call_argument_begin|>",
                                           "<｜tool▁sep｜>",
                                           "<｜tool_sep｜>",
                                           "<｜tool sep｜>",
                                           "```json",
                                           "```",
                                           ">" };
enum {
    N_BEFORE_CALL = sizeof before_call / sizeof *before_call,
    N_BEFORE_ARGS = sizeof before_args / sizeof *before_args
};

/* ---- arguments that are whole ---- */

/* A value as arguments onto *out. 0: it is something else */
static int as_arguments(const char *s, size_t n, int texts, struct buf *out);

/* The same of a mended value that is no object: nothing in any spelling; a list of one object; a
 * text of either, or a text of such a text */
static int odd_as_arguments(const struct buf *mended, int texts, struct buf *out)
{
    json_error_t why;
    json_t *j = cb_json_read(mended->s, mended->n, &why);
    int ok = 0;

    if (json_is_null(j) || json_is_false(j) || (json_is_array(j) && !json_array_size(j))) {
        cb_buf_text(out, "{}");
        ok = 1;
    } else if (json_is_array(j) && json_array_size(j) == 1 && mended->s[mended->n - 1] == ']') {
        ok = as_arguments(mended->s + 1, mended->n - 2, texts, out);
    } else if (json_is_string(j) && texts < 2) {
        ok = as_arguments(json_string_value(j), json_string_length(j), texts + 1, out);
    }
    json_decref(j);
    return ok;
}

static int as_arguments(const char *s, size_t n, int texts, struct buf *out)
{
    struct buf mended = { 0 };
    int ok = 1;

    while (n && strchr(" \t\r\n", *s)) {
        s++;
        n--;
    }
    if (!n)
        cb_buf_text(out, "{}");
    else if (*s == '{')
        ok = cb_json_mend(s, n, out);
    else
        ok = cb_json_mend(s, n, &mended) && !mended.failed && odd_as_arguments(&mended, texts, out);
    cb_buf_free(&mended);
    return ok;
}

/* A call whose arguments s[n] are there. 0: they are none */
int cb_call_whole(struct calls *c, const char *name, const char *s, size_t n)
{
    struct buf args = { 0 };
    const int ok = as_arguments(s, n, 0, &args) && !args.failed;

    if (ok) {
        cb_call_begin(c, name);
        c->sink->args(c->sink->arg, args.s, args.n);
        cb_call_end(c);
    }
    cb_buf_free(&args);
    return ok;
}

static enum calls_status more(const struct call_text *t)
{
    return t->ended ? CALLS_NONE : CALLS_MORE;
}

/* ---- heads: each hands out a name, or a whole call, and says what follows ---- */

/* Arguments that are no object: a text of JSON, or nothing in some spelling */
static enum calls_status odd_arguments(struct calls *c, struct call_text *t, const char *name)
{
    enum json_scan_status status;
    size_t n;

    cb_json_scan_open(&c->scan);
    n = cb_json_scan(&c->scan, t->s + t->i, t->n - t->i, NULL, &status);
    if (status == JSON_MORE && !t->ended)
        return CALLS_MORE;
    if (status == JSON_BAD || !cb_call_whole(c, name, t->s + t->i, n))
        return CALLS_NONE;
    t->i += n;
    cb_json_scan_inside(&c->scan, c->depth);
    return cb_call_stage(c, c->depth ? CALL_REST : CALL_GAP);
}

/* t stands before the arguments. */
enum calls_status cb_call_arguments(struct calls *c, struct call_text *t, const char *name)
{
    if (t->s[t->i] != '{')
        return odd_arguments(c, t, name);
    cb_call_begin(c, name);
    cb_json_scan_open(&c->scan);
    return cb_call_stage(c, CALL_ARGS);
}

/* An object without arguments may be anything, unless nothing but it is there. */
static enum calls_status bare_name(struct calls *c, struct call_text *t, const char *name)
{
    if (c->form->strict && !c->in_list) {
        struct call_text rest = *t;
        cb_call_blanks(&rest);
        (void)cb_call_skip(&rest, c->form->close);
        cb_call_blanks(&rest);
        if (rest.i < rest.n)
            return rest.partial ? more(t) : CALLS_NONE;
        if (!t->ended)
            return CALLS_MORE;
    }
    (void)cb_call_whole(c, name, "", 0);
    return cb_call_stage(c, CALL_GAP);
}

/* 1: the object holds the arguments beside the name, and they are handed out */
static int loose_arguments(struct calls *c, const char *name, const char *s, size_t n)
{
    struct buf args = { 0 };
    const int found = cb_call_loose(s, n, cb_call_properties(c, name), &args) && !args.failed;

    if (found) {
        cb_call_begin(c, name);
        c->sink->args(c->sink->arg, args.s, args.n);
        cb_call_end(c);
    }
    cb_buf_free(&args);
    return found;
}

static enum calls_status object_head(struct calls *c, struct call_text *t)
{
    const char *const s = t->s + t->i;
    const size_t n = t->n - t->i;
    const int keyed = !strcmp(c->form->open, "<|tools_prefix|>"); /* Apertus: {"NAME": {..}} */
    struct call_head h;
    enum call_head_status got = cb_call_head(s, n, c->form->strict, keyed, t->ended, &h);

    if (got == HEAD_NONE && cb_call_head(s, n, 0, 1, t->ended, &h) == HEAD_ARGS &&
        cb_call_known(c, h.name))
        got = HEAD_ARGS;
    cb_call_fix_name(c, h.name);
    if (got == HEAD_NONE || (c->form->strict && *h.name && !cb_call_known(c, h.name)))
        return CALLS_NONE;
    if (got == HEAD_MORE)
        return more(t);
    c->depth = h.depth;
    if (got == HEAD_ARGS) {
        t->i += h.args;
        return cb_call_arguments(c, t, h.name);
    }
    if (h.n_args) {
        if (!cb_call_whole(c, h.name, t->s + t->i + h.args, h.n_args))
            return CALLS_NONE;
        t->i += h.end;
        return cb_call_stage(c, CALL_GAP);
    }
    if (loose_arguments(c, h.name, t->s + t->i, h.end)) {
        t->i += h.end;
        return cb_call_stage(c, CALL_GAP);
    }
    t->i += h.end;
    return bare_name(c, t, h.name);
}

/* {"tool_calls": [...]}: as the list alone. 1: t stands in the list; 0: it is none, or t->partial
 */
static int wrapped_list(struct calls *c, struct call_text *t)
{
    static const char *const key[] = { "\"tool_calls\"", "\"function_calls\"", "\"calls\"" };
    static const char *const then[] = { ":", "[" };
    static const char thought[] = "\"thought\"";
    struct call_text at = *t;
    int ok = cb_call_skip(&at, "{");

    cb_call_blanks(&at);
    if (ok && cb_call_at(&at, thought)) { /* beside the list */
        const size_t end = cb_call_find(&at, "\"tool_calls\"");
        t->partial |= end == at.n && !at.ended;
        at.i = end;
    }
    for (int i = 0, got = 0; ok && i < 3 && !got; i++)
        got = cb_call_skip(&at, key[i]);
    ok = ok && at.s[at.i - 1] == '"';
    for (int i = 0; ok && i < 2; i++) {
        cb_call_blanks(&at);
        ok = cb_call_skip(&at, then[i]);
    }
    cb_call_blanks(&at);
    t->partial |= at.partial || (ok && at.i == at.n && !at.ended);
    if (!ok || at.i == at.n)
        return 0;
    t->i = at.i;
    c->in_list = 1;
    c->wrapped = 1;
    return 1;
}

/* Behind <function= or <invoke name=: NAME> */
static enum calls_status tag_head(struct calls *c, struct call_text *t)
{
    const size_t end = cb_call_find(t, ">");
    size_t from = t->i, to = end;

    if (end == t->n)
        return end - from < CALL_NAME ? more(t) : CALLS_NONE;
    while (from < to && strchr("\"' ", t->s[from]))
        from++;
    while (to > from && strchr("\"' ", t->s[to - 1]))
        to--;
    if (from == to || to - from >= CALL_NAME)
        return CALLS_NONE;
    memcpy(c->name, t->s + from, to - from);
    c->name[to - from] = 0;
    cb_call_fix_name(c, c->name);
    t->i = end + 1;
    cb_call_blanks(t);
    if (t->i == t->n && t->ended != TEXT_ENDED)
        return more(t);
    c->depth = 0;
    if (t->i < t->n && t->s[t->i] == '{')
        return cb_call_arguments(c, t, c->name);
    cb_call_begin(c, c->name);
    cb_call_put(c, "{");
    c->n_param = 0;
    c->trims = 1;
    return cb_call_stage(c, CALL_PARAMS);
}

/* <name>NAME</name><arguments>{...}: t stands after the first tag. */
static enum calls_status tagged_name(struct calls *c, struct call_text *t)
{
    static const char *const args[] = { "<arguments>", "<parameters>", "<args>", "<input>" };
    const size_t from = t->i, end = cb_call_find(t, "</name>");

    if (end == t->n || end - from >= CALL_NAME)
        return end - from < CALL_NAME ? more(t) : CALLS_NONE;
    memcpy(c->name, t->s + from, end - from);
    c->name[end - from] = 0;
    cb_call_fix_name(c, c->name);
    t->i = end + strlen("</name>");
    cb_call_blanks(t);
    if (cb_call_skip_any(t, args, 4))
        cb_call_blanks(t);
    if (t->i == t->n || t->partial)
        return more(t);
    c->depth = 0;
    return t->s[t->i] == '{' ? cb_call_arguments(c, t, c->name) : CALLS_NONE;
}

/* x = f(...) in Python: t stands after the name x; 1: t stands before f. t->partial: what comes
 * next decides. */
static int assigned(struct call_text *t)
{
    struct call_text at = *t;

    cb_call_blanks(&at);
    if (cb_call_skip(&at, "=") && !cb_call_at(&at, "=")) {
        cb_call_blanks(&at);
        if (at.i < at.n && cb_call_is_name(at.s[at.i])) {
            t->i = at.i;
            return 1;
        }
        at.partial |= at.i == at.n && !at.ended;
    }
    t->partial |= at.partial;
    return 0;
}

/* A name, and what tells how its arguments are written */
static enum calls_status name_head(struct calls *c, struct call_text *t, int call_mark)
{
    size_t from, to;

    do {
        from = t->i;
        while (t->i < t->n && cb_call_is_name(t->s[t->i]))
            t->i++;
        to = t->i;
    } while (c->form->open[0] == '`' && to > from && assigned(t));
    if (t->partial)
        return more(t);
    if (to == from || to - from >= CALL_NAME)
        return CALLS_NONE;
    memcpy(c->name, t->s + from, to - from);
    c->name[to - from - (t->s[to - 1] == ':')] = 0; /* f: {...} */
    cb_call_fix_name(c, c->name);
    do
        cb_call_blanks(t);
    while (cb_call_skip_any(t, before_args, N_BEFORE_ARGS));
    if (cb_call_skip(t, "[CALL_ID]")) {
        t->i = cb_call_find(t, "[ARGS]");
        if (!cb_call_skip(t, "[ARGS]"))
            return more(t);
        cb_call_blanks(t);
    }
    if (t->i == t->n && t->ended != TEXT_ENDED)
        return more(t);
    if (!cb_call_known(c, c->name) && (c->form->strict || to == t->i || t->i == t->n) &&
        (c->form->strict || t->i == t->n || t->s[t->i] != '{'))
        return t->partial ? more(t) : CALLS_NONE;
    c->depth = 0;
    if (t->i < t->n && t->s[t->i] == '(') {
        c->lines = *c->form->close != 0;
        return cb_call_python(c, t, c->name);
    }
    if (t->i < t->n && t->s[t->i] == '{')
        return call_mark ? cb_call_bare_keys(c, t, c->name) : cb_call_arguments(c, t, c->name);
    if (cb_call_at(t, "<arg_key>")) {
        cb_call_begin(c, c->name);
        cb_call_put(c, "{");
        c->n_param = 0;
        c->trims = 0;
        return cb_call_stage(c, CALL_PARAMS);
    }
    if (cb_call_known(c, c->name) && (t->i == t->n || cb_call_closes(c, t)))
        return bare_name(c, t, c->name);
    return t->partial ? more(t) : CALLS_NONE;
}

enum calls_status cb_call_start(struct calls *c, struct call_text *t)
{
    int call_mark;

    if (!c->n && !cb_call_form_names(c->form))
        t->i += strlen(c->form->open) - (c->form->open[0] == '\n');
    do
        cb_call_blanks(t);
    while (cb_call_skip_any(t, before_call, N_BEFORE_CALL));
    if (cb_call_skip(t, "[")) {
        c->in_list = 1;
        cb_call_blanks(t);
    } else if (!c->n) {
        (void)wrapped_list(c, t);
    }
    if (cb_call_skip(t, "<function=") || cb_call_skip(t, "<invoke name=") ||
        cb_call_skip(t, "<｜DSML｜invoke name=") || cb_call_skip(t, "<function name=") ||
        cb_call_skip(t, "<tool_call name="))
        return tag_head(c, t);
    if (cb_call_skip(t, "<name>"))
        return tagged_name(c, t);
    if (t->i == t->n || t->partial)
        return more(t);
    if (t->s[t->i] == '{')
        return object_head(c, t);
    call_mark = cb_call_skip(t, "call:");
    if (cb_call_skip(t, "print(")) /* Gemma's tool_code */
        cb_call_blanks(t);
    return t->partial || t->i == t->n ? more(t) : name_head(c, t, call_mark);
}
