/* SPDX-License-Identifier: MIT */
/* responses_request.c - a request of OpenAI's /v1/responses in the form of chat completions. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/err.h"
#include "content.h"
#include "dialect_requests.h"
#include "fields.h"
#include "notes.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

static const char *type_of(const json_t *o)
{
    const char *t = json_string_value(json_object_get(o, "type"));
    return t ? t : "message";
}

static int is(const json_t *item, const char *type)
{
    return !strcmp(type_of(item), type);
}

/* ---- input ---- */

/* The assistant's message that items of one turn make together: the last one, or a new one */
static json_t *turn_of(json_t *list)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));

    if (role && !strcmp(role, "assistant"))
        return last;
    last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    return json_array_append_new(list, last) ? NULL : last;
}

/* Calls of one turn are items beside each other: they become one message. */
static int add_call(json_t *list, const json_t *item)
{
    json_t *turn = turn_of(list), *calls = json_object_get(turn, "tool_calls");

    if (!turn)
        return no_memory();
    if (!calls && json_object_set_new(turn, "tool_calls", json_array()))
        return no_memory();
    calls = json_object_get(turn, "tool_calls");
    return json_array_append_new(calls,
                                 json_pack("{s:O?, s:s, s:{s:O?, s:O?}}", "id",
                                           json_object_get(item, "call_id"), "type", "function",
                                           "function", "name", json_object_get(item, "name"),
                                           "arguments", json_object_get(item, "arguments")))
               ? no_memory()
               : CB_OK;
}

/* What api_responses.c wrote for clients that send back no text of a thought */
static void add_opaque(const json_t *item, struct content *c)
{
    const json_t *text = cb_field(item, "encrypted_content");
    struct buf out = { 0 };
    json_t *j = NULL;

    if (json_is_string(text) &&
        cb_base64_read(json_string_value(text), json_string_length(text), &out) && out.n)
        j = json_stringn(out.s, out.n); /* NULL: it is another server's, and no UTF-8 */
    if (j)
        cb_buf_add(&c->thought, out.s, out.n);
    json_decref(j);
    cb_buf_free(&out);
}

/* What was thought belongs to the turn that follows: a new message, which calls and texts join. */
static int add_reasoning(json_t *list, const json_t *item, const char *where, json_t **ignored)
{
    const json_t *content = cb_field(item, "content");
    struct content c = { { 0 }, { 0 } };
    json_t *turn;
    int rc;

    rc = cb_content_add(json_array_size(content) ? content : json_object_get(item, "summary"),
                        where, ignored, &c);
    if (!rc && !c.thought.n)
        add_opaque(item, &c);
    if (!rc && c.thought.n) {
        turn = json_pack("{s:s, s:s, s:o}", "role", "assistant", "content", "", "reasoning_content",
                         cb_content_json(&c.thought));
        rc = json_array_append_new(list, turn) ? no_memory() : CB_OK;
    }
    cb_content_free(&c);
    return rc;
}

/* The assistant's text joins what it thought before, unless that turn has a text or calls. */
static int add_message(json_t *list, const json_t *item)
{
    json_t *last = json_array_get(list, json_array_size(list) - 1);
    const json_t *role = json_object_get(item, "role");
    json_t *m;

    if (json_is_string(role) && !strcmp(json_string_value(role), "assistant") &&
        json_object_get(last, "reasoning_content") && !json_object_get(last, "tool_calls") &&
        !json_string_length(json_object_get(last, "content")))
        return json_object_set(last, "content", json_object_get(item, "content")) ? no_memory()
                                                                                  : CB_OK;
    m = json_pack("{s:O?, s:O?}", "role", role, "content", json_object_get(item, "content"));
    return json_array_append_new(list, m) ? no_memory() : CB_OK;
}

static int add_output(json_t *list, const json_t *item)
{
    return json_array_append_new(list, json_pack("{s:s, s:O?, s:O?}", "role", "tool",
                                                 "tool_call_id", json_object_get(item, "call_id"),
                                                 "content", json_object_get(item, "output")))
               ? no_memory()
               : CB_OK;
}

/* A call of a tool of another type, as if it were a function with one text */
static int add_other_call(json_t *list, const json_t *item)
{
    const json_t *input = json_object_get(item, "input");
    json_t *as = json_pack("{s:O?, s:O?, s:{s:O?}}", "call_id", json_object_get(item, "call_id"),
                           "name", json_object_get(item, "name"), "arguments", "input",
                           input ? input : json_object_get(item, "action"));
    int rc;

    if (as && !json_is_string(json_object_get(as, "name")))
        cb_json_set(&as, "name", json_string(type_of(item)));
    rc = as ? add_call(list, as) : no_memory();
    json_decref(as);
    return rc;
}

