/* SPDX-License-Identifier: MIT */
/* check_policy.c - every evicting policy on small random models: against full attention where
 * nothing is to drop, over chunk sizes, threads, turns, and odd budgets. What it drops is
 * check_mask.c's. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { CAP = 400, PROMPT = 90, SECOND = 20, LAYERS = 4 };

/* ---- models ---- */

static char model_path[2][64];
static const char *const family[] = { "llama", "qwen2" };

static void make_models(void)
{
    for (int i = 0; i < 2; i++) {
        struct tiny t = cb_tiny_small(family[i]);
        t.n_layer = LAYERS;
        snprintf(model_path[i], sizeof model_path[i], "check_policy_%s.gguf", family[i]);
        cb_tiny_save(&t, model_path[i]);
    }
}

static cb_model *open_model(int which, const char *device, int n_threads)
{
    const struct cb_model_params mp = { .n_threads = n_threads, .device = device };
    cb_model *m;

    if (cb_model_open(model_path[which], &mp, &m))
        ck_abort_msg("%s", cb_error());
    return m;
}

static cb_session *open_session(cb_model *m, const char *policy, int chunk)
{
    const struct cb_session_params sp = {
        .n_ctx = CAP, .chunk = chunk, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    cb_session *s;

    if (cb_session_open(m, &sp, &s))
        ck_abort_msg("%s: %s", policy, cb_error());
    return s;
}

/* ---- all policies ---- */

/* With a budget that the text never reaches; the same with one that it does. */
struct row {
    const char *roomy, *tight;
    int known; /* 1: what it will hold does not depend on the text; 2: in the sum over layers */
};

static const struct row rows[] = {
    { "full", "full", 1 },
    { "window:budget=200", "window:budget=24", 1 },
    { "streamingllm:budget=200", "streamingllm:budget=24", 1 },
    { "streamingllm:budget=200", "streamingllm:budget=140", 1 },
    { "streamingllm:budget=200,positions=kept", "streamingllm:budget=0.3,positions=kept", 1 },
    { "streamingllm:budget=200,prefill=windowed", "streamingllm:budget=24,prefill=windowed", 1 },
    { "streamingllm:budget=200", "streamingllm:budget=0.3,sink=0.02", 1 },
    { "sieve:budget=200", "sieve:budget=24,recent=8", 1 },
    { "quest:budget=200", "quest:budget=24,page=8,dense=0,group=mean", 1 },
    { "infinigen:alpha=1e9,most=200", "infinigen:alpha=0.2,most=24", 1 },
    { "h2o:budget=200", "h2o:budget=24", 1 },
    { "h2o:budget=200,drop=chunk,chunk=8", "h2o:budget=24,drop=chunk,chunk=64", 1 },
    { "h2o:budget=200,drop=first-decode", "h2o:budget=0.2,drop=first-decode", 1 },
    { "h2o:budget=200,group=mean", "h2o:budget=0.2,group=mean", 1 },
    { "h2o:budget=200,positions=rolled", "h2o:budget=24,positions=rolled", 1 },
    { "h2o:budget=200,decode=grow", "h2o:budget=30,decode=grow", 1 },
    { "snapkv:budget=200", "snapkv:budget=0.3,window=8", 1 },
    { "snapkv:budget=200,group=each", "snapkv:budget=24,window=8,group=each", 0 },
    { "snapkv:budget=200,pool=max,group=max", "snapkv:budget=24,window=8,pool=max,group=max", 1 },
    { "snapkv:budget=200,decode=bounded", "snapkv:budget=24,window=8,decode=bounded,tail=5", 1 },
    { "snapkv:budget=200,floor=0.2", "snapkv:budget=24,window=8,floor=0.2", 2 },
    { "snapkv:budget=200,floor=0", "snapkv:budget=30,window=8,floor=0,decode=bounded,tail=5", 2 },
    { "pyramidkv:budget=200,floor=0.5", "pyramidkv:budget=30,floor=0.5,decode=bounded,tail=5", 2 },
    { "pyramidkv:budget=200", "pyramidkv:budget=30", 1 },
    { "pyramidkv:budget=200,decode=bounded", "pyramidkv:budget=0.3,decode=bounded,tail=5", 1 },
    { "pyramidkv:budget=200,shape=geometric", "pyramidkv:budget=30,shape=geometric", 1 },
    { "pyramidkv:budget=200,shape=exponential", "pyramidkv:budget=30,shape=exponential", 1 },
    { "pyramidkv:budget=200,budgets=compat", "pyramidkv:budget=30,budgets=compat", 1 },
    { "pyramidkv:budget=200,budgets=kvpress", "pyramidkv:budget=30,budgets=kvpress", 1 },
    { "tova:budget=200", "tova:budget=24", 1 },
    { "expected:budget=200", "expected:budget=24", 2 },
    { "expected:budget=200,floor=1", "expected:budget=0.3,floor=1,eps=0", 1 },
    { "keydiff:budget=200", "keydiff:budget=24,decode=bounded,chunk=16", 1 },
    { "keydiff:budget=200,drop=chunk", "keydiff:budget=24,sink=4,drop=chunk,chunk=32", 1 },
    { "kvzip:budget=200", "kvzip:budget=24,chunk=40", 2 },
    { "kvzip:budget=200,among=head", "kvzip:budget=0.3,among=head", 1 },
    { "lm-infinite:window=241", "lm-infinite:sink=4,window=21", 1 },
    { "lm-infinite:window=241,sink=200", "lm-infinite:sink=130,window=1", 1 },
    { "infllm:local=241", "infllm:local=20,sink=2,block=6,blocks=2,chunk=1", 1 },
    { "roco:budget=200", "roco:budget=24,stride=8", 1 },
    { "roco:budget=200,stride=50", "roco:budget=0.3,stride=50,exempt=0.5,tail=2", 1 },
    { "pyramidinfer:decay=1,gen_decay=1,keep=1", "pyramidinfer:decay=0.4,context=8,recent=0.1", 1 },
    { "pyramidinfer:context=200,recent=0.5", "pyramidinfer:decay=0.7,context=0,block=3,interval=2",
      1 },
    { "minicache:retain=200", "minicache:retain=24,tail=16", 1 },
    { "minicache:start=0,retain=200,tail=1", "minicache:start=0,retain=0.05,t=0.5,tail=7", 1 },
    { "duo:heads=0,recent=200", "duo:heads=1+2,sink=4,recent=20", 0 },
    { "duo:heads=3,recent=200,chunk=32", "duo:heads=3,sink=0,recent=24,chunk=32", 0 },
    { "d2o:budget=200", "d2o:budget=24", 2 },
    { "d2o:budget=200,sink=1", "d2o:budget=0.25", 2 },
    { "d2o:budget=200,drop=first-decode", "d2o:budget=0.2,layers=uniform,drop=first-decode", 2 },
    { "d2o:budget=200,layers=gate", "d2o:budget=30,layers=gate,gate=0.02", 2 },
    { "d2o:budget=200,layers=paper", "d2o:budget=30,layers=paper,gate=2", 2 },
    { "d2o:budget=200,layers=first2", "d2o:budget=20,layers=first2", 1 },
    { "d2o:budget=200,layers=uniform,protect=compat", "d2o:budget=20,layers=uniform,protect=compat",
      1 },
    { "d2o:budget=200,merge=code,protect=1", "d2o:budget=20,merge=printed,protect=0+3", 2 },
    { "d2o:budget=200,layers=uniform,decode=grow", "d2o:budget=20,layers=uniform,decode=grow", 1 },
    { "simlayerkv:recent=196", "simlayerkv:recent=20,threshold=-1", 0 },
    { "simlayerkv:recent=196,mode=prefill", "simlayerkv:recent=20,threshold=-1,mode=prefill", 0 },
    { "simlayerkv:recent=20,threshold=1", "simlayerkv:recent=20,threshold=0.5", 0 },
};
enum { N_ROW = sizeof rows / sizeof *rows, GEN = 40 };

/* The rows, then every method of the table: what it will hold may depend on the text */
static struct row row_at(int i, char wide[128], char narrow[128])
{
    if (i < N_ROW)
        return rows[i];
    cb_setting_wide(i - N_ROW, wide, 128);
    cb_setting_narrow(i - N_ROW, narrow, 128);
    return (struct row){ wide, narrow, 0 };
}

/* A prompt, some tokens, a second turn and a token more -> logits[n_vocab] after each token fed. */
static cb_session *converse(cb_model *m, const char *policy, int chunk, float *logits)
{
    const size_t n = (size_t)m->hp.n_vocab;
    const int32_t *tok = cb_toy_text(m);
    cb_session *s = open_session(m, policy, chunk);

    for (int i = 0; i < GEN + 2; i++, logits += n) {
        if (i == 0)
            ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
        else if (i == GEN)
            ck_assert_ok(cb_session_prefill(s, tok + PROMPT + GEN, SECOND, NULL));
        else
            ck_assert_ok(cb_session_decode(s, tok[PROMPT + i]));
        memcpy(logits, cb_session_logits(s), n * sizeof *logits);
    }
    return s;
}

static float *logits_of(const cb_model *m)
{
    float *x = calloc((GEN + 2) * (size_t)m->hp.n_vocab, sizeof *x);
    ck_assert_ptr_nonnull(x);
    return x;
}

START_TEST(a_budget_that_holds_all_changes_no_bit)
{
    char spec[2][128];
    const struct row row = row_at(_i, spec[0], spec[1]);
    cb_model *m = open_model(0, "cpu", 1);
    const size_t bytes = (GEN + 2) * (size_t)m->hp.n_vocab * sizeof(float);
    float *a = logits_of(m), *b = logits_of(m);

    cb_session_close(converse(m, "full", 0, a));
    cb_session_close(converse(m, row.roomy, 0, b));
    ck_assert_msg(!memcmp(a, b, bytes), "%s: differs from full", row.roomy);
    free(a);
    free(b);
    cb_model_close(m);
}
END_TEST

/* The same slots in two sessions. */
static void same_kept(const cb_session *a, const cb_session *b, const char *what)
{
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < a->model->hp.n_kv; h++) {
            const struct store *x = &a->bank.store[l], *y = &b->bank.store[l];
            ck_assert_msg(x->n[h] == y->n[h], "%s: %d and %d slots", what, x->n[h], y->n[h]);
            for (int i = 0; i < x->n[h]; i++)
                ck_assert_msg(cb_store_pos(x, h, i) == cb_store_pos(y, h, i),
                              "%s: layer %d, head %d, slot %d: tokens %d and %d", what, l, h, i,
                              cb_store_pos(x, h, i), cb_store_pos(y, h, i));
        }
}

