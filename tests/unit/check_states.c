/* SPDX-License-Identifier: MIT */
/* check_states.c - layers that remember without keys: what they remember is forked, saved, given up
 * with a prompt that is stopped, and cut back, to the bit. */
#include "hybrid.h"

/* ---- tests; loop index: recipe ---- */

START_TEST(chunks_and_threads)
{
    static const int chunk[] = { 7, 64, 200 };
    cb_session *all, *s;
    cb_model *one;

    open_recipe(_i);
    all = session_of(m, 0, 0);
    feed(all, 0, 420);
    for (int i = 0; i < 3; i++) {
        s = session_of(m, chunk[i], i ? 0 : 1);
        feed(s, 0, 420);
        same(s, all, "chunks");
        cb_session_close(s);
    }
    one = open_with(1);
    s = session_of(one, 0, 0);
    feed(s, 0, 420);
    same(s, all, "one thread");
    cb_session_close(s);
    cb_session_close(all);
    cb_model_close(one);
    close_recipe();
}
END_TEST

START_TEST(cuts)
{
    static const int to[] = { 389, 345, 301, 256, 130, 5, 0 };

    open_recipe(_i);
    for (int limit = 0; limit < 3; limit++) {
        cb_session *s = session_of(m, 0, 0);
        uint64_t state, most = 0;
        held(s, &state);
        cb_session_close(s);
        most = limit == 1 ? 1 : limit == 2 ? state / 2 * 5 / 2 : 0; /* 2.5 checkpoints */
        for (size_t i = limit ? 1 : 0; i < sizeof to / sizeof *to; i += limit ? 3 : 1) {
            cb_session *cut = session_of(m, 0, most), *fresh = session_of(m, 0, most);
            feed(cut, 0, 700);
            ck_assert(!most || held(cut, &state) <= most);
            ck_assert_ok(cb_session_truncate(cut, to[i]));
            ck_assert_int_eq(cb_session_len(cut), to[i]);
            feed(fresh, 0, to[i]);
            feed_both(cut, fresh, "cut");
            cb_session_close(cut);
            cb_session_close(fresh);
        }
    }
    close_recipe();
}
END_TEST

/* Plans say how many bytes of checkpoints there will be. */
START_TEST(plans)
{
    static const int turn[][2] = { { 0, 0 }, { 1, 300 }, { 300, 10 }, { 512, 1 }, { 640, 260 } };

    open_recipe(_i);
    for (size_t i = 0; i < sizeof turn / sizeof *turn; i++) {
        cb_session *s = session_of(m, 0, 0);
        struct cb_memory plan, now;
        ck_assert_ok(cb_session_plan(s, turn[i][0], turn[i][1], &plan));
        if (turn[i][0])
            ck_assert_ok(cb_session_prefill(s, ids, turn[i][0], NULL));
        for (int j = 0; j < turn[i][1]; j++)
            ck_assert_ok(cb_session_decode(s, ids[j]));
        cb_session_memory(s, &now);
        ck_assert_msg(plan.checkpoint_bytes == now.checkpoint_bytes &&
                          plan.state_bytes == now.state_bytes && now.state_bytes > 0,
                      "%d + %d: %llu bytes, planned %llu", turn[i][0], turn[i][1],
                      (unsigned long long)now.checkpoint_bytes,
                      (unsigned long long)plan.checkpoint_bytes);
        ck_assert_uint_eq(plan.kv_bytes, now.kv_bytes);
        ck_assert_uint_eq(plan.kv_read_bytes_per_token,
                          turn[i][1] ? now.kv_read_bytes_per_token : plan.kv_read_bytes_per_token);
        cb_session_close(s);
    }
    close_recipe();
}
END_TEST

START_TEST(forks)
{
    static const int at[] = { 300, 320, 400 };

    open_recipe(_i);
    for (int i = 0; i < 3; i++) {
        cb_session *s = session_of(m, 0, 0), *fork, *cut;
        feed(s, 0, at[i]);
        ck_assert_ok(cb_session_fork(s, &fork));
        ck_assert_ok(cb_session_fork(s, &cut));
        ck_assert_ok(cb_session_decode(fork, 5)); /* does not reach s */
        ck_assert_ok(cb_session_truncate(fork, at[i]));
        feed_both(s, fork, "fork");
        ck_assert_ok(cb_session_truncate(cut, 200));
        cb_session_close(fork);
        fork = session_of(m, 0, 0);
        feed(fork, 0, 200);
        feed_both(cut, fork, "cut of a fork");
        cb_session_close(s);
        cb_session_close(cut);
        cb_session_close(fork);
    }
    close_recipe();
}
END_TEST

