/* SPDX-License-Identifier: MIT */
/* check_working_set.c - working sets of an OpenCL or CUDA device that hold little of a model:
 * weights give way to work space, what is planned is what is used, nothing exceeds the limit, and
 * texts are those of the plain device. */
#include <pthread.h>

#include "against_ref.h"
#include "engine/session.h"
#include "kit/isa.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/affinity.h"

#define NAME (cb_isa[ISA_FROM])

/* ---- weights and work space ---- */

enum { N_WEIGHT = 6, IN = 512, OUT = 1000 };

static void load(struct weight *w)
{
    const size_t row = cb_row_bytes(DT_Q8_0, IN);
    uint8_t *raw = malloc(row * OUT);
    float *x = floats(IN);

    for (int i = 0; i < OUT; i++)
        cb_dtype[DT_Q8_0].from_f32(x, raw + (size_t)i * row, IN);
    *w = (struct weight){ .name = "w", .type = DT_Q8_0, .n_in = IN, .n_out = OUT, .raw = raw };
    ck_assert_msg(!dev->ops->load(dev, w), "%s", cb_error());
    free(x);
}

/* Prompts on CUDA devices multiply halves. */
#define ROUNDING ((int)ISA_FROM == CB_ISA_CUDA ? 1e-2f : 2e-5f)

/* Products of tokens that lie on the device, as the reference's. The CPU rounds activations. */
static void multiply(const struct weight *w, int n_tok, float tolerance)
{
    const size_t n_x = (size_t)n_tok * IN, n_y = (size_t)n_tok * OUT;
    float *x = floats(n_x), *y = poisoned(n_y), *want = poisoned(n_y);
    struct weight plain = *w;
    struct mm m = { &plain, NULL, want, OUT, 0, 0 };

    plain.packed = NULL;
    ref->ops->matmul(ref, &m, 1, x, n_tok);
    m = (struct mm){ w, NULL, y, OUT, 0, 0 };
    dev->ops->matmul(dev, &m, 1, x, n_tok);
    ck_assert_ok(cb_device_wait(dev));
    same("y", y, want, n_y, tolerance);
    free(x), free(y), free(want);
}

/* Work space takes the place of weights, the last ones first; the CPU has them then. */
START_TEST(weights_give_way)
{
    const struct team_params team = { .n_threads = 2 };
    const struct device_want want = { .working_set = 4 << 20 };
    const size_t each = cb_row_bytes(DT_Q8_0, IN) * OUT;
    struct weight w[N_WEIGHT];
    void *work[2];

    ck_assert(!cb_device_open_team(NAME, &team, &want, &dev));
    ck_assert_int_ge(dev->ops->reserve(dev, 100, IN, OUT, 4, 64, 64), 0);
    for (int i = 0; i < N_WEIGHT; i++)
        load(&w[i]);
    ck_assert_uint_eq(cb_device_traffic(dev).weights_bytes, 5 * each);
    /* an eighth is left to operands: 3.5 MiB for weights and work */
    ck_assert_ptr_nonnull(work[0] = cb_device_alloc(dev, 1, 5 << 18));
    ck_assert_uint_eq(cb_device_traffic(dev).weights_bytes, 4 * each);
    for (int i = 0; i < N_WEIGHT; i++) {
        multiply(&w[i], 1, i < 4 ? ROUNDING : 1e-1f);
        multiply(&w[i], 70, i < 4 ? ROUNDING : 1e-1f);
    }
    ck_assert_ptr_nonnull(work[1] = cb_device_alloc(dev, 1, 2 << 20));
    ck_assert_uint_eq(cb_device_traffic(dev).weights_bytes, 0);
    for (int i = 0; i < N_WEIGHT; i++)
        multiply(&w[i], 9, 1e-1f);
    ck_assert_ptr_null(cb_device_alloc(dev, 1, 2 << 20)); /* there is nothing that could go */
    ck_assert_uint_le(cb_device_traffic(dev).peak_bytes, want.working_set);
    for (int i = 0; i < N_WEIGHT; i++) {
        dev->ops->unload(dev, &w[i]);
        free((void *)(uintptr_t)w[i].raw);
    }
    cb_device_free(dev, work[0]), cb_device_free(dev, work[1]);
}
END_TEST

/* ---- sessions ---- */

enum { LAYERS = 20, PROMPT = 200, SECOND = 66, ANSWER = 8, ALL = PROMPT + SECOND };

static struct cb_model *model_on(const char *device, uint64_t working_set, int stream_kv)
{
    struct tiny tiny = cb_tiny_small("llama");

    tiny.hd = 32;
    tiny.n_layer = LAYERS;
    tiny.n_ff = 1024;
    tiny.n_vocab = 2048;
    tiny.type = DT_F32;
    return cb_toy_model_with(&tiny, &(struct cb_model_params){ .device = device,
                                                               .n_threads = 2,
                                                               .working_set = working_set,
                                                               .stream_kv = stream_kv });
}

