/* SPDX-License-Identifier: MIT */
/* number_digits.c - numbers as an automaton over their digits. A state is how many digits are left
 * before the point or have come after it, whether the digits so far are those of the lower and of
 * the upper bound, and, with a step, what they leave modulo it. */
#include "number_digits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    WHOLE = 18,      /* digits before the point of numbers without a bound, */
    MOST_WHOLE = 40, /* and of those with one */
    FRACTION = 16,   /* digits after it */
    MOST_STATES = 20000,
    MOST_LISTED = 500,
    DEAD = -1
};

struct state {
    int8_t whole;       /* digits before the point; with neither bound tight: those that are left */
    int8_t at;          /* digits so far */
    int8_t after_point; /* 1: after the point */
    int8_t low, high;   /* 1: the digits are the bound's */
    int64_t rest;       /* of what they stand for, modulo the step */
};

struct numbers {
    struct rules *r;
    struct number_bound low, high; /* of the number without its sign */
    int fraction;                  /* digits after the point, at most */
    int64_t unit;                  /* the step times 10^scale; 0: none */
    int scale;
    struct known {
        struct state state;
        int32_t rule; /* DEAD: no number */
    } * known;
    size_t n_known, cap_known;
    struct ids states;
};

static int digits(struct rules *r, int from, int to)
{
    struct char_range d = { (uint32_t)('0' + from), (uint32_t)('0' + to) };
    return cb_ex_chars(r, &d, 1, 0);
}

/* 1: bound d has digits other than 0 from digit i on */
static int more_of(const struct decimal *d, int i)
{
    const int n = cb_decimal_whole_digits(d) + cb_decimal_fraction_digits(d);

    for (; i < n; i++)
        if (cb_decimal_digit(d, i))
            return 1;
    return 0;
}

/* 1: the number may end with these digits */
static int may_end(const struct numbers *n, const struct state *t)
{
    if (t->low && (more_of(&n->low.d, t->at) || n->low.open))
        return 0;
    if (t->high && !more_of(&n->high.d, t->at) && n->high.open)
        return 0;
    return !n->unit || !t->rest;
}

static int64_t ten_to(int k, int64_t unit)
{
    int64_t x = 1 % unit;

    while (k-- > 0)
        x = 10 * x % unit;
    return x;
}

/* Digits that are still to come, with those after the point that a multiple may have */
static int left(const struct numbers *n, const struct state *t)
{
    return t->after_point ? n->scale - (t->at - t->whole) : t->whole - t->at + n->scale;
}

/* The state after one more digit; 0: no number begins so */
static int after(const struct numbers *n, const struct state *t, int digit, struct state *out)
{
    const int low = t->low ? cb_decimal_digit(&n->low.d, t->at) : 0;
    const int high = t->high ? cb_decimal_digit(&n->high.d, t->at) : 9;

    *out = *t;
    if (digit < low || digit > high)
        return 0;
    out->low = t->low && digit == low;
    out->high = t->high && digit == high;
    out->at++;
    if (n->unit) {
        int64_t most = 1;
        const int then = left(n, out);
        out->rest = (t->rest + digit * ten_to(then, n->unit)) % n->unit;
        for (int i = 0; i < then && most < n->unit; i++)
            most *= 10;
        if (out->rest && n->unit - out->rest >= most)
            return 0; /* the digits to come cannot make up for it */
    }
    if (!out->low && !out->high && !t->after_point) { /* no bound is tight any more */
        out->whole = (int8_t)(out->whole - out->at);
        out->at = 0;
    }
    return 1;
}

static int same_state(const void *ctx, int32_t id)
{
    const struct numbers *n = ctx;
    const struct state *a = &n->known[id].state, *b = &n->known[n->n_known].state;

    return a->whole == b->whole && a->at == b->at && a->after_point == b->after_point &&
           a->low == b->low && a->high == b->high && a->rest == b->rest;
}

static int rule_of(struct numbers *n, const struct state *t, int32_t *rule);

/* Digits from `first` on, each with what follows it, those of the same state together */
static int add_digits(struct numbers *n, const struct state *t, int first, struct ex_list *l)
{
    int32_t to[10];

    for (int d = 0; d < 10; d++) {
        struct state next;
        to[d] = DEAD;
        if (d >= first && after(n, t, d, &next))
            TRY(rule_of(n, &next, &to[d]));
    }
    for (int d = first; d < 10; d++) {
        struct char_range range[10];
        size_t k = 0;
        for (int e = 0; to[d] != DEAD && e < 10; e++)
            if (to[e] == to[d] && e < d)
                break; /* it has been written */
            else if (to[e] == to[d])
                range[k++] = (struct char_range){ (uint32_t)('0' + e), (uint32_t)('0' + e) };
        if (k && range[0].from == (uint32_t)('0' + d))
            cb_ex_add(n->r, l,
                      cb_ex_pair(n->r, cb_ex_chars(n->r, range, k, 0), cb_ex_rule(n->r, to[d])));
    }
    return cb_rules_check(n->r);
}

