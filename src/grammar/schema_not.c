/* SPDX-License-Identifier: MIT */
/* schema_not.c - what "not" comes to: schemas without "not", or with one of smaller parts, of which
 * one fits. */
#include <string.h>

#include "schema.h"

/* A new schema in `list` with the type NAME, unless it is NULL; NULL after a failure */
static struct sval *new_schema(struct schema *s, struct sval *list, const char *type, int *rc)
{
    struct sval *v = cb_sdoc_add(&s->doc, list, NULL, SVAL_OBJECT, rc);
    struct sval *t = v && type ? cb_sdoc_add(&s->doc, v, "type", SVAL_STRING, rc) : NULL;

    if (t) {
        t->s = type;
        t->n = strlen(type);
    }
    return *rc ? NULL : v;
}

/* {"not": v} -> list */
static int add_not(struct schema *s, struct sval *list, const char *key, struct sval *v)
{
    struct sval *no;
    int rc;

    no = cb_sdoc_add(&s->doc, list, key, SVAL_OBJECT, &rc);
    if (no)
        cb_sdoc_link(&s->doc, no, "not", v, &rc);
    return rc;
}

/* {"not": {"type": ...}} if v has a type */
static int add_other_types(struct schema *s, struct sval *list, struct sval *v)
{
    struct sval *type = cb_schema_get(s, v, "type"), *out, *no;
    int rc;

    if (!type)
        return CB_OK;
    out = new_schema(s, list, NULL, &rc);
    no = out ? cb_sdoc_add(&s->doc, out, "not", SVAL_OBJECT, &rc) : NULL;
    if (no)
        cb_sdoc_link(&s->doc, no, "type", type, &rc);
    return rc;
}

/* ---- objects ---- */

/* {"type": "object", "properties": {KEY: false}} */
static int add_absent(struct schema *s, struct sval *list, const struct sval *key)
{
    struct sval *v, *p;
    int rc;

    if (key->kind != SVAL_STRING)
        return cb_schema_fail(s, CB_EARG, key, "'required' is a list of texts");
    v = new_schema(s, list, "object", &rc);
    p = v ? cb_sdoc_add(&s->doc, v, "properties", SVAL_OBJECT, &rc) : NULL;
    if (p)
        cb_sdoc_add(&s->doc, p, key->s, SVAL_FALSE, &rc);
    return rc;
}

/* {"type": "object", "required": [KEY], "properties": {KEY: {"not": ...}}} */
static int add_other_value(struct schema *s, struct sval *list, struct sval *m)
{
    struct sval *v, *p, *required, *key;
    int rc;

    v = new_schema(s, list, "object", &rc);
    required = v ? cb_sdoc_add(&s->doc, v, "required", SVAL_ARRAY, &rc) : NULL;
    key = required ? cb_sdoc_add(&s->doc, required, NULL, SVAL_STRING, &rc) : NULL;
    p = key ? cb_sdoc_add(&s->doc, v, "properties", SVAL_OBJECT, &rc) : NULL;
    if (!p)
        return rc;
    key->s = m->key;
    key->n = m->key_n;
    return add_not(s, p, m->key, m);
}

static int not_object(struct schema *s, struct sval *v, struct sval *list)
{
    const struct sval *required = cb_schema_get(s, v, "required");
    const struct sval *named = cb_schema_get(s, v, "properties");

    for (const struct sval *m = v->first; m; m = m->next)
        if (cb_schema_keyword(m->key) == KW_OBJECT && strcmp(m->key, "required") != 0 &&
            strcmp(m->key, "properties") != 0)
            return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'%.40s' within 'not' is not supported",
                                  m->key);
    TRY(add_other_types(s, list, v));
    for (const struct sval *m = required ? required->first : NULL; m; m = m->next)
        TRY(add_absent(s, list, m));
    for (struct sval *m = named ? named->first : NULL; m; m = m->next)
        TRY(add_other_value(s, list, m));
    return CB_OK;
}

/* ---- numbers ---- */

static int not_number(struct schema *s, struct sval *v, struct sval *list)
{
    static const char *const bounds[][2] = { { "minimum", "exclusiveMaximum" },
                                             { "exclusiveMinimum", "maximum" },
                                             { "maximum", "exclusiveMinimum" },
                                             { "exclusiveMaximum", "minimum" } };

    if (cb_schema_get(s, v, "multipleOf"))
        return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'multipleOf' within 'not' is not supported");
    TRY(add_other_types(s, list, v));
    for (int i = 0; i < 4; i++) {
        struct sval *bound = cb_schema_get(s, v, bounds[i][0]), *other;
        int rc;
        if (!bound)
            continue;
        if (bound->kind != SVAL_NUMBER)
            return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'%s' within 'not' must be a number",
                                  bounds[i][0]);
        other = new_schema(s, list, "number", &rc);
        if (other)
            cb_sdoc_link(&s->doc, other, bounds[i][1], bound, &rc);
        TRY(rc);
    }
    return CB_OK;
}

