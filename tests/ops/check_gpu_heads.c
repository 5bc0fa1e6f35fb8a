/* SPDX-License-Identifier: MIT */
/* check_gpu_heads.c - tokens that an accelerator chooses by the largest logit of any head, and
 * attends to, against the reference. */
#include "against_ref.h"
#include "engine/session.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { KV = 3, GROUP = 9, GAP = 5, MANY = 8193 }; /* GAP: beyond a head's logits */

/* A token's attention over n entries of rows that the device has stored, and the choice of some */
struct token {
    int n_kv, n_head, hd, n, lo, n_cand, k, after, stride;
    uint8_t *rows[2]; /* [n_kv][n] keys and values of f16, each with guards */
    struct kv_run run[KV];
    float *q, *logit, *out; /* out is on the device */
    int32_t *idx;
};

static size_t head_bytes(const struct token *x)
{
    return (size_t)x->n * cb_kv_row_bytes(KV_F16, x->hd);
}

static void open_token(struct token *x, int c)
{
    const int group = 1 + below(c % 5 ? 4 : GROUP);
    float *row;

    *x = (struct token){ .n_kv = c % 4 == 1 ? 1 : 1 + below(KV), .hd = head_dims[c % 8] };
    x->n_head = c % 4 == 1 ? 1 : x->n_kv * group;
    x->after = 1 + below(20);
    x->lo = c % 3 ? 0 : below(9);
    x->n_cand = c % 20 == 8 ? MANY + below(MANY) : 2 + below(c % 4 ? 300 : 4000);
    x->k = 1 + below(x->n_cand - 1);
    x->n = x->lo + x->n_cand + x->after;
    x->stride = x->n + GAP;
    x->q = floats((size_t)(x->n_head * x->hd));
    make_whole(x->q, x->n_head * x->hd);
    x->logit = poisoned((size_t)(x->n_head * x->stride));
    x->idx = ints((size_t)(x->k + x->after));
    x->out = cb_device_alloc(dev, (size_t)(x->n_head * x->hd), sizeof *x->out);
    ck_assert_ptr_nonnull(x->out);
    row = floats((size_t)(x->n * x->hd));
    for (int v = 0; v < 2; v++) {
        x->rows[v] = malloc((size_t)x->n_kv * head_bytes(x));
        watch_areas(x->rows[v], x->n_kv, head_bytes(x), x->n, 1);
        for (int h = 0; h < x->n_kv; h++) {
            for (int i = 0; i < x->n * x->hd; i++)
                row[i] = uniform();
            make_whole(row, x->n * x->hd);
            dev->ops->kv_encode(dev, KV_F16, row, x->n, x->hd, x->hd,
                                x->rows[v] + (size_t)h * head_bytes(x));
        }
    }
    free(row);
    for (int h = 0; h < x->n_kv; h++)
        x->run[h] = (struct kv_run){ .k = x->rows[0] + (size_t)h * head_bytes(x),
                                     .v = x->rows[1] + (size_t)h * head_bytes(x),
                                     .n = x->n,
                                     .logit = x->logit + h * x->n_head / x->n_kv * x->stride };
}

static void close_token(struct token *x)
{
    for (int v = 0; v < 2; v++) {
        watch_areas(x->rows[v], x->n_kv, head_bytes(x), x->n, 0);
        free(x->rows[v]);
    }
    cb_device_free(dev, x->out);
    free(x->q), free(x->logit), free(x->idx);
}

static void attend(struct device *d, const struct token *x, const struct kv_run *run, float *out)
{
    const struct attn a = { .n_tok = 1,
                            .n_head = x->n_head,
                            .n_kv = x->n_kv,
                            .hd = x->hd,
                            .scale = 1.0f / 64,
                            .type_k = KV_F16,
                            .type_v = KV_F16,
                            .run = run,
                            .q = x->q,
                            .q_stride = x->n_head * x->hd,
                            .logit_stride = x->stride,
                            .logit_later = 1,
                            .out = out };

    d->ops->attention(d, &a, 1);
}

/* Attention to the list, by the device before the host has it, and by the reference */
static void attend_to_list(const struct token *x, float *got)
{
    struct kv_run run[KV];

    for (int h = 0; h < x->n_kv; h++) {
        run[h] = x->run[h];
        run[h].idx = x->idx;
        run[h].n = x->k + x->after;
        run[h].logit = NULL;
    }
    attend(got ? ref : dev, x, run, got ? got : x->out);
}

