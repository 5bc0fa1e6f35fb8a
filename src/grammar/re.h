/* SPDX-License-Identifier: MIT */
/* re.h - regular expressions as nodes that know "and" and "not": what a string must fit at once, a
 * pattern, a length, a format, becomes one expression, whose derivatives (Brzozowski 1964) are the
 * states of an automaton. */
#ifndef RE_H
#define RE_H

#include "rules.h"

enum re_op {
    RE_NONE,   /* no text */
    RE_EMPTY,  /* the empty one */
    RE_CHARS,  /* one character of range[a..a + n) */
    RE_CAT,    /* a, then n */
    RE_ALT,    /* one of arg[a..a + n), ascending */
    RE_AND,    /* all of them */
    RE_NOT,    /* not a */
    RE_REPEAT, /* a, min to max times; max -1: any number */
    /* in what a pattern says alone, until cb_re_anchored() */
    RE_LOOK, /* what follows begins with a; n = 1: it does not */
    RE_START,
    RE_END
};

struct re_node {
    uint8_t op, nullable;
    uint8_t special; /* 1: it has one of the last three operators in it */
    int32_t a, n, min, max;
};

/* Equal nodes have one number. Failures are remembered, as in rules.h; functions return RE_NONE's
 * number then. */
struct re {
    struct budget *budget;
    struct re_node *node;
    struct char_range *range;
    int32_t *arg;
    size_t n_node, cap_node, n_range, cap_range, n_arg, cap_arg;
    struct ids nodes;
    int failed; /* status */
    int none, empty, any, all;
    int rough;  /* 1: what is not supported of looking around is left out: more texts fit */
    int n_left; /* such parts so far */
};

typedef int32_t re_id;

void cb_re_open(struct re *x, struct budget *b);
void cb_re_close(struct re *x);

/* Sorts and joins the ranges in place. */
re_id cb_re_chars(struct re *x, struct char_range *range, size_t n, int negated);
re_id cb_re_cat(struct re *x, re_id a, re_id b);
/* of list[n], which is put in order */
re_id cb_re_alt(struct re *x, re_id *list, size_t n);
re_id cb_re_and(struct re *x, re_id *list, size_t n);
re_id cb_re_and2(struct re *x, re_id a, re_id b);
re_id cb_re_not(struct re *x, re_id a);
re_id cb_re_repeat(struct re *x, re_id a, int min, int max);
re_id cb_re_look(struct re *x, re_id a, int negative);
re_id cb_re_mark(struct re *x, enum re_op op);           /* RE_START, RE_END */
re_id cb_re_text(struct re *x, const char *s, size_t n); /* UTF-8 */
/* A text of which node a is a part, or the whole one: without marks and looks. CB_EUNSUPPORTED: a
 * look-ahead in a repetition, or a ^ of which it depends on the text whether it is at the start */
int cb_re_anchored(struct re *x, re_id a, int is_part, re_id *out);

/* What may follow character c of a text of `a` */
re_id cb_re_after(struct re *x, re_id a, uint32_t c);
/* 1: text s[n] is one of a's; a status after a failure */
int cb_re_fits(struct re *x, re_id a, const char *s, size_t n);
/* Characters of which every node takes the same way: class c is range[from[c]..from[c + 1]) */
struct re_classes {
    struct char_range *range;
    size_t *from;
    size_t n;
};
int cb_re_classes(struct re *x, struct re_classes *c);
void cb_re_classes_free(struct re_classes *c);

#endif
