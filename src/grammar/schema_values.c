/* SPDX-License-Identifier: MIT */
/* schema_values.c - enum and const: the values that they name and that fit all else. */
#include <string.h>

#include "schema.h"

/* from: the member that names the value in its enum */
static int fits_all(struct schema *s, const struct schema_set *c, const struct sval *value,
                    const struct sval *from)
{
    int fits = 1;

    for (size_t i = 0; fits == 1 && i < c->n; i++) {
        fits =
            cb_schema_fits(s, value, cb_schema_set_at(s, c, i), cb_schema_set_at(s, c, i) == from);
        TRY(cb_budget_steps(s->budget, 1));
    }
    return fits;
}

/* The named values of one member; `const` as a list of its own */
static const struct sval *list_of(struct schema *s, struct sval *v, struct sval *single)
{
    struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5);

    if (!one)
        return cb_schema_get(s, v, "enum");
    *single = (struct sval){ .kind = SVAL_ARRAY, .n = 1, .first = one };
    return single;
}

/* The member with the fewest values -> *best, whose schema is *from */
static int shortest(struct schema *s, const struct schema_set *c, struct sval *best,
                    struct sval **from)
{
    struct sval single;

    *from = NULL;
    for (size_t i = 0; i < c->n; i++) {
        struct sval *v = cb_schema_set_at(s, c, i);
        const struct sval *list = list_of(s, v, &single);
        if (list && list->kind != SVAL_ARRAY)
            return cb_schema_fail(s, CB_EARG, v, "'enum' must be a list");
        if (!list || (*from && list->n >= best->n))
            continue;
        *best = *list;
        *from = v;
    }
    return CB_OK;
}

int cb_schema_values(struct schema *s, const struct schema_set *c, int *x)
{
    const struct sval *m;
    struct sval list = { 0 }, *from;
    struct ex_list l = { 0 };
    const struct sval *named;
    size_t k = 0;
    int fits, e;

    TRY(shortest(s, c, &list, &from));
    named = from && !cb_sdoc_get(&s->doc, from, "const", 5) ? from : NULL;
    for (m = list.first; k < list.n; m = m->next, k++) {
        TRY(fits = fits_all(s, c, m, named));
        if (!fits)
            continue;
        TRY(cb_schema_literal(s, m, &e));
        cb_ex_add(s->r, &l, e);
    }
    TRY(cb_rules_check(s->r));
    if (!l.n && c->n == 1)
        return cb_schema_fail(s, CB_EARG, from, "'%s' allows nothing",
                              cb_sdoc_get(&s->doc, from, "const", 5) ? "const" : "enum");
    *x = l.n ? cb_ex_alt(s->r, &l) : cb_ex_chars(s->r, NULL, 0, 0);
    return CB_OK;
}
