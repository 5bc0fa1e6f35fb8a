/* SPDX-License-Identifier: MIT */
/* schema_choice.c - keywords that leave a choice: anyOf, oneOf, if, dependencies, nullable, and
 * what `not` comes to. Each alternative is the set again, with one schema more. */
#include <string.h>

#include "schema.h"

/* The set without the choice `done` of its member i, and with `more` (NULL: nothing) -> *rule.
 * alone: without member i */
static int branch(struct schema *s, const struct schema_set *c, size_t i, int done,
                  struct sval *more, int alone, int *rule)
{
    struct schema_set b;
    int rc = CB_OK;

    cb_schema_set_begin(s, &b);
    for (size_t k = 0; !rc && k < c->n; k++)
        if (k != i)
            rc = cb_schema_set_put(s, &b, c->m[k]);
    if (!rc && !alone)
        rc = cb_schema_set_again(s, &b, c->m[i], done);
    if (!rc && more)
        rc = cb_schema_set_add(s, &b, more);
    if (!rc)
        return s->rule(s, &b, rule);
    cb_schema_set_free(s, &b);
    return rc;
}

/* A branch for each member of `list` -> *x */
static int branches(struct schema *s, const struct schema_set *c, size_t i, int done,
                    struct sval *list, int *x)
{
    struct ex_list l = { 0 };
    int rule;

    for (struct sval *m = list->first; m; m = m->next) {
        TRY(branch(s, c, i, done, m, 0, &rule));
        cb_ex_add(s->r, &l, cb_ex_rule(s->r, rule));
    }
    *x = l.n ? cb_ex_alt(s->r, &l) : cb_ex_chars(s->r, NULL, 0, 0);
    return cb_rules_check(s->r);
}

/* The same without an alternative */
static int just(struct schema *s, const struct schema_set *c, size_t i, int done, struct sval *more,
                int *x)
{
    int rule;

    TRY(branch(s, c, i, done, more, 0, &rule));
    *x = cb_ex_rule(s->r, rule);
    return CB_OK;
}

/* ---- oneOf ---- */

/* Values that a schema names for property `key`, which it requires; NULL: not known */
static struct sval *fixed(const struct schema *s, const struct sval *v, const struct sval *key)
{
    const struct sval *required = cb_schema_get(s, v, "required");
    struct sval *p = cb_sdoc_get(&s->doc, cb_schema_get(s, v, "properties"), key->key, key->key_n);
    struct sval *named = p ? cb_sdoc_get(&s->doc, p, "const", 5) : NULL;

    for (const struct sval *m = required ? required->first : NULL; m; m = m->next)
        if (m->kind == SVAL_STRING && m->n == key->key_n && !memcmp(m->s, key->key, m->n))
            return named ? named : p ? cb_schema_get(s, p, "enum") : NULL;
    return NULL;
}

static int is_enum(const struct sval *v)
{
    return v->key && !strcmp(v->key, "enum") && v->kind == SVAL_ARRAY;
}

static int apart(const struct schema *s, const struct sval *a, const struct sval *b)
{
    const int list_a = is_enum(a), list_b = is_enum(b);

    for (const struct sval *x = list_a ? a->first : a; x; x = list_a ? x->next : NULL)
        for (const struct sval *y = list_b ? b->first : b; y; y = list_b ? y->next : NULL)
            if (cb_sdoc_equal(&s->doc, x, y))
                return 0;
    return 1;
}

static int own_values(struct schema *s, struct sval *v, struct sval **out)
{
    *out = cb_sdoc_get(&s->doc, v, "const", 5);
    if (!*out)
        *out = cb_schema_get(s, v, "enum");
    return *out != NULL;
}

