/* SPDX-License-Identifier: MIT */
/* check_grammar.c - which texts grammars accept, byte by byte, and which grammars are refused. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "kit/suite.h"
#include "repeated.h"

typedef int (*new_fn)(const char *text, cb_grammar **out);

static const new_fn gbnf = cb_grammar_new_gbnf, schema = cb_grammar_new_json_schema,
                    regex = cb_grammar_new_regex;

enum verdict { NO, PART, YES }; /* PART: more must follow */

static enum verdict read_text(struct matcher *m, const char *text, size_t n)
{
    int32_t state = cb_matcher_state(m);
    int moved;

    for (size_t i = 0; i < n && state != MATCHER_DEAD; i++) {
        state = cb_matcher_next(m, state, (uint8_t)text[i]);
        if (state < 0 || cb_matcher_go(m, state, &moved))
            ck_abort_msg("%s", cb_error());
        state = cb_matcher_state(m);
    }
    return state == MATCHER_DEAD ? NO : cb_matcher_may_end(m, state) ? YES : PART;
}

static enum verdict try_text(const cb_grammar *g, const char *text)
{
    struct matcher *m;
    enum verdict v;

    ck_assert_ok(cb_matcher_new(&g->program, &m));
    v = read_text(m, text, strlen(text));
    cb_matcher_free(m);
    return v;
}

/* Texts separated by |: all of `yes` fit, all of `part` can be continued, none of `no` does either.
 */
struct texts {
    const char *grammar, *yes, *part, *no;
};

static void expect(const cb_grammar *g, const char *grammar, const char *list, enum verdict v)
{
    char *copy = strdup(list ? list : ""), *rest = copy, *text;

    while (list && (text = strsep(&rest, "|")))
        ck_assert_msg(try_text(g, text) == v, "%s: '%s' is %d", grammar, text, try_text(g, text));
    free(copy);
}

static void all_texts(new_fn make, const struct texts *t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cb_grammar *g;
        ck_assert_msg(!make(t[i].grammar, &g), "%s: %s", t[i].grammar, cb_error());
        expect(g, t[i].grammar, t[i].yes, YES);
        expect(g, t[i].grammar, t[i].part, PART);
        expect(g, t[i].grammar, t[i].no, NO);
        cb_grammar_free(g);
    }
}

/* ---- what fits ---- */

