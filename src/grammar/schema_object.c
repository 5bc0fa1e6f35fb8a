/* SPDX-License-Identifier: MIT */
/* schema_object.c - objects of a JSON schema. Properties come in the order in which the schema
 * lists them, so that a grammar of n properties has 2 n rules, not n!; others follow them. */
#include <stdlib.h>
#include <string.h>

#include "schema_props.h"

/* ---- members ---- */

static int comma(struct schema *s, int x)
{
    return cb_schema_seq(s->r, 3,
                         (int[]){ cb_schema_text(s->r, ","), cb_ex_rule(s->r, s->space), x });
}

static int bracketed(struct schema *s, const char *open, int x, const char *end)
{
    return cb_schema_seq(s->r, 5,
                         (int[]){ cb_schema_text(s->r, open), cb_ex_rule(s->r, s->space), x,
                                  cb_ex_rule(s->r, s->space), cb_schema_text(s->r, end) });
}

/* KEY ": value" */
static int pair(struct schema *s, int key, int value)
{
    const int blank = cb_ex_repeat(s->r, cb_schema_text(s->r, " "), 0, 1);

    return cb_schema_seq(s->r, 4,
                         (int[]){ key, cb_schema_text(s->r, ":"), blank, cb_ex_rule(s->r, value) });
}

/* Property i with its value -> *rule; -1: it must not be there */
static int listed(struct schema *s, struct props *p, size_t i, int *rule)
{
    const struct sval key = {
        .kind = SVAL_STRING, .id = -1, .s = p->prop[i].key, .n = p->prop[i].key_n
    };
    struct schema_set c;
    int value, name, rc;

    *rule = -1;
    cb_schema_set_begin(s, &c);
    rc = cb_props_value(s, p, i, &c);
    if (rc || c.never) {
        cb_schema_set_free(s, &c);
        return rc;
    }
    TRY(s->rule(s, &c, &value));
    TRY(cb_schema_literal(s, &key, &name));
    return cb_schema_rule_for(s, pair(s, name, value), rule);
}

/* All properties that are not listed -> *rule; -1: there are none such */
static int others(struct schema *s, struct props *p, int *rule)
{
    struct ex_list l = { 0 };

    *rule = -1;
    for (unsigned which = 0; p->more && which < 1u << p->n_pattern; which++) {
        struct schema_set c;
        int value, name, rc;
        cb_schema_set_begin(s, &c);
        rc = cb_props_other(s, p, which, &c);
        if (rc || c.never) {
            cb_schema_set_free(s, &c);
            TRY(rc);
            continue;
        }
        TRY(s->rule(s, &c, &value));
        TRY(rc = cb_props_key(s, p, which, &name));
        if (rc)
            cb_ex_add(s->r, &l, pair(s, name, value));
    }
    return l.n ? cb_schema_rule_for(s, cb_ex_alt(s->r, &l), rule) : CB_OK;
}

/* ---- their order and number ---- */

struct chain {
    struct schema *s;
    int min, max; /* properties; max -1: any number */
    int counted;  /* 1: the number so far decides whether there may be another listed one */
    int n_listed;
    int most;        /* properties are counted up to here */
    int extra;       /* rule, -1: none */
    int *then, *now; /* [most + 1] rules of what may follow this many properties; -1: nothing can */
};

/* What follows the listed properties, `so_far` of which were written -> *rule */
static int after_all(struct chain *k, int so_far, int *rule)
{
    const int low = so_far < k->min ? k->min - so_far : 0;
    const int high = k->max < 0 ? -1 : k->counted ? k->max - so_far : k->max - k->n_listed;
    struct rules *r = k->s->r;
    int x;

    *rule = -1;
    if ((high >= 0 && high < low) || (k->extra < 0 && low > 0))
        return CB_OK;
    if (k->extra < 0 || !high)
        return cb_schema_rule_for(k->s, cb_ex_empty(r), rule);
    if (so_far) {
        x = cb_ex_repeat(r, comma(k->s, cb_ex_rule(r, k->extra)), low, high);
    } else {
        x = cb_ex_repeat(r, comma(k->s, cb_ex_rule(r, k->extra)), low ? low - 1 : 0,
                         high < 0 ? -1 : high - 1);
        x = cb_ex_repeat(r, cb_ex_pair(r, cb_ex_rule(r, k->extra), x), low > 0, 1);
    }
    return cb_schema_rule_for(k->s, x, rule);
}

