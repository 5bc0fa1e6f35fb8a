/* SPDX-License-Identifier: MIT */
/* fields.h - values of a request's JSON, checked. A field that is missing or null has its default;
 * a wrong one fails with CB_EARG and "FIELD: WHY". */
#ifndef FIELDS_H
#define FIELDS_H

#include <stdint.h>

#include "base/json.h"

const json_t *cb_field(const json_t *o, const char *name); /* NULL if missing or null */
int cb_field_float(const json_t *o, const char *name, double min, double max, float *out);
int cb_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out);
int cb_field_flag(const json_t *o, const char *name, int *out);
int cb_field_text(const json_t *o, const char *name, const char **out); /* o's own text */
/* A text, or a list of at most `most` texts -> list[n] of o's own texts; "" is left out. */
int cb_field_texts(const json_t *o, const char *name, int most, const char **list, int *n);
int cb_field_object(const json_t *o, const char *name, const json_t **out);
int cb_field_array(const json_t *o, const char *name, const json_t **out);

#endif
