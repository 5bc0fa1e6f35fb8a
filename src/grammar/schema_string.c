/* SPDX-License-Identifier: MIT */
/* schema_string.c - strings of a JSON schema: lengths, patterns and formats, all at once. */
#include <stdlib.h>
#include <string.h>

#include "readers.h"
#include "regex.h"
#include "schema.h"

/* ---- formats ---- */

#define YEAR "[1-9]\\d{3}"
#define DATE                                                                                       \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"          \
    "02-(0[1-9]|1\\d|2[0-8]))|"                                                                    \
    "([1-9]\\d(0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define IPV4  BYTE "(\\." BYTE "){3}"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define HEX4  "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                       \
    "((" HEX4 ":){7}" HEX4 "|(" HEX4 ":){1,7}:|(" HEX4 ":){1,6}:" HEX4 "|(" HEX4 ":){1,5}(:" HEX4  \
    "){1,2}|(" HEX4 ":){1,4}(:" HEX4 "){1,3}|(" HEX4 ":){1,3}(:" HEX4 "){1,4}|(" HEX4              \
    ":){1,2}(:" HEX4 "){1,5}|" HEX4 ":(:" HEX4 "){1,6}|:((:" HEX4 "){1,7}|:))"
#define EMAIL "[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@" LABEL "(\\." LABEL "){0,2}\\.[A-Za-z]{2,20}"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define URI                                                                                        \
    "[A-Za-z][A-Za-z0-9+.-]{0,30}:(//" PCHAR "+(/" PCHAR "*)*|" PCHAR "+(/" PCHAR "*)*)"           \
    "(\\?(" PCHAR "|[/?])*)?(#(" PCHAR "|[/?])*)?"
#define PART "\\d{1,9}"
#define DURATION                                                                                   \
    "P(" PART "W|(?=\\d|T\\d)(" PART "Y)?(" PART "M)?(" PART "D)?(T(?=\\d)(" PART "H)?(" PART      \
    "M)?(" PART "(\\.\\d{1,9})?S)?)?)"

/* Others, such as binary, password or uri-reference, are free text. */
static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "datetime", DATE "T" TIME },
    { "duration", DURATION },
    { "uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" },
    { "guid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}" },
    { "ipv4", IPV4 },
    { "ipv6", IPV6 },
    { "cidrv4", IPV4 "/(\\d|[12]\\d|3[0-2])" },
    { "hostname", LABEL "(\\." LABEL "){0,3}" },
    { "email", EMAIL },
    { "uri", URI },
    { "url", URI },
    { "path", "[^\\0-\\x1f]+" },
    { "file-path", "[^\\0-\\x1f]+" },
    { "directory-path", "[^\\0-\\x1f]+" },
    { "json-pointer", "(/([^~/\\0-\\x1f]|~[01])*)*" },
    { "byte", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?" },
    { "base64", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?" },
    { "base64url", "[A-Za-z0-9_-]*" },
    { "ulid", "[0-7][0-9A-HJKMNP-TV-Z]{25}" },
    { "nanoid", "[A-Za-z0-9_-]{21}" },
    { "e164", "\\+[1-9]\\d{6,14}" },
};

static int format(struct re *x, const char *name, re_id *out)
{
    *out = x->all;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name))
            return cb_regex(x, formats[i].regex, strlen(formats[i].regex), name, 0, out);
    return CB_OK;
}

/* ---- all of a schema ---- */

static int lengths(struct schema *s, struct re *x, struct sval *v, re_id *out)
{
    struct member m = { v->same ? v->same->id : v->id, 0 };
    const struct schema_set c = { .m = &m, .n = 1 };
    int min, max;

    TRY(cb_schema_count(s, &c, "minLength", 0, 0, &min));
    TRY(cb_schema_count(s, &c, "maxLength", 1, -1, &max));
    if (max >= 0 && max < min)
        return cb_schema_fail(s, CB_EARG, v, "'maxLength' is less than 'minLength'");
    *out = cb_re_repeat(x, x->any, min, max);
    return x->failed;
}

/* What the keywords of v alone say of a string */
static int own(struct schema *s, struct re *x, struct sval *v, re_id *out)
{
    const struct sval *regex = cb_schema_get(s, v, "pattern");
    const struct sval *form = cb_schema_get(s, v, "format");
    re_id part;

    TRY(lengths(s, x, v, out));
    if (regex && regex->kind != SVAL_STRING)
        return cb_schema_fail(s, CB_EARG, v, "'pattern' must be a text");
    if (form && form->kind != SVAL_STRING)
        return cb_schema_fail(s, CB_EARG, v, "'format' must be a text");
    if (regex) {
        TRY(cb_regex(x, regex->s, regex->n, "pattern", 1, &part));
        *out = cb_re_and2(x, *out, part);
    }
    if (form) {
        TRY(format(x, form->s, &part));
        *out = cb_re_and2(x, *out, part);
    }
    return x->failed;
}

