/* SPDX-License-Identifier: MIT */
/* schema.c - reads a JSON schema: which texts are JSON values that fit it. Some that fit are left
 * out where that makes the grammar simpler (ctxbank-grammar(7) says which), but none that does not
 * fit is let in without a note. A constraint that is not known is refused. */
#include "schema.h"

#include <stdlib.h>
#include <string.h>

#include "readers.h"

/* ---- types ---- */

static int by_keywords(int kinds)
{
    return (kinds & KW_OBJECT ? T_OBJECT : 0) | (kinds & KW_ARRAY ? T_ARRAY : 0) |
           (kinds & KW_STRING ? T_STRING : 0) | (kinds & KW_NUMBER ? T_NUMBER : 0);
}

/* Types that v's "not" leaves; the other parts of "not" are the strings' and the values' */
static int not_types(struct schema *s, struct sval *v, int *out)
{
    struct sval *no = cb_schema_get(s, v, "not");
    int kinds, named;

    *out = T_ALL;
    if (!no || no->kind != SVAL_OBJECT)
        return CB_OK;
    TRY(cb_schema_kinds(s, no, &kinds));
    TRY(cb_schema_types(s, no, &named));
    if (!(kinds & ~(KW_NOTE | KW_TYPE)))
        *out = ~named & T_ALL;
    else if (kinds & (KW_STRING | KW_FORMAT) && !(kinds & KW_TYPE))
        *out = T_STRING; /* other values fit what says nothing of them */
    return CB_OK;
}

/* Types of the values that fit all of the set; without "type", those that its keywords are about */
static int find_types(struct schema *s, const struct schema_set *c, int *out)
{
    int all = 0, kinds, one;

    *out = T_ALL;
    for (size_t i = 0; i < c->n; i++) {
        struct sval *v = cb_schema_set_at(s, c, i);
        TRY(cb_schema_kinds(s, v, &kinds));
        all |= kinds;
        TRY(cb_schema_types(s, v, &one));
        *out &= one;
        if (kinds & KW_NOT) {
            TRY(not_types(s, v, &one));
            *out &= one;
        }
    }
    if (!(all & (KW_TYPE | KW_VALUES)) && by_keywords(all))
        *out &= by_keywords(all);
    else if (!(all & (KW_TYPE | KW_VALUES)) && all & KW_FORMAT)
        *out &= T_STRING;
    return CB_OK;
}

/* null, or true and false, as far as they fit */
static int words(struct schema *s, const struct schema_set *c, int type, int *x)
{
    struct ex_list l = { 0 };

    for (int kind = SVAL_NULL; kind <= SVAL_TRUE; kind++) {
        struct sval value = { .kind = (enum sval_kind)kind, .id = -1, .s = "" };
        int fits = cb_schema_type_of(&value) == type;
        for (size_t i = 0; fits && i < c->n; i++)
            TRY(fits = cb_schema_fits(s, &value, cb_schema_set_at(s, c, i), 0));
        if (fits)
            cb_ex_add(s->r, &l,
                      cb_schema_text(s->r, kind == SVAL_NULL   ? "null"
                                           : kind == SVAL_TRUE ? "true"
                                                               : "false"));
    }
    *x = l.n ? cb_ex_alt(s->r, &l) : cb_ex_chars(s->r, NULL, 0, 0);
    return CB_OK;
}

static int typed(struct schema *s, const struct schema_set *c, int t, int *x)
{
    struct ex_list l = { 0 };
    int one = 0, rc = CB_OK;

    for (int bit = 1; !rc && bit <= T_NULL; bit <<= 1) {
        if (!(t & bit) || (bit == T_INTEGER && t & T_FRACTION))
            continue;
        if (bit == T_OBJECT)
            rc = cb_schema_object(s, c, &one);
        else if (bit == T_ARRAY)
            rc = cb_schema_array(s, c, &one);
        else if (bit == T_STRING)
            rc = cb_schema_string(s, c, &one);
        else if (bit == T_INTEGER || bit == T_FRACTION)
            rc = cb_schema_number(s, c, bit == T_INTEGER, &one);
        else
            rc = words(s, c, bit, &one);
        cb_ex_add(s->r, &l, one);
    }
    TRY(rc);
    *x = l.n ? cb_ex_alt(s->r, &l) : cb_ex_chars(s->r, NULL, 0, 0);
    return cb_rules_check(s->r);
}

