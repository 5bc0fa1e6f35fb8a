/* SPDX-License-Identifier: MIT */
/* number.c - numbers as options and files write them. */
#include "number.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if __has_include(<xlocale.h>) /* strtod_l() outside of Linux */
#include <xlocale.h>
#endif

double cb_number(const char *text, char **end)
{
    /* not allocated for "C", so it cannot fail */
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double x = strtod_l(text, end, c);

    freelocale(c);
    return x;
}

const char *cb_number_text(double v, char text[32])
{
    size_t n;

    snprintf(text, 32, "%.10g", v);
    if (!strchr(text, 'e') || v <= -1e15 || v >= 1e15)
        return text;
    n = (size_t)snprintf(text, 32, "%.12f", v);
    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] < '0') /* the point */
        text[--n] = '\0';
    return text;
}