START_TEST(gbnf_texts)
{
    static const struct texts t[] = {
        { "root ::= \"ab\"", "ab", "|a", "b|abc|ac" },
        { "root ::= \"\"", "", NULL, "a" },
        { "root ::= \"a\" \"b\" | \"c\"", "ab|c", "a", "ac|b" },
        { "root ::= (\"a\" | \"b\" \"c\")* # all\n", "|a|bc|abca", "b|ab", "c|ac" },
        { "root ::= [a-cx] [^a-c]", "ax|xé|c\xF0\x9F\x98\x80", "a|x\xC3", "d|ab|a\xFF" },
        { "root ::= [^\"\\\\]+", "abc|'|\n", "", "\"|a\\" },
        { "root ::= \"\\x41\\u00e9\\U0001F600\\n\\\"\\\\\\t\\r\"", "Aé\xF0\x9F\x98\x80\n\"\\\t\r",
          "Aé", "A\xF0" },
        { "root ::= [\\]\\-\\^\\[\\\\]", "]|-|^|[|\\", NULL, "a|," },
        { "root ::= [a-]+", "a|-|a-a", NULL, "b" },
        { "root ::= . .", "ab|éé|\n\n", "é|\xC3", "\xFF|abc|\xED\xA0" },
        { "root ::= \"a\"{3} \"b\"{2,} \"c\"{1,3} \"d\"{0,1} \"e\"{0}",
          "aaabbc|aaabbbbccc|aaabbcccd", "aa|aaab", "aaaa|aaabc|aaabbcccc|aaabbce" },
        { "root ::= (\"a\"?){3} \"b\"", "b|ab|aaab", "aaa", "aaaa" },
        { "root ::= \"x\" list \"y\"\nlist ::= item (\",\" item)*\nitem ::= [0-9]+ | \"(\" list "
          "\")\"\n",
          "x1y|x1,(2,(33)),4y", "x(1,(2", "xy|x1,y|x(1,(2)y" },
        { "root ::= a | b\na ::= \"x\" a \"y\" | \"x\" \"y\"\nb ::= \"x\" b \"z\" | \"x\" \"z\"",
          "xy|xxxyyy|xxzz", "xxx|xxxyy", "xxyz|xyy" },
        { "root ::= e\ne ::= t (\"+\" t)*\nt ::= \"n\" | \"(\" e \")\"", "n|n+n|(n+(n))+n", "(n+",
          "n+)|+n" },
        { "root ::= s\ns ::= \"a\" s \"a\" | \"a\"", "a|aaa|aaaaa", "|aa|aaaa", "b" },
        { "root ::=\n  \"a\"\n  | \"b\" # two\n  | (\n  \"c\"\n  \"d\" )\nother ::= \"e\"",
          "a|b|cd", "c", "d|ce" },
        { "root ::= a-1 b_2\na-1 ::= \"1\"\nb_2 ::= \"2\"\n\n", "12", "1", "2" },
        { "root ::= | \"a\"", "|a", NULL, "b" },
        { "root ::= \"a\" b?\nb ::= \"b\" root", "a|aba|ababa", "ab|abab", "b|aa" },
        { "root ::= a \"!\"\na ::= b? c?\nb ::= \"b\"*\nc ::= (\"c\" | \"\")*", "!|b!|bbcc!|c!",
          "bb|", "cb" },
        { "root ::= dead | \"ok\"\ndead ::= \"o\" dead", "ok", "o", "oo" },
        { "root ::= \"a\" [] | \"b\"", "b", NULL, "a" },
    };

    all_texts(gbnf, t, sizeof t / sizeof *t);
}
END_TEST

START_TEST(regex_texts)
{
    static const struct texts t[] = {
        { "abc", "abc", "ab", "abcd|xabc" },
        { "^a.c$", "abc|a\"c|aéc", "ab", "a\nc" },
        { "(foo|ba[rz])+\\d{2,3}?", "foo12|foobar123", "foo|baz1", "12|foo1234" },
        { "[^a-y\\d]*", "|zzz|Z-", NULL, "a|z5" },
        { "\\w+\\s\\W\\D\\S?", "ab !x|ab !xy", "ab !", "ab a|ab !1" },
        { "\\x41\\u00e9\\.\\[\\]\\/\\-\\n", "Aé.[]/-\n", NULL, "B" },
        { "(?:ab)*?c{0,2}x{2,}", "xx|ababccxxx", "abab|x", "abc1|cccx" },
        { "[\\]\\\\a-c-]", "]|\\|b|-", NULL, "d" },
        { "a|b|", "a|b|", NULL, "ab" },
        { "()", "", NULL, "a" },
        { "(?i)ab[x-z]1", "abx1|ABZ1|aBy1", "Ab", "abw1" },
        { "(?i)[^a]\\d", "b1|B2", "b", "a1|A1" },
    };
    cb_grammar *g;

    all_texts(regex, t, sizeof t / sizeof *t);
    ck_assert(!regex("a\\|b", &g)); /* | stands between the texts above */
    ck_assert(try_text(g, "a|b") == YES && try_text(g, "a") == PART);
    cb_grammar_free(g);
}
END_TEST

