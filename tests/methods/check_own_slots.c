/* SPDX-License-Identifier: MIT */
/* check_own_slots.c - methods with a choice for each query head (group=each) beside the published
 * form: a model whose keys and values are repeated, so that each query head has a KV head of its
 * own. Both compute the same. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/reader.h"
#include "kit/suite.h"
#include "kit/toy.h"

enum { LAYERS = 3, HQ = 6, HKV = 2, D = 32, PROMPT = 90, STEPS = 12, SECOND = 20, MORE = 4 };
enum { N = PROMPT + STEPS + SECOND + MORE, OUT = LAYERS * HQ * D };

static const struct {
    const char *own, *repeated;
    int again; /* 1: a second prompt chooses alike; pooling would reach over other heads' slots */
    int keep;  /* slots of a query head in layer 0 */
} rows[] = {
    { "snapkv:budget=24,window=8,group=each", "snapkv:budget=24,window=8", 0, 24 },
    { "snapkv:budget=24,window=8,kernel=1,group=each", "snapkv:budget=24,window=8,kernel=1", 1,
      24 },
    { "snapkv:budget=0.3,window=8,kernel=1,sink=3,group=each",
      "snapkv:budget=0.3,window=8,kernel=1,sink=3", 1, 27 },
    { "snapkv:budget=24,window=8,pool=max,tie=index,group=each",
      "snapkv:budget=24,window=8,pool=max,tie=index", 0, 24 },
    { "pyramidkv:budget=24,beta=3,kernel=1,group=each", "pyramidkv:budget=24,beta=3,kernel=1", 1,
      35 },
};
enum { N_ROW = sizeof rows / sizeof *rows };

static const struct hparams grouped = {
    .n_layer = LAYERS, .n_head = HQ, .n_kv = HKV, .hd = D, .n_ctx_train = N
};

/* Each query head's own copy of its KV head */
static void repeat(const struct toy *from, struct toy *to)
{
    const int group = HQ / HKV;

    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < N; i++) {
            const float *x = cb_toy_row((struct toy *)(uintptr_t)from, l, i);
            float *y = cb_toy_row(to, l, i);
            memcpy(y, x, HQ * D * sizeof *y);
            for (int h = 0; h < HQ; h++)
                for (int v = 0; v < 2; v++)
                    memcpy(y + (HQ + v * HQ + h) * D, x + (HQ + v * HKV + h / group) * D,
                           D * sizeof *y);
        }
}

static void open_both(struct toy *t, int row, const char *device, const char *type)
{
    struct hparams repeated = grouped;

    repeated.n_kv = HQ;
    cb_toy_open(&t[0], device, 2, &grouped, N, rows[row].own, type, type, 5);
    cb_toy_open(&t[1], device, 2, &repeated, N, rows[row].repeated, type, type, 5);
    repeat(&t[0], &t[1]);
}

static void alike(const float *a, const float *b, int n, double tol, const char *when)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs((double)a[i] - (double)b[i]) <= tol, "%s: [%d] is %g, not %g", when, i,
                      (double)a[i], (double)b[i]);
}

/* A KV head holds exactly what its query heads hold. */
static void same_tokens(const struct toy *t, int l)
{
    const struct store *own = &t[0].s->bank.store[l], *one = &t[1].s->bank.store[l];

    for (int kv = 0; kv < HKV; kv++) {
        char held[N] = { 0 };
        int n = 0;
        for (int h = kv * (HQ / HKV); h < (kv + 1) * (HQ / HKV); h++)
            for (int i = 0; i < one->n[h]; i++)
                held[cb_store_pos(one, h, i)] = 1;
        for (int i = 0; i < N; i++)
            n += held[i];
        ck_assert_int_eq(own->n[kv], n);
        for (int i = 0; i < n; i++)
            ck_assert(held[cb_store_pos(own, kv, i)]);
    }
}

