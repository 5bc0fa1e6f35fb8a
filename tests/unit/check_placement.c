/* SPDX-License-Identifier: MIT */
/* check_placement.c - on which of two NUMA nodes pages come to lie, and whether the threads that
 * read them are there. The nodes are pretended: each item of a loop counts as done by a thread of
 * the node whose part it is in (check_par shows that threads take their node's part first). Pages
 * are protected, and a fault tells which node touches a page first. */
#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bank/store_state.h"
#include "device/device.h"
#include "engine/session.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/affinity.h"
#include "par/par.h"

enum { N_NODE = 2, MOST_PAGES = 1 << 16, MOST_AREAS = 8 };

/* ---- the node that works ---- */

static volatile sig_atomic_t node_now; /* outside loops that of the first thread */
static int n_loop;

void __wrap_cb_par_for(struct par *p, int n, par_fn fn, void *ctx);

void __wrap_cb_par_for(struct par *p, int n, par_fn fn, void *ctx)
{
    const int n_node = cb_par_nodes(p);

    n_loop += n > 1;                 /* others are the first thread's alone */
    for (int k = 0; k < n_node; k++) /* as in par.c */
        for (int i = (int)((int64_t)n * k / n_node); i < (int)((int64_t)n * (k + 1) / n_node);
             i++) {
            node_now = k;
            fn(ctx, i, k);
        }
    node_now = 0;
}

static struct par *nodes(int n)
{
    struct affinity affinity = { .n_threads = N_NODE, .n_node = n };
    struct par *p;

    affinity.node = calloc(N_NODE, sizeof *affinity.node);
    ck_assert_ptr_nonnull(affinity.node);
    for (int i = 0; i < N_NODE; i++)
        affinity.node[i] = i * n / N_NODE;
    ck_assert_int_eq(cb_par_new_at(&affinity, &p), 0);
    return p;
}

/* ---- who touches pages first ---- */

struct area {
    uintptr_t from;
    size_t n_page;
    signed char first[MOST_PAGES]; /* -1: nobody */
};

static struct area area[MOST_AREAS];
static int n_area;
static size_t page_bytes;

static void on_fault(int sig, siginfo_t *info, void *ctx)
{
    const uintptr_t at = (uintptr_t)info->si_addr;

    (void)ctx;
    for (int k = 0; k < n_area; k++)
        if (at >= area[k].from && at - area[k].from < area[k].n_page * page_bytes) {
            const size_t i = (at - area[k].from) / page_bytes;
            area[k].first[i] = (signed char)node_now;
            if (!mprotect((void *)(area[k].from + i * page_bytes), page_bytes,
                          PROT_READ | PROT_WRITE))
                return;
        }
    signal(sig, SIG_DFL); /* a real one */
}

static void watch(const void *p, size_t bytes)
{
    const struct sigaction catch = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
    struct area *a = &area[n_area];

    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    ck_assert_int_lt(n_area, MOST_AREAS);
    a->from = ((uintptr_t)p + page_bytes - 1) / page_bytes * page_bytes;
    a->n_page = ((uintptr_t)p + bytes - a->from) / page_bytes;
    ck_assert_uint_le(a->n_page, MOST_PAGES);
    memset(a->first, -1, sizeof a->first);
    n_area++;
    ck_assert_int_eq(sigaction(SIGSEGV, &catch, NULL), 0);
    ck_assert_int_eq(mprotect((void *)a->from, a->n_page * page_bytes, PROT_NONE), 0);
}

/* Ends the watch; where pages lie -> home[] */
static void let_go(int k, signed char *home)
{
    memcpy(home, area[k].first, area[k].n_page);
    ck_assert_int_eq(
        mprotect((void *)area[k].from, area[k].n_page * page_bytes, PROT_READ | PROT_WRITE), 0);
}

/* Pages whose reader is on the node where they lie, of those that lie anywhere and are read */
static double share_near(const signed char *home, const signed char *reader, size_t n,
                         int on_node[N_NODE])
{
    int near = 0, all = 0;

    on_node[0] = on_node[1] = 0;
    for (size_t i = 0; i < n; i++)
        if (home[i] >= 0 && reader[i] >= 0) {
            on_node[(int)home[i]]++;
            near += home[i] == reader[i];
            all++;
        }
    return all ? (double)near / all : 0;
}

/* ---- weights ---- */

/* Packed weights are allocated through here. */
void *__real_cb_slab_alloc(void *list, size_t bytes);
void *__wrap_cb_slab_alloc(void *list, size_t bytes);
static int watches_weights;

void *__wrap_cb_slab_alloc(void *list, size_t bytes)
{
    void *p = __real_cb_slab_alloc(list, bytes);

    if (p && watches_weights)
        watch(p, bytes);
    return p;
}