START_TEST(schema_texts)
{
    static const struct texts t[] = {
        { "{}", "1|-0.5e3|\"x\"|{}|[]|[1, [2,{\"a\": null}]]|true|\"\\u00e9\\ud83d\\ude00\"",
          "{|[1,|tr|\"|{\"a\"", "01|+1|.5|'a'|{a|[,|nul1|\"\\ud83d\\u0041|\"\\u0000|\"\n|\"\t" },
        { "true", "1|{}", "[", "x" },
        { "{\"type\": \"object\"}", "{}|{\"a\": {\"b\":[]}}|{\n  \"a\":1\n}", "{\"a\":1,",
          "[|1|{1" },
        { "{\"type\": [\"string\", \"null\"]}", "\"a\"|null", "\"", "1|t" },
        { "{\"type\": \"boolean\"}", "true|false", "t", "null|1" },
        { "{\"type\": \"integer\"}", "0|-5|123|987654321012345678", "-",
          "01|1.|+|1234567890123456789" },
        { "{\"type\": \"integer\", \"minimum\": -5, \"maximum\": 120}", "-5|-1|0|9|10|99|100|120",
          "-", "-6|-0|121|130|200|1000|-10" },
        { "{\"type\": \"integer\", \"exclusiveMinimum\": 9.5, \"exclusiveMaximum\": 1000}",
          "10|11|999|99", "1|9|8", "0|1000|-" },
        { "{\"type\": \"integer\", \"minimum\": 37}", "37|40|99|100|123456|123456789012345678",
          "3|1", "0|-1|1234567890123456789" },
        { "{\"type\": \"integer\", \"maximum\": -7}", "-7|-10|-99", "-1|-6", "0|1" },
        { "{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}", "0|1|0.5|1.0|0.99", "0.",
          "1.5|-|2|1.01" },
        { "{\"type\": \"number\", \"exclusiveMinimum\": -2, \"maximum\": 30}",
          "-1.5|0|3|29.9|30|30.0|-0.1", "-|-1.", "-2|31|30.1|-2." },
        { "{\"type\": \"number\", \"exclusiveMinimum\": 0}", "0.001|1|100.5", "0|0.|0.0", "-" },
        { "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
          "\"ab\"|\"aé\\n\"|\"\\\"\\\"\"", "\"a|\"ab", "\"a\"|\"abcd" },
        { "{\"type\": \"string\", \"pattern\": \"^[a-c]+\\\\d\\\"$\"}", "\"abc1\\\"\"", "\"a",
          "\"d|\"ab\"" },
        { "{\"pattern\": \"b\"}", "\"abc\"|\"b\"|\"\\\"b\"", "\"a", "\"ac\"" },
        { "{\"pattern\": \"^a\"}", "\"a\"|\"abc\"", "\"", "\"b" },
        { "{\"pattern\": \"\\n\"}", "\"\\n\"|\"x\\n\"", "\"x\\", "\"x\"" },
        { "{\"type\": \"string\", \"format\": \"date\"}", "\"2024-02-28\"|\"1999-12-31\"", "\"2024",
          "\"2024-02-30|\"2024-13|\"2024-04-31" },
        { "{\"type\": \"string\", \"format\": \"date-time\"}",
          "\"2024-02-28T23:59:59Z\"|\"2024-01-31T00:00:00.125+01:30\"", NULL,
          "\"2024-02-28 |\"2024-02-28T24" },
        { "{\"type\": \"string\", \"format\": \"uuid\"}",
          "\"123e4567-e89b-12d3-a456-426614174000\"", NULL, "\"123e4567e" },
        { "{\"enum\": [\"a\\\"b\", 1, 0.1, null, [1, {\"x\": 2}]]}",
          "\"a\\\"b\"|1|0.1|null|[1,{\"x\":2}]", "\"a", "\"b|2|[2" },
        { "{\"enum\": [\"a\", 1], \"type\": \"integer\"}", "1", NULL, "\"" },
        { "{\"const\": \"x\"}", "\"x\"", "\"", "\"y" },
        { "{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 2, "
          "\"maxItems\": 3}",
          "[1,2]|[1, 2, 3]", "[1|[1,2", "[]|[1]|[1,2,3,|[\"" },
        { "{\"items\": {\"type\": \"null\"}}", "[]|[null]|[null,null]", "[", "[1" },
        { "{\"type\": \"array\", \"maxItems\": 0}", "[]", "[", "[1" },
        { "{\"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}", "[1,\"a\"]", "[1",
          "[]|[1]|[1,\"a\"," },
        { "{\"prefixItems\": [{\"type\": \"integer\"}], \"items\": {\"type\": \"null\"}}",
          "[1]|[1,null,null]", "[1,", "[null|[1,1" },
        { "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {}, "
          "\"c\": {\"type\": \"null\"}}, \"required\": [\"b\"]}",
          "{\"b\":1}|{\"a\": 1, \"b\": []}|{\"b\":{},\"c\":null}|{\"a\":1,\"b\":2,\"c\":null}",
          "{|{\"a\":1,|{\"", "{}|{\"c\"|{\"b\":1,\"a\"|{\"a\":1}|{\"a\":\"|{\"d" },
        { "{\"properties\": {\"a\": {}, \"b\": {}}}", "{}|{\"a\":1}|{\"b\":1}|{\"a\":1,\"b\":1}",
          "{\"a\":1,", "{\"b\":1,\"|{,|{\"a\":1,}" },
        { "{\"properties\": {\"ab\": {\"type\": \"integer\"}, \"a\": {\"type\": \"null\"}}, "
          "\"additionalProperties\": {\"type\": \"string\"}}",
          "{\"ab\": 1, \"a\":null, \"abc\":\"x\", \"\":\"y\"}|{}|{\"b\":\"1\"}|{\"é\":\"1\"}",
          "{\"a", "{\"ab\":\"|{\"a\":\"|{\"abc\":1|{\"abc\":\"\",\"ab\"" },
        { "{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}}",
          "{}|{\"x\":1, \"y\":2}", "{\"", "{\"x\":\"" },
        { "{\"type\": \"object\", \"required\": [\"x\"]}", "{\"x\":1}", "{\"x\"", "{}|{\"y\"" },
        { "{\"$ref\": \"#/$defs/n~1o~0%20de\", \"$defs\": {\"n/o~ de\": {\"type\": \"object\", "
          "\"properties\": {\"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/n~1o~0%20de\"}, {\"type\": "
          "\"null\"}]}}, \"required\": [\"next\"]}}}",
          "{\"next\":null}|{\"next\":{\"next\":null}}", "{\"next\":{", "{}|{\"next\":1" },
        { "{\"items\": {\"$ref\": \"#\"}}", "[]|[[],[[]]]", "[[", "[1" },
        { "{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"string\", \"maxLength\": 1}]}",
          "1|\"a\"|\"\"", "-", "\"ab|null" },
        { "{\"type\": \"object\", \"properties\": {\"a\": {}, \"b\": {}}, \"anyOf\": "
          "[{\"required\": [\"a\"]}, {\"required\": [\"b\"]}]}",
          "{\"a\":1}|{\"b\":1}|{\"a\":1,\"b\":1}", NULL, "{}" },
        { "{\"allOf\": [{\"properties\": {\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}, "
          "{\"properties\": {\"b\": {\"type\": \"string\"}, \"a\": {\"minimum\": 3}}}]}",
          "{\"a\":3}|{\"a\":4,\"b\":\"x\"}", NULL, "{}|{\"a\":1}" },
        { "{\"$ref\": \"#/$defs/a\", \"maximum\": 5, \"$defs\": {\"a\": {\"type\": \"integer\", "
          "\"minimum\": 3}}}",
          "3|4|5", NULL, "2|6|33" },
        { "{\"if\": {\"type\": \"integer\"}, \"then\": {\"type\": \"null\"}}", "\"x\"|true|null",
          "\"", "1|1.5" },
        { "{\"title\": \"t\", \"description\": \"d\", \"default\": 1, \"examples\": [], \"x-y\": "
          "1, \"type\": \"null\"}",
          "null", "n", "1" },
    };

    all_texts(schema, t, sizeof t / sizeof *t);
}
END_TEST

