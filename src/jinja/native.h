/* SPDX-License-Identifier: MIT */
/* native.h - functions that a template can call: filters, tests, methods, globals. */
#ifndef NATIVE_H
#define NATIVE_H

#include "jvalue.h"

struct jkwarg {
    struct jstr name;
    struct jv value;
};

struct jmacro; /* expression.h */

struct jargs {
    const struct jv *at; /* [n] */
    size_t n;
    const struct jkwarg *kw; /* [n_kw] */
    size_t n_kw;
};

/* self: what a filter, test or method is applied to */
typedef int (*jfn)(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out);

/* A function as a value */
struct jfunc {
    jfn fn;         /* NULL: a macro */
    struct jv self; /* of a method */
    struct jmacro *macro;
    const char *name; /* of a method or global */
};

struct jentry {
    const char *name;
    jfn fn;
};

/* The row of table[n] whose name is s, NULL = none */
jfn cb_jentry(const struct jentry *table, size_t n, const struct jstr *s);

/* Argument i, also given by `name`; NULL: not given */
const struct jv *cb_jarg(const struct jargs *a, size_t i, const char *name);
const struct jv *cb_jkw(const struct jargs *a, const char *name);
int cb_jarg_int(struct jrun *r, const struct jargs *a, size_t i, const char *name, int64_t *out);
int cb_jarg_true(const struct jargs *a, size_t i, const char *name, int otherwise);
/* *out is left alone if the argument is not given; NONE counts so too */
int cb_jarg_str(struct jrun *r, const struct jargs *a, size_t i, const char *name,
                struct jstr *out);
int cb_jargs_most(struct jrun *r, const struct jargs *a, const char *who, size_t most);
struct jargs cb_jargs_from(const struct jargs *a, size_t i); /* without the first i */

/* What there is by a name; NULL = nothing */
jfn cb_jfilter(const struct jstr *name); /* filters.c */
jfn cb_jtest(const struct jstr *name);   /* is_tests.c */
jfn cb_jglobal(const struct jstr *name); /* globals.c */

#endif
