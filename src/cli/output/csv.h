/* SPDX-License-Identifier: MIT */
/* csv.h - the fields of a table in the form csv. */
#ifndef CSV_H
#define CSV_H

#include <stdio.h>

void cb_csv_text(const char *s, FILE *f); /* in quotes */
void cb_csv_number(double x, FILE *f);    /* a comma, and x; nothing if x is not finite */

#endif