/* ---- what is refused ---- */

struct bad {
    new_fn *make;
    const char *grammar, *why;
};

START_TEST(bad_grammars)
{
    new_fn g = gbnf, r = regex, s = schema;
    const struct bad t[] = {
        { &g, "", "grammar: it is empty" },
        { &g, " # only a comment", "grammar: it is empty" },
        { &g, "a ::= \"x\"", "grammar: there is no rule 'root', with which texts begin" },
        { &g, "root ::= \"x\"\nroot ::= \"y\"", "line 2, column 1: 'root' is defined twice" },
        { &g, "root ::= a\n b ::= \"\"", "line 1, column 10: there is no rule 'a'" },
        { &g, "root \"a\"", "line 1, column 6: ::= is missing after 'root'" },
        { &g, "root ::= \"a\n\"", "line 1, column 10: this text has no end" },
        { &g, "root ::= [a\n]", "line 1, column 10: this class has no end" },
        { &g, "root ::= [z-a]", "line 1, column 11: this range runs backwards" },
        { &g, "root ::= \"\\q\"", "line 1, column 11: unknown escape" },
        { &g, "root ::= \"\\x4\"", "column 11: \\x needs 2 hexadecimal digits" },
        { &g, "root ::= \"\\uD800\"", "U+D800 is no character" },
        { &g, "root ::= \"\xFF\"", "line 1, column 11: not UTF-8" },
        { &g, "root ::= (\"a\"", "line 1, column 10: this group has no end" },
        { &g, "root ::= \"a\")", "line 1, column 13: ')' is out of place" },
        { &g, "root ::= \"a\"{2,1}", "this count runs backwards" },
        { &g, "root ::= \"a\"{,1}", "a count is {n}, {n,} or {n,m}" },
        { &g, "root ::= \"a\"{9999999999}", "a count is at most 1048576" },
        { &g, "root ::= *", "line 1, column 10: '*' is out of place" },
        { &g, "root ::= <think>", "tokens are not supported" },
        { &g, "root ::= root \"a\" | \"b\"", "rule 'root' begins with itself (left recursion)" },
        { &g, "root ::= a\na ::= b? c\nb ::= \"b\"\nc ::= a | \"x\"", "(left recursion)" },
        { &g, "root ::= \"a\" root", "no text fits it" },
        { &g, "root ::= (\"a\"{1000000}){1000000} \"b\"{1000000} \"c\"{1000000}", "too large" },
        { &r, "(a", "regex: column 1: this group has no end" },
        { &r, "a)", "regex: column 2: this ) has no beginning" },
        { &r, "[a", "regex: column 1: this class has no end" },
        { &r, "*a", "regex: column 1: there is nothing to repeat" },
        { &r, "a(?<=b)", "regex: column 2: look-behind is not supported" },
        { &r, "a(?i:b)", "regex: column 2: of the groups with (? only" },
        { &r, "(?:a(?=b))*", "regex: a look-ahead, ^ or $ within a repetition" },
        { &r, "a?^b", "regex: ^ after an expression that may be empty is not supported" },
        { &r, "\\p{Greek}", "regex: column 1: this property of characters is not known" },
        { &r, "(a$)b", "no text fits it" },
        { &r, "(a)\\1", "regex: column 4: this escape is not known" },
        { &r, "a\\bb", "regex: column 2: this escape is not known" },
        { &r, "a{2", "regex: column 2: a count is" },
        { &s, "", "schema: line 1" },
        { &s, "{\"a\"", "schema: line 1, column 5" },
        { &s, "3", "schema: #: a schema is an object, true or false" },
        { &s, "false", "no text fits it" },
        { &s, "{\"type\": \"text\"}", "schema: #: 'type' text is not known" },
        { &s, "{\"not\": {}}", "no text fits it" },
        { &s, "{\"properties\": {\"a\": {\"items\": {\"disallow\": 1}}}}",
          "schema: #/properties/a/items: 'disallow' is not supported" },
        { &s, "{\"type\": \"number\", \"multipleOf\": 0}", "'multipleOf' must be above 0" },
        { &s, "{\"contains\": {}, \"maxContains\": 51}", "'maxContains' is more than 50" },
        { &s, "{\"not\": {\"minItems\": 2}}", "schema: #/not: 'not' of these keywords" },
        { &s, "{\"type\": \"integer\", \"minimum\": 5, \"maximum\": 4}", "no number is between" },
        { &s, "{\"minLength\": 2, \"maxLength\": 1}", "'maxLength' is less than 'minLength'" },
        { &s, "{\"minLength\": -1}", "'minLength' must be a whole number" },
        { &s, "{\"pattern\": \"(\"}", "pattern: column 1: this group has no end" },
        { &s, "{\"$ref\": \"#/$defs/x\"}", "'$ref': there is no #/$defs/x" },
        { &s, "{\"$ref\": \"other.json\"}", "only places of this schema" },
        { &s, "{\"$ref\": \"#\"}", "'$ref' leads to itself" },
        { &s, "{\"$ref\": \"#\", \"minimum\": 1}", "leads to itself" },
        { &s, "{\"enum\": []}", "'enum' allows nothing" },
        { &s, "{\"anyOf\": []}", "'anyOf' must be a list of schemas" },
        { &s, "{\"required\": [\"a\"], \"properties\": {}, \"additionalProperties\": false}",
          "'required' names a, which is not allowed" },
        { &s, "{\"type\": \"array\", \"prefixItems\": {}}", "must be a list of schemas" },
        { &s, "{\"type\": \"array\", \"minItems\": 3, \"maxItems\": 2}", "no number of items" },
    };

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        cb_grammar *out;
        const int rc = (*t[i].make)(t[i].grammar, &out);
        ck_assert_msg(rc == CB_EARG || rc == CB_EUNSUPPORTED, "%s: status %d", t[i].grammar, rc);
        ck_assert_ptr_null(out);
        ck_assert_msg(strstr(cb_error(), t[i].why), "%s: %s", t[i].grammar, cb_error());
    }
}
END_TEST

