/* SPDX-License-Identifier: MIT */
/* call_python.c - calls written as f(x=1, y="a") (Llama 3.2, Gemma) and as
 * f{x:1,y:<escape>a<escape>} (FunctionGemma). They are read when they are whole. */
#include <stdint.h>
#include <string.h>

#include "call_text.h"

static enum calls_status hand_out(struct calls *c, const char *name, struct buf *args)
{
    if (!args->failed) {
        cb_call_begin(c, name);
        c->sink->args(c->sink->arg, args->s, args->n);
        cb_call_end(c);
    }
    cb_buf_free(args);
    c->stage = CALL_GAP;
    return CALLS_END;
}

static void put_key(struct buf *out, const char *s, size_t n)
{
    cb_buf_text(out, out->n > 1 ? ", \"" : "\"");
    cb_buf_add(out, s, n);
    cb_buf_text(out, "\": ");
}

/* ---- f(x=1) ---- */

/* The name of parameter i, of arguments that are not named */
static const char *name_of(const struct calls *c, const char *name, int i)
{
    json_t *all = (json_t *)(uintptr_t)cb_call_properties(c, name);
    void *it = json_object_iter(all);

    for (; it && i > 0; i--)
        it = json_object_iter_next(all, it);
    return it ? json_object_iter_key(it) : NULL;
}

/* x=, before a value. 1: it is there */
static int keyword(struct call_text *t, const char **key, size_t *n)
{
    size_t i = t->i;

    while (i < t->n && (t->s[i] == '_' || (t->s[i] >= '0' && t->s[i] <= '9') ||
                        (t->s[i] >= 'A' && t->s[i] <= 'Z') || (t->s[i] >= 'a' && t->s[i] <= 'z')))
        i++;
    *key = t->s + t->i;
    *n = i - t->i;
    while (i < t->n && t->s[i] == ' ')
        i++;
    if (!*n || i == t->n || t->s[i] != '=')
        return 0;
    t->i = i + 1;
    cb_call_blanks(t);
    return 1;
}

/* One argument onto *out: JSON_DONE, or what is missing */
static enum json_scan_status argument(const struct calls *c, struct call_text *t, const char *name,
                                      int i, struct buf *out)
{
    enum json_scan_status status;
    struct json_scan j;
    const char *key;
    size_t n;

    if (!keyword(t, &key, &n)) {
        key = name_of(c, name, i);
        n = key ? strlen(key) : 0;
    }
    if (!n)
        return JSON_BAD;
    put_key(out, key, n);
    cb_json_scan_open(&j);
    t->i += cb_json_scan(&j, t->s + t->i, t->n - t->i, out, &status);
    return status;
}

enum calls_status cb_call_python(struct calls *c, struct call_text *t, const char *name)
{
    enum json_scan_status status = JSON_DONE;
    struct buf out = { 0 };

    t->i++; /* the bracket */
    cb_buf_text(&out, "{");
    for (int i = 0; status == JSON_DONE; i++) {
        cb_call_blanks(t);
        if (cb_call_skip(t, ")")) {
            cb_buf_text(&out, "}");
            return hand_out(c, name, &out);
        }
        if (i && !cb_call_skip(t, ","))
            status = t->i == t->n ? JSON_MORE : JSON_BAD;
        cb_call_blanks(t);
        if (status == JSON_DONE && !cb_call_at(t, ")"))
            status = t->i == t->n ? JSON_MORE : argument(c, t, name, i, &out);
    }
    cb_buf_free(&out);
    return status == JSON_MORE && !t->ended ? CALLS_MORE : CALLS_NONE;
}

/* ---- f{x:1} ---- */

/* A string in its marks becomes JSON; t stands after the first mark. 0: it has not ended */
static int marked_string(struct call_text *t, const char *mark, struct buf *out)
{
    const size_t end = cb_call_find(t, mark);

    if (end == t->n)
        return 0;
    cb_buf_text(out, "\"");
    for (; t->i < end; t->i++) {
        if (t->s[t->i] == '"' || t->s[t->i] == '\\')
            cb_buf_text(out, "\\");
        cb_buf_add(out, t->s + t->i, 1); /* line ends are mended later */
    }
    cb_buf_text(out, "\"");
    t->i += strlen(mark);
    return 1;
}

/* A bare key becomes a string. */
static void bare_key(struct call_text *t, struct buf *out)
{
    const size_t from = t->i;

    while (t->i < t->n && t->s[t->i] && !strchr(":{}[], \n", t->s[t->i]))
        t->i++;
    if (t->i < t->n && t->s[t->i] == ':' && t->s[from] != '"') {
        cb_buf_text(out, "\"");
        cb_buf_add(out, t->s + from, t->i - from);
        cb_buf_text(out, "\": ");
        t->i++;
    } else {
        cb_buf_add(out, t->s + from, t->i - from);
    }
}

enum calls_status cb_call_bare_keys(struct calls *c, struct call_text *t, const char *name)
{
    struct buf raw = { 0 }, out = { 0 };
    int depth = 0, whole = 1;

    do {
        const char b = t->i < t->n ? t->s[t->i] : 0;
        if (!b) {
            whole = 0;
        } else if (cb_call_skip(t, "<escape>")) {
            whole = marked_string(t, "<escape>", &raw);
        } else if (cb_call_skip(t, "<|\"|>")) {
            whole = marked_string(t, "<|\"|>", &raw);
        } else if (strchr("{}[]", b)) {
            depth += b == '{' || b == '[' ? 1 : -1;
            cb_buf_add(&raw, &b, 1);
            t->i++;
        } else if (strchr(":, \n", b)) {
            cb_buf_add(&raw, &b, 1);
            if (b == ',')
                cb_buf_text(&raw, " ");
            t->i++;
        } else {
            bare_key(t, &raw);
        }
    } while (depth > 0 && whole && !raw.failed);
    whole = whole && !raw.failed && cb_json_mend(raw.s, raw.n, &out);
    cb_buf_free(&raw);
    if (whole)
        return hand_out(c, name, &out);
    cb_buf_free(&out);
    return t->ended || depth <= 0 ? CALLS_NONE : CALLS_MORE;
}
