/* SPDX-License-Identifier: MIT */
/* is_tests.c - what may stand after `is`. */
#include "jcase.h"
#include "native.h"

#define TEST(name)                                                                                 \
    static int name(struct jrun *r, const struct jv *v, const struct jargs *a, struct jv *out)

#define IS(name, yes)                                                                              \
    TEST(name)                                                                                     \
    {                                                                                              \
        (void)r, (void)v, (void)a;                                                                 \
        *out = cb_jbool(yes);                                                                      \
        return CB_OK;                                                                              \
    }

IS(is_defined, v->kind != J_UNDEFINED)
IS(is_undefined, v->kind == J_UNDEFINED)
IS(is_none, v->kind == J_NONE)
IS(is_boolean, v->kind == J_BOOL)
IS(is_true, v->kind == J_BOOL && v->i)
IS(is_false, v->kind == J_BOOL && !v->i)
IS(is_integer, v->kind == J_INT)
IS(is_float, v->kind == J_FLOAT)
IS(is_number, cb_jis_num(v))
IS(is_string, v->kind == J_STR)
IS(is_mapping, v->kind == J_DICT)
IS(is_sequence, cb_jis_seq(v) || v->kind == J_STR || v->kind == J_DICT || v->kind == J_UNDEFINED)
IS(is_iterable, cb_jis_seq(v) || v->kind == J_STR || v->kind == J_DICT || v->kind == J_UNDEFINED)
IS(is_callable, v->kind == J_FUNC || v->kind == J_LOOP)
IS(is_escaped, 0)

static int other(struct jrun *r, const struct jargs *a, const struct jv **out)
{
    *out = cb_jarg(a, 0, "other");
    return *out ? CB_OK : cb_jfail(r, "a test lacks its argument");
}

TEST(is_eq)
{
    const struct jv *b;
    int yes;

    TRY(other(r, a, &b));
    TRY(cb_jequal(r, v, b, &yes));
    *out = cb_jbool(yes);
    return CB_OK;
}

TEST(is_ne)
{
    TRY(is_eq(r, v, a, out));
    *out = cb_jbool(!out->i);
    return CB_OK;
}

static int order(struct jrun *r, const struct jv *v, const struct jargs *a, int *o)
{
    const struct jv *b;

    TRY(other(r, a, &b));
    return cb_jcompare(r, v, b, o);
}

#define ORDER(name, op)                                                                            \
    TEST(name)                                                                                     \
    {                                                                                              \
        int o;                                                                                     \
        TRY(order(r, v, a, &o));                                                                   \
        *out = cb_jbool(o op 0);                                                                   \
        return CB_OK;                                                                              \
    }

ORDER(is_lt, <)
ORDER(is_le, <=)
ORDER(is_gt, >)
ORDER(is_ge, >=)

TEST(is_in)
{
    const struct jv *b;
    int yes;

    TRY(other(r, a, &b));
    TRY(cb_jcontains(r, b, v, &yes));
    *out = cb_jbool(yes);
    return CB_OK;
}

/* The same object; scalars are the same if they are equal and of one kind */
TEST(is_sameas)
{
    const struct jv *b;
    int yes = 0;

    TRY(other(r, a, &b));
    if (v->kind == b->kind) {
        if (cb_jis_seq(v) || v->kind >= J_DICT)
            yes = v->list == b->list;
        else
            TRY(cb_jequal(r, v, b, &yes));
    }
    *out = cb_jbool(yes);
    return CB_OK;
}

static int whole(struct jrun *r, const struct jv *v, int64_t *i)
{
    if (v->kind != J_INT && v->kind != J_BOOL)
        return cb_jfail(r, "a %s is not a whole number", cb_jkind_name(v));
    *i = v->i;
    return CB_OK;
}

TEST(is_even)
{
    int64_t i = 0;

    (void)a;
    TRY(whole(r, v, &i));
    *out = cb_jbool(i % 2 == 0);
    return CB_OK;
}

TEST(is_odd)
{
    TRY(is_even(r, v, a, out));
    *out = cb_jbool(!out->i);
    return CB_OK;
}

TEST(is_divisibleby)
{
    const struct jv *b;
    int64_t i = 0, by = 0;

    TRY(other(r, a, &b));
    TRY(whole(r, v, &i));
    TRY(whole(r, b, &by));
    if (!by)
        return cb_jfail(r, "division by zero");
    *out = cb_jbool(by == -1 || i % by == 0);
    return CB_OK;
}

/* 1: some letter, and none of the other case */
static int all_case(const struct jv *v, int upper)
{
    int some = 0;

    for (size_t i = 0, n; v->kind == J_STR && i < v->str.n; i += n) {
        const uint32_t c = cb_jcode(&v->str, i, &n);
        const int is_upper = cb_jlower_of(c) != c, is_lower = cb_jupper_of(c) != c;
        if (upper ? is_lower : is_upper)
            return 0;
        some |= upper ? is_upper : is_lower;
    }
    return some;
}

IS(is_upper, all_case(v, 1))
IS(is_lower, all_case(v, 0))

static const struct jentry tests[] = {
    { "defined", is_defined },
    { "undefined", is_undefined },
    { "none", is_none },
    { "boolean", is_boolean },
    { "true", is_true },
    { "false", is_false },
    { "integer", is_integer },
    { "float", is_float },
    { "number", is_number },
    { "string", is_string },
    { "mapping", is_mapping },
    { "sequence", is_sequence },
    { "iterable", is_iterable },
    { "callable", is_callable },
    { "escaped", is_escaped },
    { "eq", is_eq },
    { "equalto", is_eq },
    { "==", is_eq },
    { "ne", is_ne },
    { "!=", is_ne },
    { "lt", is_lt },
    { "lessthan", is_lt },
    { "<", is_lt },
    { "le", is_le },
    { "<=", is_le },
    { "gt", is_gt },
    { "greaterthan", is_gt },
    { ">", is_gt },
    { "ge", is_ge },
    { ">=", is_ge },
    { "in", is_in },
    { "sameas", is_sameas },
    { "even", is_even },
    { "odd", is_odd },
    { "upper", is_upper },
    { "lower", is_lower },
    { "divisibleby", is_divisibleby },
};

jfn cb_jtest(const struct jstr *name)
{
    return cb_jentry(tests, sizeof tests / sizeof *tests, name);
}
