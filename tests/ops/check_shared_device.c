/* SPDX-License-Identifier: MIT */
/* check_shared_device.c - a device with memory of its own, shared by threads: two that fork, save,
 * load and plan, two that open and close sessions, and one that decodes batches. The device's
 * tables assert who holds them, and the thread sanitizer sees who does not; answers are those of
 * one thread. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctxbank.h"
#include "engine/session.h"
#include "kit/folder.h"
#include "kit/isa.h"
#include "kit/suite.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { N_CTX = 512, N_PROMPT = 160, N_ROUND = 4, N_STEP = 3, N_BATCH = 2, N_VOCAB_MOST = 1 << 12 };

/* Sketches are mirrored when a session has its counts: a fork and a loaded bank make them. */
static const struct cb_session_params params = {
    .n_ctx = N_CTX, .chunk = 64, .type_k = "f16", .type_v = "f16", .policy = "sieve:budget=48"
};

static cb_model *model;
static float alone[N_STEP + 1][N_VOCAB_MOST];
static char folder[4096];

static int32_t token(int i)
{
    return (int32_t)((unsigned)(i * 2654435761u) >> 8) % model->hp.n_vocab;
}

static const char *prompt(cb_session *s)
{
    int32_t ids[N_PROMPT];

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = token(i);
    return cb_session_prefill(s, ids, N_PROMPT, NULL) ? "prefill" : NULL;
}

/* Decodes N_STEP tokens after the prompt; NULL if the logits are those of one thread. */
static const char *go_on(cb_session *s, float (*logits)[N_VOCAB_MOST])
{
    const size_t bytes = (size_t)model->hp.n_vocab * sizeof **logits;

    for (int i = 0; i < N_STEP; i++) {
        if (cb_session_decode(s, token(N_PROMPT + i)))
            return "decode";
        if (logits)
            memcpy(logits[i], cb_session_logits(s), bytes);
        else if (memcmp(alone[i], cb_session_logits(s), bytes))
            return "other logits than alone";
    }
    return NULL;
}

static const char *start(cb_session **s)
{
    if (cb_session_open(model, &params, s))
        return "open";
    return prompt(*s);
}

/* ---- what the threads do ---- */

struct user {
    int number;
    const char *(*work)(const struct user *u);
    const char *why;
    char error[256];
};

static const char *fork_and_save(const struct user *u)
{
    char path[4200];
    const char *why;
    cb_session *s = NULL, *f = NULL, *l = NULL;
    struct cb_memory m;

    snprintf(path, sizeof path, "%s/%d.bank", folder, u->number);
    why = start(&s);
    if (!why && cb_session_fork(s, &f))
        why = "fork";
    if (!why && cb_session_plan(f, N_PROMPT, 8, &m))
        why = "plan";
    if (!why)
        why = go_on(f, NULL);
    if (!why && (cb_session_save(s, path) || cb_session_load(model, path, 0, &l)))
        why = "save and load";
    if (!why)
        why = go_on(l, NULL);
    if (!why)
        cb_session_memory(l, &m);
    cb_session_close(l);
    cb_session_close(f);
    cb_session_close(s);
    return why;
}

static const char *open_and_close(const struct user *u)
{
    struct cb_session_params p = params;
    cb_session *s;

    p.policy = u->number % 2 ? "full" : p.policy;
    for (int i = 0; i < 4; i++) {
        if (cb_session_open(model, &p, &s))
            return "open";
        cb_session_close(s);
    }
    return NULL;
}

static const char *decode_batch(const struct user *u)
{
    cb_session *s[N_BATCH] = { NULL };
    const char *why = NULL;
    int32_t ids[N_BATCH];

    (void)u;
    for (int i = 0; i < N_BATCH && !why; i++)
        why = start(&s[i]);
    for (int t = 0; t < N_STEP && !why; t++) {
        for (int i = 0; i < N_BATCH; i++)
            ids[i] = token(N_PROMPT + t);
        if (cb_decode_batch(s, ids, N_BATCH))
            why = "batch";
    }
    for (int i = 0; i < N_BATCH; i++)
        cb_session_close(s[i]);
    return why;
}

static void *use(void *arg)
{
    struct user *u = arg;

    for (int r = 0; r < N_ROUND && !u->why; r++)
        u->why = u->work(u);
    if (u->why)
        snprintf(u->error, sizeof u->error, "%s", cb_error());
    return NULL;
}

START_TEST(forks_saves_opens_and_batches)
{
    struct user u[] = { { .work = fork_and_save },
                        { .work = fork_and_save },
                        { .work = open_and_close },
                        { .work = open_and_close },
                        { .work = decode_batch } };
    enum { N = sizeof u / sizeof *u };
    const struct tiny t = cb_tiny_small("llama");
    pthread_t thread[N];
    cb_session *s = NULL;
    const char *why;

    model = cb_toy_model(&t, cb_isa[ISA_FROM], 2);
    ck_assert_int_le(model->hp.n_vocab, N_VOCAB_MOST);
    snprintf(folder, sizeof folder, "%s", cb_folder_make("shared-device"));
    why = start(&s);
    why = why ? why : go_on(s, alone);
    ck_assert_msg(!why, "%s: %s", why, cb_error());
    cb_session_close(s);
    for (int i = 0; i < N; i++) {
        u[i].number = i;
        ck_assert(!pthread_create(&thread[i], NULL, use, &u[i]));
    }
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < N; i++)
        ck_assert_msg(!u[i].why, "thread %d: %s: %s", i, u[i].why, u[i].error);
    cb_model_close(model);
    cb_folder_remove();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("shared device");
    TCase *c = tcase_create("shared device");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(c, 600);
    tcase_add_test(c, forks_saves_opens_and_batches);
    suite_add_tcase(s, c);
    return cb_suite_run(s);
}
