/* SPDX-License-Identifier: MIT */
/* check_gpu_selectors.c - models with trained selectors on an OpenCL or CUDA device: logits are
 * those of the CPU, decoded tokens read the same tokens, chunks, forks, saved banks and cuts leave
 * the bits as they are, bytes are those planned, and a note says what the CPU does. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ints.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/inside.h"
#include "kit/isa.h"
#include "kit/recipe.h"
#include "kit/suite.h"

#define NAME (cb_isa[ISA_FROM])
enum { N_CTX = 512, N_LAYER = 8 };

static const struct model {
    const char *recipe;
    int block; /* of MiniMax M3, of which a query reads two; 0: the recipe's */
    int local; /* how many of its blocks are the newest ones; 0: the recipe's */
    const char *note;
} models[] = {
    { "family-deepseek32.json", 0, 0, "scores the selectors' keys of prompts, in layers 0-1" },
    { "family-glm-dsa.json", 0, 0, "scores the selectors' keys of prompts, in layers 0-3" },
    { "family-minimax-m3.json", 0, 0, "scores the selectors' keys of prompts, in layers 1-2" },
    { "family-minimax-m3.json", 128, 0,
      "scores the selectors' keys of prompts and attends there in prompts" },
    { "family-qwen4exp.json", 0, 0, "scores the selectors' keys of prompts, in layers 1, 3" },
    { "family-deepseek4.json", 0, 0,
      "makes and scores rows that stand for several tokens, in layers 0, 2-3" },
};
enum { N_MODEL = sizeof models / sizeof *models };

static struct recipe recipe;
static char path[4096], bank[4096];
static int n_prompt, n_step;

static void set_key(const char *key, int value)
{
    json_t *row;
    size_t i;

    json_array_foreach(json_object_get(recipe.root, "kv"), i, row)
    {
        if (strstr(json_string_value(json_array_get(row, 0)), key))
            json_array_set_new(row, 2, json_integer(value));
    }
}

static void make_model(const struct model *x)
{
    const char *folder = cb_folder_make("selectors");
    struct gguf_make make;

    snprintf(path, sizeof path, "%s/model", folder);
    snprintf(bank, sizeof bank, "%s/bank", folder);
    n_prompt = x->block ? 300 : 90;
    n_step = cb_isa_pretends() ? 6 : 24;
    cb_recipe_open(&recipe, x->recipe);
    if (x->block) {
        set_key("indexer.block_size", x->block);
        set_key("indexer.top_k", 2);
    }
    if (x->local)
        set_key("indexer.local_blocks", x->local);
    cb_recipe_make(&recipe, &make);
    cb_make_save(&make, path);
}

static void forget_model(void)
{
    cb_recipe_close(&recipe);
    cb_folder_remove();
}

static cb_model *open_on(const char *device, uint64_t working_set)
{
    const struct cb_model_params p = { .device = device,
                                       .n_threads = 2,
                                       .working_set = working_set };
    cb_model *m;

    ck_assert_ok(cb_model_open(path, &p, &m));
    return m;
}

static cb_session *session(cb_model *m, const char *type, int chunk)
{
    const struct cb_session_params p = {
        .n_ctx = N_CTX, .chunk = chunk, .type_k = type, .type_v = type, .policy = "own"
    };
    cb_session *s;

    ck_assert_ok(cb_session_open(m, &p, &s));
    return s;
}

/* ---- beside the CPU ---- */

struct seen {
    int n_layer;
    uint8_t read[N_LAYER][N_CTX]; /* of the last token, by any head */
};

static void look(void *arg, const struct attention *a, int l)
{
    struct seen *x = arg;

    ck_assert_int_lt(l, N_LAYER);
    memset(x->read[l], 0, N_CTX);
    for (int h = 0; a->model->layer[l].n_kv && h < a->model->hp.n_head; h++)
        cb_reads_mark(a, l, h, x->read[l]);
    x->n_layer++;
}

/* Prompts in chunks and tokens leave logits as on the CPU, and tokens read what they read there. */
static void as_on_cpu(const char *type, uint64_t working_set, double tolerance)
{
    cb_model *m[] = { open_on("cpu", 0), open_on(NAME, working_set) };
    struct seen *seen = calloc(2, sizeof *seen);
    cb_session *s[2];

    for (int i = 0; i < 2; i++) {
        s[i] = session(m[i], type, 32);
        s[i]->attention.watch = &(struct read_watch){ look, &seen[i] };
        cb_recipe_prompt(&recipe, s[i], 0, n_prompt);
    }
    ck_assert_double_lt(cb_recipe_apart(&recipe, s[1], s[0]), tolerance);
    for (int j = 0; j < n_step; j++) {
        for (int i = 0; i < 2; i++) {
            s[i]->attention.watch = &(struct read_watch){ look, &seen[i] };
            cb_recipe_steps(&recipe, s[i], n_prompt + j, 1);
        }
        ck_assert_mem_eq(&seen[0], &seen[1], sizeof *seen);
        ck_assert_double_lt(cb_recipe_apart(&recipe, s[1], s[0]), tolerance);
    }
    ck_assert_int_ge(seen->n_layer, n_step * 2);
    for (int i = 0; i < 2; i++) {
        cb_session_close(s[i]);
        cb_model_close(m[i]);
    }
    free(seen);
}

