/* SPDX-License-Identifier: MIT */
/* rules.h - a grammar as rules of expressions: what the readers make, and program.c compiles. */
#ifndef RULES_H
#define RULES_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "grammar_budget.h"
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

/* What is beyond the budget, and memory that runs out, is remembered: the functions below then
 * return 0, which is EX_EMPTY, and cb_rules_check() fails. */
struct rules {
    struct budget *budget;
    struct expr *expr;
    struct char_range *range;
    struct named_rule *rule;
    size_t n_expr, cap_expr, n_range, cap_range, n_rule, cap_rule;
    struct buf text;
    struct ids names;
    struct buf notes; /* lines: what a reader could not say exactly */
    int failed;       /* status */
};

void cb_rules_init(struct rules *r, struct budget *b);
void cb_rules_free(struct rules *r);
int cb_rules_check(const struct rules *r); /* the status of what failed */
/* Drops what was made since `old` was copied; named rules must not be among it. */
void cb_rules_back(struct rules *r, const struct rules *old);

int cb_rule_new(struct rules *r);                                 /* one without a name */
int cb_rule_named(struct rules *r, const char *name, size_t len); /* found, or made */

/* An expression is a member of one other expression; what is used often is a rule. */
int cb_ex_empty(struct rules *r);
int cb_ex_text(struct rules *r, const char *s, size_t n);
void cb_ranges_sort(struct char_range *range, size_t n);
/* Sorts range[n] and joins those that touch -> out[n + 1], negated: all other characters; returns
 * how many there are. */
size_t cb_ranges_join(struct char_range *range, size_t n, int negated, struct char_range *out);
/* Sorts and joins the ranges in place. negated: all other characters */
int cb_ex_chars(struct rules *r, struct char_range *range, size_t n, int negated);
int cb_ex_rule(struct rules *r, int rule);
int cb_ex_repeat(struct rules *r, int x, int min, int max);

struct ex_list {
    int first, last, n;
};
void cb_ex_add(struct rules *r, struct ex_list *l, int x);
int cb_ex_seq(struct rules *r, const struct ex_list *l); /* of one: that one */
int cb_ex_pair(struct rules *r, int a, int b);           /* a, then b */
int cb_ex_alt(struct rules *r, const struct ex_list *l);

#endif
