/* SPDX-License-Identifier: MIT */
/* check_gpu_policies.c - sessions on an OpenCL or CUDA device, beside the reference: every policy
 * with every type of keys and values, rows that are all mirrored, partly, or hardly. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "attention/readers/chooser.h"
#include "engine/session.h"
#include "kit/device_answer.h"
#include "kit/isa.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/toy.h"

#define NAME (cb_isa[ISA_FROM])

/* How far logits may be off, as a share of the largest: a code of few bits that rounds the other
 * way is a large step. */
static double tolerance(const char *type_kv)
{
    return strstr(type_kv, "kivi2")   ? 0.06
           : strstr(type_kv, "kivi4") ? 1e-2
           : strstr(type_kv, "q8_0")  ? 4e-3
                                      : 2e-3;
}

/* ---- every policy with every type ---- */

enum { LAYERS = 4, CTX = 1024 };
static const struct answer_size brief = { .prompt = 200, .second = 12, .tokens = 4 };

/* Adds a bit for each token that a KV head of a layer holds; kv -1: slots that the layer chose */
static void mark(const cb_session *s, int l, int kv, int bit, char *in)
{
    const struct store *st = &s->bank.store[l];
    const int32_t *slot = NULL;
    int n = 0;

    if (kv >= 0)
        n = st->n[kv];
    else if (cb_attention_counts(&s->attention, l, NULL))
        slot = cb_chooser_slots(&s->attention, l, &n);
    for (int i = 0; (kv >= 0 || slot) && i < n; i++)
        in[kv >= 0 ? cb_store_pos(st, kv, i) : slot[i]] |= (char)bit;
}

/* The tokens that one of two sessions holds or has chosen and the other one has not, as a share */
static double other_tokens(const cb_session *a, const cb_session *b)
{
    int all = 0, other = 0;

    for (int l = 0; l < LAYERS; l++)
        for (int h = -1; h < a->model->hp.n_kv; h++) {
            char in[CTX] = { 0 };
            mark(a, l, h, 1, in);
            mark(b, l, h, 2, in);
            for (int i = 0; i < CTX; i++) {
                all += in[i] != 0;
                other += in[i] == 1 || in[i] == 2;
            }
        }
    return (double)other / all;
}

/* Of slots with nearly the same score either may be right, so rows that were rounded differently
 * lead to others: to this share of them at most. */
static const double most_other = 0.02;

/* quest chooses pages anew for each token, and counts none */
static int chooses(const cb_session *s, const char *policy)
{
    if (!strncmp(policy, "quest", 5))
        return 1;
    for (int l = 0; l < LAYERS; l++)
        if (cb_attention_counts(&s->attention, l, NULL))
            return 1;
    return 0;
}

/* What a policy keeps and reads is the same for any keys. */
static int goes_by_place(const char *policy)
{
    static const char *const name[] = { "full", "window", "streamingllm", "lm-infinite", "duo" };

    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (!strncmp(policy, name[i], strlen(name[i])))
            return 1;
    return 0;
}

/* Logits after other tokens are those of another context, and a policy may have chosen otherwise
 * in an earlier step, or merged otherwise. */
static double allowed(const cb_session *s, const char *policy, const char *type, double other)
{
    if (!strcmp(type, "f32") || goes_by_place(policy))
        return 2 * tolerance(type);
    return other > 0 || chooses(s, policy) ? 0.3 : 10 * tolerance(type);
}

static void same_answer(struct cb_model *ref, struct cb_model *m, const char *policy,
                        const char *type)
{
    struct cb_session *want_s, *s;
    const int err = cb_answer_open(ref, policy, NULL, type, &want_s);
    float *want, *got;
    double off, other;

    if (err || !strcmp(type, "planes") || !strncmp(policy, "infinigen", 9)) {
        const char *why = strncmp(policy, "infinigen", 9) || err ? "of type " : "partial keys";
        ck_assert_int_ne(cb_answer_open(m, policy, NULL, type, &s), CB_OK);
        ck_assert_msg(strstr(cb_error(), why), "%s, %s: %s", policy, type, cb_error());
        if (!err)
            cb_session_close(want_s);
        return;
    }
    ck_assert_msg(!cb_answer_open(m, policy, NULL, type, &s), "%s, %s: %s", policy, type,
                  cb_error());
    want = cb_answer(want_s, &brief, NULL, 0);
    got = cb_answer(s, &brief, NULL, 0);
    off = cb_answer_apart(m, &brief, got, want);
    other = other_tokens(want_s, s);
    ck_assert_msg(other <= (strcmp(type, "f32") ? most_other : 0),
                  "%s, %s: %g of the tokens are others", policy, type, other);
    ck_assert_msg(off < allowed(s, policy, type, other),
                  "%s, %s: off by %g, %g of the tokens are others", policy, type, off, other);
    free(want), free(got);
    cb_session_close(want_s);
    cb_session_close(s);
}

