/* SPDX-License-Identifier: MIT */
/* number.h - numbers as options and files write them, whatever the host program's locale. */
#ifndef NUMBER_H
#define NUMBER_H

double cb_number(const char *text, char **end); /* as strtod() in the C locale */
/* A number for people: whole numbers as such, 0.000001 instead of 1e-06. Returns text. */
const char *cb_number_text(double v, char text[32]);

#endif
