/* SPDX-License-Identifier: MIT */
/* check_gpu_lists.c - chosen rows that a CUDA device's kernels find and bring from the host's
 * memory, beside those that the host packs. */
#include "against_ref.h"
#include "engine/session.h"
#include "kit/device_answer.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/toy.h"

#define NAME (cb_isa[ISA_FROM])

enum { LAYERS = 6 };

/* How often the host has waited until all that was queued is done */
static int waits(const struct cb_session *s)
{
    struct device_traffic t;

    ck_assert(!cb_device_lock(s->dev));
    t = cb_device_traffic(s->dev);
    cb_device_unlock(s->dev);
    return (int)t.waits;
}

enum { LISTS = 30 };

/* The logits of LISTS tokens after a prompt whose rows fill some pages; the last ones follow a cut,
 * which takes rows back. */
static float *answer_of_lists(struct cb_model *m, const char *policy, struct cb_memory *mem,
                              int *waited)
{
    enum { HALF = 280, CUT = 22, STAYS = 18 };
    const struct cb_session_params p = {
        .n_ctx = 1024, .chunk = 64, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    const int32_t *text = cb_toy_text(m);
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = calloc(LISTS * n_vocab, sizeof *out);
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    for (int i = 0; i < 2; i++)
        ck_assert_ok(cb_session_prefill(s, text + i, HALF, NULL));
    for (int i = 0; i < LISTS; i++) {
        if (i == CUT)
            ck_assert_ok(cb_session_truncate(s, 2 * HALF + STAYS));
        *waited = waits(s);
        ck_assert_ok(cb_session_decode(s, text[7 * i]));
        *waited = waits(s) - *waited;
        memcpy(out + (size_t)i * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_memory(s, mem);
    cb_session_close(s);
    return out;
}

/* Kernels find the rows of lists on the device and bring the others from the host's memory, which
 * takes no packing, and fewer rows since those of older lists stay. Where the driver does not let
 * them, the bits are the same, unless the CPU attends to rows that layers read as a whole. */
START_TEST(rows_that_kernels_bring)
{
    static const char *const policy[] = { "sieve:budget=32,recent=16", "quest:budget=64,dense=0",
                                          "omnikv:filter=1,wait=1,budget=64" };
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 11 << 18 };
    struct cb_memory mem[2];
    float *out[2];
    int waited[2];
    size_t n = 0;

    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
        setenv("PRETEND_CUDA", refuse ? "fail=cuMemHostGetDevicePointer_v2:801" : "", 1);
        out[refuse] = answer_of_lists(m, policy[_i], &mem[refuse], &waited[refuse]);
        n = LISTS * (size_t)cb_n_vocab(m);
        cb_model_close(m);
    }
    unsetenv("PRETEND_CUDA");
    same("logits", out[0], out[1], n, mem[0].host_rows ? 1e-4f : 0);
    ck_assert_uint_gt(mem[0].device_gathered_rows_per_token, 0);
    ck_assert_uint_lt(mem[0].device_gathered_rows_per_token, mem[1].device_gathered_rows_per_token);
    ck_assert_uint_le(mem[0].device_gathers_per_token, LAYERS);
    if (_i < 2) { /* lists that the device has found stay there */
        ck_assert_int_le(waited[0], 4);
        ck_assert_int_ge(waited[1], LAYERS);
    }
    ck_assert_double_gt(mem[1].device_gather_s_per_token, 0);
    ck_assert_double_eq(mem[0].device_gather_s_per_token, 0);
    free(out[0]), free(out[1]);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lists");
    TCase *tc = tcase_create(NAME);

    if (!cb_isa_any() || !cb_isa_pretends())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, rows_that_kernels_bring, 0, 3);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
