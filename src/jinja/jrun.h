/* SPDX-License-Identifier: MIT */
/* jrun.h - one compilation or evaluation of a template: its memory, its limits, where it is. */
#ifndef JRUN_H
#define JRUN_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"

/* What a hostile template may use at most. */
struct jinja_limits {
    size_t memory_bytes; /* all values together; nothing is freed before the end */
    size_t output_bytes;
    uint64_t steps; /* nodes evaluated, elements and 256 bytes of text touched */
    int depth;      /* nested expressions, calls and data */
};

struct jblock;
struct jmachine;

struct jrun {
    struct jinja_limits limit;
    struct jblock *block; /* the newest first */
    size_t used;          /* bytes of all blocks */
    uint64_t steps;
    int depth;
    int line; /* of the template; 0 = none */
    struct tm now;
    uint8_t *ones; /* [n_ones] 1: the origin of texts that come from values */
    size_t n_ones;
    const struct jmachine *machine; /* expression.h */
};

void cb_jrun_open(struct jrun *r, const struct jinja_limits *limit);
void cb_jrun_close(struct jrun *r);

/* Zeroed memory of n * size bytes, valid until cb_jrun_close(); NULL after a failure is recorded.
 */
void *cb_jalloc(struct jrun *r, size_t n, size_t size);
/* Counts one step and `bytes` of text that it reads or writes. */
int cb_jstep(struct jrun *r, size_t bytes);
int cb_jdeeper(struct jrun *r); /* the caller decrements r->depth again if it succeeded */

/* Records "chat template, line N: WHY"; returns CB_EFORMAT. */
int cb_jfail(const struct jrun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