START_TEST(saved_banks)
{
    cb_session *s, *back, *fresh;

    open_recipe(_i);
    s = session_of(m, 0, 0);
    feed(s, 0, 420);
    ck_assert_ok(cb_session_save(s, saved));
    ck_assert_ok(cb_session_load(m, saved, 0, &back));
    same(back, s, "saved");
    feed_both(back, s, "saved");
    cb_session_close(back);
    ck_assert_ok(cb_session_load(m, saved, 2 * N_CTX, &back));
    ck_assert_ok(cb_session_truncate(back, 333));
    fresh = session_of(m, 0, 0);
    feed(fresh, 0, 333);
    feed_both(back, fresh, "cut of a saved bank");
    cb_session_close(s);
    cb_session_close(back);
    cb_session_close(fresh);
    close_recipe();
}
END_TEST

static size_t two_layers(const void *arg, int l, size_t *past)
{
    (void)arg;
    *past = l ? 0 : 4;
    return l ? 0 : 16;
}

/* A file may hold more checkpoints than the session that opens it allows. */
START_TEST(fewer_checkpoints)
{
    enum { LAYERS = 2, N = 6 };
    int32_t counts[1 + STATE_MOST_POINTS] = { N };
    struct states s = { 0 };

    for (int i = 1; i <= N; i++)
        counts[i] = i * STATE_EVERY;
    ck_assert_ok(cb_states_open(&s, LAYERS, two_layers, NULL, 2 * 16 * sizeof(float) + 1));
    ck_assert_int_eq(s.most, 2);
    ck_assert_ok(cb_states_set_counts(&s, counts, N * STATE_EVERY));
    ck_assert_int_eq(s.n, N);
    cb_states_fit(&s);
    ck_assert_int_eq(s.n, 2);
    ck_assert_int_eq(s.point[1].at, N * STATE_EVERY); /* the last one stays */
    cb_states_close(&s);
}
END_TEST

static int stop_late(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return done > total * 3 / 4;
}

START_TEST(stopped_prompts)
{
    const struct cb_prefill how = { .progress = stop_late };
    cb_session *s, *t;

    open_recipe(_i);
    s = session_of(m, 32, 0);
    t = session_of(m, 32, 0);
    feed(s, 0, 200);
    feed(t, 0, 200);
    ck_assert_int_eq(cb_session_prefill(s, ids, 300, &how), CB_ECANCEL);
    feed_both(s, t, "after a prompt that was stopped");
    ck_assert_ok(cb_session_prefill_begin(s, ids, 300, NULL));
    for (int i = 0; i < 15; i++)
        ck_assert_int_eq(cb_session_prefill_step(s), 1);
    cb_session_prefill_cancel(s);
    feed_both(s, t, "after a prompt in steps that was cancelled");
    cb_session_close(s);
    cb_session_close(t);
    close_recipe();
}
END_TEST

static int stop_at_the_end(void *arg, int64_t done, int64_t total)
{
    (void)arg;
    return done > total - 10;
}

/* A prompt that is stopped in its last layer has filled checkpoints. They are not those of the
 * prompt that is fed in its place. */
START_TEST(checkpoints_of_stopped_prompts)
{
    enum { FROM = 100, N = 600, CUT = 530 };
    const struct cb_prefill how = { .progress = stop_at_the_end };
    cb_session *s, *t;

    open_recipe(_i);
    s = session_of(m, 32, 0);
    t = session_of(m, 32, 0);
    ck_assert_int_eq(cb_session_prefill(s, ids, N, &how), CB_ECANCEL);
    ck_assert_ok(cb_session_prefill(s, ids + FROM, N, NULL));
    ck_assert_ok(cb_session_truncate(s, CUT));
    ck_assert_ok(cb_session_prefill(t, ids + FROM, CUT, NULL));
    feed_both(s, t, "cut to a checkpoint after a prompt that was stopped");
    cb_session_close(s);
    cb_session_close(t);
    close_recipe();
}
END_TEST

START_TEST(batches)
{
    enum { N = 3 };
    cb_session *s[N], *alone[N];

    open_recipe(_i);
    for (int i = 0; i < N; i++) {
        s[i] = session_of(m, 0, 0);
        alone[i] = session_of(m, 0, 0);
        feed(s[i], 0, 20 + i);
        feed(alone[i], 0, 20 + i);
    }
    for (int t = 0; t < 5; t++) {
        ck_assert_ok(cb_decode_batch(s, ids + t, N));
        for (int i = 0; i < N; i++) {
            ck_assert_ok(cb_session_decode(alone[i], ids[t + i]));
            same(s[i], alone[i], "batch");
        }
    }
    for (int i = 0; i < N; i++) {
        cb_session_close(s[i]);
        cb_session_close(alone[i]);
    }
    close_recipe();
}
END_TEST

/* ---- drafts ---- */

enum { DRAFTS_FROM = 300, DRAFTS_TO = 700 };

