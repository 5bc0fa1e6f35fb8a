/* SPDX-License-Identifier: MIT */
/* schema_kit.c - characters and values as JSON writes them, and small expressions, for the parts of
 * the reader of JSON schemas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decimal.h"
#include "readers.h"
#include "schema.h"

/* ---- characters within quotes ---- */

/* What needs no escape: everything but controls, " and \ */
static const struct char_range bare[] = { { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, 0x10FFFF } };

static int has(const struct rules *r, const struct expr *e, uint32_t c)
{
    for (int32_t i = 0; i < e->n; i++)
        if (r->range[e->a + i].from <= c && c <= r->range[e->a + i].to)
            return 1;
    return 0;
}

static int escaped(struct rules *r, uint32_t c)
{
    static const char from[] = "\b\t\n\f\r\"\\", to[] = "btnfr\"\\";
    const char *p = c ? strchr(from, (int)c) : NULL;
    char text[8];

    if (p)
        snprintf(text, sizeof text, "\\%c", to[p - from]);
    else
        snprintf(text, sizeof text, "\\u%04x", (unsigned)c);
    return cb_schema_text(r, text);
}

/* The ranges of class e that need no escape */
static int bare_part(struct rules *r, const struct expr *e)
{
    struct char_range *part = cb_calloc(3 * (size_t)e->n + 1, sizeof *part);
    size_t n = 0;
    int x;

    if (!part) {
        r->failed = CB_ENOMEM;
        return 0;
    }
    for (int32_t i = 0; i < e->n; i++)
        for (int k = 0; k < 3; k++) {
            const struct char_range a = r->range[e->a + i], b = bare[k];
            const uint32_t from = a.from > b.from ? a.from : b.from;
            const uint32_t to = a.to < b.to ? a.to : b.to;
            if (from <= to)
                part[n++] = (struct char_range){ from, to };
        }
    x = cb_ex_chars(r, part, n, 0);
    free(part);
    return x;
}

int cb_schema_chars(struct rules *r, struct char_range *range, size_t n, int negated)
{
    const int whole = cb_ex_chars(r, range, n, negated);
    const struct expr e = r->failed ? (struct expr){ 0 } : r->expr[whole];
    struct ex_list l = { 0 };

    cb_ex_add(r, &l, bare_part(r, &e));
    for (uint32_t c = 1; c <= '\\'; c++) /* U+0000 never: many readers of JSON refuse it */
        if ((c < 0x20 || c == '"' || c == '\\') && has(r, &e, c))
            cb_ex_add(r, &l, escaped(r, c));
    return cb_ex_alt(r, &l);
}

/* ---- small helpers ---- */

int cb_schema_seq(struct rules *r, int n, const int *x)
{
    struct ex_list l = { 0 };

    for (int i = 0; i < n; i++)
        cb_ex_add(r, &l, x[i]);
    return cb_ex_seq(r, &l);
}

int cb_schema_alt(struct rules *r, int n, const int *x)
{
    struct ex_list l = { 0 };

    for (int i = 0; i < n; i++)
        cb_ex_add(r, &l, x[i]);
    return cb_ex_alt(r, &l);
}

int cb_schema_text(struct rules *r, const char *text)
{
    return cb_ex_text(r, text, strlen(text));
}

int cb_schema_rule_for(struct schema *s, int x, int *rule)
{
    *rule = cb_rule_new(s->r);
    TRY(cb_rules_check(s->r));
    s->r->rule[*rule].expr = x;
    return CB_OK;
}

int cb_schema_literal(struct schema *s, const struct sval *value, int *x)
{
    struct buf b = { 0 };
    int rc = CB_OK;

    cb_sdoc_write(value, &b);
    if (b.failed)
        rc = cb_fail(CB_ENOMEM, "out of memory: a grammar");
    else
        *x = cb_ex_text(s->r, b.s, b.n);
    cb_buf_free(&b);
    return rc;
}

/* One count: *n, at most GRAMMAR_MAX_REPEAT + 1 */
static int read_count(struct schema *s, const struct sval *v, const struct sval *at,
                      const char *name, int *n)
{
    struct decimal d;
    int64_t x;

    if (v->kind != SVAL_NUMBER || !cb_decimal_read(v->s, &d) || d.negative ||
        !cb_decimal_is_whole(&d))
        return cb_schema_fail(s, CB_EARG, at, "'%s' must be a whole number from 0 on", name);
    *n = !cb_decimal_scaled(&d, 0, &x) || x > GRAMMAR_MAX_REPEAT ? GRAMMAR_MAX_REPEAT + 1 : (int)x;
    return CB_OK;
}

int cb_schema_count(struct schema *s, const struct schema_set *c, const char *name, int least,
                    int none, int *out)
{
    int n = 0;

    *out = none;
    for (size_t i = 0; i < c->n; i++) {
        const struct sval *at = cb_schema_set_at(s, c, i), *v = cb_schema_get(s, at, name);
        if (!v)
            continue;
        TRY(read_count(s, v, at, name, &n));
        if (n > GRAMMAR_MAX_REPEAT && !least)
            return cb_schema_fail(s, CB_EUNSUPPORTED, at, "'%s' is more than %d", name,
                                  GRAMMAR_MAX_REPEAT);
        n = n > GRAMMAR_MAX_REPEAT ? none : n; /* as if there were no upper bound */
        if (*out == none || (least ? n >= 0 && n < *out : n > *out))
            *out = n;
    }
    return CB_OK;
}
