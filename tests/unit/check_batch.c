/* SPDX-License-Identifier: MIT */
/* check_batch.c - sessions decoded together, and prompts in steps with other sessions between them:
 * the same logits, to the bit, as each alone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_SESSION = 22, STEPS = 24, N_CTX = 300 };

/* Any mix of policies, stored types, lengths of prompts and bits of activations */
static const struct {
    const char *policy, *type;
    int n_prompt, act_bits;
} mix[N_SESSION] = {
    { "full", "f16", 130, 0 },
    { "snapkv:budget=24,window=8", "f16", 200, 0 },
    { "omnikv:filter=1,budget=12", "f32", 150, 0 },
    { "h2o:budget=20", "bf16", 90, 16 },
    { "streamingllm:budget=40", "f16", 170, 8 },
    { "pod:blocks=0,sinks=2,recent=16", "f16", 77, 8 },
    { "full", "q8_0", 140, 8 },
    { "d2o:budget=30", "f16", 1, 8 },
    { "minicache:start=0,retain=20,tail=3", "f16", 150, 8 },
    { "full", "kivi4:32", 201, 8 },
    { "full", "f16", 33, 8 },
    { "sieve:budget=12,recent=8", "f16", 200, 0 },
    { "sieve:budget=12,recent=8", "q8_0", 120, 8 },
    { "sieve:budget=12,recent=8", "planes", 140, 8 },
    { "quest:budget=30,page=7,dense=0", "f16", 150, 8 },
    { "quest:budget=48,dense=0,group=each", "f16", 150, 8 },
    { "infinigen:alpha=0.2,most=30", "f16", 150, 8 },
    { "infinigen:alpha=0.2,most=0.4,dense=1", "q8_0", 120, 0 },
    { "infllm:local=30,sink=4,block=8,blocks=3,chunk=4", "f16", 150, 8 },
    { "snapkv:budget=24,window=8,floor=0.2", "f16", 160, 0 },
    { "keydiff:budget=24,decode=bounded,chunk=4", "f16", 140, 0 },
    { "expected:budget=24,future=32", "bf16", 120, 0 },
};

static const char *const devices[] = { "cpu", "ref" };

static struct cb_model *deep(const char *device)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.n_layer = 4;
    t.n_embd = 128;
    t.hd = 32;
    t.type = DT_Q5_1;
    return cb_toy_model(&t, device, 2);
}

