/* SPDX-License-Identifier: MIT */
/* check_compose.c - ways of reading that meet in one session: each against attention in doubles
 * over the tokens that the two rules together leave. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/suite.h"
#include "kit/toy.h"

enum { N_LAYER = 3, N_HEAD = 4, N_KV = 2, GROUP = N_HEAD / N_KV, HD = 8, N = 61, NQ = N_HEAD * HD };

static const char *const devices[] = { "ref", "cpu" };

static struct hparams shape(int hd, int window)
{
    return (struct hparams){ .n_layer = N_LAYER,
                             .n_embd = 32,
                             .n_head = N_HEAD,
                             .n_kv = N_KV,
                             .hd = hd,
                             .n_ff = 32,
                             .n_vocab = 16,
                             .n_ctx_train = 512,
                             .n_rot = hd,
                             .window = window };
}

static void open_toy(struct toy *t, const char *device, int window, const char *policy,
                     const char *prefill)
{
    const struct hparams hp = shape(HD, window);

    cb_toy_open_prefill(t, device, &hp, N, policy, prefill, 11);
}

/* ---- attention in doubles ---- */

/* The layer whose query and key query i of layer l meets token j with; -1: it does not read it. */
typedef int (*rule_fn)(const void *arg, int l, int kv, int i, int j);

static double logit(struct toy *t, int l, int h, int i, int j)
{
    const float *q = cb_toy_row(t, l, i) + h * HD;
    const float *k = cb_toy_row(t, l, j) + NQ + h / GROUP * HD;
    double x = 0;

    for (int c = 0; c < HD; c++)
        x += (double)q[c] * (double)k[c];
    return x / sqrt(HD);
}

static void attend(struct toy *t, rule_fn rule, const void *arg, int l, int h, int i, double *out)
{
    double sum = 0;

    memset(out, 0, HD * sizeof *out);
    for (int j = 0; j <= i; j++) {
        const int from = rule(arg, l, h / GROUP, i, j);
        const float *v = cb_toy_row(t, l, j) + NQ + (N_KV + h / GROUP) * HD;
        const double p = from < 0 ? 0 : exp(logit(t, from, h, i, j));
        sum += p;
        for (int c = 0; c < HD; c++)
            out[c] += p * (double)v[c];
    }
    for (int c = 0; c < HD; c++)
        out[c] /= sum;
}

/* out[N_LAYER][n][NQ] of tokens pos0.. is what the rule says. */
static void as_ruled(struct toy *t, const char *what, rule_fn rule, const void *arg,
                     const float *out, int pos0, int n)
{
    for (int l = 0; l < N_LAYER; l++)
        for (int i = 0; i < n; i++)
            for (int h = 0; h < N_HEAD; h++) {
                double want[HD];
                attend(t, rule, arg, l, h, pos0 + i, want);
                for (int c = 0; c < HD; c++)
                    ck_assert_msg(fabs((double)out[(l * n + i) * NQ + h * HD + c] - want[c]) <=
                                      3e-6,
                                  "%s: layer %d, token %d, head %d: %.8g, not %.8g", what, l,
                                  pos0 + i, h, (double)out[(l * n + i) * NQ + h * HD + c], want[c]);
            }
}

/* ---- pod in a model with a sliding window ---- */

struct pod {
    int window, sink, recent;
};

/* Layers 1 and 2 follow layer 0. */
static int pod_reads(const void *arg, int l, int kv, int i, int j)
{
    const struct pod *p = arg;

    (void)kv;
    if (j <= i - p->window)
        return -1;
    return j < p->sink || j > i - p->recent ? l : 0;
}

START_TEST(pod_in_a_sliding_window)
{
    static const struct pod pods[] = { { 20, 3, 6 }, { 9, 4, 6 }, { 6, 2, 6 }, { 5, 2, 9 } };
    static const int chunks[] = { 1, 7, N };
    float *out = malloc(N_LAYER * N * NQ * sizeof *out);

    for (size_t k = 0; k < sizeof pods / sizeof *pods; k++)
        for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
            const struct pod *p = &pods[k];
            char spec[64];
            struct toy t;
            snprintf(spec, sizeof spec, "pod:blocks=0,sinks=%d,recent=%d", p->sink, p->recent);
            open_toy(&t, devices[_i], p->window, spec, NULL);
            cb_toy_prompt(&t, N - 8, chunks[c], out);
            as_ruled(&t, spec, pod_reads, p, out, 0, N - 8);
            for (int i = N - 8; i < N; i++) {
                cb_toy_decode(&t, out);
                as_ruled(&t, spec, pod_reads, p, out, i, 1);
            }
            cb_toy_close(&t);
        }
    free(out);
}
END_TEST

