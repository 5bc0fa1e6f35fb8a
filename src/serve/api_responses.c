/* SPDX-License-Identifier: MIT */
/* api_responses.c - /v1/responses of OpenAI: text and calls of tools. Nothing is stored, so each
 * request brings its whole conversation. */
#include <stdlib.h>
#include <string.h>

#include "answer_form.h"
#include "api.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "dialect_requests.h"
#include "fields.h"

/* ---- the answer ---- */

struct output {
    int n_event;
    int open;         /* 1: the message's item has been told of */
    int index;        /* of the message among the items */
    int n_item;       /* so far */
    int call;         /* index of the last call among the items */
    char message[64]; /* its id */
    int thinks;       /* 1: the item of the thought has been told of, and is open */
    int thought;      /* its index among the items */
    char reasoning[64];
    size_t from;  /* where the message's text begins in that of the answer */
    int n_text;   /* messages so far */
    json_t *done; /* in a stream: the items that have been told of */
};

static void free_output(void *state)
{
    struct output *o = state;

    json_decref(o->done);
    free(o);
}

static json_t *text_part(const char *s, size_t n)
{
    return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text", cb_json_text(s, n),
                     "annotations");
}

static json_t *reasoning_part(const char *s, size_t n)
{
    return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", cb_json_text(s, n));
}

/* done, here and below: 0 begins, 1 has ended, -1 was cut */
static const char *item_status(int done)
{
    return done < 0 ? "incomplete" : done ? "completed" : "in_progress";
}

static json_t *message_item(const struct choice *c, int done)
{
    const struct output *o = c->turn->state;
    json_t *parts = json_array();

    if (done)
        cb_json_add(&parts, text_part(c->text.s + o->from, c->text.n - o->from));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", o->message, "type", "message", "status",
                     item_status(done), "role", "assistant", "content", parts);
}

static json_t *call_item(const json_t *call, int done)
{
    const char *id = json_string_value(json_object_get(call, "id"));
    char item[80] = "fc_";

    strncat(item, id ? id : "", sizeof item - strlen(item) - 1);
    return json_pack("{s:s, s:s, s:s, s:O, s:O, s:o}", "id", item, "type", "function_call",
                     "status", item_status(done), "call_id", json_object_get(call, "id"), "name",
                     json_object_get(call, "name"), "arguments",
                     done ? json_incref(json_object_get(call, "arguments")) : json_string(""));
}

/* -1: the answer was cut within the last call, which no client may take for whole; else 1 */
static int call_done(const struct choice *c, size_t i)
{
    return cb_choice_is_cut(c) && c->open_call && i + 1 == json_array_size(c->calls) ? -1 : 1;
}

/* The thought for clients that send back nothing else of it (responses_request.c) */
static json_t *opaque_thought(const struct choice *c)
{
    const json_t *include = json_object_get(c->turn->request, "include"), *one;
    struct buf out = { 0 };
    json_t *j = json_null();
    size_t i;

    json_array_foreach(include, i, one)
    {
        if (!json_is_string(one) || strcmp(json_string_value(one), "reasoning.encrypted_content"))
            continue;
        cb_base64_write(c->thought.s, c->thought.n, &out);
        j = out.failed ? NULL : json_stringn(out.n ? out.s : "", out.n);
        break;
    }
    cb_buf_free(&out);
    return j;
}

static json_t *reasoning_item(const struct choice *c, int done)
{
    const struct output *o = c->turn->state;
    json_t *parts = json_array();

    if (done)
        cb_json_add(&parts, reasoning_part(c->thought.s, c->thought.n));
    return json_pack("{s:s, s:s, s:s, s:[], s:o, s:o}", "id", o->reasoning, "type", "reasoning",
                     "status", item_status(done), "summary", "content", parts, "encrypted_content",
                     done ? opaque_thought(c) : json_null());
}

/* 1: the answer has a message; an empty answer too is one, unless it was cut in a thought */
static int has_message(const struct choice *c)
{
    return c->text.n || !(json_array_size(c->calls) || cb_choice_cut_in_thought(c));
}

