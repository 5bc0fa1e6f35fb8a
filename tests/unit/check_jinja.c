/* SPDX-License-Identifier: MIT */
/* check_jinja.c - chat templates render as the package jinja2 renders them
 * (vectors/make_jinja.py), what values wrote is told from what the template wrote, and a hostile
 * template is stopped. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "jinja/jinja.h"
#include "jinja/json_read.h"
#include "kit/suite.h"

static const struct jinja_limits limits = {
    .memory_bytes = 64 << 20, .output_bytes = 1 << 20, .steps = 1000000, .depth = 300
};

/* The time of the vectors: 2 January 2025, 13:04:05, a Thursday */
static const struct tm vector_time = {
    .tm_year = 125, .tm_mon = 0, .tm_mday = 2, .tm_hour = 13, .tm_min = 4, .tm_sec = 5, .tm_wday = 4
};

static int render(struct jrun *r, const char *template, const char *given, struct jstr *out)
{
    const struct node *t;
    struct jv vars;

    r->now = vector_time;
    TRY(cb_jinja_parse(r, template, strlen(template), &t));
    TRY(cb_jread(r, given, strlen(given), &vars));
    return cb_jinja_render(r, t, &vars, out);
}

/* ---- the vectors ---- */

static json_t *vectors;

static void load(void)
{
    const char *dir = getenv("srcdir");
    char path[1024];
    json_error_t e;

    snprintf(path, sizeof path, "%s/tests/vectors/jinja.json", dir ? dir : ".");
    vectors = json_load_file(path, 0, &e);
    ck_assert_msg(vectors != NULL, "%s: %s", path, e.text);
}

static void unload(void)
{
    json_decref(vectors);
}

static const char *text_of(json_t *c, const char *key)
{
    return json_string_value(json_object_get(c, key));
}

/* The texts of the families' cases are above U+007F, their templates are ASCII. */
static void check_origin(const struct jstr *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if ((unsigned char)s->s[i] >= 0x80)
            ck_assert_msg(s->own && s->own[i], "%s: byte %zu of \"%s\" counts as the template's",
                          name, i, s->s);
}

/* 1: as in the vectors. own: the template of the model that the case names */
static int run_case(json_t *c, const char *own)
{
    const char *template = text_of(c, "template"), *want = text_of(c, "want");
    json_t *named = json_object_get(json_object_get(vectors, "templates"), template);
    char *given = json_dumps(json_object_get(c, "given"), JSON_ENCODE_ANY);
    const char *source = own ? own : named ? json_string_value(named) : template;
    struct jrun r;
    struct jstr out = { "", NULL, 0 };
    int rc, same;

    cb_jrun_open(&r, &limits);
    rc = render(&r, source, given, &out);
    same = want ? !rc && out.n == strlen(want) && !memcmp(out.s, want, out.n) : rc < 0;
    if (!same)
        fprintf(stderr, "%s\nwith %s:\n%.*s\nnot\n%s\n%s\n", template, given, (int)out.n, out.s,
                want ? want : "a failure", rc ? cb_error() : "");
    else if (want && (named || own))
        check_origin(&out, template);
    cb_jrun_close(&r);
    free(given);
    return same;
}

static void run_all(const char *part, size_t least)
{
    json_t *cases = json_object_get(vectors, part), *c;
    size_t i, other = 0;

    ck_assert_uint_ge(json_array_size(cases), least);
    json_array_foreach(cases, i, c) other += !run_case(c, NULL);
    ck_assert_uint_eq(other, 0);
}

START_TEST(language)
{
    run_all("language", 300);
}
END_TEST

START_TEST(families)
{
    run_all("families", 100);
}
END_TEST

/* The template of a model in the cache -> NUL-ended, the caller frees; NULL: it is not there */
static char *own_template(const char *file)
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    struct gguf_str s;
    struct gguf *g;
    char path[1024], *out;

    snprintf(path, sizeof path, "%s%s/models/%s",
             cache  ? cache
             : home ? home
                    : "",
             cache ? "" : "/.cache/ctxbank", file);
    if (cb_gguf_open(path, &g) < 0) {
        printf("skipped: %s\n", cb_error());
        return NULL;
    }
    ck_assert_int_eq(cb_gguf_string(g, "tokenizer.chat_template", &s), 1);
    out = strndup(s.s, s.n);
    cb_gguf_close(g);
    return out;
}

