/* SPDX-License-Identifier: MIT */
/* check_constraint.c - samplers with a grammar: masks against every token tried alone, picks
 * against a search through all tokens, and documents of random schemas, made from random logits and
 * checked by a validator of their own. */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "ctxbank.h"
#include "grammar/constraint.h"
#include "grammar/grammar.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "model/model.h"

static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t n) /* 0 to n - 1; xorshift */
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

static cb_model *tiny(const char *name)
{
    const struct tiny t = cb_tiny_small(name);
    return cb_toy_model(&t, "cpu", 1);
}

static cb_grammar *grammar(int rc, cb_grammar *g)
{
    ck_assert_msg(!rc, "%s", cb_error());
    return g;
}

static cb_grammar *from_schema(const char *text)
{
    cb_grammar *g;
    const int rc = cb_grammar_new_json_schema(text, &g);
    return grammar(rc, g);
}

static cb_grammar *from_gbnf(const char *text)
{
    cb_grammar *g;
    const int rc = cb_grammar_new_gbnf(text, &g);
    return grammar(rc, g);
}

static int bit(const uint64_t *mask, int32_t id)
{
    return (int)(mask[id / 64] >> (id % 64) & 1);
}

/* ---- masks ---- */

static const char *const schemas[] = {
    "{}",
    ("{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 12}, "
     "\"n\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 4711}}, \"required\": "
     "[\"name\"]}"),
    "{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 40}",
    "{\"type\": \"string\", \"pattern\": \"^([a-z]+ ?){3}$\"}",
    "{\"enum\": [\"alpha\", \"beta\", \"all of it\", 17, null]}",
};
static const char *const gbnfs[] = {
    "root ::= [^\\n]* \"\\n\"",          "root ::= .*",
    "root ::= (\"a\" | [é-ü])+",         "root ::= [^a-z\"\\\\]{1,30}",
    "root ::= \"<\" [^<>]* root* \">\"",
};

/* Walks a random text, and compares the mask with each token tried alone. */
static void compare_masks(cb_model *m, const cb_grammar *g, int steps)
{
    const int n = cb_n_vocab(m);
    const struct token_trie *trie;
    struct constraint *c, *alone;

    ck_assert_ok(cb_model_token_trie(m, &trie));
    ck_assert_ok(cb_constraint_new(&g->program, trie, &c));
    ck_assert_ok(cb_constraint_new(&g->program, trie, &alone));
    for (int i = 0; i < steps; i++) {
        const uint64_t *mask;
        const int allowed = cb_constraint_mask(c, &mask);
        int count = 0, wrong = -1;
        int32_t id;
        ck_assert_msg(allowed > 0, "%s", cb_error());
        for (id = 0; id < n; id++) {
            count += bit(mask, id);
            if (bit(mask, id) != cb_constraint_allows(alone, id))
                wrong = id;
        }
        ck_assert_msg(wrong < 0, "step %d: token %d", i, wrong);
        ck_assert_int_eq(count, allowed);
        for (id = (int32_t)draw((uint32_t)n); !bit(mask, id); id = (id + 1) % n)
            ;
        cb_constraint_accept(c, id);
        cb_constraint_accept(alone, id);
    }
    cb_constraint_free(c);
    cb_constraint_free(alone);
}

START_TEST(masks_are_right)
{
    static const char *const models[] = { "llama", "qwen2" };

    for (int k = 0; k < 2; k++) {
        cb_model *m = tiny(models[k]);
        for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
            cb_grammar *g = from_schema(schemas[i]);
            for (int t = 0; t < 10; t++)
                compare_masks(m, g, 40);
            cb_grammar_free(g);
        }
        for (size_t i = 0; i < sizeof gbnfs / sizeof *gbnfs; i++) {
            cb_grammar *g = from_gbnf(gbnfs[i]);
            for (int t = 0; t < 10; t++)
                compare_masks(m, g, 40);
            cb_grammar_free(g);
        }
        cb_model_close(m);
    }
}
END_TEST

/* The path of a real model's file, NULL where it is not there */
static const char *real_model(char path[4096])
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    FILE *f;

    snprintf(path, 4096, "%s%s/models/Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
             cache  ? cache
             : home ? home
                    : "",
             cache ? "" : "/.cache/ctxbank");
    f = fopen(path, "r");
    if (f)
        fclose(f);
    return f ? path : NULL;
}