static cb_session *open_one(cb_model *m, int i, int chunk)
{
    const struct cb_session_params p = { .n_ctx = N_CTX,
                                         .chunk = chunk,
                                         .policy = mix[i].policy,
                                         .type_k = mix[i].type,
                                         .type_v = cb_toy_values(mix[i].type),
                                         .act_bits = mix[i].act_bits };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

static int32_t next_token(const cb_model *m, int i, int step)
{
    return cb_toy_text(m)[(i * 31 + step * 7) % TOY_TEXT];
}

/* Session i alone: logits after its prompt and after each step -> out[STEPS + 1][n_vocab] */
static float *alone(cb_model *m, int i, int chunk)
{
    const size_t n_vocab = (size_t)m->hp.n_vocab;
    float *out = malloc((STEPS + 1) * n_vocab * sizeof *out);
    cb_session *s = open_one(m, i, chunk);

    ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), mix[i].n_prompt, NULL));
    memcpy(out, cb_session_logits(s), n_vocab * sizeof *out);
    for (int k = 0; k < STEPS; k++) {
        ck_assert_ok(cb_session_decode(s, next_token(m, i, k)));
        memcpy(out + (size_t)(k + 1) * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

static void same(const cb_model *m, const cb_session *s, const float *want, int row, int i)
{
    const size_t n_vocab = (size_t)m->hp.n_vocab;

    ck_assert_msg(
        !memcmp(cb_session_logits(s), want + (size_t)row * n_vocab, n_vocab * sizeof *want),
        "session %d (%s, %s), step %d: logits differ", i, mix[i].policy, mix[i].type, row);
}

/* Batches of changing size: session i takes part in step k unless (i + k) % 5 is 0, so sessions
 * move on at different speeds. chunk: rows at once; below N_SESSION the batch goes in several
 * groups. */
static void together(const char *device, int chunk)
{
    struct cb_model *m = deep(device);
    cb_session *s[N_SESSION];
    float *want[N_SESSION];
    int done[N_SESSION] = { 0 };

    for (int i = 0; i < N_SESSION; i++) {
        want[i] = alone(m, i, chunk);
        s[i] = open_one(m, i, chunk);
        ck_assert_ok(cb_session_prefill(s[i], cb_toy_text(m), mix[i].n_prompt, NULL));
    }
    for (int k = 0; k < STEPS; k++) {
        cb_session *now[N_SESSION];
        int32_t tok[N_SESSION];
        int n = 0;
        for (int i = 0; i < N_SESSION; i++)
            if ((i + k) % 5) {
                now[n] = s[i];
                tok[n++] = next_token(m, i, done[i]++);
            }
        ck_assert_ok(cb_decode_batch(now, tok, n));
        for (int i = 0; i < N_SESSION; i++)
            same(m, s[i], want[i], done[i], i);
    }
    for (int i = 0; i < N_SESSION; i++) {
        ck_assert_int_eq(cb_session_len(s[i]), mix[i].n_prompt + done[i]);
        cb_session_close(s[i]);
        free(want[i]);
    }
    cb_model_close(m);
}

START_TEST(as_each_alone)
{
    together(devices[_i], 0);
}
END_TEST

START_TEST(groups_of_a_small_chunk)
{
    together("cpu", 4);
}
END_TEST

/* A batch may be of one. */
START_TEST(batches_of_one)
{
    struct cb_model *m = deep("cpu");

    for (int i = 0; i < N_SESSION; i++) {
        float *want = alone(m, i, 0);
        cb_session *s = open_one(m, i, 0);
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), mix[i].n_prompt, NULL));
        for (int k = 0; k < STEPS; k++) {
            const int32_t tok = next_token(m, i, k);
            ck_assert_ok(cb_decode_batch(&s, &tok, 1));
            same(m, s, want, k + 1, i);
        }
        cb_session_close(s);
        free(want);
    }
    cb_model_close(m);
}
END_TEST

/* Forks of forks, made between steps, are decoded in one batch with other sessions. */
START_TEST(forks_as_each_alone)
{
    enum { FORKS = 6, EACH = 3, N = FORKS * EACH };
    struct cb_model *m = deep("cpu");

    for (int i = 0; i < N_SESSION; i++) {
        cb_session *s[FORKS + 1] = { open_one(m, i, 0) };
        int32_t fed[FORKS][N], tok[FORKS + 1];
        const int own = mix[i].act_bits == 8 ? 4 : 0; /* a batch has one number of bits */
        int n = 1;
        ck_assert_ok(cb_session_prefill(s[0], cb_toy_text(m), mix[i].n_prompt, NULL));
        for (int k = 0; k < N; k++) {
            if (k % EACH == 0 && k) {
                const int from = n % 2 ? n - 1 : 0;
                ck_assert_ok(cb_session_fork(s[from], &s[n]));
                memcpy(fed[n], fed[from], sizeof fed[n]);
                n++;
            }
            for (int j = 0; j < n; j++)
                tok[j] = fed[j][k] = next_token(m, j, k);
            s[n] = open_one(m, own, 0);
            ck_assert_ok(cb_session_prefill(s[n], cb_toy_text(m), 40, NULL));
            tok[n] = 1;
            ck_assert_ok(cb_decode_batch(s, tok, n + 1));
            cb_session_close(s[n]);
        }
        for (int j = 0; j < n; j++) {
            cb_session *plain = open_one(m, i, 0);
            ck_assert_ok(cb_session_prefill(plain, cb_toy_text(m), mix[i].n_prompt, NULL));
            for (int k = 0; k < N; k++)
                ck_assert_ok(cb_session_decode(plain, fed[j][k]));
            same(m, s[j], cb_session_logits(plain), 0, i);
            cb_session_close(plain);
            cb_session_close(s[j]);
        }
    }
    cb_model_close(m);
}
END_TEST

/* ---- prompts in steps ---- */

