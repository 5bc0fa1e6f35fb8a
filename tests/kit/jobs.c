/* SPDX-License-Identifier: MIT */
/* jobs.c - orders to a scheduler, and what a session alone makes of them. */
#include "kit/jobs.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/tiny.h"
#include "kit/toy.h"
#include "suite.h"

/* ---- orders ---- */

cb_model *cb_jobs_model(void)
{
    struct tiny t = cb_tiny_small("qwen2");

    t.n_layer = 4;
    t.n_embd = 128;
    t.hd = 32;
    t.type = DT_Q5_1;
    return cb_toy_model(&t, "cpu", 2);
}

struct job_order cb_jobs_order(const int32_t *ids, int n, int n_out)
{
    struct job_order o = { .ids = ids,
                           .n = n,
                           .max_tokens = n_out,
                           .sampler = cb_sampler_defaults(),
                           .ignore_end = 1,
                           .logprobs = -1 };
    o.sampler.seed = 7;
    return o;
}

struct scheduler *cb_jobs_scheduler(cb_model *model, int n_slot, int most_waiting,
                                    uint64_t most_bytes, int draft)
{
    const struct scheduler_params p = { .slots = { .model = model,
                                                   .session = { .n_ctx = JOBS_CTX, .chunk = 48 },
                                                   .n = n_slot,
                                                   .most_bytes = most_bytes },
                                        .most_waiting = most_waiting,
                                        .draft = draft,
                                        .n_tenant = 3,
                                        .decode_latency_s = 0.001 };
    struct scheduler *s;

    ck_assert_ok(cb_scheduler_open(&p, &s));
    return s;
}

void cb_jobs_close(struct scheduler *s)
{
    cb_scheduler_stop(s, 60);
    cb_scheduler_close(s);
}

struct job_group *cb_jobs_put(struct scheduler *s, const struct job_order *o, int n)
{
    struct job_group *g;

    ck_assert_ok(cb_group_new(cb_scheduler_params(s)->slots.model, o, n, &g));
    ck_assert_int_eq(cb_scheduler_order(s, g), ORDER_TAKEN);
    return g;
}

/* Waits for all jobs of g; the text of each -> text[], which may be NULL. */
void cb_jobs_finish(struct scheduler *s, struct job_group *g, struct buf *text)
{
    int ended, left = g->n;

    while (left) {
        const int i = cb_scheduler_wait(s, g, 60, &ended);
        ck_assert_msg(i >= 0, "nothing for a minute");
        if (text)
            cb_buf_add(&text[i], g->job[i].seen.text.n ? g->job[i].seen.text.s : "",
                       g->job[i].seen.text.n);
        left -= ended;
    }
}

void cb_jobs_expect_end(const struct job *j, const char *reason)
{
    ck_assert_msg(!strcmp(j->end.reason, reason), "ended by %s, not %s: %s", j->end.reason, reason,
                  j->end.error);
}

/* ---- a gate ---- */

static int hold(void *arg, int64_t done, int64_t total)
{
    struct gate *g = arg;

    (void)done;
    (void)total;
    pthread_mutex_lock(&g->lock);
    g->held = 1;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static void *stand_in_the_gate(void *arg)
{
    const struct cb_prefill how = { .progress = hold, .progress_arg = arg };
    cb_model *model = ((struct gate *)arg)->model;
    cb_session *s;

    ck_assert_ok(cb_session_open(model, NULL, &s));
    ck_assert_ok(cb_session_prefill(s, cb_toy_text(model), 1, &how));
    cb_session_close(s);
    return NULL;
}

void cb_gate_close(struct gate *g, cb_model *model)
{
    *g = (struct gate){ .model = model };
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    pthread_create(&g->thread, NULL, stand_in_the_gate, g);
    pthread_mutex_lock(&g->lock);
    while (!g->held)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void cb_gate_open(struct gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
}

/* ---- alone ---- */

/* What a session alone makes of the order: answer i's tokens -> out[max_tokens] */
void cb_jobs_alone(cb_model *model, const struct job_order *o, int i, int32_t *out)
{
    const struct cb_session_params p = {
        .n_ctx = JOBS_CTX, .chunk = 48, .policy = o->policy, .prefill = o->prefill
    };
    struct cb_sampler_params sp = o->sampler;
    const int n_vocab = cb_n_vocab(model);
    float *biased = calloc((size_t)n_vocab, sizeof *biased);
    cb_sampler *sampler;
    cb_session *s;

    sp.seed += (uint64_t)i;
    ck_assert_ok(cb_session_open(model, &p, &s));
    ck_assert_ok(cb_sampler_new(&sp, n_vocab, &sampler));
    ck_assert_ok(cb_session_prefill(s, o->ids, o->n, NULL));
    for (int k = 0; k < o->n; k++)
        cb_sampler_accept(sampler, o->ids[k]);
    for (int k = 0; k < o->max_tokens; k++) {
        const int32_t *ends;
        const int n_end = cb_token_ends(model, &ends);
        memcpy(biased, cb_session_logits(s), (size_t)n_vocab * sizeof *biased);
        for (int m = 0; m < n_end; m++)
            biased[ends[m]] = -INFINITY;
        out[k] = cb_sampler_pick(sampler, biased);
        cb_sampler_accept(sampler, out[k]);
        if (k + 1 < o->max_tokens)
            ck_assert_ok(cb_session_decode(s, out[k]));
    }
    cb_session_close(s);
    cb_sampler_free(sampler);
    free(biased);
}

void cb_jobs_expect_tokens(cb_model *model, const struct job_group *g, const struct job_order *o)
{
    int32_t *want = calloc((size_t)o->max_tokens, sizeof *want);

    for (int i = 0; i < g->n; i++) {
        cb_jobs_expect_end(&g->job[i], "length");
        cb_jobs_alone(model, o, i, want);
        ck_assert_int_eq(g->job[i].n_out, o->max_tokens);
        for (int k = 0; k < o->max_tokens; k++)
            ck_assert_msg(g->job[i].out[k] == want[k], "answer %d, token %d: %d, alone %d", i, k,
                          g->job[i].out[k], want[k]);
    }
    free(want);
}
