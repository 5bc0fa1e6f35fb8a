/* SPDX-License-Identifier: MIT */
/* check_calibrate.c - the analyses' formulas against numbers worked out by hand or plainly again.
 */
#include <math.h>

#include "calibrate/filter.h"
#include "calibrate/layer_similarity.h"
#include "calibrate/row_stats.h"
#include "calibrated.h"

/* ---- filter layers ---- */

static const float toy_row[4][5] = { { .3f, .25f, .2f, .15f, .1f },
                                     { .1f, .4f, .3f, .1f, .1f },
                                     { .05f, .5f, .3f, .1f, .05f },
                                     { .05f, .45f, .1f, .35f, .05f } };

/* The example of the method's description: four layers, one head, two tokens are chosen. */
START_TEST(recalls_by_hand)
{
    static const double want[4][4] = {
        { .55, .5, .55, .5 }, { 0, .7, .8, .55 }, { 0, 0, .8, .55 }, { 0, 0, 0, .8 }
    };
    static const double ability[3] = { .525, .75, .675 };
    struct cb_model *m = open_tiny(4, 1);
    struct recall r;

    ck_assert_int_eq(cb_recall_open(&r, m, 2, 8), CB_OK);
    for (int step = 0; step < 2; step++)
        for (int l = 0; l < 4; l++) {
            const struct scores s = of(toy_row[l], 1, 5, 0);
            cb_recall_look(&r, l, 5, &s);
        }
    for (int a = 0; a < 4; a++)
        for (int b = a; b < 4; b++)
            ck_assert_double_eq_tol(cb_recall_at(&r, a, b), want[a][b], 1e-6);
    for (int a = 0; a < 3; a++)
        ck_assert_double_eq_tol(cb_recall_ability(&r, a, 2), ability[a], 1e-6);
    ck_assert_double_eq_tol(cb_recall_ability(&r, 3, 4), .8, 1e-6);
    cb_recall_close(&r);
    cb_model_close(m);
}
END_TEST

/* The largest head chooses, the mean of the heads is the score, and tokens after the candidates
 * count for neither: head 0 is .5 .3 .2 | 0, head 1 (.1 .1 .2 | .6) / .4. */
START_TEST(heads_and_candidates)
{
    static const float rows[2][4] = { { .5f, .3f, .2f, 0 }, { .1f, .1f, .2f, .6f } };
    struct cb_model *m = open_tiny(1, 1);
    const struct scores s = of(rows[0], 2, 4, 0);
    struct recall r;

    ck_assert_int_eq(cb_recall_open(&r, m, 1, 8), CB_OK);
    cb_recall_look(&r, 0, 3, &s);
    ck_assert_int_eq(r.top[0], 0); /* .5 .3 .5: the lower of two equals */
    ck_assert_double_eq_tol(cb_recall_at(&r, 0, 0), (.5 + .25) / 2, 1e-6);
    cb_recall_close(&r);
    cb_model_close(m);
}
END_TEST

static double lost_by(const double *at, int n, const int *set, int n_set)
{
    double sum = 0;
    int f = -1;

    for (int b = 0; b < n; b++) {
        int is_filter = 0;
        for (int i = 0; i < n_set; i++)
            is_filter |= set[i] == b;
        f = is_filter ? b : f;
        sum += f < 0 || is_filter ? 0 : 1 - at[f * n + b];
    }
    return sum;
}

/* Every set that there is, against the one that was found. */
START_TEST(the_best_set_is_best)
{
    enum { L = 10 };
    double at[L * L];
    unsigned x = 12345 + (unsigned)_i;

    for (int i = 0; i < L * L; i++) {
        x = x * 1103515245 + 12345;
        at[i] = (x >> 16 & 1023) / 1023.0;
    }
    for (int dense = 3; dense <= 7; dense++) {
        struct filter_set got;
        double best = INFINITY;
        for (unsigned bits = 0; bits < 1 << L; bits++) {
            int set[L], n = 0;
            for (int l = 0; l < L; l++)
                if (bits >> l & 1)
                    set[n++] = l;
            if (n >= 2 && n <= MAX_FILTERS && set[0] > 0 && set[0] + n == dense)
                best = fmin(best, lost_by(at, L, set, n));
        }
        ck_assert_int_gt(cb_filter_best(at, L, dense, &got), 1);
        ck_assert_int_eq(got.layer[0] + got.n, dense);
        ck_assert_double_eq_tol(got.lost, best, 1e-9);
        ck_assert_double_eq_tol(lost_by(at, L, got.layer, got.n), best, 1e-9);
    }
    struct filter_set none;
    ck_assert_int_eq(cb_filter_best(at, L, 2, &none), 0);
}
END_TEST

