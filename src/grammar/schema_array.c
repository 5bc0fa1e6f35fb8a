/* SPDX-License-Identifier: MIT */
/* schema_array.c - arrays of a JSON schema. */
#include <stdlib.h>
#include <string.h>

#include "schema.h"

struct array {
    struct schema *s;
    const struct schema_set *c;
    int n_first;  /* items that have a schema of their own */
    int min, max; /* items; max -1: any number */
    int has_min;  /* 1: minItems is there, so first items after this many may be missing */
    int unique;
    struct sval *contains; /* NULL: nothing */
    int least, most;       /* items that fit it; most -1: any number */
    int rest;              /* rule of the items after the first ones */
};

static int comma(struct schema *s, int x)
{
    return cb_schema_seq(s->r, 3,
                         (int[]){ cb_schema_text(s->r, ","), cb_ex_rule(s->r, s->space), x });
}

static int bracketed(struct schema *s, int x)
{
    return cb_schema_seq(s->r, 5,
                         (int[]){ cb_schema_text(s->r, "["), cb_ex_rule(s->r, s->space), x,
                                  cb_ex_rule(s->r, s->space), cb_schema_text(s->r, "]") });
}

/* ---- what the set says ---- */

/* The schemas of v's first items, and that of all others; older drafts have both in "items" */
static int read_items(const struct schema *s, const struct sval *v, struct sval **first,
                      struct sval **rest)
{
    *first = cb_schema_get(s, v, "prefixItems");
    *rest = cb_schema_get(s, v, "items");
    if (*rest && (*rest)->kind == SVAL_ARRAY) {
        *first = *rest;
        *rest = cb_schema_get(s, v, "additionalItems");
    }
    if (!*rest)
        *rest = cb_schema_get(s, v, "unevaluatedItems");
    if (*first && (*first)->kind != SVAL_ARRAY)
        return cb_schema_fail(s, CB_EARG, v, "'prefixItems' must be a list of schemas");
    return CB_OK;
}

static int read_contains(struct array *a, const struct sval *v)
{
    struct sval *contains = cb_schema_get(a->s, v, "contains");
    const struct sval *least = cb_schema_get(a->s, v, "minContains");

    if (!contains)
        return CB_OK;
    if (a->contains)
        return cb_schema_fail(a->s, CB_EUNSUPPORTED, v,
                              "'contains' in two schemas that both must fit");
    a->least = 1;
    if (least)
        TRY(cb_schema_count(a->s, a->c, "minContains", 0, 1, &a->least));
    TRY(cb_schema_count(a->s, a->c, "maxContains", 1, -1, &a->most));
    a->contains = a->least || a->most >= 0 ? contains : NULL;
    return CB_OK;
}

static int read_array(struct array *a)
{
    struct sval *first, *rest;
    int open = 0, listed = 0;

    TRY(cb_schema_count(a->s, a->c, "minItems", 0, -1, &a->min));
    a->has_min = a->min >= 0;
    a->min = a->has_min ? a->min : 0;
    TRY(cb_schema_count(a->s, a->c, "maxItems", 1, -1, &a->max));
    for (size_t i = 0; i < a->c->n; i++) {
        const struct sval *v = cb_schema_set_at(a->s, a->c, i);
        const struct sval *unique = cb_schema_get(a->s, v, "uniqueItems");
        TRY(read_items(a->s, v, &first, &rest));
        TRY(read_contains(a, v));
        a->unique |= unique && unique->kind == SVAL_TRUE;
        open |= rest != NULL;
        listed |= first && first->n;
        if (first && (int)first->n > a->n_first)
            a->n_first = (int)first->n;
    }
    if (a->max >= 0 && a->n_first > a->max)
        a->n_first = a->max;
    if (!open && listed && a->min <= a->n_first) /* without a word on others there are none */
        a->max = a->n_first;
    return CB_OK;
}

/* What item i must fit -> *rule, -1: there is none such; more: NULL, or another schema */
static int item(struct array *a, int i, struct sval *more, int *rule)
{
    struct schema_set c;
    int rc = CB_OK;

    *rule = -1;
    cb_schema_set_begin(a->s, &c);
    for (size_t k = 0; !rc && k < a->c->n; k++) {
        struct sval *first, *rest, *m;
        int left = i;
        rc = read_items(a->s, cb_schema_set_at(a->s, a->c, k), &first, &rest);
        for (m = !rc && first ? first->first : NULL; m && left > 0; left--)
            m = m->next;
        if (!rc && (m || rest))
            rc = cb_schema_set_add(a->s, &c, m ? m : rest);
    }
    if (!rc && more)
        rc = cb_schema_set_add(a->s, &c, more);
    if (!rc && !c.never)
        return a->s->rule(a->s, &c, rule);
    cb_schema_set_free(a->s, &c);
    return rc;
}

