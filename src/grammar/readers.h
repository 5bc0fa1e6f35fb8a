/* SPDX-License-Identifier: MIT */
/* readers.h - the languages in which a grammar can be written; each reader makes rules. */
#ifndef READERS_H
#define READERS_H

#include "rules.h"

enum { GRAMMAR_MAX_DEPTH = 500, GRAMMAR_MAX_REPEAT = 1 << 20 };

/* text[len] -> rules, and *root, the one to begin with. CB_EARG: the text is no grammar;
 * CB_EUNSUPPORTED: it asks for what is not known here; CB_ENOMEM */
int cb_read_gbnf(const char *text, size_t len, struct rules *r, int *root);
/* The same without a rule "root" */
int cb_read_gbnf_rules(const char *text, size_t len, struct rules *r);
int cb_read_regex(const char *text, size_t len, struct rules *r, int *root);
int cb_read_json_schema(const char *text, size_t len, struct rules *r, int *root);

/* The code point at s[n], n > 0, -> *c; returns its bytes, 0 if there is no valid character. */
int cb_read_char(const char *s, size_t n, uint32_t *c);
/* Exactly n hexadecimal digits at s[left] -> *c; 0: there are none such */
int cb_read_hex(const char *s, size_t left, int n, uint32_t *c);
/* The value of decimal digits at s[left] -> *v, at most GRAMMAR_MAX_REPEAT + 1; returns how many
 * digits there are. */
size_t cb_read_count(const char *s, size_t left, int *v);

#endif
