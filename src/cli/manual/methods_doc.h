/* SPDX-License-Identifier: MIT */
/* methods_doc.h - the manual's sections on policies, prefill methods and settings. */
#ifndef METHODS_DOC_H
#define METHODS_DOC_H

#include <stdio.h>

int cb_methods_man(const char *what, FILE *f); /* 0: no such section */

#endif
