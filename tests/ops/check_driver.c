/* SPDX-License-Identifier: MIT */
/* check_driver.c - what an OpenCL or CUDA device does when its driver refuses or fails, or when the
 * device disappears. The faults are those of cuda_faults.c or opencl_faults.c. */
#include "against_ref.h"
#include "driver_faults.h"
#include "kit/device_answer.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/affinity.h"

#define NAME (cb_isa[ISA_FROM])

static const struct driver_faults *const of = &cb_driver_faults;
static const struct team_params team = { .n_threads = 1 };

void cb_driver_said(const char *what)
{
    ck_assert_msg(strstr(cb_error(), what), "'%s' is not in '%s'", what, cb_error());
    ck_assert_ptr_null(strchr(cb_error(), '\n'));
}

void cb_driver_nothing_left(void)
{
    ck_assert_int_eq(of->live(), 0);
}

static struct device *opened(void)
{
    struct device *d;

    ck_assert_ok(cb_device_open_team(NAME, &team, NULL, &d));
    return d;
}

START_TEST(an_opening_that_fails)
{
    struct device *d = NULL;

    of->set(of->opening[_i].setting);
    ck_assert_int_lt(cb_device_open_team(NAME, &team, NULL, &d), 0);
    cb_driver_said(of->opening[_i].says);
    cb_driver_nothing_left();
}
END_TEST

START_TEST(an_op_that_fails)
{
    struct device *d = opened();
    float x = 1, y = 2;

    of->set(of->op[_i].setting);
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), of->op[_i].status);
    cb_driver_said(of->op[_i].says);
    of->set("");
    ck_assert_int_eq(cb_device_wait(d), 0);
    y = 2;
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), 0);
    ck_assert_float_eq(y, 3);
    cb_device_close(d);
    cb_driver_nothing_left();
}
END_TEST

/* After a fault the driver refuses everything, as when a device disappears: errors, no crash. */
START_TEST(a_kernel_that_faults)
{
    struct device *d = opened();
    float x = 1, y = 2;

    of->set("fault=add");
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), CB_EIO);
    cb_driver_said(of->lost_copy);
    of->set("");
    d->ops->add(d, &y, &x, 1, 1);
    ck_assert_int_eq(cb_device_wait(d), CB_EIO);
    ck_assert_ptr_null(cb_device_alloc(d, 1, 1000));
    cb_driver_said(of->lost_memory);
    cb_device_close(d);
    cb_driver_nothing_left();
}
END_TEST

/* ---- sessions ---- */

enum { LAYERS = 8 };

struct cb_model *cb_driver_model(uint64_t working_set)
{
    struct tiny tiny = cb_tiny_small("llama");

    tiny.hd = 32;
    tiny.n_layer = LAYERS;
    tiny.n_ff = 640;
    return cb_toy_model_with(
        &tiny,
        &(struct cb_model_params){ .device = NAME, .n_threads = 1, .working_set = working_set });
}

struct cb_session *cb_driver_session(struct cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = 256, .chunk = 64 };
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* A device that is lost in the middle of a prompt or a token, also while weights of the next layer
 * are on their way: the session says so, and all is given back. */
START_TEST(a_session_that_fails)
{
    const struct loss *loss = &of->loss[_i];
    struct cb_model *m = cb_driver_model(loss->working_set);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = cb_driver_session(m);
    int err;

    if (loss->decoding)
        ck_assert_ok(cb_session_prefill(s, text, DRIVER_TOKENS, NULL));
    of->set(loss->setting);
    err = loss->decoding ? cb_session_decode(s, text[DRIVER_TOKENS])
                         : cb_session_prefill(s, text, DRIVER_TOKENS, NULL);
    ck_assert_msg(err == CB_EIO, "%s: %d", loss->setting, err);
    cb_driver_said("device ");
    cb_driver_said(NAME);
    cb_driver_said(of->lost);
    ck_assert_int_lt(cb_session_decode(s, text[40]), 0);
    cb_session_close(s);
    cb_model_close(m);
    cb_driver_nothing_left();
}
END_TEST

static void count_notes(void *arg, enum cb_log_level level, const char *text)
{
    if (level == CB_LOG_NOTE && (strstr(text, "the CPU attends") || strstr(text, "the CPU search")))
        ++*(int *)arg;
}

/* A model whose device counts these notes */
static struct cb_model *noted(int *notes)
{
    const struct cb_model_params p = {
        .device = NAME, .n_threads = 1, .log = count_notes, .log_arg = notes
    };
    return cb_answer_model("llama", 0, &p);
}