/* ---- hostile grammars and texts ---- */

static void refused(new_fn make, char *text, const char *why)
{
    cb_grammar *g;

    ck_assert_int_lt(make(text, &g), 0);
    ck_assert_msg(strstr(cb_error(), why), "%s", cb_error());
    free(text);
}

START_TEST(deep_grammars)
{
    refused(gbnf, many("(", 100000, "root ::= ", ""), "nested deeper than 500");
    refused(regex, many("(", 100000, "", ""), "nested too deeply");
    refused(schema, many("{\"items\":", 999, "", ""), "schema: line 1");
    refused(gbnf, many("?", 100000, "root ::= \"a\"", ""), "nested deeper than");
    refused(schema, many("[", 100000, "{\"const\":", ""), "nested deeper than 1000");
}
END_TEST

START_TEST(deep_texts)
{
    enum { DEEP = 100000 };
    static const char *const grammars[] = {
        "root ::= v\nv ::= \"[\" v \"]\" | \"1\"",
        "root ::= \"[\" root \"]\" | \"1\"",
        "root ::= a | b\na ::= \"[\" (a | b) \"]\" | \"1\"\nb ::= \"[\" (b | a) \"]\" | \"1\"",
    };
    char *open = many("[", DEEP, "", "1"), *ends = many("]", DEEP, "", "");

    for (int i = 0; i < 3; i++) {
        struct matcher *m, *copy;
        cb_grammar *g;
        ck_assert(!gbnf(grammars[i], &g));
        ck_assert(!cb_matcher_new(&g->program, &m));
        ck_assert_int_eq(read_text(m, open, DEEP + 1), PART);
        ck_assert(!cb_matcher_fork(m, &copy));
        ck_assert_int_eq(read_text(m, ends, DEEP - 1), PART);
        ck_assert_int_eq(read_text(m, "]", 1), YES);
        ck_assert_int_eq(read_text(m, "]", 1), NO);
        ck_assert_int_eq(read_text(copy, ends, DEEP), YES);
        cb_matcher_free(m);
        cb_matcher_free(copy);
        cb_grammar_free(g);
    }
    free(open);
    free(ends);
}
END_TEST

