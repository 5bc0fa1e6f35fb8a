/* SPDX-License-Identifier: MIT */
/* api_chat.c - /v1/chat/completions of OpenAI. */
#include <stdlib.h>
#include <string.h>

#include "answer_form.h"
#include "api.h"
#include "base/err.h"
#include "chat_prompt.h"
#include "fields.h"

/* ---- what dialects share ---- */

/* A call that is forced constrains the answer. */
static int force_call(struct completion *t, const json_t *choice)
{
    cb_grammar *grammar;

    TRY(cb_answer_form_call(choice, t->tools, &grammar));
    if (!grammar)
        return CB_OK;
    if (t->grammar) {
        cb_grammar_free(grammar);
        return cb_fail(CB_EARG, "tool_choice: the answer is constrained by another field too");
    }
    t->grammar = grammar;
    return CB_OK;
}

/* Gives the turn what the prompt has, and takes it from there. */
static int take_prompt(struct completion *t, struct chat_prompt *p)
{
    if (p->ignored && !t->ignored)
        t->ignored = json_incref(p->ignored);
    else if (p->ignored && json_array_extend(t->ignored, p->ignored))
        return cb_fail(CB_ENOMEM, "out of memory");
    t->ids = p->ids;
    t->order.n = p->n;
    t->order.parting = p->parting;
    t->text = p->text;
    t->begin = p->begin;
    t->tools = p->tools;
    t->one_call = p->one_call;
    t->order.shown = t->s->marks.ids;
    t->order.n_shown = t->tools ? t->s->marks.n : t->s->marks.n_thought;
    p->ids = NULL;
    p->text = NULL;
    p->tools = NULL;
    return force_call(t, p->choice);
}

int cb_completion_chat(struct completion *t, const json_t *request)
{
    struct chat_prompt p;
    int rc = cb_chat_prompt(t->s, request, &p);

    if (!rc)
        rc = take_prompt(t, &p);
    cb_chat_prompt_free(&p);
    return rc;
}

int cb_completion_convert(struct completion *t, const json_t *request,
                          int (*convert)(const json_t *request, json_t **ignored, json_t **chat))
{
    json_t *chat = NULL;
    int rc = convert(request, &t->ignored, &chat);

    if (!rc)
        rc = cb_completion_chat(t, chat);
    json_decref(chat);
    return rc;
}

void cb_api_answer(struct exchange *x, const struct dialect *d, const char *id_prefix,
                   int (*read_request)(struct completion *t, const json_t *request))
{
    struct completion *t;
    int rc = cb_completion_new(x, d, &t);

    if (!rc && id_prefix)
        cb_random_id(id_prefix, t->id, sizeof t->id);
    if (!rc)
        rc = read_request(t, x->json);
    if (!rc) {
        cb_completion_run(t, x);
        return;
    }
    cb_exchange_fail(x, rc);
    if (t)
        cb_completion_free(t);
}

const char *cb_finish_reason(const struct choice *c)
{
    if (!strcmp(c->job->end.reason, "stop") && json_array_size(c->calls))
        return "tool_calls";
    return c->job->end.reason;
}

static json_t *usage(const struct completion *t)
{
    const int in = cb_completion_prompt_tokens(t), out = cb_completion_made_tokens(t);

    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "prompt_tokens", in, "completion_tokens",
                     out, "total_tokens", in + out, "prompt_tokens_details", "cached_tokens",
                     cb_completion_cached_tokens(t), "completion_tokens_details",
                     "reasoning_tokens", cb_completion_thought_tokens(t));
}

void cb_add_numbers(const struct completion *t, json_t **answer)
{
    cb_json_set(answer, "usage", usage(t));
    cb_json_set(answer, "timings", cb_completion_timings(t));
    cb_json_set(answer, "memory", cb_completion_memory(t));
}

void cb_stream_end(const struct completion *t, json_t *last, struct buf *out)
{
    if (last) {
        cb_add_numbers(t, &last);
        cb_event(out, NULL, last);
    }
    cb_buf_text(out, "data: [DONE]\n\n");
}

void cb_stream_error(struct completion *t, const char *message, struct buf *out)
{
    (void)t;
    cb_event(out, NULL, cb_error_json(ERRORS_OPENAI, 500, message, NULL));
}

void cb_comment(struct buf *out)
{
    cb_buf_text(out, ": the answer is being computed\n"); /* an empty line would end an event */
}

/* ---- the stream ---- */

static json_t *chunk(const struct completion *t, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:O*}", "id", t->id, "object",
                     "chat.completion.chunk", "created", (json_int_t)time(NULL), "model",
                     t->s->m.name, "choices", choices, "ignored", t->began ? NULL : t->ignored);
}

static json_t *logprobs(struct choice *c)
{
    json_t *list = c->logprobs;

    c->logprobs = NULL;
    return list ? json_pack("{s:o}", "content", list) : json_null();
}

