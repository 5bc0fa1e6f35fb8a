/* SPDX-License-Identifier: MIT */
/* check_infllm.c - attention of infllm beside a simple one in doubles, which keeps keys as they
 * were before rotation and moves tokens from the window to the first ones and to blocks one by
 * one. What holds for every policy is in check_policy.c. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_LAYER = 2, N_HEAD = 6, N_KV = 2, HD = 16, GROUP = N_HEAD / N_KV, N = 420 };
enum { PROMPT = 300, STEPS = 50, SECOND = 40 };

static const struct hparams shape = CB_TOY_SHAPE(N_LAYER, N_HEAD, N_KV, HD, HD - 4, N);
static const char *const devices[] = { "ref", "cpu" };

/* chunk: tokens of a prompt that are fed together */
static const struct way {
    const char *policy;
    int local, sink, block, blocks, reps, chunk;
} ways[] = {
    { "infllm:local=60,sink=10,block=12,blocks=3,reps=3", 60, 10, 12, 3, 3, 25 },
    { "infllm:local=60,sink=10,block=12,blocks=3,reps=3", 60, 10, 12, 3, 3, 60 },
    { "infllm:local=33,sink=0,block=7,blocks=1,reps=9", 33, 0, 7, 1, 7, 20 },
    { "infllm:local=1,sink=5,block=1,blocks=4,reps=1", 1, 5, 1, 4, 1, 1 },
    { "infllm:local=100,sink=120,block=40,blocks=2,reps=4", 100, 120, 40, 2, 4, 77 },
    { "infllm:local=50,sink=8,block=16,blocks=100,reps=4", 50, 8, 16, 100, 4, 31 },
};
enum { N_WAY = sizeof ways / sizeof *ways };

/* ---- the simple attention ---- */

struct simple {
    struct toy *t;
    const struct way *w;
    int l, n;             /* tokens so far */
    int n_first, n_block; /* tokens among the first ones; blocks */
    int begin[N];         /* of a block */
    double rep[N][N_HEAD][HD];
    double weight[N_HEAD][N]; /* of a token, while it is in the window */
};

/* x[HD], rotated to position `from`, as it is at position `to` -> y */
static void turn(const struct toy *t, const float *x, int from, int to, double *y)
{
    const int half = shape.n_rot / 2, pair = t->model.arch->rope == ROPE_PAIR;

    for (int c = 0; c < HD; c++)
        y[c] = (double)x[c];
    for (int i = 0; i < half; i++) {
        const int a = pair ? 2 * i : i, b = pair ? a + 1 : i + half;
        const double angle = (to - from) * pow(10000, -2.0 * i / shape.n_rot);
        y[a] = (double)x[a] * cos(angle) - (double)x[b] * sin(angle);
        y[b] = (double)x[a] * sin(angle) + (double)x[b] * cos(angle);
    }
}

static double dot(const double *x, const double *y)
{
    double sum = 0;
    for (int c = 0; c < HD; c++)
        sum += x[c] * y[c];
    return sum;
}

static void query(const struct simple *s, int h, int i, int to, double *q)
{
    turn(s->t, cb_toy_row(s->t, s->l, i) + h * HD, i, to, q);
}

static void key(const struct simple *s, int h, int j, int to, double *k)
{
    turn(s->t, cb_toy_row(s->t, s->l, j) + (N_HEAD + h / GROUP) * HD, j, to, k);
}

/* The first token that is neither a first one nor in a block */
static int rest(const struct simple *s)
{
    return s->n_first + s->n_block * s->w->block;
}

/* reads[b] = 1 for the blocks that tokens s->n..end-1 choose together */
static void choose(const struct simple *s, int end, char *reads)
{
    double score[N] = { 0 }, mean[N_HEAD][HD] = { { 0 } }, q[HD];

    for (int h = 0; h < N_HEAD; h++)
        for (int i = s->n; i < end; i++) {
            query(s, h, i, s->w->local - 1, q);
            for (int c = 0; c < HD; c++)
                mean[h][c] += q[c] / (end - s->n);
        }
    for (int b = 0; b < s->n_block; b++)
        for (int h = 0; h < N_HEAD; h++)
            score[b] += dot(mean[h], s->rep[b][h]);
    for (int b = 0; b < s->n_block; b++) {
        int better = 0;
        for (int o = 0; o < s->n_block; o++)
            better += score[o] > score[b] || (score[o] == score[b] && o < b);
        reads[b] = better < s->w->blocks;
    }
}

/* Does the token before the window read token j, which is there? */
static int reads_far(const struct simple *s, const char *reads, int j)
{
    return j < s->n_first || j >= rest(s) || reads[(j - s->n_first) / s->w->block];
}