static const struct {
    const char *device, *type;
    double tol;
} machine[] = { { "ref", "f32", 1e-6 }, { "cpu", "f32", 1e-5 }, { "cpu", "f16", 2e-3 } };
enum { N_MACHINE = sizeof machine / sizeof *machine };

START_TEST(as_if_each_query_head_had_a_kv_head)
{
    const int row = _i / N_MACHINE, on = _i % N_MACHINE;
    static float out[2][LAYERS * PROMPT * HQ * D];
    struct toy t[2];

    open_both(t, row, machine[on].device, machine[on].type);
    for (int i = 0; i < 2; i++)
        cb_toy_prompt(&t[i], PROMPT, 16, out[i]);
    alike(out[0], out[1], PROMPT * OUT, machine[on].tol, "prompt");
    ck_assert_int_eq(t[1].s->bank.store[0].n[0], rows[row].keep);
    ck_assert_int_gt(t[0].s->bank.store[0].n[0], rows[row].keep);
    for (int l = 0; l < LAYERS; l++)
        same_tokens(t, l);
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < 2; i++)
            cb_toy_decode(&t[i], out[i]);
        alike(out[0], out[1], OUT, machine[on].tol, "generated token");
    }
    for (int i = 0; i < 2; i++)
        cb_toy_prompt(&t[i], SECOND, 7, out[i]);
    alike(out[0], out[1], SECOND * OUT, machine[on].tol, "second prompt");
    for (int k = 0; rows[row].again && k < MORE; k++) {
        for (int i = 0; i < 2; i++)
            cb_toy_decode(&t[i], out[i]);
        alike(out[0], out[1], OUT, machine[on].tol, "after the second prompt");
        for (int l = 0; l < LAYERS; l++)
            same_tokens(t, l);
    }
    for (int i = 0; i < 2; i++)
        cb_toy_close(&t[i]);
}
END_TEST

/* In a later prompt, scores of slots that a query head does not read are no votes of it. */
START_TEST(unread_slots_have_no_score)
{
    static float score[HQ][N];
    struct toy t;

    cb_toy_open(&t, "cpu", 1, &grouped, N, rows[0].own, "f16", "f16", 5);
    cb_toy_prompt(&t, PROMPT, 16, NULL);
    for (int h = 0; h < HQ; h++)
        for (int i = 0; i < N; i++)
            score[h][i] = 1;
    t.s->attention.layer[1]->r->mask(&t.s->attention, 1, score[0]);
    for (int h = 0; h < HQ; h++) {
        int n = 0;
        for (int i = 0; i < t.s->bank.store[1].n[h / (HQ / HKV)]; i++)
            n += score[h][i] > 0;
        ck_assert_int_eq(n, rows[0].keep);
    }
    cb_toy_close(&t);
}
END_TEST

/* With one query head a KV head, group=each is group=mean; the mean of one row is that row. */
START_TEST(one_query_head_needs_no_columns)
{
    struct hparams hp = grouped;
    static float out[2][OUT];

    hp.n_kv = HQ;
    for (int i = 0; i < 2; i++) {
        struct toy t;
        cb_toy_open(&t, "cpu", 1, &hp, N, i ? rows[0].own : rows[0].repeated, "f16", "f16", 5);
        ck_assert_int_eq(t.s->policy->slot_floats, 0);
        cb_toy_prompt(&t, PROMPT, 16, NULL);
        cb_toy_decode(&t, out[i]);
        cb_toy_close(&t);
    }
    ck_assert(!memcmp(out[0], out[1], sizeof out[0]));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("own slots");
    TCase *t = tcase_create("all");

    suite_add_tcase(s, t);
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, as_if_each_query_head_had_a_kv_head, 0, N_ROW * N_MACHINE);
    tcase_add_test(t, unread_slots_have_no_score);
    tcase_add_test(t, one_query_head_needs_no_columns);
    return cb_suite_run(s);
}