/* Values, one of which is a number at least: none of them */
static int not_values(struct schema *s, struct sval *v, struct sval *list)
{
    struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5), *many = cb_schema_get(s, v, "enum");
    struct sval *all, *no, *other;
    int rc;

    TRY(add_other_types(s, list, v));
    if (many) {
        other = new_schema(s, list, NULL, &rc);
        all = other ? cb_sdoc_add(&s->doc, other, "allOf", SVAL_ARRAY, &rc) : NULL;
        for (struct sval *m = all ? many->first : NULL; m && !rc; m = m->next) {
            other = new_schema(s, all, NULL, &rc);
            no = other ? cb_sdoc_add(&s->doc, other, "not", SVAL_OBJECT, &rc) : NULL;
            if (no)
                cb_sdoc_link(&s->doc, no, "const", m, &rc);
        }
        return rc;
    }
    other = new_schema(s, list, NULL, &rc); /* no number at all, a smaller or a larger one */
    no = other ? cb_sdoc_add(&s->doc, other, "not", SVAL_OBJECT, &rc) : NULL;
    other = no ? cb_sdoc_add(&s->doc, no, "type", SVAL_STRING, &rc) : NULL;
    TRY(rc);
    other->s = "number";
    other->n = strlen(other->s);
    for (int below = 0; below < 2; below++) {
        other = new_schema(s, list, "number", &rc);
        if (other)
            cb_sdoc_link(&s->doc, other, below ? "exclusiveMaximum" : "exclusiveMinimum", one, &rc);
        TRY(rc);
    }
    return CB_OK;
}

/* 1: v's values are not seen to elsewhere, as one of them is a number */
static int has_numbers(const struct schema *s, const struct sval *v)
{
    const struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5);
    const struct sval *many = one ? NULL : cb_schema_get(s, v, "enum");

    for (const struct sval *m = one ? one : many ? many->first : NULL; m; m = one ? NULL : m->next)
        if (m->kind == SVAL_NUMBER)
            return 1;
    return 0;
}

/* ---- other schemas ---- */

/* None of anyOf fits: {"allOf": [{"not": ...}, ...]} */
static int not_any(struct schema *s, struct sval *any, struct sval *list)
{
    struct sval *v, *all;
    int rc;

    v = new_schema(s, list, NULL, &rc);
    all = v ? cb_sdoc_add(&s->doc, v, "allOf", SVAL_ARRAY, &rc) : NULL;
    for (struct sval *m = all ? any->first : NULL; m; m = m->next)
        TRY(add_not(s, all, NULL, m));
    return rc;
}

static int parts(struct schema *s, struct sval *v, int kinds, struct sval *list)
{
    struct sval *to = v, *m;
    int rc;

    switch (kinds & ~KW_NOTE) {
    case 0:
        return CB_OK; /* everything fits v: no alternative is left */
    case KW_REF:
        TRY(cb_schema_target(s, v, &to));
        return add_not(s, list, NULL, to);
    case KW_NOT:
        cb_sdoc_link(&s->doc, list, NULL, cb_schema_get(s, v, "not"), &rc);
        return rc;
    case KW_ANYOF:
        return not_any(s, cb_schema_get(s, v, "anyOf"), list);
    case KW_ALLOF:
        for (m = cb_schema_get(s, v, "allOf")->first; m; m = m->next)
            TRY(add_not(s, list, NULL, m));
        return CB_OK;
    case KW_OBJECT:
    case KW_OBJECT | KW_TYPE:
        return not_object(s, v, list);
    case KW_NUMBER:
    case KW_NUMBER | KW_TYPE:
        return not_number(s, v, list);
    case KW_VALUES:
    case KW_VALUES | KW_TYPE:
        return not_values(s, v, list);
    default:
        return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'not' of these keywords is not supported");
    }
}

int cb_schema_not(struct schema *s, struct sval *v, struct sval **list)
{
    int kinds, rc;

    *list = NULL;
    v = v->same ? v->same : v;
    if (v->kind == SVAL_OBJECT)
        TRY(cb_schema_kinds(s, v, &kinds));
    else if (v->kind != SVAL_TRUE && v->kind != SVAL_FALSE)
        return cb_schema_fail(s, CB_EARG, v, "a schema is an object, true or false");
    if (v->kind == SVAL_OBJECT && kinds & (KW_TYPE | KW_VALUES | KW_STRING | KW_FORMAT) &&
        !(kinds & ~(KW_NOTE | KW_TYPE | KW_VALUES | KW_STRING | KW_FORMAT)) &&
        !(kinds & KW_VALUES && kinds & (KW_STRING | KW_FORMAT)) && !has_numbers(s, v))
        return CB_OK; /* types, values and strings see to it */
    *list = cb_sdoc_add(&s->doc, NULL, NULL, SVAL_ARRAY, &rc);
    if (!*list || v->kind == SVAL_TRUE)
        return rc;
    if (v->kind == SVAL_FALSE) {
        cb_sdoc_add(&s->doc, *list, NULL, SVAL_TRUE, &rc);
        return rc;
    }
    return parts(s, v, kinds, *list);
}
