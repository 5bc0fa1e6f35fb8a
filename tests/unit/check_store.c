/* SPDX-License-Identifier: MIT */
/* check_store.c - slots keep their keys, values, positions and columns through appends and drops,
 * and memory comes and goes with them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bank/bank.h"
#include "bank/pages.h"
#include "bank/store_areas.h"
#include "ctxbank.h"
#include "kit/inside.h"
#include "kit/resident.h"

enum { N_KV = 2, HD = 32, CAP = 100000 };

static struct device *dev;

/* a value that tells token, head, element and which of K and V */
static float mark(int tok, int h, int d, int v)
{
    return (float)(tok % 1000) + 0.25f * (float)(h + 2 * v) + (float)d * 1000;
}

static void append(struct store *s, int pos0, int n)
{
    const int row = N_KV * HD;
    float *k = malloc(sizeof(float) * (size_t)(n * row)),
          *v = malloc(sizeof(float) * (size_t)(n * row));

    for (int i = 0; i < n * row; i++) {
        k[i] = mark(pos0 + i / row, i % row / HD, i % HD, 0);
        v[i] = mark(pos0 + i / row, i % row / HD, i % HD, 1);
    }
    ck_assert_int_eq(cb_store_append(s, dev, k, v, row, n, pos0), 0);
    free(k);
    free(v);
}

/* slot of head h holds token `tok` */
static void expect(const struct store *s, int h, int slot, int tok)
{
    float x[HD];

    ck_assert_int_eq(cb_store_pos(s, h, slot), tok);
    for (int v = 0; v < 2; v++) {
        cb_store_get(s, dev, h, v, slot, x);
        for (int d = 0; d < HD; d++)
            ck_assert_float_eq(x[d], mark(tok, h, d, v));
    }
}

START_TEST(appended_tokens_are_found)
{
    struct store s;

    ck_assert_int_eq(cb_store_open(&s, N_KV, HD, CAP, KV_F32, KV_F32, 0), 0);
    append(&s, 0, 7);
    append(&s, 7, 1);
    for (int h = 0; h < N_KV; h++)
        for (int i = 0; i < 8; i++)
            expect(&s, h, i, i);
    ck_assert_uint_eq(cb_store_bytes(&s), 8 * N_KV * HD * 4 * 2);
    cb_store_close(&s);
}
END_TEST

START_TEST(heads_keep_different_tokens)
{
    static const int first[] = { 0, 1, 4, 5, 6, 9 }, second[] = { 2, 3, 9 };
    struct store s;

    ck_assert_int_eq(cb_store_open(&s, N_KV, HD, CAP, KV_F32, KV_F32, 1), 0);
    append(&s, 0, 10);
    for (int i = 0; i < 10; i++)
        s.col[i] = (float)i;
    ck_assert_int_eq(cb_store_keep(&s, 0, first, 6), 0);
    ck_assert_int_eq(cb_store_keep(&s, 1, second, 3), 0);
    append(&s, 10, 2);
    for (int i = 0; i < 6; i++) {
        expect(&s, 0, i, first[i]);
        ck_assert_float_eq(s.col[i], (float)first[i]);
    }
    ck_assert_float_eq(s.col[6], 0); /* a new slot's columns start at nothing */
    for (int i = 0; i < 3; i++)
        expect(&s, 1, i, second[i]);
    expect(&s, 0, 7, 11);
    expect(&s, 1, 3, 10);
    ck_assert_int_eq(cb_store_max_len(&s), 8);
    ck_assert_int_eq(cb_store_min_len(&s), 5);
    cb_store_close(&s);
}
END_TEST

START_TEST(memory_grows_with_use_and_comes_back)
{
    const long mib = 1 << 20;
    static int keep[16];
    struct store s;
    long before, used;

    ck_assert_int_eq(cb_store_open(&s, N_KV, HD, CAP, KV_F32, KV_F32, 0), 0);
    append(&s, 0, 100); /* what the heap needs for its own */
    before = cb_resident_bytes();
    for (int i = 0; i < 50; i++)
        append(&s, 100 + 1000 * i, 1000);
    used = cb_resident_bytes() - before; /* 50,000 tokens x 512 bytes = 24.4 MiB */
    ck_assert_int_ge(used, 24 * mib);
    ck_assert_int_le(used, 30 * mib);
    for (int i = 0; i < 16; i++)
        keep[i] = 3000 * i;
    for (int h = 0; h < N_KV; h++)
        ck_assert_int_eq(cb_store_keep(&s, h, keep, 16), 0);
    ck_assert_int_le(cb_resident_bytes() - before, 4 * mib); /* positions: 0.4 MiB */
    expect(&s, 1, 15, 45000);
    cb_store_close(&s);
}
END_TEST

