/* SPDX-License-Identifier: MIT */
/* number.c - numbers as options and files write them. */
#include "number.h"

#include <locale.h>
#include <stdlib.h>

double cb_number(const char *text, char **end)
{
    /* not allocated for "C", so it cannot fail */
    const locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double x = strtod_l(text, end, c);

    freelocale(c);
    return x;
}
