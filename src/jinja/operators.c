/* SPDX-License-Identifier: MIT */
/* operators.c - arithmetic, joining and comparison of values, as in Python. */
#include "operators.h"

#include <math.h>
#include <string.h>

#include "jformat.h"
#include "jprint.h"

static int unfit(struct jrun *r, int op, const struct jv *a, const struct jv *b)
{
    const char text[3] = { op == 'p'   ? '*'
                           : op == 'd' ? '/'
                                       : (char)op,
                           op == 'p'   ? '*'
                           : op == 'd' ? '/'
                                       : '\0',
                           '\0' };

    if (a->kind == J_UNDEFINED || b->kind == J_UNDEFINED) {
        const struct jstr s = a->kind == J_UNDEFINED ? a->str : b->str;
        return cb_jfail(r, "'%.*s' is undefined", s.n < 60 ? (int)s.n : 60, s.s);
    }
    return cb_jfail(r, "%s %s %s is not possible", cb_jkind_name(a), text, cb_jkind_name(b));
}

static int join(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    struct jout o = { .r = r };

    if (a->kind == J_STR && b->kind == J_STR)
        TRY(cb_jout_room(&o, a->str.n + b->str.n));
    TRY(cb_jprint(&o, a));
    TRY(cb_jprint(&o, b));
    *out = cb_jout_str(&o);
    return CB_OK;
}

static int join_lists(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    TRY(cb_jlist_new(r, a->list->n + b->list->n, out));
    for (size_t i = 0; i < a->list->n; i++)
        TRY(cb_jlist_add(r, out, &a->list->at[i]));
    for (size_t i = 0; i < b->list->n; i++)
        TRY(cb_jlist_add(r, out, &b->list->at[i]));
    out->kind = a->kind;
    return CB_OK;
}

/* A text or a list, n times */
static int repeat(struct jrun *r, const struct jv *a, int64_t n, struct jv *out)
{
    struct jout o = { .r = r };

    if (a->kind == J_STR) {
        for (int64_t i = 0; i < n && a->str.n; i++)
            TRY(cb_jout_put(&o, a->str));
        *out = cb_jout_str(&o);
        return CB_OK;
    }
    TRY(cb_jlist_new(r, 0, out));
    for (int64_t i = 0; i < n && a->list->n; i++)
        for (size_t k = 0; k < a->list->n; k++)
            TRY(cb_jlist_add(r, out, &a->list->at[k]));
    out->kind = a->kind;
    return CB_OK;
}

static int int_power(int64_t a, int64_t n, int64_t *out)
{
    for (*out = 1; n > 0; n--) {
        if (__builtin_mul_overflow(*out, a, out))
            return 0;
        if (a >= -1 && a <= 1) /* -1, 0, 1: by parity */
            n = n % 2 + 1 == 2 ? 1 : n > 2 ? 2 : n;
    }
    return 1;
}

static int whole(struct jrun *r, int op, int64_t a, int64_t b, struct jv *out)
{
    int64_t q = 0, over = 0;

    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &q);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &q);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &q);
        break;
    case 'p':
        over = !int_power(a, b, &q);
        break;
    default: /* '%', 'd': towards minus infinity */
        if (!b)
            return cb_jfail(r, "division by zero");
        over = a == INT64_MIN && b == -1;
        if (over)
            break;
        q = op == 'd' ? a / b : a % b;
        if (a % b && (a % b < 0) != (b < 0))
            q += op == 'd' ? -1 : b;
    }
    *out = cb_jint(q);
    return over ? cb_jfail(r, "a number is too large") : CB_OK;
}

/* As Python has it: the quotient is of a less its remainder, whose sign is b's */
static double divide_down(double a, double b, double *rest)
{
    double q;

    *rest = fmod(a, b);
    q = (a - *rest) / b;
    if (*rest < 0 || *rest > 0) {
        const int differ = (*rest < 0) != (b < 0);
        *rest += differ ? b : 0;
        q -= differ;
    } else {
        *rest = copysign(0, b);
    }
    return q < 0 || q > 0 ? round(q) : copysign(0, a / b);
}

static int real(struct jrun *r, int op, double a, double b, struct jv *out)
{
    double f, rest;

    if (strchr("/d%", op) && !(b < 0 || b > 0))
        return cb_jfail(r, "division by zero");
    switch (op) {
    case '+':
        f = a + b;
        break;
    case '-':
        f = a - b;
        break;
    case '*':
        f = a * b;
        break;
    case '/':
        f = a / b;
        break;
    case 'd':
        f = divide_down(a, b, &rest);
        break;
    case '%':
        (void)divide_down(a, b, &f);
        break;
    default:
        f = pow(a, b);
    }
    *out = cb_jfloat(f);
    return CB_OK;
}

static int percent(struct jrun *r, const struct jv *a, const struct jv *b, struct jv *out)
{
    struct jargs args = { .at = b, .n = 1 };

    if (b->kind == J_TUPLE)
        args = (struct jargs){ .at = b->list->at, .n = b->list->n };
    return cb_jpercent(r, &a->str, &args, out);
}

int cb_jbinary(struct jrun *r, int op, const struct jv *a, const struct jv *b, struct jv *out)
{
    const int ints = a->kind != J_FLOAT && b->kind != J_FLOAT;

    if (op == '~')
        return join(r, a, b, out);
    if (cb_jis_num(a) && cb_jis_num(b)) {
        if (ints && op != '/' && !(op == 'p' && b->i < 0))
            return whole(r, op, a->i, b->i, out);
        return real(r, op, cb_jnum(a), cb_jnum(b), out);
    }
    if (op == '+' && a->kind == J_STR && b->kind == J_STR)
        return join(r, a, b, out);
    if (op == '+' && cb_jis_seq(a) && a->kind == b->kind)
        return join_lists(r, a, b, out);
    if (op == '%' && a->kind == J_STR)
        return percent(r, a, b, out);
    if (op == '*' && (a->kind == J_STR || cb_jis_seq(a)) && b->kind == J_INT)
        return repeat(r, a, b->i, out);
    if (op == '*' && (b->kind == J_STR || cb_jis_seq(b)) && a->kind == J_INT)
        return repeat(r, b, a->i, out);
    return unfit(r, op, a, b);
}

int cb_jcompares(struct jrun *r, int op, const struct jv *a, const struct jv *b, int *yes)
{
    int order;

    if (op == '=' || op == '!') {
        TRY(cb_jequal(r, a, b, yes));
        *yes ^= op == '!';
        return CB_OK;
    }
    if (op == 'i' || op == 'n') {
        TRY(cb_jcontains(r, b, a, yes));
        *yes ^= op == 'n';
        return CB_OK;
    }
    TRY(cb_jcompare(r, a, b, &order));
    *yes = op == '<' ? order < 0 : op == '>' ? order > 0 : op == 'l' ? order <= 0 : order >= 0;
    return CB_OK;
}

int cb_jnegative(struct jrun *r, const struct jv *a, struct jv *out)
{
    const struct jv zero = cb_jint(0);

    if (a->kind == J_FLOAT) {
        *out = cb_jfloat(-a->f);
        return CB_OK;
    }
    return cb_jbinary(r, '-', &zero, a, out);
}
