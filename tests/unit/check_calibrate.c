/* SPDX-License-Identifier: MIT */
/* check_calibrate.c - the analyses' formulas against numbers worked out by hand or plainly again,
 * the probe's rows, trials beside the full cache, and samples of a text. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate/auto_table.h"
#include "calibrate/coverage.h"
#include "calibrate/filter.h"
#include "calibrate/layer_similarity.h"
#include "calibrate/row_stats.h"
#include "calibrate/sample.h"
#include "calibrate/trial.h"
#include "eval/ask.h"
#include "eval/metric.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N = 40, STEPS = 6 };

static struct cb_model *open_family(const char *family, int n_layer, int n_threads)
{
    struct tiny t = cb_tiny_small(family);

    t.n_layer = n_layer;
    return cb_toy_model(&t, "cpu", n_threads);
}

static struct cb_model *open_tiny(int n_layer, int n_threads)
{
    return open_family("qwen2", n_layer, n_threads);
}

static struct scores of(const float *rows, int n_row, int n, int prompt)
{
    return (struct scores){
        .n_row = n_row, .n = n, .stride = n, .s = rows, .raw = rows, .n_query = 1, .prompt = prompt
    };
}

static void tokens(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = 3 + i * 7 % 90;
}

/* ---- coverage ---- */

enum { C_LAYERS = 3, C_HEADS = 16, P_FROM = 28, P_TO = 33 }; /* the passage */

struct watched {
    float row[C_LAYERS][C_HEADS][N];    /* full attention */
    uint8_t mark[C_LAYERS][C_HEADS][N]; /* what the policy has read */
};

static void keep_rows(void *arg, int l, int n_cand, const struct scores *s)
{
    struct watched *x = arg;

    (void)n_cand;
    for (int h = 0; h < s->n_row; h++)
        memcpy(x->row[l][h], s->s + (size_t)h * (size_t)s->stride, (size_t)s->n * sizeof(float));
}

static void keep_marks(void *arg, const struct attention *a, int l)
{
    struct watched *x = arg;

    for (int h = 0; h < a->model->hp.n_head; h++) {
        memset(x->mark[l][h], 0, N);
        cb_reads_mark(a, l, h, x->mark[l][h]);
    }
}

/* Heads h..h+n_head-1 of a layer, which have read the same of n tokens, plainly */
static struct cover cover_of(const struct watched *x, int l, int h, int n_head, int n)
{
    struct cover c = { 0 };
    int best[N] = { 0 };
    double mean[N] = { 0 };

    for (int j = 0; j < n; j++) {
        for (int i = h; i < h + n_head; i++)
            mean[j] += (double)x->row[l][i][j] / n_head;
        c.read += x->mark[l][h][j];
        c.recall += x->mark[l][h][j] * mean[j];
    }
    for (int j = P_FROM; j < P_TO; j++) {
        c.hit += x->mark[l][h][j] / c.read;
        c.found += (double)x->mark[l][h][j] / (P_TO - P_FROM);
    }
    c.share = c.read / n;
    for (int k = 0; k < (int)c.read; k++) {
        int at = -1;
        for (int j = 0; j < n; j++)
            if (!best[j] && (at < 0 || mean[j] > mean[at]))
                at = j;
        best[at] = 1;
        c.best += mean[at];
        c.overlap += x->mark[l][h][at] / c.read;
        c.best_hit += (at >= P_FROM && at < P_TO) / c.read;
    }
    return c;
}

static void same_cover(const struct cover *a, const struct cover *b, double scale)
{
    ck_assert_double_eq_tol(a->read, b->read * scale, 1e-9);
    ck_assert_double_eq_tol(a->share, b->share * scale, 1e-9);
    ck_assert_double_eq_tol(a->recall, b->recall * scale, 1e-5);
    ck_assert_double_eq_tol(a->best, b->best * scale, 1e-5);
    ck_assert_double_eq_tol(a->overlap, b->overlap * scale, 1e-5);
    ck_assert_double_eq_tol(a->hit, b->hit * scale, 1e-9);
    ck_assert_double_eq_tol(a->best_hit, b->best_hit * scale, 1e-5);
    ck_assert_double_eq_tol(a->found, b->found * scale, 1e-9);
}

