/* SPDX-License-Identifier: MIT */
/* check_sparse_prefill.c - prompts of which most layers read a part: held to the rule in doubles,
 * and to what must hold for any model. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_LAYER = 4, N_HEAD = 4, N_KV = 2, HD = 8, N = 61, NQ = N_HEAD * HD };

static const struct hparams small = CB_TOY_SHAPE(N_LAYER, N_HEAD, N_KV, HD, HD, N);
static const char *const devices[] = { "ref", "cpu" };

/* ---- the rule, in doubles ---- */

static double logit(struct toy *t, int l, int h, int i, int j)
{
    const float *q = cb_toy_row(t, l, i) + h * HD;
    const float *k = cb_toy_row(t, l, j) + NQ + h / (N_HEAD / N_KV) * HD;
    double x = 0;

    for (int c = 0; c < HD; c++)
        x += (double)q[c] * (double)k[c];
    return x / sqrt(HD);
}

/* Marks the k tokens before `begin` with the most votes of every stride-th query, the last among
 * them. */
static void choose(struct toy *t, int l, int begin, int end, int k, int stride, char *mark)
{
    double vote[N] = { 0 };

    for (int i = end - 1; i >= begin; i -= stride) {
        double peak[N] = { 0 };
        for (int h = 0; h < N_HEAD; h++) {
            double sum = 0;
            for (int j = 0; j < begin; j++)
                sum += exp(logit(t, l, h, i, j));
            for (int j = 0; j < begin; j++)
                peak[j] = fmax(peak[j], exp(logit(t, l, h, i, j)) / sum);
        }
        for (int j = 0; j < begin; j++)
            vote[j] += peak[j];
    }
    memset(mark, 0, N);
    for (int n = 0; n < k; n++) {
        int best = -1;
        for (int j = 0; j < begin; j++)
            if (!mark[j] && (best < 0 || vote[j] > vote[best]))
                best = j;
        mark[best] = 1;
    }
}

/* Query i of head h reads what mark says and its own chunk -> out[HD] */
static void attend(struct toy *t, int l, int h, int i, int begin, const char *mark, double *out)
{
    double sum = 0;

    memset(out, 0, HD * sizeof *out);
    for (int j = 0; j <= i; j++) {
        const float *v = cb_toy_row(t, l, j) + NQ + (N_KV + h / (N_HEAD / N_KV)) * HD;
        double p;
        if (j < begin && mark && !mark[j])
            continue;
        p = exp(logit(t, l, h, i, j));
        sum += p;
        for (int c = 0; c < HD; c++)
            out[c] += p * (double)v[c];
    }
    for (int c = 0; c < HD; c++)
        out[c] /= sum;
}

static const struct {
    const char *prefill;
    int as[N_LAYER]; /* the layer whose choice each reads */
    int chunk, k, stride;
} rules[] = {
    { "omnikv:filter=0,chunk=8,ratio=1,stride=1", { -1, 0, 0, 0 }, 8, 8, 1 },
    { "omnikv:filter=1,chunk=8,ratio=2,stride=3", { -1, -1, 1, 1 }, 8, 16, 3 },
    { "omnikv:filter=0+2,chunk=16,ratio=0.5,stride=16", { -1, 0, -1, 2 }, 16, 8, 16 },
    { "omnikv:filter=0,wait=1,chunk=4,ratio=5,stride=1", { -1, -1, 0, 0 }, 4, 20, 1 },
    { "omnikv:filter=0,chunk=32,ratio=0.1,stride=1", { -1, 0, 0, 0 }, 32, 3, 1 },
    { "omnikv:filter=0,chunk=8,ratio=0.625,stride=1", { -1, 0, 0, 0 }, 8, 5, 1 },
};

START_TEST(reads_what_the_rule_says)
{
    const char *device = devices[_i % 2];
    float *out = malloc(N_LAYER * N * NQ * sizeof *out);
    struct toy t;

    cb_toy_open_prefill(&t, device, &small, N, "full", rules[_i / 2].prefill, 11);
    cb_toy_prompt(&t, N, 4, out);
    for (int l = 0; l < N_LAYER; l++)
        for (int i = 0; i < N; i++) {
            const int c = rules[_i / 2].chunk, begin = i / c * c, as = rules[_i / 2].as[l];
            const int end = begin + c < N ? begin + c : N, k = rules[_i / 2].k;
            char mark[N];
            if (as >= 0 && begin > k)
                choose(&t, as, begin, end, k, rules[_i / 2].stride, mark);
            for (int h = 0; h < N_HEAD; h++) {
                double want[HD];
                attend(&t, l, h, i, begin, as >= 0 && begin > k ? mark : NULL, want);
                for (int d = 0; d < HD; d++)
                    ck_assert_msg(
                        fabs((double)out[((l * N + i) * N_HEAD + h) * HD + d] - want[d]) <= 3e-6,
                        "%s: layer %d, token %d, head %d", rules[_i / 2].prefill, l, i, h);
            }
        }
    cb_toy_close(&t);
    free(out);
}
END_TEST

