/* SPDX-License-Identifier: MIT */
/* str_methods.c - what a template can do with a text, as Python's str does it. */
#include "str_methods.h"

#include <string.h>

#include "jcase.h"
#include "jformat.h"
#include "jprint.h"

#define METHOD(name)                                                                               \
    static int name(struct jrun *r, const struct jv *self, const struct jargs *a, struct jv *out)

/* ---- letters and blanks ---- */

#define CASE(name, how)                                                                            \
    METHOD(name)                                                                                   \
    {                                                                                              \
        TRY(cb_jargs_most(r, a, #name, 0));                                                        \
        return cb_jcase(r, &self->str, how, out);                                                  \
    }

CASE(lower, CASE_LOWER)
CASE(upper, CASE_UPPER)
CASE(title, CASE_TITLE)
CASE(capitalize, CASE_CAPITAL)
CASE(swapcase, CASE_SWAP)

static int strip_sides(struct jrun *r, const struct jv *self, const struct jargs *a, int left,
                       int right, struct jv *out)
{
    struct jstr set = { 0 };

    TRY(cb_jarg_str(r, a, 0, "chars", &set));
    TRY(cb_jstep(r, self->str.n * (set.n + 1)));
    *out = cb_jstr_of(cb_jstrip(self->str, set.s ? &set : NULL, left, right));
    return CB_OK;
}

METHOD(strip)
{
    return strip_sides(r, self, a, 1, 1, out);
}

METHOD(lstrip)
{
    return strip_sides(r, self, a, 1, 0, out);
}

METHOD(rstrip)
{
    return strip_sides(r, self, a, 0, 1, out);
}

/* ---- parts ---- */

static int add_part(struct jrun *r, struct jv *list, const struct jstr *s, size_t from, size_t to)
{
    const struct jv part = cb_jslice(*s, from, to);

    return cb_jlist_add(r, list, &part);
}

static int split_at(struct jrun *r, const struct jstr *s, const struct jstr *gap, int64_t most,
                    struct jv *out)
{
    size_t from = 0;
    int64_t at;

    while (most-- && (at = cb_jfind(s, from, s->n, gap)) >= 0) {
        TRY(add_part(r, out, s, from, (size_t)at));
        from = (size_t)at + gap->n;
    }
    return add_part(r, out, s, from, s->n);
}

static int split_blanks(struct jrun *r, const struct jstr *s, int64_t most, struct jv *out)
{
    size_t i = 0, n;

    for (;;) {
        size_t from;
        while (i < s->n && cb_jspace(cb_jcode(s, i, &n)))
            i += n;
        if (i >= s->n)
            return CB_OK;
        from = i;
        if (!most--)
            return add_part(r, out, s, from, s->n);
        while (i < s->n && !cb_jspace(cb_jcode(s, i, &n)))
            i += n;
        TRY(add_part(r, out, s, from, i));
    }
}

/* The last place of `part` in the first `to` bytes, -1 = none */
static int64_t find_last(const struct jstr *s, size_t from, size_t to, const struct jstr *part)
{
    if (part->n > to || to - part->n < from)
        return -1;
    for (size_t i = to - part->n + 1; i-- > from;)
        if (!memcmp(s->s + i, part->s, part->n))
            return (int64_t)i;
    return -1;
}

static void turn(struct jlist *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jv v = l->at[i];
        l->at[i] = l->at[l->n - 1 - i];
        l->at[l->n - 1 - i] = v;
    }
}

static int rsplit_at(struct jrun *r, const struct jstr *s, const struct jstr *gap, int64_t most,
                     struct jv *out)
{
    size_t to = s->n;
    int64_t at;

    while (most-- && (at = find_last(s, 0, to, gap)) >= 0) {
        TRY(add_part(r, out, s, (size_t)at + gap->n, to));
        to = (size_t)at;
    }
    TRY(add_part(r, out, s, 0, to));
    turn(out->list);
    return CB_OK;
}

static int rsplit_blanks(struct jrun *r, const struct jstr *s, int64_t most, struct jv *out)
{
    struct jstr rest = *s;

    while (most--) {
        size_t word = 0;
        rest = cb_jstrip(rest, NULL, 0, 1);
        if (!rest.n)
            break;
        for (size_t i = 0, n; i < rest.n; i += n)
            if (cb_jspace(cb_jcode(&rest, i, &n)))
                word = i + n;
        TRY(cb_jstep(r, rest.n));
        TRY(add_part(r, out, &rest, word, rest.n));
        rest.n = word;
    }
    rest = cb_jstrip(rest, NULL, 0, 1);
    if (rest.n)
        TRY(add_part(r, out, &rest, 0, rest.n));
    turn(out->list);
    return CB_OK;
}

static int split_side(struct jrun *r, const struct jv *self, const struct jargs *a, int right,
                      struct jv *out)
{
    const struct jstr *s = &self->str;
    struct jstr gap = { 0 };
    int64_t most = -1;

    TRY(cb_jarg_str(r, a, 0, "sep", &gap));
    TRY(cb_jarg_int(r, a, 1, "maxsplit", &most));
    TRY(cb_jlist_new(r, 0, out));
    TRY(cb_jstep(r, s->n * (right ? gap.n + 1 : 1)));
    if (!gap.s)
        return right ? rsplit_blanks(r, s, most, out) : split_blanks(r, s, most, out);
    if (!gap.n)
        return cb_jfail(r, "split: the separator is empty");
    return right ? rsplit_at(r, s, &gap, most, out) : split_at(r, s, &gap, most, out);
}

METHOD(split)
{
    return split_side(r, self, a, 0, out);
}

METHOD(rsplit)
{
    return split_side(r, self, a, 1, out);
}

static int line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

int cb_jsplit_lines(struct jrun *r, const struct jstr *s, int keep_ends, struct jv *list)
{
    size_t from = 0;

    TRY(cb_jlist_new(r, 0, list));
    for (size_t i = 0, n; i < s->n; i += n) {
        if (!line_end(cb_jcode(s, i, &n)))
            continue;
        if (s->s[i] == '\r' && i + 1 < s->n && s->s[i + 1] == '\n')
            n++;
        TRY(add_part(r, list, s, from, keep_ends ? i + n : i));
        from = i + n;
    }
    return from < s->n ? add_part(r, list, s, from, s->n) : CB_OK;
}

METHOD(splitlines)
{
    return cb_jsplit_lines(r, &self->str, cb_jarg_true(a, 0, "keepends", 0), out);
}

static int part_of(struct jrun *r, const struct jargs *a, struct jstr *part)
{
    part->s = NULL;
    TRY(cb_jarg_str(r, a, 0, "sep", part));
    return part->s ? CB_OK : cb_jfail(r, "a text method lacks its argument");
}

static int three(struct jrun *r, const struct jstr *s, const size_t at[4], struct jv *out)
{
    TRY(cb_jlist_new(r, 3, out));
    for (int i = 0; i < 3; i++)
        TRY(add_part(r, out, s, at[i], at[i + 1]));
    out->kind = J_TUPLE;
    return CB_OK;
}

METHOD(partition)
{
    struct jstr gap;
    int64_t at;

    TRY(part_of(r, a, &gap));
    at = cb_jfind(&self->str, 0, self->str.n, &gap);
    const size_t n = self->str.n, p = at < 0 ? n : (size_t)at;
    return three(r, &self->str, (const size_t[4]){ 0, p, at < 0 ? n : p + gap.n, n }, out);
}

METHOD(rpartition)
{
    struct jstr gap;
    int64_t at;

    TRY(part_of(r, a, &gap));
    TRY(cb_jstep(r, self->str.n * (gap.n + 1)));
    at = find_last(&self->str, 0, self->str.n, &gap);
    const size_t n = self->str.n, p = at < 0 ? 0 : (size_t)at;
    return three(r, &self->str, (const size_t[4]){ 0, p, at < 0 ? 0 : p + gap.n, n }, out);
}

/* ---- search ---- */

/* Does self, cut to the range that arguments 1 and 2 give, start or end with a text, or with one of
 * a tuple's? */
static int at_end(struct jrun *r, const struct jv *self, const struct jargs *a, int end,
                  struct jv *out)
{
    const struct jv *what = cb_jarg(a, 0, "prefix");
    const size_t n = self->str.n;
    struct jv list;
    int yes = 0;

    TRY(cb_jargs_most(r, a, end ? "endswith" : "startswith", 1));
    if (!what || (what->kind != J_STR && what->kind != J_TUPLE))
        return cb_jfail(r, "%s: the argument is not a text", end ? "endswith" : "startswith");
    TRY(cb_jlist_new(r, 1, &list));
    if (what->kind == J_STR)
        TRY(cb_jlist_add(r, &list, what));
    else
        list.list = what->list;
    for (size_t i = 0; !yes && i < list.list->n; i++) {
        const struct jv *v = &list.list->at[i];
        TRY(cb_jstep(r, 0));
        if (v->kind == J_STR && v->str.n <= n)
            yes = !memcmp(self->str.s + (end ? n - v->str.n : 0), v->str.s, v->str.n);
    }
    *out = cb_jbool(yes);
    return CB_OK;
}

METHOD(startswith)
{
    return at_end(r, self, a, 0, out);
}

METHOD(endswith)
{
    return at_end(r, self, a, 1, out);
}

/* Character i, counted from the end if negative, as a byte of s */
static size_t place(const struct jstr *s, int64_t i)
{
    const int64_t n = (int64_t)cb_jchars(s->s, s->n);

    i = i < 0 ? i + n : i;
    return i <= 0 ? 0 : i >= n ? s->n : cb_jbyte_of(s, (size_t)i);
}

static int find_side(struct jrun *r, const struct jv *self, const struct jargs *a, int last,
                     struct jv *out)
{
    const struct jstr *s = &self->str;
    int64_t from = 0, to = INT64_MAX, at;
    struct jstr part;

    TRY(part_of(r, a, &part));
    TRY(cb_jarg_int(r, a, 1, "start", &from));
    TRY(cb_jarg_int(r, a, 2, "end", &to));
    TRY(cb_jstep(r, s->n * (last ? part.n + 1 : 1)));
    at = (last ? find_last : cb_jfind)(s, place(s, from), place(s, to), &part);
    *out = cb_jint(at < 0 ? -1 : (int64_t)cb_jchars(s->s, (size_t)at));
    return CB_OK;
}

METHOD(find)
{
    return find_side(r, self, a, 0, out);
}

METHOD(rfind)
{
    return find_side(r, self, a, 1, out);
}

METHOD(index_of)
{
    TRY(find(r, self, a, out));
    return out->i < 0 ? cb_jfail(r, "index: the text is not found") : CB_OK;
}

METHOD(count)
{
    struct jstr part;
    int64_t n = 0, at;

    TRY(part_of(r, a, &part));
    TRY(cb_jstep(r, self->str.n));
    if (!part.n)
        n = (int64_t)cb_jchars(self->str.s, self->str.n) + 1;
    for (size_t i = 0; part.n && (at = cb_jfind(&self->str, i, self->str.n, &part)) >= 0; n++)
        i = (size_t)at + part.n;
    *out = cb_jint(n);
    return CB_OK;
}

static int all_chars(const struct jstr *s, int (*is)(uint32_t c))
{
    for (size_t i = 0, n; i < s->n; i += n)
        if (!is(cb_jcode(s, i, &n)))
            return 0;
    return s->n != 0;
}

static int digit(uint32_t c)
{
    return c >= '0' && c <= '9';
}

static int letter_or_digit(uint32_t c)
{
    return digit(c) || cb_jis_letter(c);
}

#define ALL(name, is)                                                                              \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)a;                                                                                   \
        *out = cb_jbool(all_chars(&self->str, is));                                                \
        return cb_jstep(r, self->str.n);                                                           \
    }

