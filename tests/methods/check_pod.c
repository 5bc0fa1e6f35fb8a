/* SPDX-License-Identifier: MIT */
/* check_pod.c - distant tokens read through a block's first layer: the formula's vectors, equal
 * answers however a timeline is fed, and memory as the paper counts it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bank/store_kivi.h"
#include "kit/gguf_make.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "vectors/selection.h"

enum { N = 12, NQ = 16 };

static const struct hparams small = { .n_layer = 3,
                                      .n_embd = 16,
                                      .n_head = 4,
                                      .n_kv = 2,
                                      .hd = 4,
                                      .n_ff = 16,
                                      .n_vocab = 16,
                                      .n_ctx_train = 64,
                                      .n_rot = 4 };
static const char *const devices[] = { "ref", "cpu" };
static char preset[64];

static void write_preset(const char *text)
{
    FILE *f;

    snprintf(preset, sizeof preset, "pod.%d.tmp", (int)getpid());
    f = fopen(preset, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert(!fclose(f));
}

static void setup(void)
{
    write_preset("{\"start\": [[0, 0, 0], [0, 1, 1]], \"sinks\": 2, \"recent\": 4}");
}

static void teardown(void)
{
    unlink(preset);
}

static const char *with(const char *options)
{
    static char spec[160];
    snprintf(spec, sizeof spec, "pod:preset=%s%s", preset, options);
    return spec;
}

static void near(const char *what, const float *x, const double *want, int n, double tol)
{
    for (int i = 0; i < n; i++)
        ck_assert_msg(fabs((double)x[i] - want[i]) <= tol, "%s: [%d] %.9g, not %.9g", what, i,
                      (double)x[i], want[i]);
}

static void open_toy(struct toy *t, const char *device, const char *policy)
{
    cb_toy_open(t, device, 2, &small, N, policy, "f32", "f32", 7);
}

/* ---- vectors ---- */

START_TEST(a_step_as_the_formula)
{
    struct toy t;
    float out[3 * NQ];

    open_toy(&t, devices[_i], with(""));
    cb_toy_prompt(&t, N - 1, N, NULL);
    cb_toy_decode(&t, out);
    near("layer 1", out + NQ, pod_out_1, NQ, 2e-6);
    near("layer 2", out + 2 * NQ, pod_out_2, NQ, 2e-6);
    cb_toy_close(&t);
    open_toy(&t, devices[_i], with(",gate=0.5"));
    cb_toy_prompt(&t, N - 1, N, NULL);
    cb_toy_decode(&t, out);
    near("gate", out + 2 * NQ, pod_skip_out_2, NQ, 2e-6);
    cb_toy_close(&t);
}
END_TEST

/* All of a prompt in chunks, the rest token by token. */
START_TEST(any_feed_as_the_formula)
{
    for (int n = 1; n <= N; n += 1)
        for (int chunk = 1; chunk <= n; chunk += 2) {
            struct toy t;
            float out[3 * N * NQ];
            open_toy(&t, devices[_i], with(""));
            cb_toy_prompt(&t, n, chunk, out);
            near("prompt", out + 2 * n * NQ, pod_all_2, n * NQ, 2e-6);
            for (int i = n; i < N; i++) {
                cb_toy_decode(&t, out);
                near("step", out + 2 * NQ, pod_all_2 + i * NQ, NQ, 2e-6);
            }
            cb_toy_close(&t);
        }
}
END_TEST

/* Several turns: prompts of 3 and steps between them. */
START_TEST(turns_as_the_formula)
{
    struct toy t;
    float out[3 * 3 * NQ];

    open_toy(&t, devices[_i], with(""));
    for (int i = 0; i < N; i += 4) {
        cb_toy_prompt(&t, 3, 2, out);
        near("turn", out + 2 * 3 * NQ, pod_all_2 + i * NQ, 3 * NQ, 2e-6);
        cb_toy_decode(&t, out);
        near("step", out + 2 * NQ, pod_all_2 + (i + 3) * NQ, NQ, 2e-6);
    }
    cb_toy_close(&t);
}
END_TEST

