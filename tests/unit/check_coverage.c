/* SPDX-License-Identifier: MIT */
/* check_coverage.c - what a policy has read of the attention of the full cache, and the probe's
 * rows, against plain sums. */
#include "calibrate/coverage.h"
#include "calibrated.h"

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

int main(void)
{
    Suite *s = suite_create("coverage");
    TCase *c = tcase_create("coverage");

    tcase_set_timeout(c, 60);
    tcase_add_loop_test(c, coverage_beside_plain_sums, 0, sizeof covered / sizeof *covered);
    tcase_add_test(c, a_probe_sees_every_row);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