/* ---- a choice in a model with a sliding window, or of a policy with one ---- */

struct chosen {
    int window, filter, k;
    int begin; /* candidates are before it; all from it on are read */
    char mark[N];
};

static int chosen_reads(const void *arg, int l, int kv, int i, int j)
{
    const struct chosen *c = arg;

    (void)kv;
    if (j <= i - c->window)
        return -1;
    return l <= c->filter || j >= c->begin || c->mark[j] ? l : -1;
}

/* The k candidates from..begin-1 with the largest sums, over queries first..last, of the largest
 * softmax weight of any head */
static void choose(struct toy *t, struct chosen *c, int from, int first, int last)
{
    double vote[N] = { 0 };

    for (int i = first; i <= last; i++) {
        double peak[N] = { 0 };
        for (int h = 0; h < N_HEAD; h++) {
            double sum = 0;
            for (int j = from; j < c->begin; j++)
                sum += exp(logit(t, c->filter, h, i, j));
            for (int j = from; j < c->begin; j++)
                peak[j] = fmax(peak[j], exp(logit(t, c->filter, h, i, j)) / sum);
        }
        for (int j = from; j < c->begin; j++)
            vote[j] += peak[j];
    }
    memset(c->mark, c->begin - from <= c->k, sizeof c->mark);
    for (int n = 0; c->begin - from > c->k && n < c->k; n++) {
        int best = -1;
        for (int j = from; j < c->begin; j++)
            if (!c->mark[j] && (best < 0 || vote[j] > vote[best]))
                best = j;
        c->mark[best] = 1;
    }
}

START_TEST(a_choice_in_a_sliding_window)
{
    struct chosen c = { .window = 20, .filter = 0, .k = 5, .begin = N - 12 };
    float *out = malloc(N_LAYER * N * NQ * sizeof *out);
    struct toy t;

    open_toy(&t, devices[_i], c.window, "omnikv:filter=0,budget=5,tail_max=100", NULL);
    cb_toy_prompt(&t, c.begin, 16, out);
    for (int i = c.begin; i < N; i++) {
        cb_toy_decode(&t, out);
        choose(&t, &c, i - c.window + 1, i, i);
        as_ruled(&t, "omnikv", chosen_reads, &c, out, i, 1);
    }
    cb_toy_close(&t);
    free(out);
}
END_TEST

/* One chunk after the other; `window` is the policy's or the model's. */
static void sparse_prompt(const char *device, int window, const char *policy, int chunk, int k)
{
    float *out = malloc(N_LAYER * N * NQ * sizeof *out), *row = malloc(N_LAYER * NQ * sizeof *row);
    struct chosen c = { .window = window, .filter = 0, .k = k };
    char form[64];
    struct toy t;

    snprintf(form, sizeof form, "omnikv:filter=0,chunk=%d,ratio=%g,stride=1", chunk,
             (double)k / chunk);
    open_toy(&t, device, policy ? 0 : window, policy ? policy : "full", form);
    cb_toy_prompt(&t, N, 4, out);
    for (int i = 0; i < N; i++) {
        const int end = i / chunk * chunk + chunk;
        c.begin = i / chunk * chunk;
        choose(&t, &c, c.begin + chunk > window ? c.begin + chunk - window : 0, c.begin,
               (end < N ? end : N) - 1);
        for (int l = 0; l < N_LAYER; l++)
            memcpy(row + l * NQ, out + (l * N + i) * NQ, NQ * sizeof *row);
        as_ruled(&t, form, chosen_reads, &c, row, i, 1);
    }
    cb_toy_close(&t);
    free(out);
    free(row);
}

START_TEST(a_sparse_prompt_in_a_window)
{
    sparse_prompt(devices[_i], 1000, NULL, 8, 5);
    sparse_prompt(devices[_i], 24, NULL, 8, 5);
    sparse_prompt(devices[_i], 24, "window:budget=24", 8, 5);
    sparse_prompt(devices[_i], 24, "window:budget=24", 8, 20);
    sparse_prompt(devices[_i], 8, "window:budget=8", 8, 3); /* no candidates: the window alone */
}
END_TEST

/* ---- scores of every query of a sparse prompt ---- */