/* One token, a batch, and a prompt read each row of a matrix on the node that packed it. */
START_TEST(weights_lie_with_their_readers)
{
    enum { IN = 1024, OUT = 8192 };
    static const int n_tok[] = { 1, 5, 16, 100 }, bits[] = { 16, 16, 16, 0 };
    static signed char home[MOST_PAGES], reader[MOST_PAGES];
    const size_t bytes = cb_row_bytes(DT_Q4_0, (int64_t)IN * OUT);
    struct device d = { .name = "cpu", .par = nodes(N_NODE) };
    struct weight w = { .name = "w", .type = DT_Q4_0, .n_in = IN, .n_out = OUT };
    float *x = calloc((size_t)n_tok[_i] * IN, sizeof *x);
    float *y = calloc((size_t)n_tok[_i] * OUT, sizeof *y);
    const struct mm m = { &w, NULL, y, OUT, 0, bits[_i] };
    int on_node[N_NODE];
    double near;

    w.raw = calloc(1, bytes);
    ck_assert(x && y && w.raw);
    ck_assert_int_eq(cb_backend_cpu.open(&d, &(struct device_want){ .isa = NULL }), 0);
    ck_assert_int_ge(d.ops->reserve(&d, 128, IN, OUT, 1, 64, 1), 0);
    n_area = 0;
    watches_weights = 1;
    ck_assert_int_eq(d.ops->load(&d, &w), 0);
    watches_weights = 0;
    let_go(0, home);
    n_area = 0;
    watch(w.packed, w.packed_bytes);
    d.ops->matmul(&d, &m, 1, x, n_tok[_i]);
    let_go(0, reader);
    near = share_near(home, reader, area[0].n_page, on_node);
    printf("weights, %d tokens: %d and %d pages, %.1f%% near their readers\n", n_tok[_i],
           on_node[0], on_node[1], 100 * near);
    ck_assert_uint_eq((size_t)(on_node[0] + on_node[1]), area[0].n_page); /* all are read */
    ck_assert_int_lt(abs(on_node[0] - on_node[1]), (int)area[0].n_page / 50);
    ck_assert_double_gt(near, 0.93); /* one item is at the border */
    d.ops->unload(&d, &w);
    cb_backend_cpu.close(&d);
    cb_par_free(d.par);
    free((void *)(uintptr_t)w.raw);
    free(x);
    free(y);
}
END_TEST

/* ---- banks ---- */

static void watch_store(const struct store *st)
{
    n_area = 0;
    watch(st->k, st->head_k * (size_t)st->n_kv);
    watch(st->v, st->head_v * (size_t)st->n_kv);
}

/* Those who have read since then, against where the pages lie */
static void check_readers(const char *what, signed char home[2][MOST_PAGES])
{
    static signed char reader[MOST_PAGES];

    for (int v = 0; v < 2; v++) {
        int on_node[N_NODE];
        double near;

        let_go(v, reader);
        near = share_near(home[v], reader, area[v].n_page, on_node);
        printf("%s of %s: %d and %d pages, %.1f%% near their readers\n", v ? "values" : "keys",
               what, on_node[0], on_node[1], 100 * near);
        ck_assert_int_gt(on_node[0] + on_node[1], 100);
        ck_assert_int_le(abs(on_node[0] - on_node[1]), (on_node[0] + on_node[1]) / 10);
        ck_assert_double_gt(near, 0.95);
    }
}

/* Keys and values of each KV head lie on the node whose threads attend to that head, in a prompt
 * and in a decoded token. */
START_TEST(banks_lie_with_their_readers)
{
    enum { N_TOK = 4000 };
    static signed char home[2][MOST_PAGES];
    static int32_t ids[N_TOK];
    struct tiny tiny = cb_tiny_get("llama");
    struct cb_model *m;
    struct cb_session *s;
    const struct store *st;

    tiny.n_kv = tiny.n_head = 4;
    tiny.n_ctx = N_TOK + 100;
    m = cb_toy_model(&tiny, "cpu", 1);
    cb_par_free(m->dev->par);
    m->dev->par = nodes(N_NODE);
    s = cb_toy_session(m, "full", "f16", 0);
    st = &s->bank.store[tiny.n_layer - 1];
    for (int i = 0; i < N_TOK; i++)
        ids[i] = 3 + i * 7 % 50;
    watch_store(st);
    ck_assert(!cb_session_prefill(s, ids, N_TOK, NULL));
    for (int v = 0; v < 2; v++)
        let_go(v, home[v]);
    watch_store(st);
    ck_assert(!cb_session_prefill(s, ids, 20, NULL));
    check_readers("a prompt", home);
    watch_store(st);
    ck_assert(!cb_session_decode(s, 5));
    check_readers("a token", home);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Loops that threads share, at each of which they wait for one another. On one node q, k and v are
 * one, and so are gate and up. */
START_TEST(loops_of_a_token)
{
    struct tiny tiny = cb_tiny_get("llama");
    struct cb_model *m = cb_toy_model(&tiny, "cpu", 1);
    struct cb_session *s;

    cb_par_free(m->dev->par);
    m->dev->par = nodes(_i);
    s = cb_toy_session(m, "full", "f16", 0);
    ck_assert(!cb_session_prefill(s, (const int32_t[]){ 1, 2, 3 }, 3, NULL));
    n_loop = 0;
    ck_assert(!cb_session_decode(s, 5));
    printf("a token, %d nodes: %d loops of the threads, %d layers\n", _i, n_loop, tiny.n_layer);
    ck_assert_int_le(n_loop, (_i == 1 ? 5 : 8) * tiny.n_layer + 1);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("placement");
    TCase *t = tcase_create("all");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, weights_lie_with_their_readers, 0, 4);
    tcase_add_test(t, banks_lie_with_their_readers);
    tcase_add_loop_test(t, loops_of_a_token, 1, 3);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
