/* SPDX-License-Identifier: MIT */
/* check_tok_file.c - vocabularies that are damaged in one place are refused, with the key named. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "kit/gguf_make.h"
#include "kit/suite.h"
#include "text/tok.h"

/* A vocabulary, and what the test changes in it */
struct plan {
    const char *model, *pre;
    const char *tokens[300];
    size_t n_tokens;
    int32_t types[300];
    size_t n_types;
    float scores[300];
    size_t n_scores;
    const char *merges[8];
    size_t n_merges;
    int64_t bos, eos, eot; /* -1 = no key */
    int no_tokens, no_merges, no_scores, no_types, types_as_floats, bos_as_text;
};

static char byte_name[256][8];
static char long_piece[5000];

static void plan_bpe(struct plan *p)
{
    static const char *const t[] = { "a", "b", "c", "ab", "abc", "<end>", "<s>" };
    static const char *const m[] = { "a b", "ab c" };

    *p = (struct plan){
        .model = "gpt2", .pre = "gpt2", .bos = 6, .eos = 5, .eot = -1, .no_scores = 1
    };
    memcpy(p->tokens, t, sizeof t);
    memcpy(p->merges, m, sizeof m);
    p->n_tokens = p->n_types = sizeof t / sizeof *t;
    p->n_merges = sizeof m / sizeof *m;
    for (size_t i = 0; i < p->n_types; i++)
        p->types[i] = i < 5 ? 1 : 3;
}

static void plan_spm(struct plan *p)
{
    static const char *const t[] = { "<unk>", "<s>", "</s>", "a", "b", "ab", "\xE2\x96\x81" };
    const size_t n = sizeof t / sizeof *t;

    *p = (struct plan){ .model = "llama", .bos = 1, .eos = 2, .eot = -1, .no_merges = 1 };
    memcpy(p->tokens, t, sizeof t);
    for (size_t i = 0; i < 256; i++) {
        snprintf(byte_name[i], sizeof byte_name[i], "<0x%02X>", (unsigned)i);
        p->tokens[n + i] = byte_name[i];
    }
    p->n_tokens = p->n_types = p->n_scores = n + 256;
    for (size_t i = 0; i < p->n_tokens; i++) {
        p->types[i] = i == 0 ? 2 : i < 3 ? 3 : i < n ? 1 : 6;
        p->scores[i] = -(float)i;
    }
}

static void put_id(struct gguf_make *m, const char *key, int64_t id)
{
    if (id >= 0)
        cb_gguf_put_i64(&m->w, key, GGUF_U32, id);
}

static void put_plan(struct gguf_make *m, const struct plan *p)
{
    cb_make_init(m);
    cb_gguf_put_string(&m->w, "tokenizer.ggml.model", p->model);
    if (p->pre)
        cb_gguf_put_string(&m->w, "tokenizer.ggml.pre", p->pre);
    if (!p->no_tokens)
        cb_make_strings(m, "tokenizer.ggml.tokens", p->tokens, (int)p->n_tokens);
    if (!p->no_types)
        cb_gguf_put_array(&m->w, "tokenizer.ggml.token_type",
                          p->types_as_floats ? GGUF_F32 : GGUF_I32, p->types, p->n_types);
    if (!p->no_scores)
        cb_gguf_put_array(&m->w, "tokenizer.ggml.scores", GGUF_F32, p->scores, p->n_scores);
    if (!p->no_merges)
        cb_make_strings(m, "tokenizer.ggml.merges", p->merges, (int)p->n_merges);
    if (p->bos_as_text)
        cb_gguf_put_string(&m->w, "tokenizer.ggml.bos_token_id", "one");
    else
        put_id(m, "tokenizer.ggml.bos_token_id", p->bos);
    put_id(m, "tokenizer.ggml.eos_token_id", p->eos);
    put_id(m, "tokenizer.ggml.eot_token_id", p->eot);
}

static struct gguf *open_made(struct gguf_make *m)
{
    struct gguf *g = cb_make_open(m);
    ck_assert_msg(g != NULL, "%s", cb_error());
    return g;
}

static struct gguf *write_plan(const struct plan *p)
{
    struct gguf_make m;
    put_plan(&m, p);
    return open_made(&m);
}

/* What the damage is, in which kind, and what the error must name */
#define DAMAGE(name, text)                                                                         \
    static void name(struct plan *p)                                                               \
    {                                                                                              \
        text;                                                                                      \
    }
