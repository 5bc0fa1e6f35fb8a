/* SPDX-License-Identifier: MIT */
/* schema_kit.c - messages, and small expressions, for the parts of the reader of JSON schemas. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "schema.h"

/* ---- messages ---- */

static void write_where(const struct where *at, struct buf *b)
{
    if (!at->up) {
        cb_buf_text(b, "#");
        return;
    }
    write_where(at->up, b);
    if (at->key)
        cb_buf_print(b, "/%.40s", at->key);
    else
        cb_buf_print(b, "/%zu", at->index);
}

int cb_schema_fail(int status, const struct where *at, const char *fmt, ...)
{
    struct buf b = { 0 };
    char why[200];
    va_list ap;
    int rc;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    write_where(at, &b);
    rc = cb_fail(status, "schema: %.300s: %s", b.s ? b.s : "#", why);
    cb_buf_free(&b);
    return rc;
}

/* ---- keywords ---- */

static const struct {
    int kind;
    const char *names; /* each between two blanks */
} keywords[] = {
    { KW_NOTE, " title description default examples example $schema $id $comment $defs definitions "
               "deprecated readOnly writeOnly contentMediaType contentEncoding discriminator " },
    { KW_ANY, " type enum const anyOf oneOf allOf $ref " },
    { KW_OBJECT, " properties required additionalProperties " },
    { KW_ARRAY, " items prefixItems minItems maxItems uniqueItems " },
    { KW_STRING, " minLength maxLength pattern format " },
    { KW_NUMBER, " minimum maximum exclusiveMinimum exclusiveMaximum multipleOf " },
};

int cb_schema_keyword(const char *name)
{
    char word[40];
    const int n = snprintf(word, sizeof word, " %s ", name);

    if (!strncmp(name, "x-", 2))
        return KW_NOTE;
    for (size_t i = 0; n < (int)sizeof word && i < sizeof keywords / sizeof *keywords; i++)
        if (!strchr(name, ' ') && strstr(keywords[i].names, word))
            return keywords[i].kind;
    return 0;
}

/* ---- small helpers ---- */

int cb_schema_seq(struct rules *r, int n, const int *x)
{
    struct ex_list l = { 0 };

    for (int i = 0; i < n; i++)
        cb_ex_add(r, &l, x[i]);
    return cb_ex_seq(r, &l);
}

int cb_schema_alt(struct rules *r, int n, const int *x)
{
    struct ex_list l = { 0 };

    for (int i = 0; i < n; i++)
        cb_ex_add(r, &l, x[i]);
    return cb_ex_alt(r, &l);
}

int cb_schema_text(struct rules *r, const char *text)
{
    return cb_ex_text(r, text, strlen(text));
}

/* As few digits as give the same number again */
static char *dump(json_t *value)
{
    for (size_t digits = 15;; digits++) {
        char *s = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
        json_t *again = s && digits < 17 ? json_loads(s, JSON_DECODE_ANY, NULL) : NULL;
        const int same = !s || digits == 17 || (again && json_equal(again, value));
        json_decref(again);
        if (same)
            return s;
        free(s);
    }
}

int cb_schema_literal(struct schema *s, json_t *value, int *x)
{
    char *text = dump(value);

    if (!text)
        return cb_fail(CB_ENOMEM, "out of memory: a grammar");
    *x = cb_schema_text(s->r, text);
    free(text);
    return CB_OK;
}

int cb_schema_count(json_t *j, const char *name, const struct where *at, int none, int *out)
{
    json_t *v = json_object_get(j, name);
    const double x = json_number_value(v);

    *out = none;
    if (!v)
        return CB_OK;
    if (!json_is_number(v) || x < 0 || x != (double)(json_int_t)x)
        return cb_schema_fail(CB_EARG, at, "'%s' must be a whole number from 0 on", name);
    if (x > GRAMMAR_MAX_REPEAT)
        return cb_schema_fail(CB_EUNSUPPORTED, at, "'%s' is more than %d", name,
                              GRAMMAR_MAX_REPEAT);
    *out = (int)x;
    return CB_OK;
}

int cb_schema_rule(struct schema *s, json_t *j, const struct where *at, int *rule)
{
    int x;

    *rule = cb_rule_new(s->r);
    TRY(s->visit(s, j, at, &x));
    TRY(cb_rules_check(s->r));
    s->r->rule[*rule].expr = x;
    return CB_OK;
}
