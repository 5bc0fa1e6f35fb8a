/* SPDX-License-Identifier: MIT */
/* check_kvpress.c - a real model against kvpress, and against the algorithms of MiniCache's and
 * InfiniGen's papers, in f32: which tokens of a prompt each policy keeps, or reads, and the losses
 * of those that follow. Once as users run it, and once with weights in f32, where hardly a slot may
 * differ. Needs the model in the cache folder (tools/fetch-model). */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bank/store_state.h"
#include "ctxbank.h"
#include "engine/session.h"
#include "gguf/requantize.h"
#include "kit/folder.h"
#include "kit/found_slots.h"
#include "kit/suite.h"

enum { MAX_CASES = 24 };

/* Quantised weights are multiplied by activations on 8 bits, which moves slots whose scores are
 * close. Where more of them are close: the least share of slots that must agree. Others: 0.99 */
static const struct {
    const char *method;
    double least;
} blurred[] = {
    { "expected", 0.98 }, { "h2o", 0.985 },     { "keydiff", 0.97 },   { "kvzip", 0.98 },
    { "tova", 0.98 },     { "infinigen", 0.9 }, { "minicache", 0.95 },
};
static const double least_f32 = 0.9999, nll_f32 = 0.001, nll_blurred = 0.01;

static double least_share(const char *policy, int f32)
{
    if (f32) /* partial keys are halves */
        return strncmp(policy, "infinigen", 9) ? least_f32 : 0.995;
    for (size_t i = 0; i < sizeof blurred / sizeof *blurred; i++)
        if (!strncmp(policy, blurred[i].method, strlen(blurred[i].method)))
            return blurred[i].least;
    return 0.99;
}

/* 1: heads compete, so a close decision moves a slot from one to another */
static int heads_compete(const char *policy)
{
    return !strncmp(policy, "kvzip", 5) || strstr(policy, ",floor=0.");
}

static json_t *load(const char *name)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];
    json_error_t e;
    json_t *root;

    snprintf(path, sizeof path, "%s/tests/vectors/%s", srcdir ? srcdir : ".", name);
    root = json_load_file(path, 0, &e);
    ck_assert_msg(root != NULL, "%s: %s", path, e.text);
    return root;
}