DAMAGE(nothing, (void)p)
DAMAGE(model, p->model = "wordpiece")
DAMAGE(pre, p->pre = "nix")
DAMAGE(no_tokens, p->no_tokens = 1)
DAMAGE(zero_tokens, p->n_tokens = p->n_types = 0)
DAMAGE(no_merges, p->no_merges = 1)
DAMAGE(no_scores, p->no_scores = 1)
DAMAGE(short_types, p->n_types--)
DAMAGE(short_scores, p->n_scores--)
DAMAGE(bad_type, p->types[2] = 9)
DAMAGE(float_types, p->types_as_floats = 1)
DAMAGE(no_types, p->no_types = 1)
DAMAGE(nan_score, p->scores[4] = NAN)
DAMAGE(bos_range, p->bos = (int64_t)p->n_tokens)
DAMAGE(bos_huge, p->bos = 0xFFFFFFFF)
DAMAGE(bos_text, p->bos_as_text = 1)
DAMAGE(eos_range, p->eos = 99999)
DAMAGE(eot_range, p->eot = 99999)
DAMAGE(twice, p->tokens[4] = p->tokens[3])
DAMAGE(empty_piece, p->tokens[3] = "")
DAMAGE(huge_piece, p->tokens[3] = long_piece)
DAMAGE(merge_left, p->merges[0] = "x b")
DAMAGE(merge_right, p->merges[1] = "ab x")
DAMAGE(merge_made, p->merges[1] = "b c")
DAMAGE(merge_one, p->merges[1] = "abc")
DAMAGE(merge_empty, p->merges[1] = "")
DAMAGE(merge_blank, p->merges[1] = " ")
DAMAGE(merge_blanks, p->merges[1] = "a  ")
DAMAGE(merge_left_only, p->merges[1] = "ab ")
DAMAGE(merge_huge, p->merges[1] = long_piece)
DAMAGE(byte_name_bad, p->tokens[20] = "<0xzz>")
DAMAGE(byte_missing, (p->types[0] = 1, p->types[20] = 1, p->tokens[0] = "w"))

static const struct damage {
    void (*make)(struct plan *);
    int spm;
    const char *says; /* NULL = opens */
} damages[] = {
    { nothing, 0, NULL },
    { nothing, 1, NULL },
    { no_types, 0, NULL },
    { model, 0, "tokenizer.ggml.model: \"wordpiece\" is not known; gpt2, llama and gemma4 are" },
    { pre, 0, "tokenizer.ggml.pre: \"nix\" is not known" },
    { no_tokens, 0, "tokenizer.ggml.tokens" },
    { zero_tokens, 0, "tokenizer.ggml.tokens" },
    { no_merges, 0, "tokenizer.ggml.merges" },
    { no_scores, 1, "tokenizer.ggml.scores" },
    { short_types, 0, "tokenizer.ggml.token_type" },
    { short_types, 1, "tokenizer.ggml.token_type" },
    { short_scores, 1, "tokenizer.ggml.scores" },
    { bad_type, 0, "tokenizer.ggml.token_type" },
    { float_types, 0, "tokenizer.ggml.token_type" },
    { nan_score, 1, "tokenizer.ggml.scores" },
    { bos_range, 0, "tokenizer.ggml.bos_token_id" },
    { bos_huge, 1, "tokenizer.ggml.bos_token_id" },
    { bos_text, 0, "tokenizer.ggml.bos_token_id" },
    { eos_range, 1, "tokenizer.ggml.eos_token_id" },
    { eot_range, 0, "tokenizer.ggml.eot_token_id" },
    { twice, 0, "tokenizer.ggml.tokens: tokens 3 and 4" },
    { twice, 1, "tokenizer.ggml.tokens: tokens 3 and 4" },
    { empty_piece, 0, "tokenizer.ggml.tokens: token 3" },
    { huge_piece, 0, "tokenizer.ggml.tokens: token 3" },
    { merge_left, 0, "tokenizer.ggml.merges: merge 0" },
    { merge_right, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_made, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_one, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_empty, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_blank, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_blanks, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_left_only, 0, "tokenizer.ggml.merges: merge 1" },
    { merge_huge, 0, "tokenizer.ggml.merges: merge 1" },
    { byte_name_bad, 1, "tokenizer.ggml.tokens: byte token 20" },
    { byte_missing, 1, "tokenizer.ggml.tokens: no byte token <0x0D>" },
};

static struct plan plan;

START_TEST(damage_is_named)
{
    const struct damage *d = &damages[_i];
    struct gguf *g;
    struct tok *t = NULL;
    int rc;

    memset(long_piece, 'a', sizeof long_piece - 1);
    (d->spm ? plan_spm : plan_bpe)(&plan);
    d->make(&plan);
    g = write_plan(&plan);
    rc = cb_tok_open_as(g, NULL, &t);
    if (d->says) {
        ck_assert_int_lt(rc, 0);
        ck_assert_msg(strstr(cb_error(), d->says) != NULL, "\"%s\" does not say \"%s\"", cb_error(),
                      d->says);
    } else {
        ck_assert_msg(rc == 0, "%s", cb_error());
        cb_tok_close(t);
    }
    cb_gguf_close(g);
}
END_TEST

