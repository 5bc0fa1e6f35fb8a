/* SPDX-License-Identifier: MIT */
/* check_mtp.c - drafts by the head for later tokens that a model's file has: the formula, the text
 * that stays the same, a head that is always right, and files whose head cannot be used. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/mtp_drafter.h"
#include "engine/session.h"
#include "kit/drafted.h"
#include "kit/headed.h"
#include "kit/suite.h"
#include "model/mtp_head.h"

enum { PROMPT = 200, TEXT = 120 };

static struct headed h;

/* ---- the formula ---- */

static void norm(const float *w, const double *x, int n, double *y)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    sum = 1 / sqrt(sum / n + (double)h.m->hp.norm_eps);
    for (int i = 0; i < n; i++)
        y[i] = x[i] * sum * (double)w[i];
}

static int32_t expected(int32_t last, int32_t next)
{
    enum { MOST = 256 };
    const int ne = h.m->hp.n_embd;
    const float *embd = h.m->embd.raw, *join = h.m->mtp->join.raw, *out = h.m->output.raw;
    double x[MOST] = { 0 }, both[2 * MOST], y[MOST], best = -INFINITY;
    int32_t id = -1;

    ck_assert_int_le(ne, MOST);
    for (int i = 0; i < ne; i++)
        x[i] = (double)embd[(size_t)next * (size_t)ne + (size_t)i] * (double)h.m->hp.embd_scale;
    norm(h.m->mtp->of_embd.w, x, ne, both);
    for (int i = 0; i < ne; i++)
        x[i] = (double)embd[(size_t)last * (size_t)ne + (size_t)i] * (double)h.m->hp.embd_scale;
    norm(h.m->out_norm.w, x, ne, y);
    norm(h.m->mtp->of_state.w, y, ne, both + ne);
    for (int o = 0; o < ne; o++) {
        y[o] = 0;
        for (int i = 0; i < 2 * ne; i++)
            y[o] += (double)join[(size_t)o * 2 * (size_t)ne + (size_t)i] * both[i];
    }
    norm(h.m->mtp->norm.w, y, ne, x);
    for (int t = 0; t < h.m->hp.n_vocab; t++) {
        double sum = 0;
        for (int i = 0; i < ne; i++)
            sum += (double)out[(size_t)t * (size_t)ne + (size_t)i] * x[i];
        if (sum > best) {
            best = sum;
            id = t;
        }
    }
    return id;
}

/* Layers that add nothing leave the formula's rest: embeddings, norms, the join and the output. */
START_TEST(formula)
{
    cb_session *s;

    cb_headed_new(&h, _i, HEAD_STILL, 1);
    s = cb_headed_session(&h, "full", 0);
    ck_assert_ok(cb_session_prefill(s, h.ids, 40, NULL));
    for (int i = 40; i < 90; i++) {
        const int32_t want = expected(h.ids[i - 1], h.ids[i]);
        const int n = cb_headed_guess(s, h.ids[i], 1);
        if (n || !cb_token_is_end(h.m, want)) {
            ck_assert_int_eq(n, 1);
            ck_assert_int_eq(cb_mtp_drafter_of(s)->draft[0], want);
        }
        ck_assert_ok(cb_session_decode(s, h.ids[i]));
    }
    cb_session_close(s);
    cb_headed_close(&h);
}
END_TEST

/* ---- texts ---- */

/* Closes both sessions. */
static struct cb_speculation_counts same_text(cb_session *one, cb_session *s, float temp)
{
    struct drafted_text x = { 0, TEXT, NULL, cb_sampler_defaults() };
    struct cb_speculation_counts counts;

    x.pick.temp = temp;
    x.pick.seed = 3;
    counts = cb_drafted_text(one, s, &x);
    ck_assert_int_eq(counts.drafted, counts.mtp_drafted);
    ck_assert_int_eq(counts.accepted, counts.mtp_accepted);
    return counts;
}

