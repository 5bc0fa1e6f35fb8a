/* SPDX-License-Identifier: MIT */
/* ast.h - a parsed template: nodes of statements and expressions. */
#ifndef AST_H
#define AST_H

#include "native.h"

enum node_kind {
    /* expressions */
    N_CONST,  /* v */
    N_NAME,   /* v.str */
    N_LIST,   /* kids */
    N_TUPLE,  /* kids */
    N_DICT,   /* kids: key, value, key, value ... */
    N_ATTR,   /* a . v.str */
    N_ITEM,   /* a [b] */
    N_SLICE,  /* a [kids: from, to, step; each an N_CONST NONE if left out] */
    N_CALL,   /* a (kids); a kid with v.str is N_KWARG */
    N_KWARG,  /* v.str = a */
    N_FILTER, /* a | fn(kids) */
    N_TEST,   /* a is fn(kids); op: 1 = is not */
    N_NOT,
    N_NEG,
    N_POS,
    N_AND,
    N_OR,
    N_IF_ELSE, /* a if b else c; c may be NULL */
    N_BINARY,  /* a op b; op: a character, 'p' for **, 'd' for // */
    N_COMPARE, /* a, then kids, each with op: '<' '>' 'l' 'g' '=' '!' 'i' 'n' */
    /* statements */
    N_TEXT,       /* v */
    N_PRINT,      /* a */
    N_IF,         /* a, kids; other: op 0 the N_IF of elif, 1 the statements of else */
    N_FOR,        /* for a in b if c: kids, other; op: 1 = recursive */
    N_SET,        /* a = b */
    N_SET_TO,     /* a = what kids write, through the filters b */
    N_NSATTR,     /* v.str . b->v.str, what a set statement assigns to */
    N_MACRO,      /* v.str, params, kids */
    N_CALL_BLOCK, /* a: the call; params, kids */
    N_FILTERED,   /* kids through the filters b, whose innermost operand is N_INPUT */
    N_WITH,       /* params: names with values; kids */
    N_SCOPE,      /* kids: {% generation %} */
    N_BREAK,
    N_CONTINUE,
    N_INPUT
};

struct node {
    enum node_kind kind;
    int line, op;
    struct node *next; /* in a list */
    struct node *a, *b, *c;
    struct node *kids, *other;
    struct node *params; /* N_KWARG: name and default, a = NULL: none */
    struct jv v;
    jfn fn;
};

/* Source text -> the first of the template's statements, in r's memory; NULL = an empty template */
int cb_jparse(struct jrun *r, const char *src, size_t n, struct node **out);

#endif
