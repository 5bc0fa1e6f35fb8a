/* SPDX-License-Identifier: MIT */
/* check_gpu_bytes.c - what crosses over to an OpenCL or CUDA device and back for a token, and for a
 * prompt. */
#include "against_ref.h"
#include "engine/session.h"
#include "kit/device_answer.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "model/weights.h"

#define NAME (cb_isa[ISA_FROM])

/* bytes of a KV head's f16 slot; slots and decoded tokens of cb_answer_long */
enum { KV = 2 * 32 * 2, HELD = 900 + 70 + 24, ANSWER = 24 };

static struct answer_chosen chosen[2];

static float *answer(struct cb_model *m, const char *policy, const char *type_kv,
                     struct cb_memory *mem)
{
    return cb_answer_long_of(m, policy, NULL, type_kv, chosen, 2, mem);
}

/* Rows of all layers' KV heads */
static uint64_t heads(const struct cb_model *m)
{
    struct cb_model_info info;

    cb_model_get_info(m, &info);
    return (uint64_t)info.n_layer * (uint64_t)info.n_kv;
}

/* All rows are mirrored: a token brings its own, which are copied back. */
START_TEST(bytes_of_a_mirror)
{
    struct cb_model *m = cb_answer_model_on("llama", 0, NAME, 0);
    struct cb_memory mem;

    free(answer(m, "full", "f16", &mem));
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, 0);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, heads(m) * HELD);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    ck_assert_double_eq(mem.device_gather_s_per_token, 0);
    cb_model_close(m);
}
END_TEST

/* Each layer's rows are copied in for each token, also where the mirror would hold all of them; a
 * working set that holds one layer is enough. */
START_TEST(bytes_of_streamed_layers)
{
    const struct cb_model_params p = {
        .device = NAME, .n_threads = 2, .working_set = _i ? 3 << 19 : 0, .stream_kv = 1
    };
    struct cb_model *plain = cb_answer_model_on("llama", 0, "ref", 0),
                    *m = cb_answer_model("llama", 0, &p);
    struct cb_memory mem;
    float *want = answer(plain, "full", "f16", &mem);
    float *got = answer(m, "full", "f16", &mem);

    ck_assert_double_lt(cb_answer_apart(m, &cb_answer_long, got, want), 2e-3);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, heads(m) * HELD * KV);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, heads(m) * HELD);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
    free(want), free(got);
    cb_model_close(plain);
    cb_model_close(m);
}
END_TEST

/* What is planned is what is moved, where layers differ in what they hold or read. */
static const struct {
    const char *family, *policy;
} unequal[] = {
    { "mistral", "full" },
    { "llama", "pyramidkv:budget=96" },
    { "llama", "streamingllm:budget=100" },
    { "llama", "omnikv:filter=0,budget=64" },
    { "llama", "sieve:budget=32,recent=16" },
    { "llama", "quest:budget=48,dense=1" },
};

START_TEST(plan_of_streamed_layers)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .stream_kv = 1 };
    struct cb_model *m = cb_answer_model(unequal[_i].family, 0, &p);
    const int32_t *text = cb_toy_text(m);
    struct cb_memory plan, mem;
    struct cb_session *s;

    ck_assert_ok(cb_session_open(
        m, &(struct cb_session_params){ .n_ctx = 1024, .chunk = 64, .policy = unequal[_i].policy },
        &s));
    ck_assert_ok(cb_session_plan(s, 380, ANSWER, &plan));
    ck_assert_ok(cb_session_prefill(s, text, 380, NULL));
    for (int i = 0; i < ANSWER; i++)
        ck_assert_ok(cb_session_decode(s, text[i]));
    cb_session_memory(s, &mem);
    ck_assert_uint_gt(plan.device_kv_in_bytes_per_token, 0);
    ck_assert_uint_eq(plan.device_kv_in_bytes_per_token, mem.device_kv_in_bytes_per_token);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Layers 0 to 2 read all of the context, 3 to 5 the CHOSEN slots and the answer. */
enum { LAYERS = 6, DENSE = 3, CHOSEN = 128 };
enum sent { NONE, FRESH, ALL };

