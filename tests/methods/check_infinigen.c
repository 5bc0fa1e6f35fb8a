/* SPDX-License-Identifier: MIT */
/* check_infinigen.c - infinigen: the skew, and the slots that its layers choose, against the
 * paper's formulas in doubles. The queries are guessed here from the layer's input and the weights,
 * so the way through the forward pass is tested too. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "attention/readers/slot_lists.h"
#include "base/eigen.h"
#include "kit/found_slots.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

/* ---- eigenvectors ---- */

enum { MOST = 48 };

static unsigned seed = 1;

static double uniform(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed / 2147483648.0 - 1;
}

/* The sum of `rank` products of vectors with themselves, the last ones taken away if `mixed` */
static void symmetric(double *a, int n, int rank, int mixed)
{
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    for (int r = 0; r < rank; r++) {
        double x[MOST];
        for (int i = 0; i < n; i++)
            x[i] = uniform() * (r ? 1 : 100);
        for (int i = 0; i < n * n; i++)
            a[i] += x[i / n] * x[i % n] * (mixed && r > rank / 2 ? -1 : 1);
    }
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

START_TEST(eigenvectors_are_orthonormal_and_stay_along_themselves)
{
    static const struct {
        int n, rank, mixed;
    } cases[] = { { 1, 1, 0 }, { 2, 2, 1 }, { 7, 7, 1 }, { 48, 90, 0 }, { 48, 3, 0 }, { 9, 0, 0 } };
    const int n = cases[_i].n;
    double a[MOST * MOST], work[MOST * MOST], v[MOST * MOST], value[MOST];
    double trace = 0;

    symmetric(a, n, cases[_i].rank, cases[_i].mixed);
    memcpy(work, a, sizeof a);
    for (int i = 0; i < n; i++)
        trace += fabs(a[i * n + i]);
    cb_eigen(work, n, v, value);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double y = dot(a + j * n, v + i * n, n);
            ck_assert_double_eq_tol(dot(v + i * n, v + j * n, n), i == j, 1e-12);
            ck_assert_double_eq_tol(y, value[i] * v[i * n + j], 1e-10 * trace + 1e-300);
        }
}
END_TEST

/* ---- the skew, without weights ---- */

enum {
    N_LAYER = 3,
    N_HEAD = 6,
    N_KV = 2,
    HD = 32,
    GROUP = N_HEAD / N_KV,
    PROMPT = 150,
    LATER = 20,
    N = PROMPT + LATER + 2
};

static const struct hparams shape = CB_TOY_SHAPE(N_LAYER, N_HEAD, N_KV, HD, HD, N);

static const float *query(struct toy *t, int l, int h, int i)
{
    return cb_toy_row(t, l, i) + h * HD;
}

static const float *key(struct toy *t, int l, int kv, int i)
{
    return cb_toy_row(t, l, i) + (N_HEAD + kv) * HD;
}

/* Column c of a store's skew, which has n columns */
static void column(const struct store *st, int kv, int n, int c, double *x)
{
    const int row = (n + 7) / 8 * 8;

    for (int i = 0; i < HD; i++)
        x[i] = (double)cb_store_skew(st, kv)[i * row + c];
}

/* The sum of squares of the queries' (or keys') lengths along x, over the first prompt; and the sum
 * of the queries themselves, times those lengths -> y */
static double along(struct toy *t, int l, int kv, const double *x, int keys, double *y)
{
    double sum = 0;

    memset(y, 0, HD * sizeof *y);
    for (int i = 0; i < PROMPT; i++)
        for (int g = 0; g < (keys ? 1 : GROUP); g++) {
            const float *of = keys ? key(t, l, kv, i) : query(t, l, kv * GROUP + g, i);
            double z = 0;
            for (int c = 0; c < HD; c++)
                z += (double)of[c] * x[c];
            sum += z * z;
            for (int c = 0; c < HD; c++)
                y[c] += z * (double)of[c];
        }
    return sum;
}

/* All columns are eigenvectors of the queries' products, in the order of what queries and keys have
 * along them. */
static void check_skew(struct toy *t, int l, int kv)
{
    const struct store *st = &t->s->bank.store[l];
    double before = INFINITY;

    for (int c = 0; c < HD; c++) {
        double x[HD], other[HD], y[HD], unused[HD], q, k;
        column(st, kv, HD, c, x);
        for (int d = 0; d <= c; d++) {
            column(st, kv, HD, d, other);
            ck_assert_double_eq_tol(dot(x, other, HD), d == c, 1e-6);
        }
        q = along(t, l, kv, x, 0, y);
        k = along(t, l, kv, x, 1, unused);
        for (int i = 0; i < HD; i++)
            ck_assert_double_eq_tol(y[i], q * x[i], 1e-5 * q);
        ck_assert_double_le(q * k, before * (1 + 1e-5));
        before = q * k;
    }
}

