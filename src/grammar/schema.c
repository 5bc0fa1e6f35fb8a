/* SPDX-License-Identifier: MIT */
/* schema.c - reads a JSON schema: which texts are JSON values that fit it. Some that fit are left
 * out where that makes the grammar simpler (ctxbank-grammar(7) says which), but none that does not
 * fit is let in, except by oneOf, which is read as anyOf. What is not known is refused. */
#include "schema.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "readers.h"

enum {
    MOST_ALL_OF = 1000
}; /* in all: each may wrap the last one, and wraps are freed recursively */

/* ---- keywords ---- */

/* The kinds of all keywords -> *kinds; one that is not known is refused. */
static int check_keywords(json_t *j, const struct where *at, int *kinds)
{
    void *it;

    *kinds = 0;
    for (it = json_object_iter(j); it; it = json_object_iter_next(j, it)) {
        const int kind = cb_schema_keyword(json_object_iter_key(it));
        if (!kind)
            return cb_schema_fail(CB_EUNSUPPORTED, at, "'%.60s' is not supported",
                                  json_object_iter_key(it));
        *kinds |= kind;
    }
    return CB_OK;
}

/* ---- $ref ---- */

/* One step of a JSON pointer, s[len] with ~0 ~1 and %XX, from j; NULL: there is none such */
static json_t *step(json_t *j, const char *s, size_t len, struct buf *key)
{
    cb_buf_clear(key);
    for (size_t i = 0; i < len; i++) {
        uint32_t c = (uint8_t)s[i];
        char byte;
        if (c == '~' && i + 1 < len && (s[i + 1] == '0' || s[i + 1] == '1'))
            c = s[++i] == '0' ? '~' : '/';
        else if (c == '%' && cb_read_hex(s + i + 1, len - i - 1, 2, &c))
            i += 2;
        byte = (char)c;
        cb_buf_add(key, &byte, 1);
    }
    cb_buf_add(key, "", 0);
    if (key->failed)
        return NULL;
    if (json_is_array(j)) {
        char *end;
        const unsigned long i = strtoul(key->s, &end, 10);
        return *end || end == key->s ? NULL : json_array_get(j, i);
    }
    return json_object_get(j, key->s);
}

static int find_ref(const struct schema *s, json_t *ref, const struct where *at, json_t **out)
{
    const char *p = json_string_value(ref);
    struct buf key = { 0 };

    *out = s->doc;
    if (!p)
        return cb_schema_fail(CB_EARG, at, "'$ref' must be a text");
    if (*p != '#' || (p[1] && p[1] != '/'))
        return cb_schema_fail(CB_EUNSUPPORTED, at,
                              "'$ref' to %.60s: only places of this schema, as #/$defs/name", p);
    for (p++; *out && *p == '/';) {
        const size_t len = strcspn(++p, "/");
        *out = step(*out, p, len, &key);
        p += len;
    }
    cb_buf_free(&key);
    return *out ? CB_OK
                : cb_schema_fail(CB_EARG, at, "'$ref': there is no %.60s", json_string_value(ref));
}

struct wanted_target {
    const struct schema *s;
    json_t *j;
};

static int same_target(const void *ctx, int32_t id)
{
    const struct wanted_target *w = ctx;
    return w->s->target[id].j == w->j;
}

static int visit(struct schema *s, json_t *j, const struct where *at, int *x);

/* The rule of a schema that a $ref names: made once, so that a schema may contain itself. */
static int ref_rule(struct schema *s, json_t *j, const struct where *at, int *rule)
{
    const struct wanted_target w = { s, j };
    const int32_t fresh = (int32_t)s->n_target;
    const uint64_t hash = cb_siphash_word(&s->targets.key, (uintptr_t)j);
    const int32_t id = cb_ids_find(&s->targets, hash, same_target, &w, fresh);
    int x;

    TRY(id);
    if (id != fresh) {
        *rule = s->target[id].rule;
        return CB_OK;
    }
    TRY(cb_grow((void **)&s->target, &s->cap_target, s->n_target + 1, sizeof *s->target));
    *rule = cb_rule_new(s->r);
    s->target[s->n_target++] = (struct target){ j, *rule };
    TRY(visit(s, j, at, &x));
    TRY(cb_rules_check(s->r));
    s->r->rule[*rule].expr = x;
    return CB_OK;
}

/* ---- allOf, anyOf ---- */

