/* SPDX-License-Identifier: MIT */
/* letters.h - Unicode's general categories by the names that regular expressions have for them. */
#ifndef LETTERS_H
#define LETTERS_H

#include <stddef.h>
#include <stdint.h>

/* L, Lu, Letter, gc=L ... -> a set of categories; 0: not known */
int cb_letter_kinds(const char *name, size_t n);
int cb_letter_is(uint32_t c, int kinds); /* 1: character c is of one of them */

#endif
