/* SPDX-License-Identifier: MIT */
/* re_walk.c - what a regular expression allows after a character (Brzozowski's derivative), and
 * which characters it does not tell apart. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "grammar_budget.h"
#include "re.h"
#include "readers.h"

static int has_char(const struct re *x, const struct re_node *p, uint32_t c)
{
    int32_t low = 0, high = p->n;

    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (x->range[p->a + mid].to < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < p->n && x->range[p->a + low].from <= c;
}

static re_id after_list(struct re *x, const struct re_node *p, uint32_t c)
{
    re_id *l = cb_calloc((size_t)p->n, sizeof *l), id;

    if (!l) {
        x->failed = x->failed ? x->failed : CB_ENOMEM;
        return x->none;
    }
    for (int32_t i = 0; i < p->n; i++)
        l[i] = cb_re_after(x, x->arg[p->a + i], c);
    id = p->op == RE_ALT ? cb_re_alt(x, l, (size_t)p->n) : cb_re_and(x, l, (size_t)p->n);
    free(l);
    return id;
}

/* Members of a sequence that may be empty let the next one begin: a loop, since there may be many
 */
static re_id after_cat(struct re *x, re_id a, uint32_t c)
{
    re_id *l = NULL, id;
    size_t n = 0, cap = 0;

    for (int last = 0; !last && !x->failed; n++) {
        const struct re_node p = x->node[a];
        const int rc = cb_budget_grow(x->budget, (void **)&l, &cap, n + 1, sizeof *l);
        if (rc) {
            x->failed = rc;
            break;
        }
        last = p.op != RE_CAT || !x->node[p.a].nullable;
        if (p.op != RE_CAT)
            l[n] = cb_re_after(x, a, c);
        else
            l[n] = cb_re_cat(x, cb_re_after(x, p.a, c), p.n);
        a = p.n;
    }
    id = x->failed ? x->none : cb_re_alt(x, l, n);
    cb_budget_bytes(x->budget, cap * sizeof *l, 0);
    free(l);
    return id;
}

re_id cb_re_after(struct re *x, re_id a, uint32_t c)
{
    const struct re_node p = x->node[a];
    const int rc = cb_budget_steps(x->budget, 1);

    if (rc && !x->failed)
        x->failed = rc;
    if (x->failed)
        return x->none;
    switch (p.op) {
    case RE_CHARS:
        return has_char(x, &p, c) ? x->empty : x->none;
    case RE_CAT:
        return after_cat(x, a, c);
    case RE_ALT:
    case RE_AND:
        return after_list(x, &p, c);
    case RE_NOT:
        return cb_re_not(x, cb_re_after(x, p.a, c));
    case RE_REPEAT:
        return cb_re_cat(
            x, cb_re_after(x, p.a, c),
            cb_re_repeat(x, p.a, p.min > 0 ? p.min - 1 : 0, p.max < 0 ? -1 : p.max - 1));
    default:
        return x->none;
    }
}

int cb_re_fits(struct re *x, re_id a, const char *s, size_t n)
{
    for (size_t i = 0; i < n && a != x->none;) {
        uint32_t c;
        const int len = cb_read_char(s + i, n - i, &c);
        if (!len)
            return 0;
        a = cb_re_after(x, a, c);
        i += (size_t)len;
    }
    return x->failed ? x->failed : x->node[a].nullable;
}

/* ---- classes ---- */

/* The characters at which a class begins: cut[n] ascending, without the end of all */
static int find_cuts(struct re *x, uint32_t **cut, size_t *n)
{
    size_t total = 2 * x->n_range + 1, k = 1;
    struct char_range *sorted = cb_calloc(total, sizeof *sorted);
    int rc = cb_budget_steps(x->budget, total);

    *cut = cb_calloc(total, sizeof **cut);
    if (!sorted || !*cut)
        rc = CB_ENOMEM;
    for (size_t i = 0; !rc && i < x->n_range; i++) { /* as ranges, which can be sorted */
        sorted[2 * i].from = sorted[2 * i].to = x->range[i].from;
        sorted[2 * i + 1].from = sorted[2 * i + 1].to = x->range[i].to + 1;
    }
    if (!rc) {
        cb_ranges_sort(sorted, 2 * x->n_range);
        for (size_t i = 0; i < 2 * x->n_range; i++)
            if (sorted[i].from > (*cut)[k - 1] && sorted[i].from <= 0x10FFFF)
                (*cut)[k++] = sorted[i].from;
    }
    *n = k;
    free(sorted);
    return rc;
}

struct marked {
    uint64_t mark; /* a hash of the classes that have it */
    uint32_t from, to;
};

static int by_mark(const void *a, const void *b)
{
    const struct marked *x = a, *y = b;

    if (x->mark != y->mark)
        return x->mark < y->mark ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

static int mark_cuts(struct re *x, const uint32_t *cut, size_t n, struct marked *m)
{
    for (size_t i = 0; i < n; i++)
        m[i] = (struct marked){ 0, cut[i], i + 1 < n ? cut[i + 1] - 1 : 0x10FFFF };
    for (size_t k = 0; k < x->n_node; k++) {
        const struct re_node *p = &x->node[k];
        const uint64_t bit = cb_siphash_word(&x->nodes.key, k);
        if (p->op != RE_CHARS)
            continue;
        TRY(cb_budget_steps(x->budget, n / 8));
        for (size_t i = 0; i < n; i++)
            m[i].mark ^= has_char(x, p, m[i].from) ? bit : 0;
    }
    qsort(m, n, sizeof *m, by_mark);
    return CB_OK;
}

int cb_re_classes(struct re *x, struct re_classes *c)
{
    struct marked *m = NULL;
    uint32_t *cut = NULL;
    size_t n = 0;
    int rc = find_cuts(x, &cut, &n);

    *c = (struct re_classes){ 0 };
    if (!rc) {
        m = cb_calloc(n, sizeof *m);
        c->range = cb_calloc(n, sizeof *c->range);
        c->from = cb_calloc(n + 1, sizeof *c->from);
        rc = m && c->range && c->from ? mark_cuts(x, cut, n, m) : CB_ENOMEM;
    }
    for (size_t i = 0; !rc && i < n; i++) {
        if (!i || m[i].mark != m[i - 1].mark)
            c->from[c->n++] = i;
        c->range[i] = (struct char_range){ m[i].from, m[i].to };
        c->from[c->n] = i + 1;
    }
    free(m);
    free(cut);
    if (rc)
        cb_re_classes_free(c);
    return rc;
}

void cb_re_classes_free(struct re_classes *c)
{
    free(c->range);
    free(c->from);
    *c = (struct re_classes){ 0 };
}
