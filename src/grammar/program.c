/* SPDX-License-Identifier: MIT */
/* program.c - compiles rules to instructions on bytes. Each expression is compiled backwards: what
 * follows it is known when its own instructions are written. */
#include "program.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/utf8.h"

enum {
    MOST_CODE = 1 << 21,
    MOST_DEPTH = 1500,    /* of expressions in each other */
    MOST_RANGES = 10000,  /* of one class */
    COPIED = 16,          /* instructions that a repeated expression may have to be copied */
    MOST_COPIES = 1 << 16 /* instructions in all copies */
};

struct compiler {
    const struct rules *r;
    struct program *p;
    struct ids sets;
    struct body {
        int32_t rule, expr;
    } * body; /* repeated expressions that have become rules */
    size_t n_body, cap_body;
    int depth;
};

/* Returns the instruction's number. */
static int emit(struct compiler *c, enum inst_op op, int32_t next, int32_t arg)
{
    struct program *p = c->p;

    if (p->n_code >= MOST_CODE)
        return cb_fail(CB_EUNSUPPORTED, "grammar: it is too large: more than %d steps", MOST_CODE);
    TRY(cb_budget_steps(c->r->budget, 1));
    TRY(cb_budget_grow(c->r->budget, (void **)&p->code, &p->cap_code, p->n_code + 1,
                       sizeof *p->code));
    p->code[p->n_code] = (struct inst){ op, next, arg };
    return (int)p->n_code++;
}

/* ---- sets of bytes ---- */

struct wanted_set {
    const struct program *p;
    const struct byte_set *set;
};

static int same_set(const void *ctx, int32_t id)
{
    const struct wanted_set *w = ctx;
    return !memcmp(&w->p->set[id], w->set, sizeof *w->set);
}

static int emit_set(struct compiler *c, const struct byte_set *set, int32_t next)
{
    struct program *p = c->p;
    const struct wanted_set w = { p, set };
    const int32_t fresh = (int32_t)p->n_set;
    const uint64_t hash = cb_siphash(&c->sets.key, set, sizeof *set);
    int32_t id;

    TRY(cb_budget_grow(c->r->budget, (void **)&p->set, &p->cap_set, p->n_set + 1, sizeof *set));
    TRY(id = cb_ids_find(&c->sets, hash, same_set, &w, fresh));
    if (id == fresh)
        p->set[p->n_set++] = *set;
    return emit(c, OP_SET, next, id);
}

static void set_add(struct byte_set *s, int from, int to)
{
    for (int b = from; b <= to; b++)
        s->bit[b >> 6] |= 1ull << (b & 63);
}

/* ---- characters ---- */

/* Sets of bytes that lead to the same instruction become one. */
struct lead {
    struct byte_set set;
    int32_t next;
};

struct chars {
    struct compiler *c;
    int32_t next;      /* what follows the class */
    struct lead *lead; /* [n_lead] first bytes */
    struct lead *tail; /* [n_tail] later bytes: set -> the instruction that was made of it */
    int32_t *made;     /* [n_tail] */
    size_t n_lead, cap_lead, n_tail, cap_tail, cap_made;
};

/* A later byte from..to that leads to `next`; made once */
static int tail(struct chars *x, int from, int to, int32_t next)
{
    struct lead l = { .next = next };
    int pc;

    set_add(&l.set, from, to);
    TRY(cb_budget_steps(x->c->r->budget, x->n_tail / 16));
    for (size_t i = 0; i < x->n_tail; i++)
        if (x->tail[i].next == next && !memcmp(&x->tail[i].set, &l.set, sizeof l.set))
            return x->made[i];
    TRY(cb_grow(&x->tail, &x->cap_tail, x->n_tail + 1, sizeof *x->tail));
    TRY(cb_grow(&x->made, &x->cap_made, x->n_tail + 1, sizeof *x->made));
    TRY(pc = emit_set(x->c, &l.set, next));
    x->tail[x->n_tail] = l;
    x->made[x->n_tail++] = pc;
    return pc;
}

static int lead(struct chars *x, int from, int to, int32_t next)
{
    for (size_t i = 0; i < x->n_lead; i++)
        if (x->lead[i].next == next) {
            set_add(&x->lead[i].set, from, to);
            return CB_OK;
        }
    TRY(cb_grow(&x->lead, &x->cap_lead, x->n_lead + 1, sizeof *x->lead));
    x->lead[x->n_lead] = (struct lead){ .next = next };
    set_add(&x->lead[x->n_lead++].set, from, to);
    return CB_OK;
}

/* Characters from..to, all of n bytes, whose bytes differ only where every later byte is free */
static int bytes(struct chars *x, uint32_t from, uint32_t to, int n)
{
    char a[4], b[4];
    int32_t next = x->next;

    cb_utf8_put(from, a);
    cb_utf8_put(to, b);
    for (int i = n - 1; i > 0; i--)
        TRY(next = tail(x, (uint8_t)a[i], (uint8_t)b[i], next));
    return lead(x, (uint8_t)a[0], (uint8_t)b[0], next);
}