/* h2o's columns hold, for each token, the weights that the queries of a KV head's group gave it, of
 * what they have read. */
START_TEST(scores_are_of_what_was_read)
{
    struct chosen c = { .window = 1000, .filter = 0, .k = 8 };
    double want[N_LAYER][N_KV][N] = { { { 0 } } };
    struct toy t;

    open_toy(&t, devices[_i], 0, "h2o:budget=60", "omnikv:filter=0,chunk=8,ratio=1,stride=1");
    cb_toy_prompt(&t, N - 1, 4, NULL);
    for (int i = 0; i < N - 1; i++) {
        const int end = i / 8 * 8 + 8;
        c.begin = i / 8 * 8;
        choose(&t, &c, 0, c.begin, (end < N - 1 ? end : N - 1) - 1);
        for (int l = 0; l < N_LAYER; l++)
            for (int h = 0; h < N_HEAD; h++) {
                double sum = 0;
                for (int j = 0; j <= i; j++)
                    sum += chosen_reads(&c, l, 0, i, j) < 0 ? 0 : exp(logit(&t, l, h, i, j));
                for (int j = 0; j <= i; j++)
                    if (chosen_reads(&c, l, 0, i, j) >= 0)
                        want[l][h / GROUP][j] += exp(logit(&t, l, h, i, j)) / sum;
            }
    }
    for (int l = 0; l < N_LAYER; l++)
        for (int kv = 0; kv < N_KV; kv++) {
            struct store *st = &t.s->bank.store[l];
            ck_assert_int_eq(st->n[kv], N - 1);
            for (int j = 0; j < N - 1; j++) {
                double got = 0;
                for (int col = 0; col < t.s->policy->slot_floats; col++)
                    got += (double)cb_store_col(st, kv, col)[j];
                ck_assert_msg(fabs(got - want[l][kv][j]) < 1e-4 * fmax(1, want[l][kv][j]),
                              "layer %d, KV head %d, token %d: %g, not %g", l, kv, j, got,
                              want[l][kv][j]);
            }
        }
    cb_toy_close(&t);
}
END_TEST

/* Policies that score every query of a prompt drop tokens after a sparse one as well. */
START_TEST(evicting_behind_a_sparse_prompt)
{
    static const char *const policy[] = { "h2o:budget=20", "d2o:budget=20",
                                          "h2o:budget=20,decode=grow", "tova:budget=20" };
    for (size_t p = 0; p < sizeof policy / sizeof *policy; p++) {
        float a[N_LAYER * NQ], b[N_LAYER * NQ];
        for (int run = 0; run < 2; run++) {
            struct toy t;
            open_toy(&t, devices[_i], 0, policy[p], "omnikv:filter=0,chunk=8,ratio=1");
            cb_toy_prompt(&t, N - 4, run ? 4 : 8, NULL);
            for (int i = 0; i < 4; i++)
                cb_toy_decode(&t, run ? a : b);
            ck_assert_int_lt(cb_store_max_len(&t.s->bank.store[1]), N - 20);
            cb_toy_close(&t);
        }
        ck_assert_msg(!memcmp(a, b, sizeof a), "%s: chunks", policy[p]);
    }
}
END_TEST

/* ---- pod over quantised keys and values ---- */

enum { KIVI_HD = 32, KIVI_N = 200, SINK = 3, RECENT = 20 };

static const char *const kivi_types[][2] = { { "kivi4:32", "kivi4:32" },
                                             { "kivi2:32", "f16" },
                                             { "f16", "kivi4:32" } };

/* After a prompt, one token: what is near with stored keys of its own, what is far with the stored
 * keys of layer 0. */
