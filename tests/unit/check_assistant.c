/* SPDX-License-Identifier: MIT */
/* check_assistant.c - drafts by Gemma 4's assistants: their logits beside those of PyTorch, the
 * text that stays the same, an assistant that is always right, and pairs that do not fit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/assistant_drafter.h"
#include "kit/assisted.h"
#include "kit/drafted.h"
#include "kit/suite.h"

enum { PROMPT = 60, TEXT = 100 };

static struct assisted x;

/* ---- logits ---- */

/* The largest difference between logits and the recipe's */
static double apart(const float *logits, const json_t *want)
{
    double most = 0;

    ck_assert_uint_eq(json_array_size(want), (size_t)x.own.n_vocab);
    for (size_t i = 0; i < json_array_size(want); i++)
        most = fmax(most, fabs((double)logits[i] - json_number_value(json_array_get(want, i))));
    return most;
}

/* A place where the recipe has guesses: after n tokens, the last of which were decoded */
struct place {
    int n, decoded, n_guess;
    size_t row; /* of the first one's logits */
};

static struct place place_at(size_t i)
{
    const json_t *all = json_object_get(x.own.root, "guesses");
    struct place p = { 0 };

    for (size_t j = 0; j <= i; j++) {
        const json_t *g = json_array_get(all, j);
        p.row += (size_t)p.n_guess;
        p.n = (int)json_integer_value(json_array_get(g, 0));
        p.decoded = (int)json_integer_value(json_array_get(g, 1));
        p.n_guess = (int)json_integer_value(json_array_get(g, 2));
    }
    return p;
}

/* A session that has taken the tokens before a guess, those of the prompt in chunks */
static cb_session *before(const struct place *p, const char *type, int chunk)
{
    cb_session *of = cb_assisted_target(&x, "full", type, chunk);

    ck_assert_ok(cb_assistant_follow(of));
    ck_assert_ok(cb_session_prefill(of, x.own.ids, p->n - p->decoded, NULL));
    for (int i = p->n - p->decoded; i < p->n; i++)
        ck_assert_ok(cb_session_decode(of, x.own.ids[i]));
    return of;
}

/* All guesses at a place, by drafts of 1, 2, .. tokens, whose last logits are compared; returns
 * the largest difference */
static double check_place(const struct place *p, const char *type, int chunk, double most)
{
    cb_session *of = before(p, type, chunk), *s = cb_assisted_drafter(&x);
    int32_t draft[MOST_DRAFT];
    double worst = 0;

    for (int k = 1; k <= p->n_guess; k++) {
        const int got = cb_assisted_guess(s, of, x.own.ids[p->n], draft, k);
        const double off =
            apart(cb_session_logits(s), json_array_get(x.own.logits, p->row + (size_t)k - 1));
        ck_assert_int_ge(got, k - 1);
        ck_assert_msg(off < most, "guess %d after %d tokens, %s: %g", k, p->n, type, off);
        worst = fmax(worst, off);
    }
    cb_session_close(of);
    cb_session_close(s);
    return worst;
}

START_TEST(logits)
{
    static const char *const devices[] = { "ref", "cpu" }, *const of[] = { "gemma4",
                                                                           "gemma4dense" };
    double worst = 0;
    size_t n;

    cb_assisted_recipes(&x, _i % ASSISTED);
    cb_assisted_open(&x, devices[_i / ASSISTED], 0);
    n = json_array_size(json_object_get(x.own.root, "guesses"));
    ck_assert_uint_gt(n, 0);
    for (size_t i = 0; i < n; i++)
        for (int chunk = 0; chunk < 10; chunk += 3) {
            const struct place p = place_at(i);
            worst = fmax(worst, check_place(&p, "f32", chunk, 5e-4));
            check_place(&p, "f16", chunk, 2e-2);
        }
    if (getenv("CTXBANK_TEST_FIGURES")) /* for bench/families */
        printf("figures %s family-%s.json %s %.1e 0 0\n", x.a->arch->name, of[_i % ASSISTED],
               devices[_i / ASSISTED], worst);
    cb_assisted_close(&x);
}
END_TEST

