/* SPDX-License-Identifier: MIT */
/* check_sample.c - the sampler against counts that follow from its formulas. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "ctxbank.h"
#include "kit/suite.h"

enum { N = 8, DRAWS = 40000 };

static const float logits[N] = { 0.5f, 2, -1, 3, 2, 0, -30, 1 };

static cb_sampler *make(struct cb_sampler_params p)
{
    cb_sampler *s;
    ck_assert_int_eq(cb_sampler_new(&p, N, &s), CB_OK);
    return s;
}

/* everything off but the temperature */
static struct cb_sampler_params plain(float temp)
{
    return (struct cb_sampler_params){ .seed = 7, .temp = temp, .top_p = 1, .repeat_penalty = 1 };
}

static void draw(struct cb_sampler_params p, double *share)
{
    cb_sampler *s = make(p);
    for (int i = 0; i < N; i++)
        share[i] = 0;
    for (int i = 0; i < DRAWS; i++)
        share[cb_sampler_pick(s, logits)] += 1.0 / DRAWS;
    cb_sampler_free(s);
}

/* |share - p| stays within five standard deviations */
static void near(double share, double p)
{
    ck_assert_double_le(fabs(share - p), 5 * sqrt(p * (1 - p) / DRAWS) + 1e-9);
}

START_TEST(shares_follow_the_softmax)
{
    double share[N], sum = 0;
    const float temp = 1.5f;

    draw(plain(temp), share);
    for (int i = 0; i < N; i++)
        sum += exp((double)(logits[i] / temp));
    for (int i = 0; i < N; i++)
        near(share[i], exp((double)(logits[i] / temp)) / sum);
}
END_TEST

/* The k largest of a large vocabulary are those of a sort, wherever they stand and whatever is not
 * a number. */
START_TEST(few_of_many)
{
    enum { MANY = 1003, K = 9 };
    static float x[MANY];
    int hit[MANY] = { 0 }, n_hit = 0, above;
    struct cb_sampler_params p = plain(1);
    cb_sampler *s;

    p.top_k = K;
    ck_assert_int_eq(cb_sampler_new(&p, MANY, &s), CB_OK);
    for (int i = 0; i < MANY; i++)
        x[i] = (float)(i * 7919 % MANY) * 1e-4f; /* all differ */
    x[0] = x[500] = NAN;
    for (int i = 0; i < 2000; i++)
        hit[cb_sampler_pick(s, x)]++;
    for (int i = 0; i < MANY; i++) {
        above = 0;
        for (int j = 0; j < MANY; j++)
            above += x[j] > x[i];
        n_hit += hit[i] > 0;
        ck_assert_msg(!hit[i] || (!isnan(x[i]) && above < K), "%d is not among the first", i);
    }
    ck_assert_int_eq(n_hit, K);
    cb_sampler_free(s);
}
END_TEST

START_TEST(greedy_takes_the_first_of_the_largest)
{
    const float tie[N] = { 0, 3, 1, 3, 0, 0, 0, 3 };
    cb_sampler *s = make(plain(0));
    ck_assert_int_eq(cb_sampler_pick(s, tie), 1);
    cb_sampler_free(s);
}
END_TEST

START_TEST(top_k_keeps_k_and_the_lower_id_of_equals)
{
    struct cb_sampler_params p = plain(1);
    double share[N], two = exp(3) + exp(2);

    p.top_k = 2; /* 3, and one of the two 2s */
    draw(p, share);
    near(share[3], exp(3) / two);
    near(share[1], exp(2) / two);
    ck_assert_double_eq(share[4], 0);
}
END_TEST

START_TEST(top_p_stops_when_the_sum_is_reached)
{
    struct cb_sampler_params p = plain(1);
    double share[N];

    p.top_p = 0.45f; /* 3 has 0.495 of the score */
    draw(p, share);
    ck_assert_double_eq_tol(share[3], 1, 1e-9);
}
END_TEST

/* Two tokens that reach top_p exactly are enough. */
START_TEST(top_p_hit_exactly)
{
    static const float quarters[N] = { 0, 0, 0, 0, -200, -200, -200, -200 };
    struct cb_sampler_params p = plain(1);
    cb_sampler *s;
    int hit[N] = { 0 };

    p.top_p = 0.5f;
    s = make(p);
    for (int i = 0; i < 1000; i++)
        hit[cb_sampler_pick(s, quarters)]++;
    ck_assert(hit[0] > 0 && hit[1] > 0);
    ck_assert_int_eq(hit[0] + hit[1], 1000);
    cb_sampler_free(s);
}
END_TEST

