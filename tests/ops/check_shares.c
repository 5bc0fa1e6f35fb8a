/* SPDX-License-Identifier: MIT */
/* check_shares.c - what each of 1 to 256 threads gets of the matrix products of models from 0.5 to
 * 70 billion parameters: how evenly the items of a loop are shared out. The table is in the log. No
 * product is computed, so the number of threads is any. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/matmul/pass.h"
#include "kit/suite.h"

struct shape {
    const char *name;
    int dim, ffn, kv, vocab;
};

static const struct shape shape[] = { { "0.5B", 896, 4864, 128, 151936 },
                                      { "1.5B", 1536, 8960, 256, 151936 },
                                      { "8B", 4096, 14336, 1024, 128256 },
                                      { "32B", 5120, 27648, 1024, 152064 },
                                      { "70B", 8192, 28672, 1024, 128256 } };

/* The calls of a layer, and the output head */
enum call { QKV, OUT, GATE, DOWN, HEAD, CALLS };
static const char *const call_name[CALLS] = { "qkv", "out", "gate", "down", "head" };

enum feed { DECODE, BATCH, PROMPT, PROMPT_TILES, FEEDS };
static const struct {
    const char *name;
    int n_tok, act16, panel, tile;
} feed[FEEDS] = { { "one token", 1, 1, 0, 6 },
                  { "16 sessions", 16, 1, 0, 16 },
                  { "prompt of 512", 512, 0, 1, 6 },
                  { "prompt of 512, AMX", 512, 0, 1, MM_MANY_TILE } };

static const int threads[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256 };
enum { N_THREAD = sizeof threads / sizeof *threads, N_SHAPE = sizeof shape / sizeof *shape };

static struct weight matrix(enum dtype t, int n_in, int n_out)
{
    struct weight w = { .name = "w", .type = t, .n_in = n_in, .n_out = n_out };

    w.packed_bytes = cb_mm_group_bytes(t, n_in) * (size_t)mm_n_group(&w);
    return w;
}

/* The matrices of a call -> their number */
static int matrices(const struct shape *s, enum call c, struct weight w[3])
{
    switch (c) {
    case QKV:
        w[0] = matrix(DT_Q4_K, s->dim, s->dim);
        w[1] = matrix(DT_Q4_K, s->dim, s->kv);
        w[2] = matrix(DT_Q6_K, s->dim, s->kv);
        return 3;
    case OUT:
        w[0] = matrix(DT_Q4_K, s->dim, s->dim);
        return 1;
    case GATE:
        w[0] = w[1] = matrix(DT_Q4_K, s->dim, s->ffn);
        return 1;
    case DOWN:
        w[0] = matrix(DT_Q6_K, s->ffn, s->dim);
        return 1;
    default:
        w[0] = matrix(DT_Q6_K, s->dim, s->vocab);
        return 1;
    }
}

struct share {
    double imbalance; /* of the thread that works longest, to an even share */
    int items;
    double least; /* imbalance of the smallest items that there could be */
};

/* With items of a group, two in a batch, or of a panel times 8 tiles */
static double least_imbalance(const struct pass *p, int n_thread)
{
    const int rows = p->use_panel ? p->k->panel_rows : MM_ROWS * (1 + p->batch);
    const int tiles = p->use_panel ? p->n_tile / 8 : 1;
    int n = 0;

    for (int i = 0; i < p->n_mm; i++)
        n += (p->mm[i].w->n_out + rows - 1) / rows * tiles;
    return (double)((n + n_thread - 1) / n_thread) * n_thread / n;
}

/* Threads take items in order, each as it comes free. Every row and tile is in one item. */
static struct share share_out(const struct pass *p, int n_thread)
{
    const int n = cb_pass_items(p);
    double *busy = calloc((size_t)n_thread, sizeof *busy), all = 0, last = 0;
    int64_t done = 0, want = 0;

    for (int i = 0; i < n; i++) {
        const struct pass_item it = cb_pass_item(p, i);
        const double cost = cb_pass_item_cost(p, &it);
        int next = 0;

        ck_assert(it.g0 < it.g1 && it.t0 < it.t1 && it.t1 <= p->n_tile);
        ck_assert_int_le(it.g1, mm_n_group(it.mm->w));
        done += (int64_t)(it.g1 - it.g0) * (it.t1 - it.t0);
        for (int t = 1; t < n_thread; t++)
            next = busy[t] < busy[next] ? t : next;
        busy[next] += cost;
        all += cost;
    }
    for (int i = 0; i < p->n_mm; i++)
        want += (int64_t)mm_n_group(p->mm[i].w) * p->n_tile;
    ck_assert_int_eq(done, want);
    for (int t = 0; t < n_thread; t++)
        last = busy[t] > last ? busy[t] : last;
    free(busy);
    return (struct share){ last * n_thread / all, n, least_imbalance(p, n_thread) };
}

static struct share share_of(const struct shape *s, enum call c, enum feed f, int n_thread)
{
    const struct cpu_kern *k = cb_cpu_choose(cb_cpu_features(), NULL);
    struct weight w[3];
    struct mm mm[3];
    const int n = matrices(s, c, w);
    struct pass p = { .k = k->mm,
                      .mm = mm,
                      .n_mm = n,
                      .n_in = w->n_in,
                      .n_set = 1,
                      .up = c == GATE ? &w[1] : NULL,
                      .n_tok = feed[f].n_tok,
                      .tile = feed[f].tile,
                      .act16 = feed[f].act16,
                      .batch = f == BATCH,
                      .use_panel = feed[f].panel };

    for (int i = 0; i < n; i++)
        mm[i] = (struct mm){ .w = &w[i] };
    p.n_tile = (p.n_tok + p.tile - 1) / p.tile;
    cb_pass_divide(&p, n_thread, NULL);
    return share_out(&p, n_thread);
}

START_TEST(threads_get_even_shares)
{
    const struct shape *s = &shape[_i % N_SHAPE];
    const enum feed f = (enum feed)(_i / N_SHAPE);
    double worst = 0;

    printf("%s, %s: time of the last thread to an even share (items)\n      ", s->name,
           feed[f].name);
    for (int t = 0; t < N_THREAD; t++)
        printf(" %9d", threads[t]);
    printf("\n");
    for (int c = 0; c < CALLS - (f >= PROMPT); c++) {
        printf("%-6s", call_name[c]);
        for (int t = 0; t < N_THREAD; t++) {
            const struct share r = share_of(s, (enum call)c, f, threads[t]);

            printf(" %4.2f %4d", r.imbalance, r.items);
            if (r.imbalance / r.least > worst)
                worst = r.imbalance / r.least;
        }
        printf("\n");
    }
    printf("worst %.2f\n", worst);
    ck_assert_double_lt(worst, 1.36);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shares");
    TCase *t = tcase_create("all");

    tcase_add_loop_test(t, threads_get_even_shares, 0, N_SHAPE * FEEDS);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