ALL(all_digits, digit)
ALL(all_letters, cb_jis_letter)
ALL(all_word, letter_or_digit)
ALL(all_blanks, cb_jspace)

static int by_test(struct jrun *r, const struct jv *self, const struct jargs *a, const char *name,
                   struct jv *out)
{
    const struct jv v = cb_jtext(name);

    return cb_jtest(&v.str)(r, self, a, out);
}

METHOD(all_upper)
{
    return by_test(r, self, a, "upper", out);
}

METHOD(all_lower)
{
    return by_test(r, self, a, "lower", out);
}

/* ---- new texts ---- */

int cb_jreplace(struct jrun *r, const struct jstr *s, const struct jstr *old, const struct jstr *by,
                int64_t most, struct jv *out)
{
    struct jout o = { .r = r };
    size_t from = 0;

    TRY(cb_jstep(r, s->n));
    while (most) {
        const int64_t at = old->n ? cb_jfind(s, from, s->n, old) : (int64_t)from;
        size_t end = (size_t)at + old->n;
        if (at < 0)
            break;
        TRY(cb_jout_put(&o, cb_jslice(*s, from, (size_t)at).str));
        TRY(cb_jout_put(&o, *by));
        most -= most > 0;
        if (!old->n) { /* an empty text is found in front of each character and at the end */
            if (from == s->n)
                break;
            end = from + cb_jchar(s, from);
            TRY(cb_jout_put(&o, cb_jslice(*s, from, end).str));
        }
        from = end;
    }
    TRY(cb_jout_put(&o, cb_jslice(*s, from, s->n).str));
    *out = cb_jout_str(&o);
    return CB_OK;
}