/* ---- texts ---- */

static struct cb_speculation_counts texts(const char *policy, const char *type, int chunk,
                                          float temp)
{
    cb_session *one = cb_assisted_target(&x, policy, type, chunk);
    cb_session *s = cb_assisted_target(&x, policy, type, chunk), *d = cb_assisted_drafter(&x);
    struct drafted_text t = { 5, TEXT, d, cb_sampler_defaults() };
    struct cb_speculation_counts counts;

    t.pick.temp = temp;
    t.pick.seed = 3;
    for (int i = 0; i < PROMPT; i += 20) {
        ck_assert_ok(cb_session_prefill(one, x.own.ids + i % 40, 20, NULL));
        ck_assert_ok(cb_session_prefill(s, x.own.ids + i % 40, 20, NULL));
    }
    counts = cb_drafted_text(one, s, &t);
    cb_session_close(d);
    return counts;
}

/* All drafts of this assistant are accepted. */
START_TEST(an_assistant_that_is_right)
{
    struct cb_speculation_counts c;

    cb_assisted_recipes(&x, _i);
    cb_assisted_open(&x, "cpu", 1);
    c = texts("full", "f16", 0, 0);
    ck_assert_int_gt(c.model_drafted, 3); /* they may pause: a tiny model gains no time */
    ck_assert_msg(c.model_accepted >= c.model_drafted - 5, "%d of %d", (int)c.model_accepted,
                  (int)c.model_drafted); /* the last draft may be unfinished */
    cb_assisted_close(&x);
}
END_TEST

/* Loop index: policies and types of keys */
static const struct {
    const char *policy, *type;
    int chunk;
    float temp;
} settings[] = { { "full", "f16", 0, 0 },
                 { "full", "f16", 7, 0.8f },
                 { "full", "bf16", 0, 0.8f },
                 { "full", "f32", 16, 0 },
                 { "sieve:budget=32,recent=8,sink=2", "f16", 0, 0 },
                 { "quest:budget=32,page=16,dense=0", "f16", 0, 0.8f } };
enum { SETTINGS = sizeof settings / sizeof *settings };

START_TEST(the_text_without_drafts)
{
    const int k = _i / ASSISTED;

    cb_assisted_recipes(&x, _i % ASSISTED);
    cb_assisted_open(&x, "cpu", 0);
    if (k < 4 || _i % ASSISTED) /* shared keys of heads that differ go with full alone */
        ck_assert_int_gt(
            texts(settings[k].policy, settings[k].type, settings[k].chunk, settings[k].temp)
                .model_drafted,
            0);
    cb_assisted_close(&x);
}
END_TEST

/* ---- states and rows of other sessions ---- */

static void same_guess(cb_session *d, cb_session *a, cb_session *b, int32_t id, int some)
{
    int32_t one[MOST_DRAFT], two[MOST_DRAFT];
    const int n = cb_assisted_guess(d, a, id, one, 3);

    ck_assert_int_ge(n, some);
    ck_assert_int_eq(cb_assisted_guess(d, b, id, two, 3), n);
    ck_assert(!memcmp(one, two, (size_t)n * sizeof *one));
}