static const struct {
    const char *policy;
    int each; /* 1: query heads read different tokens */
} covered[] = { { "full", 0 },
                { "window:budget=9", 0 },
                { "omnikv:filter=0,budget=6", 0 },
                { "snapkv:budget=12,window=4,group=each", 1 } };

START_TEST(coverage_beside_plain_sums)
{
    struct cb_model *m = open_tiny(C_LAYERS, 1);
    const int n_kv = m->hp.n_kv, group = m->hp.n_head / n_kv, each = covered[_i].each ? 1 : group;
    struct watched *x = calloc(1, sizeof *x);
    const struct probe plain = { keep_rows, x, 0 };
    const struct read_watch watch = { keep_marks, x };
    struct cover want[C_LAYERS][C_HEADS] = { { { 0 } } }, all = { 0 };
    struct full_rows full;
    const struct probe probe = { cb_full_rows_look, &full, 0 };
    cb_session *a, *b, *s = cb_toy_session(m, covered[_i].policy, "f16", 0),
                       *t = cb_toy_session(m, covered[_i].policy, "f16", 0);
    struct coverage c;
    int32_t ids[N];

    tokens(ids, N);
    ck_assert_ok(cb_full_rows_open(&full, m, N));
    ck_assert_ok(cb_coverage_open(&c, m, &full, STEPS));
    c.from = P_FROM;
    c.to = P_TO;
    ck_assert_ok(cb_probe_open(m, &plain, N, &a));
    ck_assert_ok(cb_probe_open(m, &probe, N, &b));
    cb_session *const fed[] = { a, b, s, t };
    for (int i = 0; i < 4; i++)
        ck_assert_ok(cb_session_prefill(fed[i], ids, N - STEPS, NULL));
    cb_coverage_watch(&c, s);
    t->attention.watch = &watch;
    for (int n = N - STEPS; n < N; n++) {
        double missing = 0;
        for (int i = 0; i < 4; i++)
            ck_assert_ok(cb_session_decode(fed[i], ids[n]));
        for (int l = 0; l < C_LAYERS; l++)
            for (int h = 0; h < m->hp.n_head; h += each) {
                const struct cover k = cover_of(x, l, h, each, n + 1);
                struct cover *w = &want[l][h / group];
                const double part = (double)each / group;
                *w = (struct cover){ w->read + part * k.read,         w->share + part * k.share,
                                     w->recall + part * k.recall,     w->best + part * k.best,
                                     w->overlap + part * k.overlap,   w->hit + part * k.hit,
                                     w->best_hit + part * k.best_hit, w->found + part * k.found };
                missing += part * (1 - k.recall) / (C_LAYERS * n_kv);
            }
        ck_assert_double_eq_tol(c.missing[n - (N - STEPS)], missing, 1e-5);
    }
    ck_assert_int_eq(c.n_step, STEPS);
    for (int l = 0; l < C_LAYERS; l++)
        for (int kv = 0; kv < n_kv; kv++) {
            const struct cover got = cb_coverage_mean(&c, l, 1, kv, 1);
            same_cover(&got, &want[l][kv], 1.0 / STEPS);
            all.recall += want[l][kv].recall / (STEPS * C_LAYERS * n_kv);
        }
    ck_assert_double_eq_tol(cb_coverage_mean(&c, 0, C_LAYERS, 0, n_kv).recall, all.recall, 1e-5);
    ck_assert(_i ? all.recall < 0.99 : all.recall > 0.999);
    if (_i == 1)
        ck_assert_double_eq(cb_coverage_mean(&c, 0, C_LAYERS, 0, n_kv).read, 9);
    for (int i = 0; i < 4; i++)
        cb_session_close(fed[i]);
    cb_coverage_close(&c);
    cb_full_rows_close(&full);
    free(x);
    cb_model_close(m);
}
END_TEST

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

/* ---- probe ---- */