static void attend(struct simple *s, int h, int i, const char *reads, double *out)
{
    double p[N], near[HD], far[HD], k[HD], sum = 0;

    query(s, h, i, i, near);
    query(s, h, i, s->w->local - 1, far);
    for (int j = 0; j <= i; j++) {
        const int is_near = i - j < s->w->local;
        key(s, h, j, is_near ? j : 0, k);
        p[j] = is_near || reads_far(s, reads, j) ? exp(dot(is_near ? near : far, k) / sqrt(HD)) : 0;
        sum += p[j];
    }
    memset(out, 0, HD * sizeof *out);
    for (int j = 0; j <= i; j++) {
        const float *v = cb_toy_row(s->t, s->l, j) + (N_HEAD + N_KV + h / GROUP) * HD;
        for (int c = 0; c < HD; c++)
            out[c] += p[j] / sum * (double)v[c];
        s->weight[h][j] += i - j < s->w->local ? p[j] / sum : 0;
    }
}

static void new_block(struct simple *s)
{
    const int b = s->n_block, from = rest(s), end = from + s->w->block;

    for (int h = 0; h < N_HEAD; h++) {
        memset(s->rep[b][h], 0, sizeof s->rep[b][h]);
        for (int j = from; j < end; j++) {
            double k[HD];
            int better = 0;
            for (int o = from; o < end; o++)
                better += s->weight[h][o] > s->weight[h][j] ||
                          (s->weight[h][o] == s->weight[h][j] && o < j);
            key(s, h, j, 0, k);
            for (int c = 0; better < s->w->reps && c < HD; c++)
                s->rep[b][h][c] += k[c] / s->w->reps;
        }
    }
    s->n_block++;
}

/* Tokens that go through the layer together -> out[n][N_HEAD][HD] */
static void step(struct simple *s, int n, double *out)
{
    char reads[N] = { 0 };

    choose(s, s->n + n, reads);
    for (int i = 0; i < n; i++)
        for (int h = 0; h < N_HEAD; h++)
            attend(s, h, s->n + i, reads, out + (i * N_HEAD + h) * HD);
    s->n += n;
    while (s->n_first < s->w->sink && s->n - rest(s) > s->w->local)
        s->n_first++;
    while (s->n_first == s->w->sink && s->n - rest(s) - s->w->block >= s->w->local)
        new_block(s);
}

/* ---- against it ---- */

static void same(const float *got, const double *want, int n, const struct way *w, int first)
{
    for (int i = 0; i < n * N_HEAD * HD; i++)
        ck_assert_msg(fabs((double)got[i] - want[i]) < 1e-5, "%s: token %d, head %d: %g, not %g",
                      w->policy, first + i / (N_HEAD * HD), i / HD % N_HEAD, (double)got[i],
                      want[i]);
}

static void feed(struct toy *t, struct simple *s, int n, const struct way *w, int prompt)
{
    float *got = malloc(N_LAYER * (size_t)n * N_HEAD * HD * sizeof *got);
    double *want = malloc((size_t)n * N_HEAD * HD * sizeof *want);
    const int first = s->n;

    if (prompt)
        cb_toy_prompt(t, n, w->chunk, got);
    else
        cb_toy_decode(t, got);
    for (int l = 0; l < N_LAYER; l++) {
        for (int i = 0; i < n; i += w->chunk)
            step(&s[l], n - i < w->chunk ? n - i : w->chunk, want + i * N_HEAD * HD);
        same(got + l * n * N_HEAD * HD, want, n, w, first);
    }
    free(got);
    free(want);
}

/* Queries that differ much from key to key, so that a wrong choice is seen */
static void sharpen(struct toy *t)
{
    for (int l = 0; l < N_LAYER; l++)
        for (int i = 0; i < N; i++)
            for (int c = 0; c < N_HEAD * HD; c++)
                cb_toy_row(t, l, i)[c] *= 4;
}

START_TEST(as_attention_in_doubles)
{
    const struct way *w = &ways[_i / 2];
    struct simple *s = calloc(N_LAYER, sizeof *s);
    struct toy t;

    cb_toy_open(&t, devices[_i % 2], 2, &shape, N, w->policy, "f32", "f32", 7);
    sharpen(&t);
    for (int l = 0; l < N_LAYER; l++)
        s[l] = (struct simple){ .t = &t, .w = w, .l = l };
    feed(&t, s, PROMPT, w, 1);
    for (int i = 0; i < STEPS; i++) {
        uint64_t scanned;
        feed(&t, s, 1, w, 0);
        ck_assert_uint_eq(t.s->bank.read_bytes,
                          N_LAYER * cb_attention_read_bytes(&t.s->attention, 0, PROMPT + i + 1,
                                                            &(struct planned){ 0 }, &scanned));
    }
    ck_assert(s->n_block > w->blocks || w->blocks == 100);
    feed(&t, s, SECOND, w, 1);
    for (int i = 0; i < N - PROMPT - STEPS - SECOND; i++)
        feed(&t, s, 1, w, 0);
    cb_toy_close(&t);
    free(s);
}
END_TEST