static const struct {
    uint64_t working_set; /* 0: all */
    int stream_kv;
    enum sent sent;
} sets[] = {
    { 2 << 20, 0, FRESH },  /* weights give way to the rows of a layer */
    { 11 << 18, 0, FRESH }, /* and to those of three */
    { 0, 0, NONE },
    { 0, 1, ALL },
};

/* Layers that are read whole have the mirror before those whose slots are chosen for each token.
 * Slots that the last token did not choose come in one copy for all layers. */
START_TEST(bytes_of_chosen_slots)
{
    const struct cb_model_params p = { .device = NAME,
                                       .n_threads = 2,
                                       .working_set = sets[_i].working_set,
                                       .stream_kv = sets[_i].stream_kv };
    struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
    struct cb_memory mem;
    uint64_t n_kv = heads(m) / LAYERS, sparse = n_kv * (LAYERS - DENSE), sent, here;

    chosen[0].layer = 1;
    free(answer(m, "omnikv:filter=1,wait=1,budget=128", "f16", &mem));
    ck_assert_int_eq(chosen[0].n, CHOSEN + ANSWER);
    ck_assert_int_gt(chosen[0].fresh, 0);
    ck_assert_int_lt(chosen[0].fresh, CHOSEN);
    sent = sparse * (uint64_t)(sets[_i].sent == FRESH ? chosen[0].fresh
                               : sets[_i].sent == ALL ? CHOSEN + ANSWER
                                                      : 0);
    ck_assert_uint_eq(mem.device_gathered_rows_per_token, sent);
    ck_assert_uint_eq(mem.device_gathers_per_token, sets[_i].sent == FRESH ? 1
                                                    : sets[_i].sent == ALL ? 2 * sparse
                                                                           : 0);
    sent += sets[_i].stream_kv ? n_kv * DENSE * HELD : 0;
    here = sparse * (CHOSEN + ANSWER) + n_kv * DENSE * HELD;
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, sent * KV);
    ck_assert_uint_eq(mem.device_kv_out_bytes_per_token, heads(m) * KV);
    ck_assert_uint_eq(mem.device_rows_per_token, here);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
    ck_assert((mem.device_gather_s_per_token > 0) == (sets[_i].sent != NONE));
    cb_model_close(m);
}
END_TEST

/* The formula of OmniKV's paper, without what is there already: layers after the filter layers x
 * chosen tokens, and no more loads than there are filter layers. */
START_TEST(bytes_of_two_filters)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 2 << 20 };
    struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
    const uint64_t n_kv = heads(m) / LAYERS;
    struct cb_memory mem;
    uint64_t rows;

    chosen[0].layer = 1; /* read by layer 2 */
    chosen[1].layer = 3; /* by layers 4 and 5 */
    free(answer(m, "omnikv:filter=1+3,budget=128", "f16", &mem));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(chosen[i].n, CHOSEN + ANSWER);
        ck_assert_int_gt(chosen[i].fresh, 0);
    }
    rows = n_kv * (uint64_t)(chosen[0].fresh + 2 * chosen[1].fresh);
    ck_assert_uint_eq(mem.device_gathered_rows_per_token, rows);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, rows * KV);
    ck_assert_uint_eq(mem.device_gathers_per_token, 2);
    cb_model_close(m);
}
END_TEST

/* Layers that choose for themselves, a list for each KV head, bring what is new as well. */
START_TEST(bytes_of_searched_slots)
{
    static const char *const policy[] = { "sieve:budget=32,recent=16", "quest:budget=64,dense=0" };
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 5 << 19 };
    struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
    struct cb_memory mem;

    free(answer(m, policy[_i], "f16", &mem));
    ck_assert_uint_gt(mem.device_gathered_rows_per_token, 0);
    ck_assert_uint_lt(mem.device_gathered_rows_per_token, mem.device_rows_per_token);
    ck_assert_uint_eq(mem.device_kv_in_bytes_per_token, mem.device_gathered_rows_per_token * KV);
    ck_assert_uint_gt(mem.device_gathers_per_token, 0);
    ck_assert_uint_le(mem.device_gathers_per_token, LAYERS);
    ck_assert_uint_eq(mem.host_rows_per_token, 0);
    cb_model_close(m);
}
END_TEST