/* ---- items ---- */

/* From min to max (-1: any number) of rule `item`; is_first: none is in front of them */
static int items(struct schema *s, int rule, int min, int max, int is_first)
{
    struct rules *r = s->r;
    int rest;

    if (max == 0 || rule < 0)
        return cb_ex_empty(r);
    if (!is_first)
        return cb_ex_repeat(r, comma(s, cb_ex_rule(r, rule)), min, max);
    rest = cb_ex_repeat(r, comma(s, cb_ex_rule(r, rule)), min > 0 ? min - 1 : 0,
                        max < 0 ? -1 : max - 1);
    rest = cb_ex_pair(r, cb_ex_rule(r, rule), rest);
    return min > 0 ? rest : cb_ex_repeat(r, rest, 0, 1);
}

/* Any items of rule `others` with n among them that fit rule `some`, n at least 1 */
static int with_some(struct array *a, int some, int least, int others)
{
    struct rules *r = a->s->r;
    struct ex_list l = { 0 };
    const int before =
        others < 0
            ? cb_ex_empty(r)
            : cb_ex_repeat(r,
                           cb_schema_seq(r, 3,
                                         (int[]){ cb_ex_rule(r, others), cb_schema_text(r, ","),
                                                  cb_ex_rule(r, a->s->space) }),
                           0, -1);

    cb_ex_add(r, &l, before);
    for (int i = 0; i < least; i++) {
        const int one = cb_ex_rule(r, some);
        cb_ex_add(r, &l, i ? comma(a->s, one) : one);
        cb_ex_add(r, &l, items(a->s, others, 0, -1, 0));
    }
    return cb_ex_seq(r, &l);
}

enum { MOST_CONTAINED = 1000, MOST_FEW = 50 };

/* least to most items of rule `some`, the others not: in any order, or, with bounds on their
 * number, those first */
static int containing_few(struct array *a, int some, int *x)
{
    struct sval *others, *list;
    struct rules *r = a->s->r;
    struct ex_list l = { 0 };
    int rest, rc;

    list = cb_sdoc_add(&a->s->doc, NULL, NULL, SVAL_ARRAY, &rc);
    others = list ? cb_sdoc_add(&a->s->doc, list, NULL, SVAL_OBJECT, &rc) : NULL;
    if (others)
        cb_sdoc_link(&a->s->doc, others, "not", a->contains, &rc);
    TRY(rc);
    TRY(item(a, 0, others, &rest));
    for (int k = a->least; k <= a->most; k++) {
        const int more = a->max < 0 ? -1 : a->max - k;
        if (a->max >= 0 && k > a->max)
            break;
        if (a->max < 0 && a->min <= k && k)
            cb_ex_add(r, &l, with_some(a, some, k, rest));
        else if (rest >= 0 || a->min <= k)
            cb_ex_add(r, &l,
                      cb_ex_pair(r, items(a->s, some, k, k, 1),
                                 items(a->s, rest, a->min > k ? a->min - k : 0, more, !k)));
    }
    *x = bracketed(a->s, l.n ? cb_ex_alt(r, &l) : cb_ex_chars(r, NULL, 0, 0));
    return CB_OK;
}

static int containing(struct array *a, int *x)
{
    const struct sval *at = cb_schema_set_at(a->s, a->c, 0);
    struct rules *r = a->s->r;
    int some, least = a->least;

    if (a->n_first)
        return cb_schema_fail(a->s, CB_EUNSUPPORTED, at, "'contains' beside 'prefixItems'");
    if (a->most > MOST_FEW)
        return cb_schema_fail(a->s, CB_EUNSUPPORTED, at, "'maxContains' is more than %d", MOST_FEW);
    if (least > MOST_CONTAINED)
        return cb_schema_fail(a->s, CB_EUNSUPPORTED, at, "'minContains' is more than %d",
                              MOST_CONTAINED);
    TRY(item(a, 0, a->contains, &some));
    if (some < 0 || (a->max >= 0 && a->max < least)) {
        *x = cb_ex_chars(r, NULL, 0, 0);
        return CB_OK;
    }
    if (a->most >= 0)
        return containing_few(a, some, x);
    if (a->max < 0 && a->min <= least) {
        *x = bracketed(a->s, with_some(a, some, least, a->rest));
        return CB_OK;
    }
    *x = items(a->s, some, least, least, 1); /* with bounds: those come first */
    if (a->max != least)
        *x = cb_ex_pair(r, *x,
                        items(a->s, a->rest, a->min > least ? a->min - least : 0,
                              a->max < 0 ? -1 : a->max - least, 0));
    *x = bracketed(a->s, *x);
    return CB_OK;
}