/* ---- rules of sets ---- */

static int build(struct schema *s, const struct schema_set *c, int *x)
{
    int found, t, values = 0, kinds;

    TRY(cb_schema_choices(s, c, x, &found));
    if (found)
        return CB_OK;
    for (size_t i = 0; i < c->n; i++) {
        TRY(cb_schema_kinds(s, cb_schema_set_at(s, c, i), &kinds));
        values |= kinds & KW_VALUES;
    }
    if (values)
        return cb_schema_values(s, c, x);
    if (!c->n) {
        *x = cb_ex_rule(s->r, s->value);
        return CB_OK;
    }
    TRY(find_types(s, c, &t));
    if ((t & T_NUMBER) == T_FRACTION && t != T_FRACTION)
        t &= ~T_FRACTION; /* other types are left */
    if (t == T_FRACTION)
        return cb_schema_fail(s, CB_EUNSUPPORTED, cb_schema_set_at(s, c, 0),
                              "numbers that are no integers are not supported alone");
    return typed(s, c, t, x);
}

static int same_set(const void *ctx, int32_t id)
{
    const struct schema *s = ctx;
    const struct set_rule *a = &s->set[id], *b = &s->set[s->n_set];

    return a->n == b->n && (!a->n || !memcmp(a->m, b->m, a->n * sizeof *a->m));
}

/* The rule of a set. 1: a new one, and s->set holds the members now; 0: there was one */
static int enter(struct schema *s, struct schema_set *c, int *rule)
{
    const int32_t fresh = (int32_t)s->n_set;
    const uint64_t hash =
        cb_siphash(&s->sets.key, c->n ? (const void *)c->m : "", c->n * sizeof *c->m);
    int32_t id;

    TRY(cb_budget_steps(s->budget, c->n + 1));
    TRY(cb_budget_grow(s->budget, (void **)&s->set, &s->cap_set, s->n_set + 1, sizeof *s->set));
    s->set[fresh] = (struct set_rule){ c->m, c->n, -1 };
    TRY(id = cb_ids_find(&s->sets, hash, same_set, s, fresh));
    if (id == fresh) {
        s->set[s->n_set++].rule = cb_rule_new(s->r);
        *rule = s->set[fresh].rule;
        return 1;
    }
    *rule = s->set[id].rule;
    return 0;
}

static int set_rule(struct schema *s, struct schema_set *c, int *rule)
{
    int x, rc;

    cb_schema_set_close(s, c);
    if (c->never) { /* no rule is kept for it */
        cb_schema_set_free(s, c);
        x = cb_ex_chars(s->r, NULL, 0, 0);
        return cb_schema_rule_for(s, x, rule);
    }
    rc = enter(s, c, rule);
    if (rc != 1) {
        cb_schema_set_free(s, c);
        return rc;
    }
    if (++s->depth > GRAMMAR_MAX_DEPTH)
        return cb_schema_fail(s, CB_EUNSUPPORTED, c->n ? cb_schema_set_at(s, c, 0) : NULL,
                              "nested deeper than %d", GRAMMAR_MAX_DEPTH);
    TRY(build(s, c, &x));
    s->depth--;
    TRY(cb_rules_check(s->r));
    s->r->rule[*rule].expr = x;
    return CB_OK;
}

static int rule_of(struct schema *s, struct sval *v, int *rule)
{
    struct schema_set c;
    int rc;

    cb_schema_set_begin(s, &c);
    rc = cb_schema_set_add(s, &c, v);
    if (!rc)
        return set_rule(s, &c, rule);
    cb_schema_set_free(s, &c);
    return rc;
}

/* ---- the frame ---- */

/* Space and numbers are bounded, or a model could continue with them for ever. \u0000 and halves of
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
    struct schema s = { .r = r, .budget = r->budget, .rule = set_rule };
    int rc;

    cb_ids_init(&s.sets);
    rc = cb_sdoc_read(&s.doc, r->budget, text, len);
    if (!rc)
        rc = read_frame(&s);
    if (!rc)
        rc = rule_of(&s, s.doc.root, root);
    for (size_t i = 0; i < s.n_set; i++)
        free(s.set[i].m);
    free(s.set);
    free(s.known);
    cb_ids_free(&s.sets);
    cb_sdoc_free(&s.doc);
    return rc;
}
