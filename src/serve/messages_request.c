/* SPDX-License-Identifier: MIT */
/* messages_request.c - a request of Anthropic's /v1/messages in the form of chat completions. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

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
    return t ? t : "";
}

static int append(json_t *list, json_t *m)
{
    return json_array_append_new(list, m) ? no_memory() : CB_OK;
}

/* ---- messages ---- */

/* A message under way: its texts and calls */
struct blocks {
    struct content said;
    json_t *calls;
};

static int add_call(struct blocks *b, const json_t *block)
{
    const json_t *input = cb_field(block, "input");
    json_t *empty = input ? NULL : json_object();
    json_t *call = json_pack("{s:O?, s:s, s:{s:O?, s:O}}", "id", json_object_get(block, "id"),
                             "type", "function", "function", "name", json_object_get(block, "name"),
                             "arguments", input ? input : empty);

    json_decref(empty);
    if (!b->calls)
        b->calls = json_array();
    return append(b->calls, call);
}

static int add_result(json_t *list, const json_t *block, const char *where, json_t **ignored)
{
    struct content c = { { 0 }, { 0 } };
    int rc = CB_OK;

    if (json_is_true(json_object_get(block, "is_error")))
        cb_buf_text(&c.text, "Error:");
    rc = cb_content_add(json_object_get(block, "content"), where, ignored, &c);
    if (!rc)
        rc = append(list, json_pack("{s:s, s:O?, s:o}", "role", "tool", "tool_call_id",
                                    json_object_get(block, "tool_use_id"), "content",
                                    cb_content_json(&c.text)));
    cb_content_free(&c);
    return rc;
}

static int add_block(json_t *list, struct blocks *b, const json_t *block, const char *where,
                     json_t **ignored)
{
    if (!strcmp(type_of(block), "tool_use"))
        return add_call(b, block);
    if (!strcmp(type_of(block), "tool_result"))
        return add_result(list, block, where, ignored);
    return cb_content_add_part(block, where, ignored, &b->said);
}

/* The blocks of a message: texts and calls make one message, results of tools one each, before it.
 */
static int add_blocks(json_t *list, const json_t *content, size_t i, struct blocks *b,
                      json_t **ignored)
{
    const json_t *block;
    char where[64];
    size_t k;

    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (!json_is_array(content))
        return cb_content_add(content, where, ignored, &b->said);
    json_array_foreach(content, k, block)
    {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", i, k);
        TRY(add_block(list, b, block, where, ignored));
    }
    return CB_OK;
}

static int add_said(json_t *list, const json_t *role, const struct blocks *b, size_t n_before)
{
    json_t *m;

    if (!b->said.text.n && !b->said.thought.n && !b->calls && json_array_size(list) > n_before)
        return CB_OK; /* nothing but results of tools */
    m = json_pack("{s:O*, s:o}", "role", role, "content", cb_content_json(&b->said.text));
    if (m && b->calls)
        cb_json_set(&m, "tool_calls", json_incref(b->calls));
    if (m && b->said.thought.n)
        cb_json_set(&m, "reasoning_content", cb_content_json(&b->said.thought));
    return append(list, m);
}

static int add_message(json_t *list, const json_t *m, size_t i, json_t **ignored)
{
    const json_t *content = json_object_get(m, "content");
    const size_t n = json_array_size(list);
    struct blocks b = { { { 0 }, { 0 } }, NULL };
    int rc;

    if (!json_is_object(m)) /* a text, or what chat_messages.c says of it */
        return json_array_append(list, (json_t *)(uintptr_t)m) ? no_memory() : CB_OK;
    rc = add_blocks(list, content, i, &b, ignored);
    if (!rc)
        rc = add_said(list, json_object_get(m, "role"), &b, n);
    cb_content_free(&b.said);
    json_decref(b.calls);
    return rc;
}

static int add_system(json_t *list, const json_t *r, json_t **ignored)
{
    struct content c = { { 0 }, { 0 } };
    int rc;

    if (!cb_field(r, "system"))
        return CB_OK;
    rc = cb_content_add(cb_field(r, "system"), "system", ignored, &c);
    if (!rc)
        rc = append(list,
                    json_pack("{s:s, s:o}", "role", "system", "content", cb_content_json(&c.text)));
    cb_content_free(&c);
    return rc;
}

/* ---- tools ---- */

static int add_tool(json_t *list, const json_t *t, size_t i, json_t **ignored)
{
    const json_t *schema = cb_field(t, "input_schema");
    json_t *f;

    if (!strcmp(type_of(t), "function")) /* OpenAI's form */
        return json_array_append(list, (json_t *)(uintptr_t)t) ? no_memory() : CB_OK;
    if (*type_of(t) && strcmp(type_of(t), "custom") && !schema)
        return cb_note(ignored, "tools[%zu]: type %.40s", i, type_of(t));
    if (!json_is_string(json_object_get(t, "name")))
        return cb_note(ignored, "tools[%zu]: its name is missing", i);
    f = json_pack("{s:O, s:O*, s:O*}", "name", json_object_get(t, "name"), "description",
                  json_object_get(t, "description"), "parameters", schema);
    return append(list, json_pack("{s:s, s:o}", "type", "function", "function", f));
}

static int add_tools(const json_t *r, json_t *list, json_t **ignored)
{
    const json_t *tools, *t;
    size_t i;

    TRY(cb_field_array(r, "tools", &tools));
    json_array_foreach(tools, i, t) TRY(add_tool(list, t, i, ignored));
    return CB_OK;
}

static int add_choice(const json_t *r, json_t *to)
{
    const json_t *choice = cb_field(r, "tool_choice");
    json_t *j;

    if (!choice)
        return CB_OK;
    if (json_is_string(choice))
        return json_object_set(to, "tool_choice", (json_t *)(uintptr_t)choice) ? no_memory()
                                                                               : CB_OK;
    j = strcmp(type_of(choice), "tool")
            ? json_string(type_of(choice))
            : json_pack("{s:s, s:{s:O?}}", "type", "function", "function", "name",
                        json_object_get(choice, "name"));
    if (!j || json_object_set_new(to, "tool_choice", j))
        return no_memory();
    if (json_is_true(json_object_get(choice, "disable_parallel_tool_use")) &&
        json_object_set_new(to, "parallel_tool_calls", json_false()))
        return no_memory();
    return CB_OK;
}

int cb_messages_to_chat(const json_t *r, json_t **ignored, json_t **chat)
{
    json_t *messages, *tools;
    const json_t *in, *m;
    size_t i;

    *chat = json_pack("{s:[], s:[]}", "messages", "tools");
    if (!*chat)
        return no_memory();
    messages = json_object_get(*chat, "messages");
    tools = json_object_get(*chat, "tools");
    TRY(add_system(messages, r, ignored));
    TRY(cb_field_array(r, "messages", &in));
    if (!json_array_size(in))
        return cb_fail(CB_EARG, "messages: must have at least one message");
    json_array_foreach(in, i, m) TRY(add_message(messages, m, i, ignored));
    TRY(add_tools(r, tools, ignored));
    TRY(cb_chat_fields(r, *chat));
    return add_choice(r, *chat);
}