START_TEST(models)
{
    json_t *cases = json_object_get(vectors, "models"), *c;
    size_t i, other = 0;

    ck_assert_uint_ge(json_array_size(cases), 28);
    json_array_foreach(cases, i, c)
    {
        char *own = own_template(text_of(c, "template"));
        other += own && !run_case(c, own);
        free(own);
    }
    ck_assert_uint_eq(other, 0);
}
END_TEST

/* ---- origin ---- */

/* The variables; a value is written in capitals, the template in small letters */
#define GIVEN                                                                                      \
    "{\"a\": \"AB\", \"b\": \" CD,EF \", \"l\": [\"G\", \"HI\"], \"d\": {\"K\": \"V\"}, \"u\": "   \
    "\"\\u00c9X\"}"

/* Rows: a template, and what it writes with '^' under each byte that a value wrote */
static const char *const origins[][3] = {
    { "x{{ a }}y", "xABy", " ^^ " },
    { "{{ 'q' + a + 'r' }}", "qABr", " ^^ " },
    { "{{ 'q' ~ a ~ 1 }}", "qAB1", " ^^ " },
    { "{{ a * 2 }}", "ABAB", "^^^^" },
    { "{{ b.strip() }}", "CD,EF", "^^^^^" },
    { "{{ (b ~ 'x').split(',')[1] }}", "EF x", "^^^ " },
    { "{{ a[1:] ~ 'xyz'[1:] }}", "Byz", "^  " },
    { "{{ ('x' ~ a ~ 'y')[::-1] }}", "yBAx", " ^^ " },
    { "{{ a.replace('A', 'xy') }}", "xyB", "  ^" },
    { "{{ 'xyz'.replace('y', a) }}", "xABz", " ^^ " },
    { "{{ l | join('-') }}", "G-HI", "^ ^^" },
    { "{{ a.join(['x', 'y']) }}", "xABy", " ^^ " },
    { "{{ a | lower ~ 'X' | lower }}", "abx", "^^ " },
    { "{{ ('x' ~ u) | capitalize }}", "X\u00e9x", " ^^^" },
    { "{{ '%s/%s' % (a, 'x') }}", "AB/x", "^^  " },
    { "{{ '{}/{}'.format(a, 'x') }}", "AB/x", "^^  " },
    { "{{ a.center(4, '*') }}", "*AB*", " ^^ " },
    { "{{ (a ~ '\nx') | indent(1) }}", "AB\n x", "^^   " },
    { "{{ a | tojson }}", "\"AB\"", "^^^^" },
    { "{{ {'k': a} | tojson }}", "{\"k\": \"AB\"}", "^^^^^^^^^^^" },
    { "{{ d }}", "{'K': 'V'}", "  ^    ^  " },
    { "{{ [a, 'x'] }}", "['AB', 'x']", "  ^^       " },
    { "{% set t %}x{{ a }}{% endset %}{{ t }}", "xAB", " ^^" },
    { "{% macro m(v) %}[{{ v }}]{% endmacro %}{{ m(a) }}", "[AB]", " ^^ " },
    { "{% filter upper %}x{{ a }}{% endfilter %}", "XAB", " ^^" },
    { "{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", "K=V", "^ ^" },
    { "{% set n = namespace(s='') %}{% for x in l %}{% set n.s = n.s + x + '.' %}{% endfor %}{{ "
      "n.s }}",
      "G.HI.", "^ ^^ " },
    { "{{ a | first ~ a | last ~ 'x' | first }}", "ABx", "^^ " },
    { "{{ a | truncate(1, true, '', 0) ~ 'x' }}", "Ax", "^ " },
    { "{{ l | sort | string }}", "['G', 'HI']", "  ^    ^^  " },
    { "{{ l | map('upper') | join }}", "GHI", "^^^" },
    { "{{ b | wordcount }}{{ a | length }}{{ a == 'AB' }}", "22True", "      " },
};