static json_t *without(json_t *j, const char *name)
{
    json_t *copy = json_copy(j);

    if (copy)
        json_object_del(copy, name);
    return copy;
}

/* Keeps a schema that was made here until the end; owns j. */
static int keep(struct schema *s, json_t *j)
{
    return json_array_append_new(s->kept, j) ? cb_fail(CB_ENOMEM, "out of memory: a grammar")
                                             : CB_OK;
}

/* Follows $ref, for a schema that is merged with another one */
static int resolved(struct schema *s, json_t *j, const struct where *at, json_t **out)
{
    json_t *ref;

    *out = j;
    for (int i = 0; (ref = json_object_get(*out, "$ref")); i++) {
        json_t *rest, *both;
        json_t *target;
        if (i > GRAMMAR_MAX_DEPTH)
            return cb_schema_fail(CB_EARG, at, "'$ref' leads to itself");
        TRY(find_ref(s, ref, at, &target));
        rest = without(*out, "$ref");
        TRY(keep(s, rest));
        TRY(cb_schema_merge(rest, target, at, &both));
        TRY(keep(s, both));
        *out = both;
    }
    return CB_OK;
}

static int merged(struct schema *s, json_t *a, json_t *b, const struct where *at, json_t **out)
{
    json_t *both;

    TRY(resolved(s, a, at, &a));
    TRY(resolved(s, b, at, &b));
    TRY(cb_schema_merge(a, b, at, &both));
    *out = both;
    return keep(s, both);
}

