/* SPDX-License-Identifier: MIT */
/* decimal.h - decimal numbers as they are written, without rounding. */
#ifndef DECIMAL_H
#define DECIMAL_H

#include <stdint.h>

enum { DECIMAL_DIGITS = 64 };

/* 0.d1d2d3... * 10^point; no first or last digit is 0; n = 0: zero */
struct decimal {
    int negative, n, point;
    uint8_t digit[DECIMAL_DIGITS];
};

/* A JSON number; 0: it has more digits than there is room for, or is no number */
int cb_decimal_read(const char *s, struct decimal *d);
int cb_decimal_compare(const struct decimal *a, const struct decimal *b); /* < 0, 0, > 0 */
int cb_decimal_is_whole(const struct decimal *d);
/* Digits in front of the point, at least one */
int cb_decimal_whole_digits(const struct decimal *d);
/* Digits after the point */
int cb_decimal_fraction_digits(const struct decimal *d);
/* Digit i of |d|, counted from the first of the whole_digits */
int cb_decimal_digit(const struct decimal *d, int i);
/* 1: a is a whole number of times b */
int cb_decimal_is_multiple(const struct decimal *a, const struct decimal *b);
/* |d| * 10^scale -> *out; 0: no whole number, or above 2^62 */
int cb_decimal_scaled(const struct decimal *d, int scale, int64_t *out);

#endif