/* first[n], then x. Items may be missing at the end, but only if the schema says of how many: a
 * tuple without minItems is meant to be whole. */
static int first_items(struct array *a, const int *first, int n, int x)
{
    while (n-- > 0) {
        const int one = cb_ex_rule(a->s->r, first[n]);
        x = cb_ex_pair(a->s->r, n ? comma(a->s, one) : one, x);
        if (a->has_min && n >= a->min)
            x = cb_ex_repeat(a->s->r, x, 0, 1);
    }
    return x;
}

static int items_of(struct array *a, int *first, int *x)
{
    int n = 0, most = a->max;

    for (; n < a->n_first; n++) {
        TRY(item(a, n, NULL, &first[n]));
        if (first[n] < 0) { /* no item there, so none after it */
            most = n;
            break;
        }
    }
    if (a->rest < 0)
        most = most < 0 || most > n ? n : most;
    if (most >= 0 && most < a->min) {
        *x = cb_ex_chars(a->s->r, NULL, 0, 0);
        return a->c->n > 1 ? CB_OK
                           : cb_schema_fail(a->s, CB_EARG, cb_schema_set_at(a->s, a->c, 0),
                                            "no number of items is between the bounds");
    }
    *x = items(a->s, a->rest, a->min > n ? a->min - n : 0, most < 0 ? -1 : most - n, n == 0);
    *x = bracketed(a->s, first_items(a, first, n, *x));
    return CB_OK;
}

static int any_items(struct array *a, int *x)
{
    int *first = cb_calloc((size_t)a->n_first + 1, sizeof *first);
    const int rc = first ? items_of(a, first, x) : CB_ENOMEM;

    free(first);
    return rc;
}

/* ---- items that differ ---- */

enum { MOST_MIXED = 8, MOST_DIFFERENT = 2000 };

/* The values of which items can be one -> value[*n], at most MOST_DIFFERENT; *n = 0: not known */
static int item_values(struct array *a, const struct sval **value, int *n)
{
    struct sval *first, *rest, *list = NULL;

    *n = 0;
    for (size_t k = 0; k < a->c->n; k++) {
        TRY(read_items(a->s, cb_schema_set_at(a->s, a->c, k), &first, &rest));
        for (int i = 0, kinds; rest && rest->kind == SVAL_OBJECT && i < 8; i++) {
            TRY(cb_schema_kinds(a->s, rest, &kinds));
            if (!(kinds & KW_REF))
                break;
            TRY(cb_schema_target(a->s, rest, &rest));
        }
        list = rest && cb_schema_get(a->s, rest, "enum") ? cb_schema_get(a->s, rest, "enum") : list;
    }
    for (struct sval *m = list ? list->first : NULL; m; m = m->next) {
        int fits = 1;
        for (int i = 0; i < *n; i++)
            fits &= !cb_sdoc_equal(&a->s->doc, m, value[i]);
        for (size_t k = 0; fits && k < a->c->n; k++) {
            TRY(read_items(a->s, cb_schema_set_at(a->s, a->c, k), &first, &rest));
            TRY(fits = rest ? cb_schema_fits(a->s, m, rest, 0) : 1);
        }
        if (*n == MOST_DIFFERENT)
            return cb_schema_fail(a->s, CB_EUNSUPPORTED, m, "'uniqueItems' of more than %d values",
                                  MOST_DIFFERENT);
        if (fits)
            value[(*n)++] = m;
    }
    return CB_OK;
}

