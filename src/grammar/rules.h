/* SPDX-License-Identifier: MIT */
/* rules.h - a grammar as rules of expressions: what the readers make, and program.c compiles. */
#ifndef RULES_H
#define RULES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "ids.h"

enum expr_op {
    EX_EMPTY,
    EX_TEXT,   /* bytes text[a..a + n) */
    EX_CHARS,  /* one character of range[a..a + n) */
    EX_SEQ,    /* the members from `a` on, by `next` */
    EX_ALT,    /* one of them */
    EX_REPEAT, /* expression a, n to max times; max -1: any number */
    EX_RULE    /* rule a */
};

struct expr {
    enum expr_op op;
    int32_t a, n, max;
    int32_t next; /* the next member of the same sequence or choice, -1 = none */
};

struct char_range {
    uint32_t from, to; /* code points, both included */
};

struct named_rule {
    size_t name, name_len; /* in `text`; len 0: made by a reader */
    int32_t expr;          /* -1 = not defined */
    const char *at;        /* for readers: where it was first named */
};

/* Memory that runs out is remembered: the functions below then return 0, which is EX_EMPTY, and
 * cb_rules_check() fails. */
struct rules {
    struct expr *expr;
    struct char_range *range;
    struct named_rule *rule;
    size_t n_expr, cap_expr, n_range, cap_range, n_rule, cap_rule;
    struct buf text;
    struct ids names;
    int failed;
};

void cb_rules_init(struct rules *r);
void cb_rules_free(struct rules *r);
int cb_rules_check(const struct rules *r); /* CB_ENOMEM if memory ran out */

int cb_rule_new(struct rules *r);                                 /* one without a name */
int cb_rule_named(struct rules *r, const char *name, size_t len); /* found, or made */

/* An expression is a member of one other expression; what is used often is a rule. */
int cb_ex_empty(struct rules *r);
int cb_ex_text(struct rules *r, const char *s, size_t n);
/* Sorts and joins the ranges in place. negated: all other characters */
int cb_ex_chars(struct rules *r, struct char_range *range, size_t n, int negated);
int cb_ex_rule(struct rules *r, int rule);
int cb_ex_repeat(struct rules *r, int x, int min, int max);

struct ex_list {
    int first, last, n;
};
void cb_ex_add(struct rules *r, struct ex_list *l, int x);
int cb_ex_seq(struct rules *r, const struct ex_list *l); /* of one: that one */
int cb_ex_alt(struct rules *r, const struct ex_list *l);

#endif
