/* SPDX-License-Identifier: MIT */
/* jnum.h - numbers as text, whatever the locale. */
#ifndef JNUM_H
#define JNUM_H

#include <stddef.h>

/* 1: all of s is a decimal number, -> *out; 0: it is not */
int cb_jnumber(const char *s, double *out);
/* As Python prints f: the shortest digits that read back as f; an exponent below 1e-4 and from
 * 1e16. buf[cap], cap >= 40 */
void cb_jfloat_text(double f, char *buf, size_t cap);
void cb_jfix_point(char *s); /* the locale's decimal point in s becomes '.' */

#endif