/* Slots read together are those read one by one. */
static void expect_many(const struct store *s, int h, int from)
{
    static float x[CB_STORE_MANY * HD], y[HD];
    int slot[CB_STORE_MANY];

    for (int i = 0; i < CB_STORE_MANY; i++)
        slot[i] = from + 2 * i;
    for (int v = 0; v < 2; v++) {
        cb_store_get_many(s, dev, h, v, slot, CB_STORE_MANY, x);
        for (int i = 0; i < CB_STORE_MANY; i++) {
            cb_store_get(s, dev, h, v, slot[i], y);
            ck_assert_mem_eq(x + i * HD, y, sizeof y);
        }
    }
}

/* one slot at a time goes, by a list of the others (_i = 0) or by itself; every kept token stays
 * what it was, and its row is where it was */
START_TEST(single_slots_are_dropped)
{
    enum { N = 400, STEPS = 500 };
    struct store s;
    int keep[N];

    ck_assert_int_eq(cb_store_open(&s, N_KV, HD, CAP, KV_F32, KV_F32, 1), 0);
    append(&s, 0, N);
    for (int t = 0; t < STEPS; t++) {
        append(&s, N + t, 1);
        for (int h = 0; h < N_KV; h++) {
            const int drop = (7 + 31 * h) % N;
            for (int i = 0, m = 0; i < N + 1; i++)
                if (i != drop)
                    keep[m++] = i;
            s.col[((size_t)h * CAP) + N] = (float)(N + t);
            ck_assert_int_eq(_i ? cb_store_drop(&s, h, drop) : cb_store_keep(&s, h, keep, N), 0);
            ck_assert_int_eq(s.rows[h], N + 1); /* the hole, which the next token takes */
        }
    }
    for (int h = 0; h < N_KV; h++)
        for (int i = 0; i < N; i++) {
            const int first = (7 + 31 * h) % N; /* slots before it never moved */
            const int tok = i < first ? i : i + STEPS;
            expect(&s, h, i, tok);
            if (tok >= N)
                ck_assert_float_eq(s.col[(size_t)h * CAP + (size_t)i], (float)tok);
        }
    ck_assert(s.mixed[0] && s.mixed[1]);
    expect_many(&s, 1, 30);
    cb_store_sort(&s);
    ck_assert_ptr_null(cb_store_run(&s, 1, 0, N).idx);
    expect(&s, 1, N - 1, N + STEPS - 1);
    append(&s, N + STEPS, 1);
    expect(&s, 0, N, N + STEPS);
    cb_store_close(&s);
}
END_TEST

START_TEST(a_cut_to_nothing_starts_afresh)
{
    static const int keep[] = { 5, 7 };
    struct store s;

    ck_assert_int_eq(cb_store_open(&s, N_KV, HD, CAP, KV_F32, KV_F32, 0), 0);
    append(&s, 0, 10);
    for (int h = 0; h < N_KV; h++)
        ck_assert_int_eq(cb_store_keep(&s, h, keep, 2), 0);
    cb_store_cut(&s, 0);
    append(&s, 0, 3);
    expect(&s, 0, 2, 2);
    ck_assert_ptr_null(s.pos);
    cb_store_close(&s);
}
END_TEST

/* ---- copies ---- */

enum { PLAIN, KEPT, MIXED, KIVI, KIVI_KEPT, GAP, N_STATES };

/* A store of some state, of n tokens fed. */
static void bring(struct store *s, int state, int n)
{
    static int keep[2000];
    const struct kivi_form form = { 4, 64, 0, 0 };
    const int kivi = state == KIVI || state == KIVI_KEPT;

    ck_assert_int_eq(cb_store_open(s, N_KV, HD, CAP, KV_F16, KV_F16, 1), 0);
    if (kivi)
        ck_assert_int_eq(cb_kivi_open(s, form, form), 0);
    append(s, 0, n);
    if (kivi)
        ck_assert_int_eq(cb_kivi_advance(s, dev), 0);
    for (int h = 0; h < N_KV; h++) {
        int m = 0;
        for (int i = 0; i < s->n[h]; i++)
            cb_store_col(s, h, 0)[i] = (float)(i * 3 + h);
        for (int i = 0; i < n; i++)
            if (i % (h + 2))
                keep[m++] = i;
        if (state == KEPT || state == KIVI_KEPT)
            ck_assert_int_eq(cb_store_keep(s, h, keep, m), 0);
        if (state == MIXED)
            ck_assert_int_eq(cb_store_drop(s, h, 5 + h), 0);
        if (state == GAP)
            cb_store_drop_keys(s, h, 100, 300);
    }
}