/* Each byte doubles the number of ways to read these texts, or multiplies the stacks. */
START_TEST(ambiguous_grammars)
{
    static const char *const grammars[] = {
        "root ::= s\ns ::= \"a\" s | \"a\" s s | \"a\"",
        "root ::= (\"a\" | \"a\" \"a\" | \"aa\")*",
        "root ::= ((\"a\"*)*)* (\"a\"?){50}",
        "root ::= (x x)* x?\nx ::= \"a\" | y | (\"a\" | \"\")\ny ::= \"a\" | \"\"",
        "root ::= s\ns ::= \"a\" s \"a\" | \"a\" s | \"a\"",
    };
    char *text = many("a", 200, "", "");

    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        cb_grammar *g;
        ck_assert_ok(gbnf(grammars[i], &g));
        ck_assert_int_eq(try_text(g, text), YES);
        cb_grammar_free(g);
    }
    free(text);
}
END_TEST

/* The reader finds a way or gives up; it does not eat all memory. */
START_TEST(grammars_that_are_too_ambiguous)
{
    char *grammars[] = { many(" | [ab] root [ab]", 2000, "root ::= \"a\"", ""),
                         many(" s", 50, "root ::= s\ns ::= \"a\" | \"a\" s", "") };

    for (int k = 0; k < 2; k++) {
        cb_grammar *g;
        struct matcher *m;
        int32_t state;
        ck_assert_ok(gbnf(grammars[k], &g));
        ck_assert(!cb_matcher_new(&g->program, &m));
        state = cb_matcher_state(m);
        for (int i = 0; i < 100000 && state > 0; i++)
            state = cb_matcher_next(m, state, 'a');
        ck_assert_int_eq(state, CB_EUNSUPPORTED);
        ck_assert_ptr_nonnull(strstr(cb_error(), "too many ways"));
        cb_matcher_free(m);
        cb_grammar_free(g);
        free(grammars[k]);
    }
}
END_TEST