/* The paper's sets: a quarter of 28 layers reads everything, the layer after each filter too. */
START_TEST(the_papers_set_is_best)
{
    enum { L = 28 };
    static double at[L * L];
    struct filter_set got;
    double best = INFINITY;
    unsigned x = 12345 + (unsigned)_i;

    for (int i = 0; i < L * L; i++) {
        x = x * 1103515245 + 12345;
        at[i] = (x >> 16 & 1023) / 1023.0;
    }
    for (int b = 3; b < L; b++)
        for (int c = b + 2; c < L; c++) {
            double sum = 0;
            for (int l = 2; l < L; l++)
                if (l > 2 && l != b && l != b + 1 && l != c && l != c + 1)
                    sum += 1 - at[(l > c ? c : l > b ? b : 1) * L + l];
            best = fmin(best, sum);
        }
    ck_assert_int_eq(cb_filter_paper(at, L, &got), 3);
    ck_assert_int_eq(got.layer[0], 1);
    ck_assert_double_eq_tol(got.lost, best, 1e-9);
    ck_assert_int_eq(cb_filter_dense(&got, L, 1), got.layer[2] == L - 1 ? 6 : 7);
    ck_assert_int_eq(cb_filter_paper(at, 24, &got), 2);
    ck_assert_int_eq(cb_filter_paper(at, 11, &got), 0);
}
END_TEST

/* ---- rows ---- */

START_TEST(ends_by_hand)
{
    static const float rows[2][10] = { { .3f, .1f, .05f, .05f, .02f, .03f, .05f, .1f, .1f, .2f },
                                       { .4f, .05f, .05f, .05f, .05f, .1f, .1f, .05f, .05f, .1f } };
    const struct scores both = of(rows[0], 2, 10, 0), one = of(rows[0], 1, 10, 0);
    struct ends e;

    ck_assert_int_eq(cb_ends_open(&e, 1, 2, 3), CB_OK);
    cb_ends_look(&e, 0, 9, &both);
    ck_assert_double_eq_tol(e.sum[0], .725, 1e-6);
    ck_assert_int_eq(e.n_over[72], 1);
    ck_assert_int_eq(e.n_over[73], 0);
    free(e.sum);
    ck_assert_int_eq(cb_ends_open(&e, 1, 4, 8), CB_OK); /* they overlap: nothing counts twice */
    cb_ends_look(&e, 0, 9, &one);
    ck_assert_double_eq_tol(e.sum[0], 1, 1e-6);
    free(e.sum);
}
END_TEST

START_TEST(a_map_of_the_ends_by_hand)
{
    static const float rows[3][4] = { { .5f, .3f, .1f, .1f },
                                      { .1f, .2f, .3f, .4f },
                                      { .25f, .25f, .25f, .25f } };
    static const double want[2][2] = { { .6, .5 }, { .5, .6 } };
    struct ends_map e;

    ck_assert_int_eq(cb_ends_map_open(&e, 2, 3, 1, 1), CB_OK);
    for (int step = 0; step < 2; step++)
        for (int l = 0; l < 2; l++) {
            const struct scores s = of(rows[step ^ l], 1, 4, 0);
            cb_ends_map_look(&e, l, 3, &s);
            ck_assert_double_eq_tol(e.share[l * 3 + step], want[l][step], 1e-6);
        }
    ck_assert_int_eq(e.n_step, 2);
    const struct scores s = of(rows[1], 2, 4, 0); /* the heads' mean of .1 + .4 and .25 + .25 */
    const struct scores prompt = of(rows[0], 1, 4, 1);
    cb_ends_map_look(&e, 0, 3, &prompt);
    ck_assert_int_eq(e.n_step, 2);
    e.sink = 2;
    cb_ends_map_look(&e, 0, 3, &s);
    ck_assert_double_eq_tol(e.share[2], (.7 + .75) / 2, 1e-6);
    free(e.share);
}
END_TEST

START_TEST(density_by_hand)
{
    static const float sums[2][4] = { { 2.8f, .7f, .4f, .1f }, { 1.8f, .9f, .9f, .4f } };
    const struct scores s = of(sums[0], 2, 4, 1);
    struct density d;

    ck_assert_double_eq_tol(cb_scores_variance(&s, 0, 1), 1.5, 1e-6);
    ck_assert_double_eq_tol(cb_scores_variance(&s, 1, 1), .34, 1e-6);
    ck_assert_int_eq(cb_density_open(&d, 1), CB_OK);
    cb_density_look(&d, 0, 4, &s);
    ck_assert_double_eq_tol(d.variance[0], .805, 1e-6);
    ck_assert_double_eq_tol(d.spread[0], .5, 1e-5);
    cb_density_close(&d);
}
END_TEST

START_TEST(shapes_by_hand)
{
    static const float even[4] = { .25f, .25f, .25f, .25f }, one[4] = { 0, 1, 0, 0 };
    static const float some[4] = { .4f, .1f, .2f, .3f };
    static const float rows[2][4] = { { 0, 1, 0, 0 }, { 0, 0, 0, 1 } };
    const struct scores s = of(rows[0], 2, 4, 0);
    struct shapes x;
    float tmp[4];

    ck_assert_double_eq_tol(cb_row_entropy(even, 4), log(4), 1e-6);
    ck_assert_double_eq_tol(cb_row_entropy(one, 4), 0, 1e-9);
    ck_assert_double_eq_tol(cb_row_gini(even, 4, tmp), 0, 1e-6);
    ck_assert_double_eq_tol(cb_row_gini(one, 4, tmp), .75, 1e-6);
    /* sum |xi - xj| / (2 n sum x) = (.3 + .2 + .1 + .1 + .2 + .1) / 4 */
    ck_assert_double_eq_tol(cb_row_gini(some, 4, tmp), .25, 1e-6);
    ck_assert_int_eq(cb_shapes_open(&x, 1, 4), CB_OK);
    cb_shapes_look(&x, 0, 3, &s); /* the mean row: half, half */
    ck_assert_double_eq_tol(x.entropy[0], log(2), 1e-6);
    ck_assert_double_eq_tol(x.gini[0], .5, 1e-6);
    cb_shapes_close(&x);
}
END_TEST

