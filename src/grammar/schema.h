/* SPDX-License-Identifier: MIT */
/* schema.h - what the parts of the reader of JSON schemas share; only schema*.c include it. */
#ifndef SCHEMA_H
#define SCHEMA_H

#include <jansson.h>

#include "base/err.h"
#include "rules.h"

/* Where a schema lies in the document, for messages */
struct where {
    const struct where *up;
    const char *key; /* NULL: index */
    size_t index;
    int depth;
};

struct schema {
    struct rules *r;
    /* The expression of what fits schema j -> *x */
    int (*visit)(struct schema *s, json_t *j, const struct where *at, int *x);
    json_t *doc;
    json_t *kept; /* array of schemas that were made by merging */
    int n_all_of; /* members of allOf that were merged: each may wrap the last one */
    struct target {
        json_t *j;
        int rule;
    } * target; /* [n_target] schemas that a $ref names */
    size_t n_target, cap_target;
    struct ids targets;
    /* rules of the frame in which everything is written */
    int space, value, object, array, string, escape, integer, number;
};

/* What a keyword is about; KW_NOTE: nothing that the text shows; 0: not known */
enum { KW_NOTE = 1, KW_ANY = 2, KW_OBJECT = 4, KW_ARRAY = 8, KW_STRING = 16, KW_NUMBER = 32 };
int cb_schema_keyword(const char *name);

/* "schema: #/properties/a: WHY" */
int cb_schema_fail(int status, const struct where *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* What fits schema j as a rule, for what is used more than once */
int cb_schema_rule(struct schema *s, json_t *j, const struct where *at, int *rule);

int cb_schema_object(struct schema *s, json_t *j, const struct where *at, int *x);
int cb_schema_array(struct schema *s, json_t *j, const struct where *at, int *x);
int cb_schema_string(struct schema *s, json_t *j, const struct where *at, int *x);
int cb_schema_number(struct schema *s, json_t *j, int is_integer, const struct where *at, int *x);
/* *out: a schema whose texts fit both; the caller frees it. */
int cb_schema_merge(json_t *a, json_t *b, const struct where *at, json_t **out);

/* The value as text -> *x. */
int cb_schema_literal(struct schema *s, json_t *value, int *x);
/* A class of characters as they are written within quotes; as cb_ex_chars() */
int cb_schema_chars(struct rules *r, struct char_range *range, size_t n, int negated);
/* Strings, without their quotes, of characters that need no escape, and other than key[n], which
 * are sorted by their bytes -> *rule */
int cb_schema_other_keys(struct schema *s, const char *const *key, size_t n, size_t depth,
                         int *rule);
/* A count such as minLength -> *out, `none` if there is none. */
int cb_schema_count(json_t *j, const char *name, const struct where *at, int none, int *out);

/* Shorthands for sequences and choices of a few expressions */
int cb_schema_seq(struct rules *r, int n, const int *x);
int cb_schema_alt(struct rules *r, int n, const int *x);
int cb_schema_text(struct rules *r, const char *text);

#endif