/* Decodes n tokens at place `at` together, of which the first `kept` are the timeline's. */
static void draft(cb_session *s, int at, int n, int kept)
{
    const float *logits;
    int32_t token[16];

    for (int i = 0; i < n; i++)
        token[i] = ids[i < kept ? at + i : (at * 31 + i) % N_ID];
    ck_assert_ok(cb_session_decode_all(s, token, n, &logits));
    ck_assert_ok(cb_session_truncate(s, at + kept));
}

/* Drafts of all lengths, of which any number of tokens is taken back, leave what the same tokens
 * one by one leave. No checkpoint is lost: with room for one alone, a cut goes back to it. */
START_TEST(drafts_are_taken_back)
{
    cb_session *one, *all;

    open_recipe(_i);
    one = session_of(m, 64, 0);
    all = session_of(m, 64, 0);
    ck_assert_ok(cb_session_prefill(one, ids, DRAFTS_FROM, NULL));
    ck_assert_ok(cb_session_prefill(all, ids, DRAFTS_FROM, NULL));
    for (int at = DRAFTS_FROM, k = 0, kept; at < DRAFTS_TO; at += kept, k++) {
        const int left = GRID - at % GRID, n = 1 + (k * 5) % 16 < left ? 1 + (k * 5) % 16 : 1;
        kept = 1 + (k * 7) % n;
        draft(all, at, n, kept);
        for (int i = 0; i < kept; i++)
            ck_assert_ok(cb_session_decode(one, ids[at + i]));
        if (kept == n)
            same(one, all, "draft");
    }
    ck_assert_ok(cb_session_truncate(one, cb_session_len(all)));
    feed_both(one, all, "after drafts");
    ck_assert_ok(cb_session_truncate(one, DRAFTS_TO - 40));
    ck_assert_ok(cb_session_truncate(all, DRAFTS_TO - 40));
    feed_both(one, all, "cut after drafts");
    cb_session_close(one);
    cb_session_close(all);
    close_recipe();
}
END_TEST

static int32_t greedy(const float *logits)
{
    int32_t best = 0;

    for (int i = 1; i < recipe.n_vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* The text with prompt look-up drafts is that without, and has the same checkpoints. */
START_TEST(the_text_without_drafts)
{
    struct cb_speculation_counts counts;
    struct cb_memory a, b;
    cb_speculation *x;
    cb_session *one, *s;

    open_recipe(_i);
    one = session_of(m, 64, 0);
    s = session_of(m, 64, 0);
    ck_assert_ok(cb_session_prefill(one, ids, DRAFTS_FROM, NULL));
    ck_assert_ok(cb_session_prefill(s, ids, DRAFTS_FROM, NULL));
    ck_assert_ok(cb_speculation_new(s, 8, &x));
    for (int i = DRAFTS_FROM; i < DRAFTS_TO; i++) {
        /* what is fed repeats itself, so that drafts are right; now and then it does not */
        const int32_t id = i % 90 == 7 ? greedy(cb_session_logits(one)) : ids[i % 30];
        ck_assert_msg(!memcmp(cb_session_logits(one), cb_speculation_logits(x),
                              (size_t)recipe.n_vocab * sizeof(float)),
                      "token %d", i);
        ck_assert_ok(cb_session_decode(one, id));
        ck_assert_ok(cb_speculation_decode(x, id));
    }
    ck_assert_ok(cb_speculation_end(x));
    cb_speculation_get_counts(x, &counts);
    ck_assert_int_gt(counts.accepted, 0);
    ck_assert_int_gt(counts.drafted, counts.accepted);
    cb_session_memory(one, &a);
    cb_session_memory(s, &b);
    ck_assert_uint_eq(a.checkpoint_bytes, b.checkpoint_bytes);
    feed_both(one, s, "after the text");
    cb_speculation_free(x);
    cb_session_close(one);
    cb_session_close(s);
    close_recipe();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("states");
    TCase *tc = tcase_create("states");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, chunks_and_threads, 0, N_RECIPE);
    tcase_add_loop_test(tc, cuts, 0, N_RECIPE);
    tcase_add_loop_test(tc, plans, 0, N_RECIPE);
    tcase_add_loop_test(tc, forks, 0, N_RECIPE);
    tcase_add_loop_test(tc, saved_banks, 0, N_RECIPE);
    tcase_add_test(tc, fewer_checkpoints);
    tcase_add_loop_test(tc, stopped_prompts, 0, N_RECIPE);
    tcase_add_loop_test(tc, checkpoints_of_stopped_prompts, 0, N_RECIPE);
    tcase_add_loop_test(tc, batches, 0, N_RECIPE);
    tcase_add_loop_test(tc, drafts_are_taken_back, 0, N_DRAFT);
    tcase_add_loop_test(tc, the_text_without_drafts, 0, N_DRAFT);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
