/* SPDX-License-Identifier: MIT */
/* schema_props.c - gathers properties, patternProperties, propertyNames, additionalProperties and
 * required of schemas that must fit at once. */
#include "schema_props.h"

#include <stdlib.h>
#include <string.h>

#include "regex.h"

/* ---- the list ---- */

static int same_key(const void *ctx, int32_t id)
{
    const struct props *p = ctx;
    const struct prop *a = &p->prop[id], *b = &p->prop[p->n];

    return a->key_n == b->key_n && !memcmp(a->key, b->key, a->key_n);
}

/* The number of the property with this key, which is added if it is new -> *i */
static int find_prop(struct schema *s, struct props *p, const char *key, size_t n, size_t *i)
{
    const int32_t fresh = (int32_t)p->n;
    int32_t id;

    TRY(cb_budget_steps(s->budget, 1));
    TRY(cb_budget_grow(s->budget, (void **)&p->prop, &p->cap, p->n + 1, sizeof *p->prop));
    p->prop[fresh] = (struct prop){ .key = key, .key_n = n, .first = -1, .last = -1 };
    TRY(id = cb_ids_find(&p->keys, cb_siphash(&p->keys.key, key, n), same_key, p, fresh));
    p->n += id == fresh;
    *i = (size_t)id;
    return CB_OK;
}

static int add_part(struct schema *s, struct props *p, size_t i, struct sval *v, size_t member)
{
    const int32_t at = (int32_t)p->n_part;

    TRY(cb_budget_grow(s->budget, (void **)&p->part, &p->cap_part, p->n_part + 1, sizeof *p->part));
    p->part[p->n_part++] = (struct prop_part){ v, (int32_t)member, -1 };
    if (p->prop[i].last >= 0)
        p->part[p->prop[i].last].next = at;
    else
        p->prop[i].first = at;
    p->prop[i].last = at;
    return CB_OK;
}

static int add_listed(struct schema *s, struct props *p, struct sval *v, size_t member)
{
    struct sval *list = cb_schema_get(s, v, "properties");
    size_t i;

    if (list && list->kind != SVAL_OBJECT)
        return cb_schema_fail(s, CB_EARG, v, "'properties' must be an object");
    for (struct sval *m = list ? list->first : NULL; m; m = m->next) {
        TRY(find_prop(s, p, m->key, m->key_n, &i));
        TRY(add_part(s, p, i, m, member));
    }
    return CB_OK;
}

/* Draft 3 has "required": true within a property; it says nothing of the object's own. */
static int add_required(struct schema *s, struct props *p, struct sval *v)
{
    struct sval *list = cb_schema_get(s, v, "required");
    size_t i;

    if (list && (list->kind == SVAL_TRUE || list->kind == SVAL_FALSE))
        return CB_OK;
    if (list && list->kind != SVAL_ARRAY)
        return cb_schema_fail(s, CB_EARG, v, "'required' must be a list");
    for (struct sval *m = list ? list->first : NULL; m; m = m->next) {
        if (m->kind != SVAL_STRING)
            return cb_schema_fail(s, CB_EARG, v, "'required' is a list of texts");
        TRY(find_prop(s, p, m->s, m->n, &i));
        p->prop[i].required = 1;
    }
    return CB_OK;
}

/* Keys that propertyNames lists become properties; *listed: it does */
static int add_names(struct schema *s, struct props *p, struct sval *v)
{
    struct sval *names = cb_schema_get(s, v, "propertyNames"), *one, *list, *to;
    size_t i;
    int kinds;

    for (int k = 0; names && names->kind == SVAL_OBJECT && k < 8; k++) {
        TRY(cb_schema_kinds(s, names, &kinds));
        if (!(kinds & KW_REF))
            break;
        TRY(cb_schema_target(s, names, &to));
        names = to;
    }
    one = names ? cb_sdoc_get(&s->doc, names, "const", 5) : NULL;
    list = names ? cb_schema_get(s, names, "enum") : NULL;
    for (struct sval *m = one ? one : list ? list->first : NULL; m; m = one ? NULL : m->next)
        if (m->kind == SVAL_STRING)
            TRY(find_prop(s, p, m->s, m->n, &i));
    p->named |= one || list;
    return CB_OK;
}

static int add_patterns(struct schema *s, struct props *p, struct sval *v, size_t member)
{
    struct sval *list = cb_schema_get(s, v, "patternProperties");

    if (list && list->kind != SVAL_OBJECT)
        return cb_schema_fail(s, CB_EARG, v, "'patternProperties' must be an object");
    for (struct sval *m = list ? list->first : NULL; m; m = m->next) {
        if (p->n_pattern == MOST_PATTERNS)
            return cb_schema_fail(s, CB_EUNSUPPORTED, v, "'patternProperties' has more than %d",
                                  MOST_PATTERNS);
        p->pattern[p->n_pattern].v = m;
        p->pattern[p->n_pattern++].member = (int32_t)member;
    }
    return CB_OK;
}

/* What v says of properties that it does not list; NULL: nothing */
static struct sval *rest_of(const struct schema *s, const struct sval *v)
{
    struct sval *more = cb_schema_get(s, v, "additionalProperties");

