/* SPDX-License-Identifier: MIT */
/* grammar_budget.h - what reading and compiling one grammar may take: memory, steps, time. A
 * grammar may come from anybody, so every reader counts here, and what is beyond a limit is refused
 * by name. */
#ifndef GRAMMAR_BUDGET_H
#define GRAMMAR_BUDGET_H

#include <stddef.h>
#include <stdint.h>

#include "ctxbank.h"

/* 0: 256 MiB, 2^25 steps, 5 s */
struct grammar_limits {
    size_t memory_bytes;     /* at once */
    int64_t steps;           /* characters, members and expressions looked at */
    double seconds;          /* of the processor */
    int (*stop)(void *user); /* NULL, or asked now and then: 1 ends with CB_ECANCEL */
    /* NULL, or told of memory before it is taken, in pieces; its failure ends the reading. Never of
     * what is freed: cb_grammar_bytes() are left at the end. */
    int (*hold)(void *user, size_t bytes);
    void *user;
};

struct budget {
    struct grammar_limits most;
    size_t bytes; /* of all that is held now */
    size_t told;  /* of which hold() was told */
    int64_t steps;
    double until_s;  /* of the thread's processor time */
    int64_t look_at; /* steps at which the clock and `stop` are asked next */
};

/* limits: NULL: all 0 */
void cb_budget_open(struct budget *b, const struct grammar_limits *limits);
/* Counts n steps: a member, a character, an expression. CB_EUNSUPPORTED: beyond a limit, which
 * cb_error() names; CB_ECANCEL */
int cb_budget_steps(struct budget *b, size_t n);
/* Memory that grows or shrinks from `old` to `now` bytes */
int cb_budget_bytes(struct budget *b, size_t old, size_t now);
/* cb_grow() that counts */
int cb_budget_grow(struct budget *b, void **p, size_t *cap, size_t n, size_t size);
/* cb_calloc() that counts; NULL after a failure, whose status is *rc */
void *cb_budget_calloc(struct budget *b, size_t n, size_t size, int *rc);

#endif
