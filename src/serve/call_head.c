/* SPDX-License-Identifier: MIT */
/* call_head.c - the beginning of a call written as a JSON object. */
#include "call_head.h"

#include <ctype.h>
#include <string.h>

#include "base/json_lenient.h"
#include "json_scan.h"

enum key { K_NAME, K_ARGS, K_CALL, K_BESIDE, K_UNKNOWN };

static enum key key_of(const char *key)
{
    static const struct {
        const char *key;
        enum key is;
    } known[] = {
        { "name", K_NAME },           { "tool_name", K_NAME },  { "tool", K_NAME },
        { "function_name", K_NAME },  { "action", K_NAME },     { "arguments", K_ARGS },
        { "parameters", K_ARGS },     { "args", K_ARGS },       { "params", K_ARGS },
        { "input", K_ARGS },          { "tool_input", K_ARGS }, { "tool_arguments", K_ARGS },
        { "action_input", K_ARGS },   { "kwargs", K_ARGS },     { "function", K_CALL },
        { "function_call", K_CALL },  { "tool_call", K_CALL },  { "id", K_BESIDE },
        { "type", K_BESIDE },         { "call_id", K_BESIDE },  { "index", K_BESIDE },
        { "tool_call_id", K_BESIDE }, { "thought", K_BESIDE },  { "toolName", K_NAME },
        { "functionName", K_NAME },   { "toolInput", K_ARGS },  { "toolArgs", K_ARGS },
        { "tool_args", K_ARGS },
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(key, known[i].key))
            return known[i].is;
    return K_UNKNOWN;
}

/* A string of JSON s[n], with its quotes, as text -> to[cap]. 0: it is none, or too long */
static int quoted_text(const char *s, size_t n, char *to, size_t cap)
{
    struct buf mended = { 0 };
    json_error_t why;
    json_t *j = NULL;
    int ok;

    if (cb_json_mend(s, n, &mended) && !mended.failed)
        j = cb_json_read(mended.s, mended.n, &why);
    ok = json_is_string(j) && json_string_length(j) < cap;
    if (ok)
        memcpy(to, json_string_value(j), json_string_length(j) + 1);
    json_decref(j);
    cb_buf_free(&mended);
    return ok;
}

struct at {
    const char *s;
    size_t n, i;
    int strict, keyed, ended, depth;
};

static size_t blanks(const struct at *a, const char *these)
{
    size_t i = a->i;

    while (i < a->n && strchr(these, a->s[i]) && a->s[i])
        i++;
    return i;
}

/* The value at a->i -> how many bytes, 0: more must come, SIZE_MAX: none */
static size_t value_length(const struct at *a)
{
    enum json_scan_status status;
    struct json_scan j;
    size_t n;

    cb_json_scan_open(&j);
    n = cb_json_scan(&j, a->s + a->i, a->n - a->i, NULL, &status);
    if (status == JSON_DONE)
        return n;
    if (status == JSON_MORE && !a->ended)
        return 0;
    return cb_json_scan_close(&j, NULL) ? n : (size_t)-1; /* brackets are missing */
}

static enum call_head_status take_name(struct at *a, struct call_head *out)
{
    const size_t n = value_length(a);

    if (!n)
        return HEAD_MORE;
    if (n == (size_t)-1 || !quoted_text(a->s + a->i, n, out->name, sizeof out->name) || !*out->name)
        return HEAD_NONE;
    a->i += n;
    return HEAD_WHOLE;
}

static enum call_head_status skip_value(struct at *a)
{
    const size_t n = value_length(a);

    if (!n || n == (size_t)-1)
        return n ? HEAD_NONE : HEAD_MORE;
    a->i += n;
    return HEAD_WHOLE;
}

static enum call_head_status take_args(struct at *a, struct call_head *out)
{
    enum call_head_status got;

    out->args = a->i;
    out->depth = a->depth;
    if (*out->name)
        return HEAD_ARGS;
    got = skip_value(a);
    out->n_args = a->i - out->args;
    return got;
}

/* The value of a key. HEAD_WHOLE: continue after it */
static enum call_head_status take_value(struct at *a, const char *key, struct call_head *out)
{
    const enum key is = key_of(key);

