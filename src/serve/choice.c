/* SPDX-License-Identifier: MIT */
/* choice.c - one of a completion's answers: its text, thought, calls and logprobs as the model
 * writes them. */
#include "completion.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "fields.h"

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
    c->open_call = c->job != NULL;
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

int cb_choice_is_cut(const struct choice *c)
{
    return c->job && !strcmp(c->job->end.reason, "length");
}

void cb_choice_take_news(struct completion *t, int i, int ended, struct buf *out)
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
        cb_reply_end(&c->reply, cb_choice_is_cut(c));
        if (!c->job->end.status)
            remember(c);
        if (out && t->d->end_choice && !c->job->end.status)
            t->d->end_choice(c);
    }
    c->out = NULL;
}

int cb_choices_open(struct completion *t)
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