/* 1: no value fits both: their types, a property's values, or their own values differ */
static int disjoint(struct schema *s, struct sval *a, struct sval *b)
{
    struct sval *props, *x, *y;
    int types_a, types_b, kinds;

    for (int i = 0; i < 8; i++) {
        struct sval **v = i % 2 ? &b : &a;
        TRY(cb_schema_kinds(s, *v, &kinds));
        if (kinds & KW_REF)
            TRY(cb_schema_target(s, *v, v));
    }
    TRY(cb_schema_types(s, a, &types_a));
    TRY(cb_schema_types(s, b, &types_b));
    if (!(types_a & types_b))
        return 1;
    if (own_values(s, a, &x) && own_values(s, b, &y))
        return apart(s, x, y);
    if (types_a != T_OBJECT || types_b != T_OBJECT)
        return 0;
    props = cb_schema_get(s, a, "properties");
    for (struct sval *m = props ? props->first : NULL; m; m = m->next) {
        x = fixed(s, a, m);
        y = x ? fixed(s, b, m) : NULL;
        TRY(cb_budget_steps(s->budget, 1));
        if (x && y && apart(s, x, y))
            return 1;
    }
    return 0;
}

enum { MOST_COMPARED = 60 };

static int check_one_of(struct schema *s, struct sval *v, struct sval *list)
{
    int apart_all = list->n <= MOST_COMPARED;

    for (struct sval *a = list->first; apart_all && a; a = a->next)
        for (struct sval *b = a->next; apart_all && b; b = b->next)
            TRY(apart_all = disjoint(s, a, b));
    if (!apart_all)
        cb_schema_note(s, v, "'oneOf' was read as anyOf: a value may fit more than one of it");
    return CB_OK;
}

static int list_choice(struct schema *s, const struct schema_set *c, size_t i, int done, int *x)
{
    struct sval *v = cb_schema_set_at(s, c, i);
    const char *name = done == KW_ANYOF ? "anyOf" : "oneOf";
    struct sval *list = cb_schema_get(s, v, name);

    if (list->kind != SVAL_ARRAY || !list->n)
        return cb_schema_fail(s, CB_EARG, v, "'%s' must be a list of schemas", name);
    if (done == KW_ONEOF)
        TRY(check_one_of(s, v, list));
    return branches(s, c, i, done, list, x);
}

/* ---- dependencies ---- */

/* {"properties": {KEY: false}} -> a new member of `up` */
static int without(struct schema *s, struct sval *up, const char *key)
{
    struct sval *v, *p = NULL;
    int rc;

    v = cb_sdoc_add(&s->doc, up, NULL, SVAL_OBJECT, &rc);
    p = v ? cb_sdoc_add(&s->doc, v, "properties", SVAL_OBJECT, &rc) : NULL;
    if (p)
        cb_sdoc_add(&s->doc, p, key, SVAL_FALSE, &rc);
    return rc;
}

/* Members of `from`, a keyword's object, each as anyOf in `all`, which is a list of schemas */
static int add_dependencies(struct schema *s, struct sval *from, struct sval *all)
{
    for (struct sval *m = from ? from->first : NULL; m; m = m->next) {
        struct sval *v, *any, *one;
        int rc;
        v = cb_sdoc_add(&s->doc, all, NULL, SVAL_OBJECT, &rc);
        any = v ? cb_sdoc_add(&s->doc, v, "anyOf", SVAL_ARRAY, &rc) : NULL;
        if (!any)
            return rc;
        TRY(without(s, any, m->key));
        if (m->kind == SVAL_ARRAY) {
            one = cb_sdoc_add(&s->doc, any, NULL, SVAL_OBJECT, &rc);
            if (one)
                cb_sdoc_link(&s->doc, one, "required", m, &rc);
        } else {
            cb_sdoc_link(&s->doc, any, NULL, m, &rc);
        }
        TRY(rc);
    }
    return CB_OK;
}

static int dependencies(struct schema *s, const struct schema_set *c, size_t i, int *x)
{
    static const char *const names[] = { "dependentRequired", "dependentSchemas", "dependencies" };
    struct sval *v = cb_schema_set_at(s, c, i), *more, *all;
    int rc;

    more = cb_sdoc_add(&s->doc, NULL, NULL, SVAL_OBJECT, &rc);
    all = more ? cb_sdoc_add(&s->doc, more, "allOf", SVAL_ARRAY, &rc) : NULL;
    if (!all)
        return rc;
    for (int k = 0; k < 3; k++) {
        struct sval *from = cb_schema_get(s, v, names[k]);
        if (from && from->kind != SVAL_OBJECT)
            return cb_schema_fail(s, CB_EARG, v, "'%s' must be an object", names[k]);
        TRY(add_dependencies(s, from, all));
    }
    return just(s, c, i, KW_DEPEND, all->n ? more : NULL, x);
}