START_TEST(beside_cpu)
{
    make_model(&models[_i]);
    as_on_cpu("f32", _i % 2 ? 1 << 20 : 0, 2e-3); /* little, or as much as there is */
    if (!cb_isa_pretends())
        as_on_cpu("f16", _i % 2 ? 0 : 1 << 20, 4e-3);
    forget_model();
}
END_TEST

/* ---- on the device ---- */

static void same_logits(const cb_session *a, const cb_session *b, const char *what)
{
    ck_assert_msg(
        !memcmp(cb_session_logits(a), cb_session_logits(b), (size_t)recipe.n_vocab * sizeof(float)),
        "%s: off by %g", what, cb_recipe_apart(&recipe, a, b));
}

/* A prompt in chunks, a fork, a saved bank, and a session that goes back continue alike. */
static void copies(cb_model *m, const char *type)
{
    cb_session *want = session(m, type, 0), *s = session(m, type, 7), *f, *l;

    cb_recipe_prompt(&recipe, want, 0, n_prompt);
    cb_recipe_prompt(&recipe, s, 0, n_prompt);
    same_logits(want, s, "chunks of 7");
    cb_recipe_steps(&recipe, s, 400, 3);
    ck_assert_ok(cb_session_truncate(s, n_prompt));
    ck_assert_ok(cb_session_fork(want, &f));
    ck_assert_ok(cb_session_save(want, bank));
    ck_assert_ok(cb_session_load(m, bank, 0, &l));
    cb_session *const all[] = { want, s, f, l };
    for (int j = 0; j < 4; j++) {
        cb_recipe_prompt(&recipe, all[j], n_prompt, 12);
        cb_recipe_steps(&recipe, all[j], n_prompt + 12, 3);
    }
    same_logits(want, s, "cut back");
    same_logits(want, f, "fork");
    same_logits(want, l, "saved bank");
    for (int j = 0; j < 4; j++)
        cb_session_close(all[j]);
}

/* What is planned is what is held; the note names the layers. */
static void planned(cb_model *m, const char *type, const char *note)
{
    cb_session *s = session(m, type, 0);
    struct cb_memory plan, now;

    ck_assert_msg(strstr(cb_session_note(s), note) && strstr(cb_session_note(s), NAME), "%s",
                  cb_session_note(s));
    ck_assert_ok(cb_session_plan(s, n_prompt, n_step, &plan));
    cb_recipe_prompt(&recipe, s, 0, n_prompt);
    cb_recipe_steps(&recipe, s, n_prompt, n_step);
    cb_session_memory(s, &now);
    ck_assert_uint_eq(now.kv_bytes, plan.kv_bytes);
    ck_assert_uint_eq(now.kv_peak_bytes, plan.kv_peak_bytes);
    ck_assert_uint_eq(now.device_weights_bytes, plan.device_weights_bytes);
    ck_assert_uint_le(now.device_peak_bytes, now.device_limit_bytes);
    cb_session_close(s);
}

START_TEST(copies_and_plans)
{
    cb_model *m;

    make_model(&models[_i]);
    m = open_on(NAME, 0);
    copies(m, "f16");
    planned(m, "f16", models[_i].note);
    cb_model_close(m);
    forget_model();
}
END_TEST

/* ---- the largest heads ---- */

enum { CALLS = 19, ROWS = 150, HEADS = 2, HD = KV_MAX_HD, LIST = 40 };

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = sinf((float)(i % 9973));
    return x;
}

/* Rows of both devices are stored from x, which lies on d: the host has the same. */
static void store_rows(struct device *plain, struct device *d, const float *x, uint8_t *rows,
                       uint8_t *want)
{
    const size_t row = cb_kv_row_bytes(KV_F16, HD);
    float *on = cb_device_alloc(d, ROWS * HD, sizeof *on);

    plain->ops->kv_encode(plain, KV_F16, x, ROWS, HD, HD, want);
    cb_device_copy(d, on, x, ROWS * HD * sizeof *on);
    for (int i = 0; i < ROWS; i += 1 + i % 7)
        d->ops->kv_encode(d, KV_F16, on + (size_t)i * HD, min_int(1 + i % 7, ROWS - i), HD, HD,
                          rows + (size_t)i * row);
    ck_assert_ok(cb_device_wait(d));
    ck_assert_mem_eq(rows, want, ROWS * row);
    cb_device_free(d, on);
}

