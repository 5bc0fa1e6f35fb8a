/* SPDX-License-Identifier: MIT */
/* chat_tools.c - the tools of a request in the OpenAI form, and which of them must be called. */
#include "chat_tools.h"

#include <string.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "fields.h"
#include "notes.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

void cb_chat_tools_free(struct chat_tools *t)
{
    json_decref(t->list);
    json_decref(t->choice);
    *t = (struct chat_tools){ 0 };
}

static int is(const json_t *text, const char *word)
{
    return json_is_string(text) && !strcmp(json_string_value(text), word);
}

/* ---- the list ---- */

/* The schema of the parameters, by the name that the interface has for it; a new value or NULL */
static json_t *schema_of(const json_t *f)
{
    static const char *const fields[] = { "parameters", "input_schema", "inputSchema" };
    json_error_t why;

    for (int i = 0; i < 3; i++) {
        const json_t *v = json_object_get(f, fields[i]);
        if (json_is_object(v))
            return json_incref((json_t *)(uintptr_t)v);
        if (json_is_string(v) && json_string_length(v))
            return cb_json_read(json_string_value(v), json_string_length(v), &why);
    }
    return NULL;
}

/* A function as templates want it: they look into its parameters. */
static json_t *function_of(const json_t *f)
{
    static const char *const others[] = { "type", "input_schema", "inputSchema" };
    json_t *made = json_copy((json_t *)(uintptr_t)f), *schema = schema_of(f);

    if (made && json_is_object(schema))
        cb_json_set(&made, "parameters", json_incref(schema));
    json_decref(schema);
    for (int i = 0; made && i < 3;
         i++) /* of the interfaces that have no object of its own for it */
        (void)json_object_del(made, others[i]);
    if (made && !json_is_object(json_object_get(made, "parameters")))
        cb_json_set(&made, "parameters", json_pack("{s:s, s:{}}", "type", "object", "properties"));
    if (made && !json_is_string(json_object_get(made, "description")))
        cb_json_set(&made, "description", json_string(""));
    return made;
}

static int add_function(json_t *list, const json_t *f)
{
    json_t *made = json_pack("{s:s, s:o}", "type", "function", "function", function_of(f));
    return json_array_append_new(list, made) ? no_memory() : CB_OK;
}

static int add_tool(json_t *list, const json_t *t, size_t i, json_t **ignored)
{
    const json_t *type = json_object_get(t, "type"), *f = json_object_get(t, "function");

    if (type && !json_is_null(type) && !is(type, "function") && !json_object_get(t, "input_schema"))
        return cb_note(ignored, "tools[%zu]: type %.40s", i,
                       json_is_string(type) ? json_string_value(type) : "unknown");
    if (!json_is_object(f))
        f = t; /* as /v1/responses and /v1/messages have it */
    if (!json_string_length(json_object_get(f, "name")))
        return cb_note(ignored, "tools[%zu]: its name is missing", i);
    if (json_is_true(json_object_get(f, "strict")))
        TRY(cb_note(ignored,
                    "tools[%zu].function.strict: only a call that tool_choice forces "
                    "is held to its schema",
                    i));
    return add_function(list, f);
}

static int add_all(const json_t *request, json_t *list, json_t **ignored)
{
    const json_t *tools, *old, *t;
    size_t i;

    TRY(cb_field_array(request, "tools", &tools));
    json_array_foreach(tools, i, t) TRY(add_tool(list, t, i, ignored));
    TRY(cb_field_array(request, "functions", &old));
    json_array_foreach(old, i, t)
    {
        if (!json_string_length(json_object_get(t, "name")))
            TRY(cb_note(ignored, "functions[%zu]: its name is missing", i));
        else
            TRY(add_function(list, t));
    }
    return CB_OK;
}

/* ---- the choice ---- */

static const json_t *name_in(const json_t *choice)
{
    const json_t *f = json_object_get(choice, "function");
    return json_object_get(json_is_object(f) ? f : choice, "name");
}

static int has(const json_t *list, const json_t *name)
{
    const json_t *t;
    size_t i;

    json_array_foreach(list, i, t) if (json_equal(name, name_in(t))) return 1;
    return 0;
}

/* {type: allowed_tools, mode, tools}: the others are taken away. */
static int allow_some(const json_t *choice, struct chat_tools *out)
{
    const json_t *inner = json_object_get(choice, "allowed_tools");
    const json_t *some = json_object_get(inner ? inner : choice, "tools");
    const json_t *mode = json_object_get(inner ? inner : choice, "mode");
    size_t i = 0;

    if (!json_is_array(some))
        return cb_fail(CB_EARG, "tool_choice: allowed_tools needs a list of tools");
    while (i < json_array_size(out->list)) {
        if (has(some, name_in(json_array_get(out->list, i))))
            i++;
        else
            json_array_remove(out->list, i);
    }
    out->choice = json_string(is(mode, "required") ? "required" : "auto");
    return out->choice ? CB_OK : no_memory();
}

static int take_choice(const json_t *choice, struct chat_tools *out)
{
    const json_t *word = json_is_string(choice) ? choice : json_object_get(choice, "type");
    const json_t *name = has(out->list, word) ? word : name_in(choice);

    if (json_is_string(name) && !is(word, "allowed_tools")) {
        if (!has(out->list, name))
            return cb_fail(CB_EARG, "tool_choice: no tool has this name");
        out->choice = json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name", name);
    } else if (is(word, "allowed_tools") && json_is_object(choice)) {
        return allow_some(choice, out);
    } else if (is(word, "none")) {
        json_array_clear(out->list);
        return CB_OK;
    } else if (is(word, "auto") || is(word, "required") || is(word, "any")) {
        out->choice = json_string(is(word, "auto") ? "auto" : "required");
    } else {
        return cb_fail(CB_EARG, "tool_choice: must be none, auto, required, or name a function");
    }
    return out->choice ? CB_OK : no_memory();
}

int cb_chat_tools(const json_t *request, json_t **ignored, struct chat_tools *out)
{
    const json_t *choice = cb_field(request, "tool_choice");
    int several = 1;

    *out = (struct chat_tools){ .list = json_array() };
    if (!out->list)
        return no_memory();
    if (!choice)
        choice = cb_field(request, "function_call");
    TRY(add_all(request, out->list, ignored));
    TRY(cb_field_flag(request, "parallel_tool_calls", &several));
    out->one = !several;
    if (choice && json_string_length(choice) + json_object_size(choice) > 0)
        TRY(take_choice(choice, out));
    if (!json_array_size(out->list)) {
        if (is(out->choice, "required"))
            return cb_fail(CB_EARG, "tool_choice: required, but there are no tools");
        json_decref(out->list);
        out->list = NULL;
    }
    return CB_OK;
}