/* A session without drafts, of the same h.file, in a model that leaves the head unused */
static struct cb_speculation_counts texts(float temp, const char *policy)
{
    const struct cb_model_params p = { .n_threads = 1 };
    const struct cb_session_params sp = { .n_ctx = HEADED_CTX, .policy = policy };
    struct cb_speculation_counts counts;
    cb_session *one, *s = cb_headed_session(&h, policy, 64);
    cb_model *plain;

    ck_assert_ok(cb_model_open(h.file, &p, &plain));
    ck_assert_ok(cb_session_open(plain, &sp, &one));
    ck_assert_int_eq(cb_session_draft_mtp(one), 0);
    ck_assert_int_gt(cb_session_draft_mtp(s), 0);
    ck_assert_ok(cb_session_prefill(one, h.ids, PROMPT, NULL));
    ck_assert_ok(cb_session_prefill(s, h.ids, PROMPT, NULL));
    counts = same_text(one, s, temp);
    cb_model_close(plain);
    return counts;
}

/* All drafts of this head are accepted. */
START_TEST(a_head_that_is_right)
{
    struct cb_speculation_counts c;

    cb_headed_new(&h, _i, HEAD_AGREES, 1);
    c = texts(0, "full");
    ck_assert_int_gt(c.mtp_drafted, 3); /* they may pause: a tiny model gains no time */
    ck_assert_msg(c.mtp_accepted >= c.mtp_drafted - 1, "%d of %d", (int)c.mtp_accepted,
                  (int)c.mtp_drafted); /* the last one may be unfinished */
    cb_headed_close(&h);
}
END_TEST

START_TEST(the_text_without_drafts)
{
    static const char *const policies[] = { "full", "quest:budget=64,page=16,dense=0",
                                            "sieve:budget=64,recent=16,sink=4" };
    struct cb_speculation_counts c;

    cb_headed_new(&h, _i % HEADED, HEAD_RANDOM, 3);
    c = texts(_i % 2 ? 0.8f : 0, h.m->hp.latent.rank ? "full" : policies[_i % 3]);
    ck_assert_int_gt(c.mtp_drafted, 0);
    cb_headed_close(&h);
}
END_TEST

/* ---- what the head holds ---- */

/* The same tokens in pieces, in steps, in batches, cut back, and forked leave the head the same. */
START_TEST(pieces_cuts_and_forks)
{
    cb_session *a, *b, *c, *pair[2];
    int32_t next[2];
    int got;

    cb_headed_new(&h, _i, HEAD_RANDOM, 4);
    a = cb_headed_session(&h, "full", 0);
    b = cb_headed_session(&h, "full", 32);
    ck_assert_ok(cb_session_prefill(a, h.ids, PROMPT, NULL));
    ck_assert_ok(cb_session_prefill(b, h.ids, 50, NULL));
    ck_assert_ok(cb_session_prefill(b, h.ids + 50, PROMPT - 50, NULL));
    ck_assert_int_eq(cb_headed_guess(a, h.ids[0], 1), cb_headed_guess(b, h.ids[0], 1));
    ck_assert_int_eq(cb_mtp_drafter_of(a)->draft[0], cb_mtp_drafter_of(b)->draft[0]);
    ck_assert_int_eq(cb_mtp_drafter_of(a)->s->bank.n_seen, PROMPT);
    ck_assert_int_eq(cb_mtp_drafter_of(b)->s->bank.n_seen, PROMPT);
    ck_assert_ok(cb_session_decode(a, h.ids[0]));
    ck_assert_ok(cb_session_decode(b, h.ids[0]));
    ck_assert_ok(cb_session_fork(a, &c));
    ck_assert_ptr_nonnull(c->follower);
    pair[0] = a;
    pair[1] = b;
    for (int i = 1; i < 80; i++) { /* more than wait for a draft */
        next[0] = next[1] = h.ids[i];
        ck_assert_ok(cb_decode_batch(pair, next, 2));
        ck_assert_ok(cb_session_decode(c, h.ids[i]));
    }
    got = cb_headed_guess(c, h.ids[3], 1);
    ck_assert_int_eq(cb_headed_guess(a, h.ids[3], 1), got);
    ck_assert_int_eq(cb_headed_guess(b, h.ids[3], 1), got);
    ck_assert_int_eq(cb_mtp_drafter_of(a)->draft[0], cb_mtp_drafter_of(c)->draft[0]);
    ck_assert_int_eq(cb_mtp_drafter_of(b)->draft[0], cb_mtp_drafter_of(c)->draft[0]);
    ck_assert_ok(cb_session_truncate(c, PROMPT - 20));
    ck_assert_ok(cb_session_prefill(c, h.ids + PROMPT - 20, 20, NULL));
    ck_assert_int_ge(cb_headed_guess(c, h.ids[0], 2), 0);
    ck_assert_int_ge(cb_mtp_drafter_of(c)->s->bank.n_seen,
                     PROMPT - 2); /* a row may be missing at the cut */
    cb_session_close(a);
    cb_session_close(b);
    cb_session_close(c);
    cb_headed_close(&h);
}
END_TEST

