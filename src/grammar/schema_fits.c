/* SPDX-License-Identifier: MIT */
/* schema_fits.c - whether a value that a schema names fits another schema. */
#include <stdio.h>
#include <string.h>

#include "decimal.h"
#include "regex.h"
#include "schema.h"

enum { MOST_NESTED = 200 };

static int fits(struct schema *s, const struct sval *value, struct sval *v, int depth);

/* How many of the list's schemas the value fits */
static int count(struct schema *s, const struct sval *value, const struct sval *list, int depth)
{
    int n = 0, one;

    for (struct sval *m = list->first; m; m = m->next) {
        TRY(one = fits(s, value, m, depth + 1));
        n += one;
    }
    return n;
}

static int fits_choices(struct schema *s, const struct sval *value, struct sval *v, int depth)
{
    struct sval *all = cb_schema_get(s, v, "allOf"), *any = cb_schema_get(s, v, "anyOf");
    struct sval *one = cb_schema_get(s, v, "oneOf"), *no = cb_schema_get(s, v, "not");
    struct sval *test = cb_schema_get(s, v, "if"), *then;
    int n, ok = 1;

    if (all) {
        TRY(n = count(s, value, all, depth));
        ok &= (size_t)n == all->n;
    }
    if (any) {
        TRY(n = count(s, value, any, depth));
        ok &= n > 0;
    }
    if (one) {
        TRY(n = count(s, value, one, depth));
        ok &= n == 1;
    }
    if (no) {
        TRY(n = fits(s, value, no, depth + 1));
        ok &= !n;
    }
    if (test) {
        TRY(n = fits(s, value, test, depth + 1));
        then = cb_schema_get(s, v, n ? "then" : "else");
        if (then)
            TRY(n = fits(s, value, then, depth + 1));
        ok &= !then || n;
    }
    return ok;
}

static int fits_values(struct schema *s, const struct sval *value, struct sval *v)
{
    const struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5);
    const struct sval *list = cb_schema_get(s, v, "enum"), *m;

    if (one && !cb_sdoc_equal(&s->doc, one, value))
        return 0;
    for (m = list ? list->first : NULL; m && !cb_sdoc_equal(&s->doc, m, value); m = m->next)
        ;
    return !list || m;
}

/* ---- strings and numbers ---- */

/* A set of v alone, of which string and number are asked */
static int fits_string(struct schema *s, const struct sval *value, struct sval *v)
{
    struct member m = { v->same ? v->same->id : v->id, KW_DONE };
    const struct schema_set c = { .m = &m, .n = 1 };
    struct re x;
    re_id id;
    int rc;

    cb_re_open(&x, s->budget);
    rc = cb_schema_string_re(s, &x, &c, &id);
    if (!rc)
        rc = cb_re_fits(&x, id, value->s, value->n);
    cb_re_close(&x);
    return rc;
}

static int bound(const struct schema *s, const struct sval *v, const char *name, struct decimal *d)
{
    const struct sval *b = cb_schema_get(s, v, name);

    return b && b->kind == SVAL_NUMBER && cb_decimal_read(b->s, d);
}

static int fits_number(struct schema *s, const struct sval *value, struct sval *v)
{
    const struct sval *step = cb_schema_get(s, v, "multipleOf");
    struct decimal x, b;

    if (!cb_decimal_read(value->s, &x))
        return cb_schema_fail(s, CB_EUNSUPPORTED, value, "a number of more than %d digits",
                              DECIMAL_DIGITS);
    if (bound(s, v, "minimum", &b) && cb_decimal_compare(&x, &b) < 0)
        return 0;
    if (bound(s, v, "maximum", &b) && cb_decimal_compare(&x, &b) > 0)
        return 0;
    if (bound(s, v, "exclusiveMinimum", &b) && cb_decimal_compare(&x, &b) <= 0)
        return 0;
    if (bound(s, v, "exclusiveMaximum", &b) && cb_decimal_compare(&x, &b) >= 0)
        return 0;
    return !step || step->kind != SVAL_NUMBER || !cb_decimal_read(step->s, &b) ||
           cb_decimal_is_multiple(&x, &b);
}

/* ---- arrays and objects ---- */

static int within(const struct schema *s, const struct sval *v, const char *least, const char *most,
                  size_t n)
{
    const struct sval *a = cb_schema_get(s, v, least), *b = cb_schema_get(s, v, most);
    char text[24];
    struct decimal x, d;

    snprintf(text, sizeof text, "%zu", n);
    if (!cb_decimal_read(text, &x))
        return 0;
    return !(a && cb_decimal_read(a->s, &d) && cb_decimal_compare(&x, &d) < 0) &&
           !(b && cb_decimal_read(b->s, &d) && cb_decimal_compare(&x, &d) > 0);
}

static int is_true(const struct sval *v)
{
    return v && v->kind == SVAL_TRUE;
}

