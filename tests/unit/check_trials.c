/* SPDX-License-Identifier: MIT */
/* check_trials.c - trials of policies beside the full cache, the figures of policy auto that they
 * give, and samples of a text. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "calibrate/auto_table.h"
#include "calibrate/sample.h"
#include "calibrate/trial.h"
#include "calibrated.h"
#include "eval/ask.h"
#include "eval/metric.h"

/* ---- trials ---- */

START_TEST(trials_beside_the_full_cache)
{
    static const char *const spec[] = { "full", "omnikv:filter=1+2,budget=64",
                                        "streamingllm:budget=8" };
    struct cb_model *m = open_tiny(3, 2);
    struct verdict v[3] = { { 0 } };
    struct trial t = { .model = m, .policy = spec, .n = 3, .n_ctx = 2 * N, .of = v };
    int32_t ids[N];

    tokens(ids, N);
    ck_assert_ok(cb_trial_text(&t, ids, N, STEPS));
    ck_assert_int_eq(t.n_token, STEPS);
    for (int i = 0; i < 2; i++) { /* the second may read more than there is */
        ck_assert_double_eq_tol(v[i].kl, 0, 1e-9);
        ck_assert_int_eq(v[i].same, STEPS);
        ck_assert_double_eq_tol(v[i].read, 1, 1e-9);
    }
    ck_assert_double_gt(v[2].kl, 1e-6);
    ck_assert_double_lt(v[2].read, .5);
    ck_assert_int_lt(cb_trial_text(&t, ids, N, N), 0);
    cb_trial_free(&t);
    cb_model_close(m);
}
END_TEST

/* What the full cache answers to an item, token by token -> text; returns the number of tokens */
static int greedy(struct cb_model *m, const struct item *it, int n_ctx, char *text, int cap)
{
    const struct cb_session_params p = { .n_ctx = n_ctx, .policy = "full" };
    struct prompt prompt;
    cb_session *s;
    int n = 0, at = 0;

    ck_assert_ok(cb_ask_prompt(m, NULL, it, n_ctx, 1, &prompt));
    ck_assert(!cb_session_open(m, &p, &s));
    ck_assert(!cb_session_prefill(s, prompt.ids, prompt.n, NULL));
    for (; n < it->max_new; n++) {
        const float *y = cb_session_logits(s);
        int32_t best = 0;
        for (int i = 1; i < m->hp.n_vocab; i++)
            best = y[i] > y[best] ? i : best;
        if (cb_token_is_end(m, best))
            break;
        at += cb_token_bytes(m, best, 0, text + at, cap - at);
        ck_assert(!cb_session_decode(s, best));
    }
    text[at] = '\0';
    cb_session_close(s);
    free(prompt.ids);
    return n;
}

static void make_item(struct item *it, const char *context, const char *answer)
{
    ck_assert(!cb_item_make(it, "x", "x", context, "", &answer, 1));
    it->metric = cb_metric_find("contains");
    it->max_new = 8;
}

/* A policy that misses one token of a right answer does not hold the item. */
START_TEST(an_item_is_held_by_all_its_tokens)
{
    static const char *const spec[] = { "full", "streamingllm:budget=36" };
    struct cb_model *m = open_tiny(3, 2);
    int nearly = 0, held = 0;

    for (int k = 0; k < 60 && (!nearly || !held); k++) {
        struct verdict v[2] = { { 0 } };
        struct trial t = { .model = m, .policy = spec, .n = 2, .n_ctx = 256, .of = v };
        struct item it;
        char context[80], text[256] = "";
        int n;

        for (int i = 0; i < 79; i++)
            context[i] = (char)('a' + (i * i + k * (i + 3)) % 26);
        context[79] = '\0';
        make_item(&it, context, "");
        n = greedy(m, &it, 256, text, sizeof text);
        cb_item_free(&it);
        make_item(&it, context, text);
        if (n == 8 && strlen(text) > 7) {
            ck_assert_ok(cb_trial_item(&t, &it));
            if (t.n_right && t.n_token == 8) {
                ck_assert_int_eq(v[0].held, 1);
                ck_assert_int_eq(v[1].held, v[1].same == 8);
                nearly |= v[1].same == 7;
                held |= v[1].same == 8;
            }
            cb_item_free(&it); /* an answer that the full cache does not give */
            make_item(&it, context, "no such answer");
            ck_assert_ok(cb_trial_item(&t, &it));
            ck_assert_int_eq(v[0].held, t.n_right);
            ck_assert_int_le(v[1].held, t.n_right);
        }
        cb_trial_free(&t);
        cb_item_free(&it);
    }
    ck_assert(nearly && held);
    cb_model_close(m);
}
END_TEST