/* In any order: a rule for each set of values that were written */
static int mixed(struct array *a, const struct sval *const *value, int n, int *x)
{
    struct rules *r = a->s->r;
    int rule[1 << MOST_MIXED], one;

    for (int used = (1 << n) - 1; used >= 0; used--) {
        const int count = __builtin_popcount((unsigned)used);
        struct ex_list l = { 0 };
        if (count >= a->min)
            cb_ex_add(r, &l, cb_ex_empty(r));
        for (int i = 0; i < n && (a->max < 0 || count < a->max); i++) {
            if (used >> i & 1)
                continue;
            TRY(cb_schema_literal(a->s, value[i], &one));
            cb_ex_add(
                r, &l,
                cb_ex_pair(r, count ? comma(a->s, one) : one, cb_ex_rule(r, rule[used | 1 << i])));
        }
        TRY(cb_schema_rule_for(a->s, l.n ? cb_ex_alt(r, &l) : cb_ex_chars(r, NULL, 0, 0),
                               &rule[used]));
    }
    *x = cb_ex_rule(r, rule[0]);
    return CB_OK;
}

/* In the order of the values; so[k]: what may follow k items, k at most `most` */
static int ordered(struct array *a, const struct sval *const *value, int n, int *so, int most,
                   int *x)
{
    struct rules *r = a->s->r;
    int one;

    for (int k = 0; k <= most; k++) {
        const int e = k >= a->min && (a->max < 0 || k <= a->max) ? cb_ex_empty(r)
                                                                 : cb_ex_chars(r, NULL, 0, 0);
        TRY(cb_schema_rule_for(a->s, e, &so[k]));
    }
    for (int i = n; i-- > 0;)
        for (int k = 0; k <= most; k++) { /* so[k + 1] is still that of the values after i */
            const int next = k < most ? k + 1 : k;
            int e = cb_ex_rule(r, so[k]);
            if (a->max < 0 || k < a->max) {
                TRY(cb_schema_literal(a->s, value[i], &one));
                one = cb_ex_pair(r, k ? comma(a->s, one) : one, cb_ex_rule(r, so[next]));
                e = cb_schema_alt(r, 2, (int[]){ one, e });
            }
            TRY(cb_schema_rule_for(a->s, e, &so[k]));
        }
    *x = cb_ex_rule(r, so[0]);
    return CB_OK;
}

static int unlike(struct array *a, const struct sval *const *value, int n, int *x)
{
    int most = a->max >= 0 && a->max < n && a->max > a->min ? a->max : a->min;
    int *so, rc;

    most = most < 1 ? 1 : most;
    if (a->min > n)
        return cb_schema_fail(a->s, CB_EARG, cb_schema_set_at(a->s, a->c, 0),
                              "'minItems' is more than there are values for 'uniqueItems'");
    if (n <= MOST_MIXED) {
        rc = mixed(a, value, n, x);
    } else {
        so = cb_calloc((size_t)most + 1, sizeof *so);
        rc = so ? ordered(a, value, n, so, most, x) : CB_ENOMEM;
        free(so);
    }
    TRY(rc);
    *x = bracketed(a->s, *x);
    return CB_OK;
}

static int unique(struct array *a, int *x, int *done)
{
    const struct sval **value = cb_calloc(MOST_DIFFERENT, sizeof *value);
    int n = 0, rc = value ? CB_OK : CB_ENOMEM;

    *done = 0;
    if (!rc && !a->n_first && !a->contains)
        rc = item_values(a, value, &n);
    if (!rc && n) {
        *done = 1;
        rc = unlike(a, value, n, x);
    } else if (!rc) {
        cb_schema_note(a->s, cb_schema_set_at(a->s, a->c, 0), "'uniqueItems' is not enforced");
    }
    free(value);
    return rc;
}

int cb_schema_array(struct schema *s, const struct schema_set *c, int *x)
{
    struct array a = { .s = s, .c = c, .rest = -1, .most = -1 };
    int done = 0;

    TRY(read_array(&a));
    if (a.max >= 0 && a.max < a.min) {
        *x = cb_ex_chars(s->r, NULL, 0, 0);
        return c->n > 1 ? CB_OK
                        : cb_schema_fail(s, CB_EARG, cb_schema_set_at(s, c, 0),
                                         "no number of items is between the bounds");
    }
    if (a.max != a.n_first || !a.n_first)
        TRY(item(&a, a.n_first, NULL, &a.rest));
    if (a.unique && (a.max < 0 || a.max > 1) && (a.rest >= 0 || a.n_first > 1))
        TRY(unique(&a, x, &done));
    if (done)
        return CB_OK;
    return a.contains ? containing(&a, x) : any_items(&a, x);
}