/* ---- alike ---- */

static double divergence(const float *p, const float *q, int n)
{
    return cb_divergence(p, cb_bits(p, n), q, cb_bits(q, n), n);
}

START_TEST(divergence_by_hand)
{
    static const float a[4] = { .5f, .5f, 0, 0 }, b[4] = { .25f, .25f, .25f, .25f };
    static const float c[4] = { .7f, .1f, .1f, .1f }, d[4] = { .1f, .1f, .1f, .7f };
    static const float e[4] = { 0, 0, .5f, .5f };

    ck_assert_double_eq_tol(divergence(a, b, 4), .311278, 1e-5);
    ck_assert_double_eq_tol(divergence(c, d, 4), .365148, 1e-5);
    ck_assert_double_eq_tol(divergence(a, e, 4), 1, 1e-6);
    ck_assert_double_eq_tol(divergence(c, c, 4), 0, 1e-6);
}
END_TEST

static void set_sum(struct layer_similarity *a, int h, int i, int j, double x)
{
    a->sum[(h * a->n_layer + i) * a->n_layer + j] = x;
}

/* The example of algorithm 1: {1,2,3} {4,5,6}, one head; then a group of two, where a tie is no
 * majority. */
START_TEST(blocks_by_hand)
{
    static const double pair[][3] = { { 0, 1, .8 },  { 0, 2, .6 }, { 1, 2, .7 },  { 0, 3, .4 },
                                      { 1, 3, .55 }, { 2, 3, .9 }, { 3, 4, .62 }, { 2, 4, .3 },
                                      { 4, 5, .5 },  { 3, 5, .51 } };
    static const int want[6] = { 0, 0, 0, 3, 3, 3 };
    double sum[2 * 36] = { 0 };
    struct layer_similarity a = { .n_layer = 6, .n_head = 1, .n_kv = 1, .sum = sum, .n_step = 1 };
    int start[6];

    for (size_t i = 0; i < sizeof pair / sizeof *pair; i++)
        set_sum(&a, 0, (int)pair[i][0], (int)pair[i][1], pair[i][2]);
    ck_assert_double_eq_tol(cb_similarity_blocks(&a, .5, start), 4 / 6.0, 1e-9);
    ck_assert_int_eq(memcmp(start, want, sizeof want), 0);
    ck_assert_double_eq_tol(cb_similarity_theta(&a, 4 / 6.0, start), .5, 1e-9);
    ck_assert_double_eq_tol(cb_similarity_theta(&a, .5, start), .6, 1e-9);
    a.n_head = 2;
    ck_assert_double_eq_tol(cb_similarity_blocks(&a, .5, start), 0, 1e-9);
}
END_TEST

/* From rows, whatever the threads. */
START_TEST(similarities_of_rows)
{
    static const float p[2][4] = { { .7f, .1f, .1f, .1f }, { .5f, .5f, 0, 0 } };
    static const float q[2][4] = { { .1f, .1f, .1f, .7f }, { .25f, .25f, .25f, .25f } };
    struct cb_model *m = open_tiny(2, _i + 1);
    struct layer_similarity a;
    float rows[16];

    ck_assert_int_eq(cb_similarity_open(&a, m, 8), CB_OK);
    for (int step = 0; step < 2; step++)
        for (int l = 0; l < 2; l++) {
            for (int h = 0; h < 4; h++)
                memcpy(rows + h * 4, l ? q[h % 2] : p[h % 2], sizeof p[0]);
            const struct scores s = of(rows, 4, 4, 0);
            cb_similarity_look(&a, l, 3, &s);
        }
    for (int h = 0; h < 4; h++)
        ck_assert_double_eq_tol(cb_similarity_at(&a, h, 0, 1), h % 2 ? .688722 : .634852, 1e-5);
    cb_similarity_close(&a);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("calibrate");
    TCase *c = tcase_create("calibrate");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, recalls_by_hand);
    tcase_add_test(c, heads_and_candidates);
    tcase_add_loop_test(c, the_papers_set_is_best, 0, 3);
    tcase_add_loop_test(c, the_best_set_is_best, 0, 3);
    tcase_add_test(c, ends_by_hand);
    tcase_add_test(c, a_map_of_the_ends_by_hand);
    tcase_add_test(c, density_by_hand);
    tcase_add_test(c, shapes_by_hand);
    tcase_add_test(c, divergence_by_hand);
    tcase_add_test(c, blocks_by_hand);
    tcase_add_loop_test(c, similarities_of_rows, 0, 2);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
