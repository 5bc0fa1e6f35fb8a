/* SPDX-License-Identifier: MIT */
/* check_threads.c - several threads of a program on one model, each with sessions of its own: the
 * results are those of one thread, to the bit; callbacks may not use the model. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/asleep.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"
#include "par/fair_lock.h"

enum {
    N_CTX = 512,
    N_STEP = 8,
    N_ROUND = 1 + 2 / CB_SLOWED,
    MOST_THREAD = 4,
    N_VOCAB_MOST = 1 << 12
};

struct form {
    const char *policy, *type_k, *type_v;
    int chunk, n_prompt, top;
};

/* Threads take every so many of these in turn. */
static const struct form form[] = {
    { "full", "f16", "f16", 64, 300, 0 },
    { "h2o:budget=48", "q8_0", "q8_0", 0, 200, 0 },
    { "streamingllm:budget=40", "f32", "f32", 3, 60, 0 },
    { "snapkv:budget=48,window=8", "bf16", "bf16", 100, 250, 0 },
    { "omnikv:budget=48", "f16", "f16", 32, 180, 1 },
    { "full", "kivi4:32", "kivi2:32", 128, 400, 0 },
    { "sieve:budget=48", "f16", "q8_0", 64, 380, 0 },
    { "infinigen:dense=1,alpha=0.2", "f16", "f16", 80, 200, 0 },
    { "d2o:budget=48,sink=2", "f32", "f16", 50, 160, 0 },
    { "pyramidkv:budget=48,window=8", "f16", "q8_0", 1, 40, 5 },
    { "full", "bf16", "bf16", 512, 350, 20 },
    { "tova:budget=32", "f16", "f16", 64, 150, 0 },
    { "simlayerkv:sink=2,recent=10,mode=prefill,window=6", "q8_0", "f16", 7, 100, 0 },
    { "full", "q8_0", "q8_0", 200, 420, 0 },
};
enum { N_FORM = sizeof form / sizeof *form };

static cb_model *model;
static float alone[N_FORM][N_STEP + 1][N_VOCAB_MOST];

static void setup(void)
{
    const struct tiny t = cb_tiny_get("llama");

    model = cb_toy_model(&t, "cpu", 2);
    ck_assert_int_le(model->hp.n_vocab, N_VOCAB_MOST);
}

static void teardown(void)
{
    cb_model_close(model);
}

static int32_t token(int i)
{
    return (int32_t)((unsigned)(i * 2654435761u) >> 8) % model->hp.n_vocab;
}

static cb_session *open_form(const struct form *f)
{
    const struct cb_session_params p = { .n_ctx = N_CTX,
                                         .chunk = f->chunk,
                                         .type_k = f->type_k,
                                         .type_v = f->type_v,
                                         .policy = f->policy };
    cb_session *s = NULL;

    return cb_session_open(model, &p, &s) ? NULL : s;
}

/* A whole life of a session; logits[N_STEP + 1][N_VOCAB_MOST]. 0, or what failed. */
static const char *live(const struct form *f, float (*logits)[N_VOCAB_MOST])
{
    const size_t bytes = (size_t)model->hp.n_vocab * sizeof **logits;
    const char *why = NULL;
    int32_t prompt[N_CTX];
    cb_session *s = open_form(f);

    if (!s)
        return "open";
    for (int i = 0; i < f->n_prompt; i++)
        prompt[i] = token(i);
    if (cb_session_want_top(s, f->top))
        why = "want_top";
    else if (cb_session_prefill(s, prompt, f->n_prompt, NULL))
        why = "prefill";
    else
        memcpy(logits[0], cb_session_logits(s), bytes);
    for (int i = 0; !why && i < N_STEP; i++) {
        if (cb_session_decode(s, token(f->n_prompt + i)))
            why = "decode";
        memcpy(logits[i + 1], cb_session_logits(s), bytes);
    }
    cb_session_clear(s);
    cb_session_close(s);
    return why;
}

static int same(const float (*a)[N_VOCAB_MOST], const float (*b)[N_VOCAB_MOST])
{
    for (int i = 0; i <= N_STEP; i++)
        if (memcmp(a[i], b[i], (size_t)model->hp.n_vocab * sizeof **a))
            return 0;
    return 1;
}

struct user {
    int number, n;
    const char *why;
    int form;
};

