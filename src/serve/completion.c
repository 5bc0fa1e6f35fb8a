/* SPDX-License-Identifier: MIT */
/* completion.c - a request that makes the model write: runs its jobs and tells the client in its
 * dialect. */
#include "completion.h"

#include <math.h>
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

/* ---- what the model writes ---- */

static void on_text(void *arg, const char *s, size_t n)
{
    struct choice *c = arg;

    cb_buf_add(&c->text, s, n);
    if (c->out && c->turn->d->text)
        c->turn->d->text(c, s, n);
}

static void on_thought(void *arg, const char *s, size_t n)
{
    struct choice *c = arg;

    cb_buf_add(&c->thought, s, n);
    if (c->out && c->turn->d->thought)
        c->turn->d->thought(c, s, n);
}

static json_t *last_call(const struct choice *c)
{
    const size_t n = json_array_size(c->calls);
    return n ? json_array_get(c->calls, n - 1) : NULL;
}

static void on_call(void *arg, const char *name)
{
    struct choice *c = arg;
    char id[64];

    c->drops = c->turn->one_call && json_array_size(c->calls) > 0;
    if (c->drops)
        return;
    cb_next_id(&c->turn->names, c->turn->d->call_prefix, id, sizeof id);
    cb_buf_clear(&c->args);
    cb_json_add(&c->calls, json_pack("{s:s, s:o}", "id", id, "name", cb_json_str(name)));
    if (c->calls && c->out && c->turn->d->call)
        c->turn->d->call(c, last_call(c));
}

static void on_args(void *arg, const char *s, size_t n)
{
    struct choice *c = arg;

    if (c->drops)
        return;
    cb_buf_add(&c->args, s, n);
    if (c->calls && c->out && c->turn->d->args)
        c->turn->d->args(c, last_call(c), s, n);
}

static void on_end_call(void *arg)
{
    struct choice *c = arg;
    json_t *call = last_call(c);

    if (c->drops)
        return;
    if (!call || json_object_set_new(call, "arguments", cb_json_text(c->args.s, c->args.n)))
        c->args.failed = 1;
    else if (c->out && c->turn->d->end_call)
        c->turn->d->end_call(c, call);
}

json_t *cb_completion_token(const struct completion *t, const struct token_logprob *p)
{
    char byte[256];
    int n = cb_token_bytes(t->s->m.model, p->id, 1, byte, sizeof byte);
    json_t *bytes = json_array();

    n = n < (int)sizeof byte ? n : (int)sizeof byte;
    for (int i = 0; i < n; i++)
        cb_json_add(&bytes, json_integer((unsigned char)byte[i]));
    return json_pack("{s:o, s:o, s:o}", "token", cb_json_text(byte, (size_t)n), "bytes", bytes,
                     "logprob", json_real(p->logprob < -9999 ? -9999 : (double)p->logprob));
}

static void take_logprobs(struct choice *c, const struct job_news *w)
{
    for (int i = 0; i < w->n_token; i++) {
        const struct job_token *k = &w->token[i];
        json_t *top = json_array(), *j = cb_completion_token(c->turn, &k->at);
        for (int m = 0; m < k->n_top; m++)
            cb_json_add(&top, cb_completion_token(c->turn, &k->top[m]));
        cb_json_set(&j, "top_logprobs", top);
        if (!c->logprobs)
            c->logprobs = json_array();
        cb_json_add(&c->logprobs, j);
    }
}

/* The conversation and its answer as tokens, and the calls as they were written */
static void remember(struct choice *c)
{
    struct completion *t = c->turn;
    const struct job *j = c->job;
    struct buf text = { 0 };
    int32_t *ids;

    if (json_array_size(c->calls))
        cb_token_history_note_call(
            t->s->transcripts,
            json_string_value(json_object_get(json_array_get(c->calls, 0), "id")), c->all.s);
    if (!t->text || j->end.stop >= 0 || !c->all.n)
        return; /* after a stop text, the tokens are more than the text */
    ids = cb_calloc((size_t)(t->order.n + j->n_out), sizeof *ids);
    if (!ids)
        return;
    memcpy(ids, t->ids, (size_t)t->order.n * sizeof *ids);
    memcpy(ids + t->order.n, j->out, (size_t)j->n_out * sizeof *ids);
    cb_buf_text(&text, t->text);
    cb_buf_add(&text, c->all.s, c->all.n);
    if (!text.failed)
        cb_token_history_note(t->s->transcripts, text.s, text.n, ids, t->order.n + j->n_out);
    cb_buf_free(&text);
    free(ids);
}

/* Memory for what a job has made: values for its tokens, and its text in several forms. A stream
 * needs most of it for one piece. */
static int hold_news(struct completion *t, const struct job_news *w, int streams)
{
    enum { TOKEN = 1024, TEXT = 8 }; /* bytes: of a token's values, of a byte's copies */
    const size_t text = TEXT * w->text.n;
    size_t tokens = 0;

    for (int i = 0; i < w->n_token; i++)
        tokens += TOKEN * (size_t)(1 + w->token[i].n_top);
    TRY(cb_exchange_hold(t->x, text + tokens));
    if (streams)
        t->piece += text / 2 + tokens;
    return CB_OK;
}