/* Splits from..to at the blocks of 64, 4096 and 2^18 characters that it does not fill. */
static int split(struct chars *x, uint32_t from, uint32_t to, int n)
{
    for (int i = 1; i < n; i++) {
        const uint32_t low = (1u << 6 * i) - 1;
        if ((from | low) == (to | low))
            continue;
        if (from & low) {
            TRY(split(x, from, from | low, n));
            return split(x, (from | low) + 1, to, n);
        }
        if ((to & low) != low) {
            TRY(split(x, from, (to & ~low) - 1, n));
            return split(x, to & ~low, to, n);
        }
    }
    return bytes(x, from, to, n);
}

static int range(struct chars *x, uint32_t from, uint32_t to)
{
    static const struct char_range by_length[] = {
        { 0, 0x7F }, { 0x80, 0x7FF }, { 0x800, 0xD7FF }, { 0xE000, 0xFFFF }, { 0x10000, 0x10FFFF }
    };
    static const int n[] = { 1, 2, 3, 3, 4 };

    for (int i = 0; i < 5; i++) {
        const uint32_t a = from > by_length[i].from ? from : by_length[i].from;
        const uint32_t b = to < by_length[i].to ? to : by_length[i].to;
        if (a <= b)
            TRY(split(x, a, b, n[i]));
    }
    return CB_OK;
}

static int chars(struct compiler *c, const struct expr *e, int32_t next)
{
    struct chars x = { .c = c, .next = next };
    int pc = CB_OK, one;

    if (e->n > MOST_RANGES)
        return cb_fail(CB_EUNSUPPORTED, "grammar: a class of more than %d ranges", MOST_RANGES);
    for (int i = 0; !pc && i < e->n; i++)
        pc = range(&x, c->r->range[e->a + i].from, c->r->range[e->a + i].to);
    if (!pc && !x.n_lead)
        pc = emit(c, OP_FAIL, 0, 0);
    for (size_t i = 0; pc >= 0 && i < x.n_lead; i++) {
        one = emit_set(c, &x.lead[i].set, x.lead[i].next);
        pc = one < 0 || !i ? one : emit(c, OP_SPLIT, one, pc);
    }
    free(x.lead);
    free(x.tail);
    free(x.made);
    return pc;
}

static int text(struct compiler *c, const struct expr *e, int32_t next)
{
    for (int i = e->n; i-- > 0;) {
        const uint8_t byte = (uint8_t)c->r->text.s[e->a + i];
        struct byte_set set = { { 0 } };
        set_add(&set, byte, byte);
        TRY(next = emit_set(c, &set, next));
    }
    return next;
}

/* ---- expressions ---- */

static int expr(struct compiler *c, int x, int32_t next);

static int sequence(struct compiler *c, const struct expr *e, int32_t next)
{
    int32_t *member;
    int n = 0, rc = next;

    for (int32_t i = e->a; i >= 0; i = c->r->expr[i].next)
        n++;
    if (!n)
        return next;
    member = cb_calloc((size_t)n, sizeof *member);
    if (!member)
        return CB_ENOMEM;
    n = 0;
    for (int32_t i = e->a; i >= 0; i = c->r->expr[i].next)
        member[n++] = i;
    while (n-- > 0 && rc >= 0)
        rc = expr(c, member[n], rc);
    free(member);
    return rc;
}

static int choice(struct compiler *c, const struct expr *e, int32_t next)
{
    int pc = -1, one;

    for (int32_t i = e->a; i >= 0; i = c->r->expr[i].next) {
        TRY(one = expr(c, i, next));
        TRY(pc = pc < 0 ? one : emit(c, OP_SPLIT, pc, one));
    }
    return pc < 0 ? next : pc;
}

/* About how many instructions it has; stops counting when they are too many to be copied. */
static int size(const struct compiler *c, int x, int depth)
{
    const struct expr *e = &c->r->expr[x];
    int n = 1;

    if (depth > 3)
        return COPIED + 1;
    if (e->op == EX_TEXT)
        return e->n + 1;
    if (e->op == EX_CHARS)
        return e->n <= 4 ? 9 : COPIED + 1;
    if (e->op == EX_REPEAT)
        return COPIED + 1;
    if (e->op == EX_SEQ || e->op == EX_ALT)
        for (int32_t i = e->a; i >= 0 && n <= COPIED; i = c->r->expr[i].next)
            n += size(c, i, depth + 1);
    return n;
}

/* A rule of its own for expression x, compiled later */
static int rule_of(struct compiler *c, int x, int32_t *rule)
{
    struct program *p = c->p;

    if (c->n_body == MOST_CODE)
        return cb_fail(CB_EUNSUPPORTED, "grammar: it is too large");
    TRY(cb_budget_grow(c->r->budget, (void **)&c->body, &c->cap_body, c->n_body + 1,
                       sizeof *c->body));
    *rule = (int32_t)(p->n_rule + c->n_body);
    c->body[c->n_body++] = (struct body){ *rule, x };
    return CB_OK;
}

/* One more of a repeated expression: a copy, or a call of the rule that it has become */
static int once(struct compiler *c, int x, int32_t rule, int32_t next)
{
    return rule < 0 ? expr(c, x, next) : emit(c, OP_CALL, next, rule);
}

