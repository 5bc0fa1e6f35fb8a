/* SPDX-License-Identifier: MIT */
/* csv.c - the fields of a table in the form csv. */
#include "csv.h"

#include <math.h>

void cb_csv_text(const char *s, FILE *f)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"')
            fputc('"', f);
        fputc(*s, f);
    }
    fputc('"', f);
}

void cb_csv_number(double x, FILE *f)
{
    if (isfinite(x))
        fprintf(f, ",%.6g", x);
    else
        fputc(',', f);
}
