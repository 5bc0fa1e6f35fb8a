/* SPDX-License-Identifier: MIT */
/* rules.c - expressions and rules of a grammar, in growing arrays. */
#include "rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void cb_rules_init(struct rules *r, struct budget *b)
{
    *r = (struct rules){ .budget = b };
    cb_ids_init(&r->names);
    cb_ex_empty(r);
}

void cb_rules_free(struct rules *r)
{
    free(r->expr);
    free(r->range);
    free(r->rule);
    cb_buf_free(&r->text);
    cb_buf_free(&r->notes);
    cb_ids_free(&r->names);
}

int cb_rules_check(const struct rules *r)
{
    if (r->failed && r->failed != CB_ENOMEM)
        return r->failed; /* with its text */
    return r->failed || r->text.failed ? cb_fail(CB_ENOMEM, "out of memory: a grammar") : CB_OK;
}

void cb_rules_back(struct rules *r, const struct rules *old)
{
    r->n_expr = old->n_expr;
    r->n_range = old->n_range;
    r->n_rule = old->n_rule;
    r->text.n = old->text.n;
    r->failed = old->failed;
}

/* Room for n more elements; 0: there is none */
static int room(struct rules *r, void **p, size_t *cap, size_t used, size_t n, size_t size)
{
    int rc = r->failed;

    if (!rc && used + n > INT32_MAX / 2)
        rc = cb_fail(CB_EUNSUPPORTED, "grammar: it is too large");
    if (!rc)
        rc = cb_budget_steps(r->budget, n);
    if (!rc)
        rc = cb_budget_grow(r->budget, p, cap, used + n, size);
    r->failed = rc;
    return !rc;
}

/* Adds s[n] to the texts. */
static void add_text(struct rules *r, const char *s, size_t n)
{
    if (!r->failed)
        r->failed = cb_budget_bytes(r->budget, 0, n);
    if (!r->failed && r->text.n + n > INT32_MAX / 2)
        r->failed = cb_fail(CB_EUNSUPPORTED, "grammar: it is too large");
    if (!r->failed)
        cb_buf_add(&r->text, s, n);
}

static int add(struct rules *r, struct expr x)
{
    if (!room(r, (void **)&r->expr, &r->cap_expr, r->n_expr, 1, sizeof x))
        return 0;
    x.next = -1;
    r->expr[r->n_expr] = x;
    return (int)r->n_expr++;
}

/* ---- rules ---- */

static int add_rule(struct rules *r, size_t name, size_t len)
{
    if (!room(r, (void **)&r->rule, &r->cap_rule, r->n_rule, 1, sizeof *r->rule))
        return 0;
    r->rule[r->n_rule] = (struct named_rule){ .name = name, .name_len = len, .expr = -1 };
    return (int)r->n_rule++;
}

int cb_rule_new(struct rules *r)
{
    return add_rule(r, 0, 0);
}

struct wanted_name {
    const struct rules *r;
    const char *name;
    size_t len;
};

static int same_name(const void *ctx, int32_t id)
{
    const struct wanted_name *w = ctx;
    const struct named_rule *x = &w->r->rule[id];

    return x->name_len == w->len && !memcmp(w->r->text.s + x->name, w->name, w->len);
}

int cb_rule_named(struct rules *r, const char *name, size_t len)
{
    const struct wanted_name w = { r, name, len };
    const uint64_t hash = cb_siphash(&r->names.key, name, len);
    const int32_t fresh = (int32_t)r->n_rule;
    int32_t id;

    if (r->failed || r->text.failed) /* the last name may have got no rule */
        return 0;
    id = cb_ids_find(&r->names, hash, same_name, &w, fresh);
    if (id < 0)
        r->failed = id;
    if (id == fresh) {
        const size_t at = r->text.n;
        add_text(r, name, len);
        add_rule(r, at, len);
    }
    return r->failed || r->text.failed ? 0 : id;
}

/* ---- expressions ---- */

int cb_ex_empty(struct rules *r)
{
    return add(r, (struct expr){ .op = EX_EMPTY });
}

int cb_ex_text(struct rules *r, const char *s, size_t n)
{
    const size_t at = r->text.n;

    add_text(r, s, n);
    return add(r, (struct expr){ .op = EX_TEXT, .a = (int32_t)at, .n = (int32_t)n });
}

static int by_start(const void *a, const void *b)
{
    const struct char_range *x = a, *y = b;

    return x->from < y->from ? -1 : x->from > y->from;
}

void cb_ranges_sort(struct char_range *range, size_t n)
{
    if (n > 1)
        qsort(range, n, sizeof *range, by_start);
}

static size_t join(struct char_range *range, size_t n)
{
    size_t m = 0;

    cb_ranges_sort(range, n);
    for (size_t i = 0; i < n; i++) {
        if (m && range[i].from <= range[m - 1].to + 1)
            range[m - 1].to = range[i].to > range[m - 1].to ? range[i].to : range[m - 1].to;
        else
            range[m++] = range[i];
    }
    return m;
}

size_t cb_ranges_join(struct char_range *range, size_t n, int negated, struct char_range *out)
{
    uint32_t from = 0;
    size_t m = 0;

    n = join(range, n);
    for (size_t i = 0; i < n; i++) {
        if (!negated)
            out[m++] = range[i];
        else if (range[i].from > from)
            out[m++] = (struct char_range){ from, range[i].from - 1 };
        from = range[i].to + 1;
    }
    if (negated && from <= 0x10FFFF)
        out[m++] = (struct char_range){ from, 0x10FFFF };
    return m;
}

int cb_ex_chars(struct rules *r, struct char_range *range, size_t n, int negated)
{
    const size_t at = r->n_range;

    if (!room(r, (void **)&r->range, &r->cap_range, r->n_range, n + 1, sizeof *range))
        return 0;
    r->n_range += cb_ranges_join(range, n, negated, r->range + at);
    return add(r,
               (struct expr){ .op = EX_CHARS, .a = (int32_t)at, .n = (int32_t)(r->n_range - at) });
}

int cb_ex_rule(struct rules *r, int rule)
{
    return add(r, (struct expr){ .op = EX_RULE, .a = rule });
}

int cb_ex_repeat(struct rules *r, int x, int min, int max)
{
    return add(r, (struct expr){ .op = EX_REPEAT, .a = x, .n = min, .max = max });
}

void cb_ex_add(struct rules *r, struct ex_list *l, int x)
{
    if (r->failed)
        return;
    if (l->n++)
        r->expr[l->last].next = x;
    else
        l->first = x;
    l->last = x;
}

static int list(struct rules *r, enum expr_op op, const struct ex_list *l)
{
    return l->n == 1 ? l->first : add(r, (struct expr){ .op = op, .a = l->n ? l->first : -1 });
}

int cb_ex_seq(struct rules *r, const struct ex_list *l)
{
    return list(r, EX_SEQ, l);
}

int cb_ex_alt(struct rules *r, const struct ex_list *l)
{
    return list(r, EX_ALT, l);
}

int cb_ex_pair(struct rules *r, int a, int b)
{
    struct ex_list l = { 0 };

    cb_ex_add(r, &l, a);
    cb_ex_add(r, &l, b);
    return cb_ex_seq(r, &l);
}
