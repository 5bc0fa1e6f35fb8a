/* SPDX-License-Identifier: MIT */
/* program.h - a grammar compiled to instructions on bytes, which matcher.c follows. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <stdint.h>

#include "rules.h"

enum inst_op {
    OP_END,   /* the whole text may end here; instruction 0 alone */
    OP_SET,   /* one byte of set `arg` */
    OP_SPLIT, /* continue at `next` and at `arg` */
    OP_CALL,  /* rule `arg`, then `next` */
    OP_RET,   /* the rule is complete */
    OP_JUMP,
    OP_FAIL
};

struct inst {
    enum inst_op op;
    int32_t next, arg;
};

struct byte_set {
    uint64_t bit[4];
};

struct program_rule {
    int32_t start;
    int32_t rank;        /* rules that begin with a call of another one have lower ranks */
    int nullable;        /* 1: the empty text is one of the rule's */
    int32_t first, last; /* first_pc[first..last): the OP_SET and OP_CALL with which it begins */
};

struct program {
    struct inst *code;
    struct byte_set *set;
    struct program_rule *rule;
    int32_t *first_pc;
    int32_t *by_rank; /* [n_rule] */
    size_t n_code, cap_code, n_set, cap_set, n_rule;
    int32_t root;
    uint8_t class_of[256]; /* bytes of a class are in the same sets */
    uint8_t byte_of[256];  /* [n_class] one byte of each class */
    int n_class;
};

static inline int cb_set_has(const struct byte_set *s, int byte)
{
    return (int)(s->bit[byte >> 6] >> (byte & 63) & 1);
}

/* Rules that can never be completed are as if they were not there. CB_EARG: left recursion, or no
 * text fits the grammar; CB_EUNSUPPORTED: it is too large; CB_ENOMEM */
int cb_program_make(const struct rules *r, int root, struct program *p);
void cb_program_free(struct program *p);
size_t cb_program_bytes(const struct program *p);

/* For program.c: what follows from the code alone. program_check.c */
int cb_program_check(const struct rules *r, struct program *p);

#endif