/* The gate decides for each query, in a prompt as for a decoded token. */
START_TEST(a_gate_in_prompts)
{
    static const char *const gate[] = { ",gate=0", ",gate=0.5" };
    float plain[3 * N * NQ], prompt[3 * N * NQ], step[3 * NQ];
    struct toy t;

    for (int g = 0; g < 2; g++) {
        open_toy(&t, devices[_i], with(""));
        cb_toy_prompt(&t, N, N, plain);
        cb_toy_close(&t);
        open_toy(&t, devices[_i], with(gate[g]));
        cb_toy_prompt(&t, N, 5, prompt);
        cb_toy_close(&t);
        ck_assert(memcmp(plain, prompt, sizeof plain));
        open_toy(&t, devices[_i], with(gate[g]));
        for (int i = 0; i < N; i++) {
            cb_toy_decode(&t, step);
            for (int l = 0; l < 3; l++)
                for (int x = 0; x < NQ; x++)
                    ck_assert_float_eq_tol(step[l * NQ + x], prompt[(l * N + i) * NQ + x], 2e-6f);
        }
        cb_toy_close(&t);
    }
}
END_TEST

/* ---- what is full attention ---- */

static void run_all(const char *device, const char *policy, int n_prompt, int copies, float *out)
{
    struct toy t;

    open_toy(&t, device, policy);
    for (int l = 1; copies && l < 3; l++)
        for (int i = 0; i < N; i++)
            memcpy(cb_toy_row(&t, l, i), cb_toy_row(&t, 0, i), (4 + 2) * 4 * sizeof *out);
    cb_toy_prompt(&t, n_prompt, 5, out);
    for (int i = n_prompt; i < N; i++)
        cb_toy_decode(&t, out + 3 * NQ * i);
    cb_toy_close(&t);
}

START_TEST(full_where_nothing_is_shared)
{
    static const char *const same[] = { "pod:blocks=0,sinks=4,recent=8",
                                        "pod:blocks=0+1+2,sinks=1,recent=1", "pod",
                                        "pod:blocks=0+2,recent=100,gate=0" };
    float want[3 * N * NQ], got[3 * N * NQ];

    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        run_all(devices[_i], "full", 7, 0, want);
        run_all(devices[_i], same[i], 7, 0, got);
        ck_assert_msg(!memcmp(want, got, sizeof want), "%s", same[i]);
    }
    run_all(devices[_i], "pod:blocks=0,sinks=1,recent=2", 7, 0, got);
    ck_assert(memcmp(want, got, sizeof want));
}
END_TEST

/* Followers whose queries and keys are their leader's lose nothing. */
START_TEST(full_where_layers_are_alike)
{
    float want[3 * N * NQ], got[3 * N * NQ];
    double x[3 * N * NQ];

    run_all(devices[_i], "full", 7, 1, want);
    run_all(devices[_i], "pod:blocks=0,sinks=1,recent=2", 7, 1, got);
    for (int i = 0; i < 3 * N * NQ; i++)
        x[i] = (double)want[i];
    near("alike", got, x, 3 * N * NQ, 2e-6);
}
END_TEST

/* A gate of 0 leaves the first and the recent tokens alone to followers: token 11's attention over
 * slots 0, 1, 8..11 in plain C. */
START_TEST(a_gate_of_0_reads_no_distant_tokens)
{
    static const int slot[] = { 0, 1, 8, 9, 10, 11 };
    struct toy t;
    float out[3 * NQ];

    open_toy(&t, devices[_i], with(",gate=0"));
    cb_toy_prompt(&t, N - 1, N, NULL);
    cb_toy_decode(&t, out);
    for (int h = 0; h < 4; h++) {
        double sum = 0, want[4] = { 0 };
        for (int j = 0; j < 6; j++) {
            const float *q = cb_toy_row(&t, 2, 11) + 4 * h;
            const float *k = cb_toy_row(&t, 2, slot[j]) + 4 * (4 + h / 2), *v = k + 8;
            double p = 0;
            for (int c = 0; c < 4; c++)
                p += 0.5 * (double)q[c] * (double)k[c];
            p = exp(p);
            sum += p;
            for (int c = 0; c < 4; c++)
                want[c] += p * (double)v[c];
        }
        for (int c = 0; c < 4; c++)
            want[c] /= sum;
        near("gate 0", out + 2 * NQ + 4 * h, want, 4, 2e-6);
    }
    cb_toy_close(&t);
}
END_TEST

/* With SnapKV, near is by distance or the sinks and the window alone: layer 2's attention to the
 * kept tokens in plain C, those that are far with query and keys of the block's first layer. */
