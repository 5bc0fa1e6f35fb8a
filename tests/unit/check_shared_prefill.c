/* SPDX-License-Identifier: MIT */
/* check_shared_prefill.c - one prefill for many policies: a session that follows ends up bit for
 * bit where its own prefill would have brought it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "model/model.h"

enum { N_PROMPT = 100, N_CTX = 160, N_STEP = 6 };

/* Ways of some methods */
static const char *const ways[] = {
    "simlayerkv:sink=2,recent=10,mode=prefill,window=6",
    "snapkv:budget=24,window=8,floor=0.2",
    "omnikv:budget=24,select=exp,window=8",
    "window:budget=24,prefill=dense",
    "infinigen:alpha=0.2,dense=1",
};
enum { N_WAY = sizeof ways / sizeof *ways, MOST_SPEC = 64 };

/* All methods whose prompts attend densely, and the ways */
static char spec[MOST_SPEC][128];
static int n_spec;

static char path[64];
static cb_model *model;
static int32_t text[N_PROMPT];

static cb_session *open_session(const char *policy, int chunk)
{
    const struct cb_session_params p = { .n_ctx = N_CTX, .chunk = chunk, .policy = policy };
    cb_session *s;
    ck_assert_msg(!cb_session_open(model, &p, &s), "%s: %s", policy, cb_error());
    return s;
}

static void list_specs(void)
{
    const int n = cb_setting_n_policy();
    cb_session *full = open_session("full", 0);

    for (int i = n_spec = 0; i < n + N_WAY; i++) {
        cb_session *s;
        ck_assert_int_lt(n_spec, MOST_SPEC);
        if (i < n)
            cb_setting_narrow(i, spec[n_spec], sizeof *spec);
        else
            snprintf(spec[n_spec], sizeof *spec, "%s", ways[i - n]);
        s = open_session(spec[n_spec], 0);
        n_spec += cb_session_can_follow(s, full) || i >= n;
        cb_session_close(s);
    }
    cb_session_close(full);
}

static void setup(void)
{
    struct tiny t = cb_tiny_get("llama");
    const struct cb_model_params p = { .n_threads = 1 };
    uint32_t x = 7;

    t.n_layer = 4;
    snprintf(path, sizeof path, "check_follow_%d.gguf", (int)getpid());
    cb_tiny_save(&t, path);
    ck_assert_ok(cb_model_open(path, &p, &model));
    for (int i = 0; i < N_PROMPT; i++) {
        x = x * 1664525u + 1013904223u;
        text[i] = (int32_t)((x >> 8) % (uint32_t)model->hp.n_vocab);
    }
    list_specs();
}

static void teardown(void)
{
    cb_model_close(model);
    unlink(path);
}

static void check_same(const char *name, cb_session *a, cb_session *b)
{
    const size_t n = (size_t)model->hp.n_vocab * sizeof(float);
    struct cb_memory ma, mb;

    for (int i = 0; i < N_STEP; i++) {
        ck_assert_int_eq(cb_session_len(a), cb_session_len(b));
        ck_assert_msg(!memcmp(cb_session_logits(a), cb_session_logits(b), n), "%s: step %d", name,
                      i);
        cb_session_memory(a, &ma);
        cb_session_memory(b, &mb);
        ck_assert_msg(ma.kv_bytes == mb.kv_bytes && ma.kept_min == mb.kept_min &&
                          ma.kept_max == mb.kept_max && ma.kv_peak_bytes == mb.kv_peak_bytes,
                      "%s: step %d: %llu and %llu bytes", name, i, (unsigned long long)ma.kv_bytes,
                      (unsigned long long)mb.kv_bytes);
        ck_assert(!cb_session_decode(a, text[i]));
        ck_assert(!cb_session_decode(b, text[i]));
    }
}

static void check_from(int lead, int chunk)
{
    cb_session *s[MOST_SPEC] = { NULL }, *follower[MOST_SPEC];
    int n = 0;

    for (int i = 0; i < n_spec; i++)
        s[i] = open_session(spec[i], chunk);
    for (int i = 0; i < n_spec; i++)
        if (i != lead) {
            ck_assert_msg(cb_session_can_follow(s[i], s[lead]), "%s", spec[i]);
            follower[n++] = s[i];
        }
    ck_assert_ok(cb_session_prefill_shared(s[lead], follower, NULL, n, text, N_PROMPT, NULL));
    for (int i = 0; i < n_spec; i++) {
        cb_session *own = open_session(spec[i], chunk);
        ck_assert(!cb_session_prefill(own, text, N_PROMPT, NULL));
        check_same(spec[i], s[i], own);
        cb_session_close(own);
        cb_session_close(s[i]);
    }
}

START_TEST(followers_are_as_if_fed)
{
    check_from(0, 512);
    check_from(0, 32);
}
END_TEST

