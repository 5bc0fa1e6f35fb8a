/* SPDX-License-Identifier: MIT */
/* check_schemas.c - schemas in the shapes that zod, pydantic, TypeBox and tools write
 * (vectors/make_schemas.py) are read, and take the texts that fit and no others. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "kit/suite.h"
#include "serve/answer_form.h"
#include "serve/exchange.h"

static int fits(const cb_grammar *g, const char *text)
{
    struct matcher *m;
    int32_t state;
    int moved, yes;

    ck_assert_ok(cb_matcher_new(&g->program, &m));
    state = cb_matcher_state(m);
    for (; *text && state > MATCHER_DEAD; text++) {
        state = cb_matcher_next(m, state, (uint8_t)*text);
        ck_assert_msg(state >= 0 && !cb_matcher_go(m, state, &moved), "%s", cb_error());
        state = cb_matcher_state(m);
    }
    yes = state > MATCHER_DEAD && cb_matcher_may_end(m, state);
    cb_matcher_free(m);
    return yes;
}

/* How many of the texts are not as they should be */
static int count_wrong(const cb_grammar *g, const json_t *c, const char *list, int want)
{
    const json_t *texts = json_object_get(c, list), *t;
    size_t i;
    int wrong = 0;

    json_array_foreach(texts, i, t)
    {
        if (fits(g, json_string_value(t)) == want)
            continue;
        fprintf(stderr, "%s: %s %s\n", json_string_value(json_object_get(c, "name")),
                json_string_value(t), want ? "must fit" : "must not fit");
        wrong++;
    }
    return wrong;
}

START_TEST(schemas_of_tools)
{
    const char *dir = getenv("srcdir");
    json_t *cases, *c;
    char path[1024];
    size_t i;
    int wrong = 0;

    snprintf(path, sizeof path, "%s/tests/vectors/schemas.json", dir ? dir : ".");
    cases = json_load_file(path, 0, NULL);
    ck_assert_uint_ge(json_array_size(cases), 100);
    json_array_foreach(cases, i, c)
    {
        char *text = json_dumps(json_object_get(c, "schema"), JSON_ENCODE_ANY);
        cb_grammar *g;
        if (cb_grammar_new_json_schema(text, &g)) {
            fprintf(stderr, "%s: %s\n", json_string_value(json_object_get(c, "name")), cb_error());
            wrong++;
        } else {
            wrong += count_wrong(g, c, "yes", 1) + count_wrong(g, c, "no", 0);
            cb_grammar_free(g);
        }
        free(text);
    }
    json_decref(cases);
    ck_assert_int_eq(wrong, 0);
}
END_TEST

/* What a schema's grammar does not keep has a note that names it; what it keeps has none. */
START_TEST(notes)
{
    static const struct {
        const char *schema, *note;
    } t[] = {
        { "{\"type\":\"array\",\"uniqueItems\":true}", "#: 'uniqueItems' is not enforced" },
        { "{\"properties\":{\"a\":{\"minLenght\":1}}}",
          "#/properties/a: 'minLenght' is not a known" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":3}]}", "'oneOf' was read as anyOf" },
        { "{\"minProperties\":2}", "'minProperties' counts" },
        { "{\"type\":\"integer\",\"multipleOf\":65537}", "'multipleOf' has too many" },
        { "{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", NULL },
        { "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,2]}}", NULL },
        { "{\"markdownDescription\":\"x\",\"x-a\":1,\"type\":\"integer\",\"multipleOf\":7}", NULL },
        { "{\"minProperties\":1}", NULL },
    };

    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        cb_grammar *g;
        ck_assert_ok(cb_grammar_new_json_schema(t[i].schema, &g));
        ck_assert_msg(t[i].note ? strstr(cb_grammar_notes(g), t[i].note) != NULL
                                : !*cb_grammar_notes(g),
                      "%s: %s", t[i].schema, cb_grammar_notes(g));
        cb_grammar_free(g);
    }
}
END_TEST

/* "#" in a tool's schema is that schema, though it stands within another one. */
START_TEST(forced_calls)
{
    static const char text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"plan\",\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{\"n\":{\"$ref\":\"#/$defs/n\"},\"next\":{\"$ref\":\"#\"}},"
        "\"required\":[\"n\"],\"$defs\":{\"n\":{\"type\":\"integer\"}}}}},"
        "{\"type\":\"function\",\"function\":{\"name\":\"say\",\"parameters\":{\"type\":\"object\","
        "\"properties\":{\"n\":{\"$ref\":\"#/$defs/"
        "n\"}},\"$defs\":{\"n\":{\"type\":\"string\"}}}}}]";
    json_t *tools = json_loads(text, 0, NULL), *choice = json_string("required");
    struct exchange x = { 0 }; /* which asks nobody for memory */
    cb_grammar *g;

    ck_assert_ok(cb_answer_form_call(&x, choice, tools, &g));
    ck_assert(fits(g, "{\"name\":\"plan\",\"arguments\":{\"n\":1,\"next\":{\"n\":2}}}"));
    ck_assert(fits(g, "{\"name\":\"say\",\"arguments\":{\"n\":\"x\"}}"));
    ck_assert(!fits(g, "{\"name\":\"plan\",\"arguments\":{\"n\":\"x\"}}"));
    ck_assert(!fits(g, "{\"name\":\"plan\",\"arguments\":{\"n\":1,\"next\":{}}}"));
    ck_assert(!fits(g, "{\"name\":\"say\",\"arguments\":{\"n\":1}}"));
    ck_assert_str_eq(cb_grammar_notes(g), "");
    cb_grammar_free(g);
    json_decref(tools);
    json_decref(choice);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schemas");
    TCase *t = tcase_create("schemas");

    suite_add_tcase(suite, t);
    tcase_add_test(t, schemas_of_tools);
    tcase_add_test(t, notes);
    tcase_add_test(t, forced_calls);
    return cb_suite_run(suite);
}