START_TEST(near_after_snapkv)
{
    static const char *const how[] = { ",snap=8,window=3", ",snap=8,window=3,proximal=window",
                                       ",snap=8,window=6,proximal=window" };
    static const int recent[] = { 4, 3, 4 }, lead[] = { 0, 1 };
    float out[3 * NQ];

    for (int by = 0; by < 3; by++) {
        struct toy t;
        open_toy(&t, devices[_i], with(how[by]));
        cb_toy_prompt(&t, N - 1, N, NULL);
        cb_toy_decode(&t, out);
        for (int h = 0; h < 4; h++) {
            const struct store *st = &t.s->bank.store[2];
            double sum = 0, want[4] = { 0 };
            int far = 0, first = 0;
            ck_assert_int_eq(st->n[h / 2], 9);
            for (int j = 0; j < 9; j++) {
                const int pos = cb_store_pos(st, h / 2, j);
                const int near_by = pos < 2 || pos > N - 1 - recent[by];
                const int l = near_by ? 2 : lead[h / 2];
                const float *q = cb_toy_row(&t, l, N - 1) + 4 * h;
                const float *k = cb_toy_row(&t, l, pos) + 4 * (4 + h / 2);
                const float *v = cb_toy_row(&t, 2, pos) + 4 * (6 + h / 2);
                double p = 0;
                for (int c = 0; c < 4; c++)
                    p += 0.5 * (double)q[c] * (double)k[c];
                p = exp(p);
                sum += p;
                far += !near_by;
                first += pos < 2;
                for (int c = 0; c < 4; c++)
                    want[c] += p * (double)v[c];
            }
            for (int c = 0; c < 4; c++)
                want[c] /= sum;
            if (by) /* the last tokens are kept */
                ck_assert_int_eq(far, 9 - first - recent[by]);
            near(how[by], out + 2 * NQ + 4 * h, want, 4, 2e-6);
        }
        cb_toy_close(&t);
    }
}
END_TEST

/* What the block's first layer keeps is SnapKV's choice: its last three queries' attention, summed,
 * averaged over the heads and pooled over five tokens. First tokens are chosen like others. */
START_TEST(the_kept_set_is_snapkvs)
{
    enum { P = N - 1, W = 3, CHOSEN = 5 };
    static const int lead[2][3] = { { 0, 0, 0 }, { 0, 1, 1 } };
    struct toy t;

    open_toy(&t, devices[_i], with(",snap=8,window=3"));
    cb_toy_prompt(&t, P, 4, NULL);
    for (int l = 0; l < 3; l++)
        for (int kv = 0; kv < 2; kv++) {
            double vote[P - W] = { 0 }, pooled[P - W] = { 0 };
            int slot = 0;
            for (int h = 2 * kv; h < 2 * kv + 2; h++)
                for (int i = P - W; i < P; i++) {
                    double p[P], sum = 0;
                    for (int j = 0; j <= i; j++) {
                        const float *q = cb_toy_row(&t, lead[kv][l], i) + 4 * h;
                        const float *k = cb_toy_row(&t, lead[kv][l], j) + 4 * (4 + kv);
                        double x = 0;
                        for (int c = 0; c < 4; c++)
                            x += 0.5 * (double)q[c] * (double)k[c];
                        sum += p[j] = exp(x);
                    }
                    for (int j = 0; j < P - W; j++)
                        vote[j] += p[j] / sum / 2;
                }
            for (int j = 0; j < P - W; j++)
                for (int d = j - 2; d <= j + 2; d++)
                    pooled[j] += d >= 0 && d < P - W ? vote[d] / 5 : 0;
            for (int j = 0; j < P; j++) {
                int better = 0;
                for (int i = 0; j < P - W && i < P - W; i++)
                    better += pooled[i] > pooled[j];
                if (better < CHOSEN)
                    ck_assert_int_eq(cb_store_pos(&t.s->bank.store[l], kv, slot++), j);
            }
            ck_assert_int_eq(slot, 8);
            ck_assert_int_eq(t.s->bank.store[l].n[kv], 8);
        }
    cb_toy_close(&t);
}
END_TEST

/* ---- memory ---- */

