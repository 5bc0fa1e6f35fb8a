/* SPDX-License-Identifier: MIT */
/* check_cuda_driver.c - what a CUDA device does when its driver is missing, refuses, or fails. The
 * driver is the one that pretends (tests/pretend). */
#include <dlfcn.h>

#include "against_ref.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/affinity.h"

static const struct team_params team = { .n_threads = 1 };

static void set(const char *setting)
{
    setenv("PRETEND_CUDA", setting, 1);
}

static void opens(struct device **d)
{
    ck_assert_msg(!cb_device_open_team("cuda", &team, NULL, d), "%s", cb_error());
}

static void said(const char *what)
{
    ck_assert_msg(strstr(cb_error(), what), "'%s' is not in '%s'", what, cb_error());
    ck_assert_ptr_null(strchr(cb_error(), '\n'));
}

/* A number that the driver which pretends has counted */
static int counted(const char *what)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*count)(void);

    ck_assert_ptr_nonnull(driver);
    *(void **)&count = dlsym(driver, what);
    ck_assert_ptr_nonnull(count);
    return count();
}

/* Everything that the driver gave has been given back. */
static void nothing_left(void)
{
    ck_assert_int_eq(counted("pretend_cuda_live"), 0);
}

START_TEST(no_driver)
{
    struct device *d;

    setenv("CTXBANK_TEST_CUDA", "none", 1);
    ck_assert_int_eq(cb_device_open_team("cuda", &team, NULL, &d), CB_EUNSUPPORTED);
    said("device cuda: no NVIDIA driver on this machine (libcuda.so.1)");
}
END_TEST

START_TEST(no_device)
{
    struct device *d;

    set("devices=0");
    ck_assert_int_eq(cb_device_open_team("cuda", &team, NULL, &d), CB_EUNSUPPORTED);
    said("device cuda: the NVIDIA driver finds no device");
}
END_TEST

START_TEST(the_second_device)
{
    struct device *d;

    ck_assert_msg(!cb_device_open_team("cuda:1", &team, NULL, &d), "%s", cb_error());
    ck_assert_uint_eq(cb_device_traffic(d).limit_bytes, (1u << 30) / 10 * 9);
    cb_device_close(d);
    ck_assert_int_eq(cb_device_open_team("cuda:2", &team, NULL, &d), CB_EARG);
    said("device cuda:2: there are 2");
    nothing_left();
}
END_TEST

/* Each call that an opening makes */
static const struct {
    const char *fail, *says;
} openings[] = {
    { "fail=cuInit:999", "the NVIDIA driver finds no device" },
    { "fail=cuDevicePrimaryCtxRetain:2", "cuda:0: no context: CUDA status 2: out of memory" },
    { "fail=cuStreamCreate:999", "cuda:0: no queue: CUDA status 999: unknown" },
    { "fail=cuMemGetInfo_v2:999", "cuda:0: no queue: CUDA status 999" },
    { "fail=cuModuleLoadData:209",
      "cuda:0: kernels vector do not load: CUDA status 209: no kernel image is available" },
};

START_TEST(an_opening_that_fails)
{
    struct device *d = NULL;

    set(openings[_i].fail);
    ck_assert_int_lt(cb_device_open_team("cuda", &team, NULL, &d), 0);
    said(openings[_i].says);
    nothing_left();
}
END_TEST

/* The device goes on after each of them. */
static const struct {
    const char *fail;
    int status;
    const char *says;
} ops[] = {
    { "fail=cuMemAlloc_v2:2", CB_ENOMEM, "device cuda:0: out of memory: " },
    { "fail=cuMemAlloc_v2:1", CB_ENOMEM, "device cuda:0: memory: failed (CUDA status 1" },
    { "fail=cuMemHostAlloc:2", CB_ENOMEM, "device cuda:0: out of host memory" },
    { "fail=cuMemcpyAsync:1", CB_EIO, "device cuda:0: copy: failed (CUDA status 1" },
    { "fail=cuModuleGetFunction:500", CB_EIO, "device cuda:0: add: failed (CUDA status 500" },
    { "fail=cuLaunchKernel:701", CB_ENOMEM, "device cuda:0: add: out of memory (CUDA status 701" },
    { "fail=cuLaunchKernel:1", CB_EIO, "device cuda:0: add: failed (CUDA status 1" },
    { "fail=cuStreamSynchronize:999", CB_EIO, "device cuda:0: wait: failed (CUDA status 999" },
};

