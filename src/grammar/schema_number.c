/* SPDX-License-Identifier: MIT */
/* schema_number.c - bounds and steps of numbers: the digits that a number may have next depend on
 * whether those so far are a bound's, and on what they leave modulo the step. */
#include <stdlib.h>
#include <string.h>

#include "number_digits.h"
#include "schema.h"

/* ---- what the set says ---- */

static int read_bound(struct schema *s, const struct sval *v, const char *name, struct decimal *d,
                      int *there)
{
    const struct sval *b = cb_schema_get(s, v, name);

    *there = b && b->kind == SVAL_NUMBER;
    if (!b || b->kind == SVAL_FALSE || b->kind == SVAL_TRUE)
        return CB_OK; /* draft 4: exclusiveMinimum is a flag */
    if (b->kind != SVAL_NUMBER)
        return cb_schema_fail(s, CB_EARG, v, "'%s' must be a number", name);
    return cb_decimal_read(b->s, d)
               ? CB_OK
               : cb_schema_fail(s, CB_EUNSUPPORTED, v, "'%s' has more than %d digits", name,
                                DECIMAL_DIGITS);
}

/* The tighter one of two bounds, sign 1: lower ones, -1: upper ones */
static void tighten(struct number_bound *b, const struct decimal *d, int open, int sign)
{
    const int c = b->there ? sign * cb_decimal_compare(d, &b->d) : 1;

    if (c > 0)
        *b = (struct number_bound){ 1, open, *d };
    else if (c == 0)
        b->open |= open;
}

static int flag(struct schema *s, const struct sval *v, const char *name)
{
    const struct sval *b = cb_schema_get(s, v, name);

    return b && b->kind == SVAL_TRUE;
}

static int read_bounds(struct schema *s, const struct sval *v, struct number_form *f)
{
    struct decimal d;
    int there;

    TRY(read_bound(s, v, "minimum", &d, &there));
    if (there)
        tighten(&f->low, &d, flag(s, v, "exclusiveMinimum"), 1);
    TRY(read_bound(s, v, "exclusiveMinimum", &d, &there));
    if (there)
        tighten(&f->low, &d, 1, 1);
    TRY(read_bound(s, v, "maximum", &d, &there));
    if (there)
        tighten(&f->high, &d, flag(s, v, "exclusiveMaximum"), -1);
    TRY(read_bound(s, v, "exclusiveMaximum", &d, &there));
    if (there)
        tighten(&f->high, &d, 1, -1);
    return CB_OK;
}

/* Formats of numbers that say how many bits they have */
static const struct {
    const char *name, *low, *high;
} formats[] = {
    { "int8", "-128", "127" },
    { "int16", "-32768", "32767" },
    { "int32", "-2147483648", "2147483647" },
    { "int64", "-9223372036854775808", "9223372036854775807" },
    { "uint8", "0", "255" },
    { "uint16", "0", "65535" },
    { "uint32", "0", "4294967295" },
    { "uint64", "0", "18446744073709551615" },
    { "uint", "0", "18446744073709551615" },
    { "safeint", "-9007199254740991", "9007199254740991" },
};

static void read_format(struct schema *s, const struct sval *v, struct number_form *f)
{
    const struct sval *form = cb_schema_get(s, v, "format");
    struct decimal d;

    for (size_t i = 0; form && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(form->s, formats[i].name)) {
            cb_decimal_read(formats[i].low, &d);
            tighten(&f->low, &d, 0, 1);
            cb_decimal_read(formats[i].high, &d);
            tighten(&f->high, &d, 0, -1);
        }
}

/* Of two steps the one of which the other is a part */
static int read_step(struct schema *s, const struct sval *v, struct number_form *f)
{
    struct decimal d;
    int there;

    TRY(read_bound(s, v, "multipleOf", &d, &there));
    if (!there)
        return CB_OK;
    if (!d.n || d.negative)
        return cb_schema_fail(s, CB_EARG, v, "'multipleOf' must be above 0");
    if (f->step.n && cb_decimal_is_multiple(&f->step, &d))
        return CB_OK;
    if (f->step.n && !cb_decimal_is_multiple(&d, &f->step))
        return cb_schema_fail(s, CB_EUNSUPPORTED, v,
                              "'multipleOf' in two schemas that both must fit");
    f->step = d;
    return CB_OK;
}

static int read_form(struct schema *s, const struct schema_set *c, struct number_form *f)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct sval *v = cb_schema_set_at(s, c, i);
        TRY(read_bounds(s, v, f));
        TRY(read_step(s, v, f));
        read_format(s, v, f);
    }
    return CB_OK;
}

int cb_schema_number(struct schema *s, const struct schema_set *c, int is_integer, int *x)
{
    struct number_form f = { .is_integer = is_integer };
    int some, rc;

    TRY(read_form(s, c, &f));
    if (!f.low.there && !f.high.there && !f.step.n) {
        *x = cb_ex_rule(s->r, is_integer ? s->integer : s->number);
        return CB_OK;
    }
    rc = cb_number_digits(s->r, &f, x, &some);
    if (rc == NUMBER_FEW)
        cb_schema_note(s, cb_schema_set_at(s, c, 0),
                       "'multipleOf' has too many remainders: only the "
                       "multiples next to 0 or a bound are written");
    TRY(rc);
    if (!some && c->n == 1)
        return cb_schema_fail(s, CB_EARG, cb_schema_set_at(s, c, 0),
                              "no number is between the bounds");
    return CB_OK;
}
