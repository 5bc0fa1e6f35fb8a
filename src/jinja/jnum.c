/* SPDX-License-Identifier: MIT */
/* jnum.c - numbers as text, whatever the locale. */
#include "jnum.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBER = 512 };

/* strtod() and printf() write a decimal point as the locale does. */
static void swap_point(char *s, char from, char to)
{
    char *p = strchr(s, from);

    if (p)
        *p = to;
}

static char point(void)
{
    return *localeconv()->decimal_point;
}

void cb_jfix_point(char *s)
{
    swap_point(s, point(), '.');
}

int cb_jnumber(const char *s, double *out)
{
    char buf[MAX_NUMBER], *end;
    const size_t n = strlen(s);

    if (!n || n >= sizeof buf || strspn(s, "+-.0123456789eE") != n)
        return 0;
    memcpy(buf, s, n + 1);
    swap_point(buf, '.', point());
    *out = strtod(buf, &end);
    return !*end;
}

void cb_jfloat_text(double f, char *buf, size_t cap)
{
    char e[40], *mark;
    int exponent, digits = 0;

    if (isnan(f) || isinf(f)) {
        snprintf(buf, cap, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    do
        snprintf(e, sizeof e, "%.*e", digits++, f);
    while (digits < 17 && strtod(e, NULL) != f);
    mark = strchr(e, 'e');
    exponent = (int)strtol(mark + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16)
        snprintf(buf, cap, "%.*f", digits - 1 > exponent ? digits - 1 - exponent : 1, f);
    else
        snprintf(buf, cap, "%.*se%c%02d", (int)(mark - e), e, exponent < 0 ? '-' : '+',
                 abs(exponent));
    cb_jfix_point(buf);
}
