/* SPDX-License-Identifier: MIT */
/* check_shared_kv.c - models whose last layers read an earlier layer's keys and values: logits
 * beside the slow run, in prompts, chunks, turns and batches, with every type of keys and values;
 * what is held is what was planned; and what does not go with it is refused. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/session.h"
#include "kit/settings.h"
#include "kit/slow.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { LAYERS = 5, PROMPT = 150, STEPS = 20, SECOND = 30, CAP = 256 };

static const struct {
    const char *family;
    int shared;
} models[] = { { "llama", 2 }, { "qwen2", 4 }, { "mistral", 3 } };
enum { N_MODEL = sizeof models / sizeof *models };

static struct tiny tiny_of(int i)
{
    struct tiny t = cb_tiny_small(models[i].family);

    t.n_layer = LAYERS;
    t.hd = 32; /* all types of keys and values take it */
    t.shared_kv = models[i].shared;
    return t;
}

static cb_model *open_model(int i, const char *device, int n_threads)
{
    const struct tiny t = tiny_of(i);
    return cb_toy_model(&t, device, n_threads);
}

static void close_to(const cb_session *s, const struct slow *r, const char *when)
{
    double diff = 0, size = 0;

    for (int i = 0; i < r->hp.n_vocab; i++) {
        diff = fmax(diff, fabs((double)cb_session_logits(s)[i] - r->logits[i]));
        size = fmax(size, fabs(r->logits[i]));
    }
    ck_assert_msg(diff < 2e-4 * size, "%s: logits differ by %g of %g", when, diff, size);
}

/* Loop index: model, chunk */
START_TEST(as_the_slow_run)
{
    static const int chunk[] = { 0, 7, 64 };
    cb_model *m = open_model(_i / 3, "ref", 2);
    cb_session *s = cb_toy_session(m, "full", "f32", chunk[_i % 3]);
    struct slow *r = cb_slow_new(m, CAP);
    const int32_t *tok = cb_toy_text(m);
    int at = PROMPT;

    r->window = m->layer[0].window;
    cb_slow_feed(r, tok, PROMPT);
    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
    close_to(s, r, "prompt");
    for (; at < PROMPT + STEPS; at++) {
        cb_slow_feed(r, tok + at, 1);
        ck_assert_ok(cb_session_decode(s, tok[at]));
        close_to(s, r, "token");
    }
    cb_slow_feed(r, tok + at, SECOND);
    ck_assert_ok(cb_session_prefill(s, tok + at, SECOND, NULL));
    close_to(s, r, "second prompt");
    cb_slow_feed(r, tok + at + SECOND, 1);
    ck_assert_ok(cb_session_decode(s, tok[at + SECOND]));
    close_to(s, r, "last token");
    for (int l = 0; l < LAYERS; l++)
        ck_assert_int_eq(cb_store_max_len(&s->bank.store[l]) > 0,
                         l < LAYERS - models[_i / 3].shared);
    cb_session_close(s);
    cb_slow_free(r);
    cb_model_close(m);
}
END_TEST

static const char *const types[] = { "f32", "f16", "bf16", "q8_0", "kivi4:32", "kivi2:64:32:64" };
enum { N_TYPE = sizeof types / sizeof *types };