/* Queries and keys are longer along some directions. */
static void stretch(struct toy *t)
{
    for (int l = 0; l < N_LAYER; l++)
        for (int i = 0; i < N; i++)
            for (int c = 0; c < (N_HEAD + N_KV) * HD; c++)
                cb_toy_row(t, l, i)[c] *= c / HD < N_HEAD ? 1 + (float)(c % 5) : 1 + (float)(c % 7);
}

static void open_toy(struct toy *t, const char *policy, int threads)
{
    struct hparams hp = shape;

    cb_toy_open(t, "cpu", threads, &hp, N, policy, "f32", "f32", 5);
    stretch(t);
}

START_TEST(the_skew_is_of_the_first_prompt)
{
    struct toy all, some;
    float *had;
    size_t bytes;

    open_toy(&all, "infinigen:ratio=1,dense=1", 2);
    open_toy(&some, "infinigen:ratio=0.4,dense=1", 1);
    cb_toy_prompt(&all, PROMPT, 47, NULL);
    cb_toy_prompt(&some, PROMPT, 150, NULL);
    ck_assert_ptr_null(all.s->bank.store[0].skew);
    for (int l = 1; l < N_LAYER; l++)
        for (int kv = 0; kv < N_KV; kv++) {
            const struct store *st = &all.s->bank.store[l];
            check_skew(&all, l, kv);
            for (int c = 0; c < 12; c++) {
                double x[HD], y[HD];
                column(st, kv, HD, c, x);
                column(&some.s->bank.store[l], kv, 12, c, y);
                ck_assert_mem_eq(x, y, sizeof x);
            }
            for (int i = 0; i < PROMPT; i++) { /* products stay as they are */
                const float *q = query(&all, l, kv * GROUP, i), *k = key(&all, l, kv, PROMPT - i);
                float qa[HD], ka[HD];
                double want = 0, got = 0;
                cb_store_skewed(st, kv, q, qa);
                cb_store_skewed(st, kv, k, ka);
                for (int c = 0; c < HD; c++) {
                    want += (double)q[c] * (double)k[c];
                    got += (double)qa[c] * (double)ka[c];
                }
                ck_assert_double_eq_tol(got, want, 2e-3);
            }
        }
    bytes = N_KV * cb_store_skew_bytes(&all.s->bank.store[1]);
    had = malloc(bytes);
    ck_assert_ptr_nonnull(had);
    memcpy(had, all.s->bank.store[1].skew, bytes);
    cb_toy_prompt(&all, LATER, 20, NULL); /* a later turn keeps it */
    ck_assert_mem_eq(had, all.s->bank.store[1].skew, bytes);
    ck_assert_int_eq(all.s->bank.store[1].sketched, PROMPT + LATER);
    ck_assert_ptr_null(cb_attention_uncut(&all.s->attention, PROMPT));
    ck_assert_ptr_nonnull(strstr(cb_attention_uncut(&all.s->attention, PROMPT - 1), "skewed"));
    free(had);
    cb_toy_close(&all);
    cb_toy_close(&some);
}
END_TEST

/* ---- the choice, in a model ---- */

enum { TEXT = 180, STEPS = 24 / CB_SLOWED, LAYERS = 4, HEADS = 8, KV = 2 };

static const struct {
    const char *family, *policy;
    double ratio, alpha, most;
    int window, lists;
} cases[] = {
    { "llama", "infinigen:alpha=0.3", 0.3, 0.3, 0.2, 0, KV },
    { "qwen2", "infinigen:alpha=0.4,most=70", 0.3, 0.4, 70, 0, KV },
    { "qwen2", "infinigen:alpha=0.3,ratio=1,dense=1", 1, 0.3, 0.2, 0, KV },
    { "llama", "infinigen:alpha=5,most=7,ratio=0.5", 0.5, 5, 7, 0, KV },
    { "llama", "infinigen:alpha=0,most=7", 0.3, 0, 7, 0, KV },
    { "mistral", "infinigen:alpha=0.3,dense=3", 0.3, 0.3, 0.2, 100, KV },
    { "qwen2", "infinigen:alpha=0.4,group=each", 0.3, 0.4, 0.2, 0, HEADS },
    { "mistral", "infinigen:alpha=0.3,most=9,group=each", 0.3, 0.3, 9, 100, HEADS },
};
enum { N_CASE = sizeof cases / sizeof *cases };

struct checking {
    const cb_session *s;
    int c, columns;
    double base;       /* of rotations */
    double in[2][256]; /* [n_embd] what this layer's attention reads, and the layer's before */
    uint64_t read;     /* by the token so far */
    int least, most;   /* slots chosen, in any layer */
    int by_own;        /* choices that its own queries would have made as well */
    int n;
};

