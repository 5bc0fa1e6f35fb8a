/* SPDX-License-Identifier: MIT */
/* letters.h - Unicode's general categories, and what an emoji is made of, by the names that regular
 * expressions have for them. */
#ifndef LETTERS_H
#define LETTERS_H

#include <stddef.h>
#include <stdint.h>

/* L, Lu, Letter, gc=L ... -> a set of categories; 0: not known */
uint64_t cb_letter_kinds(const char *name, size_t n);
int cb_letter_is(uint32_t c, uint64_t kinds); /* 1: character c is of one of them */

#endif