static struct cb_session *session_of(struct cb_model *m, const char *policy)
{
    const struct cb_session_params p = {
        .n_ctx = 320, .chunk = 64, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* Two prompts and some tokens -> logits after each feed; `first`: memory after the first prompt */
static float *answer(struct cb_session *s, struct cb_memory *first)
{
    const int32_t *text = cb_toy_text(s->model);
    const size_t n_vocab = (size_t)cb_n_vocab(s->model);
    float *out = malloc((ANSWER + 2) * n_vocab * sizeof *out);

    ck_assert_ok(cb_session_prefill(s, text, PROMPT, NULL));
    cb_session_memory(s, first);
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    ck_assert_ok(cb_session_prefill(s, text + PROMPT, SECOND, NULL));
    memcpy(out + n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < ANSWER; i++) {
        ck_assert_ok(cb_session_decode(s, text[ALL + i]));
        memcpy(out + (size_t)(i + 2) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    return out;
}

static const struct {
    int permille; /* of weights and bank */
    const char *policy;
    int part; /* 1: the rows of the prompt lie with the host */
} sets[] = {
    { 63, "full", 0 }, /* they fit beside the weights that stay */
    { 87, "full", 1 },
    { 273, "full", 0 },
    { 1000, "full", 0 },
    { 63, "omnikv:filter=0,budget=64", 0 },
    { 91, "pyramidinfer:decay=0.6,context=8", 1 },
    { 92, "minicache:start=0,retain=20,tail=4", 1 },
};

START_TEST(little)
{
    struct cb_model *plain = model_on("cpu", 0, 0), *m;
    struct cb_session *s = session_of(plain, sets[_i].policy);
    const size_t n = (ANSWER + 2) * (size_t)cb_n_vocab(plain);
    struct cb_memory mem, plan;
    float *want = answer(s, &mem), *got;
    const uint64_t all = mem.weights_bytes + mem.kv_bytes;
    const uint64_t set = all * (uint64_t)sets[_i].permille / 1000;

    cb_session_close(s);
    cb_model_close(plain);
    m = model_on(NAME, set, 0);
    s = session_of(m, sets[_i].policy);
    ck_assert_ok(cb_session_plan(s, PROMPT, 0, &plan));
    got = answer(s, &mem);
    same("logits", got, want, n, 2e-4f);
    ck_assert_uint_eq(mem.device_weights_bytes, plan.device_weights_bytes);
    ck_assert_uint_le(plan.device_weights_bytes + plan.device_work_bytes + plan.device_kv_bytes,
                      set);
    /* rather than in the place of weights */
    ck_assert_int_eq(s->w.part != NULL, sets[_i].part);
    cb_session_memory(s, &mem);
    ck_assert_uint_le(mem.device_peak_bytes, set);
    ck_assert_uint_eq(mem.device_limit_bytes, set);
    free(got), free(want);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Rows of all KV heads of a layer, f32 */
static uint64_t row_bytes(const struct cb_model *m)
{
    return 2 * (uint64_t)m->hp.n_kv * (uint64_t)m->hp.hd * sizeof(float);
}

/* Of a device on which sessions have computed */
static struct device_traffic traffic_of(const struct cb_model *m)
{
    struct device_traffic t;

    ck_assert_ok(cb_device_lock(m->dev));
    t = cb_device_traffic(m->dev);
    cb_device_unlock(m->dev);
    return t;
}

/* With brutal offload each layer's rows are copied for each token, all but the first layer's while
 * the layer before computes; but for the token's own row. */
START_TEST(rows_of_streamed_layers)
{
    struct cb_model *plain = model_on("cpu", 0, 0), *m = model_on(NAME, 0, 1);
    struct cb_session *s = session_of(plain, "full");
    struct cb_memory mem;
    float *want = answer(s, &mem), *got;
    const size_t n = (ANSWER + 2) * (size_t)cb_n_vocab(m);
    struct device_traffic before, after;

    cb_session_close(s);
    cb_model_close(plain);
    s = session_of(m, "full");
    got = answer(s, &mem);
    same("logits", got, want, n, 2e-4f);
    before = traffic_of(m);
    ck_assert_ok(cb_session_decode(s, 5));
    after = traffic_of(m);
    ck_assert_uint_eq(after.kv_in_bytes - before.kv_in_bytes,
                      LAYERS * (ALL + ANSWER + 1) * row_bytes(m));
    ck_assert_uint_eq(after.kv_ahead_bytes - before.kv_ahead_bytes,
                      (LAYERS - 1) * (ALL + ANSWER) * row_bytes(m));
    free(got), free(want);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* A prompt after others finds their rows on the device, in a working set with room for two layers,
 * of which the second comes while the first computes. */
START_TEST(rows_of_two_layers)
{
    struct cb_model *m = model_on(NAME, 4 << 20, 0);
    struct cb_session *s = session_of(m, "full");
    const int32_t *text = cb_toy_text(m);
    struct device_traffic before, after;

    ck_assert_ok(cb_session_prefill(s, text, PROMPT, NULL));
    before = traffic_of(m);
    ck_assert_ok(cb_session_prefill(s, text + PROMPT, SECOND, NULL));
    after = traffic_of(m);
    ck_assert_uint_eq(after.host_rows, before.host_rows);
    ck_assert_uint_lt(after.kv_bytes, LAYERS * ALL * row_bytes(m) / 3);
    ck_assert_uint_gt(after.kv_ahead_bytes - before.kv_ahead_bytes,
                      (LAYERS - 2) * PROMPT * row_bytes(m) / 2);
    /* little comes twice */
    ck_assert_uint_le(after.kv_in_bytes - before.kv_in_bytes,
                      LAYERS * PROMPT * row_bytes(m) * 5 / 4);
    ck_assert_uint_le(after.peak_bytes, after.limit_bytes);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* The device attends to all rows of two prompts in a working set that holds far less than them.
 * Weights come once for all chunks of a prompt. */
static void two_prompts(uint64_t working_set)
{
    struct cb_model *m = model_on(NAME, working_set, 0);
    struct cb_session *s = session_of(m, "full");
    const int32_t *text = cb_toy_text(m);
    struct cb_memory mem;
    struct device_traffic t;

    ck_assert_ok(cb_session_prefill(s, text, PROMPT, NULL));
    ck_assert_ok(cb_session_prefill(s, text + PROMPT, SECOND, NULL));
    cb_session_memory(s, &mem);
    t = traffic_of(m);
    ck_assert_uint_eq(t.host_rows, 0);
    ck_assert_uint_gt(t.hit_rows, 0);
    ck_assert_uint_lt(t.kv_bytes, LAYERS * ALL * row_bytes(m) / 3);
    ck_assert_uint_le(t.weights_in_bytes, 2 * mem.weights_bytes);
    ck_assert_uint_le(t.peak_bytes, t.limit_bytes);
    cb_session_close(s);
    cb_model_close(m);
}

/* Weights give way to the rows of one layer where those of two would take more than a quarter.
 * Here those that stay would leave no room for rows. */
START_TEST(rows_of_one_layer)
{
    two_prompts(7 << 18);
}
END_TEST

/* Rows come before the second of two buffers for weights. */
START_TEST(rows_beside_one_buffer)
{
    two_prompts(11 << 18);
}
END_TEST

/* A prompt that is stopped while weights and rows of the next layer are on their way leaves the
 * session as it was. */
static int stop_later(void *arg, int64_t done, int64_t total)
{
    (void)done, (void)total;
    return --*(int *)arg < 0;
}

START_TEST(a_stopped_prompt)
{
    struct cb_model *m = model_on(NAME, 4 << 20, 0);
    const size_t n = (ANSWER + 2) * (size_t)cb_n_vocab(m);
    struct cb_session *s = session_of(m, "full");
    struct cb_memory mem;
    float *want = answer(s, &mem), *got;

    cb_session_close(s);
    s = session_of(m, "full");
    for (int left = 0; left < LAYERS; left += 7) {
        int at = left;
        const struct cb_prefill how = { .progress = stop_later, .progress_arg = &at };
        ck_assert_int_eq(cb_session_prefill(s, cb_toy_text(m), PROMPT, &how), CB_ECANCEL);
        ck_assert_int_eq(cb_session_len(s), 0);
    }
    got = answer(s, &mem);
    same("logits", got, want, n, 2e-4f);
    ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
    free(got), free(want);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Sessions come and go beside one that computes. */
struct other {
    struct cb_session *s;
    float *out;
};

static void *compute(void *arg)
{
    struct other *o = arg;
    struct cb_memory mem;

    o->out = answer(o->s, &mem);
    return NULL;
}

START_TEST(beside_others)
{
    struct cb_model *m = model_on(NAME, 4 << 20, 0);
    const size_t n = (ANSWER + 2) * (size_t)cb_n_vocab(m);
    struct other alone = { .s = session_of(m, "full") }, both = { .s = session_of(m, "full") };
    pthread_t thread;

    compute(&alone);
    ck_assert(!pthread_create(&thread, NULL, compute, &both));
    for (int i = 0; i < 20; i++) {
        struct cb_session *s = session_of(m, "full");
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 3 + i, NULL));
        cb_session_close(s);
    }
    pthread_join(thread, NULL);
    same("logits", both.out, alone.out, n, 2e-4f);
    free(alone.out), free(both.out);
    cb_session_close(alone.s), cb_session_close(both.s);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("working set");
    TCase *tc = tcase_create(NAME);

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, weights_give_way);
    for (int i = 0; i < (int)(sizeof sets / sizeof *sets); i += cb_isa_pretends() ? 3 : 1)
        tcase_add_loop_test(tc, little, i, i + 1);
    tcase_add_test(tc, rows_of_streamed_layers);
    tcase_add_test(tc, rows_of_two_layers);
    tcase_add_test(tc, rows_of_one_layer);
    tcase_add_test(tc, rows_beside_one_buffer);
    tcase_add_test(tc, a_stopped_prompt);
    tcase_add_test(tc, beside_others);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