static void same_stores(const struct store *a, const struct store *b)
{
    float x[HD], y[HD];

    ck_assert_uint_eq(cb_store_bytes(a), cb_store_bytes(b));
    for (int h = 0; h < N_KV; h++) {
        ck_assert_int_eq(a->n[h], b->n[h]);
        for (int i = 0; i < a->n[h]; i++) {
            ck_assert_int_eq(cb_store_pos(a, h, i), cb_store_pos(b, h, i));
            ck_assert_float_eq(cb_store_col(a, h, 0)[i], cb_store_col(b, h, 0)[i]);
            for (int v = i >= a->gap_lo[h] && i < a->gap_hi[h]; v < 2; v++) {
                cb_store_get(a, dev, h, v, i, x);
                cb_store_get(b, dev, h, v, i, y);
                ck_assert_mem_eq(x, y, sizeof x);
            }
        }
    }
}

static void copy_store(struct store *to, const struct store *from)
{
    int32_t *counts = calloc((size_t)cb_store_n_counts(from), sizeof *counts);
    struct area *a = calloc((size_t)cb_store_most_areas(from), sizeof *a);
    struct area *b = calloc((size_t)cb_store_most_areas(from), sizeof *b);
    int n;

    cb_store_cut(to, 0);
    cb_store_counts(from, counts);
    ck_assert_int_eq(cb_store_set_counts(to, from->prepacker, counts), 0);
    n = cb_store_areas(from, 0, a);
    ck_assert_int_eq(cb_store_areas(to, 0, b), n);
    for (int i = 0; i < n; i++) {
        ck_assert(a[i].kind == b[i].kind && a[i].head == b[i].head && a[i].bytes == b[i].bytes);
        memcpy(b[i].at, a[i].at, a[i].bytes);
    }
    ck_assert_int_eq(cb_store_check_lists(to, 2000), 0);
    free(counts);
    free(a);
    free(b);
}

/* What goes on in one does not reach the other, and the same things give the same. */
START_TEST(copies_go_on_alone)
{
    struct store s, copy;

    bring(&s, _i, 700);
    bring(&copy, PLAIN, 3); /* whatever it held */
    if (_i == KIVI || _i == KIVI_KEPT) {
        cb_store_close(&copy);
        bring(&copy, KIVI_KEPT, 900);
    }
    copy_store(&copy, &s);
    same_stores(&s, &copy);
    for (int round = 0; round < 3; round++) {
        struct store *const both[] = { &s, &copy };
        for (int i = 0; i < 2; i++) {
            append(both[i], 700 + round, 1);
            if (both[i]->kivi)
                ck_assert_int_eq(cb_kivi_advance(both[i], dev), 0);
            for (int h = 0; h < N_KV && _i == MIXED; h++)
                ck_assert_int_eq(cb_store_drop(both[i], h, 9 * round + h), 0);
            if (!i && !round)
                ck_assert_int_eq(copy.n[0] + 1 - (_i == MIXED), s.n[0]);
        }
        same_stores(&s, &copy);
    }
    cb_store_close(&s);
    same_stores(&copy, &copy); /* reads all: nothing of it was the other's */
    cb_store_close(&copy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *t = tcase_create("slots");
    SRunner *r;
    int failed;

    if (cb_device_open("ref", 1, &dev)) {
        fprintf(stderr, "%s\n", cb_error());
        return EXIT_FAILURE;
    }
    suite_add_tcase(suite, t);
    tcase_add_test(t, appended_tokens_are_found);
    tcase_add_test(t, heads_keep_different_tokens);
    tcase_add_test(t, memory_grows_with_use_and_comes_back);
    tcase_add_loop_test(t, single_slots_are_dropped, 0, 2);
    tcase_add_test(t, a_cut_to_nothing_starts_afresh);
    tcase_add_loop_test(t, copies_go_on_alone, 0, N_STATES);
    r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    cb_device_close(dev);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
