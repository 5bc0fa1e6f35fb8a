/* SPDX-License-Identifier: MIT */
/* check_continuation.c - real models against PyTorch in f32: the loss of each of 256 tokens after
 * 6,000 tokens of a novel. Needs the models in the cache folder (tools/fetch-model). */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ctxbank.h"
#include "kit/suite.h"

static const char *const names[] = { "smollm2", "qwen2.5-0.5b" };

struct reference {
    json_t *root;
    int n_context, n_target;
    int32_t *context, *target, *top1; /* [n_context], [n_target], [n_target] */
    double nll;
};

static int32_t *ints(const json_t *root, const char *key, int *n)
{
    const json_t *a = json_object_get(root, key);
    int32_t *x;

    ck_assert_msg(json_is_array(a), "no %s", key);
    *n = (int)json_array_size(a);
    x = calloc((size_t)*n, sizeof *x);
    for (int i = 0; i < *n; i++)
        x[i] = (int32_t)json_integer_value(json_array_get(a, (size_t)i));
    return x;
}

static void read_reference(const char *name, struct reference *r)
{
    const char *srcdir = getenv("srcdir");
    char path[4096];
    json_error_t e;

    snprintf(path, sizeof path, "%s/tests/vectors/continuation-%s.json", srcdir ? srcdir : ".",
             name);
    r->root = json_load_file(path, 0, &e);
    ck_assert_msg(r->root != NULL, "%s: %s", path, e.text);
    r->context = ints(r->root, "context_ids", &r->n_context);
    r->target = ints(r->root, "target_ids", &r->n_target);
    r->top1 = ints(r->root, "top1", &r->n_target);
    r->nll = json_number_value(json_object_get(r->root, "nll"));
}

static void free_reference(struct reference *r)
{
    json_decref(r->root);
    free(r->context);
    free(r->target);
    free(r->top1);
}

static void model_path(const json_t *root, char *path, size_t n)
{
    const char *cache = getenv("CTXBANK_CACHE"), *home = getenv("HOME");
    const char *file = json_string_value(json_object_get(root, "model"));

    if (cache)
        snprintf(path, n, "%s/models/%s", cache, file);
    else
        snprintf(path, n, "%s/.cache/ctxbank/models/%s", home ? home : "", file);
}

/* loss of `id`, and the first of the largest logits */
static double loss(const float *logits, int n, int32_t id, int32_t *best)
{
    double sum = 0;

    *best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[*best])
            *best = i;
    for (int i = 0; i < n; i++)
        sum += exp((double)(logits[i] - logits[*best]));
    return (double)(logits[*best] - logits[id]) + log(sum);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void compare(const struct reference *r, const char *path)
{
    struct cb_session_params p = { .n_ctx = r->n_context + r->n_target };
    struct cb_model_info info;
    double sum = 0, t0, t1;
    cb_session *s;
    cb_model *m;
    int same = 0;

    ck_assert_msg(cb_model_open(path, NULL, &m) == CB_OK, "%s", cb_error());
    ck_assert_msg(cb_session_open(m, &p, &s) == CB_OK, "%s", cb_error());
    cb_model_get_info(m, &info);
    t0 = seconds();
    ck_assert_msg(cb_session_prefill(s, r->context, r->n_context, NULL) == CB_OK, "%s", cb_error());
    t1 = seconds();
    for (int i = 0; i < r->n_target; i++) {
        int32_t best;
        sum += loss(cb_session_logits(s), info.n_vocab, r->target[i], &best);
        same += best == r->top1[i];
        if (i + 1 < r->n_target)
            ck_assert_msg(cb_session_decode(s, r->target[i]) == CB_OK, "%s", cb_error());
    }
    sum /= r->n_target;
    printf("%s: nll %.5f, reference %.5f (%+.3f%%), same argmax %d of %d; prefill %.0f tokens/s, "
           "decode %.1f tokens/s\n",
           info.name, sum, r->nll, 100 * (sum / r->nll - 1), same, r->n_target,
           r->n_context / (t1 - t0), r->n_target / (seconds() - t1));
    ck_assert_double_le(fabs(sum / r->nll - 1), 0.005);
    ck_assert_int_ge(100 * same, 98 * r->n_target);
    cb_session_close(s);
    cb_model_close(m);
}

START_TEST(losses_are_those_of_pytorch)
{
    struct reference r = { 0 };
    char path[4096];

    read_reference(names[_i], &r);
    model_path(r.root, path, sizeof path);
    if (access(path, R_OK))
        cb_skip("%s is not there", path);
    else
        compare(&r, path);
    free_reference(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("continuation");
    TCase *t = tcase_create("real models");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, losses_are_those_of_pytorch, 0, (int)(sizeof names / sizeof *names));
    return cb_suite_run_nofork(suite);
}
