/* SPDX-License-Identifier: MIT */
/* api_messages.c - /v1/messages and /v1/messages/count_tokens of Anthropic. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "chat_prompt.h"
#include "fields.h"

/* ---- the request, in the OpenAI form ---- */

static const char *type_of(const json_t *o)
{
    const char *t = json_string_value(json_object_get(o, "type"));
    return t ? t : "";
}

/* Blocks of text, joined -> *out, a JSON text */
static int text_of(const json_t *content, const char *where, json_t **out)
{
    struct buf all = { 0 };
    const json_t *b;
    size_t i;

    if (json_is_string(content)) {
        *out = json_string(json_string_value(content));
        return CB_OK;
    }
    if (!json_is_array(content))
        return cb_fail(CB_EARG, "%s: must be a text or a list of blocks", where);
    json_array_foreach(content, i, b)
    {
        const json_t *t = json_object_get(b, "text");
        if (strcmp(type_of(b), "text") || !json_is_string(t)) {
            cb_buf_free(&all);
            return cb_fail(CB_EARG, "%s: only blocks of type text are read", where);
        }
        cb_buf_add(&all, "\n", all.n > 0);
        cb_buf_add(&all, json_string_value(t), json_string_length(t));
    }
    *out = json_stringn(all.n ? all.s : "", all.n);
    cb_buf_free(&all);
    return *out ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

static int add_call(json_t *m, const json_t *b)
{
    json_t *calls = json_object_get(m, "tool_calls");
    const json_t *input = json_object_get(b, "input");
    char *arguments = json_dumps(input ? input : json_object_get(b, "none"), JSON_ENCODE_ANY);
    json_t *call = json_pack("{s:O?, s:s, s:{s:O?, s:s}}", "id", json_object_get(b, "id"), "type",
                             "function", "function", "name", json_object_get(b, "name"),
                             "arguments", arguments ? arguments : "{}");

    free(arguments);
    if (!calls) {
        calls = json_array();
        json_object_set_new(m, "tool_calls", calls);
    }
    return json_array_append_new(calls, call) ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

static int add_result(json_t *list, const json_t *b)
{
    const json_t *content = json_object_get(b, "content");
    json_t *text = NULL;

    if (content)
        TRY(text_of(content, "messages: tool_result", &text));
    return json_array_append_new(list, json_pack("{s:s, s:O?, s:o}", "role", "tool", "tool_call_id",
                                                 json_object_get(b, "tool_use_id"), "content",
                                                 text ? text : json_string("")))
               ? cb_fail(CB_ENOMEM, "out of memory")
               : CB_OK;
}

/* The blocks of a message: texts and calls make one message, results of tools one each, before it.
 */
static int add_blocks(json_t *list, const char *role, const json_t *content, size_t i)
{
    json_t *m = json_pack("{s:s}", "role", role);
    struct buf text = { 0 };
    const json_t *b;
    int rc = CB_OK;
    size_t k;

    json_array_foreach(content, k, b)
    {
        const char *t = json_string_value(json_object_get(b, "text"));
        if (!strcmp(type_of(b), "text") && t) {
            cb_buf_add(&text, "\n", text.n > 0);
            cb_buf_text(&text, t);
        } else if (!strcmp(type_of(b), "tool_use")) {
            rc = add_call(m, b);
        } else if (!strcmp(type_of(b), "tool_result")) {
            rc = add_result(list, b);
        } else if (!strstr(type_of(b), "thinking")) { /* templates leave earlier thoughts out */
            rc = cb_fail(CB_EARG, "messages[%zu].content[%zu].type: %.32s is not read", i, k,
                         *type_of(b) ? type_of(b) : "none");
        }
        if (rc)
            break;
    }
    json_object_set_new(m, "content", json_stringn(text.n ? text.s : "", text.n));
    if (!rc && (text.n || json_object_get(m, "tool_calls")))
        json_array_append(list, m);
    json_decref(m);
    cb_buf_free(&text);
    return rc;
}

static int add_message(json_t *list, const json_t *m, size_t i)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");

    if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system")))
        return cb_fail(CB_EARG, "messages[%zu].role: must be user or assistant", i);
    if (json_is_array(content))
        return add_blocks(list, role, content, i);
    if (!json_is_string(content))
        return cb_fail(CB_EARG, "messages[%zu].content: must be a text or a list of blocks", i);
    return json_array_append_new(list, json_pack("{s:s, s:O}", "role", role, "content", content))
               ? cb_fail(CB_ENOMEM, "out of memory")
               : CB_OK;
}

static int add_tools(const json_t *r, json_t *to)
{
    json_t *list = json_array();
    const json_t *tools, *t;
    size_t i;

    json_object_set_new(to, "tools", list);
    TRY(cb_field_array(r, "tools", &tools));
    json_array_foreach(tools, i, t)
    {
        if (!json_is_string(json_object_get(t, "name")))
            return cb_fail(CB_EARG, "tools[%zu].name: must be a text", i);
        json_t *f = json_pack("{s:O, s:O*, s:O*}", "name", json_object_get(t, "name"),
                              "description", json_object_get(t, "description"), "parameters",
                              json_object_get(t, "input_schema"));
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", f));
    }
    return CB_OK;
}

static int add_choice(const json_t *r, json_t *to)
{
    const json_t *choice;
    json_t *j;

    TRY(cb_field_object(r, "tool_choice", &choice));
    if (!choice)
        return CB_OK;
    j = !strcmp(type_of(choice), "any") ? json_string("required")
        : strcmp(type_of(choice), "tool")
            ? json_string(type_of(choice))
            : json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name",
                        json_object_get(choice, "name"));
    json_object_set_new(to, "tool_choice", j);
    return CB_OK;
}