struct seen {
    int n_layer, n_head, n_look, n_prompt;
    double col[3][4][N];  /* sums of the prompt's queries */
    double step[3][4][N]; /* sums of the steps' */
};

static void look(void *arg, int l, int n_cand, const struct scores *s)
{
    struct seen *x = arg;

    ck_assert_int_eq(s->n_row, x->n_head);
    ck_assert_int_eq(l, s->prompt ? x->n_prompt : x->n_look % x->n_layer);
    if (!s->prompt)
        ck_assert_int_lt(n_cand, s->n);
    x->n_look += !s->prompt;
    x->n_prompt += s->prompt;
    for (int h = 0; h < s->n_row; h++) {
        double sum = 0;
        for (int j = 0; j < s->n; j++) {
            const double v = (double)s->s[(size_t)h * (size_t)s->stride + (size_t)j];
            (s->prompt ? x->col : x->step)[l][h][j] += v;
            sum += v;
        }
        ck_assert_double_eq_tol(sum, s->prompt ? s->n : 1, 1e-3);
    }
}

/* A prompt's sums are those of its tokens fed one by one, but for the first, which sees itself
 * alone. */
START_TEST(a_probe_sees_every_row)
{
    struct cb_model *m = open_tiny(3, 2);
    struct seen *all = calloc(1, sizeof *all), *one = calloc(1, sizeof *one);
    const struct probe pa = { look, all, 1 }, po = { look, one, 0 };
    cb_session *s;
    int32_t ids[N];

    tokens(ids, N);
    all->n_layer = one->n_layer = 3;
    all->n_head = one->n_head = 4;
    ck_assert_ok(cb_probe_open(m, &pa, N, &s));
    ck_assert_ok(cb_probe_feed(s, ids, N, 0, NULL));
    cb_session_close(s);
    ck_assert_ok(cb_probe_open(m, &po, N, &s));
    ck_assert_ok(cb_probe_feed(s, ids, N, N - 1, NULL));
    cb_session_close(s);
    ck_assert_int_eq(all->n_prompt, 3);
    ck_assert_int_eq(one->n_look, 3 * (N - 1));
    for (int l = 0; l < 3; l++)
        for (int h = 0; h < 4; h++)
            for (int j = 0; j < N; j++)
                ck_assert_double_eq_tol(all->col[l][h][j], one->step[l][h][j] + (j == 0), 5e-3);
    free(all);
    free(one);
    cb_model_close(m);
}
END_TEST

/* ---- trials ---- */

START_TEST(trials_beside_the_full_cache)
{
    static const char *const spec[] = { "full", "omnikv:filter=1+2,budget=64",
                                        "streamingllm:budget=8" };
    struct cb_model *m = open_tiny(3, 2);
    struct verdict v[3] = { { 0 } };
    struct trial t = { .model = m, .policy = spec, .n = 3, .n_ctx = 2 * N, .of = v };
    int32_t ids[N];

    tokens(ids, N);
    ck_assert_ok(cb_trial_text(&t, ids, N, STEPS));
    ck_assert_int_eq(t.n_token, STEPS);
    for (int i = 0; i < 2; i++) { /* the second may read more than there is */
        ck_assert_double_eq_tol(v[i].kl, 0, 1e-9);
        ck_assert_int_eq(v[i].same, STEPS);
        ck_assert_double_eq_tol(v[i].read, 1, 1e-9);
    }
    ck_assert_double_gt(v[2].kl, 1e-6);
    ck_assert_double_lt(v[2].read, .5);
    ck_assert_int_lt(cb_trial_text(&t, ids, N, N), 0);
    cb_trial_free(&t);
    cb_model_close(m);
}
END_TEST

