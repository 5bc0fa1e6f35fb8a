/* SPDX-License-Identifier: MIT */
/* fields.h - values of a request's JSON, checked. A field that is missing, null or blank has its
 * default; numbers, flags and objects may stand in quotes; a wrong one fails with CB_EARG and
 * "FIELD: WHY". */
#ifndef FIELDS_H
#define FIELDS_H

#include <stdint.h>

#include "base/json.h"

const json_t *cb_field(const json_t *o, const char *name); /* NULL if missing or null */
int cb_field_float(const json_t *o, const char *name, double min, double max, float *out);
/* max = CB_FIELD_MOST: larger values count as this one */
enum { CB_FIELD_MOST = INT32_MAX };
int cb_field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out);
/* Of any size; -1: to be drawn, as for all negative ones */
int cb_field_seed(const json_t *o, const char *name, int64_t *out);
int cb_field_flag(const json_t *o, const char *name, int *out);
int cb_field_text(const json_t *o, const char *name, const char **out); /* o's own text */
/* A text, or a list of at most `most` texts -> list[n] of o's own texts; "" is left out. */
int cb_field_texts(const json_t *o, const char *name, int most, const char **list, int *n);
int cb_field_object(const json_t *o, const char *name, const json_t **out);
int cb_field_array(const json_t *o, const char *name, const json_t **out);
/* A value as a field's: what is missing, null or blank leaves *out alone */
int cb_value_real(const json_t *v, const char *name, double min, double max, double *out);
/* 1: v is a whole number, maybe in quotes or with ".0"; beyond 64 bits *out is the nearest */
int cb_json_whole(const json_t *v, int64_t *out);
/* Value i of the field's list -> a token id */
int cb_field_token(const json_t *v, const char *name, size_t i, int n_vocab, int32_t *id);

#endif