static int repeat(struct compiler *c, const struct expr *e, int32_t next)
{
    const int copies = e->max < 0 ? e->n + 1 : e->max, each = size(c, e->a, 0);
    int32_t rule = -1, pc = next;

    if (copies > 1 && (each > COPIED || copies > MOST_COPIES / each))
        TRY(rule_of(c, e->a, &rule));
    if (e->max < 0) {
        int32_t loop, body;
        TRY(loop = emit(c, OP_SPLIT, 0, next));
        TRY(body = once(c, e->a, rule, loop));
        c->p->code[loop].next = body;
        pc = loop;
    }
    for (int i = e->n; i < e->max; i++) {
        TRY(pc = once(c, e->a, rule, pc));
        TRY(pc = emit(c, OP_SPLIT, pc, next));
    }
    for (int i = 0; i < e->n; i++)
        TRY(pc = once(c, e->a, rule, pc));
    return pc;
}

static int expr_at(struct compiler *c, int x, int32_t next)
{
    const struct expr *e = &c->r->expr[x];

    switch (e->op) {
    case EX_EMPTY:
        return next;
    case EX_TEXT:
        return text(c, e, next);
    case EX_CHARS:
        return chars(c, e, next);
    case EX_SEQ:
        return sequence(c, e, next);
    case EX_ALT:
        return choice(c, e, next);
    case EX_REPEAT:
        return repeat(c, e, next);
    case EX_RULE:
        return emit(c, OP_CALL, next, e->a);
    }
    return next;
}

/* Returns where the instructions of expression x begin, after which `next` follows. */
static int expr(struct compiler *c, int x, int32_t next)
{
    int pc;

    if (++c->depth > MOST_DEPTH)
        return cb_fail(CB_EUNSUPPORTED, "grammar: expressions are nested deeper than %d",
                       MOST_DEPTH);
    pc = expr_at(c, x, next);
    c->depth--;
    return pc;
}

/* ---- rules ---- */

static int compile_rule(struct compiler *c, int32_t id, int32_t x)
{
    int ret, pc;

    TRY(ret = emit(c, OP_RET, 0, 0));
    if (x < 0)
        TRY(pc = emit(c, OP_FAIL, 0, 0)); /* nobody calls it */
    else
        TRY(pc = expr(c, x, ret));
    /* A rule begins with an instruction of its own, to which no loop leads back. */
    TRY(pc = emit(c, OP_JUMP, pc, 0));
    c->p->rule[id].start = pc;
    return CB_OK;
}

static int compile(struct compiler *c)
{
    struct program *p = c->p;
    size_t cap = p->n_rule;

    TRY(emit(c, OP_END, 0, 0));
    for (size_t i = 0; i < c->r->n_rule; i++)
        TRY(compile_rule(c, (int32_t)i, c->r->rule[i].expr));
    for (size_t i = 0; i < c->n_body; i++) { /* more come while they are compiled */
        TRY(cb_budget_grow(c->r->budget, (void **)&p->rule, &cap, (size_t)c->body[i].rule + 1,
                           sizeof *p->rule));
        p->rule[c->body[i].rule] = (struct program_rule){ 0 };
        TRY(compile_rule(c, c->body[i].rule, c->body[i].expr));
    }
    p->n_rule += c->n_body;
    return CB_OK;
}

/* Bytes that no set tells apart are a class. */
static void find_classes(struct program *p)
{
    uint8_t differs[256] = { 0 }; /* from the byte before */

    for (size_t i = 0; i < p->n_set; i++)
        for (int b = 1; b < 256; b++)
            differs[b] |= cb_set_has(&p->set[i], b) != cb_set_has(&p->set[i], b - 1);
    p->n_class = 0;
    for (int b = 0; b < 256; b++) {
        if (b == 0 || differs[b])
            p->byte_of[p->n_class++] = (uint8_t)b;
        p->class_of[b] = (uint8_t)(p->n_class - 1);
    }
}

int cb_program_make(const struct rules *r, int root, struct program *p)
{
    struct compiler c = { .r = r, .p = p };
    int rc;

    *p = (struct program){ .root = root, .n_rule = r->n_rule };
    cb_ids_init(&c.sets);
    p->rule = cb_calloc(r->n_rule, sizeof *p->rule);
    rc = p->rule ? compile(&c) : CB_ENOMEM;
    cb_ids_free(&c.sets);
    free(c.body);
    if (!rc)
        rc = cb_program_check(r, p);
    if (!rc)
        find_classes(p);
    else
        cb_program_free(p);
    return rc;
}

size_t cb_program_bytes(const struct program *p)
{
    return p->cap_code * (sizeof *p->code + sizeof *p->first_pc) + p->cap_set * sizeof *p->set +
           p->n_rule * (sizeof *p->rule + sizeof *p->by_rank);
}

void cb_program_free(struct program *p)
{
    free(p->code);
    free(p->set);
    free(p->rule);
    free(p->first_pc);
    free(p->by_rank);
    *p = (struct program){ 0 };
}
