/* SPDX-License-Identifier: MIT */
/* check_families.c - tiny models of every family: logits against PyTorch in f64, on every device
 * and ISA that the machine has, in one prompt, in chunks, token by token and in batches; and every
 * policy with a budget that holds the whole context. tests/vectors/make_families.py writes the
 * recipes, from which this makes the models. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "ctxbank.h"
#include "engine/session.h"
#include "kit/isa.h"
#include "kit/recipe.h"
#include "kit/settings.h"
#include "kit/suite.h"

enum { MAX_RECIPES = 128, N_DEVICES = 7 };

static const struct {
    const char *device, *isa;
} devices[N_DEVICES] = {
    { "ref", NULL },   { "cpu", "scalar" }, { "cpu", "avx2" }, { "cpu", "avx512" },
    { "cpu", "neon" }, { "cpu", "i8mm" },   { "cpu", "bf16" },
};

static const double tolerance = 1e-4; /* of a logit; they are of size 8 */

static char names[MAX_RECIPES][64];
static int n_names;

/* ---- a recipe ---- */

struct test {
    struct recipe recipe;
    char file[64];
    double worst;
};

static void open_test(struct test *r, const char *name)
{
    struct gguf_make m;

    cb_recipe_open(&r->recipe, name);
    r->worst = 0;
    snprintf(r->file, sizeof r->file, "check_families.%d.gguf", (int)getpid());
    cb_recipe_make(&r->recipe, &m);
    cb_make_save(&m, r->file);
}

static void close_test(struct test *r)
{
    unlink(r->file);
    cb_recipe_close(&r->recipe);
}

/* Logits after token i; those that the recipe does not have are not compared. */
static void compare(void *arg, int i, const float *logits)
{
    struct test *r = arg;
    const json_t *row = NULL;

    for (size_t j = 0; j < json_array_size(r->recipe.after); j++)
        if (json_integer_value(json_array_get(r->recipe.after, j)) == i)
            row = json_array_get(r->recipe.logits, j);
    for (int t = 0; row && t < r->recipe.n_vocab; t++) {
        const double want = json_number_value(json_array_get(row, (size_t)t));
        const double d = fabs((double)logits[t] - want);
        if (!(d <= r->worst)) /* NaN counts */
            r->worst = d;
    }
}

/* ---- models and sessions ---- */

/* NULL: this machine or this build has no such ISA. */
static cb_model *open_model(const struct test *r, int device)
{
    const json_t *ask = json_object_get(r->recipe.root, "ask");
    const struct cb_model_params p = {
        .n_threads = 2,
        .device = devices[device].device,
        .isa = devices[device].isa,
        .rope_scaling = json_string_value(json_object_get(ask, "scaling")),
        .rope_scale = (float)json_number_value(json_object_get(ask, "scale")),
    };
    cb_model *m;
    const int err = cb_model_open(r->file, &p, &m);

    if (err == CB_EUNSUPPORTED && strstr(cb_error(), "instruction set")) {
        ck_assert_str_ne(devices[device].isa, "scalar");
        return NULL;
    }
    ck_assert_msg(!err, "%s", cb_error());
    return m;
}

