/* SPDX-License-Identifier: MIT */
/* program_check.c - what follows from a compiled grammar: which rules may be empty, which can never
 * be completed, with what each begins, and in which order rules call each other. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "program.h"

/* ---- a property that instructions have because others have it ---- */

struct spread {
    const struct program *p;
    int bytes_pass; /* 1: OP_SET has the property if what follows has it; 0: never */
    uint8_t *has;   /* [n_code] */
    int32_t *from;  /* [n_code + 1] user[from[i]..from[i + 1]): instructions that look at i */
    int32_t *user;
    int32_t *queue; /* [n_code] */
};

static int32_t called(const struct program *p, const struct inst *x)
{
    return p->rule[x->arg].start;
}

/* The instructions that x looks at -> at; returns how many. */
static int looks_at(const struct program *p, const struct inst *x, int32_t at[2])
{
    if (x->op == OP_END || x->op == OP_RET || x->op == OP_FAIL)
        return 0;
    at[0] = x->next;
    at[1] = x->op == OP_SPLIT ? x->arg : x->op == OP_CALL ? called(p, x) : 0;
    return x->op == OP_SPLIT || x->op == OP_CALL ? 2 : 1;
}

static int holds(const struct spread *s, const struct inst *x)
{
    switch (x->op) {
    case OP_RET:
        return 1;
    case OP_SET:
        return s->bytes_pass && s->has[x->next];
    case OP_SPLIT:
        return s->has[x->next] || s->has[x->arg];
    case OP_CALL:
        return s->has[x->next] && s->has[called(s->p, x)];
    case OP_JUMP:
        return s->has[x->next];
    case OP_END:
    case OP_FAIL:
        break;
    }
    return 0;
}

static void find_users(struct spread *s)
{
    const struct program *p = s->p;
    int32_t at[2];

    for (size_t i = 0; i < p->n_code; i++)
        for (int k = looks_at(p, &p->code[i], at); k-- > 0;)
            s->from[at[k] + 1]++;
    for (size_t i = 0; i < p->n_code; i++)
        s->from[i + 1] += s->from[i];
    for (size_t i = 0; i < p->n_code; i++)
        for (int k = looks_at(p, &p->code[i], at); k-- > 0;)
            s->user[s->from[at[k]]++] = (int32_t)i;
    for (size_t i = p->n_code; i > 0; i--) /* each start has moved to its end */
        s->from[i] = s->from[i - 1];
    s->from[0] = 0;
}

static void spread(struct spread *s)
{
    const struct program *p = s->p;
    size_t n = 0;

    for (size_t i = 0; i < p->n_code; i++)
        if (p->code[i].op == OP_RET) {
            s->has[i] = 1;
            s->queue[n++] = (int32_t)i;
        }
    while (n > 0) {
        const int32_t i = s->queue[--n];
        for (int32_t k = s->from[i]; k < s->from[i + 1]; k++) {
            const int32_t u = s->user[k];
            if (!s->has[u] && holds(s, &p->code[u])) {
                s->has[u] = 1;
                s->queue[n++] = u;
            }
        }
    }
}

/* has[n_code]: can instruction i reach the end of its rule, without a byte unless bytes_pass? */
static int reach_end(const struct program *p, int bytes_pass, uint8_t *has)
{
    struct spread s = { .p = p, .bytes_pass = bytes_pass, .has = has };
    int rc = CB_ENOMEM;

    s.from = cb_calloc(p->n_code + 2, sizeof *s.from);
    s.user = cb_calloc(2 * p->n_code, sizeof *s.user);
    s.queue = cb_calloc(p->n_code, sizeof *s.queue);
    memset(has, 0, p->n_code);
    if (s.from && s.user && s.queue) {
        find_users(&s);
        spread(&s);
        rc = CB_OK;
    }
    free(s.from);
    free(s.user);
    free(s.queue);
    return rc;
}

/* ---- what each rule begins with ---- */

struct firsts {
    struct program *p;
    int32_t *seen;  /* [n_code] number of the last rule that reached it, plus 1 */
    int32_t *stack; /* [n_code + 1] */
    size_t n, n_first, cap_first;
};

static void reach(struct firsts *f, int32_t rule, int32_t pc)
{
    if (f->seen[pc] == rule + 1)
        return;
    f->seen[pc] = rule + 1;
    f->stack[f->n++] = pc;
}

static int add_first(struct firsts *f, int32_t pc)
{
    TRY(cb_grow(&f->p->first_pc, &f->cap_first, f->n_first + 1, sizeof pc));
    f->p->first_pc[f->n_first++] = pc;
    return CB_OK;
}

static int first_of(struct firsts *f, int32_t rule)
{
    const struct program *p = f->p;

    f->p->rule[rule].first = (int32_t)f->n_first;
    reach(f, rule, p->rule[rule].start);
    while (f->n > 0) {
        const int32_t pc = f->stack[--f->n];
        const struct inst *x = &p->code[pc];
        if (x->op == OP_SET || x->op == OP_CALL)
            TRY(add_first(f, pc));
        if (x->op == OP_SPLIT)
            reach(f, rule, x->arg);
        if (x->op == OP_SPLIT || x->op == OP_JUMP || (x->op == OP_CALL && p->rule[x->arg].nullable))
            reach(f, rule, x->next);
    }
    f->p->rule[rule].last = (int32_t)f->n_first;
    return CB_OK;
}

