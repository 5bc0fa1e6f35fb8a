/* SPDX-License-Identifier: MIT */
/* schema_doc.h - a JSON schema's document: values that keep their numbers as they are written, in
 * memory that is freed at once. */
#ifndef SCHEMA_DOC_H
#define SCHEMA_DOC_H

#include "base/buf.h"
#include "grammar_budget.h"
#include "ids.h"

enum sval_kind {
    SVAL_NULL,
    SVAL_FALSE,
    SVAL_TRUE,
    SVAL_NUMBER,
    SVAL_STRING,
    SVAL_ARRAY,
    SVAL_OBJECT
};

struct sval {
    enum sval_kind kind;
    int32_t id;      /* in the order of the text */
    const char *s;   /* a string's bytes, or a number's text; ends in NUL */
    size_t n;        /* bytes of s, or members */
    struct sval *up; /* the array or object around it, NULL: the whole document */
    const char *key; /* of a member of an object, ends in NUL; else NULL */
    size_t key_n;
    struct sval *first, *last, *next; /* members; the next one beside it */
    struct sval *same;                /* a made one that stands for this one; else NULL */
};

struct sdoc {
    struct budget *budget;
    struct sval *root;
    struct sval **val; /* [n_val] by id */
    size_t n_val, cap_val;
    struct ids keys; /* of members of objects */
    struct sdoc_block *block;
};

/* text[len] -> d; cb_sdoc_free() in any case. CB_EARG: it is no JSON, with line and column */
int cb_sdoc_read(struct sdoc *d, struct budget *b, const char *text, size_t len);
void cb_sdoc_free(struct sdoc *d);

/* A member of object v; NULL: v is none, or has none such */
struct sval *cb_sdoc_get(const struct sdoc *d, const struct sval *v, const char *key, size_t n);
/* A new value in `up` (NULL: in none), for schemas that stand for a part of another one. A key
 * must be a new one. NULL after a failure */
struct sval *cb_sdoc_add(struct sdoc *d, struct sval *up, const char *key, enum sval_kind kind,
                         int *rc);
/* The same that stands for v */
struct sval *cb_sdoc_link(struct sdoc *d, struct sval *up, const char *key, struct sval *v,
                          int *rc);
/* 1: the same JSON value, numbers by their value */
int cb_sdoc_equal(const struct sdoc *d, const struct sval *a, const struct sval *b);
/* The value as compact JSON, appended */
void cb_sdoc_write(const struct sval *v, struct buf *b);

#endif