/* The even ones stop within a chunk; their next feed must find them as if they had been alone. */
START_TEST(followers_may_stop_earlier)
{
    cb_session *lead = open_session("h2o:budget=24", 32), *f[2 * MOST_SPEC] = { NULL };
    int upto[2 * MOST_SPEC];

    for (int i = 0; i < 2 * n_spec; i++) {
        f[i] = open_session(spec[i / 2], 32);
        upto[i] = i % 2 ? N_PROMPT : 45;
    }
    ck_assert_ok(cb_session_prefill_shared(lead, f, upto, 2 * n_spec, text, N_PROMPT, NULL));
    for (int i = 0; i < 2 * n_spec; i++) {
        cb_session *own = open_session(spec[i / 2], 32);
        ck_assert(!cb_session_prefill(own, text, upto[i], NULL));
        if (upto[i] < N_PROMPT) {
            ck_assert(!cb_session_prefill(f[i], text + upto[i], 20, NULL));
            ck_assert(!cb_session_prefill(own, text + upto[i], 20, NULL));
        }
        check_same(spec[i / 2], f[i], own);
        cb_session_close(own);
        cb_session_close(f[i]);
    }
    cb_session_close(lead);
}
END_TEST

START_TEST(a_policy_that_compacts_can_lead)
{
    for (int i = 0; i < n_spec; i++)
        if (!strncmp(spec[i], "snapkv", 6))
            check_from(i, 32);
}
END_TEST

START_TEST(a_second_prompt_is_their_own)
{
    cb_session *lead = open_session("full", 0), *f = open_session("snapkv:budget=24,window=8", 0);
    cb_session *own = open_session("snapkv:budget=24,window=8", 0);

    ck_assert(!cb_session_prefill_shared(lead, &f, NULL, 1, text, N_PROMPT, NULL));
    ck_assert(!cb_session_prefill(own, text, N_PROMPT, NULL));
    ck_assert(!cb_session_can_follow(f, lead));
    ck_assert(!cb_session_prefill(f, text, 20, NULL));
    ck_assert(!cb_session_prefill(own, text, 20, NULL));
    check_same("snapkv", f, own);
    cb_session_close(lead);
    cb_session_close(f);
    cb_session_close(own);
}
END_TEST

START_TEST(what_does_not_match_is_refused)
{
    cb_session *lead = open_session("full", 0), *f[] = { open_session("full", 16) };
    cb_session *sparse = open_session("window:budget=24", 0), *twin = open_session("full", 0);
    const struct cb_session_params p = { .n_ctx = N_CTX, .type_k = "f32" };
    cb_session *other;
    const int none = 0;

    ck_assert(!cb_session_open(model, &p, &other));
    ck_assert(!cb_session_can_follow(f[0], lead));
    ck_assert(!cb_session_can_follow(other, lead));
    ck_assert(!cb_session_can_follow(sparse, lead));
    ck_assert_int_eq(cb_session_prefill_shared(lead, f, NULL, 1, text, N_PROMPT, NULL), CB_EARG);
    ck_assert_int_eq(cb_session_prefill_shared(lead, &twin, &none, 1, text, 8, NULL), CB_EARG);
    ck_assert_int_eq(cb_session_len(lead), 0);
    cb_session_close(lead);
    cb_session_close(f[0]);
    cb_session_close(sparse);
    cb_session_close(twin);
    cb_session_close(other);
}
END_TEST

static int stop_late(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return done > total / 2;
}

START_TEST(a_stopped_prefill_leaves_them_empty)
{
    cb_session *lead = open_session("full", 32), *f = open_session("h2o:budget=24", 32);
    cb_session *own = open_session("h2o:budget=24", 32);
    const struct cb_prefill how = { .progress = stop_late };

    ck_assert_int_eq(cb_session_prefill_shared(lead, &f, NULL, 1, text, N_PROMPT, &how),
                     CB_ECANCEL);
    ck_assert_int_eq(cb_session_len(lead), 0);
    ck_assert_int_eq(cb_session_len(f), 0);
    ck_assert(!cb_session_prefill_shared(lead, &f, NULL, 1, text, N_PROMPT, NULL));
    ck_assert(!cb_session_prefill(own, text, N_PROMPT, NULL));
    check_same("h2o", f, own);
    cb_session_close(lead);
    cb_session_close(f);
    cb_session_close(own);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("follow");
    TCase *c = tcase_create("shared prefill");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    tcase_add_test(c, followers_are_as_if_fed);
    tcase_add_test(c, followers_may_stop_earlier);
    tcase_add_test(c, a_policy_that_compacts_can_lead);
    tcase_add_test(c, a_second_prompt_is_their_own);
    tcase_add_test(c, what_does_not_match_is_refused);
    tcase_add_test(c, a_stopped_prefill_leaves_them_empty);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