START_TEST(pod_over_kivi)
{
    const struct hparams hp = shape(KIVI_HD, 0);
    const int row = N_HEAD * KIVI_HD;
    float *out = malloc((size_t)(N_LAYER * row) * sizeof *out);
    struct toy t;

    cb_toy_open(&t, devices[_i % 2], 2, &hp, KIVI_N, "pod:blocks=0,sinks=3,recent=20",
                kivi_types[_i / 2][0], kivi_types[_i / 2][1], 5);
    cb_toy_prompt(&t, KIVI_N - 1, 64, NULL);
    ck_assert(cb_kivi_any(&t.s->bank.store[1]) || !strcmp(kivi_types[_i / 2][1], "f16"));
    cb_toy_decode(&t, out);
    for (int l = 0; l < N_LAYER; l++)
        for (int h = 0; h < N_HEAD; h++) {
            double want[KIVI_HD] = { 0 }, sum = 0;
            for (int j = 0; j < KIVI_N; j++) {
                const int from = j < SINK || j >= KIVI_N - RECENT ? l : 0;
                const float *q = cb_toy_row(&t, from, KIVI_N - 1) + h * KIVI_HD;
                float k[KIVI_HD], v[KIVI_HD];
                double p = 0;
                cb_store_get(&t.s->bank.store[from], t.s->dev, h / GROUP, 0, j, k);
                cb_store_get(&t.s->bank.store[l], t.s->dev, h / GROUP, 1, j, v);
                for (int c = 0; c < KIVI_HD; c++)
                    p += (double)q[c] * (double)k[c];
                p = exp(p / sqrt(KIVI_HD));
                sum += p;
                for (int c = 0; c < KIVI_HD; c++)
                    want[c] += p * (double)v[c];
            }
            for (int c = 0; c < KIVI_HD; c++)
                ck_assert_msg(fabs((double)out[l * row + h * KIVI_HD + c] - want[c] / sum) < 2e-3,
                              "%s, %s: layer %d, head %d: %g, not %g", kivi_types[_i / 2][0],
                              kivi_types[_i / 2][1], l, h, (double)out[l * row + h * KIVI_HD + c],
                              want[c] / sum);
        }
    cb_toy_close(&t);
    free(out);
}
END_TEST

/* The prompt itself: layers that follow read layer 0's keys as they are stored once it is done.
 * Where queries and keys of all layers are the same, that is what full attention over layer 0's
 * stored keys gives; the followers' memory is what is held. */
START_TEST(prompts_of_pod_over_kivi)
{
    const struct hparams hp = shape(KIVI_HD, 0);
    const int row = N_HEAD * KIVI_HD, n = KIVI_N;
    float *out = malloc((size_t)(N_LAYER * n * row) * sizeof *out);
    struct cb_memory full;
    struct toy t;

    cb_toy_open(&t, devices[_i], 2, &hp, n, "pod:blocks=0,sinks=3,recent=20", "kivi4:32",
                "kivi4:32", 5);
    cb_toy_prompt(&t, n, 50, out);
    for (int i = 0; i < n; i += 13)
        for (int h = 0; h < N_HEAD; h++) {
            double want[KIVI_HD] = { 0 }, sum = 0;
            for (int j = 0; j <= i; j++) {
                const int near = j < SINK || j > i - RECENT;
                const float *q = cb_toy_row(&t, near ? 2 : 0, i) + h * KIVI_HD;
                const float *raw = cb_toy_row(&t, 2, j) + row + h / GROUP * KIVI_HD;
                float k[KIVI_HD];
                double p = 0;
                if (near)
                    memcpy(k, raw, sizeof k);
                else
                    cb_store_get(&t.s->bank.store[0], t.s->dev, h / GROUP, 0, j, k);
                for (int c = 0; c < KIVI_HD; c++)
                    p += (double)q[c] * (double)k[c];
                p = exp(p / sqrt(KIVI_HD));
                sum += p;
                for (int c = 0; c < KIVI_HD; c++)
                    want[c] += p * (double)raw[N_KV * KIVI_HD + c];
            }
            for (int c = 0; c < KIVI_HD; c++)
                ck_assert_msg(
                    fabs((double)out[(2 * n + i) * row + h * KIVI_HD + c] - want[c] / sum) < 3e-3,
                    "token %d, head %d", i, h);
        }
    cb_session_memory(t.s, &full);
    ck_assert_uint_eq(full.kv_bytes, cb_bank_bytes(&t.s->bank));
    cb_session_plan(t.s, n, 0, &full);
    ck_assert_uint_eq(full.kv_bytes, cb_bank_bytes(&t.s->bank));
    cb_toy_close(&t);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compose");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, pod_in_a_sliding_window, 0, 2);
    tcase_add_loop_test(c, a_choice_in_a_sliding_window, 0, 2);
    tcase_add_loop_test(c, a_sparse_prompt_in_a_window, 0, 2);
    tcase_add_loop_test(c, scores_are_of_what_was_read, 0, 2);
    tcase_add_loop_test(c, evicting_behind_a_sparse_prompt, 0, 2);
    tcase_add_loop_test(c, pod_over_kivi, 0, 6);
    tcase_add_loop_test(c, prompts_of_pod_over_kivi, 0, 2);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