static int32_t *first_ids(const char *name, int n)
{
    json_t *root = load(name), *ids = json_object_get(root, "context_ids");
    int32_t *x = calloc((size_t)n, sizeof *x);

    ck_assert_int_ge((int)json_array_size(ids), n);
    for (int i = 0; i < n; i++)
        x[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(root);
    return x;
}

static int number(const json_t *root, const char *key)
{
    const json_t *j = json_object_get(root, key);
    ck_assert_msg(json_is_integer(j), "no %s", key);
    return (int)json_integer_value(j);
}

/* bit `pos` of a hexadecimal mask */
static int has(const char *mask, int pos)
{
    const int digit = (int)strlen(mask) - 1 - pos / 4;
    const char c[2] = { digit < 0 ? '0' : mask[digit], 0 };
    return (int)(strtol(c, NULL, 16) >> pos % 4 & 1);
}

/* Slots of all layers and heads that the other keeps as well; *all: slots */
static long agreed(const struct cb_session *s, const json_t *kept, int n_context, int compete,
                   long *all)
{
    const struct hparams *hp = &s->model->hp;
    long same = 0, all_theirs = 0;

    *all = 0;
    for (int l = 0; l < hp->n_layer; l++) {
        const json_t *heads = json_array_get(kept, (size_t)l);
        for (int h = 0; h < hp->n_kv; h++) {
            const int n = s->bank.store[l].n[h], row = json_array_size(heads) == 1 ? 0 : h;
            const char *mask = json_string_value(json_array_get(heads, (size_t)row));
            int theirs = 0;
            ck_assert_ptr_nonnull(mask);
            for (int i = 0; i < n; i++)
                same += has(mask, cb_store_pos(&s->bank.store[l], h, i));
            for (int i = 0; i < n_context; i++)
                theirs += has(mask, i);
            ck_assert_msg(compete || n == theirs, "layer %d, head %d: %d slots, not %d", l, h, n,
                          theirs);
            *all += n;
            all_theirs += theirs;
        }
    }
    ck_assert_int_eq(*all, all_theirs);
    return same;
}

/* Slots that pairs of layers keep unmerged and the other as well. retained: for the earlier layer
 * of each pair, masks of each KV head's keys and values */
static long agreed_retained(const struct cb_session *s, const json_t *retained, long *all)
{
    long same = 0, n_pair = 0;

    for (int l = 0; l < s->model->hp.n_layer; l++) {
        const struct store *st = &s->bank.store[l];
        char key[16];
        const json_t *heads;
        snprintf(key, sizeof key, "%d", l);
        heads = json_object_get(retained, key);
        ck_assert_int_eq(st->later != NULL, heads != NULL);
        for (int i = 0; heads && i < 2 * st->n_kv; i++) {
            const json_t *sides = json_array_get(heads, (size_t)(i / 2));
            const char *mask = json_string_value(json_array_get(sides, (size_t)(i % 2)));
            for (int j = 0; j < st->merged; j++)
                if (cb_store_col(st, i / 2, i % 2)[j] < 0) {
                    same += has(mask, j);
                    ++*all;
                }
        }
        n_pair += heads != NULL;
    }
    ck_assert_int_gt(n_pair, 0);
    return same;
}

/* The slots that the last layer's lists have and the other's as well, of *all that either has */
static long agreed_chosen(const struct cb_session *s, const json_t *lists, long *all)
{
    const int l = s->model->hp.n_layer - 1;
    long same = 0;

    for (size_t i = 0; i < json_array_size(lists); i++) {
        const char *mask = json_string_value(json_array_get(lists, i));
        int n, theirs = 0;
        const int32_t *slot = cb_slot_lists_slots(&s->attention, l, (int)i, &n);
        long both = 0;
        for (int j = 0; j < s->bank.store[l].n[0]; j++)
            theirs += has(mask, j);
        for (int j = 0; j < n; j++)
            both += has(mask, slot[j]);
        same += both;
        *all += n + theirs - both;
    }
    return same;
}

/* loss of `id` */
static double loss(const float *logits, int n, int32_t id)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        max = fmax(max, (double)logits[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return max - (double)logits[id] + log(sum);
}

/* Slots that agree, of all that either side has */
struct agreement {
    long same, all;
};

/* mean[n]: the mean loss of target[n_target] in each session; one batch decodes a token of all.
 * at[n]: where a case has, for some tokens, the slots that the last layer reads */
static void mean_losses(cb_session *const *s, int n, const json_t *cases, const int32_t *target,
                        int n_target, double *mean, struct agreement *at)
{
    int32_t token[MAX_CASES];
    char key[16];

    for (int t = 0; t < n_target; t++) {
        for (int i = 0; i < n; i++) {
            mean[i] += loss(cb_session_logits(s[i]), s[i]->model->hp.n_vocab, target[t]) / n_target;
            token[i] = target[t];
        }
        if (t + 1 == n_target)
            break;
        ck_assert_ok(cb_decode_batch(s, token, n));
        snprintf(key, sizeof key, "%d", t);
        for (int i = 0; i < n; i++) {
            const json_t *chosen = json_object_get(json_array_get(cases, (size_t)i), "chosen");
            const json_t *lists = json_object_get(chosen, key);
            at[i].same += lists ? agreed_chosen(s[i], lists, &at[i].all) : 0;
        }
    }
}

static double mean_of(const json_t *list)
{
    double sum = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        sum += json_number_value(json_array_get(list, i));
    return sum / (double)json_array_size(list);
}

static void check_agreement(const char *name, const struct agreement *at, int f32)
{
    double share;

    if (!at->all)
        return;
    share = (double)at->same / (double)at->all;
    printf("%s: %.3f%% of %ld slots\n", name, 100 * share, at->all);
    ck_assert_msg(share >= least_share(name, f32), "%s: %.3f%% of the slots agree", name,
                  100 * share);
}

/* The slots that the session keeps are the row's */
static void compare_slots(const cb_session *s, const json_t *row, int n_context, int f32)
{
    const char *name = json_string_value(json_object_get(row, "policy"));
    const json_t *kept = json_object_get(row, "kept");
    const json_t *retained = json_object_get(row, "retained");
    struct agreement at = { 0 };

    if (!json_is_null(kept))
        at.same = agreed(s, kept, n_context, heads_compete(name), &at.all);
    if (retained)
        at.same = agreed_retained(s, retained, &at.all);
    check_agreement(name, &at, f32);
}

static void compare_losses(const json_t *row, double got, int f32)
{
    const char *name = json_string_value(json_object_get(row, "policy"));
    const double want = mean_of(json_object_get(row, "token_nll"));

    printf("%s: nll %.5f, recorded %.5f (%+.3f%%)\n", name, got, want, 100 * (got / want - 1));
    ck_assert_msg(fabs(got / want - 1) <= (f32 ? nll_f32 : nll_blurred), "%s: nll %.5f, not %.5f",
                  name, got, want);
}

/* One prefill for all policies that can share it. */
static void check_all(const json_t *root, const char *path, int f32)
{
    const json_t *cases = json_object_get(root, "cases");
    const int n = (int)json_array_size(cases), n_context = number(root, "n_context"),
              n_target = number(root, "n_target");
    int32_t *ids = first_ids(json_string_value(json_object_get(root, "ids")), n_context + n_target);
    cb_session *s[MAX_CASES], *sharing[MAX_CASES];
    struct agreement at[MAX_CASES] = { 0 };
    double mean[MAX_CASES] = { 0 };
    int n_sharing = 0;
    cb_model *m;

    ck_assert_int_ge(n, 1);
    ck_assert_int_le(n, MAX_CASES);
    ck_assert_ok(cb_model_open(path, NULL, &m));
    for (int i = 0; i < n; i++) {
        const json_t *policy = json_object_get(json_array_get(cases, (size_t)i), "policy");
        const struct cb_session_params p = { .n_ctx = n_context + n_target,
                                             .policy = json_string_value(policy),
                                             .type_k = "f32",
                                             .type_v = "f32" };
        ck_assert_ok(cb_session_open(m, &p, &s[i]));
        if (cb_session_can_follow(s[i], s[0]))
            sharing[n_sharing++] = s[i];
        else
            ck_assert_ok(cb_session_prefill(s[i], ids, n_context, NULL));
    }
    ck_assert_ok(
        cb_session_prefill_shared(s[0], sharing + 1, NULL, n_sharing - 1, ids, n_context, NULL));
    for (int i = 0; i < n; i++)
        compare_slots(s[i], json_array_get(cases, (size_t)i), n_context, f32);
    mean_losses(s, n, cases, ids + n_context, n_target, mean, at);
    for (int i = 0; i < n; i++) {
        const json_t *row = json_array_get(cases, (size_t)i);
        check_agreement(json_string_value(json_object_get(row, "policy")), &at[i], f32);
        compare_losses(row, mean[i], f32);
        cb_session_close(s[i]);
    }
    cb_model_close(m);
    free(ids);
}

/* -> path, "" where there is no such file */
static void model_path(const json_t *root, char *path, size_t cap)
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    const char *file = json_string_value(json_object_get(root, "model"));

    snprintf(path, cap, "%s%s/models/%s",
             cache  ? cache
             : home ? home
                    : "",
             cache ? "" : "/.cache/ctxbank", file);
    if (!access(path, R_OK))
        return;
    cb_skip("%s is not there", path);
    *path = '\0';
}

static const char *const files[] = { "kvpress-smollm2.json", "published-smollm2.json" };

START_TEST(keeps_what_the_others_keep)
{
    json_t *root = load(files[_i]);
    char path[4096];

    model_path(root, path, sizeof path);
    if (*path)
        check_all(root, path, 0);
    json_decref(root);
}
END_TEST

START_TEST(on_f32_weights)
{
    json_t *root = load(files[_i]);
    char path[4096];

    model_path(root, path, sizeof path);
    if (*path) {
        const char *f32 = cb_folder_put("f32.gguf", "");
        struct quantize q = { .in = path, .out = f32, .type = DT_F32 };
        ck_assert_ok(cb_quantize(&q));
        check_all(root, f32, 1);
    }
    json_decref(root);
}
END_TEST

static void setup(void)
{
    cb_folder_make("check_kvpress");
}

int main(void)
{
    Suite *suite = suite_create("kvpress");

    for (int i = 0; i < 2; i++) {
        TCase *t = tcase_create(i ? "published" : "kvpress");
        suite_add_tcase(suite, t);
        tcase_add_checked_fixture(t, setup, cb_folder_remove);
        tcase_set_timeout(t, 600);
        tcase_add_loop_test(t, keeps_what_the_others_keep, i, i + 1);
        if (!cb_test_brief())
            tcase_add_loop_test(t, on_f32_weights, i, i + 1);
    }
    return cb_suite_run_nofork(suite);
}
