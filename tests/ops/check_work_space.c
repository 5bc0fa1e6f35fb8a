/* SPDX-License-Identifier: MIT */
/* check_work_space.c - calls that fill their work space. A session with chunks of one token
 * reserves it for one query, and observation windows call attention with more; gate and up
 * projections share the room of unpacked weights. Guard pages show who writes past the end. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kit/guard.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "par/affinity.h"
#include "par/par.h"

enum { N_HEAD = 16, N_KV = 2, HD = 64, MOST_TOK = 40, N_SLOT = 16384 / CB_SLOWED };

static float *random_floats(size_t n)
{
    float *x = cb_guarded(n * sizeof *x);
    uint32_t state = 5;

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 0x1p-30f;
    }
    return x;
}

/* Attention of n_tok queries on a device that reserved for `reserved` of them -> out, lse. With
 * apart, each query is a call of its own, and the calls share a loop. */
static int attend(int isa, int reserved, int n_tok, int apart, const float *kv, const float *q,
                  float *out, float *lse)
{
    struct device *d =
        reserved == 1 && n_tok == 1 ? cb_isa_open_or_skip(isa, 2) : cb_isa_open(isa, 2);
    struct kv_run run[MOST_TOK][N_KV];
    struct attn call[MOST_TOK];
    const struct attn a = { .n_tok = n_tok,
                            .n_head = N_HEAD,
                            .n_kv = N_KV,
                            .hd = HD,
                            .scale = 0.125f,
                            .causal = 1,
                            .type_k = KV_F32,
                            .type_v = KV_F32,
                            .run = run[0],
                            .q = q,
                            .q_stride = N_HEAD * HD,
                            .out = out,
                            .lse = lse };

    if (!d)
        return 0;
    for (int i = 0; i < n_tok; i++) {
        call[i] = a;
        call[i].n_tok = 1;
        call[i].run = run[i];
        call[i].q = q + (size_t)i * N_HEAD * HD;
        call[i].out = out + (size_t)i * N_HEAD * HD;
        call[i].lse = lse + (size_t)i * N_HEAD;
        for (int h = 0; h < N_KV; h++)
            run[i][h] = (struct kv_run){ .k = kv,
                                         .v = kv + HD,
                                         .n = apart ? N_SLOT - n_tok + 1 + i : N_SLOT };
    }
    ck_assert_int_ge(d->ops->reserve(d, reserved, HD, HD, N_HEAD, HD, N_SLOT), 0);
    d->ops->attention(d, apart ? call : &a, apart ? n_tok : 1);
    cb_device_close(d);
    return 1;
}

START_TEST(more_queries_than_a_chunk_fit)
{
    const size_t n = (size_t)MOST_TOK * N_HEAD;
    float *kv = random_floats((size_t)(N_SLOT + 1) * HD), *q = random_floats(n * HD);
    float *out = cb_guarded(2 * n * HD * sizeof *out), *lse = cb_guarded(2 * n * sizeof *lse);
    static const int n_tok[] = { 1, 3, 8, 9, MOST_TOK };

    for (size_t i = 0; i < sizeof n_tok / sizeof *n_tok; i++) {
        const size_t rows = (size_t)n_tok[i] * N_HEAD;
        if (!attend(_i, 1, n_tok[i], 0, kv, q, out, lse))
            break;
        ck_assert(attend(_i, MOST_TOK, n_tok[i], 0, kv, q, out + n * HD, lse + n));
        ck_assert(!memcmp(out, out + n * HD, rows * HD * sizeof *out));
        ck_assert(!memcmp(lse, lse + n, rows * sizeof *lse));
    }
    free(kv);
    free(q);
    free(out);
    free(lse);
}
END_TEST

START_TEST(more_calls_than_fit_together)
{
    const size_t n = (size_t)MOST_TOK * N_HEAD;
    float *kv = random_floats((size_t)(N_SLOT + 1) * HD), *q = random_floats(n * HD);
    float *out = cb_guarded(2 * n * HD * sizeof *out), *lse = cb_guarded(2 * n * sizeof *lse);

    if (attend(_i, 1, MOST_TOK, 1, kv, q, out, lse)) {
        ck_assert(attend(_i, MOST_TOK, MOST_TOK, 1, kv, q, out + n * HD, lse + n));
        ck_assert(!memcmp(out, out + n * HD, n * HD * sizeof *out));
        ck_assert(!memcmp(lse, lse + n, n * sizeof *lse));
    }
    free(kv);
    free(q);
    free(out);
    free(lse);
}
END_TEST

/* Each of the two matrices alone would fill the room of a thread's unpacked weights. Attention with
 * heads this small needs hardly more. */