METHOD(replace)
{
    struct jstr old = { 0 }, by = { 0 };
    int64_t most = -1;

    TRY(cb_jarg_str(r, a, 0, "old", &old));
    TRY(cb_jarg_str(r, a, 1, "new", &by));
    TRY(cb_jarg_int(r, a, 2, "count", &most));
    if (!old.s || !by.s)
        return cb_jfail(r, "replace needs two texts");
    return cb_jreplace(r, &self->str, &old, &by, most, out);
}

METHOD(removeprefix)
{
    struct jstr part;
    const struct jstr *s = &self->str;

    TRY(part_of(r, a, &part));
    *out = *self;
    if (part.n <= s->n && !memcmp(s->s, part.s, part.n))
        *out = cb_jslice(*s, part.n, s->n);
    return CB_OK;
}

METHOD(removesuffix)
{
    struct jstr part;
    const struct jstr *s = &self->str;

    TRY(part_of(r, a, &part));
    *out = *self;
    if (part.n <= s->n && !memcmp(s->s + s->n - part.n, part.s, part.n))
        *out = cb_jslice(*s, 0, s->n - part.n);
    return CB_OK;
}

int cb_jjoin(struct jrun *r, const struct jstr *gap, const struct jlist *l, int any, struct jv *out)
{
    struct jout o = { .r = r };

    for (size_t i = 0; i < l->n; i++) {
        if (!any && l->at[i].kind != J_STR)
            return cb_jfail(r, "join: a %s is not a text", cb_jkind_name(&l->at[i]));
        TRY(i ? cb_jout_put(&o, *gap) : CB_OK);
        TRY(cb_jprint(&o, &l->at[i]));
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}

METHOD(join)
{
    const struct jv *v = cb_jarg(a, 0, "iterable");
    struct jv list;

    if (!v)
        return cb_jfail(r, "join lacks its argument");
    TRY(cb_jitems(r, v, &list));
    return cb_jjoin(r, &self->str, list.list, 0, out);
}

int cb_jpad(struct jrun *r, const struct jstr *s, int64_t width, const struct jstr *fill, int side,
            struct jv *out)
{
    struct jout o = { .r = r };
    const int64_t n = (int64_t)cb_jchars(s->s, s->n), gap = width > n ? width - n : 0;
    const int64_t left = side > 0 ? gap : side < 0 ? 0 : gap / 2 + (gap & width & 1);

    for (int64_t i = 0; i < left; i++)
        TRY(cb_jout_put(&o, *fill));
    TRY(cb_jout_put(&o, *s));
    for (int64_t i = left; i < gap; i++)
        TRY(cb_jout_put(&o, *fill));
    *out = cb_jout_str(&o);
    return CB_OK;
}

static int pad(struct jrun *r, const struct jv *self, const struct jargs *a, int side,
               struct jv *out)
{
    struct jstr fill = cb_jtext(" ").str;
    int64_t width = 0;

    TRY(cb_jarg_int(r, a, 0, "width", &width));
    TRY(cb_jarg_str(r, a, 1, "fillchar", &fill));
    return cb_jpad(r, &self->str, width, &fill, side, out);
}

METHOD(ljust)
{
    return pad(r, self, a, -1, out);
}

METHOD(center)
{
    return pad(r, self, a, 0, out);
}

METHOD(rjust)
{
    return pad(r, self, a, 1, out);
}

METHOD(zfill)
{
    const struct jstr zero = cb_jtext("0").str;
    int64_t width = 0;

    TRY(cb_jarg_int(r, a, 0, "width", &width));
    return cb_jpad(r, &self->str, width, &zero, 1, out);
}

static const struct jentry methods[] = {
    { "lower", lower },
    { "upper", upper },
    { "casefold", lower },
    { "title", title },
    { "capitalize", capitalize },
    { "swapcase", swapcase },
    { "strip", strip },
    { "lstrip", lstrip },
    { "rstrip", rstrip },
    { "split", split },
    { "rsplit", rsplit },
    { "splitlines", splitlines },
    { "partition", partition },
    { "rpartition", rpartition },
    { "startswith", startswith },
    { "endswith", endswith },
    { "find", find },
    { "rfind", rfind },
    { "index", index_of },
    { "count", count },
    { "isdigit", all_digits },
    { "isdecimal", all_digits },
    { "isnumeric", all_digits },
    { "isalpha", all_letters },
    { "isalnum", all_word },
    { "isspace", all_blanks },
    { "isupper", all_upper },
    { "islower", all_lower },
    { "replace", replace },
    { "removeprefix", removeprefix },
    { "removesuffix", removesuffix },
    { "join", join },
    { "ljust", ljust },
    { "center", center },
    { "rjust", rjust },
    { "zfill", zfill },
    { "format", cb_jformat },
};

jfn cb_jstr_method(const struct jstr *name)
{
    return cb_jentry(methods, sizeof methods / sizeof *methods, name);
}
