/* SPDX-License-Identifier: MIT */
/* re_expr.c - writes regular expressions as expressions of a grammar. */
#include "re_expr.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "grammar_budget.h"
#include "readers.h"

struct writer {
    struct re *x;
    struct rules *r;
    re_chars_fn chars;
    /* as it is written */
    uint8_t *uses; /* [n_node] 2: more than one */
    int32_t *rule; /* [n_node] of nodes that are used more than once, -1: not yet */
    /* as states */
    struct re_classes classes;
    struct state {
        re_id id;
        int32_t rule;
    } * state;
    size_t n_state, cap_state, most_states;
    struct ids states;
    struct char_range *range; /* room for all of the classes */
    re_id *next;              /* [classes.n] */
};

/* ---- as it is written ---- */

/* 1: there is "and" or "not" in it */
static int count_uses(struct writer *w, re_id a)
{
    int found = 0;

    for (;;) {
        const struct re_node *p = &w->x->node[a];
        w->uses[a] = w->uses[a] ? 2 : 1;
        if (p->op == RE_AND || p->op == RE_NOT)
            return 1;
        if (w->uses[a] > 1 || p->op <= RE_CHARS)
            return found;
        if (p->op == RE_ALT)
            for (int32_t i = 0; i < p->n; i++)
                found |= count_uses(w, w->x->arg[p->a + i]);
        if (p->op == RE_ALT)
            return found;
        if (p->op == RE_CAT)
            found |= count_uses(w, p->a);
        a = p->op == RE_CAT ? p->n : p->a;
    }
}

static int class_expr(struct writer *w, const struct re_node *p)
{
    struct char_range *copy = cb_calloc((size_t)p->n + 1, sizeof *copy);
    int e;

    if (!copy) {
        w->r->failed = CB_ENOMEM;
        return 0;
    }
    memcpy(copy, w->x->range + p->a, (size_t)p->n * sizeof *copy);
    e = w->chars(w->r, copy, (size_t)p->n, 0);
    free(copy);
    return e;
}

static int written(struct writer *w, re_id a);

/* Node a without a look at whether it is a rule */
static int plain(struct writer *w, re_id a)
{
    struct re_node p = w->x->node[a];
    struct ex_list l = { 0 };

    switch (p.op) {
    case RE_NONE:
        return w->chars(w->r, NULL, 0, 0);
    case RE_CHARS:
        return class_expr(w, &p);
    case RE_ALT:
        for (int32_t i = 0; i < p.n && !w->r->failed; i++)
            cb_ex_add(w->r, &l, written(w, w->x->arg[p.a + i]));
        return cb_ex_alt(w->r, &l);
    case RE_REPEAT:
        return cb_ex_repeat(w->r, written(w, p.a), p.min, p.max);
    case RE_CAT:
        for (; p.op == RE_CAT && !w->r->failed; p = w->x->node[a]) {
            cb_ex_add(w->r, &l, written(w, p.a));
            a = p.n;
            if (w->uses[a] > 1)
                break;
        }
        cb_ex_add(w->r, &l, written(w, a));
        return cb_ex_seq(w->r, &l);
    default:
        return cb_ex_empty(w->r);
    }
}

static int written(struct writer *w, re_id a)
{
    if (w->r->failed) /* plain() has stopped at this very node, perhaps */
        return 0;
    if (w->uses[a] < 2 || w->x->node[a].op <= RE_CHARS)
        return plain(w, a);
    if (w->rule[a] < 0) {
        const int rule = w->rule[a] = cb_rule_new(w->r);
        const int e = plain(w, a);
        if (!w->r->failed)
            w->r->rule[rule].expr = e;
    }
    return cb_ex_rule(w->r, w->rule[a]);
}

/* ---- as states ---- */

static int same_state(const void *ctx, int32_t id)
{
    const struct writer *w = ctx;
    return w->state[id].id == w->state[w->n_state].id;
}

static int state_of(struct writer *w, re_id a, int32_t *out)
{
    const int32_t fresh = (int32_t)w->n_state;
    int32_t id;

    TRY(cb_budget_grow(w->x->budget, (void **)&w->state, &w->cap_state, w->n_state + 1,
                       sizeof *w->state));
    w->state[fresh].id = a;
    TRY(id = cb_ids_find(&w->states, cb_siphash_word(&w->states.key, (uint64_t)a), same_state, w,
                         fresh));
    *out = id;
    if (id != fresh)
        return CB_OK;
    if (w->n_state == w->most_states)
        return cb_fail(CB_EUNSUPPORTED,
                       "regular expressions that must fit at once need more than "
                       "%zu states",
                       w->most_states);
    w->state[fresh].rule = cb_rule_new(w->r);
    w->n_state++;
    return cb_rules_check(w->r);
}

