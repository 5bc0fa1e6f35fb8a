/* SPDX-License-Identifier: MIT */
/* jvalue.h - the values of a template. They do not change once made, namespaces excepted. */
#ifndef JVALUE_H
#define JVALUE_H

#include "jrun.h"

enum jkind {
    J_UNDEFINED,
    J_NONE,
    J_BOOL,
    J_INT,
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_NAMESPACE,
    J_LOOP,
    J_FUNC
};

/* A text knows where each of its bytes comes from: own[i] is 0 for bytes that the template wrote,
 * 1 for bytes of a value that it was given. Every operation on texts keeps that. */
struct jstr {
    const char *s;
    const uint8_t *own; /* [n]; NULL: all bytes are the template's */
    size_t n;
};

struct jlist;
struct jdict;
struct jfunc; /* call.h */
struct jloop; /* expression.h */

struct jv {
    enum jkind kind;
    union {
        int64_t i; /* J_INT, J_BOOL */
        double f;
        struct jstr str; /* J_STR; J_UNDEFINED: the name that has no value */
        struct jlist *list;
        struct jdict *dict; /* J_DICT, J_NAMESPACE */
        struct jfunc *func;
        struct jloop *loop;
    };
};

struct jlist {
    struct jv *at;
    size_t n, cap;
};

struct jdict { /* in the order in which keys came */
    struct jpair {
        struct jv key, value;
    } * at;
    size_t n, cap;
};

/* ---- making ---- */

struct jv cb_jundef(const char *name); /* name: a constant */
struct jv cb_jbool(int yes);
struct jv cb_jint(int64_t i);
struct jv cb_jfloat(double f);
struct jv cb_jtext(const char *s); /* a constant of the program */
struct jv cb_jstr_of(struct jstr s);
struct jv cb_jslice(struct jstr s, size_t from, size_t to); /* bytes */
/* A copy of s[n] that counts as given from outside -> *out */
int cb_jgiven(struct jrun *r, const char *s, size_t n, struct jv *out);

int cb_jlist_new(struct jrun *r, size_t cap, struct jv *out);
int cb_jlist_add(struct jrun *r, struct jv *list, const struct jv *v); /* while it is being made */
int cb_jdict_new(struct jrun *r, struct jv *out);
int cb_jdict_put(struct jrun *r, struct jdict *d, const struct jv *key, const struct jv *value);
int cb_jdict_set(struct jrun *r, struct jdict *d, const char *key, struct jv value); /* constant */
/* *found: the value of a key, NULL = none */
int cb_jdict_get(struct jrun *r, const struct jdict *d, const struct jv *key,
                 const struct jv **found);
int cb_jdict_at(struct jrun *r, const struct jdict *d, const char *key, const struct jv **found);

/* ---- a text that grows ---- */

struct jout {
    struct jrun *r;
    char *s;
    uint8_t *own; /* NULL while all is the template's */
    size_t n, cap;
    size_t limit; /* bytes; 0 = that of memory */
};

int cb_jout_room(struct jout *o, size_t n); /* for n more bytes; exactly n if it is empty */
int cb_jout_put(struct jout *o, struct jstr s);
int cb_jout_text(struct jout *o, const char *s); /* the template's */
int cb_jout_bytes(struct jout *o, const char *s, size_t n, int own);
struct jv cb_jout_str(const struct jout *o);

/* ---- asking ---- */

const char *cb_jkind_name(const struct jv *v); /* as Python names its type */
int cb_jtrue(const struct jv *v);
int cb_jis_num(const struct jv *v);
double cb_jnum(const struct jv *v);               /* of a number or truth value */
int cb_jis_seq(const struct jv *v);               /* list or tuple */
int cb_jis(const struct jv *v, const char *text); /* is this text */
int cb_jequal(struct jrun *r, const struct jv *a, const struct jv *b, int *yes);
/* *order < 0, 0, > 0; fails if the two have no order */
int cb_jcompare(struct jrun *r, const struct jv *a, const struct jv *b, int *order);
int cb_jcontains(struct jrun *r, const struct jv *all, const struct jv *v, int *yes);
/* The elements of what can be iterated over: of a dict its keys, of a text its characters */
int cb_jitems(struct jrun *r, const struct jv *v, struct jv *list);
int cb_jlength(struct jrun *r, const struct jv *v, int64_t *n);

/* ---- characters ---- */

size_t cb_jchar(const struct jstr *s, size_t at);                /* bytes of the character there */
size_t cb_jchars(const char *s, size_t n);                       /* characters in n bytes */
size_t cb_jbyte_of(const struct jstr *s, size_t i);              /* where character i begins */
uint32_t cb_jcode(const struct jstr *s, size_t at, size_t *len); /* code point there */
int cb_jspace(uint32_t c);                                       /* Python's str.isspace */
struct jstr cb_jstrip(struct jstr s, const struct jstr *set, int left, int right);
/* where `part` is in s[from..to), -1 = nowhere */
int64_t cb_jfind(const struct jstr *s, size_t from, size_t to, const struct jstr *part);

#endif