/* What needs no device goes on beside it, and a failure is the thread's own. */
static const char *look_around(int number)
{
    static const char text[] = "Threads that share a model take turns.";
    cb_session *s = open_form(&form[number % N_FORM]);
    struct cb_memory m, plan;
    char want[64];
    int32_t *ids;
    int n;

    if (!s || cb_tokenize(model, text, sizeof text - 1, CB_TOK_BOS, &ids, &n))
        return "look around";
    free(ids);
    cb_session_memory(s, &m);
    if (cb_session_plan(s, 100, 10, &plan) || !plan.kv_bytes)
        return "plan";
    cb_session_close(s);
    snprintf(want, sizeof want, "policy no-such-%d", number);
    if (cb_session_open(model, &(struct cb_session_params){ .policy = want + 7 }, &s) != CB_EARG ||
        !strstr(cb_error(), want + 7))
        return "another thread's failure";
    return NULL;
}

static void *use(void *arg)
{
    struct user *u = arg;
    float(*logits)[N_VOCAB_MOST] = calloc(N_STEP + 1, sizeof *logits);

    for (int r = 0; logits && !u->why && r < N_ROUND; r++)
        for (int i = u->number; !u->why && i < N_FORM; i += u->n) {
            u->form = i;
            u->why = live(&form[i], logits);
            if (!u->why &&
                !same((const float(*)[N_VOCAB_MOST])logits, (const float(*)[N_VOCAB_MOST])alone[i]))
                u->why = "other logits than alone";
            if (!u->why)
                u->why = look_around(u->number);
        }
    free(logits);
    return NULL;
}

START_TEST(threads_are_as_one)
{
    struct user u[MOST_THREAD] = { 0 };
    pthread_t t[MOST_THREAD];

    for (int i = 0; i < N_FORM; i++) {
        const char *why = live(&form[i], alone[i]);
        ck_assert_msg(!why, "%s: %s: %s", form[i].policy, why, cb_error());
    }
    for (int i = 0; i < _i; i++) {
        u[i] = (struct user){ .number = i, .n = _i };
        ck_assert(!pthread_create(&t[i], NULL, use, &u[i]));
    }
    for (int i = 0; i < _i; i++) {
        pthread_join(t[i], NULL);
        ck_assert_msg(!u[i].why, "thread %d of %d: %s: %s", i, _i, form[u[i].form].policy,
                      u[i].why);
    }
}
END_TEST

/* Threads that open a model each, and a device with it, share nothing. */
static void *use_own(void *arg)
{
    struct user *u = arg;
    char path[64];
    cb_model *m;
    cb_session *s;

    snprintf(path, sizeof path, "check_threads.%d.%d.tmp", (int)getpid(), u->number);
    cb_tiny_save(&(struct tiny[]){ cb_tiny_get("qwen2") }[0], path);
    if (cb_model_open(path, &(struct cb_model_params){ .n_threads = 2 }, &m))
        u->why = "open";
    unlink(path);
    if (u->why)
        return NULL;
    for (int r = 0; r < 2 && !u->why; r++) {
        int32_t prompt[50];
        for (int i = 0; i < 50; i++)
            prompt[i] = i * 3 % m->hp.n_vocab;
        if (cb_session_open(m, NULL, &s))
            u->why = "session";
        else if (cb_session_prefill(s, prompt, 50, NULL) || cb_session_decode(s, 1))
            u->why = "feed";
        if (!u->why)
            cb_session_close(s);
    }
    cb_model_close(m);
    return NULL;
}

START_TEST(models_of_their_own)
{
    struct user u[3] = { { .number = 0 }, { .number = 1 }, { .number = 2 } };
    pthread_t t[3];

    for (int i = 0; i < 3; i++)
        ck_assert(!pthread_create(&t[i], NULL, use_own, &u[i]));
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        ck_assert_msg(!u[i].why, "%s", u[i].why);
    }
}
END_TEST

/* ---- callbacks ---- */

struct inside {
    cb_session *self, *other;
    int calls;
};

/* All that computes is refused and changes nothing; what only reads is answered. */
static void try_all(struct inside *in)
{
    const int32_t ids[] = { 1, 2, 3 };
    struct cb_memory m;
    cb_session *s = NULL;

    in->calls++;
    for (int i = 0; i < 2; i++) {
        cb_session *x = i ? in->other : in->self;
        ck_assert_int_eq(cb_session_decode(x, 1), CB_EARG);
        ck_assert_ptr_nonnull(strstr(cb_error(), "callback"));
        ck_assert_int_eq(cb_session_prefill(x, ids, 3, NULL), CB_EARG);
        ck_assert_int_eq(cb_session_want_top(x, 1), CB_EARG);
        cb_session_clear(x);
    }
    ck_assert_int_eq(cb_session_prefill_shared(in->self, &in->other, NULL, 1, ids, 3, NULL),
                     CB_EARG);
    ck_assert_int_eq(cb_session_prefill_shared(in->other, &in->self, NULL, 1, ids, 3, NULL),
                     CB_EARG);
    ck_assert_int_eq(cb_session_open(model, NULL, &s), CB_EARG);
    ck_assert_ptr_null(s);
    cb_session_close(in->self);
    cb_model_close(model);
    cb_session_memory(in->self, &m);
    ck_assert_int_eq(cb_session_len(in->other), 3);
}