START_TEST(gate_and_up_share_the_room)
{
    enum { IN = 256, OUT = 2048, TOK = 64 };
    struct device *d = cb_isa_open_or_skip(_i, 1);
    float *x = random_floats(TOK * IN), *from = random_floats((size_t)OUT * IN), *y[3];
    const size_t bytes = cb_row_bytes(DT_Q8_0, (int64_t)OUT * IN);
    struct weight w[2];

    for (int i = 0; i < 3; i++)
        y[i] = cb_guarded((size_t)TOK * OUT * sizeof *y[i]);
    for (int i = 0; d && i < 2; i++) {
        void *raw = cb_guarded(bytes);
        cb_dtype[DT_Q8_0].from_f32(from, raw, (int64_t)OUT * IN);
        w[i] =
            (struct weight){ .name = "w", .type = DT_Q8_0, .n_in = IN, .n_out = OUT, .raw = raw };
        ck_assert_int_eq(d->ops->load(d, &w[i]), 0);
    }
    if (d) {
        const struct mm both[] = { { &w[0], NULL, y[0], OUT, 0, 0 },
                                   { &w[1], NULL, y[1], OUT, 0, 0 } };
        const struct mm one = { &w[0], NULL, y[2], OUT, 0, 0 };
        ck_assert_int_ge(d->ops->reserve(d, TOK, IN, OUT, 1, 32, 1), 0);
        d->ops->matmul_glu(d, both, ACT_SILU, x, TOK);
        d->ops->matmul(d, &one, 1, x, TOK);
        d->ops->glu(d, ACT_SILU, y[2], y[2], OUT, TOK);
        for (int i = 0; i < TOK * OUT; i++)
            ck_assert_float_eq_tol(y[0][i], y[2][i], 1e-3f * (1 + fabsf(y[2][i])));
        for (int i = 0; i < 2; i++) {
            d->ops->unload(d, &w[i]);
            free((void *)(uintptr_t)w[i].raw);
        }
        cb_device_close(d);
    }
    for (int i = 0; i < 3; i++)
        free(y[i]);
    free(x);
    free(from);
}
END_TEST

/* A device with any number of threads, which do not compute */
static struct device *crowded(int isa, int n_thread)
{
    static struct device d;
    struct affinity affinity = { .n_threads = n_thread, .n_node = 1 };
    const struct device_want want = { .isa = cb_isa[isa] };

    affinity.node = calloc((size_t)n_thread, sizeof *affinity.node);
    ck_assert_ptr_nonnull(affinity.node);
    d = (struct device){ .name = "cpu" };
    ck_assert_int_eq(cb_par_new_at(&affinity, &d.par), 0);
    if (!cb_backend_cpu.open(&d, &want))
        return &d;
    cb_par_free(d.par);
    return NULL;
}

/* Work space of a session, by threads. Only a part of attention's grows with the context, and the
 * threads share most of it; a thread more costs no more than its panels and tiles. The table is in
 * the log. */
START_TEST(threads_share_the_room_of_long_contexts)
{
    static const int n_thread[] = { 1, 2, 8, 64, 256 }, n_ctx[] = { 4096, 131072 };
    static const struct {
        const char *name;
        int dim, ffn, n_head, hd;
        int most_kib; /* of a thread more */
    } shape[] = { { "0.5B", 896, 4864, 14, 64, 560 },
                  { "8B", 4096, 14336, 32, 128, 700 },
                  { "70B", 8192, 28672, 64, 128, 700 } };

    for (int s = 0; s < 3; s++)
        for (int c = 0; c < 2; c++) {
            int64_t bytes[5];

            printf("%-10s %4s, %6d tokens, MB:", cb_isa[_i], shape[s].name, n_ctx[c]);
            for (int i = 0; i < 5; i++) {
                struct device *d = crowded(_i, n_thread[i]);
                if (!d)
                    return;
                bytes[i] = d->ops->reserve(d, 512, shape[s].ffn, shape[s].ffn, shape[s].n_head,
                                           shape[s].hd, n_ctx[c]);
                printf(" %d threads %.1f", n_thread[i], (double)bytes[i] / 1e6);
                cb_backend_cpu.close(d);
                cb_par_free(d->par);
                ck_assert_int_gt(bytes[i], 0);
            }
            printf("; a thread more %.2f\n", (double)(bytes[4] - bytes[3]) / 192e6);
            for (int i = 1; i < 5; i++)
                ck_assert_int_le((bytes[i] - bytes[0]) / (n_thread[i] - 1),
                                 (int64_t)shape[s].most_kib << 10);
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("work space");
    TCase *t = tcase_create("all");

    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, more_queries_than_a_chunk_fit, 0, N_ISA);
    tcase_add_loop_test(t, more_calls_than_fit_together, 0, N_ISA);
    tcase_add_loop_test(t, gate_and_up_share_the_room, 0, N_ISA_MM);
    tcase_add_loop_test(t, threads_share_the_room_of_long_contexts, 0, N_ISA);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