    return more ? more : cb_schema_get(s, v, "unevaluatedProperties");
}

int cb_props_open(struct schema *s, const struct schema_set *c, struct props *p)
{
    int open = 0;

    *p = (struct props){ .of = c };
    cb_ids_init(&p->keys);
    for (size_t i = 0; i < c->n; i++) {
        struct sval *v = cb_schema_set_at(s, c, i), *rest = rest_of(s, v);
        TRY(add_listed(s, p, v, i));
        TRY(add_patterns(s, p, v, i));
        open |= rest && rest->kind != SVAL_FALSE;
        if (!rest && !cb_schema_get(s, v, "patternProperties") &&
            !cb_schema_get(s, v, "propertyNames"))
            continue;
        TRY(cb_budget_grow(s->budget, (void **)&p->closing, &p->cap_closing, p->n_closing + 1,
                           sizeof *p->closing));
        p->closing[p->n_closing++] = (int32_t)i;
    }
    /* A schema that says nothing of other properties allows them only if it lists none. */
    p->more = open || p->n_pattern || !p->n;
    for (size_t i = 0; i < c->n; i++) {
        TRY(add_required(s, p, cb_schema_set_at(s, c, i)));
        TRY(add_names(s, p, cb_schema_set_at(s, c, i)));
    }
    p->more &= !p->named;
    return CB_OK;
}

void cb_props_close(struct schema *s, struct props *p)
{
    cb_budget_bytes(s->budget,
                    p->cap * sizeof *p->prop + p->cap_part * sizeof *p->part +
                        p->cap_closing * sizeof *p->closing,
                    0);
    free(p->prop);
    free(p->part);
    free(p->closing);
    cb_ids_free(&p->keys);
}

/* ---- values ---- */

/* 1: the key fits a part of pattern i */
static int key_fits(struct schema *s, const struct props *p, int i, const struct prop *key)
{
    const struct sval *v = p->pattern[i].v;
    struct re x;
    re_id id;
    int rc;

    cb_re_open(&x, s->budget);
    rc = cb_regex(&x, v->key, v->key_n, "patternProperties", 1, &id);
    if (!rc)
        rc = cb_re_fits(&x, id, key->key, key->key_n);
    cb_re_close(&x);
    return rc;
}

static int is_listed_by(const struct props *p, const struct prop *prop, int32_t member)
{
    for (int32_t k = prop->first; k >= 0; k = p->part[k].next)
        if (p->part[k].member == member)
            return 1;
    return 0;
}

/* unevaluatedProperties of a schema that has parts looks at what those list, too. */
static int looks_at_parts(struct schema *s, struct sval *v)
{
    int kinds;

    if (cb_schema_get(s, v, "additionalProperties"))
        return 0;
    TRY(cb_schema_kinds(s, v, &kinds));
    return (kinds & (KW_REF | KW_ALLOF | KW_ANYOF | KW_ONEOF | KW_IF)) != 0;
}

/* What closing member k says of a property; matched: it has a pattern for it or lists it */
static int add_rest(struct schema *s, const struct props *p, int32_t member, int matched,
                    const struct prop *prop, struct schema_set *c)
{
    struct sval *v = cb_schema_set_at(s, p->of, (size_t)member), *rest = rest_of(s, v), *names;
    int parts, fits;

    TRY(parts = looks_at_parts(s, v));
    if (rest && !matched && !(parts && prop && prop->first >= 0))
        TRY(cb_schema_set_add(s, c, rest));
    names = cb_schema_get(s, v, "propertyNames");
    if (names && prop) {
        const struct sval key = { .kind = SVAL_STRING, .id = -1, .s = prop->key, .n = prop->key_n };
        TRY(fits = cb_schema_fits(s, &key, names, 0));
        c->never |= !fits;
    }
    return CB_OK;
}

int cb_props_value(struct schema *s, struct props *p, size_t i, struct schema_set *c)
{
    const struct prop prop = p->prop[i];
    unsigned matched = 0;

    for (int32_t k = prop.first; k >= 0; k = p->part[k].next)
        TRY(cb_schema_set_add(s, c, p->part[k].v));
    for (int k = 0; k < p->n_pattern; k++) {
        int fits;
        TRY(fits = key_fits(s, p, k, &prop));
        matched |= (unsigned)fits << k;
        if (fits)
            TRY(cb_schema_set_add(s, c, p->pattern[k].v));
    }
    for (size_t k = 0; k < p->n_closing; k++) {
        const int32_t member = p->closing[k];
        int is = is_listed_by(p, &prop, member);
        for (int j = 0; j < p->n_pattern; j++)
            is |= p->pattern[j].member == member && matched >> j & 1;
        TRY(add_rest(s, p, member, is, &prop, c));
    }
    if (c->never && prop.required && p->of->n == 1)
        return cb_schema_fail(s, CB_EARG, cb_schema_set_at(s, p->of, 0),
                              "'required' names %.60s, which is not allowed", prop.key);
    return CB_OK;
}

