/* SPDX-License-Identifier: MIT */
/* check_grammar_fuzz.c - grammars, regular expressions and JSON schemas changed at random: each is
 * read or refused, and texts of those that are read are followed to an end, a limit, or a dead end
 * that must not be one. CTXBANK_FUZZ_ROUNDS sets the number of changes. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "kit/suite.h"

enum { ROUNDS = 30000, MAX_BYTES = 1 << 14, STEPS = 150 };

static uint64_t state;

static uint32_t draw(uint32_t n) /* 0 to n - 1; xorshift */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static const struct {
    int (*make)(const char *text, cb_grammar **out);
    const char *seed[5], *piece[40];
} kinds[] = {
    { cb_grammar_new_gbnf,
      { "root ::= \"a\" b* # c\nb ::= [x-z] | \"(\" root \")\" | \"é\"{2,3}\n",
        "root ::= s\ns ::= \"a\" s s | \"b\" s? | [^\\n\\x41-\\u00ff]+ \"\\\\\"\n",
        "root ::= (\"a\" | \"\")* x{2,} | y\nx ::= y | \"c\"\ny ::= [0-9]{1,9} | .\n",
        "root ::= obj\nobj ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= [a-z]+ \":\" (obj | "
        "[0-9]+)\n",
        "root ::= a\na ::= b \"1\" | \"x\"\nb ::= c? a\nc ::= \"\" | \"c\"\n" },
      { "(",
        ")",
        "[",
        "]",
        "|",
        "*",
        "+",
        "?",
        "{0}",
        "{3,}",
        "{2,5}",
        "\"\"",
        "\"a\"",
        "[^a]",
        "root",
        "::=",
        "\n",
        "#",
        "\\x41",
        "\\uD800",
        ".",
        "{999999}",
        "\\\"",
        "a ::= ",
        "(\"\")*",
        "(a|a)*",
        "\xC3",
        "\xFF",
        "-",
        "[\\]-]",
        "{1,",
        "| |",
        "root ",
        "{,3}",
        "[\\x00-\\U0010FFFF]",
        " ",
        "{1000}{1000}",
        "(((",
        "x{9}",
        "^" } },
    { cb_grammar_new_regex,
      { "^(foo|ba[rz])+\\d{2,3}?$", "[^a-y\\d]*\\s+", "(?:ab)*?c{0,2}|x?y+|.", "((a|b)*|a*b*){3}",
        "[\\w.-]+@[a-z]+\\.(com|org)" },
      { "(",   ")",   "(?:",     "[",       "]",   "|",   "*",      "+",    "?",         "{2}",
        "{,}", "{1,", "\\",      "\\d",     "\\W", "\\S", "^",      "$",    ".",         "[^",
        "-",   "a-z", "{99999}", "\\u00e9", "\\x", "(?=", "\\b",    "\xFF", "é",         "|",
        "()",  "()*", "(a*)*",   "[]",      "[a-", "\\1", "{9}{9}", "x",    "{1000000}", "\\n" } },
    { cb_grammar_new_json_schema,
      { "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-5,"
        "\"maximum\":120},\"b\":{\"enum\":[\"x\",1,null]}},\"required\":[\"b\"]}",
        "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"minItems\":1,\"maxItems\":3}",
        "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":9},{\"pattern\":\"^a+$\"},{\"const\":{}}]}",
        "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"a\":{\"type\":\"number\","
        "\"maximum\":7}},\"additionalProperties\":{\"type\":\"null\"}}]}",
        "{\"$ref\":\"#/$defs/n\",\"$defs\":{\"n\":{\"type\":[\"object\",\"null\"],\"properties\":"
        "{\"next\":{\"$ref\":\"#/$defs/n\"}}}}}" },
      { "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        ":",
        "null",
        "true",
        "false",
        "{}",
        "[]",
        "1e9",
        "-1",
        "0.5",
        "99999999",
        "\"type\"",
        "\"items\"",
        "\"$ref\"",
        "\"#\"",
        "\"anyOf\"",
        "\"allOf\"",
        "\"enum\"",
        "\"minLength\":3,",
        "\"not\":1,",
        "\"x-a\":1,",
        "\"maxItems\":2,",
        "\"required\":[\"z\"],",
        "\"oneOf\"",
        "\"const\":",
        "\"format\":\"date\",",
        "\"uniqueItems\":false,",
        "\"minimum\":3,",
        "\"integer\"",
        "\"number\"",
        "\"additionalProperties\":",
        "\\u0041",
        "#/properties/a",
        "\"exclusiveMaximum\":1,",
        "\"prefixItems\":[{}]," } },
};