/* Nothing recurses as deep as there are members. */
START_TEST(many_members)
{
    char *text =
        many("{\"properties\":{\"a\":{}}},", 20000, "{\"allOf\":[", "{\"required\":[\"a\"]}]}");
    cb_grammar *g;

    ck_assert_ok(schema(text, &g));
    ck_assert_int_eq(try_text(g, "{\"a\":1}"), YES);
    ck_assert_int_eq(try_text(g, "{}"), NO);
    cb_grammar_free(g);
    free(text);
}
END_TEST

/* Reading takes time in proportion to the text, whatever is in a line. */
START_TEST(long_lines)
{
    char *text = many("[a]", 300000, "root ::= ", "");
    const clock_t start = clock();
    cb_grammar *g;

    ck_assert_ok(gbnf(text, &g));
    ck_assert_msg(clock() - start < 5 * CLOCKS_PER_SEC, "%ld", (long)(clock() - start));
    cb_grammar_free(g);
    free(text);
}
END_TEST

/* An object of n properties, without its end; returns its length. */
static size_t write_properties(char *out, int n)
{
    char *p = out;

    p += snprintf(p, 40, "{\"properties\":{\"p0\":{}");
    for (int i = 1; i < n; i++)
        p += snprintf(p, 40, ",\"p%d\":{}", i);
    p += snprintf(p, 40, "}");
    return (size_t)(p - out);
}

static int stop_at(void *user)
{
    int *left = user;

    return --*left <= 0;
}

/* Each reader ends at each limit, which the error names, and when it is told to stop. */
START_TEST(limits)
{
    char *text[] = { many("[a-z] \"b\"? ", 20000, "root ::= ", "\n"),
                     many("{\"properties\":{\"a\":{\"maxLength\":3}}},", 20000, "{\"allOf\":[",
                          "{}]}"),
                     many("[a-z]b?", 20000, "", "") };

    for (int kind = 0; kind < 3; kind++) {
        int left = 2;
        const struct {
            struct grammar_limits limits;
            int status;
            const char *why;
        } t[] = { { { .memory_bytes = 50000 }, CB_EUNSUPPORTED, "more than 50000 bytes" },
                  { { .steps = 1000 }, CB_EUNSUPPORTED, "more than 1000 steps" },
                  { { .seconds = 1e-9 }, CB_EUNSUPPORTED, "more than 1e-09 s" },
                  { { .stop = stop_at, .user = &left }, CB_ECANCEL, "stopped" } };
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            cb_grammar *g;
            ck_assert_int_eq(cb_grammar_new((enum grammar_kind)kind, text[kind], &t[i].limits, &g),
                             t[i].status);
            ck_assert_msg(strstr(cb_error(), t[i].why), "%s", cb_error());
        }
        free(text[kind]);
    }
}
END_TEST

