/* SPDX-License-Identifier: MIT */
/* number.h - numbers as options and files write them, whatever the host program's locale. */
#ifndef NUMBER_H
#define NUMBER_H

double cb_number(const char *text, char **end); /* as strtod() in the C locale */

#endif
