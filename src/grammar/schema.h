/* SPDX-License-Identifier: MIT */
/* schema.h - what the parts of the reader of JSON schemas share; only schema*.c include it.
 *
 * What a value must fit is a set of schemas, all at once: allOf and $ref add members to it, so two
 * schemas are never merged into one. Equal sets have one rule. */
#ifndef SCHEMA_H
#define SCHEMA_H

#include "base/err.h"
#include "re_expr.h"
#include "rules.h"
#include "schema_doc.h"

/* What a keyword is about. The first ones ask for alternatives, and can be marked as done in a
 * member of a set. */
enum {
    KW_ANYOF = 1,
    KW_ONEOF = 2,
    KW_IF = 4,
    KW_DEPEND = 8,
    KW_NOT = 16,
    KW_NULLABLE = 32,
    KW_DONE = 63, /* those above */
    KW_NOTE = 64, /* nothing that the text shows */
    KW_REF = 128,
    KW_ALLOF = 256,
    KW_TYPE = 512,
    KW_VALUES = 1024, /* enum, const */
    KW_OBJECT = 2048,
    KW_ARRAY = 4096,
    KW_STRING = 8192,
    KW_NUMBER = 16384,
    KW_FORMAT = 32768, /* of a string or a number */
    KW_REFUSED = 65536,
    KW_UNKNOWN = 131072
};

enum {
    T_OBJECT = 1,
    T_ARRAY = 2,
    T_STRING = 4,
    T_INTEGER = 8,
    T_FRACTION = 16, /* numbers that are no integers */
    T_NUMBER = T_INTEGER | T_FRACTION,
    T_BOOLEAN = 32,
    T_NULL = 64,
    T_ALL = 127
};

/* A schema, of whose keywords those in `done` are said by other members of the set */
struct member {
    int32_t id; /* of the value */
    int32_t done;
};

struct schema_set {
    struct member *m; /* [n] ascending, once closed */
    size_t n, cap;
    int never; /* 1: one of them is false */
    int32_t serial;
};

struct schema {
    struct rules *r;
    /* What fits the set as a rule; owns c, which may be open. */
    int (*rule)(struct schema *s, struct schema_set *c, int *rule);
    struct budget *budget;
    struct sdoc doc;
    struct known_value {
        int32_t kinds; /* of the keywords; 0: not looked at yet */
        int32_t mark;  /* serial of the last set to which it was added, times 2; + 1: entirely */
    } * known;         /* [cap_known] by id */
    size_t cap_known;
    int32_t serial;
    struct set_rule {
        struct member *m;
        size_t n;
        int32_t rule;
    } * set; /* [n_set] sets that have rules */
    size_t n_set, cap_set;
    struct ids sets;
    int depth;
    /* rules of the frame in which everything is written */
    int space, value, object, array, string, escape, integer, number;
};

/* ---- schema_words.c ---- */

/* "schema: #/properties/a: WHY"; at NULL: the whole */
int cb_schema_fail(const struct schema *s, int status, const struct sval *at, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* A line for who asked: "#/properties/a: WHAT" */
void cb_schema_note(const struct schema *s, const struct sval *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Keyword `name` of schema v; NULL: it has none such, or null */
struct sval *cb_schema_get(const struct schema *s, const struct sval *v, const char *name);
int cb_schema_keyword(const char *name); /* its kind */
int cb_schema_type_of(const struct sval *value);
/* The types that v's "type" names; T_ALL without one */
int cb_schema_types(struct schema *s, struct sval *v, int *types);

/* ---- schema_set.c ---- */

/* A set is begun, gets members, and is closed before the next one is begun. */
void cb_schema_set_begin(struct schema *s, struct schema_set *c);
int cb_schema_set_add(struct schema *s, struct schema_set *c, struct sval *v);
/* Member m as it is, without keywords that are done; nothing if no other one is left */
int cb_schema_set_put(struct schema *s, struct schema_set *c, struct member m);
/* The same value again, with `done` marked as done: what else it says is added */
int cb_schema_set_again(struct schema *s, struct schema_set *c, struct member m, int done);
void cb_schema_set_close(struct schema *s, struct schema_set *c);
void cb_schema_set_free(struct schema *s, struct schema_set *c);
/* The kinds of v's keywords; refused ones fail */
int cb_schema_kinds(struct schema *s, struct sval *v, int *kinds);
/* The schema that a $ref names */
int cb_schema_target(struct schema *s, struct sval *v, struct sval **out);

struct sval *cb_schema_set_at(const struct schema *s, const struct schema_set *c, size_t i);

/* ---- what fits all of a set -> *x ---- */

int cb_schema_object(struct schema *s, const struct schema_set *c, int *x);
int cb_schema_array(struct schema *s, const struct schema_set *c, int *x);
int cb_schema_string(struct schema *s, const struct schema_set *c, int *x);
int cb_schema_number(struct schema *s, const struct schema_set *c, int is_integer, int *x);
int cb_schema_values(struct schema *s, const struct schema_set *c, int *x);
/* Alternatives of a set: *found 0 if it has none */
int cb_schema_choices(struct schema *s, const struct schema_set *c, int *x, int *found);
/* Schemas of which one fits what v does not fit -> list, an array that is made; NULL: `not` stays
 * as it is */
int cb_schema_not(struct schema *s, struct sval *v, struct sval **list);

/* 1: the value fits schema v; negative: a status. named: it is of v's own enum */
int cb_schema_fits(struct schema *s, const struct sval *value, struct sval *v, int named);

/* ---- schema_string.c ---- */

/* All that the set says of strings -> *out */
int cb_schema_string_re(struct schema *s, struct re *x, const struct schema_set *c, re_id *out);
/* The expression in quotes -> *e */
int cb_schema_quoted(struct schema *s, struct re *x, re_id a, int *e);

/* ---- schema_kit.c ---- */

/* The value as text -> *x. */
int cb_schema_literal(struct schema *s, const struct sval *value, int *x);
/* A class of characters as they are written within quotes; as cb_ex_chars() */
int cb_schema_chars(struct rules *r, struct char_range *range, size_t n, int negated);
/* A count such as minLength, the largest (or with `least` the smallest) of the set's -> *out,
 * `none` if there is none. */
int cb_schema_count(struct schema *s, const struct schema_set *c, const char *name, int least,
                    int none, int *out);

/* Shorthands for sequences and choices of a few expressions */
int cb_schema_seq(struct rules *r, int n, const int *x);
int cb_schema_alt(struct rules *r, int n, const int *x);
int cb_schema_text(struct rules *r, const char *text);
int cb_schema_rule_for(struct schema *s, int x, int *rule); /* expression x as a rule */

#endif