/* The logits of tokens CUT on, after the first three; with `cut` those between were cut off. */
static float *answer_after(struct cb_model *m, const char *policy, int cut)
{
    enum { PROMPT = 380, STAYS = 3, CUT = 12 };
    const struct cb_session_params p = {
        .n_ctx = 1024, .chunk = 64, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    const int32_t *text = cb_toy_text(m);
    const size_t n_vocab = (size_t)cb_n_vocab(m);
    float *out = calloc((ANSWER + 2) * n_vocab, sizeof *out);
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    ck_assert_ok(cb_session_prefill(s, text, PROMPT, NULL));
    for (int i = 0; i < (cut ? CUT : STAYS); i++)
        ck_assert_ok(cb_session_decode(s, text[7 * i]));
    if (cut)
        ck_assert_ok(cb_session_truncate(s, PROMPT + STAYS));
    for (int i = CUT; i < ANSWER; i++) {
        ck_assert_ok(cb_session_decode(s, text[7 * i]));
        memcpy(out + (size_t)i * n_vocab, cb_session_logits(s), n_vocab * sizeof *out);
    }
    cb_session_close(s);
    return out;
}

/* Rows of chosen slots that a cut takes back are not those that are stored next: the device answers
 * as it does without the tokens that were cut off. The other answer is the device's own as well:
 * a sketch has few bits, so sums in another order may choose another token. */
START_TEST(chosen_after_a_cut)
{
    static const char *const policy[] = { "omnikv:filter=1,wait=1,budget=32",
                                          "sieve:budget=32,recent=16",
                                          "quest:budget=48,dense=0,group=each" };
    struct cb_model *m = cb_answer_model(
        "llama", LAYERS,
        &(struct cb_model_params){ .device = NAME, .n_threads = 2, .working_set = 2 << 20 });
    float *want = answer_after(m, policy[_i], 0), *got = answer_after(m, policy[_i], 1);

    ck_assert_double_lt(cb_answer_apart(m, &cb_answer_long, got, want), 1e-6);
    free(want), free(got);
    cb_model_close(m);
}
END_TEST

static struct device_traffic traffic(const struct cb_session *s)
{
    struct device_traffic t;

    ck_assert(!cb_device_lock(s->dev));
    t = cb_device_traffic(s->dev);
    cb_device_unlock(s->dev);
    return t;
}

/* Rows take what is left beside an eighth for operands, of which a part is in use already. */
START_TEST(rows_fill_the_set)
{
    const struct cb_model_params p = { .device = NAME, .n_threads = 2, .working_set = 3 << 20 };
    const struct cb_session_params wide = {
        .n_ctx = 1024, .chunk = 64, .type_k = "f32", .type_v = "f32"
    };
    struct cb_model *m = cb_answer_model("llama", LAYERS, &p);
    struct device_traffic t;
    struct cb_session *s;

    ck_assert_ok(cb_session_open(m, &wide, &s));
    for (int i = 0; i < 2; i++)
        ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), 380, NULL));
    t = traffic(s);
    ck_assert_uint_gt(t.used_bytes, t.limit_bytes / 8 * 7);
    ck_assert_uint_le(t.used_bytes, t.limit_bytes);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* How often the host has waited until all that was queued is done */
static uint64_t waits(const struct cb_session *s)
{
    return traffic(s).waits;
}

/* The host reads no rows while all are mirrored and nothing is evicted: it waits for a token's
 * logits, not for each layer. */