/* What the full cache answers to an item, token by token -> text; returns the number of tokens */
static int greedy(struct cb_model *m, const struct item *it, int n_ctx, char *text, int cap)
{
    const struct cb_session_params p = { .n_ctx = n_ctx, .policy = "full" };
    struct prompt prompt;
    cb_session *s;
    int n = 0, at = 0;

    ck_assert_ok(cb_ask_prompt(m, NULL, it, n_ctx, 1, &prompt));
    ck_assert(!cb_session_open(m, &p, &s));
    ck_assert(!cb_session_prefill(s, prompt.ids, prompt.n, NULL));
    for (; n < it->max_new; n++) {
        const float *y = cb_session_logits(s);
        int32_t best = 0;
        for (int i = 1; i < m->hp.n_vocab; i++)
            best = y[i] > y[best] ? i : best;
        if (cb_token_is_end(m, best))
            break;
        at += cb_token_bytes(m, best, 0, text + at, cap - at);
        ck_assert(!cb_session_decode(s, best));
    }
    text[at] = '\0';
    cb_session_close(s);
    free(prompt.ids);
    return n;
}

static void make_item(struct item *it, const char *context, const char *answer)
{
    ck_assert(!cb_item_make(it, "x", "x", context, "", &answer, 1));
    it->metric = cb_metric_find("contains");
    it->max_new = 8;
}

/* A policy that misses one token of a right answer does not hold the item. */
START_TEST(an_item_is_held_by_all_its_tokens)
{
    static const char *const spec[] = { "full", "streamingllm:budget=36" };
    struct cb_model *m = open_tiny(3, 2);
    int nearly = 0, held = 0;

    for (int k = 0; k < 60 && (!nearly || !held); k++) {
        struct verdict v[2] = { { 0 } };
        struct trial t = { .model = m, .policy = spec, .n = 2, .n_ctx = 256, .of = v };
        struct item it;
        char context[80], text[256] = "";
        int n;

        for (int i = 0; i < 79; i++)
            context[i] = (char)('a' + (i * i + k * (i + 3)) % 26);
        context[79] = '\0';
        make_item(&it, context, "");
        n = greedy(m, &it, 256, text, sizeof text);
        cb_item_free(&it);
        make_item(&it, context, text);
        if (n == 8 && strlen(text) > 7) {
            ck_assert_ok(cb_trial_item(&t, &it));
            if (t.n_right && t.n_token == 8) {
                ck_assert_int_eq(v[0].held, 1);
                ck_assert_int_eq(v[1].held, v[1].same == 8);
                nearly |= v[1].same == 7;
                held |= v[1].same == 8;
            }
            cb_item_free(&it); /* an answer that the full cache does not give */
            make_item(&it, context, "no such answer");
            ck_assert_ok(cb_trial_item(&t, &it));
            ck_assert_int_eq(v[0].held, t.n_right);
            ck_assert_int_le(v[1].held, t.n_right);
        }
        cb_trial_free(&t);
        cb_item_free(&it);
    }
    ck_assert(nearly && held);
    cb_model_close(m);
}
END_TEST

/* ---- figures of auto ---- */

/* Two lengths; setting i has KL i / 100, reads half as much at the second length as at the first.
 */
static void fill_auto(struct auto_table *t)
{
    *t = (struct auto_table){ .n_length = 2, .length = { 512, 1024 }, .n_right = { 3, 2 } };
    for (int i = 0; i < AUTO_SETTINGS; i++) {
        t->has[i] = i != 2;
        t->cost[i][0] = (struct auto_cost){ .kl = i * 0.005, .kept = 1, .read = 0.8, .held = 3 };
        t->cost[i][1] = (struct auto_cost){ .kl = i * 0.01, .kept = 1, .read = 0.4, .held = 2 };
    }
    t->cost[4][1].held = 1;
}

