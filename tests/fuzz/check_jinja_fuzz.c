/* SPDX-License-Identifier: MIT */
/* check_jinja_fuzz.c - chat templates and conversations changed at random: each renders or fails
 * within the limits, whatever it has become. CTXBANK_FUZZ_ROUNDS sets the number of changes. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja/jinja.h"
#include "jinja/json_read.h"
#include "kit/suite.h"

enum { ROUNDS = 20000, MAX_BYTES = 1 << 16 };

static const struct jinja_limits limits = {
    .memory_bytes = 4 << 20, .output_bytes = 1 << 16, .steps = 20000, .depth = 100
};

struct text {
    char s[MAX_BYTES];
    size_t n;
};

static uint64_t state;

static uint32_t draw(uint32_t n) /* 0 to n - 1; xorshift */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static json_t *load(void)
{
    const char *dir = getenv("srcdir");
    char path[1024];
    json_t *j;

    snprintf(path, sizeof path, "%s/tests/vectors/jinja.json", dir ? dir : ".");
    j = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(j);
    return j;
}

static void set(struct text *t, const char *s)
{
    t->n = strlen(s);
    ck_assert_uint_lt(t->n, MAX_BYTES / 2);
    memcpy(t->s, s, t->n);
}

/* Replaces [at, at + cut) of t by s[n]. */
static void splice(struct text *t, size_t at, size_t cut, const char *s, size_t n)
{
    cut = cut < t->n - at ? cut : t->n - at;
    if (t->n - cut + n > MAX_BYTES)
        return;
    memmove(t->s + at + n, t->s + at + cut, t->n - at - cut);
    memcpy(t->s + at, s, n);
    t->n += n - cut;
}

/* Pieces that steer a parser somewhere new more often than random bytes do */
static const char *const pieces[] = {
    "{{",         "}}",        "{%",       "%}",         "{#",        "#}",       "-%}",
    "{%-",        "{% if",     "{% for ",  "{% set ",    "endfor %}", "endif %}", "else",
    "elif ",      "recursive", "| ",       "|tojson",    "|join",     "|sort",    "|list",
    "|map('",     "is ",       "not ",     "in ",        "and ",      "or ",      "loop",
    "[::-1]",     "[1:]",      "[-1]",     "(",          ")",         "[",        "]",
    "{",          "}",         "'",        "\"",         "\\",        "~",        "+",
    "*",          "**",        "//",       "%",          "==",        "<",        "none",
    "true",       "1e999",     "99999999", "namespace(", "range(9)",  ".split(",  ".replace(",
    "\xFF",       "\xE2\x80",  "\0",       "\n",         " ",         "messages", "content",
    "macro m() ", "%5000d",    "{0}",      "raw",        "endraw",    "caller()", "call m() ",
    "break",      "-1",
};

static void change(struct text *t, const struct text *other)
{
    const size_t at = draw((uint32_t)t->n + 1), n = draw(40);
    const char *p = pieces[draw(sizeof pieces / sizeof *pieces)];
    const char byte = (char)draw(256);
    size_t from;

    switch (draw(5)) {
    case 0:
        splice(t, at, 1, &byte, 1);
        break;
    case 1:
        splice(t, at, n, "", 0);
        break;
    case 2:
        splice(t, at, draw(3), p, *p ? strlen(p) : 1);
        break;
    case 3:
        from = draw((uint32_t)other->n);
        splice(t, at, draw(20), other->s + from, n < other->n - from ? n : other->n - from);
        break;
    default:
        for (uint32_t i = 0, times = draw(50); i < times; i++)
            splice(t, at, 0, p, *p ? strlen(p) : 1);
    }
}

static int run(const struct text *source, const struct text *given)
{
    struct jrun r;
    const struct node *t;
    struct jv vars;
    struct jstr out;
    int rc;

    cb_jrun_open(&r, &limits);
    rc = cb_jinja_parse(&r, source->s, source->n, &t);
    if (!rc)
        rc = cb_jread(&r, given->s, given->n, &vars);
    if (!rc && vars.kind == J_DICT)
        rc = cb_jinja_render(&r, t, &vars, &out);
    ck_assert_uint_le(r.used, limits.memory_bytes);
    ck_assert_int_le(rc, 0);
    cb_jrun_close(&r);
    return rc == 0;
}

START_TEST(changed_templates)
{
    const char *rounds = getenv("CTXBANK_FUZZ_ROUNDS");
    const int n = rounds ? (int)strtol(rounds, NULL, 10) : ROUNDS;
    json_t *j = load(), *cases = json_object_get(j, "families");
    json_t *names = json_object_get(j, "templates");
    static struct text source, other, given;
    int rendered = 0;

    for (int i = 0; i < n; i++) {
        state = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
        draw(2);
        json_t *a = json_array_get(cases, draw((uint32_t)json_array_size(cases)));
        json_t *b = json_array_get(cases, draw((uint32_t)json_array_size(cases)));
        const char *name = json_string_value(json_object_get(a, "template"));
        const char *more = json_string_value(json_object_get(b, "template"));
        char *vars = json_dumps(json_object_get(a, "given"), 0);
        set(&source, json_string_value(json_object_get(names, name)));
        set(&other, json_string_value(json_object_get(names, more)));
        set(&given, vars);
        free(vars);
        for (uint32_t k = 0, times = 1 + draw(4); k < times; k++)
            change(draw(8) ? &source : &given, &other);
        rendered += run(&source, &given);
    }
    ck_assert_int_gt(rendered, n / 20); /* some changes are harmless */
    ck_assert_int_lt(rendered, n);
    json_decref(j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("jinja_fuzz");
    TCase *c = tcase_create("jinja_fuzz");

    tcase_set_timeout(c, 600);
    tcase_add_test(c, changed_templates);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