/* Queries, keys and values are given, so a policy that looks at them must see what it sees in a
 * dense prompt. */
START_TEST(policies_measure_all_tokens)
{
    static const char *const policy[] = { "snapkv:budget=14,window=5",
                                          "pyramidkv:budget=16,window=3",
                                          "simlayerkv:sink=2,recent=10,mode=prefill,window=6" };
    for (size_t p = 0; p < sizeof policy / sizeof *policy; p++) {
        struct toy a, b;
        cb_toy_open_prefill(&a, devices[_i], &small, N, policy[p], "dense", 3);
        cb_toy_open_prefill(&b, devices[_i], &small, N, policy[p],
                            "omnikv:filter=0,chunk=8,ratio=1", 3);
        cb_toy_prompt(&a, N, 8, NULL);
        cb_toy_prompt(&b, N, 8, NULL);
        for (int l = 0; l < N_LAYER; l++)
            for (int h = 0; h < N_KV; h++) {
                const struct store *x = &a.s->bank.store[l], *y = &b.s->bank.store[l];
                ck_assert_int_eq(x->n[h], y->n[h]);
                for (int i = 0; i < x->n[h]; i++)
                    ck_assert_msg(cb_store_pos(x, h, i) == cb_store_pos(y, h, i),
                                  "%s: layer %d, head %d", policy[p], l, h);
            }
        cb_toy_close(&a);
        cb_toy_close(&b);
    }
}
END_TEST

/* ---- tiny models ---- */

enum { PROMPT = 90, MORE = 37, STEPS = 4 };

static struct cb_model *deep(int n_threads)
{
    struct tiny t = cb_tiny_small("qwen2");
    t.n_layer = 6;
    t.n_embd = 64;
    return cb_toy_model(&t, "cpu", n_threads);
}

/* Logits after two prompts and some decoded tokens -> out[STEPS + 2][n_vocab] */
static float *run_model(struct cb_model *m, const char *policy, const char *prefill, int chunk)
{
    const struct cb_session_params params = {
        .policy = policy, .prefill = prefill, .chunk = chunk, .n_ctx = PROMPT + MORE + STEPS
    };
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 2) * n_vocab * sizeof *out);
    struct cb_session *s;
    int32_t tok[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_open(m, &params, &s));
    for (int i = 0; i < STEPS + 2; i++) {
        const int err = i < 2 ? cb_session_prefill(s, tok + i, i ? MORE : PROMPT, NULL)
                              : cb_session_decode(s, (i * 13 + 5) % m->hp.n_vocab);
        ck_assert_msg(!err, "%s", cb_error());
        memcpy(out + (size_t)i * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

static int alike(struct cb_model *m, const float *x, const float *y)
{
    return !memcmp(x, y, (STEPS + 2) * (size_t)m->hp.n_vocab * sizeof *x);
}

START_TEST(reading_all_is_dense)
{
    static const char *const same[][2] = {
        { "full", "omnikv:filter=1" },
        { "full", "omnikv:filter=1,chunk=9,ratio=100" },
        { "full", "omnikv:filter=0+1+2+3+4+5,chunk=7,ratio=1" },
        { "full", "omnikv:filter=5,chunk=7,ratio=1" },
        { "full", "omnikv:filter=2,wait=3,chunk=7,ratio=1" },
        { "snapkv:budget=20,window=6", "omnikv:filter=1,chunk=90,ratio=2" },
        { "omnikv:filter=1,budget=20", "omnikv:chunk=30,ratio=4.3" },
    };
    struct cb_model *m = deep(2);
    float *x, *y;

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        x = run_model(m, same[i][0], "dense", 0);
        y = run_model(m, same[i][0], same[i][1], 0);
        ck_assert_msg(alike(m, x, y), "%s, prefill %s: differs", same[i][0], same[i][1]);
        free(x);
        free(y);
    }
    x = run_model(m, "full", NULL, 0);
    y = run_model(m, "full", "omnikv:filter=1,chunk=9,ratio=2", 0);
    ck_assert(!alike(m, x, y));
    free(x);
    free(y);
    cb_model_close(m);
}
END_TEST

START_TEST(threads_and_chunks_do_not_matter)
{
    static const char *const form[][2] = {
        { "full", "omnikv:filter=1,chunk=20,ratio=1" },
        { "snapkv:budget=20,window=6", "omnikv:filter=1+3,chunk=11,ratio=2,stride=2" },
        { "streamingllm:budget=24", "omnikv:filter=1,chunk=8,ratio=2,stride=1" },
        { "omnikv:filter=1+4,budget=12", "omnikv:chunk=16,ratio=1" },
    };
    struct cb_model *one = deep(1), *two = deep(2);

    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        float *x = run_model(one, form[i][0], form[i][1], 0);
        float *y = run_model(two, form[i][0], form[i][1], 0);
        float *z = run_model(two, form[i][0], form[i][1], 7);
        ck_assert_msg(alike(one, x, y), "%s: threads", form[i][1]);
        ck_assert_msg(alike(one, x, z), "%s: chunks", form[i][1]);
        free(x);
        free(y);
        free(z);
    }
    cb_model_close(one);
    cb_model_close(two);
}
END_TEST

