/* SPDX-License-Identifier: MIT */
/* call_params.c - parameters of a call in tags: <parameter=x> (Qwen3-Coder), <parameter name="x">,
 * <arg_key>x</arg_key><arg_value> (GLM). They become JSON by the types of the tool's schema. */
#include <stdlib.h>
#include <string.h>

#include "base/json_lenient.h"
#include "base/stop_text.h"
#include "call_text.h"

enum { T_STRING = 1, T_NUMBER = 2, T_BOOL = 4, T_NULL = 8, T_OBJECT = 16, T_ARRAY = 32 };

/* ---- types ---- */

static unsigned type_word(const char *word)
{
    static const struct {
        const char *word;
        unsigned type;
    } known[] = { { "string", T_STRING }, { "number", T_NUMBER }, { "integer", T_NUMBER },
                  { "boolean", T_BOOL },  { "null", T_NULL },     { "object", T_OBJECT },
                  { "array", T_ARRAY } };

    for (size_t i = 0; word && i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i].word))
            return known[i].type;
    return 0;
}

static unsigned type_of(const json_t *v)
{
    return json_is_string(v)    ? T_STRING
           : json_is_number(v)  ? T_NUMBER
           : json_is_boolean(v) ? T_BOOL
           : json_is_object(v)  ? T_OBJECT
           : json_is_array(v)   ? T_ARRAY
                                : T_NULL;
}

/* The types that a schema allows; 0: it says nothing */
static unsigned types_of(const json_t *schema, int depth)
{
    static const char *const any[] = { "anyOf", "oneOf", "allOf" };
    const json_t *type = json_object_get(schema, "type"), *v;
    unsigned all = type_word(json_string_value(type));
    size_t i;

    json_array_foreach(type, i, v) all |= type_word(json_string_value(v));
    json_array_foreach(json_object_get(schema, "enum"), i, v) all |= type ? 0 : type_of(v);
    if (!type && json_object_get(schema, "const"))
        all |= type_of(json_object_get(schema, "const"));
    for (int k = 0; k < 3 && depth < 8; k++)
        json_array_foreach(json_object_get(schema, any[k]), i, v) all |= types_of(v, depth + 1);
    if (json_is_true(json_object_get(schema, "nullable")))
        all |= all ? T_NULL : 0;
    return all;
}

/* ---- values ---- */

static void put_string(struct calls *c, const char *s, size_t n)
{
    json_t *j = cb_json_text(s, n);
    char *text = j ? cb_json_dumps(j, JSON_ENCODE_ANY) : NULL;

    if (text && n)
        c->sink->args(c->sink->arg, text + 1, strlen(text) - 2);
    free(text);
    json_decref(j);
}

/* A whole value, as what the schema allows */
static void put_value(struct calls *c, const char *s, size_t n)
{
    struct buf mended = { 0 };
    json_error_t why;
    json_t *j = NULL;
    unsigned type = 0;

    if (cb_json_mend(s, n, &mended) && !mended.failed) {
        j = cb_json_read(mended.s, mended.n, &why);
        type = j ? type_of(j) : 0;
    }
    if (type && (c->types ? c->types & type & ~(unsigned)T_STRING : type != T_STRING)) {
        c->sink->args(c->sink->arg, mended.s, mended.n);
    } else {
        cb_call_put(c, "\"");
        put_string(c, s, n);
        cb_call_put(c, "\"");
    }
    json_decref(j);
    cb_buf_free(&mended);
}

/* Where the value ends, by its own tag or, if that is missing, by the next one; t->n: not yet */
static size_t value_end(const struct calls *c, const struct call_text *t)
{
    static const char *const tag[] = { "</parameter>", "\n<parameter=", "\n</function>",
                                       "</｜DSML｜parameter>" };
    static const char *const glm[] = { "</arg_value>" };

    return t->i +
           cb_stop_find(t->s + t->i, t->n - t->i, c->trims ? tag : glm, c->trims ? 4 : 1, NULL);
}

static size_t value_safe(const struct calls *c, const struct call_text *t)
{
    static const char *const tag[] = { "\n</parameter>", "</parameter>",
                                       "\n<parameter=", "\n</function>", "</｜DSML｜parameter>" };
    static const char *const glm[] = { "</arg_value>" };

    return cb_stop_safe(t->s + t->i, t->n - t->i, c->trims ? tag : glm, c->trims ? 5 : 1);
}

