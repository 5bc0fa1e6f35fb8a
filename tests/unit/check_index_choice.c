/* SPDX-License-Identifier: MIT */
/* check_index_choice.c - what trained selectors choose by stored keys, against scores in double
 * precision: most of the same keys where they are rounded, all of them where they are floats; ties,
 * lengths next to k, blocks, other queries beside a query, and any number of threads. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/index_choice.h"
#include "attention/state_memory.h"
#include "device/index_strips.h"
#include "kit/inside.h"
#include "kit/suite.h"

enum { HD = 128, HEADS = 64, STRIDE = HEADS * (HD + 1) };

static uint32_t seed;

static float draw(void)
{
    float sum = 0;

    for (int i = 0; i < 4; i++) {
        seed = 1664525u * seed + 1013904223u;
        sum += (float)(seed >> 8) * 0x1p-24f - 0.5f;
    }
    return sum;
}

static float *draws(size_t n)
{
    float *x = malloc(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = draw();
    return x;
}

struct made {
    struct attention a;
    struct index_keys keys;
    struct index_choice *choice;
    float *k, *q;
    int n;
};

/* n keys, and queries of which the first INDEX_QUERIES are distinct */
static void make(struct made *x, int n, int k, int strips, int threads)
{
    memset(x, 0, sizeof *x);
    seed = 11;
    x->n = n;
    ck_assert_int_eq(cb_device_open("cpu", threads, &x->a.dev), 0);
    x->a.host = x->a.dev;
    ck_assert(x->a.dev->ops->reserve(x->a.dev, 8, 128, 128, HEADS, HD, n) >= 0);
    x->k = draws((size_t)n * HD);
    x->q = draws((size_t)INDEX_QUERIES * STRIDE);
    x->keys = (struct index_keys){ .strips = strips, .type = KV_F32, .hd = HD, .per = 1 };
    x->keys.at = aligned_alloc(64, cb_strips_bytes(HD, n) + (size_t)n * HD * sizeof(float));
    x->choice = cb_state_new(sizeof *x->choice);
    ck_assert(x->choice && !cb_index_choice_open(x->choice, x->choice, HEADS, HD, n, k));
}

static void put(struct made *x)
{
    cb_index_keys_put(&x->keys, x->a.dev, x->k, HD, x->n, 0);
}

static void unmake(struct made *x)
{
    cb_state_free(x->choice);
    cb_device_close(x->a.dev);
    free(x->keys.at);
    free(x->k);
    free(x->q);
}

/* The k best of the first n keys for query i -> list[k] */
static void choose(struct made *x, int i, int m, const int *n, int k, int32_t *list)
{
    const float *q = x->q + (size_t)i * STRIDE;
    const struct index_queries some = { q, q + HEADS * HD, STRIDE, m };

    cb_index_choose(x->choice, &x->a, &x->keys, &some, n, k, list, (size_t)k);
}

static const double *by; /* scores that order() compares */

static int order(const void *a, const void *b)
{
    const int i = *(const int *)a, j = *(const int *)b;

    return by[i] != by[j] ? (by[i] < by[j]) - (by[i] > by[j]) : i - j;
}

/* How many of list[k] are among the k best of n keys in double precision */
static int right(const struct made *x, int i, int n, int k, const int32_t *list)
{
    const float *q = x->q + (size_t)i * STRIDE, *w = q + HEADS * HD;
    double *score = malloc((size_t)n * sizeof *score);
    int *best = malloc((size_t)n * sizeof *best), m = 0;
    char *in = calloc((size_t)n, 1);

    for (int j = 0; j < n; j++) {
        score[j] = 0;
        best[j] = j;
        for (int h = 0; h < HEADS; h++) {
            double dot = 0;
            for (int c = 0; c < HD; c++)
                dot += (double)q[h * HD + c] * (double)x->k[j * HD + c];
            score[j] += (double)w[h] * fmax(dot, 0);
        }
    }
    by = score;
    qsort(best, (size_t)n, sizeof *best, order);
    for (int j = 0; j < k; j++)
        in[best[j]] = 1;
    for (int j = 0; j < k; j++) {
        ck_assert(list[j] >= 0 && list[j] < n && (!j || list[j] > list[j - 1]));
        m += in[list[j]];
    }
    free(score), free(best), free(in);
    return m;
}

/* The overlap with the exact choice, which rounding keys and queries to 8 bits alone would leave
 * below 99.5% */
START_TEST(overlap)
{
    enum { N = 24000, K = 2048 };
    int32_t list[K];
    int n = N, same = 0;
    struct made x;

    make(&x, N, K, 1, 2);
    put(&x);
    for (int i = 0; i < 2; i++) {
        choose(&x, i, 1, &n, K, list);
        same += right(&x, i, n, K, list);
    }
    ck_assert_msg(same >= 0.999 * 2 * K, "%d of %d", same, 2 * K);
    unmake(&x);
}
END_TEST

/* Lengths next to k and to blocks, and small k, by strips and by floats */
START_TEST(lengths)
{
    static const int at[][2] = { { 40, 40 }, { 41, 40 }, { 127, 40 },  { 128, 40 },  { 129, 128 },
                                 { 700, 1 }, { 700, 3 }, { 700, 640 }, { 700, 699 }, { 700, 700 } };

    for (int strips = 0; strips < 2; strips++) {
        struct made x;
        make(&x, 700, 700, strips, 2);
        put(&x);
        for (size_t j = 0; j < sizeof at / sizeof *at; j++) {
            int32_t list[700];
            const int n = at[j][0], k = at[j][1];
            choose(&x, 3, 1, &n, k, list);
            ck_assert_int_ge(right(&x, 3, n, k, list), k - (k > 500));
        }
        unmake(&x);
    }
}
END_TEST

/* Of equal keys the earlier ones are chosen, wherever they lie. */
START_TEST(ties)
{
    for (int strips = 0; strips < 2; strips++) {
        int32_t list[50];
        const int n = 600;
        struct made x;
        make(&x, n, 50, strips, 2);
        for (int j = 1; j < n; j++)
            memcpy(x.k + j * HD, x.k, HD * sizeof *x.k);
        memcpy(x.q + HEADS * HD, (float[HEADS]){ 1 }, HEADS * sizeof *x.q);
        put(&x);
        choose(&x, 0, 1, &n, 50, list);
        for (int j = 0; j < 50; j++)
            ck_assert_int_eq(list[j], j);
        unmake(&x);
    }
}
END_TEST

/* A query alone and with others, on one thread and on three */
START_TEST(same_in_any_company)
{
    enum { N = 3000, K = 200 };
    static int32_t one[INDEX_QUERIES][K], all[INDEX_QUERIES][K];

    for (int strips = 0; strips < 2; strips++) {
        int n[INDEX_QUERIES];
        struct made x;
        make(&x, N, K, strips, 3);
        put(&x);
        for (int i = 0; i < INDEX_QUERIES; i++)
            n[i] = N - INDEX_QUERIES + i + 1;
        choose(&x, 0, INDEX_QUERIES, n, K, all[0]);
        unmake(&x);
        make(&x, N, K, strips, 1);
        put(&x);
        for (int i = 0; i < INDEX_QUERIES; i++)
            choose(&x, i, 1, n + i, K, one[i]);
        unmake(&x);
        ck_assert(!memcmp(one, all, sizeof one));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_choice");
    TCase *t = tcase_create("index_choice");

    tcase_set_timeout(t, 120);
    tcase_add_test(t, overlap);
    tcase_add_test(t, lengths);
    tcase_add_test(t, ties);
    tcase_add_test(t, same_in_any_company);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