/* The prefill takes the policy's filter layers unless it is given its own. */
START_TEST(filter_layers_are_the_policys)
{
    static const char *const by[] = { "omnikv:chunk=9,ratio=1", "omnikv:filter=1+4,chunk=9,ratio=1",
                                      "omnikv:filter=2,chunk=9,ratio=1" };
    struct cb_model *m = deep(2);
    float *x[3];

    for (int i = 0; i < 3; i++)
        x[i] = run_model(m, "omnikv:filter=1+4,budget=12", by[i], 0);
    ck_assert(alike(m, x[0], x[1]));
    ck_assert(!alike(m, x[0], x[2]));
    for (int i = 0; i < 3; i++)
        free(x[i]);
    cb_model_close(m);
}
END_TEST

static const char *const refused[][3] = {
    { "full", "omni", "did you mean omnikv" },
    { "full", "dense:chunk=3", "unknown option" },
    { "full", "omnikv:filter=6", "prefill omnikv: filter=6: the model has layers 0 to 5" },
    { "full", "omnikv:filter=3+1", "ascend" },
    { "full", "omnikv:chunk=0", "must be" },
    { "full", "omnikv:ratio=0", "must be" },
    { "full", "omnikv:stride=0", "must be" },
    { "pod", "omnikv", "not with policy pod" },
    { "streamingllm:prefill=windowed", "omnikv", "drops tokens within the prompt" },
    { "h2o:drop=chunk", "omnikv", "drops tokens within the prompt" },
};

START_TEST(bad_options_are_refused)
{
    struct cb_model *m = deep(1);
    const struct cb_session_params params = { .policy = refused[_i][0], .prefill = refused[_i][1] };

    cb_toy_refused(m, &params, refused[_i][2]);
    cb_model_close(m);
}
END_TEST

/* Which layer's choice each layer reads: wait= layers after a filter layer read everything. */
START_TEST(layers_that_wait)
{
    static const struct {
        const char *spec;
        int as[6];
    } cases[] = {
        { "omnikv:filter=1+3", { -1, 1, 1, 3, 3, 3 } },
        { "omnikv:filter=1+3,wait=1", { -1, 1, -1, 3, -1, 3 } },
        { "omnikv:filter=1+4,wait=2", { -1, 1, -1, -1, 4, -1 } },
        { "omnikv:filter=0,wait=4", { 0, -1, -1, -1, -1, 0 } },
    };
    const struct shape sh = { .n_layer = 6, .n_head = 4, .n_kv = 2, .hd = 64, .n_ctx = 100 };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int as[6] = { -1, -1, -1, -1, -1, -1 };
        struct prompt_plan plan = { .as = as };
        struct policy *p;
        ck_assert_ok(cb_prompt_open(cases[i].spec, &sh, &p));
        ck_assert(!p->m->prompt(p, &sh, &plan));
        for (int l = 0; l < 6; l++)
            ck_assert_msg(as[l] == cases[i].as[l], "%s: layer %d reads %d", cases[i].spec, l,
                          as[l]);
        ck_assert(plan.chunk == 4096 && plan.k == 8192 && plan.stride == 8);
        cb_policy_close(p);
    }
}
END_TEST

/* A prompt that reads a part has other keys later: it is shared with nobody. */
START_TEST(a_sparse_prompt_is_not_shared)
{
    struct cb_model *m = deep(1);
    const struct cb_session_params params = { .prefill = "omnikv:filter=1,chunk=9,ratio=1" };
    struct cb_session *a, *b = cb_toy_session(m, "full", NULL, 0);

    ck_assert_ok(cb_session_open(m, &params, &a));
    ck_assert(!cb_session_can_follow(a, b));
    ck_assert(!cb_session_can_follow(b, a));
    cb_session_close(a);
    cb_session_close(b);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefill");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, reads_what_the_rule_says, 0, 2 * (int)(sizeof rules / sizeof *rules));
    tcase_add_loop_test(c, policies_measure_all_tokens, 0, sizeof devices / sizeof *devices);
    tcase_add_test(c, reading_all_is_dense);
    tcase_add_test(c, threads_and_chunks_do_not_matter);
    tcase_add_test(c, filter_layers_are_the_policys);
    tcase_add_loop_test(c, bad_options_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(c, layers_that_wait);
    tcase_add_test(c, a_sparse_prompt_is_not_shared);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
