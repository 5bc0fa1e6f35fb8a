/* SPDX-License-Identifier: MIT */
/* jrun.c - memory in blocks that are freed together, and the limits on a template. */
#include "jrun.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct jblock {
    struct jblock *next;
    size_t n, cap;
    _Alignas(16) char at[];
};

enum { BLOCK_BYTES = 32768 };

void cb_jrun_open(struct jrun *r, const struct jinja_limits *limit)
{
    *r = (struct jrun){ .limit = *limit };
}

void cb_jrun_close(struct jrun *r)
{
    while (r->block) {
        struct jblock *b = r->block;
        r->block = b->next;
        free(b);
    }
    *r = (struct jrun){ 0 };
}

static int add_block(struct jrun *r, size_t bytes)
{
    const size_t cap = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
    struct jblock *b;

    if (cap > r->limit.memory_bytes - r->used)
        return cb_jfail(r, "needs more than %zu bytes of memory", r->limit.memory_bytes);
    b = cb_calloc(1, sizeof *b + cap);
    if (!b)
        return CB_ENOMEM;
    b->cap = cap;
    r->used += cap;
    if (r->block && cap != BLOCK_BYTES) { /* a large text: the newest small block stays in use */
        b->next = r->block->next;
        r->block->next = b;
        b->n = cap;
    } else {
        b->next = r->block;
        r->block = b;
    }
    return CB_OK;
}

void *cb_jalloc(struct jrun *r, size_t n, size_t size)
{
    const size_t most = r->limit.memory_bytes;
    struct jblock *b = r->block;
    size_t bytes;

    if (size && n > most / size) {
        cb_jfail(r, "needs more than %zu bytes of memory", most);
        return NULL;
    }
    bytes = (n * size + 15) / 16 * 16;
    if (b && bytes <= b->cap - b->n) {
        b->n += bytes;
        return b->at + b->n - bytes;
    }
    if (add_block(r, bytes) < 0)
        return NULL;
    if (b && r->block == b) /* a block of its own stands after the newest */
        return b->next->at;
    r->block->n += bytes;
    return r->block->at + r->block->n - bytes;
}

int cb_jstep(struct jrun *r, size_t bytes)
{
    r->steps += 1 + bytes / 256;
    if (r->steps > r->limit.steps)
        return cb_jfail(r, "takes more than %llu steps", (unsigned long long)r->limit.steps);
    return CB_OK;
}

int cb_jdeeper(struct jrun *r)
{
    if (r->depth >= r->limit.depth)
        return cb_jfail(r, "is nested more than %d deep", r->limit.depth);
    r->depth++;
    return CB_OK;
}

int cb_jfail(const struct jrun *r, const char *fmt, ...)
{
    char why[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (r->line)
        return cb_fail(CB_EFORMAT, "chat template: line %d: %s", r->line, why);
    return cb_fail(CB_EFORMAT, "chat template: %s", why);
}