static void splice(char *t, size_t at, size_t cut, const char *s)
{
    const size_t n = strlen(t), len = strlen(s);

    cut = cut < n - at ? cut : n - at;
    if (n - cut + len >= MAX_BYTES)
        return;
    memmove(t + at + len, t + at + cut, n - at - cut + 1);
    memcpy(t + at, s, len);
}

static void change(char *t, const char *const *piece, const char *other)
{
    const size_t at = draw((uint32_t)strlen(t) + 1);
    const char byte[2] = { (char)(1 + draw(255)), 0 };

    switch (draw(5)) {
    case 0:
        splice(t, at, 1, byte);
        break;
    case 1:
        splice(t, at, draw(12), "");
        break;
    case 2:
        splice(t, at, 0, other + draw((uint32_t)strlen(other)));
        break;
    default:
        splice(t, at, draw(4), piece[draw(40)]);
    }
}

/* A random text of the grammar. The grammar leaves no state from which no text fits. */
static void follow(const cb_grammar *g, const char *text)
{
    struct matcher *m;
    int moved, rc = cb_matcher_new(&g->program, &m);

    ck_assert_msg(!rc || rc == CB_EUNSUPPORTED, "%s", cb_error());
    for (int i = 0; i < STEPS && !rc; i++) {
        const int32_t at = cb_matcher_state(m);
        const uint32_t from = draw(256);
        int32_t next = MATCHER_DEAD;
        for (uint32_t b = 0; b < 256 && next == MATCHER_DEAD; b++)
            next = cb_matcher_next(m, at, (uint8_t)(from + b));
        if (next == MATCHER_DEAD && !cb_matcher_may_end(m, at))
            ck_abort_msg("%s: dead end after %d bytes", text, i);
        if (next <= MATCHER_DEAD) {
            ck_assert_msg(!next || next == CB_EUNSUPPORTED, "%s: %d", text, (int)next);
            break;
        }
        rc = cb_matcher_go(m, next, &moved);
    }
    ck_assert_int_le(rc, 0);
    if (m)
        cb_matcher_free(m);
}

static int one_round(int kind)
{
    static char text[MAX_BYTES];
    cb_grammar *g;
    int rc;

    strncpy(text, kinds[kind].seed[draw(5)], MAX_BYTES - 1);
    for (uint32_t k = 0, times = 1 + draw(4); k < times; k++)
        change(text, kinds[kind].piece, kinds[kind].seed[draw(5)]);
    rc = kinds[kind].make(text, &g);
    ck_assert_msg(!rc || rc == CB_EARG || rc == CB_EUNSUPPORTED, "%s: %d", text, rc);
    if (rc)
        return 0;
    follow(g, text);
    cb_grammar_free(g);
    return 1;
}

START_TEST(changed_grammars)
{
    const char *rounds = getenv("CTXBANK_FUZZ_ROUNDS");
    const int n = rounds ? (int)strtol(rounds, NULL, 10) : ROUNDS;
    int read = 0;

    for (int i = 0; i < n; i++) {
        state = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
        draw(2);
        read += one_round(i % 3);
    }
    ck_assert_int_gt(read, n / 20);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar_fuzz");
    TCase *t = tcase_create("grammar_fuzz");

    suite_add_tcase(suite, t);
    tcase_add_test(t, changed_grammars);
    return cb_suite_run(suite);
}