START_TEST(masks_of_a_real_vocabulary)
{
    const struct cb_model_params only_text = { .vocab_only = 1 };
    char path[4096];
    cb_model *m;

    if (!real_model(path)) {
        cb_skip("%s is not there", path);
        return;
    }
    ck_assert(!cb_model_open(path, &only_text, &m));
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        cb_grammar *g = from_schema(schemas[i]);
        compare_masks(m, g, 8);
        cb_grammar_free(g);
    }
    for (size_t i = 0; i < sizeof gbnfs / sizeof *gbnfs; i++) {
        cb_grammar *g = from_gbnf(gbnfs[i]);
        compare_masks(m, g, 4);
        cb_grammar_free(g);
    }
    cb_model_close(m);
}
END_TEST

/* ---- picks ---- */

static cb_sampler *sampler(cb_model *m, const cb_grammar *g, struct cb_sampler_params p)
{
    cb_sampler *s;

    ck_assert_int_eq(cb_sampler_new(&p, cb_n_vocab(m), &s), CB_OK);
    ck_assert_ok(cb_sampler_set_grammar(s, m, g));
    return s;
}

static struct cb_sampler_params params(float temp, int top_k)
{
    return (struct cb_sampler_params){
        .seed = draw(1000), .temp = temp, .top_k = top_k, .top_p = 1, .repeat_penalty = 1
    };
}

static void random_logits(float *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)draw(100000) * 1e-4f;
}

/* With top_k 1 and 3: the likeliest that is allowed, and one of the three likeliest, wherever they
 * stand among all */
START_TEST(picks_are_the_likeliest_allowed)
{
    cb_model *m = tiny("qwen2");
    const int n = cb_n_vocab(m);
    float *x = calloc((size_t)n, sizeof *x);
    cb_grammar *g = from_schema(schemas[1]);
    const struct token_trie *trie;

    cb_model_token_trie(m, &trie);
    for (int round = 0; round < 20; round++) {
        cb_sampler *greedy = sampler(m, g, params(0, 0)), *few = sampler(m, g, params(1, 3));
        struct constraint *c;
        ck_assert(!cb_constraint_new(&g->program, trie, &c));
        for (int i = 0; i < 30; i++) {
            int32_t best = -1, id, got;
            int above = 0;
            random_logits(x, n);
            if (i % 7 == 3)
                x[draw((uint32_t)n)] = NAN;
            for (id = 0; id < n; id++)
                if (cb_constraint_allows(c, id) && (best < 0 || isnan(x[best]) || x[id] > x[best]))
                    best = id;
            ck_assert_int_eq(cb_sampler_pick(greedy, x), best);
            got = cb_sampler_pick(few, x);
            ck_assert_int_eq(cb_constraint_allows(c, got), 1);
            for (id = 0; id < n; id++)
                above += x[id] > x[got] && cb_constraint_allows(c, id);
            ck_assert_int_lt(above, 3);
            cb_constraint_accept(c, got);
            cb_sampler_accept(greedy, got);
            cb_sampler_accept(few, got);
        }
        cb_constraint_free(c);
        cb_sampler_free(greedy);
        cb_sampler_free(few);
    }
    cb_grammar_free(g);
    cb_model_close(m);
    free(x);
}
END_TEST

START_TEST(ends_and_faults)
{
    cb_model *m = tiny("qwen2");
    const int n = cb_n_vocab(m);
    float *x = calloc((size_t)n, sizeof *x);
    cb_grammar *g = from_gbnf("root ::= \"a\"");
    cb_sampler *s = sampler(m, g, params(0, 0)), *small;
    const struct cb_sampler_params p = params(0, 0);
    const int32_t *ends;
    int32_t a;

    ck_assert_int_gt(cb_token_ends(m, &ends), 0);
    x[ends[0]] = 5; /* the likeliest, and not allowed yet */
    for (a = 0; a < n; a++)
        x[a] = fminf(x[a], 1);
    a = cb_sampler_pick(s, x);
    ck_assert_int_ne(a, ends[0]);
    cb_sampler_accept(s, a);
    for (int i = 0; i < 3; i++) { /* after the end of the text only ends of turns */
        ck_assert_int_eq(cb_token_is_end(m, cb_sampler_pick(s, x)), 1);
        cb_sampler_accept(s, cb_sampler_pick(s, x));
    }
    cb_sampler_accept(s, a);
    ck_assert_int_eq(cb_sampler_pick(s, x), CB_EARG);
    ck_assert_str_eq(cb_error(), "grammar: a token was accepted that it does not allow here");
    ck_assert(!cb_sampler_set_grammar(s, m, NULL));
    ck_assert_int_ge(cb_sampler_pick(s, x), 0);
    ck_assert(!cb_sampler_new(&p, n - 1, &small));
    ck_assert_int_eq(cb_sampler_set_grammar(small, m, g), CB_EARG);
    cb_sampler_free(small);
    cb_sampler_free(s);
    cb_grammar_free(g);
    cb_model_close(m);
    free(x);
}
END_TEST