static json_t *items(const struct choice *c)
{
    json_t *list = json_array(), *one;
    size_t i;

    if (c->thought.n)
        cb_json_add(&list, reasoning_item(c, cb_choice_cut_in_thought(c) ? -1 : 1));
    if (has_message(c))
        cb_json_add(&list,
                    message_item(c, cb_choice_is_cut(c) && !json_array_size(c->calls) ? -1 : 1));
    json_array_foreach(c->calls, i, one) cb_json_add(&list, call_item(one, call_done(c, i)));
    return list;
}

static json_t *usage(const struct completion *t)
{
    const int in = cb_completion_prompt_tokens(t), out = cb_completion_made_tokens(t);

    return json_pack("{s:i, s:{s:i, s:i}, s:i, s:{s:i}, s:i}", "input_tokens", in,
                     "input_tokens_details", "cached_tokens", cb_completion_cached_tokens(t),
                     "cache_write_tokens", 0, "output_tokens", out, "output_tokens_details",
                     "reasoning_tokens", cb_completion_thought_tokens(t), "total_tokens", in + out);
}

/* The request's field, or what stands for an absent one */
static void echo(const struct completion *t, json_t **j, const char *name, json_t *absent)
{
    json_t *own = json_object_get(t->request, name);

    cb_json_set(j, name, own ? json_incref(own) : absent ? json_incref(absent) : json_null());
    json_decref(absent);
}

/* The request's tools; clients want to see fields that are absent. */
static json_t *tools_again(const struct completion *t)
{
    static const char *const names[] = { "description", "parameters", "strict" };
    json_t *list = cb_json_deep_copy(json_object_get(t->request, "tools")), *tool;
    size_t i;

    json_array_foreach(list, i, tool)
    {
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (!json_object_get(tool, names[k]))
                json_object_set_new(tool, names[k], json_null());
    }
    return list ? list : json_array();
}

/* What clients expect to find again of their request */
static void add_request(const struct completion *t, json_t **j)
{
    static const char *const names[] = { "instructions",      "max_output_tokens",
                                         "max_tool_calls",    "previous_response_id",
                                         "prompt_cache_key",  "reasoning",
                                         "safety_identifier", "user" };
    const struct cb_sampler_params *p = &t->order.sampler;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        echo(t, j, names[i], NULL);
    echo(t, j, "metadata", json_object());
    cb_json_set(j, "tools", tools_again(t));
    echo(t, j, "tool_choice", json_string("auto"));
    echo(t, j, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    cb_json_set(j, "temperature", json_real((double)p->temp));
    cb_json_set(j, "top_p", json_real((double)p->top_p));
    cb_json_set(j, "presence_penalty", json_real((double)p->presence_penalty));
    cb_json_set(j, "frequency_penalty", json_real((double)p->frequency_penalty));
    cb_json_set(j, "top_logprobs", json_integer(0));
    echo(t, j, "parallel_tool_calls", json_true());
    cb_json_set(j, "background", json_false());
    cb_json_set(j, "store", json_false());
    cb_json_set(j, "truncation", json_string("disabled"));
    cb_json_set(j, "service_tier", json_string("default"));
}

static json_t *output(const struct completion *t)
{
    const struct output *o = t->state;
    return o->done ? json_incref(o->done) : items(&t->choice[0]);
}

static json_t *response(const struct completion *t, int done)
{
    const int cut = done && cb_choice_is_cut(&t->choice[0]);
    const json_int_t now = (json_int_t)time(NULL);
    json_t *j = json_pack("{s:s, s:s, s:I, s:o, s:s, s:s, s:o, s:n, s:o, s:o}", "id", t->id,
                          "object", "response", "created_at", now, "completed_at",
                          done ? json_integer(now) : json_null(), "model", t->s->m.name, "status",
                          !done ? "in_progress"
                          : cut ? "incomplete"
                                : "completed",
                          "output", done ? output(t) : json_array(), "error", "incomplete_details",
                          cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(),
                          "usage", done ? usage(t) : json_null());

    add_request(t, &j);
    if (t->ignored)
        cb_json_set(&j, "ignored", json_incref(t->ignored));
    if (done) {
        cb_json_set(&j, "timings", cb_completion_timings(t));
        cb_json_set(&j, "memory", cb_completion_memory(t));
    }
    return j;
}

/* An event with its type and number */
static void say(const struct completion *t, struct buf *out, const char *type, json_t *j)
{
    struct output *o = t->state;

    cb_json_set(&j, "type", json_string(type));
    cb_json_set(&j, "sequence_number", json_integer(o->n_event++));
    cb_event(out, type, j);
}

static void say_done(struct choice *c, int index, json_t *item)
{
    struct output *o = c->turn->state;

    cb_json_add(&o->done, json_incref(item));
    say(c->turn, c->out, "response.output_item.done",
        json_pack("{s:i, s:o}", "output_index", index, "item", item));
}

static void begin(struct completion *t, struct buf *out)
{
    struct output *o = t->state;

    o->done = json_array();
    say(t, out, "response.created", json_pack("{s:o}", "response", response(t, 0)));
    say(t, out, "response.in_progress", json_pack("{s:o}", "response", response(t, 0)));
}

static void thought(struct choice *c, const char *s, size_t n)
{
    struct output *o = c->turn->state;

    if (!o->thinks) {
        o->thinks = 1;
        o->thought = o->n_item++;
        say(c->turn, c->out, "response.output_item.added",
            json_pack("{s:i, s:o}", "output_index", o->thought, "item", reasoning_item(c, 0)));
        say(c->turn, c->out, "response.content_part.added",
            json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->reasoning, "output_index", o->thought,
                      "content_index", 0, "part", reasoning_part("", 0)));
    }
    say(c->turn, c->out, "response.reasoning_text.delta",
        json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->reasoning, "output_index", o->thought,
                  "content_index", 0, "delta", cb_json_text(s, n)));
}

