/* SPDX-License-Identifier: MIT */
/* schema_merge.c - one schema for texts that fit two: allOf, and keywords beside anyOf or $ref. */
#include <string.h>

#include "schema.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory: a grammar");
}

/* A copy of a with b's members; those that are in both fit both. */
static int properties(json_t *a, json_t *b, json_t **out)
{
    const char *key;
    json_t *v;

    *out = json_copy(a);
    json_object_foreach(b, key, v)
    {
        json_t *old = json_object_get(*out, key);
        json_t *both = old ? json_pack("{s:[O,O]}", "allOf", old, v) : json_incref(v);
        if (json_object_set_new(*out, key, both)) {
            json_decref(*out);
            return no_memory();
        }
    }
    return *out ? CB_OK : no_memory();
}

static int has(json_t *list, json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), v))
            return 1;
    return 0;
}

/* The members of a that are in b, or with `all` those of a and of b */
static int lists(json_t *a, json_t *b, int all, json_t **out)
{
    json_t *x = json_is_array(a) ? json_incref(a) : json_pack("[O]", a);
    json_t *y = json_is_array(b) ? json_incref(b) : json_pack("[O]", b);
    int rc = 0;

    *out = json_array();
    for (size_t i = 0; i < json_array_size(x); i++)
        if (all || has(y, json_array_get(x, i)))
            rc |= json_array_append(*out, json_array_get(x, i));
    for (size_t i = 0; all && i < json_array_size(y); i++)
        if (!has(*out, json_array_get(y, i)))
            rc |= json_array_append(*out, json_array_get(y, i));
    rc |= !x || !y || !*out;
    json_decref(x);
    json_decref(y);
    if (!rc)
        return CB_OK;
    json_decref(*out);
    return no_memory();
}

static int is_one_of(const char *key, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(key, *list))
            return 1;
    return 0;
}

/* Keyword `key` of both, with the values a and b -> *out */
static int keyword(const char *key, json_t *a, json_t *b, const struct where *at, json_t **out)
{
    static const char *const largest[] = { "minimum", "exclusiveMinimum", "minLength", "minItems",
                                           NULL };
    static const char *const smallest[] = { "maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                            NULL };
    const int numbers = json_is_number(a) && json_is_number(b);
    const double x = json_number_value(a), y = json_number_value(b);

    if (!strcmp(key, "properties") && json_is_object(a) && json_is_object(b))
        return properties(a, b, out);
    if (!strcmp(key, "required") || !strcmp(key, "allOf"))
        return lists(a, b, 1, out);
    if (!strcmp(key, "type") || !strcmp(key, "enum"))
        return lists(a, b, 0, out);
    if (cb_schema_keyword(key) == KW_NOTE || json_equal(a, b))
        *out = json_incref(a);
    else if (numbers && is_one_of(key, largest))
        *out = json_incref(x > y ? a : b);
    else if (numbers && is_one_of(key, smallest))
        *out = json_incref(x < y ? a : b);
    else if (!strcmp(key, "items") || !strcmp(key, "additionalProperties"))
        *out = json_pack("{s:[O,O]}", "allOf", a, b);
    else
        return cb_schema_fail(CB_EUNSUPPORTED, at, "'%.60s' in two schemas that both must fit",
                              key);
    return *out ? CB_OK : no_memory();
}

/* Does a forbid properties that b names? What is left out of both would then be let in. */
static int forbids(json_t *a, json_t *b)
{
    json_t *more = json_object_get(a, "additionalProperties");
    json_t *named = json_object_get(a, "properties"), *v;
    const char *key;

    if (!more || json_is_true(more))
        return 0;
    json_object_foreach(json_object_get(b, "properties"), key,
                        v) if (!json_object_get(named, key)) return 1;
    return 0;
}

int cb_schema_merge(json_t *a, json_t *b, const struct where *at, json_t **out)
{
    const char *key;
    json_t *v, *both;

    if (json_is_boolean(a) || json_is_boolean(b)) {
        *out = json_incref(json_is_true(a) || json_is_false(b) ? b : a);
        return CB_OK;
    }
    if (!json_is_object(a) || !json_is_object(b))
        return cb_schema_fail(CB_EARG, at, "a schema is an object, true or false");
    if (forbids(a, b) || forbids(b, a))
        return cb_schema_fail(CB_EUNSUPPORTED, at,
                              "'additionalProperties' beside a schema with other properties");
    *out = json_copy(a);
    json_object_foreach(b, key, v)
    {
        json_t *old = json_object_get(*out, key);
        int rc = CB_OK;
        if (old)
            rc = keyword(key, old, v, at, &both);
        else
            both = json_incref(v);
        if (!rc && json_object_set_new(*out, key, both))
            rc = no_memory();
        if (rc) {
            json_decref(*out);
            return rc;
        }
    }
    return *out ? CB_OK : no_memory();
}