static struct tiny tiny_of(int c)
{
    struct tiny t = cb_tiny_small(cases[c].family);
    t.n_layer = LAYERS;
    t.n_embd = 256;
    t.hd = HD;
    t.n_head = HEADS;
    t.n_kv = KV;
    t.n_ctx = 400;
    t.window = cases[c].window;
    t.type = DT_F32;
    return t;
}

/* x through layer l's query matrix, rotated to position pos -> q[HEADS][HD] */
static void project(const cb_session *s, int l, double base, const double *x, int pos, double *q)
{
    const struct cb_model *m = s->model;
    const struct layer *y = &m->layer[l];
    const int ne = m->hp.n_embd, pair = m->arch->rope == ROPE_PAIR;
    float *w = malloc((size_t)ne * sizeof *w);

    ck_assert_ptr_nonnull(w);
    for (int32_t r = 0; r < HEADS * HD; r++) {
        m->dev->ops->get_rows(m->dev, &y->q, &r, 1, w);
        q[r] = y->q_bias ? (double)y->q_bias[r] : 0;
        for (int i = 0; i < ne; i++)
            q[r] += (double)w[i] * x[i];
    }
    free(w);
    for (int h = 0; h < HEADS; h++, q += HD)
        for (int i = 0; i < HD / 2; i++) {
            const double angle = pos * pow(base, -2.0 * i / HD);
            double *a = q + (pair ? 2 * i : i), *b = q + (pair ? 2 * i + 1 : i + HD / 2);
            const double u = *a, v = *b;
            *a = u * cos(angle) - v * sin(angle);
            *b = u * sin(angle) + v * cos(angle);
        }
}

/* x times the first columns of the skew */
static void skewed(const struct checking *x, const struct store *st, int kv, const double *from,
                   double *to)
{
    for (int c = 0; c < x->columns; c++) {
        double a[HD];
        column(st, kv, x->columns, c, a);
        to[c] = dot(a, from, HD);
    }
}

/* The formula: logits less the largest of the query head, for slots first..n-1; `off`: how far
 * rounding to halves may shift any of them */
static void logits(const struct checking *x, int l, const double *q, int first, int n,
                   double out[HEADS][400], double *off)
{
    const struct store *st = &x->s->bank.store[l];

    *off = 1e-5;
    for (int h = 0; h < HEADS; h++) {
        const int kv = h * KV / HEADS;
        double qa[HD], top = -INFINITY;
        skewed(x, st, kv, q + h * HD, qa);
        for (int j = first; j < n; j++) {
            const float *row = (const void *)cb_store_key(st, kv, j);
            double k[HD], ka[HD], sum = 0, size = 0;
            for (int c = 0; c < HD; c++)
                k[c] = (double)row[c];
            skewed(x, st, kv, k, ka);
            for (int c = 0; c < x->columns; c++) {
                sum += qa[c] * ka[c] / sqrt((double)HD);
                size += fabs(qa[c] * ka[c]) / sqrt((double)HD);
            }
            out[h][j] = sum;
            *off = fmax(*off, size / 1024);
            top = fmax(top, sum);
        }
        for (int j = first; j < n; j++)
            out[h][j] -= top;
    }
}

/* Slots that a head reads of n, where query heads count those within alpha */
static int count(double x[HEADS][400], int first, int n, double alpha, double most)
{
    int sum = 0, cap = most < 1 ? (int)(most * (n - first)) : (int)most;

    for (int h = 0; h < HEADS; h++)
        for (int j = first; j < n; j++)
            sum += x[h][j] >= -alpha;
    sum /= HEADS;
    cap = cap < 1 ? 1 : cap;
    return sum < 1 ? 1 : sum < cap ? sum : cap;
}

/* 1: the slots of list i of n_list are those with the best ranks, as far as rounding can tell. */
static int are_best(double x[HEADS][400], int i, int n_list, int first, int n, const char *reads,
                    double off)
{
    double worst = INFINITY, best = -INFINITY;

    for (int j = first; j < n; j++) {
        double rank = -INFINITY;
        for (int h = i * HEADS / n_list; h < (i + 1) * HEADS / n_list; h++)
            rank = fmax(rank, x[h][j]);
        worst = reads[j] ? fmin(worst, rank) : worst;
        best = reads[j] ? best : fmax(best, rank);
    }
    return worst >= best - 4 * off;
}