/* Texts that `not` of v, which names types, values, or says something of strings, leaves */
static int denied(struct schema *s, struct re *x, struct sval *v, re_id *out)
{
    const struct sval *one = cb_sdoc_get(&s->doc, v, "const", 5);
    const struct sval *list = cb_schema_get(s, v, "enum");
    re_id part;
    int kinds, types;

    *out = x->all;
    TRY(cb_schema_kinds(s, v, &kinds));
    TRY(cb_schema_types(s, v, &types));
    if (!(types & T_STRING))
        return CB_OK;
    if (!(kinds & KW_VALUES)) {
        TRY(own(s, x, v, &part));
        *out = cb_re_not(x, part);
        return x->failed;
    }
    for (const struct sval *m = one ? one : list->first; m; m = one ? NULL : m->next)
        if (m->kind == SVAL_STRING)
            *out = cb_re_and2(x, *out, cb_re_not(x, cb_re_text(x, m->s, m->n)));
    return x->failed;
}

int cb_schema_string_re(struct schema *s, struct re *x, const struct schema_set *c, re_id *out)
{
    re_id part;
    int kinds;

    *out = x->all;
    for (size_t i = 0; i < c->n; i++) {
        struct sval *v = cb_schema_set_at(s, c, i);
        struct sval *no = cb_schema_get(s, v, "not");
        TRY(cb_schema_kinds(s, v, &kinds));
        if (kinds & (KW_STRING | KW_FORMAT)) {
            TRY(own(s, x, v, &part));
            *out = cb_re_and2(x, *out, part);
        }
        if (no && !(c->m[i].done & KW_NOT)) {
            TRY(denied(s, x, no, &part));
            *out = cb_re_and2(x, *out, part);
        }
    }
    return x->failed;
}

/* ---- as expressions ---- */

/* States of a string, and those and characters of one that would need more */
enum { MOST_STATES = 5000, MORE_STATES = 20000, MOST_CLOSE = 500 };

int cb_schema_quoted(struct schema *s, struct re *x, re_id a, int *e)
{
    const struct rules before = *s->r;
    int inner, rc;

    rc = cb_re_expr(x, a, cb_schema_chars, MOST_STATES, s->r, &inner);
    if (rc == CB_EUNSUPPORTED && !x->failed && !s->r->failed) { /* too many states: shorter texts */
        cb_rules_back(s->r, &before);
        a = cb_re_and2(x, a, cb_re_repeat(x, x->any, 0, MOST_CLOSE));
        if (a == x->none)
            return rc;
        rc = cb_re_expr(x, a, cb_schema_chars, MORE_STATES, s->r, &inner);
        if (!rc)
            cb_schema_note(s, NULL, "a string of this schema has at most %d characters",
                           MOST_CLOSE);
    }
    TRY(rc);
    *e = cb_schema_seq(s->r, 3,
                       (int[]){ cb_schema_text(s->r, "\""), inner, cb_schema_text(s->r, "\"") });
    return cb_rules_check(s->r);
}

/* A string of any characters, min to max of them */
static int free_text(struct schema *s, int min, int max)
{
    struct char_range bare[] = { { 0x20, 0x21 }, { 0x23, 0x5B }, { 0x5D, 0x10FFFF } };
    const int one = cb_schema_alt(
        s->r, 2, (int[]){ cb_ex_chars(s->r, bare, 3, 0), cb_ex_rule(s->r, s->escape) });

    if (!min && max < 0)
        return cb_ex_rule(s->r, s->string);
    return cb_schema_seq(s->r, 3,
                         (int[]){ cb_schema_text(s->r, "\""), cb_ex_repeat(s->r, one, min, max),
                                  cb_schema_text(s->r, "\"") });
}

static int string(struct schema *s, const struct schema_set *c, int rough, int *n_left, int *e)
{
    struct re_node p;
    struct re x;
    re_id a;
    int rc;

    cb_re_open(&x, s->budget);
    x.rough = rough;
    rc = cb_schema_string_re(s, &x, c, &a);
    p = rc ? (struct re_node){ 0 } : x.node[a];
    if (!rc && a == x.none && c->n == 1)
        rc = cb_schema_fail(s, CB_EARG, cb_schema_set_at(s, c, 0), "no string fits");
    else if (!rc && p.op == RE_REPEAT && p.a == x.any)
        *e = free_text(s, p.min, p.max);
    else if (!rc)
        rc = cb_schema_quoted(s, &x, a, e);
    *n_left = x.n_left;
    cb_re_close(&x);
    return rc;
}

/* Patterns whose looks around are too much are read again without them. */
int cb_schema_string(struct schema *s, const struct schema_set *c, int *e)
{
    const struct rules before = *s->r;
    int n_left, rc = string(s, c, 0, &n_left, e);
    char *why;

    if (rc != CB_EUNSUPPORTED || s->r->failed)
        return rc;
    why = strdup(cb_error());
    cb_rules_back(s->r, &before);
    rc = string(s, c, 1, &n_left, e);
    if (!rc && n_left)
        cb_schema_note(s, cb_schema_set_at(s, c, 0),
                       "of 'pattern', what looks ahead or back is not enforced");
    else if (rc == CB_EUNSUPPORTED && why)
        (void)cb_fail(rc, "%s", why);
    free(why);
    return rc;
}