/* Kernels of attention that do not load: the CPU attends, and says so. */
START_TEST(kernels_that_do_not_load)
{
    float *want = NULL;
    int notes = 0;

    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = noted(&notes);
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_session *s = cb_driver_session(m);
        of->set(refuse ? of->no_kernel : "");
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 40, NULL));
        ck_assert_ok(cb_session_decode(s, cb_toy_text(m)[40]));
        of->set("");
        if (refuse)
            same("logits", cb_session_logits(s), want, n_vocab, 5e-3f);
        else
            want = copy(cb_session_logits(s), n_vocab);
        ck_assert_int_eq(notes, refuse);
        cb_session_close(s);
        cb_model_close(m);
        cb_driver_nothing_left();
    }
    free(want);
}
END_TEST

/* A session after a prompt, whose next token searches sketches */
static struct cb_session *searching(struct cb_model *m)
{
    const struct cb_session_params p = { .n_ctx = 256, .policy = "sieve:budget=16,recent=8" };
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 150, NULL));
    return s;
}

/* A device that is lost in one of a search's kernels */
START_TEST(a_search_that_fails)
{
    static const char *const fault[] = { "fault=sketch_strips", "fault=sketch_scan",
                                         "fault=sketch_weigh",  "fault=sketch_rank",
                                         "fault=sketch_count",  "fault=sketch_pick" };
    struct cb_model *m = cb_driver_model(0);
    struct cb_session *s = searching(m);

    of->set(fault[_i]);
    ck_assert_int_eq(cb_session_decode(s, 5), CB_EIO);
    cb_driver_said(of->lost);
    cb_session_close(s);
    cb_model_close(m);
    cb_driver_nothing_left();
}
END_TEST

/* Kernels of the search that do not load: the CPU finds the same slots, and says so once. */
START_TEST(a_search_that_does_not_load)
{
    float *want = NULL;
    int notes = 0;

    for (int refuse = 0; refuse < 2; refuse++) {
        struct cb_model *m = noted(&notes);
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_session *s = searching(m);
        struct cb_memory mem;
        of->set(refuse ? of->no_kernel : "");
        for (int i = 0; i < 3; i++)
            ck_assert_ok(cb_session_decode(s, 5 + i));
        of->set("");
        cb_session_memory(s, &mem);
        ck_assert_uint_gt(refuse ? mem.host_sketches : mem.device_sketches, 0);
        ck_assert_uint_eq(refuse ? mem.device_sketches : mem.host_sketches, 0);
        if (refuse)
            same("logits", cb_session_logits(s), want, n_vocab, 1e-6f);
        else
            want = copy(cb_session_logits(s), n_vocab);
        ck_assert_int_eq(notes, refuse);
        cb_session_close(s);
        cb_model_close(m);
        cb_driver_nothing_left();
    }
    free(want);
}
END_TEST

/* One launch that is refused: the session says so, and another one works. */
START_TEST(a_session_that_is_refused)
{
    struct cb_model *m = cb_driver_model(0);
    const int32_t *text = cb_toy_text(m);
    struct cb_session *s = cb_driver_session(m);

    of->set(of->no_launch);
    ck_assert_int_eq(cb_session_prefill(s, text, 40, NULL), CB_ENOMEM);
    cb_driver_said("device ");
    cb_driver_said(NAME);
    of->set("");
    cb_session_close(s);
    s = cb_driver_session(m);
    ck_assert_ok(cb_session_prefill(s, text, 40, NULL));
    cb_session_close(s);
    cb_model_close(m);
    cb_driver_nothing_left();
}
END_TEST

static int length(const struct fault *f)
{
    int n = 0;

    while (f[n].setting)
        n++;
    return n;
}

int main(void)
{
    Suite *s = suite_create("driver");
    TCase *tc = tcase_create(NAME);
    int n_loss = 0;

    if (!cb_isa_any() || (IS_CUDA && !cb_isa_pretends()))
        return CB_SKIPPED;
    while (of->loss[n_loss].setting)
        n_loss++;
    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, an_opening_that_fails, 0, length(of->opening));
    tcase_add_loop_test(tc, an_op_that_fails, 0, length(of->op));
    tcase_add_test(tc, a_kernel_that_faults);
    tcase_add_loop_test(tc, a_session_that_fails, 0, n_loss);
    tcase_add_test(tc, kernels_that_do_not_load);
    tcase_add_loop_test(tc, a_search_that_fails, 0, 6);
    tcase_add_test(tc, a_search_that_does_not_load);
    tcase_add_test(tc, a_session_that_is_refused);
    if (of->more)
        of->more(tc);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