/* A listed property, a member or -1, in front of what follows: then -> now */
static int before(struct chain *k, int member, int required)
{
    struct rules *r = k->s->r;

    for (int c = 0; c <= k->most; c++) {
        const int next = c < k->most ? c + 1 : c;
        struct ex_list l = { 0 };
        k->now[c] = -1;
        if (member >= 0 && k->then[next] >= 0 && !(k->counted && c >= k->max)) {
            const int x = cb_ex_rule(r, member);
            cb_ex_add(r, &l, cb_ex_pair(r, c ? comma(k->s, x) : x, cb_ex_rule(r, k->then[next])));
        }
        if (!required && k->then[c] >= 0)
            cb_ex_add(r, &l, cb_ex_rule(r, k->then[c]));
        if (l.n)
            TRY(cb_schema_rule_for(k->s, cb_ex_alt(r, &l), &k->now[c]));
    }
    memcpy(k->then, k->now, ((size_t)k->most + 1) * sizeof *k->then);
    return CB_OK;
}

static int make_chain(struct chain *k, struct props *p)
{
    int member;

    for (int c = 0; c <= k->most; c++)
        TRY(after_all(k, c, &k->then[c]));
    for (size_t i = p->n; i-- > 0;) {
        TRY(listed(k->s, p, i, &member));
        TRY(before(k, member, p->prop[i].required));
    }
    return CB_OK;
}

enum { MOST_COUNTED = 4096 };

static int object(struct schema *s, const struct schema_set *c, struct props *p, int *x)
{
    struct chain k = { .s = s, .n_listed = (int)p->n };
    int rc;

    TRY(cb_schema_count(s, c, "minProperties", 0, 0, &k.min));
    TRY(cb_schema_count(s, c, "maxProperties", 1, -1, &k.max));
    TRY(others(s, p, &k.extra));
    k.counted = k.max >= 0 && k.max < k.n_listed;
    k.most = k.counted && k.max > k.min ? k.max : k.min;
    k.most = k.most < 1 ? 1 : k.most;
    if (k.most > MOST_COUNTED)
        return cb_schema_fail(s, CB_EUNSUPPORTED, cb_schema_set_at(s, c, 0),
                              "'minProperties' is more than %d", MOST_COUNTED);
    if (k.min > 1 && k.extra >= 0)
        cb_schema_note(s, cb_schema_set_at(s, c, 0),
                       "'minProperties' counts a property that is written twice as two");
    k.then = cb_calloc((size_t)k.most + 1, sizeof *k.then);
    k.now = cb_calloc((size_t)k.most + 1, sizeof *k.now);
    rc = k.then && k.now ? make_chain(&k, p) : CB_ENOMEM;
    if (!rc)
        *x = k.then[0] < 0 ? cb_ex_chars(s->r, NULL, 0, 0)
                           : bracketed(s, "{", cb_ex_rule(s->r, k.then[0]), "}");
    if (!rc && k.then[0] < 0 && c->n == 1)
        rc = cb_schema_fail(s, CB_EARG, cb_schema_set_at(s, c, 0),
                            "no object fits: 'required' and the number of properties contradict "
                            "what is allowed");
    free(k.then);
    free(k.now);
    return rc;
}

int cb_schema_object(struct schema *s, const struct schema_set *c, int *x)
{
    struct props p;
    int rc, kinds, all = 0;

    for (size_t i = 0; i < c->n; i++) {
        TRY(cb_schema_kinds(s, cb_schema_set_at(s, c, i), &kinds));
        all |= kinds;
    }
    if (!(all & KW_OBJECT)) {
        *x = cb_ex_rule(s->r, s->object);
        return CB_OK;
    }
    rc = cb_props_open(s, c, &p);
    if (!rc)
        rc = object(s, c, &p, x);
    cb_props_close(s, &p);
    return rc;
}