/* The list is that of the reference's scores: to the token where all of these are exact */
static void same_tokens(const struct token *x, int normed)
{
    const size_t n = (size_t)x->n_cand;
    float *score = poisoned(n), *out = poisoned((size_t)(x->n_head * x->hd)), least = INFINITY;
    int32_t *best = malloc((size_t)x->k * sizeof *best);

    attend(ref, x, x->run, out);
    ref->ops->best_head(ref, x->logit + x->lo, x->stride, x->n_head, x->n_cand, normed, score);
    ref->ops->topk(ref, score, x->n_cand, x->k, best);
    for (int i = 0; i < x->k; i++)
        least = fminf(least, score[best[i]]);
    for (int i = 0; i < x->k; i++) {
        const int j = x->idx[i] - x->lo;
        ck_assert(j >= 0 && j < x->n_cand && (!i || x->idx[i] > x->idx[i - 1]));
        ck_assert_float_ge(score[j], least - 1e-5f * (1 + fabsf(least)));
        ck_assert(j == best[i] || (normed && x->n_head > 1));
    }
    free(score), free(out), free(best);
}

/* Attention leaves its logits on the device, which chooses the best candidates and attends to them,
 * while the host knows nothing of either. */
START_TEST(a_device_chooses_the_best_tokens)
{
    if (!open_isa(_i, 3))
        return;
    seed = 88172645463325252ULL;
    for (int c = 0; c < cb_test_cases(40); c++) {
        const int normed = c % 2;
        struct token x;
        struct device_traffic t;
        float *got, *want;
        open_token(&x, c);
        ck_assert_ok(cb_device_wait(dev));
        const struct head_topk choice = { .logit = x.logit + x.lo,
                                          .n_head = x.n_head,
                                          .stride = x.stride,
                                          .n = x.n_cand,
                                          .normed = normed,
                                          .lo = x.lo,
                                          .k = x.k,
                                          .idx = x.idx,
                                          .after = x.after };
        t = cb_device_traffic(dev);
        memset(x.idx, 0xff, (size_t)x.k * sizeof *x.idx);
        for (int i = 0; i < x.after; i++)
            x.idx[x.k + i] = x.lo + x.n_cand + i;
        attend(dev, &x, x.run, x.out);
        ck_assert_int_eq(dev->ops->head_topk(dev, &choice), 1);
        attend_to_list(&x, NULL);
        attend_to_list(&x, NULL); /* another layer of the same rows */
        ck_assert_uint_eq(cb_device_traffic(dev).waits, t.waits);
        ck_assert_int_eq(x.idx[0], -1);
        ck_assert_ok(cb_device_wait(dev));
        ck_assert_uint_eq(cb_device_traffic(dev).out_bytes - t.out_bytes, (size_t)x.k * 4);
        ck_assert(isnan(*x.logit));
        same_tokens(&x, normed);
        got = poisoned((size_t)(x.n_head * x.hd)), want = poisoned((size_t)(x.n_head * x.hd));
        cb_device_copy(dev, got, x.out, (size_t)(x.n_head * x.hd) * sizeof *got);
        attend_to_list(&x, want);
        same("attention to the list", got, want, (size_t)(x.n_head * x.hd), 1e-4f);
        memset(x.logit, 0xff, sizeof *x.logit);
        attend(dev, &x, x.run, x.out); /* a wait brings logits that nobody asks for */
        ck_assert_ok(cb_device_wait(dev));
        ck_assert(!isnan(*x.logit));
        ck_assert_int_eq(dev->ops->head_topk(dev, &choice), 0); /* they are the host's */
        free(got), free(want);
        close_token(&x);
    }
}
END_TEST

/* ---- filter layers whose rows do not fit ---- */

static void count_choices(void *arg, enum cb_log_level level, const char *text)
{
    *(int *)arg += level == CB_LOG_NOTE && strstr(text, "a layer that chooses") != NULL;
}

/* A note says so; none does where they fit, and those of other layers do not. */
START_TEST(rows_of_filter_layers)
{
    const char *const device = cb_isa[ISA_FROM];

    for (int fits = 0; fits < 2; fits++) {
        int notes = 0;
        const struct cb_model_params on = { .device = device,
                                            .n_threads = 2,
                                            .working_set = fits ? 3 << 20 : 7 << 18,
                                            .log = count_choices,
                                            .log_arg = &notes };
        const struct cb_session_params p = { .n_ctx = 320,
                                             .chunk = 64,
                                             .type_k = "f32",
                                             .type_v = "f32",
                                             .policy = "omnikv:filter=0+1+2,budget=64" };
        struct tiny tiny = cb_tiny_small("llama");
        struct cb_session *s;
        tiny.hd = 32;
        tiny.n_layer = 20;
        tiny.n_ff = 1024;
        tiny.n_vocab = 2048;
        tiny.type = DT_F32;
        struct cb_model *m = cb_toy_model_with(&tiny, &on);
        ck_assert_ok(cb_session_open(m, &p, &s));
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 266, NULL));
        for (int i = 0; i < 5; i++)
            ck_assert_ok(cb_session_decode(s, cb_toy_text(m)[266 + i]));
        ck_assert_int_eq(notes, !fits);
        cb_session_close(s);
        cb_model_close(m);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("heads");
    TCase *tc = tcase_create("heads");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, a_device_chooses_the_best_tokens, ISA_FROM, ISA_TO);
    tcase_add_test(tc, rows_of_filter_layers);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