/* ---- figures of auto ---- */

/* Two lengths; setting i has KL i / 100, reads half as much at the second length as at the first.
 */
static void fill_auto(struct auto_table *t)
{
    *t = (struct auto_table){ .n_length = 2, .length = { 512, 1024 }, .n_right = { 3, 2 } };
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        t->has[i] = i != 2;
        t->cost[i][0] = (struct auto_cost){ .kl = i * 0.005, .kept = 1, .read = 0.8, .held = 3 };
        t->cost[i][1] = (struct auto_cost){ .kl = i * 0.01, .kept = 1, .read = 0.4, .held = 2 };
    }
    t->cost[4][1].held = 1;
}

START_TEST(auto_by_hand)
{
    struct auto_table t, u;
    json_t *j;
    int sieve = 0;

    fill_auto(&t);
    ck_assert_double_eq_tol(cb_auto_loss(&t, 1), 0.01, 1e-12);
    ck_assert(isinf(cb_auto_loss(&t, 2)) && isinf(cb_auto_loss(&t, 4)));
    while (strncmp(cb_auto_settings[sieve].policy, "sieve", 5))
        sieve++;
    /* halved with each doubling, after what choosing takes */
    ck_assert_double_eq_tol(cb_auto_time(&t, sieve, 4096, 1), cb_auto_settings[sieve].search + 0.1,
                            1e-12);
    ck_assert_double_eq_tol(cb_auto_time(&t, 0, 4096, 1), 1, 1e-12);
    ck_assert_double_eq_tol(cb_auto_time(&t, 1, 4096, 0.5), 0.5 * cb_auto_settings[1].pace, 1e-12);
    j = cb_auto_to_json(&t);
    ck_assert_int_eq(cb_auto_from_json(j, &u), 0);
    for (int i = 0; i < AUTO_SETTINGS; i++)
        ck_assert(t.has[i] == u.has[i] &&
                  (!t.has[i] || !memcmp(t.cost[i], u.cost[i], sizeof t.cost[i])));
    json_object_set_new(j, "version", json_integer(2));
    ck_assert_int_eq(cb_auto_from_json(j, &u), CB_EFORMAT);
    json_decref(j);
    ck_assert_int_eq(cb_auto_from_json(NULL, &u), CB_EFORMAT);
}
END_TEST

/* ---- samples ---- */

START_TEST(samples_of_a_text)
{
    struct cb_model *m = open_family(_i ? "llama" : "qwen2", 1, 1); /* with BOS, without */
    struct samples s;
    char file[64];
    const char *const path[] = { file };
    int32_t *ids;
    int n;
    FILE *f;

    snprintf(file, sizeof file, "calibrate.%d.tmp", (int)getpid());
    f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 300; i++)
        fprintf(f, "%c", 'a' + i * i % 26);
    ck_assert(!fclose(f));
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 20, &s), CB_OK);
    ck_assert_int_eq(s.n, 3);
    f = fopen(file, "r");
    ck_assert_ptr_nonnull(f);
    char text[301];
    ck_assert_uint_eq(fread(text, 1, 300, f), 300);
    fclose(f);
    ck_assert_int_eq(cb_tokenize(m, text, 300, CB_TOK_BOS, &ids, &n), CB_OK);
    for (int i = 0; i < 3; i++) { /* the first, the middle, the last */
        ck_assert_int_eq(s.at[i].n, 50);
        ck_assert_int_eq(memcmp(s.at[i].ids + 1, ids + (n - 50) * i / 2 + 1, 49 * sizeof *ids), 0);
        ck_assert_int_eq(s.at[i].ids[0], ids[_i ? 0 : (n - 50) * i / 2]);
    }
    free(ids);
    cb_samples_free(&s);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 5000, 20, &s), CB_OK);
    ck_assert_int_eq(s.n, 1);
    cb_samples_free(&s);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 60, &s), CB_EARG);
    unlink(file);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 20, &s), CB_EIO);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trials");
    TCase *c = tcase_create("trials");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, trials_beside_the_full_cache);
    tcase_add_test(c, an_item_is_held_by_all_its_tokens);
    tcase_add_test(c, auto_by_hand);
    tcase_add_loop_test(c, samples_of_a_text, 0, 2);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