static void say(struct choice *c, json_t *delta, const char *reason)
{
    cb_event(c->out, NULL,
             chunk(c->turn, json_pack("[{s:i, s:o, s:o, s:o, s:s*}]", "index", c->index, "delta",
                                      delta, "logprobs", logprobs(c), "finish_reason",
                                      reason ? json_string(reason) : json_null(), "cut_in",
                                      reason && cb_choice_cut_in_thought(c) ? "reasoning" : NULL)));
}

static void begin(struct completion *t, struct buf *out)
{
    for (int i = 0; i < t->n; i++) {
        t->choice[i].out = out;
        say(&t->choice[i], json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL);
        t->choice[i].out = NULL;
    }
}

static void text(struct choice *c, const char *s, size_t n)
{
    say(c, json_pack("{s:o}", "content", cb_json_text(s, n)), NULL);
}

static void thought(struct choice *c, const char *s, size_t n)
{
    say(c, json_pack("{s:o}", "reasoning_content", cb_json_text(s, n)), NULL);
}

static json_t *call_json(const json_t *call)
{
    return json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", json_object_get(call, "id"), "type",
                     "function", "function", "name", json_object_get(call, "name"), "arguments",
                     json_object_get(call, "arguments"));
}

static void call(struct choice *c, const json_t *call_)
{
    say(c,
        json_pack("{s:[{s:i, s:O, s:s, s:{s:O, s:s}}]}", "tool_calls", "index",
                  (int)json_array_size(c->calls) - 1, "id", json_object_get(call_, "id"), "type",
                  "function", "function", "name", json_object_get(call_, "name"), "arguments", ""),
        NULL);
}

static void args(struct choice *c, const json_t *call_, const char *s, size_t n)
{
    (void)call_;
    say(c,
        json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", (int)json_array_size(c->calls) - 1,
                  "function", "arguments", cb_json_text(s, n)),
        NULL);
}

static void end_choice(struct choice *c)
{
    say(c, json_object(), cb_finish_reason(c));
}

static void end(struct completion *t, struct buf *out)
{
    cb_stream_end(t, t->include_usage ? chunk(t, json_array()) : NULL, out);
}

/* ---- the whole answer ---- */

static json_t *message(const struct choice *c)
{
    const size_t n_calls = json_array_size(c->calls);
    json_t *j = json_pack("{s:s, s:o, s:n, s:[]}", "role", "assistant", "content",
                          n_calls && !c->text.n ? json_null() : cb_json_text(c->text.s, c->text.n),
                          "refusal", "annotations");
    json_t *list = json_array(), *one;
    size_t i;

    if (c->thought.n)
        cb_json_set(&j, "reasoning_content", cb_json_text(c->thought.s, c->thought.n));
    json_array_foreach(c->calls, i, one) cb_json_add(&list, call_json(one));
    if (n_calls)
        cb_json_set(&j, "tool_calls", list);
    else
        json_decref(list);
    return j;
}

static json_t *whole(struct completion *t)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < t->n; i++) {
        struct choice *c = &t->choice[i];
        cb_json_add(&choices,
                    json_pack("{s:i, s:o, s:o, s:s, s:s*}", "index", i, "message", message(c),
                              "logprobs", logprobs(c), "finish_reason", cb_finish_reason(c),
                              "cut_in", cb_choice_cut_in_thought(c) ? "reasoning" : NULL));
    }
    j = json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", t->id, "object", "chat.completion", "created",
                  (json_int_t)time(NULL), "model", t->s->m.name, "choices", choices);
    cb_add_numbers(t, &j);
    if (t->ignored)
        cb_json_set(&j, "ignored", json_incref(t->ignored));
    return j;
}

static const struct dialect dialect = {
    .begin = begin,
    .text = text,
    .thought = thought,
    .call = call,
    .args = args,
    .end_choice = end_choice,
    .end = end,
    .error = cb_stream_error,
    .idle = cb_comment,
    .whole = whole,
    .call_prefix = "call_",
};

/* ---- the request ---- */

static int read_request(struct completion *t, const json_t *r)
{
    const json_t *options;
    int want = 0;
    int64_t top = 0;

    TRY(cb_field_flag(r, "logprobs", &want));
    TRY(cb_field_int(r, "top_logprobs", 0, CB_LOGPROBS_MOST, &top));
    if (top && !want)
        return cb_fail(CB_EARG, "top_logprobs: needs logprobs to be true");
    if (want)
        t->order.logprobs = (int)top;
    TRY(cb_field_object(r, "stream_options", &options));
    TRY(cb_field_flag(options, "include_usage", &t->include_usage));
    return cb_completion_chat(t, r);
}

void cb_api_chat(struct exchange *x)
{
    cb_api_answer(x, &dialect, "chatcmpl-", read_request);
}
