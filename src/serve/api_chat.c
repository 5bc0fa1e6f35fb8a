/* SPDX-License-Identifier: MIT */
/* api_chat.c - /v1/chat/completions of OpenAI. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "fields.h"

/* ---- the stream ---- */

/* "stop", "length", "tool_calls" of a choice that has ended */
static const char *finish_reason(const struct choice *c)
{
    if (!strcmp(c->job->end.reason, "stop") && json_array_size(c->calls))
        return "tool_calls";
    return c->job->end.reason;
}

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
    say(c, json_object(), finish_reason(c));
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
                              "logprobs", logprobs(c), "finish_reason", finish_reason(c), "cut_in",
                              cb_choice_cut_in_thought(c) ? "reasoning" : NULL));
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

    if (cb_json_whole(cb_field(r, "logprobs"), &top)) /* as /v1/completions has it */
        want = top > 0;
    else
        TRY(cb_field_flag(r, "logprobs", &want));
    TRY(cb_field_int(r, top ? "logprobs" : "top_logprobs", 0, CB_LOGPROBS_MOST, &top));
    if (want || top)
        t->order.logprobs = (int)top;
    TRY(cb_field_object(r, "stream_options", &options));
    TRY(cb_field_flag(options, "include_usage", &t->include_usage));
    return cb_completion_chat(t, r);
}

void cb_api_chat(struct exchange *x)
{
    cb_api_answer(x, &dialect, "chatcmpl-", read_request);
}
