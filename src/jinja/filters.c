/* SPDX-License-Identifier: MIT */
/* filters.c - what may stand after `|`: texts, numbers, JSON. */
#include "filters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macos.h"
#include "jcase.h"
#include "jformat.h"
#include "jnum.h"
#include "jprint.h"
#include "members.h"
#include "str_methods.h"

#define FILTER(name)                                                                               \
    static int name(struct jrun *r, const struct jv *v, const struct jargs *a, struct jv *out)

/* ---- texts ---- */

/* The string method of the same name, of what v prints as */
static int by_method(struct jrun *r, const struct jv *v, const char *name, const struct jargs *a,
                     struct jv *out)
{
    const struct jv n = cb_jtext(name);
    struct jv text;

    TRY(cb_jto_str(r, v, &text));
    return cb_jstr_method(&n.str)(r, &text, a, out);
}

#define BY_METHOD(name, method)                                                                    \
    FILTER(name)                                                                                   \
    {                                                                                              \
        return by_method(r, v, method, a, out);                                                    \
    }

BY_METHOD(lower, "lower")
BY_METHOD(upper, "upper")
BY_METHOD(capitalize, "capitalize")
BY_METHOD(trim, "strip")

FILTER(string)
{
    (void)a;
    return cb_jto_str(r, v, out);
}

/* Words as this filter sees them begin after a blank, '-' or an opening bracket, not after every
 * character that is not a letter. */
