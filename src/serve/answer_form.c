/* SPDX-License-Identifier: MIT */
/* answer_form.c - what a request says that an answer must look like, as a grammar. */
#include "answer_form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "exchange.h"
#include "fields.h"
#include "grammar/grammar.h"

/* The grammar of a request, and the memory that is held for it */
struct form {
    struct exchange *x;
    cb_grammar *grammar;
    size_t held;
};

static int hold(void *user, size_t bytes)
{
    struct form *f = user;

    TRY(cb_exchange_hold(f->x, bytes));
    f->held += bytes;
    return CB_OK;
}

/* What the grammar takes while it is there stays held. */
static int settle(struct form *f)
{
    const size_t bytes = f->grammar ? cb_grammar_bytes(f->grammar) : 0;

    if (f->held < bytes)
        return hold(f, bytes - f->held);
    cb_exchange_give_back(f->x, f->held - bytes);
    f->held = bytes;
    return CB_OK;
}

/* A request gets less than the program's own grammars. */
static int read_grammar(struct form *f, enum grammar_kind kind, const char *text)
{
    const struct grammar_limits limits = {
        .memory_bytes = 96 << 20, .seconds = 3, .hold = hold, .user = f
    };
    const int rc = cb_grammar_new(kind, text, &limits, &f->grammar), held = settle(f);

    return rc ? rc : held;
}

/* Puts the field in front of the last failure's text. */
static int fail_of(const char *field, int status)
{
    char why[512];

    snprintf(why, sizeof why, "%s", cb_error());
    return cb_fail(status == CB_EUNSUPPORTED ? CB_EARG : status, "%s: %s", field, why);
}

static int of_schema(const json_t *schema, const char *field, struct form *f)
{
    char *text = cb_json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    int rc =
        text ? read_grammar(f, GRAMMAR_JSON_SCHEMA, text) : cb_fail(CB_ENOMEM, "out of memory");

    free(text);
    return rc ? fail_of(field, rc) : CB_OK;
}

static int taken(const char *field)
{
    return cb_fail(CB_EARG, "%s: the answer is constrained by another field too", field);
}

/* A schema as a value, or as a text of JSON */
static int of_json(const json_t *r, const char *key, const char *field, struct form *f)
{
    const json_t *v = cb_field(r, key);
    int rc;

    if (!v)
        return CB_OK;
    if (f->grammar)
        return taken(field);
    if (!json_is_string(v))
        return of_schema(v, field, f);
    rc = read_grammar(f, GRAMMAR_JSON_SCHEMA, json_string_value(v));
    return rc ? fail_of(field, rc) : CB_OK;
}

/* The schema stands where its wrapper belongs: 1, if v has what schemas have and wrappers lack. */
static int is_schema(const json_t *v)
{
    static const char *const words[] = { "type",  "properties", "$ref",  "anyOf",
                                         "oneOf", "allOf",      "const", "enum" };

    for (int i = 0; i < 8; i++)
        if (json_object_get(v, words[i]))
            return 1;
    return 0;
}

static int read_format(const json_t *format, const char *field, struct form *f)
{
    const json_t *word = json_is_string(format) ? format : json_object_get(format, "type");
    const json_t *inner = cb_field(format, "json_schema");
    const json_t *schema = cb_field(inner ? inner : format, "schema");
    const char *type = json_string_value(word);
    json_t *any;
    int rc;

    if (!type && (inner || schema))
        type = "json_schema";
    if (!type || !*type || !strcmp(type, "text"))
        return CB_OK;
    if (strcmp(type, "json_object") && strcmp(type, "json_schema"))
        return cb_fail(CB_EARG, "%s: its type must be text, json_object or json_schema", field);
    if (schema)
        return of_json(inner ? inner : format, "schema", field, f);
    if (is_schema(inner))
        return of_schema(inner, field, f);
    any = json_pack("{s:s}", "type", "object");
    rc = of_schema(any, field, f);
    json_decref(any);
    return rc;
}

static int of_text(const json_t *r, const char *key, const char *field, enum grammar_kind kind,
                   struct form *f)
{
    const json_t *v = cb_field(r, key);
    int rc;

    if (v && !json_is_string(v))
        return cb_fail(CB_EARG, "%s: must be a text", field);
    if (!json_string_length(v))
        return CB_OK;
    if (f->grammar)
        return taken(field);
    rc = read_grammar(f, kind, json_string_value(v));
    return rc ? fail_of(field, rc) : CB_OK;
}

