/* SPDX-License-Identifier: MIT */
/* jprint.c - values as text: as a template prints them, and as JSON. */
#include "jprint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "jnum.h"
#include "jsort.h"

static int put_num(struct jout *o, const struct jv *v, int own)
{
    char buf[64];

    if (v->kind == J_FLOAT)
        cb_jfloat_text(v->f, buf, sizeof buf);
    else
        snprintf(buf, sizeof buf, "%lld", (long long)v->i);
    return cb_jout_bytes(o, buf, strlen(buf), own);
}

/* ---- repr ---- */

static int prints(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return 0;
    case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default:
        return 1;
    }
}

/* The character at s[at..at + n) */
static int repr_char(struct jout *o, const struct jstr *s, size_t at, size_t n, char quote)
{
    static const char plain[] = "\n\r\t\\", letter[] = "nrt\\";
    size_t len;
    const uint32_t c = cb_jcode(s, at, &len);
    const char *p = c && c < 128 ? strchr(plain, (int)c) : NULL;
    char buf[16];

    if (p || c == (unsigned char)quote)
        snprintf(buf, sizeof buf, "\\%c", p ? letter[p - plain] : quote);
    else if (prints(c) && (n > 1 || c < 128))
        return cb_jout_put(o, cb_jslice(*s, at, at + n).str);
    else
        snprintf(buf, sizeof buf, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    return cb_jout_bytes(o, buf, strlen(buf), s->own && s->own[at]);
}

static int repr_str(struct jout *o, const struct jstr *s)
{
    const char quote = memchr(s->s, '\'', s->n) && !memchr(s->s, '"', s->n) ? '"' : '\'';

    TRY(cb_jout_bytes(o, &quote, 1, 0));
    for (size_t i = 0, n; i < s->n; i += n) {
        n = cb_jchar(s, i);
        TRY(repr_char(o, s, i, n, quote));
    }
    return cb_jout_bytes(o, &quote, 1, 0);
}

static int repr_list(struct jout *o, const struct jv *v)
{
    const int tuple = v->kind == J_TUPLE;

    TRY(cb_jout_text(o, tuple ? "(" : "["));
    for (size_t i = 0; i < v->list->n; i++) {
        TRY(i ? cb_jout_text(o, ", ") : CB_OK);
        TRY(cb_jrepr(o, &v->list->at[i]));
    }
    return cb_jout_text(o, tuple ? v->list->n == 1 ? ",)" : ")" : "]");
}

static int repr_dict(struct jout *o, const struct jdict *d)
{
    TRY(cb_jout_text(o, "{"));
    for (size_t i = 0; i < d->n; i++) {
        TRY(i ? cb_jout_text(o, ", ") : CB_OK);
        TRY(cb_jrepr(o, &d->at[i].key));
        TRY(cb_jout_text(o, ": "));
        TRY(cb_jrepr(o, &d->at[i].value));
    }
    return cb_jout_text(o, "}");
}

int cb_jrepr(struct jout *o, const struct jv *v)
{
    int rc;

    if (v->kind == J_STR)
        return repr_str(o, &v->str);
    if (v->kind == J_UNDEFINED)
        return cb_jout_text(o, "Undefined");
    if (!cb_jis_seq(v) && v->kind != J_DICT)
        return cb_jprint(o, v);
    TRY(cb_jdeeper(o->r));
    rc = v->kind == J_DICT ? repr_dict(o, v->dict) : repr_list(o, v);
    o->r->depth--;
    return rc;
}

int cb_jprint(struct jout *o, const struct jv *v)
{
    switch (v->kind) {
    case J_UNDEFINED:
        return CB_OK;
    case J_NONE:
        return cb_jout_text(o, "None");
    case J_BOOL:
        return cb_jout_text(o, v->i ? "True" : "False");
    case J_INT:
    case J_FLOAT:
        return put_num(o, v, 0);
    case J_STR:
        return cb_jout_put(o, v->str);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        return cb_jrepr(o, v);
    default:
        return cb_jfail(o->r, "a %s cannot be printed", cb_jkind_name(v));
    }
}

int cb_jto_str(struct jrun *r, const struct jv *v, struct jv *out)
{
    struct jout o = { .r = r };

    if (v->kind == J_STR) {
        *out = *v;
        return CB_OK;
    }
    TRY(cb_jprint(&o, v));
    *out = cb_jout_str(&o);
    return CB_OK;
}

/* ---- JSON ---- */

struct json_out {
    struct jout o;
    const struct json_form *f;
    int level;
};

static int put(struct json_out *j, const char *s, size_t n)
{
    return cb_jout_bytes(&j->o, s, n, 1);
}

/* One character, escaped as \uXXXX, beyond U+FFFF as two surrogates */
static int json_escape(struct json_out *j, uint32_t c)
{
    char buf[16];

    if (c > 0xFFFF)
        snprintf(buf, sizeof buf, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (c >> 10)),
                 (unsigned)(0xDC00 | (c & 0x3FF)));
    else
        snprintf(buf, sizeof buf, "\\u%04x", (unsigned)c);
    return put(j, buf, strlen(buf));
}