static void check_layer(struct checking *x, int l)
{
    static double by_guess[HEADS][400], by_own[HEADS][400];
    const struct attention *a = &x->s->attention;
    const int n = x->s->bank.store[l].n[0] - 1, window = cases[x->c].window; /* n: before it */
    const int first = window && n + 1 > window ? n + 1 - window : 0;
    const int n_list = cases[x->c].lists;
    double q[HEADS * HD], off, own_off;
    int n_read = 0;

    project(x->s, l, x->base, x->in[1], n, q);
    logits(x, l, q, first, n, by_guess, &off);
    project(x->s, l, x->base, x->in[0], n, q);
    logits(x, l, q, first, n, by_own, &own_off);
    for (int list = 0; list < n_list; list++) {
        char reads[400] = { 0 };
        const int32_t *slot = cb_slot_lists_slots(a, l, list, &n_read);
        for (int i = 0; i < n_read; i++) {
            ck_assert(slot[i] >= first && slot[i] <= n && (!i || slot[i] > slot[i - 1]));
            reads[slot[i]] = 1;
        }
        ck_assert_int_eq(reads[n], 1); /* itself */
        n_read--;
        ck_assert_int_ge(n_read,
                         count(by_guess, first, n, cases[x->c].alpha - 2 * off, cases[x->c].most));
        ck_assert_int_le(n_read,
                         count(by_guess, first, n, cases[x->c].alpha + 2 * off, cases[x->c].most));
        ck_assert_msg(are_best(by_guess, list, n_list, first, n, reads, off), "token %d, layer %d",
                      n, l);
        x->by_own += are_best(by_own, list, n_list, first, n, reads, own_off);
        x->n++;
    }
    x->least = n_read < x->least ? n_read : x->least;
    x->most = n_read > x->most ? n_read : x->most;
    x->read += (uint64_t)(KV * (n - first) * x->columns * 2) +
               (uint64_t)(n_list * (n_read + 1) * 2 * HD) * sizeof(float);
}

static void look(void *arg, const struct attention *a, int l)
{
    struct checking *x = arg;
    const int n = a->bank->store[l].n[0], window = cases[x->c].window;

    memcpy(x->in[1], x->in[0], sizeof x->in[0]);
    for (int i = 0; i < 256; i++)
        x->in[0][i] = (double)x->s->w.norm[i];
    if (cb_attend_wants_guess(a, l))
        check_layer(x, l);
    else
        x->read += (uint64_t)(KV * (window && n > window ? window : n)) * 2 * HD * sizeof(float);
}

START_TEST(reads_what_the_formula_chooses)
{
    const struct tiny t = tiny_of(_i);
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    const struct cb_session_params p = {
        .n_ctx = 400, .policy = cases[_i].policy, .type_k = "f32", .type_v = "f32"
    };
    const int32_t *tok = cb_toy_text(m);
    cb_session *s;
    struct checking x = {
        .c = _i, .columns = (int)(cases[_i].ratio * HD), .base = (double)t.rope_base, .least = 400
    };
    const struct read_watch watch = { look, &x };
    struct cb_memory mem;

    ck_assert_ok(cb_session_open(m, &p, &s));
    x.s = s;
    ck_assert_ok(cb_session_prefill(s, tok, TEXT, NULL));
    s->attention.watch = &watch;
    for (int i = 0; i < STEPS; i++) {
        x.read = 0;
        ck_assert_ok(cb_session_decode(s, tok[TEXT + i]));
        cb_session_memory(s, &mem);
        ck_assert_uint_eq(mem.kv_read_bytes_per_token, x.read);
    }
    ck_assert_int_gt(x.n, 0);
    ck_assert_int_lt(x.by_own, x.n); /* a guess differs from the layer's own queries */
    if (cases[_i].alpha > 0 && cases[_i].alpha < 1)
        ck_assert_int_lt(x.least, x.most); /* as many as the text asks for */
    else
        ck_assert_int_eq(x.most, cases[_i].alpha > 0 ? (int)cases[_i].most : 1);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

START_TEST(bad_options_are_refused)
{
    static const char *const bad[][2] = {
        { "infinigen:dense=4", "has 4 layers" }, { "infinigen:dense=0", "no layer comes before" },
        { "infinigen:ratio=1.1", "must be" },    { "infinigen:ratio=0", "must be" },
        { "infinigen:alpha=-1", "must be" },     { "infinigen:most=0", "must be" },
        { "infinigen:budget=3", "budget" },
    };
    const struct tiny t = tiny_of(0);
    struct cb_model *m = cb_toy_model(&t, "cpu", 1);

    cb_toy_all_refused(m, bad, sizeof bad / sizeof *bad);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infinigen");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, eigenvectors_are_orthonormal_and_stay_along_themselves, 0, 6);
    tcase_add_test(c, the_skew_is_of_the_first_prompt);
    tcase_add_loop_test(c, reads_what_the_formula_chooses, 0, N_CASE);
    tcase_add_test(c, bad_options_are_refused);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