/* ---- if ---- */

static int conditions(struct schema *s, const struct schema_set *c, size_t i, int *x)
{
    struct sval *v = cb_schema_set_at(s, c, i), *test = cb_schema_get(s, v, "if");
    struct sval *yes = cb_schema_get(s, v, "then"), *no = cb_schema_get(s, v, "else");
    struct sval *list, *all, *not ;
    int rc;

    if (!test || (!yes && !no))
        return just(s, c, i, KW_IF, NULL, x);
    list = cb_sdoc_add(&s->doc, NULL, NULL, SVAL_ARRAY, &rc);
    for (int k = 0; list && !rc && k < 2; k++) {
        struct sval *both = cb_sdoc_add(&s->doc, list, NULL, SVAL_OBJECT, &rc);
        struct sval *then = k ? no : yes;
        all = both ? cb_sdoc_add(&s->doc, both, "allOf", SVAL_ARRAY, &rc) : NULL;
        if (all && k) {
            not = cb_sdoc_add(&s->doc, all, NULL, SVAL_OBJECT, &rc);
            if (not )
                cb_sdoc_link(&s->doc, not, "not", test, &rc);
        } else if (all) {
            cb_sdoc_link(&s->doc, all, NULL, test, &rc);
        }
        if (!rc && then)
            cb_sdoc_link(&s->doc, all, NULL, then, &rc);
    }
    return rc ? rc : branches(s, c, i, KW_IF, list, x);
}

/* ---- which choice comes first ---- */

static int null_or(struct schema *s, const struct schema_set *c, size_t i, int *x)
{
    struct sval *null;
    int rc, a, b;

    null = cb_sdoc_add(&s->doc, NULL, NULL, SVAL_OBJECT, &rc);
    if (null) {
        struct sval *type = cb_sdoc_add(&s->doc, null, "type", SVAL_STRING, &rc);
        if (type) {
            type->s = "null";
            type->n = 4;
        }
    }
    TRY(rc);
    TRY(branch(s, c, i, KW_NULLABLE, NULL, 0, &a));
    TRY(branch(s, c, i, 0, null, 1, &b));
    *x = cb_schema_alt(s->r, 2, (int[]){ cb_ex_rule(s->r, a), cb_ex_rule(s->r, b) });
    return CB_OK;
}

static int denied(struct schema *s, const struct schema_set *c, size_t i, int *x, int *found)
{
    struct sval *no = cb_schema_get(s, cb_schema_set_at(s, c, i), "not"), *list = NULL;

    TRY(cb_schema_not(s, no, &list));
    *found = list != NULL;
    return list ? branches(s, c, i, KW_NOT, list, x) : CB_OK;
}

int cb_schema_choices(struct schema *s, const struct schema_set *c, int *x, int *found)
{
    static const int order[] = { KW_NULLABLE, KW_DEPEND, KW_IF, KW_NOT, KW_ANYOF, KW_ONEOF };

    *found = 0;
    for (int k = 0; k < 6; k++)
        for (size_t i = 0; i < c->n; i++) {
            int kinds, rc = CB_OK;
            TRY(cb_schema_kinds(s, cb_schema_set_at(s, c, i), &kinds));
            if (!(kinds & ~c->m[i].done & order[k]))
                continue;
            *found = 1;
            if (order[k] == KW_NULLABLE)
                rc = null_or(s, c, i, x);
            else if (order[k] == KW_DEPEND)
                rc = dependencies(s, c, i, x);
            else if (order[k] == KW_IF)
                rc = conditions(s, c, i, x);
            else if (order[k] == KW_NOT)
                rc = denied(s, c, i, x, found);
            else
                rc = list_choice(s, c, i, order[k], x);
            if (rc || *found)
                return rc;
        }
    return CB_OK;
}