/* A token with just min_p of the best one's probability stays. */
START_TEST(min_p_hit_exactly)
{
    static const float even[N] = { 0, 0, 0, 0, -200, -200, -200, -200 };
    struct cb_sampler_params p = plain(1);
    cb_sampler *s;
    int hit[N] = { 0 };

    p.min_p = 1;
    s = make(p);
    for (int i = 0; i < 1000; i++)
        hit[cb_sampler_pick(s, even)]++;
    for (int i = 0; i < 4; i++)
        ck_assert_int_gt(hit[i], 0);
    cb_sampler_free(s);
}
END_TEST

START_TEST(min_p_drops_what_is_far_below_the_best)
{
    struct cb_sampler_params p = plain(1);
    double share[N];

    p.min_p = 0.2f; /* exp(2 - 3) = 0.37 stays, exp(1 - 3) = 0.14 goes */
    draw(p, share);
    ck_assert(share[1] > 0 && share[4] > 0);
    ck_assert_double_eq(share[7] + share[0] + share[5] + share[2] + share[6], 0);
}
END_TEST

START_TEST(penalties_count_within_their_window)
{
    struct cb_sampler_params p = plain(0);
    cb_sampler *s;

    p.repeat_penalty = 2; /* 3 becomes 1.5, below the 2s */
    p.penalty_last_n = 2;
    s = make(p);
    ck_assert_int_eq(cb_sampler_pick(s, logits), 3);
    cb_sampler_accept(s, 3);
    ck_assert_int_eq(cb_sampler_pick(s, logits), 1);
    cb_sampler_accept(s, 1);
    ck_assert_int_eq(cb_sampler_pick(s, logits), 4);
    cb_sampler_accept(s, 0); /* 3 falls out of the window */
    ck_assert_int_eq(cb_sampler_pick(s, logits), 3);
    cb_sampler_free(s);
    p.repeat_penalty = 1;
    p.frequency_penalty = 0.4f;
    p.presence_penalty = 0.3f;
    p.penalty_last_n = -1;
    s = make(p);
    cb_sampler_accept(s, 3); /* 3 - 0.7 > 2 */
    ck_assert_int_eq(cb_sampler_pick(s, logits), 3);
    cb_sampler_accept(s, 3); /* 3 - 1.1 < 2 */
    ck_assert_int_eq(cb_sampler_pick(s, logits), 1);
    cb_sampler_free(s);
}
END_TEST

START_TEST(a_seed_gives_one_sequence)
{
    struct cb_sampler_params p = plain(1);
    cb_sampler *a = make(p), *b = make(p), *c;
    int differs = 0;

    p.seed = 8;
    c = make(p);
    for (int i = 0; i < 100; i++) {
        const int32_t x = cb_sampler_pick(a, logits);
        ck_assert_int_eq(x, cb_sampler_pick(b, logits));
        differs |= x != cb_sampler_pick(c, logits);
    }
    ck_assert(differs);
    cb_sampler_free(a);
    cb_sampler_free(b);
    cb_sampler_free(c);
}
END_TEST

/* ---- biases, typical, XTC ---- */

/* share[] against weights that need not add up to 1 */
static void near_all(const double *share, const double *weight)
{
    double sum = 0;

    for (int i = 0; i < N; i++)
        sum += weight[i];
    for (int i = 0; i < N; i++)
        near(share[i], weight[i] / sum);
}

START_TEST(biases_are_added_to_logits)
{
    static const struct cb_logit_bias bias[] = { { 3, -INFINITY }, { 7, 1.5f }, { 5, -0.5f } };
    struct cb_sampler_params p = plain(1);
    double share[N], weight[N];

    p.bias = bias;
    p.n_bias = 3;
    ck_assert_int_eq(cb_sampler_top(&p), 0); /* another token may become the largest */
    draw(p, share);
    for (int i = 0; i < N; i++)
        weight[i] = exp((double)logits[i]);
    weight[3] = 0;
    weight[7] = exp(2.5);
    weight[5] = exp(-0.5);
    near_all(share, weight);
    p.bias = &(struct cb_logit_bias){ N, 1 };
    p.n_bias = 1;
    ck_assert_int_eq(cb_sampler_new(&p, N, &(cb_sampler *){ NULL }), CB_EARG);
}
END_TEST