static cb_session *open_session(const struct test *r, cb_model *m, int chunk, const char *policy)
{
    const struct cb_session_params p = {
        .n_ctx = r->recipe.n_ctx, .chunk = chunk, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    cb_session *s;

    ck_assert_msg(!cb_session_open(m, &p, &s), "%s: %s", policy ? policy : "", cb_error());
    return s;
}

static void check_worst(const struct test *r, const char *name, int device, const char *how)
{
    ck_assert_msg(r->worst < tolerance, "%s on %s %s, %s: off by %g", name, devices[device].device,
                  devices[device].isa ? devices[device].isa : "", how, r->worst);
}

static void prompts(struct test *r, cb_model *m, const char *name, int device)
{
    static const int chunk[] = { 0, 7 };

    for (int i = 0; i < 2; i++) {
        const struct cb_prefill how = { .logits = compare, .logits_arg = r };
        cb_session *s = open_session(r, m, chunk[i], NULL);
        ck_assert_ok(cb_session_prefill(s, r->recipe.ids, r->recipe.n, &how));
        check_worst(r, name, device, i ? "prompt in chunks" : "prompt");
        cb_session_close(s);
    }
}

static void tokens(struct test *r, cb_model *m, const char *name, int device)
{
    cb_session *s = open_session(r, m, 0, NULL);

    for (int i = 0; i < r->recipe.n; i++) {
        ck_assert_ok(cb_session_decode(s, r->recipe.ids[i]));
        compare(r, i, cb_session_logits(s));
    }
    check_worst(r, name, device, "token by token");
    cb_session_close(s);
}

static int largest(const float *x, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* With the output head pruned to its largest logit, that logit is the same. */
static void tops(struct test *r, cb_model *m, const char *name)
{
    cb_session *all = open_session(r, m, 0, NULL), *top = open_session(r, m, 0, NULL);

    for (int i = 0; i < r->recipe.n; i++) {
        const float *x, *y;
        int best;
        ck_assert_ok(cb_session_want_top(top, 1));
        ck_assert_ok(cb_session_decode(all, r->recipe.ids[i]));
        ck_assert_ok(cb_session_decode(top, r->recipe.ids[i]));
        x = cb_session_logits(all);
        y = cb_session_logits(top);
        best = largest(x, r->recipe.n_vocab);
        ck_assert_msg(best == largest(y, r->recipe.n_vocab) && fabsf(x[best] - y[best]) < 1e-4f,
                      "%s: the largest logit after token %d differs", name, i);
    }
    cb_session_close(all);
    cb_session_close(top);
}

/* A prompt, tokens, and a second prompt */
static void turns(struct test *r, cb_model *m, const char *name, int device)
{
    cb_session *s = open_session(r, m, 5, NULL);
    const int a = r->recipe.n / 3, b = r->recipe.n / 2;

    ck_assert_ok(cb_session_prefill(s, r->recipe.ids, a, NULL));
    for (int i = a; i < b; i++)
        ck_assert_ok(cb_session_decode(s, r->recipe.ids[i]));
    ck_assert_ok(cb_session_prefill(s, r->recipe.ids + b, r->recipe.n - b, NULL));
    compare(r, r->recipe.n - 1, cb_session_logits(s));
    check_worst(r, name, device, "two prompts");
    cb_session_close(s);
}

/* Two sessions of different lengths: one is a token shorter. */
static void batches(struct test *r, cb_model *m, const char *name, int device)
{
    cb_session *s[2] = { open_session(r, m, 0, NULL), open_session(r, m, 0, NULL) };
    const int half = r->recipe.n / 2;

    ck_assert_ok(cb_session_prefill(s[0], r->recipe.ids, half, NULL));
    ck_assert_ok(cb_session_prefill(s[1], r->recipe.ids, half - 1, NULL));
    for (int i = half; i < r->recipe.n; i++) {
        const int32_t next[2] = { r->recipe.ids[i], r->recipe.ids[i - 1] };
        ck_assert_ok(cb_decode_batch(s, next, 2));
        compare(r, i, cb_session_logits(s[0]));
        compare(r, i - 1, cb_session_logits(s[1]));
    }
    check_worst(r, name, device, "batch");
    cb_session_close(s[0]);
    cb_session_close(s[1]);
}

/* bench/families makes a table of these lines: the family, its recipe, the largest difference, one
 * copy of what layers without keys remember, and a token's keys and values in f16 */
static void print_figures(const struct test *r, cb_model *m, const char *name, int device)
{
    const char *isa = devices[device].isa ? devices[device].isa : "";
    cb_session *s = open_session(r, m, 0, NULL);
    struct cb_memory plan;

    ck_assert_ok(cb_session_plan(s, 16, 0, &plan));
    printf("figures %s %s %s%s %.1e %llu %llu\n", m->arch->name, name, devices[device].device, isa,
           r->worst, (unsigned long long)plan.state_bytes / 2,
           (unsigned long long)plan.kv_full_bytes / 16);
    cb_session_close(s);
}

/* Loop index: recipe, device */
START_TEST(logits)
{
    const char *name = names[_i / N_DEVICES];
    const int device = _i % N_DEVICES;
    struct test r;
    cb_model *m;

    open_test(&r, name);
    m = open_model(&r, device);
    if (m) {
        prompts(&r, m, name, device);
        tokens(&r, m, name, device);
        turns(&r, m, name, device);
        batches(&r, m, name, device);
        tops(&r, m, name);
        if (getenv("CTXBANK_TEST_FIGURES"))
            print_figures(&r, m, name, device);
    }
    cb_model_close(m);
    close_test(&r);
}
END_TEST

/* ---- what files have beside the text model ---- */

START_TEST(unused_parts)
{
    struct cb_model_info info;
    struct test r;
    cb_model *m;

    open_test(&r, "family-glm4moe.json"); /* with a block after the last, and a tensor of images */
    m = open_model(&r, 0);
    cb_model_get_info(m, &info);
    ck_assert_int_eq(info.n_layer, 3);
    ck_assert_int_eq(info.n_unused_layer, 1);
    ck_assert_uint_eq(info.unused_layer_bytes, sizeof(float) * (96 * 48 + 48 + 48 * 64));
    ck_assert_uint_eq(info.unused_senses_bytes, sizeof(float) * 7 * 5);
    cb_model_close(m);
    close_test(&r);
}
END_TEST

/* Loop index: files that are no text model by themselves, and what the error says */
static const struct {
    const char *arch, *says;
} parts[] = { { "clip", "mmproj" } };

START_TEST(parts_are_refused)
{
    const char *file = "check_families.part.gguf";
    struct gguf_make made;
    cb_model *m;

    cb_make_init(&made);
    cb_gguf_put_string(&made.w, "general.architecture", parts[_i].arch);
    cb_make_save(&made, file);
    ck_assert_int_eq(cb_model_open(file, NULL, &m), CB_EUNSUPPORTED);
    ck_assert_msg(strstr(cb_error(), parts[_i].says) && strstr(cb_error(), file), "%s", cb_error());
    unlink(file);
}
END_TEST

/* ---- metadata that no model has ---- */

/* The key's value in the recipe becomes x, or, with at >= 0, element `at` of its list. */
static void set_key(const json_t *root, const char *key, int at, double x)
{
    const json_t *kv = json_object_get(root, "kv");

    for (size_t i = 0; i < json_array_size(kv); i++) {
        json_t *row = json_array_get(kv, i);
        json_t *v = x == (int)x ? json_integer((json_int_t)x) : json_real(x);
        if (!strstr(json_string_value(json_array_get(row, 0)), key))
            json_decref(v);
        else if (at < 0)
            json_array_set_new(row, 2, v);
        else
            json_array_set_new(json_array_get(row, 2), (size_t)at, v);
    }
}

struct wrong {
    const char *key;
    int at;
    double x;
    const char *named; /* by the error: the key, or the tensor that does not fit it */
};

static void check_refused(const char *recipe, const struct wrong *wrong, size_t n)
{
    struct test r;
    struct gguf_make g;
    cb_model *m;

    cb_recipe_open(&r.recipe, recipe);
    snprintf(r.file, sizeof r.file, "check_families.%d.gguf", (int)getpid());
    for (size_t i = 0; i < n; i++) {
        json_t *right = json_deep_copy(r.recipe.root), *root = r.recipe.root;
        set_key(root, wrong[i].key, wrong[i].at, wrong[i].x);
        cb_recipe_make(&r.recipe, &g);
        cb_make_save(&g, r.file);
        ck_assert_msg(cb_model_open(r.file, NULL, &m) < 0, "%s: accepted", wrong[i].key);
        ck_assert_msg(strstr(cb_error(), wrong[i].named) != NULL, "%s: %s", wrong[i].key,
                      cb_error());
        r.recipe.root = right;
        json_decref(root);
    }
    close_test(&r);
}

START_TEST(rows_that_stand_for_several)
{
    static const struct wrong wrong[] = {
        { "sliding_window", -1, 0, "sliding_window" },
        { "head_count_kv", -1, 2, "head_count_kv" },
        { "q_lora_rank", -1, 0, "q_lora_rank" },
        { "q_lora_rank", -1, 25, "attn_q_a" },
        { "output_group_count", -1, 4, "output_group_count" },
        { "output_group_count", -1, 7, "output_group_count" },
        { "output_lora_rank", -1, 9, "attn_output_a" },
        { "compress_ratios", 0, 5, "attn_compressor_ape" },
        { "compress_ratios", 2, -1, "compress_ratios" },
        { "compress_ratios", 2, 0, "attn_compressor" },
        { "compress_rope_freq_base", -1, 0.5, "compress_rope_freq_base" },
        { "indexer.head_count", -1, 0, "indexer.head_count" },
        { "indexer.key_length", -1, 4, "indexer.key_length" },
        { "indexer.top_k", -1, 0, "indexer.top_k" },
        { "hyper_connection.count", -1, 17, "hyper_connection.count" },
        { "hyper_connection.count", -1, 2, "hc_attn_fn" },
        { "sinkhorn_iterations", -1, 0, "sinkhorn_iterations" },
        { "hyper_connection.epsilon", -1, -0.5, "hyper_connection.epsilon" },
        { "hash_layer_count", -1, 5, "hash_layer_count" },
        { "hash_layer_count", -1, 2, "ffn_gate_tid2eid" },
        { "hash_layer_count", -1, 0, "ffn_gate_tid2eid" },
        { "expert_count", -1, 4, "ffn_gate_inp" },
        { "swiglu_clamp_exp", 1, -2.5, "swiglu_clamp_exp" },
    };
    check_refused("family-deepseek4.json", wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

START_TEST(latents_of_experts)
{
    static const struct wrong wrong[] = {
        { "moe_latent_size", -1, 0, "ffn_up_exps" },
        { "moe_latent_size", -1, 21, "ffn_latent_down" },
        { "moe_latent_size", -1, -1, "moe_latent_size" },
    };

    check_refused("family-nemotron_h_latent.json", wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

START_TEST(shapes_of_xielu)
{
    static const struct wrong wrong[] = {
        { "xielu.alpha_p", 1, 1e9, "xielu.alpha_p" },
        { "xielu.alpha_n", 0, -1e9, "xielu.alpha_n" },
        { "xielu.beta", 0, 1e9, "xielu.beta" },
    };

    check_refused("family-apertus.json", wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

START_TEST(alternating_streams)
{
    static const struct wrong wrong[] = {
        { "altup.num_inputs", -1, 1, "altup.num_inputs" },
        { "altup.num_inputs", -1, 17, "altup.num_inputs" },
        { "altup.num_inputs", -1, 3, "altup_proj" },
        { "altup.active_idx", -1, 4, "altup.active_idx" },
        { "embedding_length_per_layer_input", -1, 13, "per_layer_token_embd" },
        { "activation_sparsity_scale", 1, 1e9, "activation_sparsity_scale" },
        { "shared_kv_layers", -1, 7, "shared_kv_layers" },
    };

    check_refused("family-gemma3n.json", wrong, sizeof wrong / sizeof *wrong);
}
END_TEST

/* ---- policies ---- */

static int has_windows_alone(const cb_model *m)
{
    for (int l = 0; l < m->hp.n_layer; l++)
        if (!m->layer[l].window)
            return 0;
    return 1;
}

static int has_windows(const cb_model *m)
{
    for (int l = 0; l < m->hp.n_layer; l++)
        if (m->layer[l].window)
            return 1;
    return 0;
}

/* Do two layers with keys of their own that see everything follow each other? */
static int has_adjacent(const cb_model *m)
{
    int any = 0;

    for (int l = 0; l + 1 < m->hp.n_layer; l++)
        any |= !m->layer[l].window && !m->layer[l + 1].window && m->layer[l].n_kv &&
               m->layer[l + 1].n_kv && !m->layer[l + 1].kv_back;
    return any;
}

static int is_latent(const cb_model *m)
{
    return m->hp.one_row;
}

static int has_short_chunks(const cb_model *m)
{
    return m->hp.chunked && m->hp.window < m->hp.n_ctx_train;
}

static int shares_keys(const cb_model *m)
{
    return m->hp.n_shared_kv > 0;
}

static int norms_rotated_keys(const cb_model *m)
{
    return (m->arch->has & NORMS_ROTATED) != 0;
}

static int has_no_keys(const cb_model *m)
{
    return !cb_model_policy_layers(m);
}

/* Such a layer needs every token. */
static int has_states(const cb_model *m)
{
    int any = 0;

    for (int l = 0; l < m->hp.n_layer; l++)
        any |= m->layer[l].mixer != NULL;
    return any;
}

static int has_none_adjacent(const cb_model *m)
{
    return !has_adjacent(m);
}

static int has_selectors(const cb_model *m)
{
    return cb_model_selects(m);
}

static int has_no_selectors(const cb_model *m)
{
    return !cb_model_selects(m);
}

/* Why models may refuse a policy: where keys and values are one row, and it drops or turns one of
 * them; where it sees more at its distance than any layer does; where layers attend within chunks,
 * and it would repeat the prompt in another one; where layers have windows, and it leaves tokens
 * out of some layers, or merges adjacent ones; where later layers read the keys of earlier ones;
 * where keys are normed after their rotation, and it rotates them further; where the model's own
 * selectors name what is read, and it would name something else, or there are none. */
static const struct {
    int (*model)(const cb_model *);
    const char *why;
} reasons[] = {
    { is_latent, "one row as key and value" },
    { is_latent, "latent attention" },
    { has_windows_alone, "the model's layers see" },
    { has_short_chunks, "repeats up to" },
    { has_windows, "has a window, which counts them" },
    { has_none_adjacent, "no two adjacent layers" },
    { has_windows_alone, "has a window, whose slots" },
    { shares_keys, "read the keys and values of earlier ones" }, /* which: check_shared_kv.c */
    { norms_rotated_keys, "has normed after their rotation" },
    { has_no_keys, "no layer of the model has keys" },
    { has_states, "remembers without keys" },
    { has_selectors, "its own selector names" },
    { has_no_selectors, "no trained selector" },
};

/* A policy is refused for one of these reasons, or it works. */
static int is_refused(const struct test *r, cb_model *m, const char *policy)
{
    const struct cb_session_params p = { .n_ctx = r->recipe.n_ctx, .policy = policy };
    int known = 0;
    cb_session *s;

    if (!cb_session_open(m, &p, &s)) {
        cb_session_close(s);
        return 0;
    }
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        known |= reasons[i].model(m) && strstr(cb_error(), reasons[i].why);
    ck_assert_msg(known, "%s", cb_error());
    return 1;
}

/* Every method, with a budget that holds everything */
START_TEST(policies)
{
    struct test r;
    char wide[128];
    cb_model *m;

    open_test(&r, names[_i]);
    m = open_model(&r, 1);
    for (int p = 0; cb_setting_wide(p, wide, sizeof wide); p++) {
        const struct cb_prefill how = { .logits = compare, .logits_arg = &r };
        cb_session *s;
        if (!strcmp(wide, "full") && cb_model_selects(m)) /* which reads more than the model does */
            snprintf(wide, sizeof wide, "own");
        if (is_refused(&r, m, wide))
            continue;
        s = open_session(&r, m, 16, wide);
        ck_assert_ok(cb_session_prefill(s, r.recipe.ids, r.recipe.n - 10, &how));
        for (int i = r.recipe.n - 10; i < r.recipe.n; i++) {
            ck_assert_ok(cb_session_decode(s, r.recipe.ids[i]));
            compare(&r, i, cb_session_logits(s));
        }
        check_worst(&r, names[_i], 1, wide);
        cb_session_close(s);
    }
    cb_model_close(m);
    close_test(&r);
}
END_TEST

/* Budgets that drop or pass over most tokens, where they act on some of the layers alone */
static const char *const narrow[] = {
    "full",
    "window:budget=12",
    "streamingllm:budget=12",
    "h2o:budget=12",
    "snapkv:budget=12,window=4",
    "pyramidkv:budget=12,window=4,beta=2",
    "simlayerkv:recent=12,threshold=0.5",
    "d2o:budget=12,layers=uniform",
    "tova:budget=12",
    "duo:heads=0,sink=2,recent=10",
    "lm-infinite:sink=2,window=10",
    "omnikv:budget=12",
    "pod:recent=8,sinks=2",
    "pyramidinfer:decay=0.5,context=4,recent=0.1,block=2",
    "minicache:start=0,retain=4,tail=3",
    "own",
};

/* Layers with a window of the model's own keep that window, or what they have of it in the newest
 * chunk, whatever the policy; the plan knows. */
static void check_held(const cb_session *s, const char *name, const char *policy, int n_prompt,
                       int n_gen)
{
    const struct cb_model *m = s->model;
    struct cb_memory now, plan;

    for (int l = 0; l < m->hp.n_layer; l++) {
        const int window = m->layer[l].window, most = cb_store_max_len(&s->bank.store[l]);
        const int chunk = window ? (n_prompt + n_gen - 1) % window + 1 : 0;
        if (window && m->global && !m->layer[l].kv_back)
            ck_assert_msg(most == (m->hp.chunked ? chunk
                                   : n_gen       ? window
                                                 : window - 1),
                          "%s, %s: layer %d holds %d", name, policy, l, most);
    }
    cb_session_memory(s, &now);
    ck_assert_ok(cb_session_plan(s, n_prompt, n_gen, &plan));
    ck_assert_msg(plan.at_most ? now.kv_bytes <= plan.kv_bytes : now.kv_bytes == plan.kv_bytes,
                  "%s, %s: %llu bytes, planned %llu", name, policy,
                  (unsigned long long)now.kv_bytes, (unsigned long long)plan.kv_bytes);
    ck_assert_msg(plan.at_most ? now.kv_peak_bytes <= plan.kv_peak_bytes
                               : now.kv_peak_bytes == plan.kv_peak_bytes,
                  "%s, %s: peak of %llu bytes, planned %llu", name, policy,
                  (unsigned long long)now.kv_peak_bytes, (unsigned long long)plan.kv_peak_bytes);
}

static void ignore(void *arg, int i, const float *x)
{
    (void)arg, (void)i, (void)x;
}

/* The same answers, whatever the chunks and the number of threads, and whether the logits of all
 * tokens of the prompt are computed or those of the last one */
START_TEST(narrow_policies)
{
    static const int chunks[] = { 16, 5, 16 };
    static const struct cb_prefill ways[] = { { 0 }, { 0 }, { .logits = ignore } };
    struct test r;
    cb_model *m;

    open_test(&r, names[_i]);
    m = open_model(&r, 1);
    for (size_t p = 0; p < sizeof narrow / sizeof *narrow; p++) {
        float *first = malloc((size_t)r.recipe.n_vocab * sizeof *first);
        /* which gives no other logits */
        const int n_way = strncmp(narrow[p], "pyramidinfer", 12) ? 3 : 2;
        for (int k = is_refused(&r, m, narrow[p]) ? n_way : 0; k < n_way; k++) {
            cb_session *s = open_session(&r, m, chunks[k], narrow[p]);
            const size_t bytes = (size_t)r.recipe.n_vocab * sizeof *first;
            ck_assert_ok(cb_session_prefill(s, r.recipe.ids, r.recipe.n - 10, &ways[k]));
            check_held(s, names[_i], narrow[p], r.recipe.n - 10, 0);
            for (int i = r.recipe.n - 10; i < r.recipe.n; i++)
                ck_assert_ok(cb_session_decode(s, r.recipe.ids[i]));
            check_held(s, names[_i], narrow[p], r.recipe.n - 10, 10);
            if (k)
                ck_assert_msg(!memcmp(first, cb_session_logits(s), bytes), "%s, %s: %s matter",
                              names[_i], narrow[p], k == 1 ? "chunks" : "logits");
            memcpy(first, cb_session_logits(s), bytes);
            for (int t = 0; t < r.recipe.n_vocab; t++)
                ck_assert(isfinite(first[t]));
            cb_session_close(s);
        }
        free(first);
    }
    cb_model_close(m);
    close_test(&r);
}
END_TEST

/* ---- the list of recipes ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void list_recipes(void)
{
    DIR *d = opendir(cb_recipe_folder());
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (!strncmp(e->d_name, "family-", 7) && n_names < MAX_RECIPES)
            snprintf(names[n_names++], sizeof *names, "%.63s", e->d_name);
    if (d)
        closedir(d);
    qsort(names, (size_t)n_names, sizeof *names, by_name);
}

START_TEST(recipes_are_there)
{
    ck_assert_int_ge(n_names, 20);
    ck_assert_int_lt(n_names, MAX_RECIPES);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("families");
    TCase *t = tcase_create("families");

    list_recipes();
    tcase_set_timeout(t, 60);
    tcase_add_test(t, recipes_are_there);
    tcase_add_test(t, unused_parts);
    tcase_add_loop_test(t, parts_are_refused, 0, (int)(sizeof parts / sizeof *parts));
    tcase_add_test(t, rows_that_stand_for_several);
    tcase_add_test(t, latents_of_experts);
    tcase_add_test(t, shapes_of_xielu);
    tcase_add_test(t, alternating_streams);
    tcase_add_loop_test(t, logits, 0, n_names * N_DEVICES);
    tcase_add_loop_test(t, policies, 0, n_names);
    tcase_add_loop_test(t, narrow_policies, 0, n_names);
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