/* ---- tiny models ---- */

enum { CTX = 400, TEXT = 310, TOKENS = 40 };

static cb_session *open_session(struct cb_model *m, const char *policy, const char *type, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = CTX, .chunk = chunk, .policy = policy, .type_k = type, .type_v = type
    };
    cb_session *s;

    ck_assert_msg(!cb_session_open(m, &p, &s), "%s: %s", policy, cb_error());
    return s;
}

/* Logits after a prompt and after each of some tokens */
static float *converse(struct cb_model *m, const char *policy, const char *type, int chunk)
{
    const size_t n = (size_t)m->hp.n_vocab;
    cb_session *s = open_session(m, policy, type, chunk);
    float *out = malloc((TOKENS + 1) * n * sizeof *out);
    const int32_t *tok = cb_toy_text(m);

    ck_assert_ok(cb_session_prefill(s, tok, TEXT, NULL));
    for (int i = 0; i <= TOKENS; i++) {
        memcpy(out + (size_t)i * n, cb_session_logits(s), n * sizeof *out);
        if (i < TOKENS)
            ck_assert_ok(cb_session_decode(s, tok[TEXT + i]));
    }
    cb_session_close(s);
    return out;
}

static double distance(struct cb_model *m, float *x, float *y)
{
    double far = 0, size = 0;

    for (int i = 0; i < (TOKENS + 1) * m->hp.n_vocab; i++) {
        far = fmax(far, fabs((double)x[i] - (double)y[i]));
        size = fmax(size, fabs((double)x[i]));
    }
    free(x);
    free(y);
    return far / size;
}

static const char *const types[] = { "f32", "f16", "bf16", "q8_0" };
static const double near_f32[] = { 0, 2e-3, 1e-2, 3e-2 };
static const char policy[] = "infllm:local=48,sink=8,block=16,blocks=4,chunk=32";
static const char all_blocks[] = "infllm:local=48,sink=8,block=16,blocks=100,chunk=32";

START_TEST(threads_and_chunks_change_nothing)
{
    struct tiny t = cb_tiny_small("qwen2");
    struct cb_model *one, *three;

    t.hd = 32;
    one = cb_toy_model(&t, "cpu", 1);
    three = cb_toy_model(&t, "cpu", 3);
    ck_assert(distance(one, converse(one, policy, types[_i], 0),
                       converse(three, policy, types[_i], 0)) == 0);
    ck_assert(distance(one, converse(one, policy, types[_i], 0),
                       converse(three, policy, types[_i], 32)) == 0);
    /* turned keys are rounded twice */
    ck_assert(distance(one, converse(one, all_blocks, types[_i], 0),
                       converse(one, all_blocks, "f32", 0)) <= near_f32[_i]);
    ck_assert(distance(one, converse(one, "full", types[_i], 0),
                       converse(one, policy, types[_i], 0)) > 0.02);
    cb_model_close(one);
    cb_model_close(three);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    static const char *const bad[][3] = {
        { "infllm:local=0", "f16", "must be" },
        { "infllm:local=40,chunk=41", "f16", "must be at most local=40" },
        { "infllm:chunk=100", "f16", "more than the 64 that the session" },
        { "infllm:local=64", "kivi4:32", "not with keys of type kivi" },
        { "infllm:blocks=0", "f16", "must be" },
    };
    struct tiny t = cb_tiny_small("qwen2");
    struct cb_model *m;

    t.hd = 32;
    m = cb_toy_model(&t, "cpu", 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct cb_session_params p = {
            .n_ctx = CTX, .chunk = 64, .policy = bad[i][0], .type_k = bad[i][1], .type_v = bad[i][1]
        };
        cb_toy_refused(m, &p, bad[i][2]);
    }
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infllm");
    TCase *t = tcase_create("attention");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, as_attention_in_doubles, 0, 2 * N_WAY);
    tcase_add_loop_test(t, threads_and_chunks_change_nothing, 0, 4);
    tcase_add_test(t, bad_options_are_refused);
    return cb_suite_run(suite);
}