static cb_session *open_session(cb_model *m, const char *type, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = CAP, .chunk = chunk, .type_k = type, .type_v = type
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

static void as_planned(cb_session *s, int n_prompt, int n_gen)
{
    struct cb_memory plan, got;

    ck_assert_ok(cb_session_plan(s, n_prompt, n_gen, &plan));
    cb_session_memory(s, &got);
    ck_assert_uint_eq(got.kv_bytes, plan.kv_bytes);
    ck_assert_msg(fabs((double)got.kv_peak_bytes - (double)plan.kv_peak_bytes) <=
                      0.01 * (double)plan.kv_peak_bytes,
                  "peak of %llu bytes, planned %llu", (unsigned long long)got.kv_peak_bytes,
                  (unsigned long long)plan.kv_peak_bytes);
    ck_assert_uint_eq(got.kv_full_bytes, plan.kv_full_bytes);
    ck_assert_int_eq(got.kept_min, plan.kept_min);
    if (n_gen)
        ck_assert_uint_eq(got.kv_read_bytes_per_token, plan.kv_read_bytes_per_token);
}

/* Loop index: model, type. The kernels' answers do not depend on chunks and threads; a batch of two
 * sessions is what each is alone; a cut timeline goes on as if the rest had never been. */
START_TEST(every_type)
{
    const char *type = types[_i % N_TYPE];
    const int kivi = !strncmp(type, "kivi", 4), window = _i / N_TYPE == 2;
    cb_model *m = open_model(_i / N_TYPE, "cpu", 1), *m2 = open_model(_i / N_TYPE, "cpu", 3);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    const int32_t *tok = cb_toy_text(m);
    cb_session *a = open_session(m, type, 0), *b = open_session(m2, type, 64), *c[2];

    ck_assert_ok(cb_session_prefill(a, tok, PROMPT, NULL));
    ck_assert_ok(cb_session_prefill(b, tok, PROMPT, NULL));
    as_planned(a, PROMPT, 0);
    for (int i = PROMPT; i < PROMPT + STEPS; i++) {
        ck_assert_ok(cb_session_decode(a, tok[i]));
        ck_assert_ok(cb_session_decode(b, tok[i]));
        ck_assert(!memcmp(cb_session_logits(a), cb_session_logits(b), bytes));
    }
    as_planned(a, PROMPT, STEPS);
    for (int i = 0; i < 2; i++) {
        c[i] = open_session(m, type, 0);
        ck_assert_ok(cb_session_prefill(c[i], tok, PROMPT, NULL));
    }
    for (int i = PROMPT; i < PROMPT + STEPS; i++)
        ck_assert_ok(cb_decode_batch(c, (const int32_t[]){ tok[i], tok[i] }, 2));
    ck_assert(!memcmp(cb_session_logits(a), cb_session_logits(c[1]), bytes));
    if (!kivi && !window) {
        ck_assert_ok(cb_session_truncate(b, 128));
        cb_session_clear(a);
        ck_assert_ok(cb_session_prefill(a, tok, 128, NULL));
        ck_assert_ok(cb_session_decode(a, tok[3]));
        ck_assert_ok(cb_session_decode(b, tok[3]));
        ck_assert(!memcmp(cb_session_logits(a), cb_session_logits(b), bytes));
    }
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c[0]);
    cb_session_close(c[1]);
    cb_model_close(m);
    cb_model_close(m2);
}
END_TEST

static void is_refused(cb_model *m, const char *policy, const char *prefill)
{
    const struct cb_session_params p = { .n_ctx = CAP, .policy = policy, .prefill = prefill };
    cb_session *s;

    ck_assert_msg(cb_session_open(m, &p, &s) == CB_EUNSUPPORTED, "%s: opens", policy);
    ck_assert_msg(strstr(cb_error(), "read the keys and values of earlier ones") != NULL, "%s",
                  cb_error());
}

/* Methods that leave all rows in place, so that later layers can read them */
static int leaves_rows(const char *policy)
{
    static const char *const names[] = { "full", "sieve", "quest", "omnikv" };
    const size_t n = strcspn(policy, ":");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && !strncmp(policy, names[i], n))
            return 1;
    return 0;
}

