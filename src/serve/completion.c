/* SPDX-License-Identifier: MIT */
/* completion.c - a request that makes the model write: runs its jobs and tells the client in its
 * dialect. */
#include "completion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "answer_form.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "base/random.h"
#include "fields.h"
#include "grammar/grammar.h"
#include "notes.h"
#include "token_bias.h"

static const double poll_s = 0.25; /* how often a client that waits is asked whether it is there */
static const double idle_s = 5;    /* a stream that is silent for so long gets a comment */
static const double begin_s = 1;   /* an order that fails this soon gets an error as its status */

/* ---- the order ---- */

/* 32 bits, which every client can write */
static int draw_seed(uint64_t *out)
{
    uint32_t seed;

    TRY(cb_random(&seed, sizeof seed));
    *out = seed;
    return CB_OK;
}

static int read_sampler(struct completion *t, const json_t *r)
{
    struct cb_sampler_params *p = &t->order.sampler;
    int64_t seed = -1, top_k = p->top_k, last_n = p->penalty_last_n;

    *p = t->s->m.sampler;
    top_k = p->top_k;
    last_n = p->penalty_last_n;
    TRY(cb_field_float(r, "temperature", 0, 100, &p->temp));
    TRY(cb_field_int(r, "top_k", -1, CB_FIELD_MOST, &top_k));
    TRY(cb_field_float(r, "top_p", 0, 1, &p->top_p));
    TRY(cb_field_float(r, "min_p", 0, 1, &p->min_p));
    TRY(cb_field_float(r, "repeat_penalty", 0.01, 100, &p->repeat_penalty));
    TRY(cb_field_float(r, "repetition_penalty", 0.01, 100, &p->repeat_penalty));
    TRY(cb_field_float(r, "frequency_penalty", -100, 100, &p->frequency_penalty));
    TRY(cb_field_float(r, "presence_penalty", -100, 100, &p->presence_penalty));
    TRY(cb_field_int(r, "repeat_last_n", -1, CB_FIELD_MOST, &last_n));
    TRY(cb_field_seed(r, "seed", &seed));
    p->top_k = top_k < 0 ? 0 : (int)top_k;
    p->penalty_last_n = (int)(last_n < t->s->n_ctx ? last_n : t->s->n_ctx);
    if (seed >= 0)
        p->seed = (uint64_t)seed;
    else if (t->s->m.seed_drawn)
        TRY(draw_seed(&p->seed));
    return CB_OK;
}

static int read_order(struct completion *t, const json_t *r)
{
    const char *const stops = cb_field(r, "stop") ? "stop" : "stop_sequences";
    int64_t n = 1, most = -1;
    int cache = 1;

    TRY(read_sampler(t, r));
    TRY(cb_token_bias_read(t->s->m.model, r, &t->bias, &t->order.n_bias));
    t->order.bias = t->bias;
    TRY(cb_answer_form_read(t->x, r, &t->grammar));
    TRY(cb_field_int(r, "n", 1, CB_COMPLETION_CHOICES, &n));
    TRY(cb_field_int(r, "n_predict", -1, CB_FIELD_MOST, &most));
    TRY(cb_field_int(r, "max_tokens", -1, CB_FIELD_MOST, &most));
    TRY(cb_field_int(r, "max_completion_tokens", -1, CB_FIELD_MOST, &most));
    t->stop = cb_calloc(json_array_size(json_object_get(r, stops)) + 1, sizeof *t->stop);
    if (!t->stop)
        return CB_ENOMEM;
    TRY(cb_field_texts(r, stops, CB_COMPLETION_STOPS, t->stop, &t->order.n_stop));
    if (json_array_size(json_object_get(r, "lora")))
        return cb_fail(CB_EARG, "lora: scales are the server's: POST /lora-adapters sets them");
    TRY(cb_field_flag(r, "ignore_eos", &t->order.ignore_end));
    TRY(cb_field_flag(r, "cache_prompt", &cache));
    TRY(cb_field_text(r, "policy", &t->order.policy));
    TRY(cb_field_text(r, "prefill", &t->order.prefill));
    TRY(cb_field_flag(r, "stream", &t->streams));
    t->n = (int)n;
    t->order.max_tokens = (int)most;
    t->order.stop = t->stop;
    t->order.no_cache = !cache;
    t->order.logprobs = -1;
    return CB_OK;
}