static int find_firsts(struct program *p)
{
    struct firsts f = { .p = p };
    int rc = CB_OK;

    f.seen = cb_calloc(p->n_code, sizeof *f.seen);
    f.stack = cb_calloc(p->n_code + 1, sizeof *f.stack);
    if (!f.seen || !f.stack)
        rc = CB_ENOMEM;
    for (size_t i = 0; !rc && i < p->n_rule; i++)
        rc = first_of(&f, (int32_t)i);
    free(f.seen);
    free(f.stack);
    return rc;
}

/* ---- the order of rules ---- */

/* The rule that is called by first_pc[i], -1 = none */
static int32_t first_call(const struct program *p, int32_t i)
{
    const struct inst *x = &p->code[p->first_pc[i]];
    return x->op == OP_CALL ? x->arg : -1;
}

/* Among the rules that are left some call each other in a circle; a rule of it. by[n_rule]: work
 * space for a caller of each */
static int32_t on_circle(const struct program *p, const int32_t *callers, int32_t *by)
{
    int32_t r = -1;

    for (int32_t c = 0; c < (int32_t)p->n_rule; c++)
        for (int32_t i = p->rule[c].first; callers[c] && i < p->rule[c].last; i++)
            if (first_call(p, i) >= 0)
                by[r = first_call(p, i)] = c;
    for (size_t steps = 0; steps < p->n_rule; steps++) /* to a caller, as often as there are */
        r = by[r];
    return r;
}

static int left_recursion(const struct rules *r, const struct program *p, const int32_t *callers)
{
    int32_t *by = cb_calloc(p->n_rule, sizeof *by);
    const int32_t id = by ? on_circle(p, callers, by) : -1;
    const struct named_rule *x = id >= 0 && id < (int32_t)r->n_rule ? &r->rule[id] : NULL;

    free(by);

    if (!x || !x->name_len)
        return cb_fail(CB_EARG, "grammar: a rule begins with itself (left recursion)");
    return cb_fail(CB_EARG, "grammar: rule '%.*s' begins with itself (left recursion)",
                   x->name_len < 60 ? (int)x->name_len : 60, r->text.s + x->name);
}

/* Callers before the rules with which they begin */
static int rank(const struct rules *r, struct program *p)
{
    int32_t *callers = cb_calloc(p->n_rule, sizeof *callers);
    size_t n = 0;
    int rc = CB_OK;

    p->by_rank = cb_calloc(p->n_rule, sizeof *p->by_rank);
    if (!callers || !p->by_rank) {
        free(callers);
        return CB_ENOMEM;
    }
    for (size_t c = 0; c < p->n_rule; c++)
        for (int32_t i = p->rule[c].first; i < p->rule[c].last; i++)
            if (first_call(p, i) >= 0)
                callers[first_call(p, i)]++;
    for (size_t c = 0; c < p->n_rule; c++)
        if (!callers[c])
            p->by_rank[n++] = (int32_t)c;
    for (size_t k = 0; k < n; k++) {
        struct program_rule *x = &p->rule[p->by_rank[k]];
        x->rank = (int32_t)k;
        for (int32_t i = x->first; i < x->last; i++)
            if (first_call(p, i) >= 0 && --callers[first_call(p, i)] == 0)
                p->by_rank[n++] = first_call(p, i);
    }
    if (n < p->n_rule)
        rc = left_recursion(r, p, callers);
    free(callers);
    return rc;
}

/* ---- all of it ---- */

static void drop_dead_ends(struct program *p, const uint8_t *ends)
{
    for (size_t i = 1; i < p->n_code; i++)
        if (!ends[i])
            p->code[i] = (struct inst){ .op = OP_FAIL };
}

/* Instructions lead past jumps, so that a call after which nothing follows shows as that. */
static int32_t past_jumps(const struct program *p, int32_t pc)
{
    while (p->code[pc].op == OP_JUMP)
        pc = p->code[pc].next;
    return pc;
}

static void thread_jumps(struct program *p)
{
    for (size_t i = 0; i < p->n_code; i++) {
        struct inst *x = &p->code[i];
        x->next = past_jumps(p, x->next);
        if (x->op == OP_SPLIT)
            x->arg = past_jumps(p, x->arg);
    }
}

static int check(const struct rules *r, struct program *p, uint8_t *has)
{
    TRY(reach_end(p, 1, has));
    drop_dead_ends(p, has);
    if (p->code[p->rule[p->root].start].op == OP_FAIL)
        return cb_fail(CB_EARG, "grammar: no text fits it: its first rule can never be completed");
    thread_jumps(p);
    TRY(reach_end(p, 0, has));
    for (size_t i = 0; i < p->n_rule; i++)
        p->rule[i].nullable = has[p->rule[i].start];
    TRY(find_firsts(p));
    return rank(r, p);
}

int cb_program_check(const struct rules *r, struct program *p)
{
    enum { EACH = 24 }; /* bytes of the tables above for an instruction */
    uint8_t *has;
    int rc;

    TRY(cb_budget_bytes(r->budget, 0, EACH * p->n_code));
    TRY(cb_budget_steps(r->budget, p->n_code / 4));
    has = cb_calloc(p->n_code, 1);
    rc = has ? check(r, p, has) : CB_ENOMEM;
    free(has);
    cb_budget_bytes(r->budget, EACH * p->n_code, 0);
    return rc;
}
