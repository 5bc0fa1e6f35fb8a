/* SPDX-License-Identifier: MIT */
/* schema_object.c - objects and arrays of a JSON schema. Properties come in the order in which the
 * schema lists them, so that a grammar of n properties has 2 n rules, not n!. */
#include <stdlib.h>
#include <string.h>

#include "schema.h"

static int rule_of(struct schema *s, int x, int *rule)
{
    *rule = cb_rule_new(s->r);
    TRY(cb_rules_check(s->r));
    s->r->rule[*rule].expr = x;
    return CB_OK;
}

static int seq2(struct rules *r, int a, int b)
{
    return cb_schema_seq(r, 2, (int[]){ a, b });
}

/* ", " in front of x */
static int comma(struct schema *s, int x)
{
    return cb_schema_seq(s->r, 3,
                         (int[]){ cb_schema_text(s->r, ","), cb_ex_rule(s->r, s->space), x });
}

static int bracketed(struct schema *s, const char *open, int x, const char *end)
{
    return cb_schema_seq(s->r, 5,
                         (int[]){ cb_schema_text(s->r, open), cb_ex_rule(s->r, s->space), x,
                                  cb_ex_rule(s->r, s->space), cb_schema_text(s->r, end) });
}

/* ---- objects ---- */

/* ": value" behind a key */
static int pair(struct schema *s, int key, json_t *value, const struct where *at, int *rule)
{
    const int blank = cb_ex_repeat(s->r, cb_schema_text(s->r, " "), 0, 1);
    int v;

    TRY(cb_schema_rule(s, value, at, &v));
    return rule_of(
        s,
        cb_schema_seq(s->r, 4,
                      (int[]){ key, cb_schema_text(s->r, ":"), blank, cb_ex_rule(s->r, v) }),
        rule);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A property that is not listed -> *rule, -1: there are none such */
static int extra(struct schema *s, json_t *j, const struct where *at, int *rule)
{
    const struct where in = { at, "additionalProperties", 0, at->depth + 1 };
    json_t *more = json_object_get(j, "additionalProperties"), *v;
    json_t *listed = json_object_get(j, "properties"), *yes = json_true();
    const size_t n = json_object_size(listed);
    const char **key, *k;
    size_t i = 0;
    int rc, other, name;

    *rule = -1;
    if (more ? json_is_false(more) : n > 0)
        return CB_OK;
    if (!n) {
        name = cb_ex_rule(s->r, s->string);
        return pair(s, name, more ? more : yes, &in, rule);
    }
    key = cb_calloc(n, sizeof *key);
    if (!key)
        return CB_ENOMEM;
    json_object_foreach(listed, k, v) key[i++] = k;
    qsort(key, n, sizeof *key, by_bytes);
    rc = cb_schema_other_keys(s, key, n, 0, &other);
    free(key);
    TRY(rc);
    name = cb_schema_seq(
        s->r, 3,
        (int[]){ cb_schema_text(s->r, "\""), cb_ex_rule(s->r, other), cb_schema_text(s->r, "\"") });
    return pair(s, name, more, &in, rule);
}

/* What may follow the first i properties: first if nothing was written yet, later if something was
 */
struct rest {
    int first, later;
};

static int after_all(struct schema *s, int extra_rule, struct rest *out)
{
    struct rules *r = s->r;
    int first, later;

    if (extra_rule < 0) {
        first = cb_ex_empty(r);
        later = cb_ex_empty(r);
        TRY(rule_of(s, later, &out->later));
        return rule_of(s, first, &out->first);
    }
    later = cb_ex_repeat(r, comma(s, cb_ex_rule(r, extra_rule)), 0, -1);
    TRY(rule_of(s, later, &out->later));
    first = seq2(r, cb_ex_rule(r, extra_rule), cb_ex_rule(r, out->later));
    return rule_of(s, cb_ex_repeat(r, first, 0, 1), &out->first);
}

/* Property `key` and what may follow it -> *rest */
static int before(struct schema *s, const char *key, json_t *value, int required,
                  const struct where *at, struct rest *rest)
{
    struct rules *r = s->r;
    const struct rest then = *rest;
    json_t *name = json_string(key);
    int quoted, member, x, rc;

    rc = name ? cb_schema_literal(s, name, &quoted) : CB_ENOMEM;
    json_decref(name);
    TRY(rc);
    TRY(pair(s, quoted, value, at, &member));
    x = comma(s, cb_ex_rule(r, member));
    x = required ? x : cb_ex_repeat(r, x, 0, 1);
    TRY(rule_of(s, seq2(r, x, cb_ex_rule(r, then.later)), &rest->later));
    x = seq2(r, cb_ex_rule(r, member), cb_ex_rule(r, then.later));
    if (!required)
        x = cb_schema_alt(r, 2, (int[]){ x, cb_ex_rule(r, then.first) });
    return rule_of(s, x, &rest->first);
}

/* All properties with those that are required but not listed -> *out, which the caller frees;
 * required: an object with them as keys */
static int all_properties(json_t *j, json_t *required, const struct where *at, json_t **out)
{
    json_t *listed = json_object_get(j, "properties"), *v;
    json_t *more = json_object_get(j, "additionalProperties"),
           *list = json_object_get(j, "required");

    if ((listed && !json_is_object(listed)) || (list && !json_is_array(list)))
        return cb_schema_fail(CB_EARG, at, "'properties' is an object, and 'required' a list");
    *out = listed ? json_copy(listed) : json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *key = json_string_value(json_array_get(list, i));
        if (!key || (!json_object_get(*out, key) && json_is_false(more))) {
            json_decref(*out);
            return cb_schema_fail(CB_EARG, at, "'required' names %.60s, which is not allowed",
                                  key ? key : "something that is no text");
        }
        json_object_set_new(required, key, json_true());
        v = json_object_get(*out, key);
        if (!v)
            json_object_set(*out, key, more ? more : json_true());
    }
    return *out ? CB_OK : cb_fail(CB_ENOMEM, "out of memory: a grammar");
}

