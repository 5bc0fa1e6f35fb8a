/* SPDX-License-Identifier: MIT */
/* check_gpu_lists.c - chosen rows that a CUDA device's kernels find and bring from the host's
 * memory, beside those that the host packs. */
#include <sys/mman.h>
#include <unistd.h>

#include "against_ref.h"
#include "base/ints.h"
#include "engine/session.h"
#include "gpu/gpu.h"
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
 * which takes rows back. *waited: of a token, at most, among those before the cut that fill a page
 * and follow it, and the last one */
static float *answer_of_lists(struct cb_model *m, const char *policy, struct cb_memory *mem,
                              int *waited)
{
    enum { HALF = 280, FILLS = 15, CUT = 22, STAYS = 18 };
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
    *waited = 0;
    for (int i = 0; i < LISTS; i++) {
        int before;
        if (i == CUT)
            ck_assert_ok(cb_session_truncate(s, 2 * HALF + STAYS));
        before = waits(s);
        ck_assert_ok(cb_session_decode(s, text[7 * i]));
        if ((i >= FILLS && i < CUT) || i == LISTS - 1)
            *waited = max_int(*waited, waits(s) - before);
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

/* Where all rows are mirrored, lists that the device has found stay there as well: the answers are
 * those of a device that holds few of the rows. */
START_TEST(lists_of_mirrored_rows)
{
    static const char *const policy[] = { "sieve:budget=32,recent=16", "quest:budget=64,dense=0",
                                          "quest:budget=64,dense=0,group=each",
                                          "omnikv:filter=0+3,budget=64",
                                          "omnikv:filter=1,wait=1,budget=64,score=raw" };
    struct cb_memory mem[2];
    float *out[2];
    int waited[2];
    size_t n = 0;

    for (int little = 0; little < 2; little++) {
        const struct cb_model_params p = { .device = NAME,
                                           .n_threads = 2,
                                           .working_set = little ? 11 << 18 : 0 };
        struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
        out[little] = answer_of_lists(m, policy[_i], &mem[little], &waited[little]);
        n = LISTS * (size_t)cb_n_vocab(m);
        cb_model_close(m);
    }
    same("logits", out[0], out[1], n, 1e-4f);
    ck_assert_uint_eq(mem[0].device_gathered_rows_per_token, 0);
    ck_assert_int_le(waited[0], 4);
    free(out[0]), free(out[1]);
}
END_TEST

/* ---- rows on the disk ---- */

enum { ROWS = 8192, HD = 64, LIST = 128, CALLS = 40 };

static size_t pages_in_memory(void *at, size_t bytes)
{
    const size_t n = bytes / (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *in = calloc(n, 1);
    size_t is = 0;

    ck_assert(!mincore(at, bytes, in));
    for (size_t i = 0; i < n; i++)
        is += in[i] & 1;
    free(in);
    return is;
}

/* Tokens whose lists name other rows of the first eighth each time, and the last one */
static void attend_to_lists(const uint8_t *k, const uint8_t *v)
{
    static float q[HD], out[HD];
    int32_t idx[LIST];
    const struct kv_run run = { .k = k, .v = v, .idx = idx, .n = LIST };
    const struct attn a = { .n_tok = 1,
                            .n_head = 1,
                            .n_kv = 1,
                            .hd = HD,
                            .scale = 1,
                            .type_k = KV_F16,
                            .type_v = KV_F16,
                            .run = &run,
                            .q = q,
                            .q_stride = HD,
                            .out = out };

    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; j < LIST - 1; j++)
            idx[j] = i * LIST % (ROWS / 8) + j;
        idx[LIST - 1] = ROWS - 1;
        dev->ops->attention(dev, &a, 1);
        ck_assert_ok(cb_device_wait(dev));
    }
}

/* Rows of a mapped file are pinned once they are in memory, and pinning does not bring them. */
START_TEST(rows_on_the_disk_are_not_pinned)
{
    const size_t bytes = ROWS * cb_kv_row_bytes(KV_F16, HD);
    FILE *f = tmpfile();
    uint8_t *at;
    int sum = 0;

    ck_assert_ptr_nonnull(f);
    ck_assert(!ftruncate(fileno(f), (off_t)(2 * bytes)));
    at = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    ck_assert(!madvise(at, 2 * bytes, MADV_RANDOM));
    ck_assert(open_isa(ISA_FROM, 1));
    for (int v = 0; v < 2; v++)
        ck_assert_ok(dev->ops->memory->watch(dev, at + (size_t)v * bytes, bytes / ROWS, ROWS));
    attend_to_lists(at, at + bytes);
    ck_assert_uint_eq(cb_gpu_of(dev)->mapped_bytes, 0);
    ck_assert_uint_lt(pages_in_memory(at, 2 * bytes),
                      bytes / (size_t)sysconf(_SC_PAGESIZE)); /* half of them */
    for (size_t i = 0; i < 2 * bytes; i++)
        sum += ((const volatile uint8_t *)at)[i];
    ck_assert_int_eq(sum, 0);
    attend_to_lists(at, at + bytes);
    ck_assert_uint_ge(cb_gpu_of(dev)->mapped_bytes, 2 * bytes);
    for (int v = 0; v < 2; v++)
        dev->ops->memory->unwatch(dev, at + (size_t)v * bytes);
    munmap(at, 2 * bytes);
    fclose(f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lists");
    TCase *tc = tcase_create(NAME), *mirrored = tcase_create("mirrored");
    TCase *disk = tcase_create("disk");

    if (!cb_isa_any() || !cb_isa_pretends())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, rows_that_kernels_bring, 0, 3);
    tcase_set_timeout(mirrored, 300);
    tcase_add_loop_test(mirrored, lists_of_mirrored_rows, 0, 5);
    suite_add_tcase(s, mirrored);
    tcase_add_checked_fixture(disk, set_up, tear_down);
    tcase_add_test(disk, rows_on_the_disk_are_not_pinned);
    suite_add_tcase(s, tc);
    suite_add_tcase(s, disk);
    return cb_suite_run(s);
}