/* A point and what may follow it */
static int add_point(struct numbers *n, const struct state *t, struct ex_list *l)
{
    struct state next = *t;
    int32_t rule;

    if (!n->fraction)
        return CB_OK;
    next.after_point = 1;
    if (!t->low && !t->high)
        next.whole = next.at = 0;
    TRY(rule_of(n, &next, &rule));
    if (rule != DEAD)
        cb_ex_add(n->r, l, cb_ex_pair(n->r, cb_ex_text(n->r, ".", 1), cb_ex_rule(n->r, rule)));
    return CB_OK;
}

/* Neither bound matters any more, and there is no step. */
static int any_digits(struct numbers *n, const struct state *t)
{
    const int some = digits(n->r, 0, 9), come = t->at - t->whole;
    int fraction;

    if (t->after_point)
        return cb_ex_repeat(n->r, some, come ? 0 : 1, n->fraction - come);
    if (!n->fraction)
        return cb_ex_repeat(n->r, some, t->whole - t->at, t->whole - t->at);
    fraction = cb_ex_pair(n->r, cb_ex_text(n->r, ".", 1),
                          cb_ex_repeat(n->r, digits(n->r, 0, 9), 1, n->fraction));
    return cb_ex_pair(n->r, cb_ex_repeat(n->r, some, t->whole - t->at, t->whole - t->at),
                      cb_ex_repeat(n->r, fraction, 0, 1));
}

/* What may follow in state t -> l, empty if nothing can */
static int follow(struct numbers *n, const struct state *t, int is_first, struct ex_list *l)
{
    const int come = t->at - t->whole; /* after the point */

    if (!t->low && !t->high && !n->unit && !is_first) {
        cb_ex_add(n->r, l, any_digits(n, t));
        return CB_OK;
    }
    if (!t->after_point && t->at < t->whole)
        return add_digits(n, t, is_first && t->whole > 1, l);
    if ((!t->after_point || come > 0) && may_end(n, t))
        cb_ex_add(n->r, l, cb_ex_empty(n->r));
    if (!t->after_point)
        return add_point(n, t, l);
    return come < n->fraction ? add_digits(n, t, 0, l) : CB_OK;
}

static int rule_of(struct numbers *n, const struct state *t, int32_t *rule)
{
    const int64_t word[] = {
        t->whole | t->at << 8 | t->after_point << 16 | t->low << 17 | t->high << 18, t->rest
    };
    const int32_t fresh = (int32_t)n->n_known;
    struct ex_list l = { 0 };
    int32_t id;

    TRY(cb_budget_grow(n->r->budget, (void **)&n->known, &n->cap_known, n->n_known + 1,
                       sizeof *n->known));
    n->known[fresh].state = *t;
    TRY(id = cb_ids_find(&n->states, cb_siphash(&n->states.key, word, sizeof word), same_state, n,
                         fresh));
    if (id != fresh) {
        *rule = n->known[id].rule;
        return CB_OK;
    }
    if (n->n_known == MOST_STATES)
        return cb_fail(CB_EUNSUPPORTED, "a number needs more than %d states", MOST_STATES);
    n->n_known++;
    TRY(follow(n, t, 0, &l));
    *rule = DEAD;
    if (l.n) {
        *rule = cb_rule_new(n->r);
        const int e = cb_ex_alt(n->r, &l);
        TRY(cb_rules_check(n->r));
        n->r->rule[*rule].expr = e;
    }
    n->known[fresh].rule = *rule;
    return CB_OK;
}

/* ---- all lengths ---- */

static int of_length(struct numbers *n, int whole, struct ex_list *l)
{
    const int low = n->low.there ? cb_decimal_whole_digits(&n->low.d) : 0;
    const int high = n->high.there ? cb_decimal_whole_digits(&n->high.d) : 0;
    const struct state t = { .whole = (int8_t)whole, .low = low == whole, .high = high == whole };
    struct ex_list one = { 0 };

    if (low > whole || (n->high.there && high < whole))
        return CB_OK;
    TRY(follow(n, &t, 1, &one));
    if (one.n)
        cb_ex_add(n->r, l, cb_ex_alt(n->r, &one));
    return CB_OK;
}

/* Numbers without a sign from low to high */
static int magnitudes(struct numbers *n, struct ex_list *l)
{
    int most = WHOLE;

    if (n->high.there && cb_decimal_whole_digits(&n->high.d) > MOST_WHOLE)
        n->high.there = 0;
    if (n->low.there && cb_decimal_whole_digits(&n->low.d) >= MOST_WHOLE)
        return cb_fail(CB_EUNSUPPORTED, "schema: a bound of more than %d digits", MOST_WHOLE);
    if (n->high.there)
        most = cb_decimal_whole_digits(&n->high.d);
    else if (n->low.there && cb_decimal_whole_digits(&n->low.d) >= WHOLE)
        most = cb_decimal_whole_digits(&n->low.d) + 1;
    for (int whole = 1; whole <= most; whole++)
        TRY(of_length(n, whole, l));
    return CB_OK;
}

static void forget(struct numbers *n)
{
    cb_budget_bytes(n->r->budget, n->cap_known * sizeof *n->known, 0);
    free(n->known);
    cb_ids_free(&n->states);
    n->known = NULL;
    n->n_known = n->cap_known = 0;
}