/* The set by its definition: nearest in surprise to the entropy, until typical_p is reached */
START_TEST(typical_keeps_what_is_about_as_surprising_as_expected)
{
    static const float at[] = { 0.2f, 0.5f, 0.9f };
    struct cb_sampler_params p = plain(1);
    double share[N], prob[N], sum = 0, entropy = 0, kept[N] = { 0 }, mass = 0;

    for (int i = 0; i < N; i++)
        sum += prob[i] = exp((double)logits[i]);
    for (int i = 0; i < N; i++) {
        prob[i] /= sum;
        entropy -= prob[i] * log(prob[i]);
    }
    p.typical_p = at[_i];
    while (mass < (double)p.typical_p) {
        int best = -1;
        for (int i = 0; i < N; i++)
            if (kept[i] == 0 &&
                (best < 0 || fabs(-log(prob[i]) - entropy) < fabs(-log(prob[best]) - entropy)))
                best = i;
        mass += kept[best] = prob[best];
    }
    draw(p, share);
    near_all(share, kept);
    if (!_i)
        ck_assert_double_eq(kept[3], 0); /* the likeliest token is not typical */
}
END_TEST

START_TEST(xtc_keeps_the_least_likely_of_the_top)
{
    struct cb_sampler_params p = plain(1);
    double share[N], weight[N], sum = 0;

    for (int i = 0; i < N; i++)
        sum += weight[i] = exp((double)logits[i]);
    ck_assert_double_gt(weight[4] / sum, 0.1); /* tokens 3, 1 and 4 reach the threshold, no other */
    ck_assert_double_lt(weight[7] / sum, 0.1);
    p.xtc_probability = 1;
    p.xtc_threshold = 0.1f;
    weight[3] = weight[1] = 0; /* of equals the later one is the less likely */
    draw(p, share);
    near_all(share, weight);
    p.xtc_probability = 0.25f;
    draw(p, share);
    near(share[3], 0.75 * exp(3) / sum);
    p.xtc_probability = 1;
    p.xtc_threshold = 0.51f; /* off */
    draw(p, share);
    near(share[3], exp(3) / sum);
}
END_TEST

/* ---- repetitions ---- */

/* The logit that token 3 loses after tokens[n]: by how much it must lead to be chosen */
static double loss(struct cb_sampler_params p, const int32_t *tokens, int n)
{
    double lo = 0, hi = 64;

    while (hi - lo > 1e-3) {
        const double lead = (lo + hi) / 2;
        float x[N] = { 0 };
        cb_sampler *s = make(p), *f;
        for (int i = 0; i < n; i++)
            cb_sampler_accept(s, tokens[i]);
        x[3] = (float)lead;
        x[0] = 1e-6f; /* the one that is chosen otherwise */
        ck_assert_int_eq(cb_sampler_fork(s, &f), CB_OK);
        ck_assert_int_eq(cb_sampler_pick(f, x), cb_sampler_pick(s, x));
        *(cb_sampler_pick(s, x) == 3 ? &hi : &lo) = lead;
        cb_sampler_free(s);
        cb_sampler_free(f);
    }
    return lo;
}