/* Two prompts in progress at once, and a third session that decodes between their steps */
START_TEST(steps_between_others)
{
    static const int chunks[] = { 0, 16 };
    struct cb_model *m = deep("cpu");

    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++)
        for (int i = 0; i + 2 < N_SESSION; i++) {
            const int who[] = { i, i + 1, i + 2 };
            cb_session *s[3];
            float *want[3];
            int left = 3, k = 0;
            for (int j = 0; j < 3; j++) {
                want[j] = alone(m, who[j], chunks[c]);
                s[j] = open_one(m, who[j], chunks[c]);
            }
            ck_assert_ok(cb_session_prefill(s[2], cb_toy_text(m), mix[who[2]].n_prompt, NULL));
            for (int j = 0; j < 2; j++)
                ck_assert_ok(
                    cb_session_prefill_begin(s[j], cb_toy_text(m), mix[who[j]].n_prompt, NULL));
            while (left) {
                left = 0;
                for (int j = 0; j < 2; j++) {
                    const int more = cb_session_prefill_step(s[j]);
                    ck_assert_msg(more >= 0, "%s", cb_error());
                    left += more;
                }
                if (k < STEPS) {
                    ck_assert_ok(cb_session_decode(s[2], next_token(m, who[2], k)));
                    same(m, s[2], want[2], ++k, who[2]);
                }
            }
            for (int j = 0; j < 2; j++) {
                same(m, s[j], want[j], 0, who[j]);
                ck_assert_ok(cb_session_decode(s[j], next_token(m, who[j], 0)));
                same(m, s[j], want[j], 1, who[j]);
            }
            for (int j = 0; j < 3; j++) {
                cb_session_close(s[j]);
                free(want[j]);
            }
        }
    cb_model_close(m);
}
END_TEST

/* A prompt that is given up leaves the session as it was, or empty where the policy drops tokens.
 */
START_TEST(cancelled_prompts)
{
    struct cb_model *m = deep("cpu");

    for (int i = 0; i < N_SESSION; i++) {
        const int n = mix[i].n_prompt;
        float *want = alone(m, i, 16);
        cb_session *s = open_one(m, i, 16);
        int had;
        ck_assert_ok(cb_session_prefill_begin(s, cb_toy_text(m), n, NULL));
        for (int k = 0; k < 3; k++)
            ck_assert_int_ge(cb_session_prefill_step(s), 0);
        ck_assert_int_eq(cb_session_decode(s, 1), CB_EARG);
        ck_assert_int_eq(cb_session_prefill(s, cb_toy_text(m), 1, NULL), CB_EARG);
        ck_assert_int_eq(cb_session_prefill_begin(s, cb_toy_text(m), 1, NULL), CB_EARG);
        ck_assert_int_eq(cb_decode_batch(&s, cb_toy_text(m), 1), CB_EARG);
        cb_session_prefill_cancel(s);
        ck_assert_int_eq(cb_session_len(s), 0);
        ck_assert_int_eq(cb_session_prefill_step(s), 0); /* nothing is in progress */
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), n, NULL));
        same(m, s, want, 0, i);
        for (had = 0; had < 2; had++)
            ck_assert_ok(cb_session_decode(s, next_token(m, i, had)));
        same(m, s, want, had, i);
        cb_session_close(s);
        free(want);
    }
    cb_model_close(m);
}
END_TEST

static int stop(void *arg, int64_t done, int64_t total)
{
    (void)total;
    return done >= *(const int64_t *)arg;
}

START_TEST(a_callback_stops_steps)
{
    struct cb_model *m = deep("cpu");
    cb_session *s = open_one(m, 0, 16);
    int64_t at = 40;
    const struct cb_prefill how = { .progress = stop, .progress_arg = &at };
    int left;

    ck_assert_ok(cb_session_prefill_begin(s, cb_toy_text(m), 100, &how));
    while ((left = cb_session_prefill_step(s)) > 0)
        ;
    ck_assert_int_eq(left, CB_ECANCEL);
    ck_assert_int_eq(cb_session_len(s), 0);
    ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 100, NULL));
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* ---- what is refused leaves all as it was ---- */