/* Texts of which the answer is one */
static int of_choice(const json_t *r, const char *key, const char *field, struct form *f)
{
    const json_t *list = cb_field(r, key), *v;
    struct buf rule = { 0 };
    size_t i;
    int rc;

    if (!list)
        return CB_OK;
    if (f->grammar)
        return taken(field);
    cb_buf_text(&rule, "root ::= ");
    json_array_foreach(list, i, v)
    {
        const char *s = json_string_value(v);
        cb_buf_text(&rule, i ? " | \"" : "\"");
        for (; s && *s; s++) {
            const char *escaped = *s == '\n'   ? "\\n"
                                  : *s == '\r' ? "\\r"
                                  : *s == '\t' ? "\\t"
                                               : NULL;
            cb_buf_text(&rule, *s == '"' || *s == '\\' ? "\\" : "");
            cb_buf_add(&rule, escaped ? escaped : s, escaped ? 2 : 1);
        }
        cb_buf_text(&rule, "\"");
        if (!json_string_length(v))
            break;
    }
    rc = i < json_array_size(list) || !i ? cb_fail(CB_EARG, "must be a list of texts")
         : rule.failed                   ? cb_fail(CB_ENOMEM, "out of memory")
                                         : read_grammar(f, GRAMMAR_GBNF, rule.s);
    cb_buf_free(&rule);
    return rc ? fail_of(field, rc) : CB_OK;
}

static int of_format(const json_t *format, const char *field, struct form *f)
{
    if (format && f->grammar)
        return taken(field);
    return format ? read_format(format, field, f) : CB_OK;
}

/* The fields of vLLM, which many clients know */
static int read_guided(const json_t *r, struct form *f)
{
    const json_t *o;

    TRY(of_json(r, "guided_json", "guided_json", f));
    TRY(of_text(r, "guided_regex", "guided_regex", GRAMMAR_REGEX, f));
    TRY(of_text(r, "guided_grammar", "guided_grammar", GRAMMAR_GBNF, f));
    TRY(of_choice(r, "guided_choice", "guided_choice", f));
    TRY(cb_field_object(r, "structured_outputs", &o));
    TRY(of_json(o, "json", "structured_outputs", f));
    TRY(of_text(o, "regex", "structured_outputs", GRAMMAR_REGEX, f));
    TRY(of_text(o, "grammar", "structured_outputs", GRAMMAR_GBNF, f));
    return of_choice(o, "choice", "structured_outputs", f);
}

/* An object, or its type alone */
static int format_in(const json_t *o, const char *name, const json_t **out)
{
    *out = cb_field(o, name);
    return json_is_string(*out) && *json_string_value(*out) != '{' ? CB_OK
                                                                   : cb_field_object(o, name, out);
}

static int read_all(const json_t *r, struct form *f)
{
    const json_t *format, *config;

    TRY(format_in(r, "response_format", &format));
    TRY(of_format(format, "response_format", f));
    TRY(cb_field_object(r, "output_format", &format)); /* Anthropic's, and its later place */
    TRY(of_format(format, "output_format", f));
    TRY(cb_field_object(r, "output_config", &config));
    TRY(format_in(config, "format", &format));
    TRY(of_format(format, "output_config", f));
    TRY(of_json(r, "json_schema", "json_schema", f));
    TRY(of_text(r, "grammar", "grammar", GRAMMAR_GBNF, f));
    TRY(of_text(r, "regex", "regex", GRAMMAR_REGEX, f));
    return read_guided(r, f);
}

/* Hands the grammar out, or frees it. */
static int end_form(struct form *f, int rc, cb_grammar **out)
{
    if (rc)
        cb_grammar_free(f->grammar);
    *out = rc ? NULL : f->grammar;
    return rc;
}

int cb_answer_form_read(struct exchange *x, const json_t *request, cb_grammar **out)
{
    struct form f = { .x = x };

    return end_form(&f, read_all(request, &f), out);
}

int cb_answer_form_format(struct exchange *x, const json_t *format, const char *field,
                          cb_grammar **out)
{
    struct form f = { .x = x };

    return end_form(&f, read_format(format, field, &f), out);
}

/* ---- calls ---- */

/* The schema of a call: {"name": NAME, "arguments": ...} */
static json_t *call_schema(const json_t *function)
{
    const json_t *parameters = json_object_get(function, "parameters");
    json_t *own = json_is_object(parameters) ? cb_json_deep_copy(parameters)
                                             : json_pack("{s:s}", "type", "object");

    /* "#" in a tool's schema means that schema, not the one around it */
    if (own && !json_object_get(own, "$id"))
        json_object_set_new(own, "$id", json_string("tool:"));
    return json_pack("{s:s, s:{s:{s:O}, s:o}, s:[ss], s:b}", "type", "object", "properties", "name",
                     "const", json_object_get(function, "name"), "arguments", own, "required",
                     "name", "arguments", "additionalProperties", 0);
}

int cb_answer_form_call(struct exchange *x, const json_t *choice, const json_t *tools,
                        cb_grammar **out)
{
    const char *word = json_string_value(choice);
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    json_t *any = json_array(), *schema;
    const json_t *t;
    struct form form = { .x = x };
    size_t i;
    int rc;

    json_array_foreach(tools, i, t)
    {
        const json_t *f = json_object_get(t, "function");
        const char *own = json_string_value(json_object_get(f, "name"));
        if ((word && !strcmp(word, "required")) || (name && own && !strcmp(name, own)))
            cb_json_add(&any, call_schema(f));
    }
    schema = json_pack("{s:O}", "anyOf", any);
    rc = json_array_size(any) ? of_schema(schema, "tools", &form)
         : name               ? cb_fail(CB_EARG, "tool_choice: no tool has this name")
                              : CB_OK;
    json_decref(any);
    json_decref(schema);
    return end_form(&form, rc, out);
}