START_TEST(forks_go_on_alike)
{
    cb_model *m = tiny("llama");
    const int n = cb_n_vocab(m);
    float *x = calloc((size_t)n, sizeof *x);
    cb_grammar *g = from_schema("{}");
    struct cb_sampler_params p = params(1, 20);
    cb_sampler *a, *b;

    p.repeat_penalty = 1.2f;
    p.penalty_last_n = 8;
    a = sampler(m, g, p);
    for (int i = 0; i < 300; i++) {
        int32_t id;
        random_logits(x, n);
        ck_assert(!cb_sampler_fork(a, &b));
        id = cb_sampler_pick(a, x);
        ck_assert_int_ge(id, 0);
        ck_assert_int_eq(cb_sampler_pick(b, x), id);
        if (i % 2) {
            cb_sampler_free(a);
            a = b;
        } else {
            cb_sampler_free(b);
        }
        cb_sampler_accept(a, id);
        if (cb_token_is_end(m, id)) {
            cb_sampler_free(a);
            a = sampler(m, g, p);
        }
    }
    cb_sampler_free(a);
    cb_grammar_free(g);
    cb_model_close(m);
    free(x);
}
END_TEST

/* ---- documents ---- */

/* A schema of random parts; depth bounds it */
static json_t *random_schema(int depth)
{
    static const char *const keys[] = { "a", "name", "a key", "\"q\"", "ü", "abc", "ab" };
    json_t *j, *list;

    switch (draw(depth > 0 ? 10 : 6)) {
    case 0:
        return json_pack("{s:s}", "type", "boolean");
    case 1:
        return json_pack("{s:s, s:i, s:i}", "type", "integer", "minimum", (int)draw(300) - 200,
                         "maximum", 100 + (int)draw(5000));
    case 2:
        return json_pack("{s:s, s:i, s:i}", "type", "string", "minLength", (int)draw(3),
                         "maxLength", 3 + (int)draw(9));
    case 3:
        return json_pack("{s:[s,i,n,b,f]}", "enum", keys[draw(7)], (int)draw(100), 1, 0.25);
    case 4:
        return json_pack("{s:s, s:i, s:i}", "type", "number", "minimum", -(int)draw(20), "maximum",
                         (int)draw(20));
    case 5:
        return json_pack("{s:[s,s]}", "type", "null", "string");
    case 6:
        return json_pack("{s:s, s:o, s:i, s:i}", "type", "array", "items", random_schema(depth - 1),
                         "minItems", (int)draw(3), "maxItems", 2 + (int)draw(3));
    case 7:
        list = json_array();
        for (uint32_t i = 0, n = 1 + draw(3); i < n; i++)
            json_array_append_new(list, random_schema(depth - 1));
        return json_pack("{s:o}", "anyOf", list);
    default:
        j = json_object();
        list = json_array();
        for (uint32_t i = 0, n = draw(5); i < n; i++) {
            const char *key = keys[draw(7)];
            if (json_object_get(j, key))
                continue;
            json_object_set_new(j, key, random_schema(depth - 1));
            if (draw(2))
                json_array_append_new(list, json_string(key));
        }
        j = json_pack("{s:s, s:o, s:o}", "type", "object", "properties", j, "required", list);
        if (draw(2))
            json_object_set_new(j, "additionalProperties", random_schema(0));
        return j;
    }
}

static size_t n_chars(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += (*s & 0xC0) != 0x80;
    return n;
}

static int is_type(const char *name, json_t *v)
{
    return !strcmp(name, "boolean")   ? json_is_boolean(v)
           : !strcmp(name, "integer") ? json_is_integer(v)
           : !strcmp(name, "number")  ? json_is_number(v)
           : !strcmp(name, "string")  ? json_is_string(v)
           : !strcmp(name, "array")   ? json_is_array(v)
           : !strcmp(name, "object")  ? json_is_object(v)
                                      : json_is_null(v);
}

static int types_fit(json_t *type, json_t *v)
{
    if (!type || json_is_string(type))
        return !type || is_type(json_string_value(type), v);
    for (size_t i = 0; i < json_array_size(type); i++)
        if (is_type(json_string_value(json_array_get(type, i)), v))
            return 1;
    return 0;
}

static double limit(json_t *schema, const char *name, double none)
{
    json_t *v = json_object_get(schema, name);
    return v ? json_number_value(v) : none;
}

static int within(json_t *schema, const char *least, const char *most, double x)
{
    return x >= limit(schema, least, -INFINITY) && x <= limit(schema, most, INFINITY);
}