/* Small schemas whose sets are many: read within the memory, or refused by its name */
START_TEST(many_sets)
{
    char *branches = many("{\"required\":[\"p1\"]},{\"required\":[\"p2\"],\"minProperties\":3},",
                          600, "],\"anyOf\":[", "{}]}");
    char *names = many("\"x\",", 4000, "", "\"y\"");
    const char *more = ",\"required\":[\"y\"";
    char *props = malloc(200000), *p = props + write_properties(props, 1500);
    char *text;
    cb_grammar *g;
    int rc;

    snprintf(p, 100, "%s", more);
    text = many(props, 1, "", branches);
    rc = schema(text, &g);
    ck_assert_msg(!rc || strstr(cb_error(), "bytes of memory"), "%s", cb_error());
    if (!rc)
        cb_grammar_free(g);
    free(text);
    text = many(names, 1, "{\"allOf\":[{\"required\":[", "]},{\"required\":[\"x\"]}]}");
    ck_assert_ok(schema(text, &g));
    ck_assert_int_eq(try_text(g, "{\"x\":1,\"y\":2}"), YES);
    cb_grammar_free(g);
    free(text);
    free(names);
    free(props);
    free(branches);
}
END_TEST

/* A list of a million items, where nothing has to be remembered, in little memory */
START_TEST(long_texts)
{
    static const char *const grammars[] = {
        "root ::= \"[\" (n \",\")* n \"]\"\nn ::= [0-9]+",
        "root ::= \"[\" list\nlist ::= n \",\" list | n \"]\"\nn ::= [0-9] n | [0-9]",
    };
    char *items = many("12,", 300000, "[", "7");

    for (int i = 0; i < 2; i++) {
        struct matcher *m;
        cb_grammar *g;
        ck_assert(!gbnf(grammars[i], &g));
        ck_assert(!cb_matcher_new(&g->program, &m));
        ck_assert_int_eq(read_text(m, items, strlen(items)), PART);
        ck_assert_int_lt(cb_matcher_state(m), 100);
        ck_assert_int_eq(read_text(m, "]", 1), YES);
        cb_matcher_free(m);
        cb_grammar_free(g);
    }
    free(items);
}
END_TEST

START_TEST(large_grammars)
{
    enum { WORDS = 20000 };
    char *text = malloc((size_t)WORDS * 24 + 64), *p = text;
    cb_grammar *g;

    p += snprintf(p, 64, "{\"enum\":[\"first\"");
    for (int i = 0; i < WORDS; i++)
        p += snprintf(p, 24, ",\"word %d\"", i);
    snprintf(p, 8, "]}");
    ck_assert_ok(schema(text, &g));
    ck_assert_int_eq(try_text(g, "\"word 19999\""), YES);
    ck_assert_int_eq(try_text(g, "\"word 20000"), NO);
    cb_grammar_free(g);
    free(text);
    ck_assert_ok(schema("{\"type\": \"string\", \"maxLength\": 100000}", &g));
    text = many("x", 100000, "\"", "\"");
    ck_assert_int_eq(try_text(g, text), YES);
    text[100001] = 'x';
    ck_assert_int_eq(try_text(g, text), NO);
    cb_grammar_free(g);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("grammar");
    TCase *t = tcase_create("grammar");

    suite_add_tcase(suite, t);
    tcase_add_test(t, gbnf_texts);
    tcase_add_test(t, regex_texts);
    tcase_add_test(t, schema_texts);
    tcase_add_test(t, bad_grammars);
    tcase_add_test(t, deep_grammars);
    tcase_add_test(t, deep_texts);
    tcase_add_test(t, ambiguous_grammars);
    tcase_add_test(t, grammars_that_are_too_ambiguous);
    tcase_add_test(t, many_members);
    tcase_add_test(t, many_sets);
    tcase_add_test(t, limits);
    tcase_add_test(t, long_lines);
    tcase_add_test(t, long_texts);
    tcase_add_test(t, large_grammars);
    return cb_suite_run(suite);
}