FILTER(title)
{
    struct jout o = { .r = r };
    struct jv text;
    size_t from = 0;

    (void)a;
    TRY(cb_jto_str(r, v, &text));
    for (size_t i = 0, n; i <= text.str.n; i += n) {
        const uint32_t c = i < text.str.n ? cb_jcode(&text.str, i, &n) : ' ';
        n = i < text.str.n ? n : 1;
        if (!cb_jspace(c) && !(c < 128 && strchr("-({[<", (int)c)))
            continue;
        const struct jstr word = cb_jslice(text.str, from, i).str;
        struct jv w;
        TRY(cb_jcase(r, &word, CASE_CAPITAL, &w));
        TRY(cb_jout_put(&o, w.str));
        if (i < text.str.n)
            TRY(cb_jout_put(&o, cb_jslice(text.str, i, i + n).str));
        from = i + n;
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}

FILTER(replace)
{
    const struct jv *old = cb_jarg(a, 0, "old"), *by = cb_jarg(a, 1, "new");
    struct jv text, x, y;
    int64_t most = -1;

    if (!old || !by)
        return cb_jfail(r, "replace needs two texts");
    TRY(cb_jarg_int(r, a, 2, "count", &most));
    TRY(cb_jto_str(r, v, &text));
    TRY(cb_jto_str(r, old, &x));
    TRY(cb_jto_str(r, by, &y));
    return cb_jreplace(r, &text.str, &x.str, &y.str, most, out);
}

FILTER(center)
{
    const struct jstr blank = cb_jtext(" ").str;
    int64_t width = 80;
    struct jv text;

    TRY(cb_jarg_int(r, a, 0, "width", &width));
    TRY(cb_jto_str(r, v, &text));
    return cb_jpad(r, &text.str, width, &blank, 0, out);
}

FILTER(indent)
{
    const struct jv *width = cb_jarg(a, 0, "width");
    const int first = cb_jarg_true(a, 1, "first", 0), empty = cb_jarg_true(a, 2, "blank", 0);
    const struct jstr blank = cb_jtext(" ").str, none = cb_jtext("").str;
    struct jout whole = { .r = r }, o = { .r = r };
    struct jv text, gap, lines;
    int64_t n = 4;

    TRY(cb_jto_str(r, v, &text));
    if (width && width->kind == J_STR) {
        gap = *width;
    } else {
        TRY(cb_jarg_int(r, a, 0, "width", &n));
        TRY(cb_jpad(r, &none, n, &blank, 1, &gap));
    }
    TRY(cb_jout_put(&whole, text.str));
    TRY(cb_jout_text(&whole, "\n"));
    text = cb_jout_str(&whole);
    TRY(cb_jsplit_lines(r, &text.str, 0, &lines));
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct jstr line = lines.list->at[i].str;
        TRY(i ? cb_jout_text(&o, "\n") : CB_OK);
        if (i ? line.n || empty : first)
            TRY(cb_jout_put(&o, gap.str));
        TRY(cb_jout_put(&o, line));
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}

FILTER(shorten)
{
    struct jstr end = cb_jtext("...").str, s;
    const int kill = cb_jarg_true(a, 1, "killwords", 0);
    int64_t most = 255, leeway = 5, n;
    struct jout o = { .r = r };
    struct jv text;
    const char *p;

    TRY(cb_jarg_int(r, a, 0, "length", &most));
    TRY(cb_jarg_str(r, a, 2, "end", &end));
    TRY(cb_jarg_int(r, a, 3, "leeway", &leeway));
    TRY(cb_jto_str(r, v, &text));
    n = (int64_t)cb_jchars(end.s, end.n);
    if (most < n || leeway < 0)
        return cb_jfail(r, "truncate: the length is less than that of the end");
    *out = text;
    s = text.str;
    if ((int64_t)cb_jchars(s.s, s.n) - most <= leeway)
        return CB_OK;
    s.n = cb_jbyte_of(&s, (size_t)(most - n));
    p = memrchr(s.s, ' ', s.n);
    if (!kill && p)
        s.n = (size_t)(p - s.s);
    TRY(cb_jout_put(&o, s));
    TRY(cb_jout_put(&o, end));
    *out = cb_jout_str(&o);
    return CB_OK;
}

FILTER(wordcount)
{
    struct jv text;
    int64_t count = 0;
    int inside = 0;

    (void)a;
    TRY(cb_jto_str(r, v, &text));
    for (size_t i = 0, n; i < text.str.n; i += n) {
        const uint32_t c = cb_jcode(&text.str, i, &n);
        const int word = cb_jis_letter(c) || c == '_' || (c >= '0' && c <= '9');
        count += word && !inside;
        inside = word;
    }
    *out = cb_jint(count);
    return CB_OK;
}

FILTER(escape)
{
    static const char *const from[] = { "&", "<", ">", "'", "\"" };
    static const char *const to[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };

    (void)a;
    TRY(cb_jto_str(r, v, out));
    for (int i = 0; i < 5; i++) {
        const struct jv x = cb_jtext(from[i]), y = cb_jtext(to[i]), text = *out;
        TRY(cb_jreplace(r, &text.str, &x.str, &y.str, -1, out));
    }
    return CB_OK;
}

FILTER(format)
{
    struct jv text;

    TRY(cb_jto_str(r, v, &text));
    return cb_jpercent(r, &text.str, a, out);
}

/* ---- numbers ---- */

FILTER(absolute)
{
    (void)a;
    if (!cb_jis_num(v))
        return cb_jfail(r, "abs: a %s is not a number", cb_jkind_name(v));
    if (v->kind == J_FLOAT)
        *out = cb_jfloat(fabs(v->f));
    else if (v->i == INT64_MIN)
        return cb_jfail(r, "abs: the number is too large");
    else
        *out = cb_jint(v->i < 0 ? -v->i : v->i);
    return CB_OK;
}

/* The number that text v is -> *d; 0: it is none */
static int number_of(const struct jv *v, double *d)
{
    char buf[128];
    struct jstr s;

    if (v->kind != J_STR)
        return 0;
    s = cb_jstrip(v->str, NULL, 1, 1);
    if (s.n >= sizeof buf || memchr(s.s, 0, s.n))
        return 0;
    memcpy(buf, s.s, s.n);
    buf[s.n] = '\0';
    return cb_jnumber(buf, d);
}

/* A text in base `base`: 1 and *i, or 0 */
static int whole_of(const struct jv *v, int64_t base, int64_t *i)
{
    char buf[80], *end;
    struct jstr s;

    if (v->kind != J_STR || (base && (base < 2 || base > 36)))
        return 0;
    s = cb_jstrip(v->str, NULL, 1, 1);
    if (!s.n || s.n >= sizeof buf || memchr(s.s, 0, s.n))
        return 0;
    memcpy(buf, s.s, s.n);
    buf[s.n] = '\0';
    *i = strtoll(buf, &end, (int)base);
    return !*end && *i != INT64_MAX && *i != INT64_MIN;
}

FILTER(to_int)
{
    const struct jv *otherwise = cb_jarg(a, 0, "default");
    int64_t base = 10, i;
    double d;

    TRY(cb_jarg_int(r, a, 1, "base", &base));
    if (v->kind == J_UNDEFINED)
        return cb_jfail(r, "int: the value is undefined");
    if (v->kind == J_INT || v->kind == J_BOOL)
        *out = cb_jint(v->i);
    else if (whole_of(v, base, &i))
        *out = cb_jint(i);
    else if ((v->kind == J_FLOAT ? (d = v->f, 1) : number_of(v, &d)) && fabs(d) < 9e18)
        *out = cb_jint((int64_t)d);
    else
        *out = otherwise ? *otherwise : cb_jint(0);
    return CB_OK;
}

FILTER(to_float)
{
    const struct jv *otherwise = cb_jarg(a, 0, "default");
    double d;

    if (v->kind == J_UNDEFINED)
        return cb_jfail(r, "float: the value is undefined");
    if (cb_jis_num(v))
        *out = cb_jfloat(cb_jnum(v));
    else if (number_of(v, &d))
        *out = cb_jfloat(d);
    else
        *out = otherwise ? *otherwise : cb_jfloat(0);
    return CB_OK;
}

FILTER(rounded)
{
    const struct jv *method = cb_jarg(a, 1, "method");
    int64_t digits = 0;
    double ten, x;
    char buf[400];

    TRY(cb_jarg_int(r, a, 0, "precision", &digits));
    if (!cb_jis_num(v) || digits < -300 || digits > 300)
        return cb_jfail(r, "round: not a number, or a precision beyond 300");
    if (v->kind == J_FLOAT && !method && digits >= 0 && fabs(v->f) < 1e15) {
        snprintf(buf, sizeof buf, "%.*f", (int)digits, v->f);
        cb_jfix_point(buf);
        out->kind = J_FLOAT;
        return cb_jnumber(buf, &out->f) ? CB_OK : cb_jfail(r, "round: too many digits");
    }
    ten = pow(10, (double)digits);
    x = cb_jnum(v) * ten;
    x = method && cb_jis(method, "ceil")    ? ceil(x)
        : method && cb_jis(method, "floor") ? floor(x)
                                            : rint(x);
    if (v->kind == J_FLOAT || method)
        *out = cb_jfloat(x / ten);
    else
        *out = digits < 0 ? cb_jint((int64_t)(x / ten)) : *v;
    return CB_OK;
}

/* ---- any value ---- */

FILTER(otherwise)
{
    const struct jv *by = cb_jarg(a, 0, "default_value");
    const int missing =
        v->kind == J_UNDEFINED || (cb_jarg_true(a, 1, "boolean", 0) && !cb_jtrue(v));

    (void)r;
    *out = !missing ? *v : by ? *by : cb_jtext("");
    return CB_OK;
}

FILTER(length)
{
    int64_t n;

    (void)a;
    TRY(cb_jlength(r, v, &n));
    *out = cb_jint(n);
    return CB_OK;
}

FILTER(items)
{
    (void)a;
    if (v->kind == J_UNDEFINED)
        return cb_jlist_new(r, 0, out);
    if (v->kind != J_DICT)
        return cb_jfail(r, "items: a %s is not a dict", cb_jkind_name(v));
    return cb_jdict_items(r, v->dict, out);
}

FILTER(attr)
{
    struct jstr name = { 0 };

    TRY(cb_jarg_str(r, a, 0, "name", &name));
    if (!name.s)
        return cb_jfail(r, "attr lacks its name");
    return cb_jattr(r, v, &name, out);
}

/* With the arguments that transformers gives this filter */
FILTER(to_json)
{
    const struct jv *indent = cb_jarg(a, 1, "indent"), *gaps = cb_jarg(a, 2, "separators");
    struct json_form f = { .sort_keys = cb_jarg_true(a, 3, "sort_keys", 0),
                           .ascii = cb_jarg_true(a, 0, "ensure_ascii", 0) };
    const struct jstr blank = cb_jtext(" ").str, none = cb_jtext("").str;
    struct jv gap;

    f.lines = indent && indent->kind != J_NONE;
    f.item = cb_jtext(f.lines ? "," : ", ").str;
    f.key = cb_jtext(": ").str;
    if (f.lines && indent->kind == J_STR) {
        f.indent = indent->str;
    } else if (f.lines) {
        if (indent->kind != J_INT)
            return cb_jfail(r, "tojson: indent is a %s", cb_jkind_name(indent));
        TRY(cb_jpad(r, &none, indent->i, &blank, 1, &gap));
        f.indent = gap.str;
    }
    if (gaps && gaps->kind != J_NONE) {
        if (!cb_jis_seq(gaps) || gaps->list->n != 2 || gaps->list->at[0].kind != J_STR ||
            gaps->list->at[1].kind != J_STR)
            return cb_jfail(r, "tojson: separators are not two texts");
        f.item = gaps->list->at[0].str;
        f.key = gaps->list->at[1].str;
    }
    return cb_jto_json(r, v, &f, out);
}

/* map(attribute=NAME) or map(FILTER, its arguments) */
FILTER(map)
{
    const struct jv *attribute = cb_jkw(a, "attribute"), *by = cb_jkw(a, "default");
    const struct jargs rest = cb_jargs_from(a, 1);
    struct jv items;
    jfn filter = NULL;

    if (a->n && a->at[0].kind == J_STR)
        filter = cb_jfilter(&a->at[0].str);
    if (a->n ? !filter : !attribute)
        return cb_jfail(r, "map: no filter has that name");
    TRY(cb_jitems(r, v, &items));
    TRY(cb_jlist_new(r, items.list->n, out));
    for (size_t i = 0; i < items.list->n; i++) {
        struct jv x;
        if (filter)
            TRY(filter(r, &items.list->at[i], &rest, &x));
        else
            TRY(cb_jpath(r, &items.list->at[i], attribute, &x));
        if (!filter && x.kind == J_UNDEFINED && by)
            x = *by;
        TRY(cb_jlist_add(r, out, &x));
    }
    return CB_OK;
}

static const struct jentry filters[] = {
    { "lower", lower },   { "upper", upper },       { "capitalize", capitalize },
    { "title", title },   { "trim", trim },         { "string", string },
    { "safe", string },   { "replace", replace },   { "center", center },
    { "indent", indent }, { "truncate", shorten },  { "wordcount", wordcount },
    { "escape", escape }, { "e", escape },          { "format", format },
    { "abs", absolute },  { "int", to_int },        { "float", to_float },
    { "round", rounded }, { "default", otherwise }, { "d", otherwise },
    { "length", length }, { "count", length },      { "items", items },
    { "attr", attr },     { "tojson", to_json },    { "map", map },
};

jfn cb_jfilter(const struct jstr *name)
{
    const jfn fn = cb_jentry(filters, sizeof filters / sizeof *filters, name);

    return fn ? fn : cb_jlist_filter(name);
}
