/* SPDX-License-Identifier: MIT */
/* schema_number.c - numbers of a JSON schema: whole numbers in a range, and others whose bounds are
 * whole numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "schema.h"

/* Numbers without a bound have 18 digits, which an int64 holds; bounds 15, which a double does. */
static const int64_t most = 999999999999999999, most_bound = 999999999999999;

static int digits(struct rules *r, int from, int to)
{
    struct char_range d = { (uint32_t)('0' + from), (uint32_t)('0' + to) };
    return cb_ex_chars(r, &d, 1, 0);
}

static int digits_n(struct rules *r, int from, int to, int n)
{
    return n ? cb_schema_seq(
                   r, 2,
                   (int[]){ digits(r, from, to), cb_ex_repeat(r, digits(r, 0, 9), n - 1, n - 1) })
             : cb_ex_empty(r);
}

static int64_t ten_to(int n)
{
    int64_t x = 1;

    while (n-- > 0)
        x *= 10;
    return x;
}

/* Numbers from..to, all written with n digits */
static int same_length(struct rules *r, int64_t from, int64_t to, int n)
{
    const int64_t unit = n ? ten_to(n - 1) : 1;
    const int64_t a = from / unit, b = to / unit;
    int64_t first = a, last = b; /* digits behind which all others are free */
    struct ex_list l = { 0 };

    if (!n)
        return cb_ex_empty(r);
    if (a == b && (from % unit || to % unit != unit - 1))
        return cb_schema_seq(
            r, 2,
            (int[]){ digits(r, (int)a, (int)a), same_length(r, from % unit, to % unit, n - 1) });
    if (from % unit) {
        first++;
        cb_ex_add(r, &l,
                  cb_schema_seq(r, 2,
                                (int[]){ digits(r, (int)a, (int)a),
                                         same_length(r, from % unit, unit - 1, n - 1) }));
    }
    if (to % unit != unit - 1) {
        last--;
        cb_ex_add(
            r, &l,
            cb_schema_seq(
                r, 2, (int[]){ digits(r, (int)b, (int)b), same_length(r, 0, to % unit, n - 1) }));
    }
    if (first <= last)
        cb_ex_add(r, &l, digits_n(r, (int)first, (int)last, n));
    return cb_ex_alt(r, &l);
}

/* Whole numbers from..to, 0 <= from <= to */
static int whole(struct rules *r, int64_t from, int64_t to)
{
    struct ex_list l = { 0 };

    for (int n = 1; n <= 18; n++) {
        const int64_t least = n == 1 ? 0 : ten_to(n - 1), greatest = ten_to(n) - 1;
        if (from <= greatest && to >= least)
            cb_ex_add(
                r, &l,
                same_length(r, from > least ? from : least, to < greatest ? to : greatest, n));
    }
    return cb_ex_alt(r, &l);
}

static int integers(struct rules *r, int64_t min, int64_t max)
{
    struct ex_list l = { 0 };

    if (max >= 0)
        cb_ex_add(r, &l, whole(r, min > 0 ? min : 0, max));
    if (min < 0)
        cb_ex_add(r, &l,
                  cb_schema_seq(
                      r, 2, (int[]){ cb_schema_text(r, "-"), whole(r, max < 0 ? -max : 1, -min) }));
    return cb_ex_alt(r, &l);
}

/* ---- numbers with a fraction ---- */

struct bounds {
    int64_t min, max;
    int above, below; /* 1: min or max itself is left out */
};

/* ".5"; zeros alone, or with `nonzero` anything but */
static int fraction(struct rules *r, int nonzero)
{
    const int zeros = cb_ex_repeat(r, digits(r, 0, 0), nonzero ? 0 : 1, nonzero ? 7 : 16);
    struct ex_list l = { 0 };

    cb_ex_add(r, &l, cb_schema_text(r, "."));
    cb_ex_add(r, &l, zeros);
    if (nonzero) {
        cb_ex_add(r, &l, digits(r, 1, 9));
        cb_ex_add(r, &l, cb_ex_repeat(r, digits(r, 0, 9), 0, 8));
    }
    return cb_ex_seq(r, &l);
}

static int any_fraction(struct rules *r)
{
    return cb_ex_repeat(
        r,
        cb_schema_seq(r, 2,
                      (int[]){ cb_schema_text(r, "."), cb_ex_repeat(r, digits(r, 0, 9), 1, 16) }),
        0, 1);
}

static int with(struct rules *r, int x, int behind)
{
    return cb_schema_seq(r, 2, (int[]){ x, behind });
}

