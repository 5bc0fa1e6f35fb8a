/* SPDX-License-Identifier: MIT */
/* check_methods.c - the methods' formulas on made-up attention, against tests/vectors/methods.h,
 * which a script computes from the papers; and the helpers that methods share. Queries, keys and
 * values go straight into a layer's step, so that no model has a part in it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "engine/session.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "kit/written.h"
#include "vectors/methods.h"

enum { N = 12, D = 4, HQ = 4, HKV = 2, LAYERS = 3, WIDE = CB_WRITTEN_WIDE };

/* ---- the numbers of a generator ---- */

static double next(uint32_t *x)
{
    *x = (1103515245u * *x + 12345u) & 0x7fffffffu;
    return 2 * ((double)*x / 2147483648.0) - 1;
}

static float toy[LAYERS][N][(HQ + 2 * HKV) * D], step[(HQ + 2 * HKV) * D];

/* [layer][head][token][dim], queries before keys before values; then the token of a second one */
static void make_toy(void)
{
    static const int heads[] = { HQ, HKV, HKV }, at[] = { 0, HQ * D, (HQ + HKV) * D };
    uint32_t x = 7;

    for (int part = 0; part < 3; part++)
        for (int l = 0; l < LAYERS; l++)
            for (int h = 0; h < heads[part]; h++)
                for (int i = 0; i < N; i++)
                    for (int d = 0; d < D; d++)
                        toy[l][i][at[part] + h * D + d] = (float)next(&x);
    x = 11;
    for (int i = 0; i < (HQ + 2 * HKV) * D; i++)
        step[i] = (float)next(&x);
}

static void feed_toy(cb_session *s, int from, int n)
{
    float out[N * HQ * D];
    for (int l = 0; l < LAYERS; l++)
        cb_written_feed(s, l, toy[l][from], n, from, out);
}

/* a layer's score is m: lazy below it, not above */
static void lazy_at(const char *mode, const double *m, int prompt)
{
    cb_model *mdl = cb_written_model(LAYERS, HQ, HKV, D);
    char spec[96];

    for (int l = 0; l < LAYERS; l++)
        for (int above = 0; above < 2; above++) {
            cb_session *s;
            snprintf(spec, sizeof spec,
                     "simlayerkv:sink=2,recent=4,window=3,mode=%s,threshold=%.9g", mode,
                     m[l] + (above ? 2e-6 : -2e-6));
            s = cb_written_session(mdl, spec, 32);
            feed_toy(s, 0, prompt);
            if (prompt < N)
                feed_toy(s, prompt, N - prompt);
            ck_assert_msg(s->bank.store[l].n[0] == (above ? N : 6), "%s: layer %d holds %d", spec,
                          l, s->bank.store[l].n[0]);
            cb_session_close(s);
        }
    cb_model_close(mdl);
}

START_TEST(simlayerkv_scores)
{
    lazy_at("decode", vec_lazy_decode, N - 1);
    lazy_at("prefill", vec_lazy_prefill, N);
}
END_TEST

/* Layers that drop with these options after one prompt, as bits */
static int drops(const char *options, double threshold)
{
    cb_model *m = cb_written_model(LAYERS, HQ, HKV, D);
    char spec[160];
    cb_session *s;
    int bits = 0;

    snprintf(spec, sizeof spec, "simlayerkv:sink=2,recent=4,window=3,mode=prefill,threshold=%.9g%s",
             threshold, options);
    s = cb_written_session(m, spec, 32);
    feed_toy(s, 0, N);
    for (int l = 0; l < LAYERS; l++)
        bits |= (s->bank.store[l].n[0] < N) << l;
    cb_session_close(s);
    cb_model_close(m);
    return bits;
}

/* As many layers drop as are lazy, the same ones for the same seed, and of the half asked for. */
START_TEST(simlayerkv_drawn_layers)
{
    const int one[] = { 1, 2, 4, 8 };
    double most = 0;
    int seen = 0;
    char options[64];

    for (int l = 0; l < LAYERS; l++)
        most = vec_lazy_prefill[l] > most ? vec_lazy_prefill[l] : most;
    ck_assert_int_eq(__builtin_popcount((unsigned)drops("", most - 2e-6)), 1);
    for (int seed = 0; seed < 16; seed++) {
        int at;
        snprintf(options, sizeof options, ",layers=random,seed=%d", seed);
        at = drops(options, most - 2e-6);
        ck_assert_int_eq(__builtin_popcount((unsigned)at), 1);
        ck_assert_int_eq(at, drops(options, most - 2e-6));
        seen |= at;
        snprintf(options, sizeof options, ",layers=random,among=upper,seed=%d", seed);
        ck_assert_int_ge(drops(options, most - 2e-6), one[LAYERS / 2]);
        snprintf(options, sizeof options, ",layers=random,among=lower,seed=%d", seed);
        ck_assert_int_lt(drops(options, most - 2e-6), one[LAYERS / 2]);
    }
    ck_assert_int_eq(seen, (1 << LAYERS) - 1);
    ck_assert_int_eq(drops(",layers=random", most + 2e-6), 0);
}
END_TEST