static int json_char(struct json_out *j, const struct jstr *s, size_t at, size_t n)
{
    static const char plain[] = "\n\r\t\b\f\"\\", letter[] = "nrtbf\"\\";
    const unsigned char c = (unsigned char)s->s[at];
    const char *p = c ? strchr(plain, c) : NULL;
    size_t len;

    if (p) {
        const char buf[2] = { '\\', letter[p - plain] };
        return put(j, buf, 2);
    }
    if (c < 0x20 || (c >= 0x7F && j->f->ascii))
        return json_escape(j, cb_jcode(s, at, &len));
    return put(j, s->s + at, n);
}

static int json_str(struct json_out *j, const struct jstr *s)
{
    TRY(put(j, "\"", 1));
    for (size_t i = 0, n; i < s->n; i += n) {
        n = cb_jchar(s, i);
        TRY(json_char(j, s, i, n));
    }
    return put(j, "\"", 1);
}

static int json_line(struct json_out *j)
{
    if (!j->f->lines)
        return CB_OK;
    TRY(put(j, "\n", 1));
    for (int i = 0; i < j->level; i++)
        TRY(put(j, j->f->indent.s, j->f->indent.n));
    return CB_OK;
}

static int json_value(struct json_out *j, const struct jv *v);

static int json_list(struct json_out *j, const struct jlist *l)
{
    TRY(put(j, "[", 1));
    j->level++;
    for (size_t i = 0; i < l->n; i++) {
        TRY(i ? put(j, j->f->item.s, j->f->item.n) : CB_OK);
        TRY(json_line(j));
        TRY(json_value(j, &l->at[i]));
    }
    j->level--;
    TRY(l->n ? json_line(j) : CB_OK);
    return put(j, "]", 1);
}

/* Keys are texts: numbers, truth values and none become the text that they are in JSON. */
static int json_key(struct json_out *j, const struct jv *key)
{
    struct jout saved = j->o;
    struct jv text;

    if (key->kind == J_STR)
        return json_str(j, &key->str);
    if (!cb_jis_num(key) && key->kind != J_NONE)
        return cb_jfail(j->o.r, "tojson: a %s cannot be a key", cb_jkind_name(key));
    j->o = (struct jout){ .r = saved.r };
    TRY(json_value(j, key));
    text = cb_jout_str(&j->o);
    j->o = saved;
    return json_str(j, &text.str);
}

static int json_dict(struct json_out *j, const struct jdict *d)
{
    const struct jpair *at = d->at;

    if (j->f->sort_keys)
        TRY(cb_jsort_pairs(j->o.r, d, &at));
    TRY(put(j, "{", 1));
    j->level++;
    for (size_t i = 0; i < d->n; i++) {
        TRY(i ? put(j, j->f->item.s, j->f->item.n) : CB_OK);
        TRY(json_line(j));
        TRY(json_key(j, &at[i].key));
        TRY(put(j, j->f->key.s, j->f->key.n));
        TRY(json_value(j, &at[i].value));
    }
    j->level--;
    TRY(d->n ? json_line(j) : CB_OK);
    return put(j, "}", 1);
}

static int json_float(struct json_out *j, const struct jv *v)
{
    if (isnan(v->f))
        return put(j, "NaN", 3);
    if (isinf(v->f))
        return v->f < 0 ? put(j, "-Infinity", 9) : put(j, "Infinity", 8);
    return put_num(&j->o, v, 1);
}

static int json_value(struct json_out *j, const struct jv *v)
{
    int rc;

    switch (v->kind) {
    case J_NONE:
        return put(j, "null", 4);
    case J_BOOL:
        return v->i ? put(j, "true", 4) : put(j, "false", 5);
    case J_INT:
        return put_num(&j->o, v, 1);
    case J_FLOAT:
        return json_float(j, v);
    case J_STR:
        return json_str(j, &v->str);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
        TRY(cb_jdeeper(j->o.r));
        rc = v->kind == J_DICT ? json_dict(j, v->dict) : json_list(j, v->list);
        j->o.r->depth--;
        return rc;
    default:
        return cb_jfail(j->o.r, "tojson: %s has no form in JSON", cb_jkind_name(v));
    }
}

int cb_jto_json(struct jrun *r, const struct jv *v, const struct json_form *form, struct jv *out)
{
    struct json_out j = { .o = { .r = r }, .f = form };

    TRY(json_value(&j, v));
    *out = cb_jout_str(&j.o);
    return CB_OK;
}