/* Every other policy has a working set that holds few of the rows. */
START_TEST(every_policy)
{
    struct cb_model *ref = cb_answer_model_on("qwen2", LAYERS, "ref", 0);
    struct cb_model *m[] = { cb_answer_model_on("qwen2", LAYERS, NAME, 0),
                             cb_answer_model_on("qwen2", LAYERS, NAME, 5 << 18) };
    char policy[96];
    int n = 0;

    for (; cb_setting_policy(n, policy, sizeof policy); n++)
        same_answer(ref, m[(n + _i) % 2], policy, cb_setting_type[_i]);
    ck_assert_int_gt(n, 20);
    cb_model_close(m[0]);
    cb_model_close(m[1]);
    cb_model_close(ref);
}
END_TEST

/* ---- long contexts ---- */

/* Where a difference in the last digits of halves would choose other slots, rows are f32. */
static const struct one {
    const char *policy, *prefill, *kv;
} cases[] = {
    { "full", NULL, "f16" },
    { "full", NULL, "q8_0" },
    { "full", NULL, "f32" },
    { "full", NULL, "kivi4:32" },
    { "streamingllm:budget=256,positions=rolled", NULL, "bf16" },
    { "h2o:budget=256", NULL, "f16" },
    { "tova:budget=256", NULL, "f16" },
    { "snapkv:budget=256", NULL, "f16" },
    { "snapkv:budget=256", NULL, "kivi2:32" },
    { "d2o:budget=256", NULL, "f32" },
    { "pod:sinks=4,recent=64", NULL, "f16" },
    { "omnikv:filter=0,budget=128", NULL, "f16" },
    { "sieve:budget=128,recent=32", NULL, "f32" },
    { "quest:budget=128,dense=0", NULL, "f16" },
    { "infllm:local=16,sink=16,block=32,blocks=3", NULL, "f16" },
    { "full", "omnikv:filter=0,chunk=128,ratio=0.5", "f16" },
};

static float *answer(struct cb_model *m, const struct one *c, struct cb_memory *mem)
{
    return cb_answer_long_of(m, c->policy, c->prefill, c->kv, NULL, 0, mem);
}

/* Each policy: all rows on the device, and a working set that holds few of them */
START_TEST(long_answers)
{
    static const char *const family[] = { "llama", "mistral" };

    const int one = cb_isa_pretends(); /* family and working set of a case */

    for (int f = one && _i % 2; f < 2; f += 1 + one) {
        struct cb_model *plain = cb_answer_model_on(family[f], 0, "ref", 0);
        struct cb_memory mem;
        float *want = answer(plain, &cases[_i], &mem);
        ck_assert_uint_eq(mem.device_limit_bytes, 0);
        /* with OpenCL, each family has one of the sets */
        for (int little = one ? _i / 2 % 2 : !IS_CUDA && (_i + f) % 2; little < 2;
             little += 1 + (one || !IS_CUDA)) {
            const uint64_t set = little ? 3 << 19 : 0;
            struct cb_model *m = cb_answer_model_on(family[f], 0, NAME, set);
            float *got = answer(m, &cases[_i], &mem);
            const double off = cb_answer_apart(m, &cb_answer_long, got, want);
            ck_assert_msg(off < tolerance(cases[_i].kv), "%s, %s %s, working set %d: off by %g",
                          family[f], cases[_i].policy, cases[_i].kv, (int)set, off);
            ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
            ck_assert(little || mem.device_rows > 0);
            if (!f && !strncmp(cases[_i].policy, "sieve", 5)) {
                /* pages that the prompt has used do not give way to sketches at once */
                ck_assert_uint_gt(mem.device_sketches, 0);
                ck_assert_int_eq(mem.host_sketches > 0, little);
            }
            free(got);
            cb_model_close(m);
        }
        free(want);
        cb_model_close(plain);
    }
}
END_TEST

/* In a working set that holds a part of the rows, both sides read some. */
START_TEST(both_read)
{
    static const struct one whole = { "full", NULL, "f32" };
    struct cb_memory mem;
    struct cb_model *plain = cb_answer_model_on("llama", 0, "ref", 0);
    struct cb_model *m = cb_answer_model_on("llama", 0, NAME, 3 << 19);
    float *want = answer(plain, &whole, &mem);
    float *got = answer(m, &whole, &mem);

    ck_assert_double_lt(cb_answer_apart(m, &cb_answer_long, got, want), 1e-4);
    ck_assert_uint_gt(mem.host_rows, 0);
    ck_assert_uint_gt(mem.device_rows, 0);
    ck_assert_uint_lt(mem.device_kv_bytes, mem.kv_bytes);
    free(want), free(got);
    cb_model_close(plain);
    cb_model_close(m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("policies");
    TCase *tc = tcase_create("types"), *more = tcase_create("long");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_set_timeout(more, 300);
    if (!cb_isa_pretends())
        tcase_add_loop_test(tc, every_policy, 0, cb_n_setting_type);
    tcase_add_loop_test(more, long_answers, 0, sizeof cases / sizeof *cases);
    tcase_add_test(more, both_read);
    suite_add_tcase(s, tc);
    suite_add_tcase(s, more);
    return cb_suite_run(s);
}