/* bytes = b d (L Hkv N + nb n_D + L Hkv (N - n_D)), section 2.3's count of keys and values */
START_TEST(bytes_as_the_formula)
{
    const struct tiny tiny = cb_tiny_small("llama");
    struct cb_model *m = cb_toy_model(&tiny, "ref", 1);
    struct cb_session *s = cb_toy_session(m, "pod:blocks=0,sinks=3,recent=20", "f16", 16);
    const int lh = m->hp.n_layer * m->hp.n_kv, nb = m->hp.n_kv;
    struct cb_memory got, plan;
    int32_t tok[100] = { 1, 2, 3 };

    for (int i = 0; i < 5; i++) {
        const int n = i < 2 ? 20 * (i + 1) : 98 + i;
        const int far = n - 23 > 0 ? n - 23 : 0;
        ck_assert_ok(cb_session_plan(s, n, 0, &plan));
        if (i < 3)
            ck_assert_ok(cb_session_prefill(s, tok, n - cb_session_len(s), NULL));
        else
            ck_assert(!cb_session_decode(s, 5));
        cb_session_memory(s, &got);
        ck_assert_uint_eq(got.kv_bytes, 2 * m->hp.hd * (lh * n + nb * far + lh * (n - far)));
        ck_assert_uint_eq(plan.kv_bytes, got.kv_bytes);
        if (i >= 3)
            ck_assert_uint_eq(plan.kv_read_bytes_per_token, got.kv_read_bytes_per_token);
    }
    cb_session_clear(s);
    cb_session_memory(s, &got);
    ck_assert_uint_eq(got.kv_bytes, 0);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* A layer that takes another's distant tokens drops its own old keys; the rest stay rows. */
START_TEST(only_keys_of_first_layers_are_quantised)
{
    struct tiny tiny = cb_tiny_get("llama");
    struct cb_model *m;
    struct cb_session *s;
    int32_t tok[300] = { 1, 2, 3 };

    tiny.n_layer = 2;
    m = cb_toy_model(&tiny, "cpu", 1);
    s = cb_toy_session(m, "pod:blocks=0,sinks=3,recent=200", "kivi4", 64);
    ck_assert_ok(cb_session_prefill(s, tok, 300, NULL));
    for (int h = 0; h < m->hp.n_kv; h++) {
        ck_assert_int_gt(s->bank.store[0].kivi->head[h].n_k, 0);
        ck_assert_int_eq(s->bank.store[1].kivi->head[h].n_k, 0);
        ck_assert_int_gt(s->bank.store[1].kivi->head[h].n_v, 0);
    }
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- tiny models ---- */

enum { PROMPT = 90, STEPS = 12 };

static struct tiny deep(void)
{
    struct tiny t = cb_tiny_small("qwen2");
    t.n_layer = 6;
    t.n_embd = 64;
    return t;
}

/* Logits after the prompt (in two turns) and after each step -> [STEPS + 1][n_vocab] */
static float *run_model(struct cb_model *m, const char *policy, int chunk, int turn)
{
    struct cb_session *s = cb_toy_session(m, policy, "f32", chunk);
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 1) * n_vocab * sizeof *out);
    int32_t tok[PROMPT];

    for (int i = 0; i < PROMPT; i++)
        tok[i] = (i * 37 + i * i % 11) % m->hp.n_vocab;
    ck_assert_ok(cb_session_prefill(s, tok, turn, NULL));
    if (turn < PROMPT)
        ck_assert_ok(cb_session_prefill(s, tok + turn, PROMPT - turn, NULL));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    for (int i = 0; i < STEPS; i++) {
        ck_assert_ok(cb_session_decode(s, (i * 13 + 5) % m->hp.n_vocab));
        memcpy(out + (size_t)(i + 1) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

static void alike(const char *what, float *x, float *y, size_t n, float tol)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(fabsf(x[i] - y[i]) <= tol * (1 + fabsf(x[i])), "%s: [%zu] %g and %g", what, i,
                      (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

START_TEST(turns_chunks_and_threads_do_not_matter)
{
    static const char *const policy[] = { "pod:blocks=0+1+3,sinks=2,recent=17",
                                          "pod:blocks=0+2,sinks=2,recent=17,gate=0.6" };
    const struct tiny t = deep();
    struct cb_model *one = cb_toy_model(&t, "cpu", 1), *two = cb_toy_model(&t, "cpu", 2);
    const size_t n = (STEPS + 1) * (size_t)one->hp.n_vocab;

    for (int i = 0; i < 2; i++) {
        float *x = run_model(one, policy[i], 0, PROMPT), *y = run_model(two, policy[i], 0, PROMPT);
        ck_assert(!memcmp(x, y, n * sizeof *x));
        alike("chunks", x, run_model(two, policy[i], 7, PROMPT), n, 1e-4f);
        alike("turns", y, run_model(two, policy[i], 0, 40), n, 1e-4f);
    }
    cb_model_close(one);
    cb_model_close(two);
}
END_TEST

/* With SnapKV: as many slots as asked; nothing dropped where the prompt is shorter; and where
 * layers are one block each, what a step reads is SnapKV's own kept set. */
START_TEST(snapkv_keeps_as_many_as_asked)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "cpu", 2);
    const size_t n = (STEPS + 1) * (size_t)m->hp.n_vocab;
    const char *policy = "pod:blocks=0+1+3,sinks=2,recent=17,snap=50,window=8";
    struct cb_session *s = cb_toy_session(m, policy, "f32", 0);
    int32_t tok[PROMPT] = { 1, 2, 3 };
    struct cb_memory mem;

    ck_assert_ok(cb_session_prefill(s, tok, PROMPT, NULL));
    cb_session_memory(s, &mem);
    ck_assert_int_eq(mem.kept_min, 50);
    ck_assert_int_eq(mem.kept_max, 50);
    for (int l = 1; l < 6; l++) /* the same tokens in all layers of a block */
        for (int i = 0; i < 50 && l != 1 && l != 3; i++)
            ck_assert_int_eq(cb_store_pos(&s->bank.store[l], 0, i),
                             cb_store_pos(&s->bank.store[l - 1], 0, i));
    ck_assert(!cb_session_prefill(s, tok, 9, NULL));
    ck_assert(!cb_session_decode(s, 3));
    cb_session_close(s);
    alike("long enough", run_model(m, "pod:blocks=0+1+3,sinks=2,recent=17", 0, PROMPT),
          run_model(m, "pod:blocks=0+1+3,sinks=2,recent=17,snap=90,window=8", 0, PROMPT), n, 0);
    alike("chunks", run_model(m, policy, 0, PROMPT), run_model(m, policy, 7, PROMPT), n, 1e-4f);
    alike("chunks of turns", run_model(m, policy, 0, 60), run_model(m, policy, 7, 60), n, 1e-4f);
    cb_model_close(m);
}
END_TEST

/* ---- bad input ---- */

static const char *const refused[][3] = {
    { "pod:blocks=1+2", NULL, "begin with 0" },
    { "pod:blocks=0+2+2", NULL, "ascend" },
    { "pod:blocks=0+6", NULL, "layers 0 to 5" },
    { "pod:blocks=", NULL, "joined by +" },
    { "pod:sinks=0", NULL, "must be" },
    { "pod:recent=0", NULL, "must be" },
    { "pod:snap=64", NULL, "more than the window" },
    { "pod:proximal=window", NULL, "needs snap" },
    { "pod:preset=none.json", NULL, "none.json" },
    { NULL, "{\"start\": [[0, 0, 0], [0, 1, 1]]}", "not of this model" },
    { NULL, "{\"start\": [[0, 0, 0, 0, 0, 0]]}", "not of this model" },
    { NULL, "{\"start\": [[0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]}", "start[0][2]" },
    { NULL, "{\"start\": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, \"x\"]]}", "start[1][5]" },
    { NULL, "{\"start\": [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 5]], \"sinks\": 0}", "sinks" },
    { NULL, "{\"start\": ", "line 1" },
};

START_TEST(bad_options_are_refused)
{
    const struct tiny t = deep();
    struct cb_model *m = cb_toy_model(&t, "ref", 1);
    struct cb_session_params params = { .policy = refused[_i][0] };

    if (refused[_i][1]) {
        write_preset(refused[_i][1]);
        params.policy = with("");
    }
    cb_toy_refused(m, &params, refused[_i][2]);
    cb_model_close(m);
}
END_TEST

/* ---- models that were trained for it ---- */

enum { TRAINED = 4 }; /* layers */

/* A random model of 4 layers and 2 KV heads whose file holds these blocks; recent 0: the key is
 * missing. Returns the status. */
static int open_trained(const int32_t *start, int n, int recent, struct cb_model **out)
{
    struct tiny t = cb_tiny_small("llama");
    struct gguf_make m;
    int err;

    t.n_layer = TRAINED;
    t.n_head = 4;
    t.n_kv = 2;
    cb_make_init(&m);
    cb_tiny_make(&t, &m);
    cb_gguf_put_array(&m.w, "ctxbank.pod.start", GGUF_I32, start, (uint64_t)n);
    cb_gguf_put_i64(&m.w, "ctxbank.pod.sinks", GGUF_U32, 2);
    if (recent)
        cb_gguf_put_i64(&m.w, "ctxbank.pod.recent", GGUF_U32, recent);
    cb_make_save(&m, preset);
    err = cb_model_open(preset, &(struct cb_model_params){ .n_threads = 1 }, out);
    unlink(preset);
    return err;
}

/* Its file's blocks are the default, and it is not said to be untrained. */
START_TEST(a_trained_model_brings_its_blocks)
{
    static const int32_t start[] = { 0, 0, 2, 2, 0, 1, 1, 1 };
    struct cb_model *m;
    cb_session *s;

    ck_assert_ok(open_trained(start, 8, 5, &m));
    s = cb_toy_session(m, "pod", "f32", 16);
    for (int l = 0; l < TRAINED; l++) {
        const struct cross_layer_plan *x = &s->policy->plan[l].cross;
        ck_assert_int_eq(x->sink, 2);
        ck_assert_int_eq(x->recent, 5);
        for (int kv = 0; kv < 2; kv++)
            ck_assert_int_eq(x->from[kv], start[kv * TRAINED + l]);
    }
    ck_assert_str_eq(s->policy->note, "policy pod: blocks that the model was trained with");
    cb_session_close(s);
    s = cb_toy_session(m, "pod:blocks=0+2,recent=9", "f32", 16);
    ck_assert_int_eq(s->policy->plan[3].cross.from[1], 2);
    ck_assert_int_eq(s->policy->plan[3].cross.recent, 9);
    ck_assert_ptr_null(strstr(s->policy->note, "training-free"));
    ck_assert_ptr_nonnull(strstr(s->policy->note, "not the blocks that the model was trained"));
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

START_TEST(wrong_blocks_in_a_file_are_refused)
{
    static const int32_t right[] = { 0, 0, 2, 2, 0, 1, 1, 1 }, wrong[] = { 0, 0, 2, 1, 0, 0, 0, 0 };
    static const int32_t first[] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    struct cb_model *m;

    ck_assert_int_lt(open_trained(right, 7, 5, &m), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "ctxbank.pod.start must be an array of 2 KV heads"));
    ck_assert_int_lt(open_trained(wrong, 8, 5, &m), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "ctxbank.pod.start[3] must be 3 or as before"));
    ck_assert_int_lt(open_trained(first, 8, 5, &m), 0);
    ck_assert_int_lt(open_trained(right, 8, 0, &m), 0);
    ck_assert_ptr_nonnull(strstr(cb_error(), "ctxbank.pod.recent must be a number of tokens"));
}
END_TEST

int main(void)
{
    const int n_device = sizeof devices / sizeof *devices;
    Suite *suite = suite_create("pod");
    TCase *c = tcase_create("all");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, a_step_as_the_formula, 0, n_device);
    tcase_add_loop_test(c, any_feed_as_the_formula, 0, n_device);
    tcase_add_loop_test(c, turns_as_the_formula, 0, n_device);
    tcase_add_loop_test(c, full_where_nothing_is_shared, 0, n_device);
    tcase_add_loop_test(c, full_where_layers_are_alike, 0, n_device);
    tcase_add_loop_test(c, a_gate_of_0_reads_no_distant_tokens, 0, n_device);
    tcase_add_loop_test(c, a_gate_in_prompts, 0, n_device);
    tcase_add_loop_test(c, near_after_snapkv, 0, n_device);
    tcase_add_loop_test(c, the_kept_set_is_snapkvs, 0, n_device);
    tcase_add_test(c, bytes_as_the_formula);
    tcase_add_test(c, only_keys_of_first_layers_are_quantised);
    tcase_add_test(c, turns_chunks_and_threads_do_not_matter);
    tcase_add_test(c, snapkv_keeps_as_many_as_asked);
    tcase_add_test(c, a_trained_model_brings_its_blocks);
    tcase_add_test(c, wrong_blocks_in_a_file_are_refused);
    tcase_add_loop_test(c, bad_options_are_refused, 0, sizeof refused / sizeof *refused);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