START_TEST(a_token_waits_once)
{
    enum { DEEP = 24, TOKENS = 128, MORE = 4 };
    const struct cb_session_params p = { .n_ctx = 400, .chunk = 64 };
    struct tiny tiny = cb_tiny_small("llama");
    struct cb_model *m;
    struct cb_session *s;
    uint64_t was;

    tiny.n_layer = DEEP;
    m = cb_toy_model_with(&tiny, &(struct cb_model_params){ .device = NAME, .n_threads = 2 });
    ck_assert_ok(cb_session_open(m, &p, &s));
    was = waits(s);
    ck_assert_ok(cb_session_prefill(s, cb_toy_text(m), TOKENS, NULL));
    ck_assert_uint_le(waits(s) - was, DEEP);
    ck_assert_ok(cb_session_decode(s, cb_toy_text(m)[TOKENS]));
    was = waits(s);
    for (int i = 0; i < MORE; i++)
        ck_assert_ok(cb_session_decode(s, cb_toy_text(m)[i]));
    ck_assert_uint_le(waits(s) - was, 4 * MORE);
    ck_assert_uint_gt(waits(s), was);
    cb_session_close(s);
    cb_model_close(m);
}
END_TEST

/* Weights beyond the working set are copied once for each prompt, however many chunks it has, a
 * layer ahead. */
START_TEST(bytes_of_streamed_weights)
{
    enum { DEEP = 20, TOKENS = 128 };
    struct tiny tiny = cb_tiny_small("llama");
    const struct cb_session_params p = {
        .n_ctx = 400, .chunk = 64, .type_k = "f32", .type_v = "f32"
    };
    uint64_t all = 0, away = 0;
    float *want = NULL;

    tiny.n_layer = DEEP;
    tiny.n_ff = 320;
    tiny.n_vocab = 4096; /* its output matrix stays with the CPU */
    tiny.type = DT_F32;
    for (int here = 0; here < 2; here++) {
        struct cb_model *m = cb_toy_model_with(
            &tiny, &(struct cb_model_params){ .device = here ? NAME : "ref",
                                              .n_threads = 2,
                                              .working_set = here ? 6 << 20 : 0 });
        const size_t n_vocab = (size_t)cb_n_vocab(m);
        struct cb_memory mem, plan;
        struct cb_session *s;
        struct weight *w;
        for (int l = 0; here && l < DEEP; l++)
            for (int i = 0; (w = cb_weights_at(&m->layer[l], i, 0)); i++)
                all += w->raw ? cb_row_bytes(w->type, w->n_in) * (uint64_t)w->n_out : 0;
        ck_assert_ok(cb_session_open(m, &p, &s));
        ck_assert_ok(cb_session_plan(s, TOKENS, 0, &plan));
        for (int i = 0; i < 2; i++) {
            ck_assert_ok(cb_session_prefill(s, cb_toy_text(m) + i * TOKENS, TOKENS, NULL));
            cb_session_memory(s, &mem);
            away = here ? all - mem.device_weights_bytes : 0;
            ck_assert_uint_eq(mem.device_weights_in_bytes, (uint64_t)(i + 1) * away);
            ck_assert_uint_le(mem.device_peak_bytes, mem.device_limit_bytes);
        }
        ck_assert(!here || (away > all / 8 && plan.device_work_bytes > mem.device_work_bytes));
        if (here)
            same("logits", cb_session_logits(s), want, n_vocab, 1e-4f);
        else
            want = copy(cb_session_logits(s), n_vocab);
        cb_session_close(s);
        cb_model_close(m);
    }
    free(want);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bytes");
    TCase *tc = tcase_create(NAME);
    const int one = cb_isa_pretends(); /* case of each kind: the host counts the bytes */

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, bytes_of_a_mirror);
    tcase_add_loop_test(tc, bytes_of_streamed_layers, 0, one ? 1 : 2);
    tcase_add_loop_test(tc, plan_of_streamed_layers, 0, one ? 1 : sizeof unequal / sizeof *unequal);
    tcase_add_loop_test(tc, bytes_of_chosen_slots, 0, one ? 1 : sizeof sets / sizeof *sets);
    tcase_add_test(tc, bytes_of_two_filters);
    tcase_add_loop_test(tc, bytes_of_searched_slots, 0, one ? 1 : 2);
    tcase_add_loop_test(tc, chosen_after_a_cut, 0, one ? 1 : 3);
    tcase_add_test(tc, bytes_of_streamed_weights);
    tcase_add_test(tc, rows_fill_the_set);
    tcase_add_test(tc, a_token_waits_once);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