START_TEST(refused_batches)
{
    struct cb_model *m = deep("cpu"), *other = deep("cpu");
    cb_session *s[3] = { open_one(m, 0, 0), open_one(m, 6, 0), open_one(other, 0, 0) };
    const int32_t tok[3] = { 1, 2, 3 }, bad[2] = { 1, -1 };
    float *want = alone(m, 0, 0);

    ck_assert_ok(cb_session_prefill(s[0], cb_toy_text(m), mix[0].n_prompt, NULL));
    ck_assert_ok(cb_session_prefill(s[1], cb_toy_text(m), N_CTX, NULL)); /* full */
    ck_assert_int_eq(cb_decode_batch(s, tok, 0), CB_EARG);
    ck_assert_int_eq(cb_decode_batch(s, tok, 2), CB_EFULL);
    ck_assert_int_eq(cb_decode_batch(s, tok, 3), CB_EFULL);
    cb_session_clear(s[1]);
    ck_assert_int_eq(cb_decode_batch(s, tok, 3), CB_EARG);
    ck_assert_int_eq(cb_decode_batch(s, bad, 2), CB_EARG);
    s[2] = (cb_session_close(s[2]), s[0]);
    ck_assert_int_eq(cb_decode_batch(s, tok, 3), CB_EARG);
    ck_assert(strstr(cb_error(), "the same"));
    ck_assert_ok(cb_session_decode(s[0], next_token(m, 0, 0)));
    same(m, s[0], want, 1, 0);
    free(want);
    cb_session_close(s[0]);
    cb_session_close(s[1]);
    cb_model_close(m);
    cb_model_close(other);
}
END_TEST

/* Prompts do not depend on act_bits, decoded tokens do. */
START_TEST(bits_of_activations)
{
    struct cb_model *m = deep("cpu");
    const size_t bytes = (size_t)m->hp.n_vocab * sizeof(float);
    struct cb_session_params p = { .n_ctx = N_CTX };
    cb_session *s[3];

    for (int i = 0; i < 3; i++, p.act_bits += 8) { /* default, 8, 16 */
        ck_assert_ok(cb_session_open(m, &p, &s[i]));
        ck_assert_ok(cb_session_prefill(s[i], cb_toy_text(m), 50, NULL));
        ck_assert_mem_eq(cb_session_logits(s[i]), cb_session_logits(s[0]), bytes);
    }
    for (int i = 0; i < 3; i++)
        ck_assert_ok(cb_session_decode(s[i], 1));
    ck_assert_mem_eq(cb_session_logits(s[2]), cb_session_logits(s[0]), bytes);
    ck_assert_mem_ne(cb_session_logits(s[1]), cb_session_logits(s[0]), bytes);
    for (int i = 0; i < 3; i++)
        cb_session_close(s[i]);
    p.act_bits = 4;
    ck_assert_int_eq(cb_session_open(m, &p, &s[0]), CB_EARG);
    ck_assert_ptr_null(s[0]);
    ck_assert(strstr(cb_error(), "4 bits"));
    cb_model_close(m);
}
END_TEST

/* What sessions of one model share is said, and is the same for each. */
START_TEST(shared_memory_is_counted_once)
{
    struct cb_model *m = deep("cpu");
    cb_session *s[2] = { open_one(m, 0, 0), open_one(m, 3, 0) };
    struct cb_memory a, b, plan;

    for (int i = 0; i < 2; i++)
        ck_assert_ok(cb_session_prefill(s[i], cb_toy_text(m), 50, NULL));
    cb_session_memory(s[0], &a);
    cb_session_memory(s[1], &b);
    ck_assert_ok(cb_session_plan(s[0], 50, 0, &plan));
    ck_assert_uint_eq(a.shared_bytes, b.shared_bytes);
    ck_assert_uint_eq(a.shared_bytes, plan.shared_bytes);
    ck_assert_uint_ge(a.shared_bytes, a.weights_bytes);
    ck_assert_uint_le(a.shared_bytes, a.weights_bytes + a.scratch_bytes);
    cb_session_close(s[0]);
    cb_session_close(s[1]);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *c = tcase_create("all");

    tcase_add_loop_test(c, as_each_alone, 0, 2);
    tcase_add_test(c, groups_of_a_small_chunk);
    tcase_add_test(c, batches_of_one);
    tcase_add_test(c, forks_as_each_alone);
    tcase_add_test(c, steps_between_others);
    tcase_add_test(c, cancelled_prompts);
    tcase_add_test(c, a_callback_stops_steps);
    tcase_add_test(c, refused_batches);
    tcase_add_test(c, bits_of_activations);
    tcase_add_test(c, shared_memory_is_counted_once);
    tcase_set_timeout(c, 240);
    suite_add_tcase(suite, c);
    return cb_suite_run(suite);
}