/* One assistant guesses for sessions in turn: forked, in a batch, cut back, saved and opened. */
START_TEST(forks_cuts_and_banks)
{
    static const char path[] = "check_assistant.bank";
    cb_session *a, *b, *c, *d, *pair[2];
    int32_t draft[MOST_DRAFT], next[2];

    cb_assisted_recipes(&x, _i);
    cb_assisted_open(&x, "cpu", 0);
    a = cb_assisted_target(&x, "full", "f16", 0);
    d = cb_assisted_drafter(&x);
    ck_assert_int_eq(cb_assisted_guess(d, a, 5, draft, 3), 0);
    ck_assert_ok(cb_assistant_follow(a));
    ck_assert_ok(cb_session_prefill(a, x.own.ids, 40, NULL));
    ck_assert_ok(cb_session_fork(a, &b));
    ck_assert_ok(cb_session_save(a, path));
    ck_assert_ok(cb_session_load(x.m, path, 0, &c));
    remove(path);
    ck_assert_ok(cb_assistant_follow(b));
    ck_assert_ok(cb_assistant_follow(c));
    ck_assert_int_eq(cb_assisted_guess(d, c, 5, draft, 3), 0); /* until a token has gone through */
    pair[0] = a;
    pair[1] = b;
    for (int i = 0; i < 30; i++) {
        next[0] = next[1] = x.own.ids[i];
        ck_assert_ok(cb_decode_batch(pair, next, 2));
        ck_assert_ok(cb_session_decode(c, x.own.ids[i]));
        same_guess(d, a, b, x.own.ids[i + 1], 0);
        same_guess(d, a, c, x.own.ids[i + 1], 0);
    }
    ck_assert_int_eq(cb_assisted_guess(d, a, x.own.ids[3], draft, 1), 1);
    ck_assert_ok(cb_session_truncate(c, 0));
    ck_assert_int_eq(cb_assisted_guess(d, c, 5, draft, 3), 0);
    ck_assert_ok(cb_session_prefill(c, x.own.ids, 40, NULL));
    cb_session_close(b);
    b = cb_assisted_target(&x, "full", "f16", 16);
    ck_assert_ok(cb_assistant_follow(b));
    ck_assert_ok(cb_session_prefill(b, x.own.ids, 25, NULL));
    ck_assert_ok(cb_session_prefill(b, x.own.ids + 25, 15, NULL));
    same_guess(d, c, b, 7, 0);
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c);
    cb_session_close(d);
    cb_assisted_close(&x);
}
END_TEST

/* ---- pairs that do not fit ---- */

static void set_number(const struct recipe *r, const char *key, double v)
{
    json_t *row = cb_headed_key(r, key);

    ck_assert_ptr_nonnull(row);
    json_array_set_new(row, 2, v == (int)v ? json_integer((int)v) : json_real(v));
}

/* What of the target is another, and what the error says */
static const struct {
    const char *key;
    double v;
    const char *says;
} others[] = { { ".sliding_window", 16, "window 8, not 16" },
               { ".rope.freq_base", 2e6, "base 1e+06, not 2e+06" },
               { ".rope.freq_base_swa", 5000, "base 10000, not 5000" },
               { ".rope.dimension_count_swa", 8, "rotated numbers of a head 16, not 8" } };
enum { OTHERS = sizeof others / sizeof *others };

static void check_wrong(const char *says)
{
    ck_assert_int_eq(cb_model_drafts_for(x.a, x.m), CB_EARG);
    ck_assert_msg(strstr(cb_error(), says) != NULL, "%s", cb_error());
}

START_TEST(other_targets)
{
    cb_assisted_recipes(&x, 1);
    if (_i < OTHERS)
        set_number(&x.target, others[_i].key, others[_i].v);
    else if (_i == OTHERS + 2)
        cb_headed_level(&x.target, "output_norm.weight");
    else { /* the other pair's target has other KV heads */
        cb_recipe_close(&x.target);
        cb_recipe_open(&x.target, _i == OTHERS ? "family-gemma4.json" : "family-gemma3.json");
    }
    cb_assisted_open(&x, "cpu", 0);
    if (_i < OTHERS)
        check_wrong(others[_i].says);
    else if (_i == OTHERS)
        check_wrong("KV heads 1, not 2");
    else if (_i == OTHERS + 1)
        check_wrong("models of family gemma4 alone, not of gemma3");
    else
        ck_assert_ok(cb_model_drafts_for(x.a, x.m));
    cb_assisted_close(&x);
}
END_TEST

