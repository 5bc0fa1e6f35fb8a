/* SPDX-License-Identifier: MIT */
/* decimal.c - reads and compares decimal numbers. */
#include "decimal.h"

#include <string.h>

static const char *read_exponent(const char *s, int *e)
{
    const int negative = s[1] == '-';

    *e = 0;
    for (s += 1 + (s[1] == '-' || s[1] == '+'); *s >= '0' && *s <= '9'; s++)
        *e = *e > 99999 ? *e : 10 * *e + (*s - '0');
    *e = negative ? -*e : *e;
    return s;
}

int cb_decimal_read(const char *s, struct decimal *d)
{
    int seen_point = 0, e = 0, zeros = 0;

    *d = (struct decimal){ .negative = *s == '-' };
    for (s += d->negative; (*s >= '0' && *s <= '9') || *s == '.'; s++) {
        if (*s == '.') {
            seen_point = 1;
            continue;
        }
        d->point += !seen_point && (d->n || zeros || *s != '0');
        if (*s == '0') {
            d->point -= seen_point && !d->n; /* 0.00x */
            zeros += d->n > 0;
            continue;
        }
        if (d->n + zeros >= DECIMAL_DIGITS)
            return 0;
        for (; zeros > 0; zeros--)
            d->digit[d->n++] = 0;
        d->digit[d->n++] = (uint8_t)(*s - '0');
    }
    if (*s == 'e' || *s == 'E')
        s = read_exponent(s, &e);
    d->point = d->n ? d->point + e : 0;
    d->negative &= d->n > 0;
    return !*s;
}

static int compare_size(const struct decimal *a, const struct decimal *b)
{
    int c;

    if (!a->n || !b->n)
        return !!a->n - !!b->n;
    if (a->point != b->point)
        return a->point < b->point ? -1 : 1;
    c = memcmp(a->digit, b->digit, (size_t)(a->n < b->n ? a->n : b->n));
    return c ? c : a->n - b->n;
}

int cb_decimal_compare(const struct decimal *a, const struct decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_size(b, a) : compare_size(a, b);
}

int cb_decimal_is_whole(const struct decimal *d)
{
    return cb_decimal_fraction_digits(d) == 0;
}

int cb_decimal_whole_digits(const struct decimal *d)
{
    return d->point > 1 ? d->point : 1;
}

int cb_decimal_fraction_digits(const struct decimal *d)
{
    return d->n > d->point ? d->n - d->point : 0;
}

int cb_decimal_digit(const struct decimal *d, int i)
{
    const int k = i + d->point - cb_decimal_whole_digits(d);

    return k >= 0 && k < d->n ? d->digit[k] : 0;
}

int cb_decimal_scaled(const struct decimal *d, int scale, int64_t *out)
{
    *out = 0;
    if (!d->n)
        return 1;
    if (d->point + scale < d->n || d->point + scale > 18)
        return 0;
    for (int i = 0; i < d->point + scale; i++)
        *out = 10 * *out + (i < d->n ? d->digit[i] : 0);
    return 1;
}

/* |a| modulo |b|, digit by digit from the first of a to the last one of either */
int cb_decimal_is_multiple(const struct decimal *a, const struct decimal *b)
{
    const int scale = cb_decimal_fraction_digits(b);
    int64_t unit, rest = 0;

    if (!b->n || !a->n)
        return !a->n;
    if (cb_decimal_fraction_digits(a) > scale || !cb_decimal_scaled(b, scale, &unit) ||
        unit > INT64_MAX / 16 || a->point > 400)
        return 0;
    for (int i = 0; i < a->point + scale; i++)
        rest = (10 * rest + (i < a->n ? a->digit[i] : 0)) % unit;
    return !rest;
}