START_TEST(an_op_that_fails)
{
    struct device *d;
    float x = 1, y = 2;

    opens(&d);
    set(ops[_i].fail);
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), ops[_i].status);
    said(ops[_i].says);
    set("");
    ck_assert_int_eq(cb_device_wait(d), 0);
    y = 2;
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), 0);
    ck_assert_float_eq(y, 3);
    cb_device_close(d);
    nothing_left();
}
END_TEST

/* After a fault the driver refuses everything, as when a device disappears: errors, no crash. */
START_TEST(a_kernel_that_faults)
{
    struct device *d;
    float x = 1, y = 2;

    opens(&d);
    set("fault=add");
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), CB_EIO);
    said("device cuda:0: copy: failed (CUDA status 700: an illegal memory access");
    set("");
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), CB_EIO);
    ck_assert_ptr_null(cb_device_alloc(d, 1, 1000));
    said("device cuda:0: memory: failed (CUDA status 700");
    cb_device_close(d);
    nothing_left();
}
END_TEST

enum { LAYERS = 8, TOKENS = 128 };

static struct cb_model *model(uint64_t working_set)
{
    struct tiny tiny = cb_tiny_small("llama");

    tiny.hd = 32;
    tiny.n_layer = LAYERS;
    tiny.n_ff = 640;
    return cb_toy_model_with(
        &tiny,
        &(struct cb_model_params){ .device = "cuda", .n_threads = 1, .working_set = working_set });
}

static struct cb_session *session_of(struct cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = 256, .chunk = 64 };
    struct cb_session *s;

    cb_toy_ok(cb_session_open(m, &p, &s));
    return s;
}

/* A device that is lost in the middle of a prompt or a token, also while weights of the next layer
 * are on their way: the session says so, and all is given back. */
static const struct {
    const char *fault;
    uint64_t working_set;
    int decoding;
} losses[] = {
    { "fault=attend_mma", 0, 0 }, { "fault=tile", 2 << 20, 0 },   { "fault=encode", 2 << 20, 0 },
    { "fault=attend", 0, 1 },     { "fault=encode", 2 << 20, 1 },
};

START_TEST(a_session_that_fails)
{
    struct cb_model *m = model(losses[_i].working_set);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = session_of(m);
    int err;

    if (losses[_i].decoding)
        cb_toy_ok(cb_session_prefill(s, text, TOKENS, NULL));
    set(losses[_i].fault);
    err = losses[_i].decoding ? cb_session_decode(s, text[TOKENS])
                              : cb_session_prefill(s, text, TOKENS, NULL);
    ck_assert_int_eq(err, CB_EIO);
    said("device cuda:0: ");
    said("CUDA status 700");
    ck_assert_int_lt(cb_session_decode(s, text[40]), 0);
    cb_session_close(s);
    cb_model_close(m);
    nothing_left();
}
END_TEST

/* Rows that a token stores wait for the queue together, not one by one. */
START_TEST(waits_of_a_token)
{
    struct cb_model *m = model(0);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = session_of(m);
    struct cb_model_info info;
    int before;

    cb_model_get_info(m, &info);
    cb_toy_ok(cb_session_prefill(s, text, TOKENS, NULL));
    before = counted("pretend_cuda_waits");
    cb_toy_ok(cb_session_decode(s, text[TOKENS]));
    ck_assert_int_lt(counted("pretend_cuda_waits") - before, info.n_layer * info.n_kv);
    cb_session_close(s);
    cb_model_close(m);
    nothing_left();
}
END_TEST