static void ids_are(const struct tok *t, const char *text, const int32_t *want, int m)
{
    int32_t *ids;
    int n;

    ck_assert_int_eq(cb_tok_encode(t, text, strlen(text), CB_TOK_SPECIAL, &ids, &n), 0);
    ck_assert_int_eq(n, m);
    ck_assert_mem_eq(ids, want, sizeof *ids * (size_t)m);
    free(ids);
}

/* Merges by hand: "abc" is one token in either way; <end> ends, as eos_token_id says. */
START_TEST(small_vocabularies_work)
{
    static const int32_t bpe[] = { 4, 5, 3, 3 };
    static const int32_t spm[] = { 6, 5, 7 + 'c', 2, 6, 5, 6, 6, 3 };
    struct gguf *g;
    struct tok *t;

    plan_bpe(&plan);
    g = write_plan(&plan);
    ck_assert_int_eq(cb_tok_open_as(g, NULL, &t), 0);
    ids_are(t, "abc<end>abab", bpe, 4);
    ck_assert(cb_tok_is_end(t, 5) && !cb_tok_is_end(t, 6));
    cb_tok_close(t);
    cb_gguf_close(g);

    plan_spm(&plan);
    g = write_plan(&plan);
    ck_assert_int_eq(cb_tok_open_as(g, NULL, &t), 0);
    ids_are(t, "abc</s>ab  a", spm, 9);
    cb_tok_close(t);
    cb_gguf_close(g);
}
END_TEST

/* Of merges of equal scores the left one comes first, whichever piece has the lower id. */
START_TEST(equal_scores_merge_from_the_left)
{
    static const int32_t first[] = { 6, 264, 263 }, second[] = { 6, 265, 3 };
    struct gguf *g;
    struct tok *t;

    plan_spm(&plan);
    plan.tokens[5] = "bc";
    plan.tokens[263] = "c";
    plan.tokens[264] = "ab";
    plan.tokens[265] = "aa";
    plan.n_tokens = plan.n_types = plan.n_scores = 266;
    for (int i = 263; i < 266; i++)
        plan.types[i] = 1;
    for (int i = 0; i < 266; i++)
        plan.scores[i] = i == 6 ? -9 : -3;
    g = write_plan(&plan);
    ck_assert_msg(cb_tok_open_as(g, NULL, &t) == 0, "%s", cb_error());
    ids_are(t, "abc", first, 3);
    ids_are(t, "aaa", second, 3);
    cb_tok_close(t);
    cb_gguf_close(g);
}
END_TEST

/* The space in front can be switched off, and an unknown character becomes <unk> where bytes lack.
 */
START_TEST(switches)
{
    static const int32_t want[] = { 5, 0, 3 };
    struct gguf_make m;
    struct gguf *g;
    struct tok *t;

    plan_spm(&plan);
    plan.n_tokens = plan.n_types = plan.n_scores = 7;
    plan.bos = plan.eos = -1; /* found by their spelling */
    put_plan(&m, &plan);
    cb_gguf_put_bool(&m.w, "tokenizer.ggml.add_space_prefix", 0);
    cb_gguf_put_bool(&m.w, "tokenizer.ggml.add_bos_token", 0);
    put_id(&m, "tokenizer.ggml.eom_token_id", 3);
    g = open_made(&m);
    ck_assert_msg(cb_tok_open_as(g, NULL, &t) == 0, "%s", cb_error());
    ck_assert_int_eq(cb_tok_bos(t), 1);
    ck_assert_int_eq(cb_tok_eos(t), 2);
    ck_assert(cb_tok_is_end(t, 2) && cb_tok_is_end(t, 3));
    ck_assert(!cb_tok_add_bos(t) && !cb_tok_space_prefix(t));
    ids_are(t,
            "ab\xE5\xA5\xBD\xE5\xA5\xBD\x01"
            "a",
            want, 3);
    cb_tok_close(t);
    cb_gguf_close(g);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tok_file");
    TCase *c = tcase_create("tok_file");

    tcase_add_loop_test(c, damage_is_named, 0, (int)(sizeof damages / sizeof *damages));
    tcase_add_test(c, small_vocabularies_work);
    tcase_add_test(c, switches);
    tcase_add_test(c, equal_scores_merge_from_the_left);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