START_TEST(plans)
{
    struct cb_memory plan, now;
    cb_speculation *x;
    cb_session *s;
    double off;

    cb_headed_new(&h, _i, HEAD_RANDOM, 1);
    s = cb_headed_session(&h, "full", 64);
    ck_assert_ok(cb_speculation_new(s, 0, &x));
    cb_speculation_free(x);
    ck_assert_ok(cb_session_plan(s, PROMPT, 0, &plan));
    ck_assert_ok(cb_session_prefill(s, h.ids, PROMPT, NULL));
    cb_session_memory(s, &now);
    off = (double)plan.scratch_bytes / (double)now.scratch_bytes - 1;
    ck_assert_msg(fabs(off) < 0.01, "planned %llu, is %llu", (unsigned long long)plan.scratch_bytes,
                  (unsigned long long)now.scratch_bytes);
    cb_session_close(s);
    cb_headed_close(&h);
}
END_TEST

/* ---- files whose head cannot be used ---- */

static char noted[512];

static void note(void *arg, enum cb_log_level level, const char *message)
{
    (void)arg, (void)level;
    if (strstr(message, "later tokens"))
        snprintf(noted, sizeof noted, "%s", message);
}

START_TEST(heads_left_unused)
{
    const struct cb_model_params p = { .n_threads = 1, .draft_mtp = 1, .log = note };
    const int ne = 48;
    struct cb_model_info info;
    struct gguf_make g;
    cb_session *s;
    int l;

    cb_recipe_open(&h.recipe, "family-qwen35.json");
    cb_headed_add(&h.recipe);
    l = (int)json_integer_value(json_array_get(cb_headed_key(&h.recipe, ".block_count"), 2)) - 1;
    cb_headed_remove(&h.recipe, -1, _i ? "nextn.hnorm.weight" : "nextn.eh_proj.weight");
    if (!_i)
        cb_headed_row(&h.recipe, l, "nextn.eh_proj.weight", ne, ne, 0, 0.2);
    snprintf(h.file, sizeof h.file, "check_mtp.%d.gguf", (int)getpid());
    cb_recipe_make(&h.recipe, &g);
    cb_make_save(&g, h.file);
    *noted = '\0';
    ck_assert_ok(cb_model_open(h.file, &p, &h.m));
    ck_assert_msg(strstr(noted, _i ? "nextn.hnorm" : "nextn.eh_proj") != NULL, "%s", noted);
    cb_model_get_info(h.m, &info);
    ck_assert_int_eq(info.n_unused_layer, 1);
    s = cb_headed_session(&h, "full", 0);
    ck_assert_int_eq(cb_session_draft_mtp(s), 0);
    ck_assert_ok(cb_session_prefill(s, h.recipe.ids, h.recipe.n, NULL));
    cb_session_close(s);
    cb_headed_close(&h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("mtp");
    TCase *tc = tcase_create("mtp");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, formula, 0, HEADED);
    tcase_add_loop_test(tc, a_head_that_is_right, 0, HEADED);
    tcase_add_loop_test(tc, the_text_without_drafts, 0, 2 * HEADED);
    tcase_add_loop_test(tc, pieces_cuts_and_forks, 0, HEADED);
    tcase_add_loop_test(tc, plans, 0, HEADED);
    tcase_add_loop_test(tc, heads_left_unused, 0, 2);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