START_TEST(pyramidkv_choice)
{
    cb_model *m = cb_written_model(LAYERS, HQ, HKV, D);
    cb_session *s = cb_written_session(m, "pyramidkv:budget=6,window=2,beta=1,kernel=3", 32);

    feed_toy(s, 0, N);
    for (int kv = 0; kv < HKV; kv++)
        cb_written_holds(s, 0, kv, vec_pyramid[kv], 6);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

static void close_to(const float *x, const double *y, int n)
{
    for (int i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)x[i], y[i], 2e-6);
}

static void d2o_holds(const cb_session *s, const int (*kept)[6], const double (*k)[6][4],
                      const double (*v)[6][4])
{
    float x[D];

    for (int kv = 0; kv < HKV; kv++) {
        cb_written_holds(s, 0, kv, kept[kv], 6);
        for (int i = 0; i < 6; i++) {
            cb_store_get(&s->bank.store[0], s->dev, kv, 0, i, x);
            close_to(x, k[kv][i], D);
            cb_store_get(&s->bank.store[0], s->dev, kv, 1, i, x);
            close_to(x, v[kv][i], D);
        }
    }
}

START_TEST(d2o_keeps_and_merges)
{
    cb_model *m = cb_written_model(LAYERS, HQ, HKV, D);
    cb_session *s = cb_written_session(m, "d2o:budget=5,recent=2,sink=1,layers=uniform", 32);
    float out[HQ * D];

    feed_toy(s, 0, N);
    d2o_holds(s, vec_d2o_kept, vec_d2o_keys, vec_d2o_values);
    cb_written_feed(s, 0, step, 1, N, out);
    close_to(out, vec_d2o_outs[0], HQ * D);
    d2o_holds(s, vec_d2o_kept2, vec_d2o_keys2, vec_d2o_values2);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- logits written down ---- */

START_TEST(h2o_example)
{
    cb_model *m = cb_written_model(1, 1, 1, WIDE);
    cb_session *s = cb_written_session(m, "h2o:budget=4", 32);
    int tok[5];

    cb_written_logits(s, vec_h2o_logits[0], 6, NULL, 6, 6, 0);
    cb_written_holds(s, 0, 0, vec_h2o_prompt, 4);
    memcpy(tok, vec_h2o_prompt, sizeof vec_h2o_prompt);
    tok[4] = 6;
    cb_written_logits(s, vec_h2o_step, 5, tok, 5, 1, 6);
    cb_written_holds(s, 0, 0, vec_h2o_kept, 4);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

START_TEST(snapkv_example)
{
    static const char *const how[] = { "kernel=1,pool=mean", "kernel=3,pool=mean",
                                       "kernel=3,pool=max", "kernel=5,pool=mean",
                                       "kernel=5,pool=max" };
    cb_model *m = cb_written_model(1, 1, 1, WIDE);
    double logit[10][10] = { { 0 } };

    memcpy(logit[8], vec_snap_logits, sizeof vec_snap_logits);
    for (int i = 0; i < 5; i++) {
        char spec[64];
        cb_session *s;
        snprintf(spec, sizeof spec, "snapkv:budget=5,window=2,%s", how[i]);
        s = cb_written_session(m, spec, 32);
        cb_written_logits(s, logit[0], 10, NULL, 10, 10, 0);
        cb_written_holds(s, 0, 0, vec_snap[i], 5);
        cb_session_close(s);
    }
    cb_model_close(m);
}
END_TEST

/* Pooled over 3 tokens, 4, 5 and 6 are equal; 5 has the most before pooling. */
START_TEST(snapkv_ties)
{
    static const int want[2][5] = { { 0, 1, 5, 8, 9 }, { 0, 1, 4, 8, 9 } };
    cb_model *m = cb_written_model(1, 1, 1, WIDE);
    double logit[10][10] = { { 0 } };
    cb_session *s = cb_written_session(m,
                                       _i ? "snapkv:budget=5,window=2,kernel=3,pool=max,tie=index"
                                          : "snapkv:budget=5,window=2,kernel=3,pool=max",
                                       32);

    memcpy(logit[8], vec_snap_logits, sizeof vec_snap_logits);
    cb_written_logits(s, logit[0], 10, NULL, 10, 10, 0);
    cb_written_holds(s, 0, 0, want[_i], 5);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* first, second, last and sum of the layers' budgets */
static void budgets_are(const int *c, const char *how, const int *want)
{
    const struct shape sh = { .n_layer = c[0], .n_head = 4, .n_kv = 2, .hd = 64, .n_ctx = c[4] };
    struct layer_plan *row = calloc((size_t)c[0], sizeof *row);
    struct policy *p;
    char spec[96];
    int got[4] = { 0 };

    snprintf(spec, sizeof spec, "pyramidkv:budget=%d,window=%d,beta=%d,budgets=%s", c[1], c[2],
             c[3], how);
    ck_assert_int_eq(cb_policy_open(spec, &sh, &p), CB_OK);
    ck_assert_int_eq(p->m->plan(p, &sh, row), CB_OK);
    for (int l = 0; l < c[0]; l++) {
        const int k = p->m->slots(p, l, c[4], 0) - c[2];
        if (l < 2)
            got[l] = k;
        got[2] = k;
        got[3] += k;
    }
    for (int i = 0; i < 4; i++)
        ck_assert_msg(got[i] == want[i], "%s: %d, expected %d", spec, got[i], want[i]);
    cb_policy_close(p);
    free(row);
}

START_TEST(pyramidkv_budgets)
{
    for (size_t i = 0; i < sizeof vec_budget_case / sizeof *vec_budget_case; i++) {
        budgets_are(vec_budget_case[i], "exact", vec_budget_exact[i]);
        budgets_are(vec_budget_case[i], "compat", vec_budget_compat[i]);
    }
}
END_TEST

/* shares go as the preset's numbers; what a layer cannot hold goes to the others */
START_TEST(pyramidkv_preset)
{
    static const char json[] = "{\"entropy\": [4, 2, 1, 1], \"gini\": [1, 2]}";
    static const char *const file = "check_methods.json";
    const struct shape sh = { .n_layer = 4, .n_head = 4, .n_kv = 2, .hd = 64, .n_ctx = 100 };
    static const int want[2][4] = { { 22, 12, 7, 7 }, { 14, 14, 10, 10 } };
    struct layer_plan row[4];
    struct policy *p;

    cb_write_file(file, json, sizeof json - 1);
    memset(row, 0, sizeof row);
    ck_assert_int_eq(
        cb_policy_open("pyramidkv:budget=12,window=2,shape=entropy,preset=check_methods.json", &sh,
                       &p),
        CB_OK);
    ck_assert_int_eq(p->m->plan(p, &sh, row), CB_OK);
    for (int l = 0; l < 4; l++) {
        ck_assert_int_eq(p->m->slots(p, l, 100, 0), want[0][l]);
        ck_assert_int_eq(p->m->slots(p, l, 14, 0), want[1][l]);
    }
    cb_policy_close(p);
    ck_assert_int_eq(
        cb_policy_open("pyramidkv:budget=12,window=2,shape=gini,preset=check_methods.json", &sh,
                       &p),
        CB_OK);
    ck_assert_int_lt(p->m->plan(p, &sh, row), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "not of this model"));
    cb_policy_close(p);
    remove(file);
}
END_TEST

/* ---- helpers ---- */

START_TEST(shapes_of_a_budget)
{
    static void (*const shape[])(double *, int, double, double, double) = { cb_share_linear,
                                                                            cb_share_geometric,
                                                                            cb_share_exponential };
    double x[40];
    int out[40];

    for (int f = 0; f < 3; f++)
        for (int n = 1; n <= 40; n += 3)
            for (int beta = 1; beta <= 81; beta += 20)
                for (int max = 120; max <= 10000; max *= 4) {
                    double sum = 0;
                    int total = 0;
                    shape[f](x, n, 100, beta, max);
                    for (int l = 0; l < n; l++) {
                        sum += x[l];
                        ck_assert(x[l] <= max + 1e-9 && (!l || x[l] <= x[l - 1] + 1e-9));
                    }
                    ck_assert_double_eq_tol(sum, 100.0 * n, 1e-6 * n);
                    if (n > 1 && max > 5000) /* nothing was cut */
                        ck_assert_double_eq_tol(f == 2 ? x[0] / x[n - 1] : 100 / x[n - 1], beta,
                                                1e-6 * beta);
                    cb_share_round(x, n, 100 * n, out);
                    for (int l = 0; l < n; l++)
                        total += out[l];
                    ck_assert_int_eq(total, 100 * n);
                }
}
END_TEST

/* What a bound takes or leaves goes to the others, in proportion. */
START_TEST(bounded_shares)
{
    static const struct {
        double x[4], min, max, want[4];
    } cases[] = {
        { { 1, 2, 3, 4 }, 0, 10, { 2, 4, 6, 8 } },
        { { 0.1, 2, 4, 4 }, 1, 10, { 1, 3.8, 7.6, 7.6 } },
        { { 0.1, 0.3, 4, 4 }, 1, 10, { 1, 1, 9, 9 } },
        { { 0, 1, 1, 9 }, 1, 9, { 1, 5, 5, 9 } },
        { { 1, 1, 1, 1 }, 5, 10, { 5, 5, 5, 5 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double x[4];
        memcpy(x, cases[i].x, sizeof x);
        cb_share_clamp(x, 4, 20, cases[i].min, cases[i].max);
        for (int l = 0; l < 4; l++)
            ck_assert_double_eq_tol(x[l], cases[i].want[l], 1e-9);
    }
}
END_TEST

START_TEST(the_best_are_kept)
{
    static const float s[] = { 5, 1, 3, 3, 3, 9, 0, 2 }, raw[] = { 0, 0, 1, 2, 2, 0, 0, 0 };
    static const float hole[] = { NAN, 1, NAN, 2 };
    static const struct {
        int k, sink, recent, with_raw, n_want, want[8];
    } cases[] = {
        { 3, 0, 0, 0, 3, { 0, 2, 5 } },
        { 3, 0, 0, 1, 3, { 0, 3, 5 } },
        { 4, 0, 0, 1, 4, { 0, 3, 4, 5 } },
        { 4, 2, 1, 0, 4, { 0, 1, 5, 7 } },
        { 2, 2, 2, 0, 4, { 0, 1, 6, 7 } },
        { 0, 0, 0, 0, 0, { 0 } },
        { 9, 0, 0, 0, 8, { 0, 1, 2, 3, 4, 5, 6, 7 } },
        { 8, 5, 7, 0, 8, { 0, 1, 2, 3, 4, 5, 6, 7 } },
    };
    int out[8];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int n = cb_keep_top(s, cases[i].with_raw ? raw : NULL, 8, cases[i].k, cases[i].sink,
                                  cases[i].recent, out);
        ck_assert_int_eq(n, cases[i].n_want);
        for (int j = 0; j < n; j++)
            ck_assert_int_eq(out[j], cases[i].want[j]);
    }
    ck_assert_int_eq(cb_keep_top(hole, NULL, 4, 2, 0, 0, out), 2);
    ck_assert(out[0] == 1 && out[1] == 3);
}
END_TEST

START_TEST(ends_and_budgets)
{
    int out[10];

    ck_assert_int_eq(cb_keep_ends(10, 2, 3, out), 5);
    ck_assert(out[0] == 0 && out[1] == 1 && out[2] == 7 && out[4] == 9);
    ck_assert_int_eq(cb_keep_ends(4, 3, 3, out), 4);
    ck_assert_int_eq(cb_keep_ends(0, 3, 3, out), 0);
    ck_assert_int_eq(cb_keep_budget(0.25, 10), 2);
    ck_assert_int_eq(cb_keep_budget(0.01, 10), 1);
    ck_assert_int_eq(cb_keep_budget(7, 3), 7);
    ck_assert_int_eq(cb_keep_budget(1e300, 3), 1000000000);
    ck_assert_int_eq(cb_keep_part(0.5, 9), 4);
    ck_assert_int_eq(cb_keep_part(0.01, 9), 1);
    ck_assert_int_eq(cb_keep_part(0, 9), 0);
    ck_assert_int_eq(cb_keep_part(20, 9), 9);
    ck_assert_int_eq(cb_keep_slots(0.5, 10, 4, 1), 9);
    ck_assert_int_eq(cb_keep_slots(0.5, 10, 4, 0), 5);
    ck_assert_int_eq(cb_keep_slots(20, 10, 4, 0), 14);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("methods");
    TCase *t = tcase_create("vectors");

    make_toy();
    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, simlayerkv_scores);
    tcase_add_test(t, simlayerkv_drawn_layers);
    tcase_add_test(t, pyramidkv_choice);
    tcase_add_test(t, pyramidkv_budgets);
    tcase_add_test(t, pyramidkv_preset);
    tcase_add_test(t, h2o_example);
    tcase_add_test(t, snapkv_example);
    tcase_add_loop_test(t, snapkv_ties, 0, 2);
    tcase_add_test(t, bounded_shares);
    tcase_add_test(t, d2o_keeps_and_merges);
    tcase_add_test(t, shapes_of_a_budget);
    tcase_add_test(t, the_best_are_kept);
    tcase_add_test(t, ends_and_budgets);
    return cb_suite_run(suite);
}