int cb_completion_new(struct exchange *x, const struct dialect *d, struct completion **out)
{
    struct completion *t = cb_calloc(1, sizeof *t);
    int rc;

    *out = t;
    if (!t)
        return CB_ENOMEM;
    t->s = x->s;
    t->x = x;
    t->d = d;
    t->gone = x->gone;
    t->gone_arg = x->gone_arg;
    t->request = json_incref(x->json);
    t->order.tenant = x->tenant;
    rc = cb_ids_open(&t->names);
    if (!rc)
        rc = read_order(t, x->json);
    if (rc) {
        cb_completion_free(t);
        *out = NULL;
    }
    return rc;
}

void cb_completion_free(struct completion *t)
{
    if (t->group)
        cb_scheduler_release(t->s->scheduler, t->group);
    for (int i = 0; i < CB_COMPLETION_CHOICES; i++) {
        struct choice *c = &t->choice[i];
        cb_reply_close(&c->reply);
        cb_buf_free(&c->all);
        cb_buf_free(&c->text);
        cb_buf_free(&c->thought);
        cb_buf_free(&c->args);
        json_decref(c->calls);
        json_decref(c->logprobs);
    }
    json_decref(t->request);
    json_decref(t->tools);
    json_decref(t->ignored);
    free(t->stop);
    cb_grammar_free(t->grammar);
    free(t->bias);
    free(t->ids);
    free(t->text);
    if (t->state)
        (t->free_state ? t->free_state : free)(t->state);
    free(t);
}

/* ---- failures ---- */

/* The first failure of the jobs that have ended, or NULL */
static const struct job_end *failure(const struct completion *t)
{
    if (t->refused.status)
        return &t->refused;
    for (int i = 0; i < t->n; i++)
        if (t->choice[i].job && t->choice[i].job->end.status)
            return &t->choice[i].job->end;
    return NULL;
}

static int memory_ran_out(const struct completion *t)
{
    for (int i = 0; i < t->n; i++) {
        const struct choice *c = &t->choice[i];
        if (c->all.failed || c->text.failed || c->thought.failed || c->args.failed ||
            c->reply.held.failed || !c->calls)
            return 1;
    }
    return 0;
}

/* ---- a stream ---- */

static int fail_stream(struct completion *t, const char *why, struct buf *out)
{
    t->d->error(t, why, out);
    t->broken = 1;
    return 0;
}

static int read_piece(struct completion *t, struct buf *out)
{
    const struct job_end *bad;
    int ended, i;

    if (!t->began && t->d->begin)
        t->d->begin(t, out);
    t->began = 1;
    cb_exchange_give_back(t->x, t->piece); /* the last piece is on its way */
    t->piece = 0;
    while (!out->n) {
        i = cb_scheduler_wait(t->s->scheduler, t->group, poll_s, &ended);
        if (i >= 0)
            cb_choice_take_news(t, i, ended, out);
        bad = failure(t);
        if (bad || memory_ran_out(t))
            return fail_stream(t, bad ? bad->error : "out of memory", out);
        if (t->n_ended == t->n) {
            t->d->end(t, out);
            return 0;
        }
        if (i < 0 && t->gone(t->gone_arg))
            return 0;
        if (cb_now_s() - t->told > idle_s && !out->n && t->d->idle)
            t->d->idle(out);
    }
    t->told = cb_now_s();
    return 1;
}