/* One sign's numbers: those between two bounds of the number without it */
static int one_sign(struct rules *r, const struct number_form *f, int negative, struct ex_list *l)
{
    struct numbers n = { .r = r, .fraction = f->is_integer ? 0 : FRACTION };
    const struct number_bound *low = negative ? &f->high : &f->low;
    const struct number_bound *high = negative ? &f->low : &f->high;
    int rc;

    if (high->there && high->d.n && high->d.negative != negative)
        return CB_OK; /* all are on the other side of 0 */
    if (high->there && !high->d.n && (negative || high->open))
        return CB_OK;
    n.high = *high;
    if (low->there && (low->d.negative == negative || !low->d.n))
        n.low = *low;
    if (negative && (!n.low.there || !n.low.d.n)) /* -0 is written as 0 */
        n.low = (struct number_bound){ .there = 1, .open = 1 };
    if (f->step.n) {
        n.scale = cb_decimal_fraction_digits(&f->step);
        if (n.scale > FRACTION || !cb_decimal_scaled(&f->step, n.scale, &n.unit) ||
            n.unit > (int64_t)1 << 40)
            return cb_fail(CB_EUNSUPPORTED, "schema: 'multipleOf' has too many digits");
        n.fraction = f->is_integer ? 0 : n.scale;
    }
    cb_ids_init(&n.states);
    rc = magnitudes(&n, l);
    forget(&n);
    return rc;
}

static int automaton(struct rules *r, const struct number_form *f, int *x, int *some)
{
    struct ex_list l = { 0 }, negative = { 0 };

    TRY(one_sign(r, f, 0, &l));
    TRY(one_sign(r, f, 1, &negative));
    if (negative.n)
        cb_ex_add(r, &l, cb_ex_pair(r, cb_ex_text(r, "-", 1), cb_ex_alt(r, &negative)));
    *some = l.n > 0;
    *x = l.n ? cb_ex_alt(r, &l) : cb_ex_chars(r, NULL, 0, 0);
    return cb_rules_check(r);
}

/* ---- a few multiples ---- */

static int within(const struct number_form *f, const struct decimal *d)
{
    const int a = f->low.there ? cb_decimal_compare(d, &f->low.d) : 1;
    const int b = f->high.there ? cb_decimal_compare(d, &f->high.d) : -1;

    return (a > 0 || (!a && !f->low.open)) && (b < 0 || (!b && !f->high.open));
}

/* |bound| in steps, rounded down; 0 without one */
static int64_t steps_to(const struct number_bound *b, int scale, int64_t unit)
{
    int64_t x = 0;

    for (int i = 0; b->there && i < b->d.point + scale && i < 18; i++)
        x = 10 * x + (i < b->d.n ? b->d.digit[i] : 0);
    return x / unit;
}

static void multiple_text(char *out, size_t cap, int64_t k, int64_t unit, int scale, int negative)
{
    int64_t ten = 1;

    for (int i = 0; i < scale; i++)
        ten *= 10;
    if (scale)
        snprintf(out, cap, "%s%lld.%0*lld", negative ? "-" : "", (long long)(k * unit / ten), scale,
                 (long long)(k * unit % ten));
    else
        snprintf(out, cap, "%s%lld", negative ? "-" : "", (long long)(k * unit));
}

static void listed(struct rules *r, const struct number_form *f, int negative, struct ex_list *l)
{
    const int scale = cb_decimal_fraction_digits(&f->step);
    const struct number_bound *near = negative ? &f->high : &f->low;
    int64_t unit, k = 0;

    cb_decimal_scaled(&f->step, scale, &unit);
    if (near->there && near->d.negative == negative)
        k = steps_to(near, scale, unit);
    for (int i = 0; i < MOST_LISTED && k < INT64_MAX / 2 / unit; i++, k++) {
        struct decimal d;
        char text[64];
        multiple_text(text, sizeof text, k, unit, f->is_integer && scale ? scale : scale, negative);
        if ((negative && !k) || !cb_decimal_read(text, &d) || !within(f, &d) ||
            (f->is_integer && scale))
            continue;
        cb_ex_add(r, l, cb_ex_text(r, text, strlen(text)));
    }
}

int cb_number_digits(struct rules *r, const struct number_form *f, int *x, int *some)
{
    const struct rules before = *r;
    struct ex_list l = { 0 };
    int rc = automaton(r, f, x, some);
    int64_t unit;

    if (rc != CB_EUNSUPPORTED || r->failed || !f->step.n ||
        !cb_decimal_scaled(&f->step, cb_decimal_fraction_digits(&f->step), &unit) ||
        (f->is_integer && cb_decimal_fraction_digits(&f->step)) ||
        cb_decimal_fraction_digits(&f->step) > 17)
        return rc;
    cb_rules_back(r, &before);
    listed(r, f, 0, &l);
    listed(r, f, 1, &l);
    *some = l.n > 0;
    *x = l.n ? cb_ex_alt(r, &l) : cb_ex_chars(r, NULL, 0, 0);
    rc = cb_rules_check(r);
    return rc ? rc : NUMBER_FEW;
}
