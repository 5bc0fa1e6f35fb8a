/* SPDX-License-Identifier: MIT */
/* parse_expr.h - tokens to the nodes of expressions. */
#ifndef PARSE_EXPR_H
#define PARSE_EXPR_H

#include "ast.h"
#include "lexer.h"

struct parser {
    struct jrun *r;
    const struct token *t; /* the next token */
};

/* A list of nodes that grows at its end */
struct node_list {
    struct node *first, *last;
};

int cb_jnode(struct parser *p, enum node_kind kind, struct node **out);
void cb_jnode_add(struct node_list *l, struct node *n);
int cb_jparse_fail(struct parser *p, const char *expected);

int cb_jis_op(const struct parser *p, int op);
int cb_jis_name(const struct parser *p, const char *name);
int cb_jskip_op(struct parser *p, int op); /* 1: it was there */
int cb_jskip_name(struct parser *p, const char *name);
int cb_jtake_op(struct parser *p, int op); /* fails if it is not there */
int cb_jtake_name(struct parser *p, struct jv *out);

int cb_jparse_expr(struct parser *p, struct node **out); /* one, with if and else */
/* Expressions with commas between: a tuple, or the only one. if_else: each may have if and else */
int cb_jparse_tuple(struct parser *p, int if_else, struct node **out);
/* A name, a tuple of names, or namespace.attribute, to assign to */
int cb_jparse_target(struct parser *p, int attribute, struct node **out);
/* The filters after `in`, the first one without its '|' if `bare` */
int cb_jparse_filters(struct parser *p, struct node *in, int bare, struct node **out);

#endif