START_TEST(auto_by_hand)
{
    struct auto_table t, u;
    json_t *j;
    int sieve = 0;

    fill_auto(&t);
    ck_assert_double_eq_tol(cb_auto_loss(&t, 1), 0.01, 1e-12);
    ck_assert(isinf(cb_auto_loss(&t, 2)) && isinf(cb_auto_loss(&t, 4)));
    while (strncmp(cb_auto_settings[sieve].policy, "sieve", 5))
        sieve++;
    /* halved with each doubling, after what choosing takes */
    ck_assert_double_eq_tol(cb_auto_time(&t, sieve, 4096, 1), cb_auto_settings[sieve].search + 0.1,
                            1e-12);
    ck_assert_double_eq_tol(cb_auto_time(&t, 0, 4096, 1), 1, 1e-12);
    ck_assert_double_eq_tol(cb_auto_time(&t, 1, 4096, 0.5), 0.5 * cb_auto_settings[1].pace, 1e-12);
    j = cb_auto_to_json(&t);
    ck_assert_int_eq(cb_auto_from_json(j, &u), 0);
    for (int i = 0; i < AUTO_SETTINGS; i++)
        ck_assert(t.has[i] == u.has[i] &&
                  (!t.has[i] || !memcmp(t.cost[i], u.cost[i], sizeof t.cost[i])));
    json_object_set_new(j, "version", json_integer(2));
    ck_assert_int_eq(cb_auto_from_json(j, &u), CB_EFORMAT);
    json_decref(j);
    ck_assert_int_eq(cb_auto_from_json(NULL, &u), CB_EFORMAT);
}
END_TEST

/* ---- samples ---- */

START_TEST(samples_of_a_text)
{
    struct cb_model *m = open_family(_i ? "llama" : "qwen2", 1, 1); /* with BOS, without */
    struct samples s;
    char file[64];
    const char *const path[] = { file };
    int32_t *ids;
    int n;
    FILE *f;

    snprintf(file, sizeof file, "calibrate.%d.tmp", (int)getpid());
    f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < 300; i++)
        fprintf(f, "%c", 'a' + i * i % 26);
    ck_assert(!fclose(f));
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 20, &s), CB_OK);
    ck_assert_int_eq(s.n, 3);
    f = fopen(file, "r");
    ck_assert_ptr_nonnull(f);
    char text[301];
    ck_assert_uint_eq(fread(text, 1, 300, f), 300);
    fclose(f);
    ck_assert_int_eq(cb_tokenize(m, text, 300, CB_TOK_BOS, &ids, &n), CB_OK);
    for (int i = 0; i < 3; i++) { /* the first, the middle, the last */
        ck_assert_int_eq(s.at[i].n, 50);
        ck_assert_int_eq(memcmp(s.at[i].ids + 1, ids + (n - 50) * i / 2 + 1, 49 * sizeof *ids), 0);
        ck_assert_int_eq(s.at[i].ids[0], ids[_i ? 0 : (n - 50) * i / 2]);
    }
    free(ids);
    cb_samples_free(&s);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 5000, 20, &s), CB_OK);
    ck_assert_int_eq(s.n, 1);
    cb_samples_free(&s);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 60, &s), CB_EARG);
    unlink(file);
    ck_assert_int_eq(cb_samples_read(m, path, 1, 3, 50, 20, &s), CB_EIO);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("calibrate");
    TCase *c = tcase_create("all");
    SRunner *r = srunner_create(suite);
    int failed;

    tcase_set_timeout(c, 60);
    tcase_add_test(c, recalls_by_hand);
    tcase_add_test(c, heads_and_candidates);
    tcase_add_loop_test(c, the_papers_set_is_best, 0, 3);
    tcase_add_loop_test(c, the_best_set_is_best, 0, 3);
    tcase_add_test(c, ends_by_hand);
    tcase_add_test(c, a_map_of_the_ends_by_hand);
    tcase_add_loop_test(c, coverage_beside_plain_sums, 0, sizeof covered / sizeof *covered);
    tcase_add_test(c, density_by_hand);
    tcase_add_test(c, shapes_by_hand);
    tcase_add_test(c, divergence_by_hand);
    tcase_add_test(c, blocks_by_hand);
    tcase_add_loop_test(c, similarities_of_rows, 0, 2);
    tcase_add_test(c, a_probe_sees_every_row);
    tcase_add_test(c, trials_beside_the_full_cache);
    tcase_add_test(c, an_item_is_held_by_all_its_tokens);
    tcase_add_test(c, auto_by_hand);
    tcase_add_loop_test(c, samples_of_a_text, 0, 2);
    suite_add_tcase(suite, c);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed > 0;
}
