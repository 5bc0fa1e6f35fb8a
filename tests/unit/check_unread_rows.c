/* SPDX-License-Identifier: MIT */
/* check_unread_rows.c - of a prompt, the last layer computes what is read afterwards: keys and
 * values of all tokens, and the rest of those whose logits somebody asks for. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { PROMPT = 40, CHUNK = 16, REST = PROMPT % CHUNK };

/* Tokens that the products of the last layer have had, and those of the layer before it */
static struct {
    const struct ops *near;
    struct ops ops;
    const struct layer *layer; /* [2] */
    int query[2], key[2], down[2];
} seen;

static void count_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    for (int i = 0; i < n; i++)
        for (int l = 0; l < 2; l++) {
            seen.query[l] += mm[i].w == &seen.layer[l].q ? n_tok : 0;
            seen.key[l] += mm[i].w == &seen.layer[l].k ? n_tok : 0;
            seen.down[l] += mm[i].w == &seen.layer[l].ffn.down ? n_tok : 0;
        }
    seen.near->matmul(d, mm, n, x, n_tok);
}

static void ignore(void *arg, int i, const float *logits)
{
    (void)i, (void)logits;
    ++*(int *)arg;
}

static cb_model *open_counted(const char *family)
{
    const struct tiny t = cb_tiny_small(family);
    cb_model *m = cb_toy_model(&t, "cpu", 2);

    seen.near = m->dev->ops;
    seen.ops = *seen.near;
    seen.ops.matmul = count_matmul;
    m->dev->ops = &seen.ops;
    seen.layer = &m->layer[m->hp.n_layer - 2];
    return m;
}

static void close_counted(cb_model *m)
{
    m->dev->ops = seen.near;
    cb_model_close(m);
}

/* A prompt under the policy -> a session; n_logits: whose logits are asked for, the last ones */
static cb_session *prompt(cb_model *m, const char *policy, int n_logits)
{
    cb_session *s = cb_toy_session(m, policy, "f32", CHUNK);
    int32_t ids[PROMPT];
    int given = 0;
    const struct cb_prefill how = { .logits = n_logits ? ignore : NULL,
                                    .logits_arg = &given,
                                    .logits_from = PROMPT - n_logits };

    for (int i = 0; i < PROMPT; i++)
        ids[i] = i * 7 % m->hp.n_vocab;
    memset(seen.query, 0, sizeof seen.query);
    memset(seen.key, 0, sizeof seen.key);
    memset(seen.down, 0, sizeof seen.down);
    ck_assert_ok(cb_session_prefill(s, ids, PROMPT, &how));
    ck_assert_int_eq(given, n_logits);
    return s;
}

static void check_counts(int query, int down)
{
    ck_assert_int_eq(seen.query[0], PROMPT);
    ck_assert_int_eq(seen.down[0], PROMPT);
    ck_assert_int_eq(seen.key[0], PROMPT);
    ck_assert_int_eq(seen.key[1], PROMPT);
    ck_assert_int_eq(seen.query[1], query);
    ck_assert_int_eq(seen.down[1], down);
}

/* Logits after a prompt and after two more tokens -> out[3][n_vocab] */
static void follow(cb_session *s, float *out)
{
    const size_t n = (size_t)s->model->hp.n_vocab;

    for (int i = 0; i < 3; i++) {
        if (i)
            ck_assert_ok(cb_session_decode(s, i));
        memcpy(out + (size_t)i * n, cb_session_logits(s), n * sizeof *out);
    }
    cb_session_close(s);
}

/* Loop index: family, policy; h2o looks at all queries, and sieve's reader attends in its own way.
 */
static const char *const families[] = { "llama", "qwen2" };
static const struct {
    const char *name;
    int query;
} policies[] = { { "full", REST }, { "h2o:budget=12", PROMPT }, { "sieve:budget=12", PROMPT } };
enum { N_POLICY = sizeof policies / sizeof *policies };

START_TEST(only_what_is_read_is_computed)
{
    cb_model *m = open_counted(families[_i / N_POLICY]);
    const char *policy = policies[_i % N_POLICY].name;
    const size_t n = 3 * (size_t)m->hp.n_vocab;
    float *all = malloc(2 * n * sizeof *all), *one = all + n;
    cb_session *s = prompt(m, policy, PROMPT);

    check_counts(PROMPT, PROMPT);
    follow(s, all);
    s = prompt(m, policy, 0);
    check_counts(policies[_i % N_POLICY].query, 1);
    follow(s, one);
    cb_session_close(prompt(m, policy, REST / 2));
    check_counts(policies[_i % N_POLICY].query, REST / 2);
    ck_assert_msg(!memcmp(all, one, n * sizeof *all), "%s: other logits", policy);
    free(all);
    close_counted(m);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unread rows");
    TCase *t = tcase_create("unread rows");

    tcase_add_loop_test(t, only_what_is_read_is_computed, 0,
                        N_POLICY * (int)(sizeof families / sizeof *families));
    suite_add_tcase(suite, t);
    return cb_suite_run(suite);
}