int cb_props_other(struct schema *s, struct props *p, unsigned which, struct schema_set *c)
{
    int open = !p->n_pattern;

    for (int k = 0; k < p->n_pattern; k++)
        if (which >> k & 1)
            TRY(cb_schema_set_add(s, c, p->pattern[k].v));
    for (size_t k = 0; k < p->n_closing; k++) {
        int is = 0;
        for (int j = 0; j < p->n_pattern; j++)
            is |= p->pattern[j].member == p->closing[k] && which >> j & 1;
        open |= rest_of(s, cb_schema_set_at(s, p->of, (size_t)p->closing[k])) != NULL;
        TRY(add_rest(s, p, p->closing[k], is, NULL, c));
    }
    c->never |= !which && !open; /* where patterns are all that is said, others are left out */
    return CB_OK;
}

/* ---- keys ---- */

/* The texts of v's own enum or const */
static re_id named_texts(struct schema *s, struct re *x, const struct sval *v)
{
    const struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5);
    const struct sval *list = cb_schema_get(s, v, "enum");
    re_id out = one || list ? x->none : x->all;

    for (const struct sval *m = one ? one : list ? list->first : NULL; m; m = one ? NULL : m->next)
        if (m->kind == SVAL_STRING)
            out = cb_re_alt(x, (re_id[]){ out, cb_re_text(x, m->s, m->n) }, 2);
    return out;
}

enum { MOST_NESTED = 8 };

/* Names that fit schema v, whose choices may be nested */
static int name_re(struct schema *s, struct re *x, struct sval *v, int depth, re_id *out)
{
    struct schema_set c;
    int kinds, types, rc;

    *out = x->all;
    cb_schema_set_begin(s, &c);
    rc = cb_schema_set_add(s, &c, v);
    cb_schema_set_close(s, &c);
    for (size_t i = 0; !rc && i < c.n; i++) {
        struct sval *at = cb_schema_set_at(s, &c, i), *any = cb_schema_get(s, at, "anyOf");
        re_id choice = x->none, part;
        rc = cb_schema_kinds(s, at, &kinds);
        if (!rc)
            rc = cb_schema_types(s, at, &types);
        c.never |= !rc && !(types & T_STRING);
        any = any ? any : cb_schema_get(s, at, "oneOf");
        if (!rc && (depth == MOST_NESTED || kinds & (KW_IF | KW_DEPEND)))
            rc = cb_schema_fail(s, CB_EUNSUPPORTED, v, "'propertyNames' with such a choice");
        for (struct sval *m = any ? any->first : NULL; !rc && m; m = m->next) {
            rc = name_re(s, x, m, depth + 1, &part);
            choice = rc ? choice : cb_re_alt(x, (re_id[]){ choice, part }, 2);
        }
        *out = cb_re_and2(x, *out, any ? choice : x->all);
        *out = cb_re_and2(x, *out, named_texts(s, x, at));
    }
    if (!rc) {
        re_id part;
        rc = cb_schema_string_re(s, x, &c, &part);
        *out = rc || c.never ? x->none : cb_re_and2(x, *out, part);
    }
    cb_schema_set_free(s, &c);
    return rc;
}

/* What propertyNames of the closing members say */
static int names_re(struct schema *s, struct props *p, struct re *x, re_id *out)
{
    for (size_t k = 0; k < p->n_closing; k++) {
        struct sval *v = cb_schema_set_at(s, p->of, (size_t)p->closing[k]);
        struct sval *names = cb_schema_get(s, v, "propertyNames");
        re_id part = x->all;
        if (names)
            TRY(name_re(s, x, names, 0, &part));
        *out = cb_re_and2(x, *out, part);
    }
    return CB_OK;
}

/* Keys that are not listed, and fit exactly the patterns in `which` */
static int keys_re(struct schema *s, struct props *p, unsigned which, struct re *x, re_id *out)
{
    re_id *list = cb_calloc(p->n + 1, sizeof *list), part;
    int rc = list ? CB_OK : CB_ENOMEM;

    *out = x->all;
    for (size_t i = 0; !rc && i < p->n; i++)
        list[i] = cb_re_text(x, p->prop[i].key, p->prop[i].key_n);
    if (!rc && p->n)
        *out = cb_re_not(x, cb_re_alt(x, list, p->n));
    free(list);
    for (int k = 0; !rc && k < p->n_pattern; k++) {
        const struct sval *v = p->pattern[k].v;
        rc = cb_regex(x, v->key, v->key_n, "patternProperties", 1, &part);
        if (!rc)
            *out = cb_re_and2(x, *out, which >> k & 1 ? part : cb_re_not(x, part));
    }
    return rc ? rc : names_re(s, p, x, out);
}

int cb_props_key(struct schema *s, struct props *p, unsigned which, int *e)
{
    struct re x;
    re_id id;
    int rc, some = 1;

    cb_re_open(&x, s->budget);
    rc = keys_re(s, p, which, &x, &id);
    if (!rc && id == x.all)
        *e = cb_ex_rule(s->r, s->string);
    else if (!rc && id == x.none)
        some = 0;
    else if (!rc)
        rc = cb_schema_quoted(s, &x, id, e);
    cb_re_close(&x);
    return rc ? rc : some;
}