/* A piece that may lack an event gives way to an error, with which the stream ends. */
static int next_piece(struct stream *stream, struct buf *out)
{
    struct completion *t = (struct completion *)stream;
    const int more = read_piece(t, out);

    if (!cb_exchange_lacks())
        return more;
    cb_exchange_forget();
    cb_buf_clear(out);
    return fail_stream(t, "out of memory", out);
}

static void close_stream(struct stream *stream)
{
    cb_completion_free((struct completion *)stream);
}

/* ---- an answer at once ---- */

/* Waits for all answers. 0: the client has gone. */
static int wait_for_all(struct completion *t)
{
    double asked = cb_now_s();
    int ended, i;

    while (t->n_ended < t->n && !t->refused.status) {
        i = cb_scheduler_wait(t->s->scheduler, t->group, poll_s, &ended);
        if (i >= 0)
            cb_choice_take_news(t, i, ended, NULL);
        if (cb_now_s() - asked < poll_s)
            continue;
        asked = cb_now_s();
        if (t->gone(t->gone_arg))
            return 0;
    }
    return 1;
}

json_t *cb_completion_written(const json_t *call)
{
    return json_sprintf("written:%s", json_string_value(json_object_get(call, "id")));
}

/* A call's arguments as the value that an answer has */
static void put_written(struct buf *out, const json_t *call)
{
    const char *s = json_string_value(json_object_get(call, "arguments"));
    struct buf mended = { 0 };
    json_t *raw;
    char *text;

    if (s && s[strspn(s, " \t\r\n")] == '{' && cb_json_mend(s, strlen(s), &mended)) {
        cb_buf_add(out, mended.s, mended.n);
        out->failed |= mended.failed;
    } else {
        raw = json_pack("{s:s}", "raw_arguments", s ? s : "");
        text = raw ? cb_json_dumps(raw, JSON_COMPACT) : NULL;
        cb_buf_text(out, text ? text : "");
        out->failed |= !text;
        free(text);
        json_decref(raw);
    }
    cb_buf_free(&mended);
}

/* jansson would print numbers and escapes in its own way. */
void cb_completion_put_arguments(struct buf *out, const json_t *call)
{
    json_t *mark = cb_completion_written(call);
    char *place = mark ? cb_json_dumps(mark, JSON_ENCODE_ANY) : NULL;
    const char *at = place && out->s ? strstr(out->s, place) : NULL;
    struct buf all = { .failed = out->failed || !place };

    if (at) {
        cb_buf_add(&all, out->s, (size_t)(at - out->s));
        put_written(&all, call);
        cb_buf_text(&all, at + strlen(place));
        cb_buf_free(out);
        *out = all;
    }
    out->failed |= all.failed;
    free(place);
    json_decref(mark);
}

static void answer_whole(struct completion *t, struct exchange *x)
{
    json_t *j = t->d->whole(t);

    if (t->refused.status) {
        json_decref(j);
        cb_exchange_report(x, t->refused.status, t->refused.error);
        return;
    }
    cb_exchange_json(x, 200, j);
    for (int i = 0; i < t->n; i++) {
        const json_t *call;
        size_t k;
        json_array_foreach(t->choice[i].calls, k, call) cb_completion_put_arguments(&x->out, call);
    }
    if (x->out.failed) {
        cb_buf_free(&x->out);
        cb_exchange_error(x, 500, "out of memory", NULL);
    }
}

int cb_completion_finish(struct completion *t, struct exchange *x)
{
    const struct job_end *bad;

    if (!wait_for_all(t)) {
        cb_exchange_error(x, 499, "the client has closed the connection", NULL);
        return 0;
    }
    bad = failure(t);
    if (bad)
        cb_exchange_report(x, cb_model_status(bad->status), bad->error);
    else if (memory_ran_out(t))
        cb_exchange_error(x, 500, "out of memory", NULL);
    return !bad && !memory_ran_out(t);
}

/* ---- running ---- */