static void count_notes(void *arg, enum cb_log_level level, const char *text)
{
    if (level == CB_LOG_NOTE && strstr(text, "device cuda:0: the CPU attends"))
        ++*(int *)arg;
}

/* Kernels of attention that do not load: the CPU attends, and says so. */
START_TEST(kernels_that_do_not_load)
{
    struct tiny tiny = cb_tiny_small("llama");
    float *want = NULL;
    int notes = 0;

    tiny.hd = 32;
    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = cb_toy_model_with(
            &tiny, &(struct cb_model_params){
                       .device = "cuda", .n_threads = 1, .log = count_notes, .log_arg = &notes });
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_session *s = session_of(m);
        set(refuse ? "fail=cuModuleLoadData:209" : "");
        cb_toy_ok(cb_session_prefill(s, cb_toy_text(m), 40, NULL));
        cb_toy_ok(cb_session_decode(s, cb_toy_text(m)[40]));
        set("");
        if (refuse)
            same("logits", cb_session_logits(s), want, n_vocab, 5e-3f);
        else
            want = copy(cb_session_logits(s), n_vocab);
        ck_assert_int_eq(notes, refuse);
        cb_session_close(s);
        cb_model_close(m);
        nothing_left();
    }
    free(want);
}
END_TEST

/* Weights that a prompt copies in are pinned meanwhile, unless the driver refuses: the same bits.
 */
START_TEST(pinned_weights)
{
    float *want = NULL;

    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = model(2 << 20);
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_session *s = session_of(m);
        struct cb_memory mem;
        int pages;
        set(refuse ? "fail=cuMemHostRegister_v2:801" : "");
        cb_toy_ok(cb_session_prefill(s, cb_toy_text(m), TOKENS, NULL));
        set("");
        pages = counted("pretend_cuda_registered");
        if (refuse) {
            ck_assert_int_eq(pages, 0);
            ck_assert_mem_eq(cb_session_logits(s), want, n_vocab * sizeof *want);
        } else {
            cb_session_memory(s, &mem);
            ck_assert_int_gt(pages, (int)(mem.device_weights_in_bytes / 4096 * 3 / 4));
            ck_assert_int_gt(pages, 0);
            want = copy(cb_session_logits(s), n_vocab);
        }
        cb_session_close(s);
        cb_model_close(m);
        nothing_left();
    }
    free(want);
}
END_TEST

/* One launch that is refused: the session says so, and another one works. */
START_TEST(a_session_that_is_refused)
{
    struct cb_model *m = model(0);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = session_of(m);

    set("fail=cuLaunchKernel:701");
    ck_assert_int_eq(cb_session_prefill(s, text, 40, NULL), CB_ENOMEM);
    said("device cuda:0: ");
    set("");
    cb_session_close(s);
    s = session_of(m);
    cb_toy_ok(cb_session_prefill(s, text, 40, NULL));
    cb_session_close(s);
    cb_model_close(m);
    nothing_left();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda driver");
    TCase *tc = tcase_create("cuda driver");
    const char *which = getenv("CTXBANK_TEST_CUDA");

    if (!cb_isa_any() || (which && !strcmp(which, "real")))
        return CB_SKIPPED;
    tcase_add_test(tc, no_driver);
    tcase_add_test(tc, no_device);
    tcase_add_test(tc, the_second_device);
    tcase_add_loop_test(tc, an_opening_that_fails, 0, sizeof openings / sizeof *openings);
    tcase_add_loop_test(tc, an_op_that_fails, 0, sizeof ops / sizeof *ops);
    tcase_add_test(tc, a_kernel_that_faults);
    tcase_add_loop_test(tc, a_session_that_fails, 0, sizeof losses / sizeof *losses);
    tcase_add_test(tc, waits_of_a_token);
    tcase_add_test(tc, kernels_that_do_not_load);
    tcase_add_test(tc, pinned_weights);
    tcase_add_test(tc, a_session_that_is_refused);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
