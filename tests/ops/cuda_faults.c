/* SPDX-License-Identifier: MIT */
/* cuda_faults.c - faults of a CUDA driver: those of the driver that pretends (tests/pretend). */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "driver_faults.h"
#include "kit/suite.h"
#include "kit/toy.h"
#include "par/affinity.h"

static const struct team_params team = { .n_threads = 1 };

static void set(const char *setting)
{
    setenv("PRETEND_CUDA", setting, 1);
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

static int live(void)
{
    return counted("pretend_cuda_live");
}

static const struct fault openings[] = {
    { "fail=cuInit:999", 0, "the NVIDIA driver finds no device" },
    { "fail=cuDevicePrimaryCtxRetain:2", 0, "cuda:0: no context: CUDA status 2: out of memory" },
    { "fail=cuStreamCreate:999", 0, "cuda:0: no queue: CUDA status 999: unknown" },
    { "fail=cuMemGetInfo_v2:999", 0, "cuda:0: no queue: CUDA status 999" },
    { "fail=cuModuleLoadData:209", 0,
      "cuda:0: kernels vector do not load: CUDA status 209: no kernel image is available" },
    { NULL, 0, NULL },
};

static const struct fault ops[] = {
    { "fail=cuMemAlloc_v2:2", CB_ENOMEM, "device cuda:0: out of memory: " },
    { "fail=cuMemAlloc_v2:1", CB_ENOMEM, "device cuda:0: memory: failed (CUDA status 1" },
    { "fail=cuMemHostAlloc:2", CB_ENOMEM, "device cuda:0: out of host memory" },
    { "fail=cuMemcpyAsync:1", CB_EIO, "device cuda:0: copy: failed (CUDA status 1" },
    { "fail=cuModuleGetFunction:500", CB_EIO, "device cuda:0: add: failed (CUDA status 500" },
    { "fail=cuLaunchKernel:701", CB_ENOMEM, "device cuda:0: add: out of memory (CUDA status 701" },
    { "fail=cuLaunchKernel:1", CB_EIO, "device cuda:0: add: failed (CUDA status 1" },
    { "fail=cuStreamSynchronize:999", CB_EIO, "device cuda:0: wait: failed (CUDA status 999" },
    { NULL, 0, NULL },
};

static const struct loss losses[] = {
    { "fault=attend_mma", 0, 0 },        { "fault=tile", 2 << 20, 0 },
    { "fault=encode_rows", 2 << 20, 0 }, { "fault=attend_few", 0, 1 },
    { "fault=encode_rows", 2 << 20, 1 }, { NULL, 0, 0 },
};

START_TEST(no_driver)
{
    struct device *d;

    setenv("CTXBANK_TEST_CUDA", "none", 1);
    ck_assert_int_eq(cb_device_open_team("cuda", &team, NULL, &d), CB_EUNSUPPORTED);
    cb_driver_said("device cuda: no NVIDIA driver on this machine (libcuda.so.1)");
}
END_TEST

START_TEST(no_device)
{
    struct device *d;

    set("devices=0");
    ck_assert_int_eq(cb_device_open_team("cuda", &team, NULL, &d), CB_EUNSUPPORTED);
    cb_driver_said("device cuda: the NVIDIA driver finds no device");
}
END_TEST

START_TEST(the_second_device)
{
    struct device *d;

    ck_assert_ok(cb_device_open_team("cuda:1", &team, NULL, &d));
    ck_assert_uint_eq(cb_device_traffic(d).limit_bytes, (1u << 30) / 10 * 9);
    cb_device_close(d);
    ck_assert_int_eq(cb_device_open_team("cuda:2", &team, NULL, &d), CB_EARG);
    cb_driver_said("device cuda:2: there are 2");
    cb_driver_nothing_left();
}
END_TEST

/* Rows that a token stores wait for the queue together, not one by one. */
START_TEST(waits_of_a_token)
{
    struct cb_model *m = cb_driver_model(0);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = cb_driver_session(m);
    struct cb_model_info info;
    int before;

    cb_model_get_info(m, &info);
    ck_assert_ok(cb_session_prefill(s, text, DRIVER_TOKENS, NULL));
    before = counted("pretend_cuda_waits");
    ck_assert_ok(cb_session_decode(s, text[DRIVER_TOKENS]));
    ck_assert_int_lt(counted("pretend_cuda_waits") - before, info.n_layer * info.n_kv);
    cb_session_close(s);
    cb_model_close(m);
    cb_driver_nothing_left();
}
END_TEST

/* Weights that a prompt copies in are pinned meanwhile, unless the driver refuses: the same bits.
 */
START_TEST(pinned_weights)
{
    float *want = NULL;

    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = cb_driver_model(2 << 20);
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_session *s = cb_driver_session(m);
        struct cb_memory mem;
        int pages;
        set(refuse ? "fail=cuMemHostRegister_v2:801" : "");
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), DRIVER_TOKENS, NULL));
        set("");
        pages = counted("pretend_cuda_registered");
        if (refuse) {
            ck_assert_int_eq(pages, 0);
            ck_assert_mem_eq(cb_session_logits(s), want, n_vocab * sizeof *want);
        } else {
            cb_session_memory(s, &mem);
            ck_assert_int_gt(pages, (int)(mem.device_weights_in_bytes / 4096 * 3 / 4));
            ck_assert_int_gt(pages, 0);
            want = malloc(n_vocab * sizeof *want);
            memcpy(want, cb_session_logits(s), n_vocab * sizeof *want);
        }
        cb_session_close(s);
        cb_model_close(m);
        cb_driver_nothing_left();
    }
    free(want);
}
END_TEST

static void more(TCase *tc)
{
    tcase_add_test(tc, no_driver);
    tcase_add_test(tc, no_device);
    tcase_add_test(tc, the_second_device);
    tcase_add_test(tc, waits_of_a_token);
    tcase_add_test(tc, pinned_weights);
}

const struct driver_faults cb_driver_faults = {
    .set = set,
    .live = live,
    .opening = openings,
    .op = ops,
    .loss = losses,
    .lost_copy = "device cuda:0: copy: failed (CUDA status 700: an illegal memory access",
    .lost_memory = "device cuda:0: memory: failed (CUDA status 700",
    .lost = "CUDA status 700",
    .no_kernel = "fail=cuModuleLoadData:209",
    .no_launch = "fail=cuLaunchKernel:701",
    .more = more,
};