/* Sessions that an assistant cannot guess for, and one whose own keys are too few */
START_TEST(other_sessions)
{
    const struct cb_session_params small = { .n_ctx = 100 };
    struct cb_model_info info;
    struct cb_memory plan;
    cb_session *s, *d;
    cb_speculation *spec;

    cb_assisted_recipes(&x, 1);
    cb_assisted_open(&x, "cpu", 0);
    cb_model_get_info(x.a, &info);
    ck_assert_int_eq(info.n_target_embd, 48);
    cb_model_get_info(x.m, &info);
    ck_assert_int_eq(info.n_target_embd, 0);
    d = cb_assisted_drafter(&x);
    ck_assert_ok(cb_session_plan(d, 100, 20, &plan));
    ck_assert_uint_eq(plan.kv_bytes, 0);
    ck_assert_int_eq(cb_session_prefill(d, x.own.ids, 3, NULL), CB_EUNSUPPORTED);
    ck_assert_int_eq(cb_session_decode(d, 3), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), "gemma4-assistant") != NULL, "%s", cb_error());
    ck_assert_int_lt(cb_session_kept(d, 0, 0, NULL, 0), 0);
    cb_session_close(d);
    ck_assert_ok(cb_session_open(x.a, &small, &d));
    s = cb_assisted_target(&x, "full", "f16", 0);
    ck_assert_ok(cb_speculation_new(s, 4, &spec));
    ck_assert_int_eq(cb_speculation_set_draft(spec, d), CB_EARG);
    ck_assert_msg(strstr(cb_error(), "context of 100") != NULL, "%s", cb_error());
    cb_speculation_free(spec);
    cb_session_close(s);
    cb_session_close(d);
    cb_assisted_close(&x);
}
END_TEST

/* ---- files ---- */

/* Loop index: what is taken out of the file, and what the error names */
static const char *const needed[] = { "nextn.pre_projection.weight", "nextn.post_projection.weight",
                                      "attn_q_norm.weight", "token_embd.weight" };
enum { NEEDED = sizeof needed / sizeof *needed };

START_TEST(files)
{
    cb_assisted_recipes(&x, 0);
    if (_i < NEEDED)
        cb_headed_remove(&x.own, -1, needed[_i]);
    else
        set_number(&x.own, ".embedding_length_out", 64);
    ck_assert_int_eq(cb_assisted_fails(&x.own, "cpu"), CB_EFORMAT);
    ck_assert_msg(strstr(cb_error(), _i < NEEDED ? needed[_i] : "pre_projection") != NULL, "%s",
                  cb_error());
    cb_assisted_close(&x);
}
END_TEST

/* Which rows of the output are likely ones is left unused. */
START_TEST(clusters_of_tokens)
{
    cb_model *m;

    cb_assisted_recipes(&x, 0);
    json_array_append_new(
        json_object_get(x.own.root, "tensors"),
        json_pack("[s, [i, i], f, f]", "masked_embd_centroids.weight", 40, 16, 0.0, 0.1));
    json_array_append_new(json_object_get(x.own.root, "tensors"),
                          json_pack("[s, [i], i]", "masked_embd_ordering", 320, 320));
    m = cb_assisted_model(&x.own, "cpu");
    cb_model_close(m);
    cb_assisted_close(&x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("assistant");
    TCase *tc = tcase_create("assistant");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, logits, 0, 2 * ASSISTED);
    tcase_add_loop_test(tc, an_assistant_that_is_right, 0, ASSISTED);
    tcase_add_loop_test(tc, the_text_without_drafts, 0, SETTINGS * ASSISTED);
    tcase_add_loop_test(tc, forks_cuts_and_banks, 0, ASSISTED);
    tcase_add_loop_test(tc, other_targets, 0, OTHERS + 3);
    tcase_add_test(tc, other_sessions);
    tcase_add_loop_test(tc, files, 0, NEEDED + 1);
    tcase_add_test(tc, clusters_of_tokens);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