/* Each call reads a list of its own of the same rows. q, out: [CALLS][HEADS][HD] */
static void attend_lists(struct device *d, const uint8_t *rows, const float *q, float *out)
{
    int32_t list[CALLS][LIST];
    struct kv_run run[CALLS];
    struct attn a[CALLS];

    for (int i = 0; i < CALLS; i++) {
        for (int j = 0; j < LIST; j++)
            list[i][j] = 3 * j + (i + j) % 3;
        run[i] = (struct kv_run){ .k = rows, .v = rows, .idx = list[i], .n = LIST };
        a[i] = (struct attn){ .type_k = KV_F16,
                              .type_v = KV_F16,
                              .n_tok = 1,
                              .n_head = HEADS,
                              .n_kv = 1,
                              .hd = HD,
                              .scale = 0.04f,
                              .prompt = 1,
                              .run = &run[i],
                              .q = q + (size_t)i * HEADS * HD,
                              .q_stride = HEADS * HD,
                              .out = out + (size_t)i * HEADS * HD };
    }
    d->ops->attention(d, a, CALLS);
    ck_assert_ok(cb_device_wait(d));
}

/* Latents of DeepSeek's width are mirrored and attended there, none by the CPU. */
START_TEST(largest_heads)
{
    const size_t n = (size_t)CALLS * HEADS * HD, row = cb_kv_row_bytes(KV_F16, HD);
    struct device *plain, *d = cb_isa_open_or_skip(ISA_FROM, 2);
    float *x = numbers(ROWS * HD), *q = numbers(n), *want = numbers(n), *got = numbers(n), *on;
    uint8_t *rows = calloc(ROWS, row), *same = calloc(ROWS, row);

    if (!d)
        return;
    ck_assert_int_eq(cb_device_open("ref", 1, &plain), 0);
    ck_assert(plain->ops->reserve(plain, 1, 8, 8, HEADS, HD, ROWS) >= 0);
    ck_assert(d->ops->reserve(d, 1, 8, 8, HEADS, HD, ROWS) >= 0);
    ck_assert_ok(d->ops->memory->watch(d, rows, row, ROWS));
    store_rows(plain, d, x, rows, same);
    ck_assert_uint_ge(cb_device_traffic(d).kv_bytes, ROWS * row);
    on = cb_device_alloc(d, 2 * n, sizeof *on);
    cb_device_copy(d, on, q, n * sizeof *on);
    attend_lists(plain, rows, q, want);
    attend_lists(d, rows, on, on + n);
    cb_device_copy(d, got, on + n, n * sizeof *on);
    ck_assert_ok(cb_device_wait(d));
    for (size_t i = 0; i < n; i++)
        ck_assert_float_eq_tol(got[i], want[i], 1e-4f);
    ck_assert_uint_eq(cb_device_traffic(d).hit_rows, CALLS * LIST);
    ck_assert_uint_eq(cb_device_traffic(d).host_rows, 0);
    d->ops->memory->unwatch(d, rows);
    cb_device_free(d, on);
    cb_device_close(d);
    cb_device_close(plain);
    free(x), free(q), free(want), free(got), free(rows), free(same);
}
END_TEST

/* ---- waits ---- */

enum { TOKENS = 5 };

static int waits(struct device *d)
{
    uint64_t n;

    ck_assert(!cb_device_lock(d));
    n = cb_device_traffic(d).waits;
    cb_device_unlock(d);
    return (int)n;
}

/* How often the host waits for TOKENS decoded tokens of the model */
static int waits_of(const struct model *x, const char *type)
{
    cb_model *m;
    cb_session *s;
    int n;

    make_model(x);
    m = open_on(NAME, 0);
    s = session(m, type, 0);
    cb_recipe_prompt(&recipe, s, 0, n_prompt);
    cb_recipe_steps(&recipe, s, n_prompt, 3);
    n = waits(s->dev);
    cb_recipe_steps(&recipe, s, n_prompt + 3, TOKENS);
    n = waits(s->dev) - n;
    cb_session_close(s);
    cb_model_close(m);
    forget_model();
    return n;
}

/* A token waits neither for what is scored nor, where all rows are mirrored and kernels may read
 * the host's memory, for the list. The CPU scores sums of heads by rows of f32, and keys of MSA
 * where all blocks that are read are the newest ones. */
START_TEST(tokens_do_not_wait_for_scores)
{
    static const struct {
        struct model there, on_host;
        const char *type;
    } of[] = {
        { { "family-deepseek32.json", 0, 0, "" }, { "family-deepseek32.json", 0, 0, "" }, "f32" },
        { { "family-qwen4exp.json", 0, 0, "" }, { "family-qwen4exp.json", 0, 0, "" }, "f32" },
        { { "family-minimax-m3.json", 0, 0, "" }, { "family-minimax-m3.json", 0, 3, "" }, "f16" },
    };
    const int spared = 2 * TOKENS, there = waits_of(&of[_i].there, "f16");
    const int on_host = waits_of(&of[_i].on_host, of[_i].type);

    ck_assert_msg(there + (cb_isa_pretends() ? spared : 0) <= on_host,
                  "%s: %d waits, and %d where the CPU scores", of[_i].there.recipe, there, on_host);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("selectors on a device");
    TCase *t = tcase_create("selectors");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, beside_cpu, 0, N_MODEL);
    tcase_add_loop_test(t, copies_and_plans, 0, N_MODEL);
    tcase_add_test(t, largest_heads);
    tcase_add_loop_test(t, tokens_do_not_wait_for_scores, 0, 3);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