static int valid(json_t *schema, json_t *v);

static int valid_object(json_t *schema, json_t *v)
{
    json_t *listed = json_object_get(schema, "properties"), *member;
    json_t *more = json_object_get(schema, "additionalProperties");
    json_t *need = json_object_get(schema, "required");
    const char *key;

    for (size_t i = 0; i < json_array_size(need); i++)
        if (!json_object_get(v, json_string_value(json_array_get(need, i))))
            return 0;
    json_object_foreach(v, key, member)
    {
        json_t *s = json_object_get(listed, key);
        if ((s || more) && !valid(s ? s : more, member))
            return 0;
    }
    return 1;
}

/* Does v fit? For the keywords of random_schema() */
static int valid(json_t *schema, json_t *v)
{
    json_t *list = json_object_get(schema, "enum"), *any = json_object_get(schema, "anyOf");
    int ok = !list && !any;

    for (size_t i = 0; i < json_array_size(list); i++)
        ok |= json_equal(json_array_get(list, i), v);
    for (size_t i = 0; i < json_array_size(any); i++)
        ok |= valid(json_array_get(any, i), v);
    ok &= types_fit(json_object_get(schema, "type"), v);
    if (json_is_number(v))
        ok &= within(schema, "minimum", "maximum", json_number_value(v));
    if (json_is_string(v))
        ok &= within(schema, "minLength", "maxLength", (double)n_chars(json_string_value(v)));
    if (json_is_array(v))
        ok &= within(schema, "minItems", "maxItems", (double)json_array_size(v));
    for (size_t i = 0; i < json_array_size(v) && json_object_get(schema, "items"); i++)
        ok &= valid(json_object_get(schema, "items"), json_array_get(v, i));
    if (json_is_object(v))
        ok &= valid_object(schema, v);
    return ok;
}

/* A text from random logits, in which the ends of things are likelier the longer it gets; 0: it has
 * become too long */
static int generate(cb_model *m, cb_sampler *s, float *x, struct buf *text)
{
    const int n = cb_n_vocab(m);
    char piece[256];

    cb_buf_clear(text);
    cb_buf_add(text, "", 0);
    for (int i = 0; i < 3000; i++) {
        int32_t id;
        int len;
        random_logits(x, n);
        for (id = 0; i > 60 && id < n; id++) {
            len = cb_token_bytes(m, id, 0, piece, sizeof piece);
            if (len == 1 && strchr("\"]}:1", piece[0]))
                x[id] += 12;
            if (cb_token_is_end(m, id))
                x[id] += 30;
        }
        id = cb_sampler_pick(s, x);
        ck_assert_msg(id >= 0, "%s behind %s", cb_error(), text->s);
        cb_sampler_accept(s, id);
        if (cb_token_is_end(m, id))
            return 1;
        len = cb_token_bytes(m, id, 0, piece, sizeof piece);
        ck_assert_int_gt(len, 0);
        cb_buf_add(text, piece, (size_t)len);
    }
    return 0;
}

START_TEST(documents_fit_their_schemas)
{
    static const char *const models[] = { "llama", "qwen2" };
    struct buf text = { 0 };
    int done = 0;

    for (int k = 0; k < 2; k++) {
        cb_model *m = tiny(models[k]);
        float *x = calloc((size_t)cb_n_vocab(m), sizeof *x);
        for (int round = 0; round < 150; round++) {
            json_t *schema = random_schema(3), *v;
            char *dump = json_dumps(schema, 0);
            cb_grammar *g = from_schema(dump);
            cb_sampler *s = sampler(m, g, params(1.5f, round % 2 ? 40 : 0));
            if (generate(m, s, x, &text)) {
                json_error_t e;
                done++;
                v = json_loadb(text.s, text.n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
                ck_assert_msg(v, "%s: %s: %s", dump, text.s, e.text);
                ck_assert_msg(valid(schema, v), "%s: %s", dump, text.s);
                json_decref(v);
            }
            cb_sampler_free(s);
            cb_grammar_free(g);
            json_decref(schema);
            free(dump);
        }
        free(x);
        cb_model_close(m);
    }
    ck_assert_int_gt(done, 250);
    cb_buf_free(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("constraint");
    TCase *t = tcase_create("constraint");

    suite_add_tcase(suite, t);
    tcase_add_test(t, masks_are_right);
    tcase_add_test(t, masks_of_a_real_vocabulary);
    tcase_add_test(t, picks_are_the_likeliest_allowed);
    tcase_add_test(t, ends_and_faults);
    tcase_add_test(t, forks_go_on_alike);
    tcase_add_test(t, documents_fit_their_schemas);
    return cb_suite_run(suite);
}