static void close_thought(struct choice *c, int done)
{
    struct output *o = c->turn->state;

    if (!o->thinks)
        return;
    o->thinks = 0;
    say(c->turn, c->out, "response.reasoning_text.done",
        json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->reasoning, "output_index", o->thought,
                  "content_index", 0, "text", cb_json_text(c->thought.s, c->thought.n)));
    say(c->turn, c->out, "response.content_part.done",
        json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->reasoning, "output_index", o->thought,
                  "content_index", 0, "part", reasoning_part(c->thought.s, c->thought.n)));
    say_done(c, o->thought, reasoning_item(c, done));
}

static void open_message(struct choice *c)
{
    struct output *o = c->turn->state;

    close_thought(c, 1);
    if (o->open)
        return;
    o->open = 1;
    o->index = o->n_item++;
    if (o->n_text++) /* a text after calls is another message */
        cb_next_id(&c->turn->names, "msg_", o->message, sizeof o->message);
    say(c->turn, c->out, "response.output_item.added",
        json_pack("{s:i, s:o}", "output_index", o->index, "item", message_item(c, 0)));
    say(c->turn, c->out, "response.content_part.added",
        json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->message, "output_index", o->index,
                  "content_index", 0, "part", text_part("", 0)));
}

static void close_message(struct choice *c, int done)
{
    struct output *o = c->turn->state;
    const char *s = c->text.s + o->from;
    const size_t n = c->text.n - o->from;

    if (!o->open)
        return;
    o->open = 0;
    say(c->turn, c->out, "response.output_text.done",
        json_pack("{s:s, s:i, s:i, s:o, s:[]}", "item_id", o->message, "output_index", o->index,
                  "content_index", 0, "text", cb_json_text(s, n), "logprobs"));
    say(c->turn, c->out, "response.content_part.done",
        json_pack("{s:s, s:i, s:i, s:o}", "item_id", o->message, "output_index", o->index,
                  "content_index", 0, "part", text_part(s, n)));
    say_done(c, o->index, message_item(c, done));
    o->from = c->text.n;
}

static void text(struct choice *c, const char *s, size_t n)
{
    const struct output *o = c->turn->state;

    open_message(c);
    say(c->turn, c->out, "response.output_text.delta",
        json_pack("{s:s, s:i, s:i, s:o, s:[]}", "item_id", o->message, "output_index", o->index,
                  "content_index", 0, "delta", cb_json_text(s, n), "logprobs"));
}

/* The id of a call's item */
static json_t *item_id(const json_t *call_)
{
    json_t *item = call_item(call_, 0), *id = json_incref(json_object_get(item, "id"));

    json_decref(item);
    return id;
}

static void call(struct choice *c, const json_t *call_)
{
    struct output *o = c->turn->state;

    close_thought(c, 1);
    close_message(c, 1); /* clients keep items in the order in which they end */
    o->call = o->n_item++;
    say(c->turn, c->out, "response.output_item.added",
        json_pack("{s:i, s:o}", "output_index", o->call, "item", call_item(call_, 0)));
}