/* The class of all characters after which `to` follows */
static int chars_to(struct writer *w, re_id to)
{
    size_t n = 0;

    for (size_t c = 0; c < w->classes.n; c++)
        for (size_t i = w->classes.from[c]; w->next[c] == to && i < w->classes.from[c + 1]; i++)
            w->range[n++] = w->classes.range[i];
    return w->chars(w->r, w->range, n, 0);
}

static void step(struct writer *w, re_id a)
{
    for (size_t c = 0; c < w->classes.n; c++)
        w->next[c] = cb_re_after(w->x, a, w->classes.range[w->classes.from[c]].from);
}

/* The length that is part of "and" node a, and the rest of it; else -1 */
static re_id length_of(struct writer *w, re_id a, re_id *rest)
{
    const struct re_node p = w->x->node[a];
    re_id found = -1, *l;
    size_t n = 0;

    if (p.op != RE_AND)
        return -1;
    l = cb_calloc((size_t)p.n, sizeof *l);
    for (int32_t i = 0; l && i < p.n; i++) {
        const re_id one = w->x->arg[p.a + i];
        if (w->x->node[one].op == RE_REPEAT && w->x->node[one].a == w->x->any)
            found = one;
        else
            l[n++] = one;
    }
    if (found >= 0)
        *rest = cb_re_and(w->x, l, n);
    free(l);
    return found;
}

/* A class of characters any number of times, or of a length in bounds: *e. 0: a is none */
static int is_loop(struct writer *w, re_id a, int *e)
{
    re_id rest = a;
    const re_id length = length_of(w, a, &rest);
    int min = 0, max = -1;

    if (!w->x->node[rest].nullable)
        return 0;
    step(w, rest);
    for (size_t c = 0; c < w->classes.n; c++)
        if (w->next[c] != rest && w->next[c] != w->x->none)
            return 0;
    if (length >= 0) {
        min = w->x->node[length].min;
        max = w->x->node[length].max;
    }
    *e = cb_ex_repeat(w->r, chars_to(w, rest), min, max);
    return 1;
}

static int write_state(struct writer *w, size_t i)
{
    const re_id a = w->state[i].id;
    struct ex_list l = { 0 };
    int e;

    if (!is_loop(w, a, &e)) {
        if (w->x->node[a].nullable)
            cb_ex_add(w->r, &l, cb_ex_empty(w->r));
        step(w, a);
        for (size_t c = 0; c < w->classes.n; c++) {
            int32_t to;
            size_t first = 0;
            while (w->next[first] != w->next[c])
                first++;
            if (first < c || w->next[c] == w->x->none)
                continue;
            TRY(state_of(w, w->next[c], &to));
            e = cb_ex_rule(w->r, w->state[to].rule);
            cb_ex_add(w->r, &l, cb_ex_pair(w->r, chars_to(w, w->next[c]), e));
        }
        e = l.n ? cb_ex_alt(w->r, &l) : w->chars(w->r, NULL, 0, 0);
    }
    TRY(w->x->failed);
    TRY(cb_rules_check(w->r));
    w->r->rule[w->state[i].rule].expr = e;
    return CB_OK;
}

static int states(struct writer *w, re_id a, int *e)
{
    size_t total;
    int32_t first;

    TRY(cb_re_classes(w->x, &w->classes));
    total = w->classes.from[w->classes.n];
    w->range = cb_calloc(total + 1, sizeof *w->range);
    w->next = cb_calloc(w->classes.n + 1, sizeof *w->next);
    if (!w->range || !w->next)
        return CB_ENOMEM;
    TRY(state_of(w, a, &first));
    for (size_t i = 0; i < w->n_state; i++) /* more come */
        TRY(write_state(w, i));
    *e = cb_ex_rule(w->r, w->state[0].rule);
    return CB_OK;
}

int cb_re_expr(struct re *x, re_id a, re_chars_fn chars, size_t most_states, struct rules *r,
               int *e)
{
    struct writer w = { .x = x, .r = r, .chars = chars, .most_states = most_states };
    const size_t n = x->n_node;
    int rc = x->failed;

    TRY(rc);
    cb_ids_init(&w.states);
    w.uses = cb_budget_calloc(x->budget, n, sizeof *w.uses, &rc);
    if (!rc)
        w.rule = cb_budget_calloc(x->budget, n, sizeof *w.rule, &rc);
    if (!rc && count_uses(&w, a)) {
        rc = states(&w, a, e);
    } else if (!rc) {
        memset(w.rule, 0xFF, n * sizeof *w.rule);
        *e = written(&w, a);
        rc = cb_rules_check(r);
    }
    cb_budget_bytes(x->budget,
                    n * ((w.uses ? sizeof *w.uses : 0) + (w.rule ? sizeof *w.rule : 0)) +
                        w.cap_state * sizeof *w.state,
                    0);
    free(w.uses);
    free(w.rule);
    free(w.state);
    free(w.range);
    free(w.next);
    cb_ids_free(&w.states);
    cb_re_classes_free(&w.classes);
    return rc;
}