static int at_progress(void *arg, int64_t done, int64_t total)
{
    (void)done, (void)total;
    try_all(arg);
    return 0;
}

static void at_logits(void *arg, int i, const float *logits)
{
    (void)i, (void)logits;
    try_all(arg);
}

START_TEST(callbacks_are_refused)
{
    const struct form f = { "h2o:budget=48", "f16", "f16", 16, 60, 0 };
    const int32_t ids[] = { 1, 2, 3 };
    struct inside in = { .self = open_form(&f), .other = open_form(&f) };
    const struct cb_prefill how = { .progress = at_progress,
                                    .progress_arg = &in,
                                    .logits = at_logits,
                                    .logits_arg = &in,
                                    .logits_from = 58 };
    float(*want)[N_VOCAB_MOST] = calloc(N_STEP + 1, sizeof *want);
    int32_t prompt[60];

    ck_assert(in.self && in.other && want);
    ck_assert_ptr_null(live(&f, want));
    ck_assert_int_eq(cb_session_prefill(in.other, ids, 3, NULL), 0);
    for (int i = 0; i < 60; i++)
        prompt[i] = token(i);
    ck_assert_int_eq(cb_session_prefill(in.self, prompt, 60, &how), 0);
    ck_assert_int_gt(in.calls, 2);
    ck_assert_int_eq(cb_session_len(in.self), 60);
    for (int i = 0; i < N_STEP; i++) {
        ck_assert(!memcmp(want[i], cb_session_logits(in.self),
                          (size_t)model->hp.n_vocab * sizeof **want));
        ck_assert_int_eq(cb_session_decode(in.self, token(60 + i)), 0);
    }
    cb_session_close(in.self);
    cb_session_close(in.other);
    free(want);
}
END_TEST

/* ---- turns ---- */

struct completions {
    struct fair_lock *lock;
    atomic_int asks, had, over;
    atomic_int tid; /* of the other thread */
};

static void *take_turns(void *arg)
{
    struct completions *t = arg;

    atomic_store(&t->tid, (int)gettid());
    while (!atomic_load(&t->over)) {
        atomic_store(&t->asks, 1);
        cb_fair_lock_take(t->lock);
        atomic_fetch_add(&t->had, 1);
        cb_fair_lock_give(t->lock);
        atomic_store(&t->asks, 0);
    }
    return NULL;
}

/* A thread that waits comes next, though the one that gives the lock asks for it at once. */
START_TEST(who_waits_comes_next)
{
    struct completions t = { 0 };
    pthread_t thread;

    ck_assert_int_eq(cb_fair_lock_new(&t.lock), 0);
    ck_assert_int_eq(cb_fair_lock_take(t.lock), 1);
    ck_assert_int_eq(cb_fair_lock_take(t.lock), 0); /* held already */
    ck_assert(!pthread_create(&thread, NULL, take_turns, &t));
    for (int i = 0; i < 20; i++) {
        int had, now;
        while (!atomic_load(&t.asks))
            usleep(100);
        cb_until_asleep(atomic_load(&t.tid)); /* in the queue */
        had = atomic_load(&t.had);
        cb_fair_lock_give(t.lock);
        ck_assert_int_eq(cb_fair_lock_take(t.lock), 1);
        now = atomic_load(&t.had);
        ck_assert_int_gt(now, had);
    }
    atomic_store(&t.over, 1);
    cb_fair_lock_give(t.lock);
    pthread_join(thread, NULL);
    cb_fair_lock_free(t.lock);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("threads");
    TCase *t = tcase_create("one model");

    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, threads_are_as_one, 2, MOST_THREAD + 1);
    tcase_add_test(t, models_of_their_own);
    tcase_add_test(t, callbacks_are_refused);
    tcase_add_test(t, who_waits_comes_next);
    suite_add_tcase(s, t);
    return cb_suite_run(s);
}