/* Numbers without a sign, 0 <= b.min <= b.max; an empty choice if there are none */
static void magnitudes(struct rules *r, struct bounds b, struct ex_list *l)
{
    if (b.min == b.max) {
        if (!b.above && !b.below)
            cb_ex_add(r, l, with(r, whole(r, b.min, b.min), cb_ex_repeat(r, fraction(r, 0), 0, 1)));
        return;
    }
    if (b.above)
        cb_ex_add(r, l, with(r, whole(r, b.min, b.min), fraction(r, 1)));
    if (b.min + b.above < b.max)
        cb_ex_add(r, l, with(r, whole(r, b.min + b.above, b.max - 1), any_fraction(r)));
    if (!b.below)
        cb_ex_add(r, l, with(r, whole(r, b.max, b.max), cb_ex_repeat(r, fraction(r, 0), 0, 1)));
}

static int decimals(struct rules *r, struct bounds b, int *n)
{
    const struct bounds up = { b.min > 0 ? b.min : 0, b.max, b.min >= 0 && b.above, b.below };
    const struct bounds down = { b.max < 0 ? -b.max : 0, -b.min, b.max <= 0 && b.below, b.above };
    struct ex_list l = { 0 }, negative = { 0 };

    if (b.max >= 0)
        magnitudes(r, up, &l);
    if (b.min < 0)
        magnitudes(r, down, &negative);
    if (negative.n)
        cb_ex_add(r, &l, with(r, cb_schema_text(r, "-"), cb_ex_alt(r, &negative)));
    *n = l.n;
    return cb_ex_alt(r, &l);
}

/* ---- bounds of a schema ---- */

static int bound(json_t *j, const char *name, const struct where *at, int *there, double *out)
{
    json_t *v = json_object_get(j, name);

    *there = v != NULL;
    *out = json_number_value(v);
    if (!v)
        return CB_OK;
    if (!json_is_number(v))
        return cb_schema_fail(CB_EARG, at, "'%s' must be a number", name);
    return fabs(*out) > (double)most_bound
               ? cb_schema_fail(CB_EUNSUPPORTED, at, "'%s' has more than 15 digits", name)
               : CB_OK;
}

/* Bounds of integers are rounded inwards; those of numbers must be whole. */
static int is_whole(double x, const char *name, const struct where *at)
{
    return x == floor(x) ? CB_OK
                         : cb_schema_fail(CB_EUNSUPPORTED, at,
                                          "'%s' of a number: only whole ones are supported", name);
}

static int lower(json_t *j, int is_integer, const struct where *at, struct bounds *b, int *any)
{
    double x, y;
    int has_x, has_y;

    TRY(bound(j, "minimum", at, &has_x, &x));
    TRY(bound(j, "exclusiveMinimum", at, &has_y, &y));
    *any |= has_x || has_y;
    b->above = has_y && (!has_x || y >= x);
    if (!has_x && !has_y)
        return CB_OK;
    x = b->above ? y : x;
    if (!is_integer)
        TRY(is_whole(x, b->above ? "exclusiveMinimum" : "minimum", at));
    b->min = (int64_t)(b->above ? floor(x) : ceil(x));
    return CB_OK;
}

static int upper(json_t *j, int is_integer, const struct where *at, struct bounds *b, int *any)
{
    double x, y;
    int has_x, has_y;

    TRY(bound(j, "maximum", at, &has_x, &x));
    TRY(bound(j, "exclusiveMaximum", at, &has_y, &y));
    *any |= has_x || has_y;
    b->below = has_y && (!has_x || y <= x);
    if (!has_x && !has_y)
        return CB_OK;
    x = b->below ? y : x;
    if (!is_integer)
        TRY(is_whole(x, b->below ? "exclusiveMaximum" : "maximum", at));
    b->max = (int64_t)(b->below ? ceil(x) : floor(x));
    return CB_OK;
}

int cb_schema_number(struct schema *s, json_t *j, int is_integer, const struct where *at, int *x)
{
    json_t *step = json_object_get(j, "multipleOf");
    struct bounds b = { -most, most, 0, 0 };
    int any = 0, n = 1;

    if (step && !(is_integer && json_number_value(step) == 1))
        return cb_schema_fail(CB_EUNSUPPORTED, at, "'multipleOf' is not supported");
    TRY(lower(j, is_integer, at, &b, &any));
    TRY(upper(j, is_integer, at, &b, &any));
    if (is_integer) {
        b.min += b.above;
        b.max -= b.below;
    }
    if (!any)
        *x = cb_ex_rule(s->r, is_integer ? s->integer : s->number);
    else if (b.min > b.max)
        n = 0;
    else if (is_integer)
        *x = integers(s->r, b.min, b.max);
    else
        *x = decimals(s->r, b, &n);
    TRY(cb_rules_check(s->r));
    return n ? CB_OK : cb_schema_fail(CB_EARG, at, "no number is between the bounds");
}
