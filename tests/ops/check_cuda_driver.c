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

/* Everything that the driver gave has been given back. */
static void nothing_left(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*live)(void);

    ck_assert_ptr_nonnull(driver);
    *(void **)&live = dlsym(driver, "pretend_cuda_live");
    ck_assert_ptr_nonnull(live);
    ck_assert_int_eq(live(), 0);
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

static struct cb_model *model(void)
{
    struct tiny tiny = cb_tiny_small("llama");

    tiny.hd = 32;
    return cb_toy_model_with(&tiny, &(struct cb_model_params){ .device = "cuda", .n_threads = 1 });
}

/* A session of which a kernel fails in the middle of the prompt, or of a token */
START_TEST(a_session_that_fails)
{
    const struct cb_session_params p = { .n_ctx = 128, .chunk = 16 };
    struct cb_model *m = model();
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s;

    cb_toy_ok(cb_session_open(m, &p, &s));
    if (_i)
        cb_toy_ok(cb_session_prefill(s, text, 40, NULL));
    set(_i ? "fault=attend" : "fault=attend_mma");
    ck_assert_int_eq(_i ? cb_session_decode(s, text[40]) : cb_session_prefill(s, text, 40, NULL),
                     CB_EIO);
    said("device cuda:0: ");
    said("CUDA status 700");
    ck_assert_int_lt(cb_session_decode(s, text[40]), 0);
    cb_session_close(s);
    cb_model_close(m);
    nothing_left();
}
END_TEST

/* One launch that is refused: the session says so, and another one works. */
START_TEST(a_session_that_is_refused)
{
    const struct cb_session_params p = { .n_ctx = 128, .chunk = 16 };
    struct cb_model *m = model();
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s;

    cb_toy_ok(cb_session_open(m, &p, &s));
    set("fail=cuLaunchKernel:701");
    ck_assert_int_eq(cb_session_prefill(s, text, 40, NULL), CB_ENOMEM);
    said("device cuda:0: ");
    set("");
    cb_session_close(s);
    cb_toy_ok(cb_session_open(m, &p, &s));
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
    tcase_add_loop_test(tc, a_session_that_fails, 0, 2);
    tcase_add_test(tc, a_session_that_is_refused);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