static enum calls_status value(struct calls *c, struct call_text *t)
{
    const size_t end = value_end(c, t), from = t->i;
    size_t to = end;

    if (end == t->n && !t->ended) {
        const size_t safe = c->streams ? value_safe(c, t) : 0;
        put_string(c, t->s + from, safe);
        t->i += safe;
        return CALLS_MORE;
    }
    if (c->trims && to > from && t->s[to - 1] == '\n')
        to--;
    if (c->streams)
        put_string(c, t->s + from, to - from);
    else
        put_value(c, t->s + from, to - from);
    cb_call_put(c, c->streams ? "\"" : "");
    t->i = end;
    (void)(cb_call_skip(t, "</parameter>") || cb_call_skip(t, "</arg_value>") ||
           cb_call_skip(t, "</｜DSML｜parameter>"));
    c->stage = CALL_PARAMS;
    return CALLS_END;
}

/* ---- keys ---- */

/* A key up to `close` in quotes or not -> key[cap]; 0: it has not ended, -1: it is too long */
static int key_until(struct call_text *t, const char *close, char *key, size_t cap)
{
    const size_t end = cb_call_find(t, close);
    size_t from = t->i, to = end;

    if (end == t->n)
        return t->n - t->i < cap ? 0 : -1;
    while (from < to && strchr("\"' \n", t->s[from]))
        from++;
    while (to > from && strchr("\"' \n", t->s[to - 1]))
        to--;
    if (to - from >= cap)
        return -1;
    memcpy(key, t->s + from, to - from);
    key[to - from] = 0;
    t->i = end + strlen(close);
    return 1;
}

static void begin_value(struct calls *c, char *key)
{
    char *attributes = strchr(key, '"'); /* after the name in quotes */
    const char *text = attributes ? strstr(attributes + 1, "string=\"") : NULL;
    const json_t *schema;

    if (attributes)
        *attributes = 0;
    schema = json_object_get(cb_call_properties(c, c->name), key);
    cb_call_put(c, c->n_param++ ? ", \"" : "\"");
    put_string(c, key, strlen(key));
    cb_call_put(c, "\": ");
    c->types = !text ? types_of(schema, 0) : strncmp(text + 8, "true", 4) ? 0 : T_STRING;
    c->streams = c->types == T_STRING;
    cb_call_put(c, c->streams ? "\"" : "");
    c->stage = CALL_VALUE;
}

/* The tag of a parameter. 1: its value follows; 0: more must come; -1: there is none */
static int key(struct calls *c, struct call_text *t)
{
    char name[CALL_NAME];
    int got;

    if (cb_call_skip(t, "<arg_key>")) {
        got = key_until(t, "</arg_key>", name, sizeof name);
        cb_call_blanks(t);
        if (got > 0 && !cb_call_skip(t, "<arg_value>"))
            got = t->partial ? 0 : -1;
    } else if (cb_call_skip(t, "<parameter=") || cb_call_skip(t, "<parameter name=") ||
               cb_call_skip(t, "<｜DSML｜parameter name=")) {
        got = key_until(t, ">", name, sizeof name);
        if (got > 0 && t->i == t->n && !t->ended)
            got = 0; /* a line end may follow */
        if (got > 0 && t->i < t->n && t->s[t->i] == '\n')
            t->i++;
    } else {
        return t->partial ? 0 : -1;
    }
    if (got > 0)
        begin_value(c, name);
    return got;
}

enum calls_status cb_call_params(struct calls *c, struct call_text *t)
{
    size_t at;
    int got;

    if (c->stage == CALL_VALUE)
        return value(c, t);
    cb_call_blanks(t);
    at = t->i;
    got = t->i < t->n ? key(c, t) : t->ended ? -1 : 0;
    if (got > 0)
        return CALLS_END;
    t->i = at;
    if (!got && !t->ended)
        return CALLS_MORE;
    cb_call_put(c, "}");
    cb_call_end(c);
    c->stage = CALL_GAP;
    return CALLS_END;
}
