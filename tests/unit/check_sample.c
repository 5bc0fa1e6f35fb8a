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

/* Of a large vocabulary the k largest, wherever they stand and whatever is not a number, by a sort.
 */
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
    return cb_suite_run(suite);
}