static int all_of(struct schema *s, json_t *j, const struct where *at, int *x)
{
    json_t *list = json_object_get(j, "allOf");
    json_t *sum = without(j, "allOf");

    TRY(keep(s, sum));
    if (!json_array_size(list))
        return cb_schema_fail(CB_EARG, at, "'allOf' must be a list of schemas");
    if (json_array_size(list) > (size_t)(MOST_ALL_OF - s->n_all_of))
        return cb_schema_fail(CB_EUNSUPPORTED, at, "'allOf' has more than %d members in all",
                              MOST_ALL_OF);
    s->n_all_of += (int)json_array_size(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(merged(s, sum, json_array_get(list, i), at, &sum));
    return visit(s, sum, at, x);
}

static int any_of(struct schema *s, json_t *j, const char *name, const struct where *at, int *x)
{
    const struct where in = { at, name, 0, at->depth + 1 };
    json_t *list = json_object_get(j, name);
    json_t *rest = without(j, name);
    struct ex_list l = { 0 };
    int kinds, one;

    TRY(keep(s, rest));
    TRY(check_keywords(rest, at, &kinds));
    if (!json_array_size(list))
        return cb_schema_fail(CB_EARG, at, "'%s' must be a list of schemas", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const struct where here = { &in, NULL, i, in.depth + 1 };
        json_t *branch = json_array_get(list, i);
        if (kinds & ~KW_NOTE)
            TRY(merged(s, rest, branch, &here, &branch));
        TRY(visit(s, branch, &here, &one));
        cb_ex_add(s->r, &l, one);
    }
    *x = cb_ex_alt(s->r, &l);
    return CB_OK;
}

/* ---- types ---- */

static const struct {
    const char *name;
    int kind;
} types[] = {
    { "object", KW_OBJECT }, { "array", KW_ARRAY },
    { "string", KW_STRING }, { "integer", KW_NUMBER },
    { "number", KW_NUMBER }, { "boolean", 0 },
    { "null", 0 },
};
enum { N_TYPE = sizeof types / sizeof *types, T_INTEGER = 3, T_NUMBER = 4 };

static int is_type(const char *name, json_t *v)
{
    return !strcmp(name, "object")    ? json_is_object(v)
           : !strcmp(name, "array")   ? json_is_array(v)
           : !strcmp(name, "string")  ? json_is_string(v)
           : !strcmp(name, "integer") ? json_is_integer(v)
           : !strcmp(name, "number")  ? json_is_number(v)
           : !strcmp(name, "boolean") ? json_is_boolean(v)
                                      : json_is_null(v);
}

static int one_type(struct schema *s, json_t *j, int type, const struct where *at, int *x)
{
    switch (types[type].kind) {
    case KW_OBJECT:
        return cb_schema_object(s, j, at, x);
    case KW_ARRAY:
        return cb_schema_array(s, j, at, x);
    case KW_STRING:
        return cb_schema_string(s, j, at, x);
    case KW_NUMBER:
        return cb_schema_number(s, j, type == T_INTEGER, at, x);
    default:
        break;
    }
    if (!strcmp(types[type].name, "null"))
        *x = cb_schema_text(s->r, "null");
    else
        *x = cb_schema_alt(s->r, 2,
                           (int[]){ cb_schema_text(s->r, "true"), cb_schema_text(s->r, "false") });
    return CB_OK;
}

static int type_named(json_t *name, const struct where *at, int *type)
{
    for (*type = 0; json_is_string(name) && *type < N_TYPE; ++*type)
        if (!strcmp(types[*type].name, json_string_value(name)))
            return CB_OK;
    return cb_schema_fail(CB_EARG, at, "'type' %.40s is not known",
                          json_is_string(name) ? json_string_value(name) : "that is no text");
}

/* Which types a schema allows -> is[N_TYPE]. Without "type" those that its keywords are about */
static int find_types(json_t *j, int kinds, const struct where *at, int is[N_TYPE])
{
    json_t *type = json_object_get(j, "type");
    const size_t n = json_is_array(type) ? json_array_size(type) : 1;

    memset(is, 0, N_TYPE * sizeof *is);
    for (size_t i = 0; type && i < n; i++) {
        int t;
        TRY(type_named(json_is_array(type) ? json_array_get(type, i) : type, at, &t));
        is[t] = 1;
    }
    for (int t = 0; !type && t < N_TYPE; t++)
        is[t] = t != T_INTEGER && (types[t].kind & kinds);
    is[T_INTEGER] &= !is[T_NUMBER];
    return CB_OK;
}

static int typed(struct schema *s, json_t *j, int kinds, const struct where *at, int *x)
{
    struct ex_list l = { 0 };
    int is[N_TYPE], one;

    TRY(find_types(j, kinds, at, is));
    for (int t = 0; t < N_TYPE; t++)
        if (is[t]) {
            TRY(one_type(s, j, t, at, &one));
            cb_ex_add(s->r, &l, one);
        }
    TRY(cb_rules_check(s->r));
    if (!l.n)
        return cb_schema_fail(CB_EARG, at, "'type' allows nothing");
    *x = cb_ex_alt(s->r, &l);
    return CB_OK;
}

/* ---- enum, const ---- */

static int has_type(json_t *j, json_t *value, const struct where *at, int *has)
{
    json_t *type = json_object_get(j, "type");
    int is[N_TYPE];

    *has = !type;
    TRY(find_types(j, 0, at, is));
    for (int t = 0; t < N_TYPE; t++)
        *has |= is[t] && is_type(types[t].name, value);
    return CB_OK;
}

static int values(struct schema *s, json_t *j, int kinds, const struct where *at, int *x)
{
    json_t *one = json_object_get(j, "const"), *list = json_object_get(j, "enum");
    const size_t n = one ? 1 : json_array_size(list);
    struct ex_list l = { 0 };
    int has, e;

    if (kinds & ~(KW_NOTE | KW_ANY) || json_object_get(j, "$ref"))
        return cb_schema_fail(CB_EUNSUPPORTED, at,
                              "'enum' or 'const' beside other keywords than 'type'");
    for (size_t i = 0; i < n; i++) {
        json_t *v = one ? one : json_array_get(list, i);
        TRY(has_type(j, v, at, &has));
        for (size_t k = 0; one && list && has && k <= json_array_size(list); k++)
            if (k == json_array_size(list))
                has = 0;
            else if (json_equal(json_array_get(list, k), v))
                break;
        if (!has)
            continue;
        TRY(cb_schema_literal(s, v, &e));
        cb_ex_add(s->r, &l, e);
    }
    TRY(cb_rules_check(s->r));
    if (!l.n)
        return cb_schema_fail(CB_EARG, at, "'%s' allows nothing", one ? "const" : "enum");
    *x = cb_ex_alt(s->r, &l);
    return CB_OK;
}

/* ---- any schema ---- */

static int boolean(struct schema *s, int allows, int *x)
{
    *x = allows ? cb_ex_rule(s->r, s->value) : cb_ex_chars(s->r, NULL, 0, 0);
    return CB_OK;
}

static int ref(struct schema *s, json_t *j, int others, const struct where *at, int *x)
{
    json_t *target;
    int rule;

    if (others) {
        TRY(resolved(s, j, at, &target));
        return visit(s, target, at, x);
    }
    TRY(find_ref(s, json_object_get(j, "$ref"), at, &target));
    TRY(ref_rule(s, target, at, &rule));
    *x = cb_ex_rule(s->r, rule);
    return CB_OK;
}

static int visit(struct schema *s, json_t *j, const struct where *at, int *x)
{
    const struct where here = { at->up, at->key, at->index, at->depth + 1 };
    int kinds, n_any;

    if (json_is_boolean(j))
        return boolean(s, json_is_true(j), x);
    if (!json_is_object(j))
        return cb_schema_fail(CB_EARG, at, "a schema is an object, true or false");
    if (here.depth > GRAMMAR_MAX_DEPTH)
        return cb_schema_fail(CB_EUNSUPPORTED, at, "nested deeper than %d", GRAMMAR_MAX_DEPTH);
    TRY(check_keywords(j, at, &kinds));
    n_any = !!json_object_get(j, "type") + !!json_object_get(j, "enum") +
            !!json_object_get(j, "const") + !!json_object_get(j, "anyOf") +
            !!json_object_get(j, "oneOf") + !!json_object_get(j, "allOf");
    if (json_object_get(j, "$ref"))
        return ref(s, j, n_any || kinds & ~(KW_NOTE | KW_ANY), &here, x);
    if (json_object_get(j, "allOf"))
        return all_of(s, j, &here, x);
    if (json_object_get(j, "anyOf"))
        return any_of(s, j, "anyOf", &here, x);
    if (json_object_get(j, "oneOf"))
        return any_of(s, j, "oneOf", &here, x);
    if (json_object_get(j, "const") || json_object_get(j, "enum"))
        return values(s, j, kinds, &here, x);
    return kinds & ~KW_NOTE ? typed(s, j, kinds, &here, x) : boolean(s, 1, x);
}

/* ---- the frame ---- */

/* Space and numbers are bounded, or a model could go on with them for ever. \u0000 and halves of
 * surrogate pairs are left out, as many readers of JSON refuse them. */
static const char frame[] =
    "space ::= (\" \" | \"\\n\" [ \\t]{0,20})?\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" space (member (\",\" space member)* space)? \"}\"\n"
    "member ::= string \":\" \" \"? value\n"
    "array ::= \"[\" space (value (\",\" space value)* space)? \"]\"\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | escape)* \"\\\"\"\n"
    "hex ::= [0-9A-Fa-f]\n"
    "escape ::= \"\\\\\" ([\"\\\\/bfnrt] | \"u\" code)\n"
    "code ::= [1-9A-CEFa-cef] hex hex hex | [Dd] [0-7] hex hex | \"0\" [1-9A-Fa-f] hex hex |\n"
    "  \"00\" [1-9A-Fa-f] hex | \"000\" [1-9A-Fa-f] |\n"
    "  [Dd] [89ABab] hex hex \"\\\\u\" [Dd] [C-Fc-f] hex hex\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,17})\n"
    "number ::= integer (\".\" [0-9]{1,20})? ([Ee] [-+]? [0-9]{1,2})?\n";

static int name(struct schema *s, const char *text)
{
    return cb_rule_named(s->r, text, strlen(text));
}

static int read_frame(struct schema *s)
{
    TRY(cb_read_gbnf_rules(frame, sizeof frame - 1, s->r));
    s->space = name(s, "space");
    s->value = name(s, "value");
    s->object = name(s, "object");
    s->array = name(s, "array");
    s->string = name(s, "string");
    s->escape = name(s, "escape");
    s->integer = name(s, "integer");
    s->number = name(s, "number");
    return cb_rules_check(s->r);
}

int cb_read_json_schema(const char *text, size_t len, struct rules *r, int *root)
{
    struct schema s = { .r = r, .visit = visit };
    const struct where top = { 0 };
    json_error_t e;
    int rc;

    s.doc = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    if (!s.doc)
        return cb_fail(CB_EARG, "schema: line %d, column %d: %s", e.line, e.column, e.text);
    s.kept = json_array();
    cb_ids_init(&s.targets);
    rc = s.kept ? read_frame(&s) : cb_fail(CB_ENOMEM, "out of memory: a grammar");
    if (!rc)
        rc = ref_rule(&s, s.doc, &top, root);
    json_decref(s.kept);
    json_decref(s.doc);
    cb_ids_free(&s.targets);
    free(s.target);
    return rc;
}