START_TEST(threads_and_chunks_change_nothing)
{
    char spec[2][128];
    const struct row row = row_at(_i, spec[0], spec[1]);
    static const struct {
        int threads, chunk;
    } how[] = { { 2, 0 }, { 2, 7 }, { 1, 1 }, { 1, 64 } };
    cb_model *m = open_model(1, "cpu", 1);
    const size_t n = (GEN + 2) * (size_t)m->hp.n_vocab;
    float *a = logits_of(m), *b = logits_of(m);
    cb_session *s = converse(m, row.tight, 0, a);

    for (size_t i = 0; i < (CB_SLOWED > 1 ? 2 : sizeof how / sizeof *how); i++) {
        cb_model *m2 = open_model(1, "cpu", how[i].threads);
        cb_session *s2 = converse(m2, row.tight, how[i].chunk, b);
        same_kept(s, s2, row.tight);
        for (size_t j = 0; j < n; j++)
            ck_assert_msg(how[i].chunk ? fabsf(a[j] - b[j]) < 1e-4f : a[j] == b[j],
                          "%s: %d threads, chunk %d: %g and %g", row.tight, how[i].threads,
                          how[i].chunk, (double)a[j], (double)b[j]);
        cb_session_close(s2);
        cb_model_close(m2);
    }
    free(a);
    free(b);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

START_TEST(a_cleared_session_starts_afresh)
{
    char spec[2][128];
    const struct row row = row_at(_i, spec[0], spec[1]);
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    const size_t n = (size_t)m->hp.n_vocab;
    float *a = logits_of(m);
    cb_session *s = converse(m, row.tight, 0, a);

    cb_session_clear(s);
    for (int i = 0; i < GEN; i++) {
        ck_assert_ok(i ? cb_session_decode(s, tok[PROMPT + i])
                       : cb_session_prefill(s, tok, PROMPT, NULL));
        ck_assert(!memcmp(cb_session_logits(s), a + (size_t)i * n, n * sizeof *a));
    }
    free(a);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* A hundredth, and what `slack` slots a KV head take. */
static void as_planned(const cb_session *s, uint64_t got, uint64_t said, int slack,
                       const char *what, const char *spec)
{
    const struct store *st = &s->bank.store[0];
    const double more = (double)(LAYERS * st->n_kv * slack) * (double)(st->row_k + st->row_v);
    ck_assert_msg(fabs((double)got - (double)said) <= 0.01 * (double)got + more,
                  "%s: %s: %llu bytes, planned %llu", spec, what, (unsigned long long)got,
                  (unsigned long long)said);
}

START_TEST(memory_is_what_was_planned)
{
    char spec[2][128];
    const struct row row = row_at(_i, spec[0], spec[1]);
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    cb_session *s = open_session(m, row.tight, 0);
    struct cb_memory plan, got;

    for (int gen = 0; row.known && gen < 60; gen += 20) {
        cb_session_clear(s);
        ck_assert_ok(cb_session_plan(s, 200, gen, &plan));
        ck_assert_ok(cb_session_prefill(s, tok, 200, NULL));
        for (int i = 0; i < gen; i++)
            ck_assert_ok(cb_session_decode(s, tok[200 + i]));
        cb_session_memory(s, &got);
        as_planned(s, got.kv_bytes, plan.kv_bytes, row.known - 1, "bank", row.tight);
        as_planned(s, got.kv_peak_bytes, plan.kv_peak_bytes, row.known - 1, "peak", row.tight);
        if (row.known > 1)
            continue;
        ck_assert_int_eq(got.kept_min, plan.kept_min);
        ck_assert_int_eq(got.kept_max, plan.kept_max);
    }
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Prompts of one and two tokens, and none; generating from an empty timeline. */
START_TEST(short_prompts)
{
    char spec[2][128];
    const struct row row = row_at(_i, spec[0], spec[1]);
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    const int share = strstr(row.tight, "budget=0.") != NULL;
    cb_session *s = open_session(m, row.tight, 0);

    for (int n = 1; n <= 2; n++) {
        cb_session_clear(s);
        ck_assert_ok(cb_session_prefill(s, tok, n, NULL));
        for (int i = 0; i < 5; i++)
            ck_assert_ok(cb_session_decode(s, tok[n + i]));
        ck_assert_int_eq(cb_session_len(s), n + 5);
    }
    ck_assert_int_eq(cb_session_prefill(s, tok, 0, NULL), CB_EARG);
    cb_session_clear(s);
    if (!share || strstr(row.tight, "snapkv:budget=0.3") ||
        strstr(row.tight, "expected:budget=0.3") || strstr(row.tight, "kvzip"))
        ck_assert_ok(cb_session_decode(s, tok[0]));
    else
        ck_assert_int_eq(cb_session_decode(s, tok[0]), CB_EARG); /* a share of what? */
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- what only some do ---- */

START_TEST(a_stream_needs_no_more_memory)
{
    static const char *const spec[] = { "streamingllm:budget=40", "window:budget=40",
                                        "h2o:budget=40", "streamingllm:budget=40,positions=kept" };
    struct cb_session_params sp = { .n_ctx = 64, .policy = spec[_i] };
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    struct cb_memory first, last;
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &sp, &s));
    for (int i = 0; i < 1000; i++) {
        ck_assert_ok(cb_session_decode(s, tok[i % 300]));
        if (i == 100)
            cb_session_memory(s, &first);
    }
    cb_session_memory(s, &last);
    ck_assert_uint_eq(first.kv_bytes, last.kv_bytes);
    ck_assert_uint_eq(first.kv_peak_bytes, last.kv_peak_bytes);
    ck_assert_int_eq(last.kept_max, 40);
    ck_assert_int_eq(cb_session_len(s), 1000);
    ck_assert_ok(cb_session_prefill(s, tok, 24, NULL)); /* 40 + 24 = 64 */
    ck_assert_int_eq(cb_session_prefill(s, tok, 25, NULL), CB_EFULL);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* A prompt that sees first tokens and a window is what the same tokens are when they are generated
 * one by one. It is dropped as it goes, so the peak does not grow with it. */
START_TEST(a_windowed_prompt_is_a_stream)
{
    static const char *const spec[] = { "window:budget=100",
                                        "streamingllm:budget=100,prefill=windowed",
                                        "streamingllm:budget=100,prefill=windowed,positions=kept",
                                        "streamingllm:budget=700,sink=9,prefill=windowed" };
    enum { LONG = 1300 };
    const struct cb_session_params sp = {
        .n_ctx = 2048, .type_k = "f32", .type_v = "f32", .policy = spec[_i]
    };
    cb_model *m = open_model(_i % 2, "cpu", 2);
    struct cb_memory plan, got;
    cb_session *a, *b;
    int32_t tok[LONG];
    float diff = 0, size = 0;

    for (int i = 0; i < LONG; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_open(m, &sp, &a));
    ck_assert_ok(cb_session_open(m, &sp, &b));
    ck_assert_ok(cb_session_prefill(a, tok, LONG, NULL));
    for (int i = 0; i < LONG; i++)
        ck_assert_ok(cb_session_decode(b, tok[i]));
    same_kept(a, b, spec[_i]);
    for (int i = 0; i < m->hp.n_vocab; i++) {
        diff = fmaxf(diff, fabsf(cb_session_logits(a)[i] - cb_session_logits(b)[i]));
        size = fmaxf(size, fabsf(cb_session_logits(a)[i]));
    }
    ck_assert_msg(diff < 1e-3f * size, "%s: logits differ by %g of %g", spec[_i], (double)diff,
                  (double)size);
    ck_assert_ok(cb_session_plan(a, LONG, 0, &plan));
    cb_session_memory(a, &got);
    as_planned(a, got.kv_peak_bytes, plan.kv_peak_bytes, 0, "peak", spec[_i]);
    ck_assert_int_le(a->bank.n_most, (_i == 3 ? 700 : 100) + 512);
    cb_session_close(a);
    cb_session_close(b);
    cb_model_close(m);
}
END_TEST

/* A later, longer prompt has no more sinks than an earlier one left. */
START_TEST(shares_of_a_growing_prompt)
{
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    cb_session *s = open_session(m, "streamingllm:budget=0.3,sink=0.1", 0);

    ck_assert_ok(cb_session_prefill(s, tok, 20, NULL));
    ck_assert_int_eq(s->bank.store[0].n[0], 6);
    ck_assert_int_eq(cb_store_pos(&s->bank.store[0], 0, 1), 1);
    ck_assert_int_eq(cb_store_pos(&s->bank.store[0], 0, 2), 16);
    ck_assert_ok(cb_session_prefill(s, tok + 20, 80, NULL));
    ck_assert_int_eq(s->bank.store[0].n[0], 30);
    ck_assert_int_eq(cb_store_pos(&s->bank.store[0], 0, 1), 1);
    for (int i = 2; i < 30; i++)
        ck_assert_int_eq(cb_store_pos(&s->bank.store[0], 0, i), 70 + i);
    ck_assert_ok(cb_session_decode(s, tok[100]));
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

START_TEST(a_budget_of_one)
{
    static const char *const spec[] = { "window:budget=1", "streamingllm:budget=1,sink=0",
                                        "h2o:budget=1", "window:budget=1e-6" };
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    cb_session *s = open_session(m, spec[_i], 0);

    ck_assert_ok(cb_session_prefill(s, tok, 30, NULL));
    ck_assert_ok(cb_session_decode(s, tok[30]));
    ck_assert_int_eq(cb_store_max_len(&s->bank.store[0]), 1);
    ck_assert_int_eq(cb_store_pos(&s->bank.store[0], 0, 0), 30);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- settings of papers ---- */

static struct policy *plan_of(const char *spec, struct layer_plan *row)
{
    const struct shape sh = { .n_layer = 32, .n_head = 32, .n_kv = 8, .hd = 128, .n_ctx = 8192 };
    struct policy *p;

    memset(row, 0, 32 * sizeof *row);
    ck_assert_msg(!cb_policy_open(spec, &sh, &p), "%s: %s", spec, cb_error());
    for (int l = 0; l < 32; l++)
        row[l].reads = -1;
    ck_assert_msg(!p->m->plan || !p->m->plan(p, &sh, row), "%s: %s", spec, cb_error());
    return p;
}

struct last {
    int n_vocab, calls;
    float *x;
};

static void take_last(void *arg, int i, const float *logits)
{
    struct last *l = arg;

    ck_assert_int_eq(i, PROMPT - 1);
    memcpy(l->x, logits, (size_t)l->n_vocab * sizeof *logits);
    l->calls++;
}

/* Value of an option, by name */
static double value_of(const struct policy *p, const char *name)
{
    for (int i = 0; p->m->opts[i].name; i++)
        if (!strcmp(p->m->opts[i].name, name))
            return p->val[i].num;
    ck_abort_msg("%s: no option of %s", name, p->m->name);
    return 0;
}

START_TEST(every_setting_is_of_its_method)
{
    const struct paper_setting *x;
    struct layer_plan row[32];
    char spec[160];

    for (int i = 0; (x = cb_paper_setting_at(i)); i++) {
        snprintf(spec, sizeof spec, "%s:as=%s", x->method, x->name);
        cb_policy_close(plan_of(spec, row));
    }
}
END_TEST

START_TEST(settings_are_options)
{
    struct layer_plan row[32];
    struct policy *p = plan_of("pyrkv-96", row);
    int sum = 0;

    ck_assert_str_eq(p->m->name, "pyramidkv");
    for (int l = 0; l < 32; l++)
        sum += p->m->slots(p, l, 8192, 0);
    ck_assert_int_eq(sum, 32 * 8 + 3024); /* 172 to 17 in steps of 5: mean 94.5 */
    cb_policy_close(p);
    p = plan_of("h2o:recent=9,as=pyrkv-96", row);
    ck_assert(value_of(p, "budget") == 96 && value_of(p, "recent") == 9);
    ck_assert_int_eq(p->m->slots(p, 0, 8192, 10), 106); /* decode=grow */
    cb_policy_close(p);
    p = plan_of("omni-30", row);
    ck_assert(row[2].choice.k > 0 && row[3].reads < 0 && row[4].reads == 2 && row[31].reads == 18);
    ck_assert_int_eq((int)(row[2].choice.share * 128000), 8533);
    ck_assert(strstr(p->note, "2, 8, 18, which the paper found for Llama 3 8B")); /* not here */
    cb_policy_close(p);
    p = plan_of("pod-4k:recent=100", row);
    ck_assert_int_eq(row[31].cross.sink, 16);
    ck_assert_int_eq(row[31].cross.recent, 100);
    cb_policy_close(p);
    p = plan_of("slkv-1k", row);
    ck_assert(value_of(p, "recent") == 1024 && value_of(p, "least") == 1);
    cb_policy_close(p);
    p = plan_of("d2o-20:sink=0", row);
    ck_assert(value_of(p, "budget") == 0.2 && value_of(p, "sink") == 0);
    ck_assert(p->at_most); /* section 4.1: S or alpha S, by an absolute variance */
    ck_assert_int_eq(p->m->slots(p, 0, 1000, 0), 599);
    cb_policy_close(p);
}
END_TEST

/* The lengths that the paper's shares leave of 4096 tokens: layer l leaves (1 - 0.9)(cos(pi l / 32)
 * + 1) / 2 + 0.9 of what lies before the last 1 + 819. */
START_TEST(a_pyramid_of_computed_tokens)
{
    static const int first[] = { 4096, 4096, 4095, 4091, 4083 };
    struct layer_plan row[32];
    struct policy *p = plan_of("pyramidinfer", row);
    int sum = 0;

    p->plan = row;
    for (int l = 0; l < 5; l++)
        ck_assert_int_eq(p->m->slots(p, l, 4096, 0), first[l]);
    ck_assert_int_eq(p->m->slots(p, 30, 4096, 0), 1621);
    ck_assert_int_eq(p->m->slots(p, 31, 4096, 0), 1541);
    for (int l = 0; l < 32; l++)
        sum += p->m->slots(p, l, 4096, 0);
    ck_assert_double_eq_tol(sum / (32 * 4096.0), 0.765747, 1e-6);
    /* 819 generated tokens are recent; of each 16 after them layer 0 keeps 14, layer 31 one */
    ck_assert_int_eq(p->m->slots(p, 0, 4096, 819 + 31), 4096 + 819 + 31 - 2);
    ck_assert_int_eq(p->m->slots(p, 31, 4096, 819 + 32), 1541 + 819 + 32 - 30);
    cb_policy_close(p);
}
END_TEST

/* Tokens that upper layers have not computed have no logits. */
START_TEST(only_the_last_logits_of_a_narrowing_prompt)
{
    cb_model *m = open_model(0, "cpu", 1);
    const int32_t *tok = cb_toy_text(m);
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    cb_session *s = open_session(m, "pyramidinfer:decay=0.4,context=8", 0);
    struct last last = { .n_vocab = m->hp.n_vocab, .x = malloc(bytes) };
    struct cb_prefill how = { .logits = take_last, .logits_arg = &last };

    how.logits_from = PROMPT - 2;
    ck_assert_int_eq(cb_session_prefill(s, tok, PROMPT, &how), CB_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(cb_error(), "only the last one's logits"));
    ck_assert_int_eq(cb_session_len(s), 0);
    how.logits_from = PROMPT - 1;
    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, &how));
    ck_assert_int_eq(last.calls, 1);
    for (int i = 0; i < m->hp.n_vocab; i++) /* activations of 16 bits, and of 8 */
        ck_assert_float_eq_tol(last.x[i], cb_session_logits(s)[i], 0.1f);
    free(last.x);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- plans that saved banks know again ---- */

static uint64_t hash_of(const char *spec)
{
    static const struct shape sh = {
        .n_layer = 32, .n_head = 32, .n_kv = 8, .hd = 128, .n_ctx = 32768, .n_model_layer = 32
    };
    struct policy *p;
    uint64_t hash;

    ck_assert_ok(cb_policy_open(spec, &sh, &p));
    ck_assert_ok(cb_policy_plan(p, NULL));
    hash = cb_policy_plan_hash(p);
    cb_policy_close(p);
    return hash;
}

/* Banks that earlier versions saved keep their hash, where no field was added that they use. */
START_TEST(plans_of_older_banks)
{
    static const struct {
        const char *spec;
        uint64_t hash;
    } old[] = { { "full", 0x6904a50c0120a69d },      { "h2o:budget=20", 0x29ea2f032a2e3dc1 },
                { "sieve", 0xa9f4de8e4c7e1481 },     { "pod:blocks=0", 0xdafcc959174b2a2b },
                { "minicache", 0xce4e48b978391f64 }, { "infinigen", 0x2322d1e47d9e92d4 },
                { "simlayerkv", 0xd7f5092d21412039 } };

    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        ck_assert_msg(hash_of(old[i].spec) == old[i].hash, "%s", old[i].spec);
}
END_TEST

/* Plans that differ in one field are different plans. */
START_TEST(no_field_is_left_out)
{
    static const char *const pair[][2] = {
        { "h2o:budget=20,drop=chunk,chunk=8", "h2o:budget=20,drop=chunk,chunk=16" },
        { "omnikv:filter=2,tail_max=64,window=3", "omnikv:filter=2,tail_max=64,window=4" },
        { "lm-infinite:sink=4,window=20", "lm-infinite:sink=4,window=21" },
        { "lm-infinite:sink=4,window=20", "lm-infinite:sink=5,window=20" },
        { "streamingllm:budget=24,prefill=windowed", "streamingllm:budget=25,prefill=windowed" },
    };

    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        ck_assert_msg(hash_of(pair[i][0]) != hash_of(pair[i][1]), "%s", pair[i][0]);
    ck_assert(hash_of("omnikv:filter=2,tail_max=1,window=3") ==
              hash_of("omnikv:filter=2,tail_max=1,window=4"));
}
END_TEST

START_TEST(what_cannot_work_is_refused)
{
    static const struct {
        const char *spec, *why;
    } bad[] = {
        { "windo", "did you mean window?" },
        { "tova:as=pyrkv-96", "no such setting of this method; there are: none" },
        { "h2o:as=pyrkv", "there are: pod-4k d2o-20 pyrkv-64" },
        { "pyrkv-96:budge=3", "did you mean budget?" },
        { "window:budget=3,", "unknown option" },
        { "duo", "no preset for this model" },
        { "duo:heads=2+1", "must ascend" },
        { "duo:heads=1000", "must ascend, up to" },
        { "duo:heads=1,sparsity=0.3", "give one of them" },
        { "window:budge=3", "did you mean budget?" },
        { "window:budget=0", "must be a number of" },
        { "window:budget=-5", "must be a number of" },
        { "window:budget=nan", "must be a number of" },
        { "window:budget=", "must be a number of" },
        { "window:budget", "needs a value" },
        { "window:budget=0.5,prefill=banded", "needs a budget in tokens" },
        { "window:decode=sometimes", "must be one of: bounded grow" },
        { "streamingllm:budget=4", "leaves no recent tokens" },
        { "streamingllm:budget=10,recent=3", "give one of them" },
        { "streamingllm:sink=1.5", "must be an integer" },
        { "streamingllm:sink=0.1", "goes with a budget below 1" },
        { "streamingllm:sink=0.4,budget=0.3", "leaves no recent tokens" },
        { "streamingllm:budget=0.3,prefill=windowed", "needs a budget in tokens" },
        { "streamingllm:prefill=windowed,decode=grow", "needs a budget in tokens" },
        { "h2o:drop=first-decode,decode=grow", "needs decode=bounded" },
        { "h2o:budget=10,recent=11", "more than the budget" },
        { "snapkv:budget=64", "must be more than window + sink = 64" },
        { "snapkv:budget=1", "must be more than window + sink = 64" },
        { "snapkv:kernel=4", "must be odd" },
        { "snapkv:window=0", "must be an integer" },
        { "pyramidkv:budget=8", "must be more than window + sink = 8" },
        { "pyramidkv:beta=0.5", "must be a number of 1" },
        { "pyramidkv:shape=entropy", "needs preset=FILE" },
        { "pyramidkv:shape=gini,preset=none.json", "preset: none.json: No such file" },
        { "pyramidkv:shape=geometric,budgets=compat", "linear" },
        { "d2o:drop=first-decode,decode=grow", "needs decode=bounded" },
        { "d2o:beta=1.5", "must be a number of 0 to 1" },
        { "d2o:protect=9", "protect=9: the model has layers 0 to 3" },
        { "d2o:protect=2+1", "protect=2+1: must ascend" },
        { "d2o:protect=all", "protect=all: must be layers joined by +" },
        { "d2o:merge=eq12", "must be one of: eq11 printed code avg off" },
        { "d2o:layers=all", "must be one of: softmax gate first2 uniform preset paper" },
        { "simlayerkv:threshold=1.5", "must be a number of -1 to 1" },
        { "simlayerkv:recent=0", "must be an integer" },
        { "d2o:similar=each,merge_keys=0", "similar=each: needs merge_keys=1" },
        { "pyramidkv:measure=prompt", "goes with shape=entropy or gini" },
        { "pyramidkv:shape=gini,measure=prompt,floor=0.5", "needs group=mean or max" },
        { "simlayerkv:seed=3", "seed: goes with layers=random" },
        { "simlayerkv:layers=pyramid,among=lower", "among: goes with layers=random" },
        { "minicache:start=1", "no two adjacent layers" },
        { "minicache:start=0.75", "start=0.75: after it no two" },
        { "minicache:retain=1.5", "must be a share below 1 or a whole number" },
        { "minicache:t=1.1", "must be a number of 0 to 1" },
        { "minicache:tail=0", "must be an integer" },
    };
    cb_model *m = open_model(0, "cpu", 1);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct cb_session_params sp = { .n_ctx = CAP, .policy = bad[i].spec };
        cb_session *s;
        ck_assert_msg(cb_session_open(m, &sp, &s) == CB_EARG, "%s: taken", bad[i].spec);
        ck_assert_ptr_null(s);
        ck_assert_msg(strstr(cb_error(), bad[i].why) != NULL, "%s: %s", bad[i].spec, cb_error());
    }
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy");
    TCase *t = tcase_create("all");
    SRunner *r;
    int failed;

    make_models();
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, a_budget_that_holds_all_changes_no_bit, 0,
                        N_ROW + cb_setting_n_policy());
    tcase_add_loop_test(t, threads_and_chunks_change_nothing, 0, N_ROW + cb_setting_n_policy());
    tcase_add_loop_test(t, a_cleared_session_starts_afresh, 0, N_ROW + cb_setting_n_policy());
    tcase_add_loop_test(t, memory_is_what_was_planned, 0, N_ROW + cb_setting_n_policy());
    tcase_add_loop_test(t, short_prompts, 0, N_ROW + cb_setting_n_policy());
    tcase_add_loop_test(t, a_stream_needs_no_more_memory, 0, 4);
    tcase_add_loop_test(t, a_windowed_prompt_is_a_stream, 0, 4);
    tcase_add_test(t, shares_of_a_growing_prompt);
    tcase_add_loop_test(t, a_budget_of_one, 0, 4);
    tcase_add_test(t, every_setting_is_of_its_method);
    tcase_add_test(t, settings_are_options);
    tcase_add_test(t, a_pyramid_of_computed_tokens);
    tcase_add_test(t, only_the_last_logits_of_a_narrowing_prompt);
    tcase_add_test(t, plans_of_older_banks);
    tcase_add_test(t, no_field_is_left_out);
    tcase_add_test(t, what_cannot_work_is_refused);
    r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    for (int i = 0; i < 2; i++)
        remove(model_path[i]);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