void cb_completion_refuse(struct completion *t, int status)
{
    t->refused.status = status;
    snprintf(t->refused.error, sizeof t->refused.error, "%s", cb_error());
}

/* Takes what is new in a job. out: of a stream, or NULL. */
static void take_news(struct completion *t, int i, int ended, struct buf *out)
{
    struct choice *c = &t->choice[i];
    const struct job_news *w = &t->group->job[i].seen;

    const int rc = hold_news(t, w, out != NULL);

    if (rc) {
        cb_completion_refuse(t, rc);
        return;
    }
    c->out = out;
    take_logprobs(c, w);
    if (w->text.n) {
        cb_buf_add(&c->all, w->text.s, w->text.n);
        cb_reply_push(&c->reply, w->text.s, w->text.n);
    }
    if (ended) {
        c->job = &t->group->job[i];
        t->n_ended++;
        cb_reply_end(&c->reply);
        if (!c->job->end.status)
            remember(c);
        if (out && t->d->end_choice && !c->job->end.status)
            t->d->end_choice(c);
    }
    c->out = NULL;
}

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
            take_news(t, i, ended, out);
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
            take_news(t, i, ended, NULL);
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

static int open_choices(struct completion *t)
{
    for (int i = 0; i < t->n; i++) {
        struct choice *c = &t->choice[i];
        const struct reply_sink sink = { on_text, on_thought, on_call, on_args, on_end_call, c };
        *c = (struct choice){ .turn = t, .index = i, .calls = json_array() };
        cb_reply_open(&c->reply, &sink, t->tools, t->begin);
        cb_buf_add(&c->all, "", 0);
        cb_buf_add(&c->text, "", 0);
        cb_buf_add(&c->thought, "", 0);
        cb_buf_add(&c->args, "", 0);
        if (!c->calls)
            return cb_fail(CB_ENOMEM, "out of memory");
    }
    return CB_OK;
}

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
    TRY(open_choices(t));
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

/* ---- numbers ---- */

int cb_completion_prompt_tokens(const struct completion *t)
{
    return t->order.n;
}

int cb_completion_cached_tokens(const struct completion *t)
{
    return t->choice[0].job ? t->choice[0].job->n_cached : 0;
}

int cb_completion_made_tokens(const struct completion *t)
{
    int n = 0;

    for (int i = 0; i < t->n; i++)
        n += t->choice[i].job ? t->choice[i].job->n_out : 0;
    return n;
}

/* The thought's text is tokenized: which token ended it is not known. */
int cb_completion_thought_tokens(const struct completion *t)
{
    int32_t *ids = NULL;
    int all = 0, n;

    for (int i = 0; i < t->n; i++) {
        const struct buf *b = &t->choice[i].thought;
        if (b->n && cb_tokenize(t->s->m.model, b->s, b->n, 0, &ids, &n) == CB_OK) {
            all += n;
            free(ids);
        }
    }
    return all;
}

int cb_choice_cut_in_thought(const struct choice *c)
{
    return cb_reply_in_thought(&c->reply) && c->job && !strcmp(c->job->end.reason, "length");
}

static double rate(int n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

json_t *cb_completion_timings(const struct completion *t)
{
    const struct job *j = t->choice[0].job;
    const struct job_times *at = &j->times;
    const double prompt_s = at->read - at->admitted, made_s = at->ended - at->read;
    const int n = t->order.n - j->n_cached;

    return json_pack("{s:f, s:i, s:f, s:f, s:i, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I}", "queue_s",
                     at->admitted - at->ordered, "prompt_tokens", n, "prompt_s", prompt_s,
                     "prompt_tps", rate(n, prompt_s), "predicted_tokens", j->n_out, "predicted_s",
                     made_s, "predicted_tps", rate(j->n_out, made_s), "drafted_tokens",
                     (json_int_t)j->end.drafts.drafted, "accepted_tokens",
                     (json_int_t)j->end.drafts.accepted, "model_drafted_tokens",
                     (json_int_t)j->end.drafts.model_drafted, "model_accepted_tokens",
                     (json_int_t)j->end.drafts.model_accepted, "mtp_drafted_tokens",
                     (json_int_t)j->end.drafts.mtp_drafted, "mtp_accepted_tokens",
                     (json_int_t)j->end.drafts.mtp_accepted);
}

json_t *cb_completion_memory(const struct completion *t)
{
    const struct cb_memory *m = &t->choice[0].job->end.memory;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:i}", "weights_bytes",
                     (json_int_t)m->weights_bytes, "kv_bytes", (json_int_t)m->kv_bytes,
                     "kv_full_bytes", (json_int_t)m->kv_full_bytes, "kv_peak_bytes",
                     (json_int_t)m->kv_peak_bytes, "kv_read_bytes_per_token",
                     (json_int_t)m->kv_read_bytes_per_token, "kept_min", m->kept_min, "kept_max",
                     m->kept_max, "bank_hit_tokens", t->choice[0].job->n_remembered);
}
