/* SPDX-License-Identifier: MIT */
/* json.h - JSON values of texts and numbers that come from outside. Jansson makes no value of a
 * text that is not UTF-8 or of a number that is not finite. A value that could not be made is NULL,
 * and whatever was to hold it becomes NULL too, up to whoever prints it. */
#ifndef JSON_H
#define JSON_H

#include <jansson.h>
#include <stddef.h>

json_t *cb_json_text(const char *s, size_t n); /* bytes that are not UTF-8 become U+FFFD */
json_t *cb_json_str(const char *s);            /* the same of a text that ends in NUL */
json_t *cb_json_real(double x);                /* null if x is not finite */
void cb_json_add(json_t **array, json_t *x);   /* owns x */
void cb_json_set(json_t **object, const char *key, json_t *x);
/* Bytes that the values of the JSON text s[n] will take, or a little more */
size_t cb_json_cost(const char *s, size_t n);
/* For whoever holds NULL in place of a value */
int cb_json_fail(const char *what);

#endif