static int fits_array(struct schema *s, const struct sval *value, struct sval *v, int depth)
{
    struct sval *first = cb_schema_get(s, v, "prefixItems"), *items = cb_schema_get(s, v, "items");
    struct sval *contains = cb_schema_get(s, v, "contains");
    int n = 0, one;

    if (items && items->kind == SVAL_ARRAY) {
        first = items;
        items = cb_schema_get(s, v, "additionalItems");
    }
    if (!within(s, v, "minItems", "maxItems", value->n))
        return 0;
    first = first ? first->first : NULL;
    for (const struct sval *m = value->first; m; m = m->next) {
        struct sval *of = first ? first : items;
        first = first ? first->next : NULL;
        TRY(one = of ? fits(s, m, of, depth + 1) : 1);
        if (!one)
            return 0;
        for (const struct sval *k = m->next; k && is_true(cb_schema_get(s, v, "uniqueItems"));
             k = k->next)
            if (cb_sdoc_equal(&s->doc, m, k))
                return 0;
        TRY(one = contains ? fits(s, m, contains, depth + 1) : 0);
        n += one;
    }
    if (!contains)
        return 1;
    return (cb_schema_get(s, v, "minContains") || n > 0) &&
           within(s, v, "minContains", "maxContains", (size_t)n);
}

/* 1: pattern m's name fits a part of the key */
static int key_fits(struct schema *s, const struct sval *m, const struct sval *key)
{
    struct re x;
    re_id id;
    int rc;

    cb_re_open(&x, s->budget);
    rc = cb_regex(&x, m->key, m->key_n, "patternProperties", 1, &id);
    if (!rc)
        rc = cb_re_fits(&x, id, key->key, key->key_n);
    cb_re_close(&x);
    return rc;
}

static int fits_member(struct schema *s, const struct sval *m, struct sval *v, int depth)
{
    struct sval *named = cb_schema_get(s, v, "properties"), *more;
    struct sval *patterns = cb_schema_get(s, v, "patternProperties");
    struct sval *names = cb_schema_get(s, v, "propertyNames");
    struct sval *p = cb_sdoc_get(&s->doc, named, m->key, m->key_n);
    const struct sval key = { .kind = SVAL_STRING, .id = -1, .s = m->key, .n = m->key_n };
    int known = p != NULL, ok = 1;

    TRY(ok = p ? fits(s, m, p, depth + 1) : 1);
    for (p = patterns ? patterns->first : NULL; ok && p; p = p->next) {
        int is;
        TRY(is = key_fits(s, p, m));
        known |= is;
        if (is)
            TRY(ok = fits(s, m, p, depth + 1));
    }
    more = cb_schema_get(s, v, "additionalProperties");
    if (ok && !known && more)
        TRY(ok = fits(s, m, more, depth + 1));
    if (ok && names)
        TRY(ok = fits(s, &key, names, depth + 1));
    return ok;
}

static int fits_object(struct schema *s, const struct sval *value, struct sval *v, int depth)
{
    const struct sval *required = cb_schema_get(s, v, "required");
    int ok = within(s, v, "minProperties", "maxProperties", value->n);

    for (const struct sval *m = required && required->kind == SVAL_ARRAY ? required->first : NULL;
         ok && m; m = m->next)
        ok = cb_sdoc_get(&s->doc, value, m->s, m->n) != NULL;
    for (const struct sval *m = value->first; ok > 0 && m; m = m->next)
        ok = fits_member(s, m, v, depth);
    return ok;
}

static int fits_type(struct schema *s, const struct sval *value, struct sval *v, int depth)
{
    const int type = cb_schema_type_of(value);
    int types, kinds;

    TRY(cb_schema_types(s, v, &types));
    if (!(types & type))
        return 0;
    TRY(cb_schema_kinds(s, v, &kinds));
    switch (type) {
    case T_STRING:
        return kinds & (KW_STRING | KW_FORMAT) ? fits_string(s, value, v) : 1;
    case T_INTEGER:
    case T_FRACTION:
        return fits_number(s, value, v);
    case T_ARRAY:
        return fits_array(s, value, v, depth);
    case T_OBJECT:
        return fits_object(s, value, v, depth);
    default:
        return 1;
    }
}

/* named: the value is of v's enum */
static int fits_but(struct schema *s, const struct sval *value, struct sval *v, int named,
                    int depth)
{
    struct sval *to;
    int kinds, ok;

    if (v->kind != SVAL_OBJECT)
        return v->kind == SVAL_TRUE;
    if (depth > MOST_NESTED)
        return cb_schema_fail(s, CB_EUNSUPPORTED, v, "schemas are nested deeper than %d",
                              MOST_NESTED);
    TRY(cb_budget_steps(s->budget, 1));
    TRY(cb_schema_kinds(s, v, &kinds));
    if (kinds & KW_DEPEND)
        return cb_schema_fail(s, CB_EUNSUPPORTED, v, "dependencies beside 'enum' or 'const'");
    if (kinds & KW_NULLABLE && value->kind == SVAL_NULL)
        return 1;
    ok = named || fits_values(s, value, v);
    if (ok)
        TRY(ok = fits_type(s, value, v, depth));
    if (ok)
        TRY(ok = fits_choices(s, value, v, depth));
    if (ok && kinds & KW_REF) {
        TRY(cb_schema_target(s, v, &to));
        ok = fits(s, value, to, depth + 1);
    }
    return ok;
}

static int fits(struct schema *s, const struct sval *value, struct sval *v, int depth)
{
    return fits_but(s, value, v, 0, depth);
}

int cb_schema_fits(struct schema *s, const struct sval *value, struct sval *v, int named)
{
    return fits_but(s, value, v, named, 0);
}