/* The request's conversation in the OpenAI form; the caller drops *out, also after a failure. */
static int convert(const json_t *r, json_t **out)
{
    json_t *list = json_array(), *system = NULL;
    const json_t *in, *m;
    size_t i;

    *out = json_pack("{s:o}", "messages", list);
    if (cb_field(r, "system")) {
        TRY(text_of(cb_field(r, "system"), "system", &system));
        json_array_append_new(list, json_pack("{s:s, s:o}", "role", "system", "content", system));
    }
    TRY(cb_field_array(r, "messages", &in));
    if (!json_array_size(in))
        return cb_fail(CB_EARG, "messages: must have at least one message");
    json_array_foreach(in, i, m) TRY(add_message(list, m, i));
    TRY(add_tools(r, *out));
    TRY(add_choice(r, *out));
    if (cb_field(r, "chat_template_kwargs"))
        json_object_set(*out, "chat_template_kwargs", json_object_get(r, "chat_template_kwargs"));
    if (cb_field(r, "bank"))
        json_object_set(*out, "bank", json_object_get(r, "bank"));
    return CB_OK;
}

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

static json_t *usage(const struct turn *t)
{
    const int cached = cb_turn_cached_tokens(t);

    return json_pack("{s:i, s:i, s:i, s:i, s:n, s:n, s:n, s:n, s:s}", "input_tokens",
                     cb_turn_prompt_tokens(t) - cached, "cache_read_input_tokens", cached,
                     "cache_creation_input_tokens", 0, "output_tokens", cb_turn_made_tokens(t),
                     "cache_creation", "output_tokens_details", "server_tool_use", "inference_geo",
                     "service_tier", "standard");
}

static void begin(struct turn *t, struct buf *out)
{
    cb_event(out, "message_start",
             json_pack("{s:s, s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:o}}", "type",
                       "message_start", "message", "id", t->id, "type", "message", "role",
                       "assistant", "model", t->s->m.name, "content", "stop_reason",
                       "stop_sequence", "usage", usage(t)));
}

static void close_block(struct choice *c)
{
    struct blocks *b = c->turn->state;

    if (!b->open)
        return;
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

static void delta(struct choice *c, json_t *d)
{
    const struct blocks *b = c->turn->state;

    cb_event(
        c->out, "content_block_delta",
        json_pack("{s:s, s:i, s:o}", "type", "content_block_delta", "index", b->n, "delta", d));
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

static void end(struct turn *t, struct buf *out)
{
    (void)t;
    cb_event(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void error(struct turn *t, const char *message, struct buf *out)
{
    (void)t;
    cb_event(out, "error", cb_error_json(1, 500, message, NULL));
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
        cb_json_add(&list, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                     cb_json_text(c->thought.s, c->thought.n), "signature", ""));
    if (c->text.n || !json_array_size(c->calls))
        cb_json_add(&list, json_pack("{s:s, s:o, s:n}", "type", "text", "text",
                                     cb_json_text(c->text.s, c->text.n), "citations"));
    json_array_foreach(c->calls, i, one)
    {
        cb_json_add(&list, json_pack("{s:s, s:O, s:O, s:o}", "type", "tool_use", "id",
                                     json_object_get(one, "id"), "name",
                                     json_object_get(one, "name"), "input", cb_turn_written(one)));
    }
    return list;
}

static json_t *whole(struct turn *t)
{
    struct choice *c = &t->choice[0];

    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:n, s:n, s:o, s:o, s:o}", "id", t->id,
                     "type", "message", "role", "assistant", "model", t->s->m.name, "content",
                     content(c), "stop_reason", stop_reason(c), "stop_sequence", stop_sequence(c),
                     "stop_details", "container", "usage", usage(t), "timings", cb_turn_timings(t),
                     "memory", cb_turn_memory(t));
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

static int read_request(struct turn *t, const json_t *r)
{
    json_t *chat;
    int rc;

    if (t->order.max_tokens < 1)
        return cb_fail(CB_EARG, "max_tokens: must be a whole number above 0");
    t->n = 1;
    t->state = cb_calloc(1, sizeof(struct blocks));
    if (!t->state)
        return CB_ENOMEM;
    rc = convert(r, &chat);
    if (!rc)
        rc = cb_turn_chat(t, chat);
    json_decref(chat);
    return rc;
}

void cb_api_messages(struct exchange *x)
{
    cb_api_answer(x, &dialect, "msg_", read_request);
}

void cb_api_count_tokens(struct exchange *x)
{
    struct chat_prompt p = { 0 };
    json_t *chat;
    int rc = convert(x->json, &chat);

    if (!rc)
        rc = cb_chat_prompt(x->s, chat, &p);
    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200, json_pack("{s:i}", "input_tokens", p.n));
    cb_chat_prompt_free(&p);
    json_decref(chat);
}
