/* SPDX-License-Identifier: MIT */
/* check_reads.c - what a decoded token is said to have read, for every policy: values of other
 * tokens can be anything without a change in the logits, and none of these can. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attention/reads.h"
#include "bank/store_prepack.h"
#include "bank/store_rows.h"
#include "engine/session.h"
#include "kit/settings.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_PROMPT = 150, N_STEP = 4, N_CTX = 512, LAYERS = 3, HEADS = 16, SAMPLES = 5 };

static cb_model *m;
static int32_t ids[N_CTX];

static void setup(void)
{
    struct tiny t = cb_tiny_get("qwen2");
    uint32_t x = 5;

    t.n_layer = LAYERS;
    m = cb_toy_model(&t, "cpu", 1);
    ck_assert_int_le(m->hp.n_head, HEADS);
    for (int i = 0; i < N_CTX; i++) {
        x = 1103515245u * x + 12345u;
        ids[i] = (int32_t)((x >> 8) % (uint32_t)cb_n_vocab(m));
    }
}

static void teardown(void)
{
    cb_model_close(m);
}

/* What the token has read, by any query head of a KV head */
struct marks {
    uint8_t by[LAYERS][HEADS][N_CTX]; /* [layer][KV head][position] */
    int n_apart; /* positions that one head of a KV head reads and another not */
};

static void look(void *arg, const struct attention *a, int l)
{
    const int group = cb_attention_group(a);
    struct marks *x = arg;

    for (int h = 0; h < a->model->hp.n_head; h++) {
        uint8_t own[N_CTX] = { 0 }, *all = x->by[l][h / group];
        cb_reads_mark(a, l, h, own);
        for (int i = 0; i < N_CTX; i++) {
            x->n_apart += h % group && own[i] != all[i];
            all[i] |= own[i];
        }
    }
    ck_assert(cb_reads_by_head(a) || !x->n_apart);
}

/* A copy whose values are all plain rows, so that they can be written. It shares none with copies
 * of its own. */
static cb_session *copy_of(const cb_session *s)
{
    cb_session *c;

    ck_assert_ok(cb_session_fork(s, &c));
    cb_session_keep_shared(c, 0);
    for (int l = 0; l < LAYERS; l++)
        cb_store_unpack(&c->bank.store[l], 0, c->bank.store[l].prepacked);
    return c;
}

/* A merged slot of a pair's earlier layer is made of the later one's row; rows of its retained
 * slots lie in front. */
static void spoil(cb_session *s, int l, int kv, int slot)
{
    const struct store *st = &s->bank.store[l];
    const float *ratio = st->later && slot < st->merged ? cb_store_col(st, kv, 1) : NULL;
    float x[512];

    ck_assert_int_le(s->bank.hd, 512);
    if (ratio && ratio[slot] >= 0)
        l++;
    else if (ratio)
        for (int n = slot; n > 0; n--)
            slot -= ratio[n - 1] >= 0;
    for (int i = 0; i < s->bank.hd; i++)
        x[i] = i % 2 ? 40 : -40;
    cb_store_set(&s->bank.store[l], s->dev, kv, 1, slot, x);
}

static int same(const cb_session *a, const cb_session *b)
{
    return !memcmp(cb_session_logits(a), cb_session_logits(b),
                   (size_t)cb_n_vocab(m) * sizeof(float));
}

/* Spoils all that is not read -> how many values */
static int spoil_unread(cb_session *s, const struct marks *x)
{
    int n = 0;

    for (int l = 0; l < LAYERS; l++)
        for (int kv = 0; kv < s->bank.n_kv; kv++)
            for (int i = 0; i < s->bank.store[l].n[kv]; i++)
                if (!x->by[l][kv][cb_store_pos(&s->bank.store[l], kv, i)]) {
                    spoil(s, l, kv, i);
                    n++;
                }
    return n;
}

/* Some of the tokens that are read in each layer and KV head: each shows in the logits. */
static void all_count(const cb_session *before, const cb_session *plain, const struct marks *x,
                      int32_t id, const char *policy)
{
    for (int l = 0; l < LAYERS; l++)
        for (int kv = 0; kv < before->bank.n_kv; kv++) {
            const struct store *st = &before->bank.store[l];
            const int step = st->n[kv] / SAMPLES + 1;
            for (int i = 0; i < st->n[kv]; i += step) {
                int j = i;
                cb_session *c;
                while (j < st->n[kv] && !x->by[l][kv][cb_store_pos(st, kv, j)])
                    j++;
                if (j == st->n[kv])
                    break;
                c = copy_of(before);
                spoil(c, l, kv, j);
                ck_assert_ok(cb_session_decode(c, id));
                ck_assert(isfinite(cb_session_logits(c)[0]));
                ck_assert_msg(!same(c, plain), "%s: layer %d head %d slot %d counts as read",
                              policy, l, kv, j);
                cb_session_close(c);
            }
        }
}

/* Has one of the policy's layers slots that a token does not read? */
static int leaves_some(const char *policy)
{
    static const char *const some[] = { "omnikv", "sieve", "quest", "infllm", "infinigen" };

    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (!strncmp(policy, some[i], strlen(some[i])))
            return 1;
    return 0;
}

START_TEST(values_that_are_not_read_do_not_count)
{
    const struct setting *r = &cb_setting[_i];
    struct marks *x = calloc(1, sizeof *x);
    const struct read_watch watch = { look, x };
    cb_session *s = cb_setting_session(m, r, N_CTX);

    ck_assert_ptr_nonnull(x);
    ck_assert_ok(cb_session_prefill(s, ids, N_PROMPT, NULL));
    for (int t = N_PROMPT; t < N_PROMPT + N_STEP; t++) {
        cb_session *plain = copy_of(s), *spoilt = copy_of(s), *before = copy_of(s);
        int n;
        memset(x, 0, sizeof *x);
        s->attention.watch = &watch;
        ck_assert_ok(cb_session_decode(s, ids[t]));
        s->attention.watch = NULL;
        n = spoil_unread(spoilt, x);
        ck_assert_msg(!leaves_some(r->policy) || n, "%s: all is read", r->policy);
        ck_assert_msg(!strstr(r->policy, "group=each") || x->n_apart, "%s: heads agree", r->policy);
        ck_assert_ok(cb_session_decode(plain, ids[t]));
        ck_assert_ok(cb_session_decode(spoilt, ids[t]));
        ck_assert_msg(same(plain, spoilt), "%s %s: token %d has read more", r->policy, r->type, t);
        if (t >= N_PROMPT + N_STEP - 2)
            all_count(before, plain, x, ids[t], r->policy);
        for (int l = 0; l < LAYERS; l++)
            for (int kv = 0; kv < m->hp.n_kv; kv++)
                ck_assert_msg(x->by[l][kv][t], "%s: its own token is not read", r->policy);
        cb_session_close(plain);
        cb_session_close(spoilt);
        cb_session_close(before);
    }
    cb_session_close(s);
    free(x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reads");
    TCase *t = tcase_create("policies");

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, values_that_are_not_read_do_not_count, 0, cb_n_setting);
    return cb_suite_run(suite);
}