static int add_item(json_t *list, const json_t *item, size_t i, json_t **ignored)
{
    const char *type = type_of(item);
    const size_t n = strlen(type);
    char where[64];

    snprintf(where, sizeof where, "input[%zu]", i);
    if (!json_is_object(item)) /* a text, or what chat_messages.c says of it */
        return json_array_append(list, (json_t *)(uintptr_t)item) ? no_memory() : CB_OK;
    if (is(item, "message"))
        return add_message(list, item);
    if (is(item, "function_call"))
        return add_call(list, item);
    if (is(item, "reasoning"))
        return add_reasoning(list, item, where, ignored);
    if (is(item, "custom_tool_call") || is(item, "local_shell_call") || is(item, "shell_call"))
        return add_other_call(list, item);
    if (n > 7 && !strcmp(type + n - 7, "_output"))
        return add_output(list, item);
    return cb_note(ignored, "%s: type %.40s", where, type);
}

static int add_input(json_t *list, const json_t *r, json_t **ignored)
{
    const json_t *in = cb_field(r, "input"), *item;
    size_t i;

    if (json_is_object(in))
        return add_item(list, in, 0, ignored);
    if (in && !json_is_array(in))
        return json_array_append_new(list, json_pack("{s:s, s:O}", "role", "user", "content", in))
                   ? no_memory()
                   : CB_OK;
    json_array_foreach(in, i, item) TRY(add_item(list, item, i, ignored));
    return CB_OK;
}

/* ---- tools ---- */

static int add_tools(const json_t *r, json_t *list, json_t **ignored)
{
    const json_t *tools, *t;
    size_t i;

    TRY(cb_field_array(r, "tools", &tools));
    json_array_foreach(tools, i, t)
    {
        json_t *f;
        if (json_is_object(json_object_get(t, "function"))) { /* as conversations have it */
            if (json_array_append(list, (json_t *)(uintptr_t)t))
                return no_memory();
            continue;
        }
        if (!is(t, "function") && json_object_get(t, "type")) {
            TRY(cb_note(ignored, "tools[%zu]: type %.40s", i, type_of(t)));
            continue;
        }
        f = json_pack("{s:O?, s:O*, s:O*}", "name", json_object_get(t, "name"), "description",
                      json_object_get(t, "description"), "parameters",
                      json_object_get(t, "parameters"));
        if (json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", f)))
            return no_memory();
    }
    return CB_OK;
}

/* A text, or items in front of the input's; texts among them make one system message. */
static int add_instructions(json_t *list, const json_t *v, json_t **ignored)
{
    struct content c = { { 0 }, { 0 } };
    const json_t *item;
    json_t *m = NULL;
    size_t i;
    int rc = CB_OK;

    json_array_foreach(v, i, item)
    {
        if (rc)
            break;
        rc = json_object_get(item, "role") ? add_item(list, item, i, ignored)
                                           : cb_content_add(item, "instructions", ignored, &c);
    }
    if (!rc && !json_is_array(v))
        rc = cb_content_add(v, "instructions", ignored, &c);
    if (!rc && c.text.n)
        m = json_pack("{s:s, s:o}", "role", "system", "content", cb_content_json(&c.text));
    if (!rc && c.text.n && json_array_insert_new(list, 0, m))
        rc = no_memory();
    cb_content_free(&c);
    return rc;
}

int cb_responses_to_chat(const json_t *r, json_t **ignored, json_t **chat)
{
    json_t *list, *tools, *effort = json_object_get(json_object_get(r, "reasoning"), "effort");

    *chat = json_pack("{s:[], s:[]}", "messages", "tools");
    if (!*chat)
        return no_memory();
    list = json_object_get(*chat, "messages");
    tools = json_object_get(*chat, "tools");
    TRY(add_instructions(list, cb_field(r, "instructions"), ignored));
    TRY(add_input(list, r, ignored));
    if (!json_array_size(list))
        return cb_fail(CB_EARG, "input: must be a text, or a list with at least one message");
    TRY(add_tools(r, tools, ignored));
    if (cb_field(r, "tool_choice") &&
        json_object_set(*chat, "tool_choice", json_object_get(r, "tool_choice")))
        return no_memory();
    if (json_is_string(effort) && json_object_set(*chat, "reasoning_effort", effort))
        return no_memory();
    return cb_chat_fields(r, *chat);
}