START_TEST(dry_grows_with_the_repetition)
{
    static const int32_t t[] = { 4, 5, 6, 7, 3, 1, 5, 6, 7, 2, 4, 5, 6, 7 };
    const int32_t breaker = 6;
    struct cb_sampler_params p = plain(0);

    p.dry_multiplier = 2;
    p.dry_base = 1.5f;
    p.dry_allowed_length = 2;
    p.dry_last_n = 100;
    ck_assert_double_eq_tol(loss(p, t, 14), 2 * pow(1.5, 2), 1e-2); /* 4 5 6 7 was followed by 3 */
    ck_assert_double_eq_tol(loss(p, t, 9), 2 * pow(1.5, 1), 1e-2);  /* 5 6 7 */
    p.dry_allowed_length = 5;
    ck_assert_double_eq_tol(loss(p, t, 14), 0, 1e-2);
    p.dry_allowed_length = 2;
    p.dry_breaker = &breaker; /* 7 alone is left */
    p.n_dry_breaker = 1;
    ck_assert_double_eq_tol(loss(p, t, 14), 0, 1e-2);
    p.dry_allowed_length = 1;
    ck_assert_double_eq_tol(loss(p, t, 14), 2, 1e-2);
    p.n_dry_breaker = 0;
    p.dry_last_n = 8; /* 1 5 6 7 2 is still there, 3 is not */
    ck_assert_double_eq_tol(loss(p, t, 14), 0, 1e-2);
    p.dry_last_n = 10;
    ck_assert_double_eq_tol(loss(p, t, 14), 0, 1e-2);
}
END_TEST

/* ---- Mirostat ---- */

/* The surprise of what is drawn is tau on average, whatever the logits' temperature */
START_TEST(mirostat_holds_the_surprise)
{
    enum { MANY = 1000 };
    const float tau = _i % 2 ? 4.5f : 6;
    struct cb_sampler_params p = plain(_i < 2 ? 1 : 1.3f);
    float x[MANY];
    double sum = 0, surprise = 0;
    cb_sampler *s;

    for (int i = 0; i < MANY; i++) { /* flat enough that tau can be reached */
        x[i] = -logf((float)(i + 1));
        sum += exp((double)x[i] / (double)p.temp);
    }
    p.mirostat = 2;
    p.mirostat_tau = tau;
    p.mirostat_eta = 0.1f;
    ck_assert_int_eq(cb_sampler_new(&p, MANY, &s), CB_OK);
    for (int i = 0; i < DRAWS; i++) {
        const int32_t id = cb_sampler_pick(s, x);
        surprise -= log2(exp((double)x[id] / (double)p.temp) / sum) / DRAWS;
    }
    ck_assert_double_eq_tol(surprise, (double)tau, 0.02);
    cb_sampler_free(s);
}
END_TEST

START_TEST(a_fork_goes_on_alike)
{
    struct cb_sampler_params p = plain(1);
    cb_sampler *s, *f;

    p.mirostat = 2;
    p.mirostat_tau = 2;
    p.mirostat_eta = 0.3f;
    p.dry_multiplier = 1;
    p.dry_base = 2;
    p.dry_allowed_length = 1;
    p.dry_last_n = 20;
    s = make(p);
    for (int i = 0; i < 50; i++)
        cb_sampler_accept(s, cb_sampler_pick(s, logits));
    ck_assert_int_eq(cb_sampler_fork(s, &f), CB_OK);
    for (int i = 0; i < 200; i++) {
        const int32_t id = cb_sampler_pick(s, logits);
        ck_assert_int_eq(cb_sampler_pick(f, logits), id);
        cb_sampler_accept(s, id);
        cb_sampler_accept(f, id);
    }
    cb_sampler_free(s);
    cb_sampler_free(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample");
    TCase *t = tcase_create("sampler");

    suite_add_tcase(suite, t);
    tcase_add_test(t, shares_follow_the_softmax);
    tcase_add_test(t, few_of_many);
    tcase_add_test(t, greedy_takes_the_first_of_the_largest);
    tcase_add_test(t, top_k_keeps_k_and_the_lower_id_of_equals);
    tcase_add_test(t, top_p_stops_when_the_sum_is_reached);
    tcase_add_test(t, top_p_hit_exactly);
    tcase_add_test(t, min_p_hit_exactly);
    tcase_add_test(t, min_p_drops_what_is_far_below_the_best);
    tcase_add_test(t, penalties_count_within_their_window);
    tcase_add_test(t, a_seed_gives_one_sequence);
    tcase_add_test(t, biases_are_added_to_logits);
    tcase_add_loop_test(t, typical_keeps_what_is_about_as_surprising_as_expected, 0, 3);
    tcase_add_test(t, xtc_keeps_the_least_likely_of_the_top);
    tcase_add_test(t, dry_grows_with_the_repetition);
    tcase_add_loop_test(t, mirostat_holds_the_surprise, 0, 4);
    tcase_add_test(t, a_fork_goes_on_alike);
    return cb_suite_run(suite);
}