static cb_session *open_policy(cb_model *m, const char *policy, const char *type, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = CAP, .chunk = chunk, .policy = policy, .type_k = type, .type_v = type
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* Loop index: model, type. Such methods act on the layers that own keys, for any chunks and number
 * of threads, as planned, in forks and saved banks; a budget that is never reached gives what the
 * full cache gives. */
START_TEST(methods_that_leave_rows)
{
    static const char *const list[] = { "sieve:budget=24,recent=8,sink=2",
                                        "quest:budget=32,page=16", "omnikv:filter=1,budget=24" };
    static const char *const kinds[] = { "f32", "f16", "q8_0" };
    static const char path[] = "check_shared_kv.bank";
    const char *type = kinds[_i % 3];
    cb_model *m = open_model(_i / 3, "cpu", 1), *m2 = open_model(_i / 3, "cpu", 3);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    const int32_t *tok = cb_toy_text(m);

    /* omnikv needs a layer after its first one */
    for (int i = 0; i < (LAYERS - models[_i / 3].shared > 1 ? 3 : 2); i++) {
        cb_session *a = open_policy(m, list[i], type, 0), *b = open_policy(m2, list[i], type, 64);
        cb_session *f = cb_toy_session(m, "full", type, 0), *c[2];
        ck_assert_int_eq(cb_model_policy_layers(m), LAYERS - models[_i / 3].shared);
        ck_assert_ok(cb_session_prefill(a, tok, PROMPT, NULL));
        ck_assert_ok(cb_session_prefill(b, tok, PROMPT, NULL));
        ck_assert_ok(cb_session_prefill(f, tok, PROMPT, NULL));
        for (int k = PROMPT; k < PROMPT + STEPS; k++) {
            ck_assert_ok(cb_session_decode(a, tok[k]));
            ck_assert_ok(cb_session_decode(b, tok[k]));
            ck_assert_ok(cb_session_decode(f, tok[k]));
            ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), bytes), "%s",
                          list[i]);
        }
        if (!m->layer[0].window) /* which may be shorter than the budget */
            ck_assert_msg(memcmp(cb_session_logits(a), cb_session_logits(f), bytes) != 0,
                          "%s: reads everything", list[i]);
        ck_assert_ok(cb_session_fork(a, &c[0]));
        ck_assert_ok(cb_session_save(a, path));
        ck_assert_ok(cb_session_load(m, path, 0, &c[1]));
        ck_assert_ok(cb_session_decode(a, tok[3]));
        for (int k = 0; k < 2; k++) {
            ck_assert_ok(cb_session_decode(c[k], tok[3]));
            ck_assert(!memcmp(cb_session_logits(a), cb_session_logits(c[k]), bytes));
            cb_session_close(c[k]);
        }
        cb_session_close(a);
        cb_session_close(b);
        cb_session_close(f);
    }
    remove(path);
    cb_model_close(m);
    cb_model_close(m2);
}
END_TEST

START_TEST(what_does_not_go_with_it)
{
    cb_model *m = open_model(0, "cpu", 1);
    char policy[128];
    cb_session *s;
    const float *logits;
    const int32_t *tok = cb_toy_text(m);

    is_refused(m, "full", "omnikv:filter=0");
    is_refused(m, "full", "sieve");
    for (int i = 0; cb_setting_narrow(i, policy, sizeof policy); i++)
        if (!leaves_rows(policy))
            is_refused(m, policy, NULL);
    s = cb_toy_session(m, "quest:budget=64,page=16,dense=0", "f16", 0);
    ck_assert_ok(cb_session_prefill(s, tok, 9, NULL));
    ck_assert_int_eq(cb_session_decode_all(s, tok, 3, &logits), CB_EUNSUPPORTED);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* All layers but one of each kind may share; none of a kind may not. */
START_TEST(files)
{
    static const char path[] = "check_shared_kv.gguf";
    const struct cb_model_params p = { .n_threads = 1 };
    struct tiny t = tiny_of(0);
    cb_model *m;

    t.shared_kv = LAYERS;
    cb_tiny_save(&t, path);
    ck_assert_int_eq(cb_model_open(path, &p, &m), CB_EFORMAT);
    ck_assert_msg(strstr(cb_error(), "shared_kv_layers: 5 is not between 0 and 4") != NULL, "%s",
                  cb_error());
    t.shared_kv = LAYERS - 1;
    cb_tiny_save(&t, path);
    ck_assert_ok(cb_model_open(path, &p, &m));
    cb_model_close(m);
    remove(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shared_kv");
    TCase *t = tcase_create("shared_kv");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, as_the_slow_run, 0, 3 * N_MODEL);
    tcase_add_loop_test(t, every_type, 0, N_TYPE * N_MODEL);
    tcase_add_loop_test(t, methods_that_leave_rows, 0, 3 * N_MODEL);
    tcase_add_test(t, what_does_not_go_with_it);
    tcase_add_test(t, files);
    return cb_suite_run(suite);
}