static int object(struct schema *s, json_t *j, json_t *required, const struct where *at,
                  struct rest *rest)
{
    const struct where in = { at, "properties", 0, at->depth + 1 };
    json_t *listed = NULL, *with;
    size_t n;
    const char **key, *k;
    json_t *v;
    int more, rc;

    TRY(all_properties(j, required, at, &listed));
    n = json_object_size(listed);
    key = cb_calloc(n + 1, sizeof *key);
    with = json_copy(j);
    rc = key && with && !json_object_set(with, "properties", listed) ? CB_OK : CB_ENOMEM;
    if (!rc && !json_object_get(j, "properties") && !json_object_get(j, "additionalProperties"))
        json_object_set_new(with, "additionalProperties", json_true());
    if (!rc)
        rc = extra(s, with, at, &more);
    if (!rc)
        rc = after_all(s, more, rest);
    n = 0;
    json_object_foreach(listed, k, v) if (!rc) key[n++] = k;
    while (!rc && n-- > 0) {
        const struct where here = { &in, key[n], 0, in.depth + 1 };
        rc = before(s, key[n], json_object_get(listed, key[n]),
                    json_object_get(required, key[n]) != NULL, &here, rest);
    }
    free(key);
    json_decref(with);
    json_decref(listed);
    return rc;
}

int cb_schema_object(struct schema *s, json_t *j, const struct where *at, int *x)
{
    json_t *required = json_object();
    struct rest rest = { 0, 0 };
    int rc;

    if (!json_object_get(j, "properties") && !json_object_get(j, "required") &&
        !json_object_get(j, "additionalProperties")) {
        json_decref(required);
        *x = cb_ex_rule(s->r, s->object);
        return CB_OK;
    }
    rc = required ? object(s, j, required, at, &rest) : CB_ENOMEM;
    json_decref(required);
    if (!rc)
        *x = bracketed(s, "{", cb_ex_rule(s->r, rest.first), "}");
    return rc;
}

/* ---- arrays ---- */

struct array {
    json_t *prefix, *items;
    int n, min, max; /* of the prefix; of all; max -1: no bound */
};

static int read_array(json_t *j, const struct where *at, struct array *a)
{
    json_t *unique = json_object_get(j, "uniqueItems");

    if (unique && !json_is_false(unique))
        return cb_schema_fail(CB_EUNSUPPORTED, at, "'uniqueItems' is not supported");
    a->prefix = json_object_get(j, "prefixItems");
    a->items = json_object_get(j, "items");
    if ((a->prefix && !json_is_array(a->prefix)) || json_is_array(a->items))
        return cb_schema_fail(CB_EARG, at, "'prefixItems' is a list, and 'items' a schema");
    TRY(cb_schema_count(j, "minItems", at, 0, &a->min));
    TRY(cb_schema_count(j, "maxItems", at, -1, &a->max));
    a->n = (int)json_array_size(a->prefix);
    if (a->max >= 0 && a->n > a->max)
        a->n = a->max;
    if (json_is_false(a->items) || (!a->items && a->prefix && a->min <= a->n))
        a->max = a->max < 0 || a->max > a->n ? a->n : a->max;
    if (a->max >= 0 && a->max < a->min)
        return cb_schema_fail(CB_EARG, at, "no number of items is between the bounds");
    return CB_OK;
}

/* Items behind the prefix: from `min` to `max` (-1: any number), each of rule `item` */
static int items(struct schema *s, int item, int min, int max, int is_first)
{
    struct rules *r = s->r;
    int rest;

    if (max == 0)
        return cb_ex_empty(r);
    if (!is_first)
        return cb_ex_repeat(r, comma(s, cb_ex_rule(r, item)), min, max);
    rest = cb_ex_repeat(r, comma(s, cb_ex_rule(r, item)), min > 0 ? min - 1 : 0,
                        max < 0 ? -1 : max - 1);
    rest = seq2(r, cb_ex_rule(r, item), rest);
    return min > 0 ? rest : cb_ex_repeat(r, rest, 0, 1);
}

int cb_schema_array(struct schema *s, json_t *j, const struct where *at, int *x)
{
    const struct where in = { at, "items", 0, at->depth + 1 };
    struct ex_list l = { 0 };
    struct array a;
    int item = s->value, one;

    TRY(read_array(j, at, &a));
    for (int i = 0; i < a.n; i++) {
        const struct where here = { &in, NULL, (size_t)i, in.depth + 1 };
        TRY(s->visit(s, json_array_get(a.prefix, (size_t)i), &here, &one));
        cb_ex_add(s->r, &l, i ? comma(s, one) : one);
    }
    if (a.items && a.max != a.n)
        TRY(cb_schema_rule(s, a.items, &in, &item));
    cb_ex_add(
        s->r, &l,
        items(s, item, a.min > a.n ? a.min - a.n : 0, a.max < 0 ? -1 : a.max - a.n, a.n == 0));
    *x = bracketed(s, "[", cb_ex_seq(s->r, &l), "]");
    return CB_OK;
}