START_TEST(origin_is_kept)
{
    const char *const *row = origins[_i];
    struct jrun r;
    struct jstr out;

    cb_jrun_open(&r, &limits);
    ck_assert_msg(render(&r, row[0], GIVEN, &out) == 0, "%s: %s", row[0], cb_error());
    ck_assert_msg(out.n == strlen(row[1]) && !memcmp(out.s, row[1], out.n), "%s: %.*s", row[0],
                  (int)out.n, out.s);
    for (size_t i = 0; i < out.n; i++)
        ck_assert_msg((out.own && out.own[i]) == (row[2][i] == '^'), "%s: %s: byte %zu", row[0],
                      row[1], i);
    cb_jrun_close(&r);
}
END_TEST

/* ---- limits ---- */

/* Each must fail soon and say why. */
static const char *const hostile[][2] = {
    { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps" },
    { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep" },
    { "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "deep" },
    { "{% set ns = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "" },
    { "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "" },
    { "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l }}",
      "" },
    { "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l|tojson }}",
      "" },
    { "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}{{ ns.l == ns.l + [] }}{% set ns.m = [ns.l] %}{{ ns.m == [ns.l] }}",
      "" },
    { "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}"
      "{{ ns.l }}",
      "deep" },
    { "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}"
      "{% set ns.k = [ns.k] %}{% endfor %}{{ ns.l == ns.k }}",
      "deep" },
    { "{% set ns = namespace(l=[1], k=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}"
      "{% set ns.k = [ns.k] %}{% endfor %}{{ ns.l < ns.k }}",
      "deep" },
    { "{{ 'x' * 999999999999 }}", "" },
    { "{{ [1] * 999999999999 }}", "" },
    { "{{ 'x'.center(999999999999) }}", "" },
    { "{{ 'x'.zfill(9223372036854775807) }}", "" },
    { "{{ 'x' | indent(999999999999) }}", "" },
    { "{{ '%999999999d' % 5 }}{{ 9 ** 9999999 }}", "too large" },
    { "{{ range(999999999999) }}", "range" },
    { "{% for i in range(99999) %}xxxxxxxxxxxxxxxxxxxx{% endfor %}", "" },
    { "{% set x = 'aaaaaaaaaaaaaaaa' * 20000 %}{{ x }}{{ x }}{{ x }}{{ x }}", "writes more" },
    { "{{ ('ab' * 100000).replace('', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx').replace('', 'yyyy') }}",
      "" },
    { "{{ ('ab' * 100000).strip('ab' * 100000) }}", "steps" },
    { "{{ ('a' * 200000).rsplit('a' * 100000 ~ 'b') }}", "steps" },
    { "{{ range(99999)|map('string')|list|unique|list|length }}", "steps" },
    { "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "deep" },
    { "{% set ns = namespace(d={}) %}{% for i in range(9999) %}{% set ns['k'] = 1 %}{% endfor %}",
      "" },
};

START_TEST(hostile_is_stopped)
{
    struct jrun r;
    struct jstr out;

    cb_jrun_open(&r, &limits);
    ck_assert_msg(render(&r, hostile[_i][0], "{}", &out) < 0, "%s", hostile[_i][0]);
    ck_assert_msg(strstr(cb_error(), hostile[_i][1]), "%s: %s", hostile[_i][0], cb_error());
    ck_assert_uint_le(r.used, limits.memory_bytes);
    cb_jrun_close(&r);
}
END_TEST

/* n times `unit` between front and back: must fail, whatever the construct */
static void nested(const char *front, const char *unit, int n, const char *back)
{
    const size_t len = strlen(unit);
    char *s = calloc(strlen(front) + len * (size_t)n + strlen(back) + 1, 1), *p = s;
    struct jrun r;
    struct jstr out;

    ck_assert_ptr_nonnull(s);
    p = stpcpy(p, front);
    for (int i = 0; i < n; i++)
        p = stpcpy(p, unit);
    stpcpy(p, back);
    cb_jrun_open(&r, &limits);
    ck_assert_msg(render(&r, s, "{}", &out) < 0, "%s...", unit);
    cb_jrun_close(&r);
    free(s);
}

START_TEST(deep_sources_are_stopped)
{
    static const char *const units[] = {
        "(",          "[",        "{1:",  "-",      "+",    "not ", "a(", "a[", "1 if 1 else ",
        "a|default(", "x is eq(", "1 + ", "'a' ~ ", "1 < ("
    };

    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        nested("{{ ", units[i], 100000, " 1 }}");
        nested("{{ ", units[i], 100000, "");
    }
    nested("", "{% if 1 %}", 50000, "");
    nested("", "{% for x in [1] %}", 50000, "");
    nested("", "{% filter upper %}", 50000, "");
    nested("{% if 0 %}", "{% elif 0 %}", 50000, "");
    nested("", "{% macro m() %}", 50000, "");
    nested("{% for ", "(", 50000, " in x %}{% endfor %}");
    nested("{{ a", ".b", 50000, " }}");
    nested("{{ 1", "|string", 50000, " }}");
    nested("{{ 1", "()", 50000, " }}");
}
END_TEST

/* A number of every length, with and without a fraction and an exponent, is read or refused. */
START_TEST(numbers_of_any_length)
{
    static const char *const tails[] = { "", ".5", "e1", ".5e1", ".25e+1" };

    for (int n = 1; n < 100; n++)
        for (size_t t = 0; t < sizeof tails / sizeof *tails; t++) {
            const size_t all = (size_t)n + strlen(tails[t]);
            char source[128] = "{{ ";
            struct jrun r;
            struct jstr out;
            memset(source + 3, '1', (size_t)n);
            snprintf(source + 3 + n, sizeof source - 3 - (size_t)n, "%s }}", tails[t]);
            cb_jrun_open(&r, &limits);
            if (all > 50 || (!*tails[t] && n > 19)) {
                ck_assert_int_lt(render(&r, source, "{}", &out), 0);
                ck_assert_msg(all <= 50 || strstr(cb_error(), "too many digits"), "%s: %s", source,
                              cb_error());
            } else {
                ck_assert_msg(!render(&r, source, "{}", &out), "%s: %s", source, cb_error());
            }
            cb_jrun_close(&r);
        }
}
END_TEST

START_TEST(bad_json_is_refused)
{
    static const char *const texts[] = {
        "",        "{",          "[1,", "{\"a\"}", "{\"a\":}",     "{a:1}",    "[1 2]", "\"x",
        "\"\\q\"", "\"\\u12\"",  "tru", "01",      "1.e",          "-",        "+1",    "[1]]",
        "\"\n\"",  "{\"a\":1,}", "nul", "[,]",     "1e999999999e", "\"\x01\"",
    };
    static const char pair[] = " [1, {\"a\": \"\\ud83d\\ude00\"}] ";
    struct jrun r;
    struct jv v;

    cb_jrun_open(&r, &limits);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ck_assert_msg(cb_jread(&r, texts[i], strlen(texts[i]), &v) < 0, "%s", texts[i]);
        ck_assert_ptr_nonnull(strstr(cb_error(), "JSON"));
    }
    r.depth = 0;
    ck_assert_int_eq(cb_jread(&r, pair, strlen(pair), &v), 0);
    ck_assert(cb_jis(&v.list->at[1].dict->at[0].value, "\xF0\x9F\x98\x80"));
    cb_jrun_close(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja");
    TCase *c = tcase_create("jinja");

    tcase_add_checked_fixture(c, load, unload);
    tcase_set_timeout(c, 60);
    tcase_add_test(c, language);
    tcase_add_test(c, families);
    tcase_add_test(c, models);
    tcase_add_loop_test(c, origin_is_kept, 0, (int)(sizeof origins / sizeof *origins));
    tcase_add_loop_test(c, hostile_is_stopped, 0, (int)(sizeof hostile / sizeof *hostile));
    tcase_add_test(c, deep_sources_are_stopped);
    tcase_add_test(c, numbers_of_any_length);
    tcase_add_test(c, bad_json_is_refused);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