static void args(struct choice *c, const json_t *call_, const char *s, size_t n)
{
    const struct output *o = c->turn->state;

    say(c->turn, c->out, "response.function_call_arguments.delta",
        json_pack("{s:o, s:i, s:o}", "item_id", item_id(call_), "output_index", o->call, "delta",
                  cb_json_text(s, n)));
}

static void end_call(struct choice *c, const json_t *call_)
{
    const struct output *o = c->turn->state;

    say(c->turn, c->out, "response.function_call_arguments.done",
        json_pack("{s:o, s:i, s:O, s:O}", "item_id", item_id(call_), "output_index", o->call,
                  "arguments", json_object_get(call_, "arguments"), "name",
                  json_object_get(call_, "name")));
    say_done(c, o->call, call_item(call_, call_done(c, json_array_size(c->calls) - 1)));
}

static void end_choice(struct choice *c)
{
    const struct output *o = c->turn->state;

    close_thought(c, cb_choice_cut_in_thought(c) ? -1 : 1);
    if (!o->n_text && !has_message(c))
        return;
    if (!o->n_text)
        open_message(c);
    close_message(c, cb_choice_is_cut(c) ? -1 : 1);
}

static void end(struct completion *t, struct buf *out)
{
    say(t, out, cb_choice_is_cut(&t->choice[0]) ? "response.incomplete" : "response.completed",
        json_pack("{s:o}", "response", response(t, 1)));
}

static void error(struct completion *t, const char *message, struct buf *out)
{
    json_t *failed;

    say(t, out, "error",
        json_pack("{s:s, s:o, s:n}", "code", "server_error", "message", cb_json_str(message),
                  "param"));
    failed = response(t, 0);
    cb_json_set(&failed, "status", json_string("failed"));
    if (failed)
        cb_json_set(
            &failed, "error",
            json_pack("{s:s, s:o}", "code", "server_error", "message", cb_json_str(message)));
    say(t, out, "response.failed", json_pack("{s:o}", "response", failed));
}

static json_t *whole(struct completion *t)
{
    return response(t, 1);
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
    .idle = cb_comment,
    .whole = whole,
    .call_prefix = "call_",
};

static int read_format(struct completion *t, const json_t *r)
{
    const json_t *text, *format;

    TRY(cb_field_object(r, "text", &text));
    TRY(cb_field_object(text, "format", &format));
    if (format && t->grammar)
        return cb_fail(CB_EARG, "text: the answer is constrained by another field too");
    return format ? cb_answer_form_format(t->x, format, "text", &t->grammar) : CB_OK;
}

/* Without what these name, the answer would be to another prompt. */
static int refuse(const json_t *r)
{
    static const struct {
        const char *name, *instead;
    } stored[] = { { "previous_response_id", "conversation" },
                   { "conversation", "conversation as input" },
                   { "prompt", "prompt as instructions and input" } };
    int background = 0;

    TRY(cb_field_flag(r, "background", &background));
    if (background)
        return cb_fail(CB_EARG, "background: not supported");
    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        const json_t *v = json_object_get(r, stored[i].name);
        if (json_string_length(v) || json_object_size(v))
            return cb_fail(CB_EARG, "%s: nothing is stored: send the %s", stored[i].name,
                           stored[i].instead);
    }
    return CB_OK;
}

static int read_request(struct completion *t, const json_t *r)
{
    struct output *o = cb_calloc(1, sizeof *o);
    int64_t most = t->order.max_tokens;

    t->state = o;
    if (!o)
        return CB_ENOMEM;
    t->free_state = free_output;
    cb_next_id(&t->names, "msg_", o->message, sizeof o->message);
    cb_next_id(&t->names, "rs_", o->reasoning, sizeof o->reasoning);
    t->n = 1;
    TRY(refuse(r));
    TRY(read_format(t, r));
    TRY(cb_field_int(r, "max_output_tokens", -1, CB_FIELD_MOST, &most));
    t->order.max_tokens = (int)most;
    return cb_completion_convert(t, r, cb_responses_to_chat);
}

void cb_api_responses(struct exchange *x)
{
    cb_api_answer(x, &dialect, "resp_", read_request);
}
