/* SPDX-License-Identifier: MIT */
/* expression.h - the values of expressions. */
#ifndef EXPRESSION_H
#define EXPRESSION_H

#include "ast.h"

struct var {
    struct var *next;
    struct jstr name;
    struct jv value;
};

/* Variables; those of the enclosing scopes are seen through it. */
struct scope {
    struct scope *up;
    struct var *var;
};

struct jmacro {
    const struct node *n; /* N_MACRO or N_CALL_BLOCK: params, kids */
    struct scope *scope;  /* where it was defined */
};

struct jloop {
    const struct jlist *items;
    size_t i;
    int depth;         /* 0: not within another one of the same recursive loop */
    struct jv changed; /* what loop.changed() was last given */
    const struct node *n;
    struct scope *scope; /* in which the loop stands */
};

/* What expressions call that statements do */
struct jmachine {
    int (*macro)(struct jrun *r, const struct jmacro *m, const struct jargs *a, struct jv *out);
    int (*loop)(struct jrun *r, const struct jloop *l, const struct jv *items, struct jv *out);
    const struct jdict *given; /* variables from outside */
};

/* in: the value of an N_INPUT; may be NULL */
int cb_jeval(struct jrun *r, struct scope *s, const struct node *n, const struct jv *in,
             struct jv *out);
/* An N_CALL with one more named argument */
int cb_jeval_call(struct jrun *r, struct scope *s, const struct node *n, const struct jkwarg *more,
                  struct jv *out);
int cb_jassign(struct jrun *r, struct scope *s, const struct node *target, const struct jv *v);
int cb_jscope_set(struct jrun *r, struct scope *s, const struct jstr *name, const struct jv *v);

#endif
