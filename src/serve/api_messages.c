/* SPDX-License-Identifier: MIT */
/* api_messages.c - /v1/messages and /v1/messages/count_tokens of Anthropic. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "chat_prompt.h"
#include "dialect_requests.h"
#include "fields.h"

/* ---- the answer ---- */

/* The blocks of the answer that a stream has opened */
struct blocks {
    int n;    /* so far */
    int open; /* 't'ext, 'r'easoning, or 0 */
};

static const char *stop_reason(const struct choice *c)
{
    const struct job_end *end = &c->job->end;

    if (end->stop >= 0)
        return "stop_sequence";
    if (!strcmp(end->reason, "length"))
        return "max_tokens";
    return json_array_size(c->calls) ? "tool_use" : "end_turn";
}

static json_t *stop_sequence(const struct choice *c)
{
    const int i = c->job->end.stop;
    return i < 0 ? json_null() : json_string(c->turn->group->order.stop[i]);
}

static json_t *usage(const struct completion *t)
{
    const int cached = cb_completion_cached_tokens(t);

    return json_pack("{s:i, s:i, s:i, s:i, s:n, s:n, s:n, s:n, s:s}", "input_tokens",
                     cb_completion_prompt_tokens(t) - cached, "cache_read_input_tokens", cached,
                     "cache_creation_input_tokens", 0, "output_tokens",
                     cb_completion_made_tokens(t), "cache_creation", "output_tokens_details",
                     "server_tool_use", "inference_geo", "service_tier", "standard");
}

static void begin(struct completion *t, struct buf *out)
{
    cb_event(out, "message_start",
             json_pack("{s:s, s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:o, s:O*}}", "type",
                       "message_start", "message", "id", t->id, "type", "message", "role",
                       "assistant", "model", t->s->m.name, "content", "stop_reason",
                       "stop_sequence", "usage", usage(t), "ignored", t->ignored));
}

static void delta(struct choice *c, json_t *d)
{
    const struct blocks *b = c->turn->state;

    cb_event(
        c->out, "content_block_delta",
        json_pack("{s:s, s:i, s:o}", "type", "content_block_delta", "index", b->n, "delta", d));
}

static void close_block(struct choice *c)
{
    struct blocks *b = c->turn->state;

    if (!b->open)
        return;
    if (b->open == 'r') /* some clients send back signed thoughts alone */
        delta(c, json_pack("{s:s, s:s}", "type", "signature_delta", "signature", c->turn->id));
    cb_event(c->out, "content_block_stop",
             json_pack("{s:s, s:i}", "type", "content_block_stop", "index", b->n++));
    b->open = 0;
}

static void open_block(struct choice *c, int kind, json_t *block)
{
    struct blocks *b = c->turn->state;

    close_block(c);
    b->open = kind;
    cb_event(c->out, "content_block_start",
             json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", b->n,
                       "content_block", block));
}

static void text(struct choice *c, const char *s, size_t n)
{
    const struct blocks *b = c->turn->state;

    if (b->open != 't')
        open_block(c, 't', json_pack("{s:s, s:s, s:n}", "type", "text", "text", "", "citations"));
    delta(c, json_pack("{s:s, s:o}", "type", "text_delta", "text", cb_json_text(s, n)));
}

static void thought(struct choice *c, const char *s, size_t n)
{
    const struct blocks *b = c->turn->state;

    if (b->open != 'r')
        open_block(
            c, 'r',
            json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
    delta(c, json_pack("{s:s, s:o}", "type", "thinking_delta", "thinking", cb_json_text(s, n)));
}

static void call(struct choice *c, const json_t *call_)
{
    open_block(c, 'c',
               json_pack("{s:s, s:O, s:O, s:{}}", "type", "tool_use", "id",
                         json_object_get(call_, "id"), "name", json_object_get(call_, "name"),
                         "input"));
}

static void args(struct choice *c, const json_t *call_, const char *s, size_t n)
{
    (void)call_;
    delta(c,
          json_pack("{s:s, s:o}", "type", "input_json_delta", "partial_json", cb_json_text(s, n)));
}

static void end_call(struct choice *c, const json_t *call_)
{
    (void)call_;
    close_block(c);
}

static void end_choice(struct choice *c)
{
    close_block(c);
    cb_event(c->out, "message_delta",
             json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                       stop_reason(c), "stop_sequence", stop_sequence(c), "usage", usage(c->turn)));
}

static void end(struct completion *t, struct buf *out)
{
    (void)t;
    cb_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void error(struct completion *t, const char *message, struct buf *out)
{
    (void)t;
    cb_event(out, "error", cb_error_json(ERRORS_ANTHROPIC, 500, message, NULL));
}

static void ping(struct buf *out)
{
    cb_event(out, "ping", json_pack("{s:s}", "type", "ping"));
}

static json_t *content(const struct choice *c)
{
    json_t *list = json_array(), *one;
    size_t i;

    if (c->thought.n)
        cb_json_add(&list,
                    json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                              cb_json_text(c->thought.s, c->thought.n), "signature", c->turn->id));
    if (c->text.n || !json_array_size(c->calls))
        cb_json_add(&list, json_pack("{s:s, s:o, s:n}", "type", "text", "text",
                                     cb_json_text(c->text.s, c->text.n), "citations"));
    json_array_foreach(c->calls, i, one)
    {
        cb_json_add(&list,
                    json_pack("{s:s, s:O, s:O, s:o}", "type", "tool_use", "id",
                              json_object_get(one, "id"), "name", json_object_get(one, "name"),
                              "input", cb_completion_written(one)));
    }
    return list;
}

static json_t *whole(struct completion *t)
{
    struct choice *c = &t->choice[0];

    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:n, s:n, s:o, s:o, s:o, s:O*}", "id",
                     t->id, "type", "message", "role", "assistant", "model", t->s->m.name,
                     "content", content(c), "stop_reason", stop_reason(c), "stop_sequence",
                     stop_sequence(c), "stop_details", "container", "usage", usage(t), "timings",
                     cb_completion_timings(t), "memory", cb_completion_memory(t), "ignored",
                     t->ignored);
}

static const struct dialect dialect = {
    .begin = begin,
    .text = text,
    .thought = thought,
    .call = call,
    .args = args,
    .end_call = end_call,
    .end_choice = end_choice,
    .end = end,
    .error = error,
    .idle = ping,
    .whole = whole,
    .call_prefix = "toolu_",
};

static int read_request(struct completion *t, const json_t *r)
{
    if (t->order.max_tokens < 1)
        return cb_fail(CB_EARG, "max_tokens: must be a whole number above 0");
    t->n = 1;
    t->state = cb_calloc(1, sizeof(struct blocks));
    if (!t->state)
        return CB_ENOMEM;
    return cb_completion_convert(t, r, cb_messages_to_chat);
}

void cb_api_messages(struct exchange *x)
{
    cb_api_answer(x, &dialect, "msg_", read_request);
}

void cb_api_count_tokens(struct exchange *x)
{
    struct chat_prompt p = { 0 };
    json_t *chat = NULL, *ignored = NULL;
    int rc = cb_messages_to_chat(x->json, &ignored, &chat);

    if (!rc)
        rc = cb_chat_prompt(x->s, chat, &p);
    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200, json_pack("{s:i}", "input_tokens", p.n));
    cb_chat_prompt_free(&p);
    json_decref(ignored);
    json_decref(chat);
}