    if (is == K_CALL && a->s[a->i] == '{' && a->depth == 1) {
        a->i++;
        a->depth++;
        return HEAD_WHOLE;
    }
    if (is == K_NAME || (is == K_CALL && a->s[a->i] == '"'))
        return take_name(a, out);
    if (is == K_ARGS)
        return take_args(a, out);
    return is == K_UNKNOWN && a->strict ? HEAD_NONE : skip_value(a);
}

/* A key in quotes or without -> key[cap], and what is after its colon. HEAD_WHOLE: it is there */
static enum call_head_status take_key(struct at *a, char *key, size_t cap)
{
    size_t n = 0;

    if (a->s[a->i] == '"' || a->s[a->i] == '\'') {
        n = value_length(a);
        if (!n || n == (size_t)-1)
            return n ? HEAD_NONE : HEAD_MORE;
        if (!quoted_text(a->s + a->i, n, key, cap))
            *key = 0;
    } else {
        while (a->i + n < a->n && (isalnum((unsigned char)a->s[a->i + n]) || a->s[a->i + n] == '_'))
            n++;
        if (!n || n >= cap)
            return HEAD_NONE;
        memcpy(key, a->s + a->i, n);
        key[n] = 0;
    }
    a->i += n;
    a->i = blanks(a, " \t\r\n");
    if (a->i == a->n)
        return HEAD_MORE;
    if (a->s[a->i] != ':')
        return HEAD_NONE;
    a->i++;
    a->i = blanks(a, " \t\r\n");
    return a->i == a->n ? HEAD_MORE : HEAD_WHOLE;
}

/* A member, or the end of an object. HEAD_WHOLE: continue after it */
static enum call_head_status take_member(struct at *a, struct call_head *out)
{
    enum call_head_status got;
    char key[64];

    if (a->s[a->i] == '}') {
        a->i++;
        a->depth--;
        return HEAD_WHOLE;
    }
    got = take_key(a, key, sizeof key);
    if (got != HEAD_WHOLE)
        return got;
    if (a->keyed && a->depth == 1 && a->s[a->i] == '{' && key_of(key) == K_UNKNOWN && *key) {
        memcpy(out->name, key, strlen(key) + 1);
        return take_args(a, out);
    }
    return take_value(a, key, out);
}

enum call_head_status cb_call_head(const char *s, size_t n, int strict, int keyed, int ended,
                                   struct call_head *out)
{
    struct at a = { s, n, 1, strict, keyed, ended, 1 };

    *out = (struct call_head){ 0 };
    while (a.i < n && s[a.i] == '{') /* {{"name": ...}}: what closes it is one bracket too many */
        a.i++;
    while (a.depth) {
        enum call_head_status got;
        const size_t from = a.i;
        int comma;

        a.i = blanks(&a, " \t\r\n,");
        comma = memchr(s + from, ',', a.i - from) != NULL;
        if (a.i == n && !ended)
            return HEAD_MORE;
        got = a.i == n ? HEAD_NONE : take_member(&a, out);
        if (got == HEAD_NONE && *out->name && a.i > 1 &&
            (a.i == n ? !comma && ended == TEXT_ENDED : a.s[a.i] == '<'))
            break; /* brackets are missing; after a comma at the end, the arguments are */
        if (got == HEAD_MORE && ended)
            return HEAD_NONE;
        if (got != HEAD_WHOLE)
            return got;
    }
    out->end = a.i;
    return *out->name ? HEAD_WHOLE : HEAD_NONE;
}

int cb_call_loose(const char *s, size_t n, const json_t *properties, struct buf *out)
{
    struct at a = { s, n, 1, 0, 0, 1, 1 };
    int found = 0;
    size_t len = 1;

    cb_buf_text(out, "{");
    while (len && len != (size_t)-1) {
        char key[64];
        a.i = blanks(&a, " \t\r\n,");
        if (a.i == n || take_key(&a, key, sizeof key) != HEAD_WHOLE)
            break;
        len = value_length(&a);
        if (len && len != (size_t)-1 && key_of(key) == K_UNKNOWN && !strpbrk(key, "\"\\") &&
            json_object_get(properties, key)) {
            cb_buf_print(out, "%s\"%s\": ", found++ ? ", " : "", key);
            (void)cb_json_mend(s + a.i, len, out);
        }
        a.i += len;
    }
    cb_buf_text(out, "}");
    return found;
}
