/* SPDX-License-Identifier: MIT */
/* schema_string.c - strings of a JSON schema: lengths, patterns, formats; keys of objects. */
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "regex.h"
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
        r->failed = 1;
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

static int bare_char(struct rules *r)
{
    struct char_range copy[3];

    memcpy(copy, bare, sizeof copy);
    return cb_ex_chars(r, copy, 3, 0);
}

/* ---- strings ---- */

#define DATE                                                                                       \
    "[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"        \
    "02-(0[1-9]|1\\d|2[0-8]))"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" },
    { "ipv4", BYTE "(\\." BYTE "){3}" },
    { "hostname", LABEL "(\\." LABEL "){0,3}" },
    { "email", "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" LABEL "(\\." LABEL "){1,3}" },
};

static int format(struct schema *s, const char *name, const struct where *at, int *x)
{
    for (size_t i = 0; name && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name))
            return cb_regex_expr(formats[i].regex, strlen(formats[i].regex), name, 0,
                                 cb_schema_chars, s->r, x);
    return cb_schema_fail(CB_EUNSUPPORTED, at, "'format' %.60s is not supported",
                          name ? name : "that is no text");
}

static int pattern(struct schema *s, json_t *regex, const struct where *at, int *x)
{
    if (!json_is_string(regex))
        return cb_schema_fail(CB_EARG, at, "'pattern' must be a text");
    return cb_regex_expr(json_string_value(regex), json_string_length(regex), "pattern", 1,
                         cb_schema_chars, s->r, x);
}

static int quoted(struct schema *s, int x)
{
    return cb_schema_seq(s->r, 3,
                         (int[]){ cb_schema_text(s->r, "\""), x, cb_schema_text(s->r, "\"") });
}

int cb_schema_string(struct schema *s, json_t *j, const struct where *at, int *x)
{
    json_t *regex = json_object_get(j, "pattern"), *form = json_object_get(j, "format");
    int min, max;

    TRY(cb_schema_count(j, "minLength", at, 0, &min));
    TRY(cb_schema_count(j, "maxLength", at, -1, &max));
    if (max >= 0 && max < min)
        return cb_schema_fail(CB_EARG, at, "'maxLength' is less than 'minLength'");
    if (!!regex + !!form + (min > 0 || max >= 0) > 1)
        return cb_schema_fail(CB_EUNSUPPORTED, at,
                              "only one of 'pattern', 'format', and lengths is supported");
    if (regex)
        TRY(pattern(s, regex, at, x));
    else if (form)
        TRY(format(s, json_string_value(form), at, x));
    if (regex || form)
        *x = quoted(s, *x);
    else if (min == 0 && max < 0)
        *x = cb_ex_rule(s->r, s->string);
    else
        *x = quoted(
            s, cb_ex_repeat(
                   s->r,
                   cb_schema_alt(s->r, 2, (int[]){ bare_char(s->r), cb_ex_rule(s->r, s->escape) }),
                   min, max));
    return CB_OK;
}

/* ---- keys ---- */

enum { MOST_KEY = 1000 };

/* key[n] are sorted, and agree in their first `depth` bytes. */
int cb_schema_other_keys(struct schema *s, const char *const *key, size_t n, size_t depth,
                         int *rule)
{
    struct char_range *not = cb_calloc(n + 1, sizeof *not );
    struct ex_list l = { 0 };
    size_t n_not = 0, i = 0;
    int rc = not ? CB_OK : CB_ENOMEM;

    if (!rc && depth > MOST_KEY)
        rc = cb_fail(CB_EUNSUPPORTED,
                     "schema: a property of more than %d bytes, and others that "
                     "are not listed",
                     MOST_KEY);
    *rule = cb_rule_new(s->r);
    if (i < n && !key[i][depth])
        i++; /* a key ends here, so another one does not */
    else
        cb_ex_add(s->r, &l, cb_ex_empty(s->r));
    while (!rc && i < n) {
        uint32_t c;
        const int len = cb_read_char(key[i] + depth, strlen(key[i] + depth), &c);
        size_t end = i + 1;
        int longer;
        while (end < n && !strncmp(key[i] + depth, key[end] + depth, (size_t)len))
            end++;
        not [n_not++] = (struct char_range){ c, c };
        rc = cb_schema_other_keys(s, key + i, end - i, depth + (size_t)len, &longer);
        if (!rc && c >= 0x20 && c != '"' && c != '\\')
            cb_ex_add(s->r, &l,
                      cb_schema_seq(s->r, 2,
                                    (int[]){ cb_ex_text(s->r, key[i] + depth, (size_t)len),
                                             cb_ex_rule(s->r, longer) }));
        i = end;
    }
    if (!rc) {
        const int whole = cb_ex_chars(s->r, not, n_not, 1);
        const struct expr e = s->r->failed ? (struct expr){ 0 } : s->r->expr[whole];
        cb_ex_add(s->r, &l,
                  cb_schema_seq(
                      s->r, 2,
                      (int[]){ bare_part(s->r, &e), cb_ex_repeat(s->r, bare_char(s->r), 0, -1) }));
        rc = cb_rules_check(s->r);
    }
    if (!rc)
        s->r->rule[*rule].expr = cb_ex_alt(s->r, &l);
    free(not );
    return rc;
}