/* What the answer's schema does not keep exactly is told beside what was left out. */
static int tell_notes(struct completion *t)
{
    const char *line = t->grammar ? cb_grammar_notes(t->grammar) : "";

    for (size_t n; *line; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        TRY(cb_note(&t->ignored, "%.*s", (int)n, line));
    }
    return CB_OK;
}

static int order(struct completion *t)
{
    enum { CHOICE = 16 << 10, EACH = 16 }; /* bytes: of an answer, of its sampler for each token */

    if (!t->order.n)
        return cb_fail(CB_EARG, "prompt: has no tokens");
    if (t->grammar && t->order.ignore_end)
        return cb_fail(CB_EARG, "ignore_eos: the answer is constrained, so it ends");
    t->order.ids = t->ids;
    TRY(cb_exchange_hold(t->x, (size_t)t->n * (CHOICE + (size_t)cb_n_vocab(t->s->m.model) * EACH +
                                               (size_t)t->order.n * sizeof *t->ids)));
    TRY(cb_choices_open(t));
    TRY(tell_notes(t));
    t->order.grammar = t->grammar;
    t->grammar = NULL; /* the group's */
    return cb_group_new(t->s->m.model, &t->order, t->n, &t->group);
}

/* Puts the order into the queue. 1: taken */
static int queue(struct completion *t, struct exchange *x)
{
    const enum order_status status = cb_scheduler_order(t->s->scheduler, t->group);

    if (status == ORDER_TAKEN)
        return 1;
    cb_group_free(t->group);
    t->group = NULL;
    if (status == ORDER_TOO_MANY)
        cb_exchange_error(x, cb_is_anthropic(x) ? 529 : 429,
                          "Overloaded: too many requests wait, try again later", NULL);
    else
        cb_exchange_error(x, 503, "the server is going down", NULL);
    return 0;
}

/* A stream that fails before it begins gets the error's status. 1: it has failed, and x has it */
static int failed_early(struct completion *t, struct exchange *x)
{
    const struct job_end *bad;

    (void)cb_scheduler_began(t->s->scheduler, t->group, begin_s);
    bad = cb_scheduler_failure(t->s->scheduler, t->group);
    if (bad)
        cb_exchange_report(x, cb_model_status(bad->status), bad->error);
    return bad != NULL;
}

void cb_completion_was_read(struct exchange *x, int n_tok)
{
    cb_exchange_was_read(x, x->reading / 2 + 2 * (size_t)n_tok * sizeof(int32_t));
}

int cb_completion_start(struct completion *t, struct exchange *x)
{
    const int overflows = t->order.n >= t->s->n_ctx;
    int rc = overflows ? CB_EFULL : order(t);

    if (!rc && cb_exchange_lacks()) { /* a part of the request, perhaps: another answer */
        cb_group_free(t->group);
        t->group = NULL;
        rc = cb_fail(CB_ENOMEM, "out of memory");
    }
    if (overflows)
        cb_exchange_overflow(x, t->order.n, t->s->n_ctx);
    else if (rc)
        cb_exchange_fail(x, rc);
    return !rc && queue(t, x);
}

int cb_completion_open_stream(struct completion *t, struct exchange *x)
{
    if (failed_early(t, x))
        return 0;
    t->told = cb_now_s();
    t->stream = (struct stream){ next_piece, close_stream };
    return 1;
}

void cb_completion_run(struct completion *t, struct exchange *x)
{
    const int started = cb_completion_start(t, x);

    if (started)
        cb_completion_was_read(x, t->order.n);
    if (started && t->streams && cb_completion_open_stream(t, x)) {
        x->status = 200;
        x->type = t->d->stream_type ? t->d->stream_type : "text/event-stream";
        x->stream = &t->stream;
        return;
    }
    if (started && !t->streams && cb_completion_finish(t, x))
        answer_whole(t, x);
    cb_completion_free(t);
}
