/* SPDX-License-Identifier: MIT */
/* ollama_request.c - requests of /api/chat and /api/generate with the fields of OpenAI's. */
#include "ollama_request.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "fields.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

static int put(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value) ? no_memory() : CB_OK;
}

static int copy(json_t *to, const char *name, const json_t *v)
{
    return v ? put(to, name, json_incref((json_t *)(uintptr_t)v)) : CB_OK;
}

/* ---- how it is sampled, and what it must look like ---- */

static int add_options(const json_t *r, json_t *to)
{
    static const char *const names[][2] = {
        { "num_predict", "max_tokens" },
        { "temperature", "temperature" },
        { "top_k", "top_k" },
        { "top_p", "top_p" },
        { "min_p", "min_p" },
        { "seed", "seed" },
        { "stop", "stop" },
        { "repeat_penalty", "repeat_penalty" },
        { "repeat_last_n", "repeat_last_n" },
        { "frequency_penalty", "frequency_penalty" },
        { "presence_penalty", "presence_penalty" },
    };
    const json_t *options;

    TRY(cb_field_object(r, "options", &options));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(copy(to, names[i][1], cb_field(options, names[i][0])));
    if (json_integer_value(json_object_get(to, "max_tokens")) < -1) /* -2: to fill the context */
        TRY(put(to, "max_tokens", json_integer(-1)));
    return CB_OK;
}

/* "json", a schema, or nothing */
static int add_format(const json_t *r, json_t *to)
{
    const json_t *format = cb_field(r, "format");
    const char *name = json_string_value(format);

    if (!format || (name && !*name))
        return CB_OK;
    if (json_is_object(format))
        return put(
            to, "response_format",
            json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema", "schema", format));
    if (!name || strcasecmp(name, "json"))
        return cb_fail(CB_EARG, "format: must be json or a schema");
    return put(to, "response_format", json_pack("{s:s}", "type", "json_object"));
}

/* think: whether, or how much */
static int add_thinking(const json_t *r, json_t *to)
{
    const json_t *think = cb_field(r, "think"), *given;
    json_t *vars;

    if (json_is_string(think))
        return copy(to, "reasoning_effort", think);
    if (!think)
        return CB_OK;
    if (!json_is_boolean(think))
        return cb_fail(CB_EARG, "think: must be true, false or a word");
    TRY(cb_field_object(r, "chat_template_kwargs", &given));
    vars = given ? json_copy((json_t *)(uintptr_t)given) : json_object();
    if (vars && copy(vars, "enable_thinking", think)) {
        json_decref(vars);
        return CB_ENOMEM;
    }
    return put(to, "chat_template_kwargs", vars);
}

/* Fields whose neglect would change the answer */
static int refuse_others(const json_t *r)
{
    const json_t *context = cb_field(r, "context");
    const char *form = json_string_value(json_object_get(r, "template"));

    if (json_array_size(context))
        return cb_fail(CB_EARG, "context: is not supported; send the conversation to /api/chat");
    if (form && *form)
        return cb_fail(CB_EARG, "template: is not supported; the model's own is used");
    return CB_OK;
}

/* ---- messages ---- */

/* Text and images as the parts of a message */
static json_t *with_images(const json_t *text, const json_t *images)
{
    json_t *parts = json_array();

    if (json_string_length(text))
        cb_json_add(&parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    for (size_t i = 0; i < json_array_size(images); i++)
        cb_json_add(&parts, json_pack("{s:s}", "type", "image_url"));
    return parts;
}

static int add_message(const json_t *m, json_t *list)
{
    static const char *const names[][2] = {
        { "role", "role" },
        { "tool_calls", "tool_calls" },
        { "tool_name", "name" },
        { "thinking", "reasoning_content" },
        { "tool_call_id", "tool_call_id" },
    };
    const json_t *content = cb_field(m, "content"), *images = cb_field(m, "images");
    json_t *to = json_object();
    int rc = to ? CB_OK : no_memory();

    for (size_t i = 0; i < sizeof names / sizeof *names && !rc; i++)
        rc = copy(to, names[i][1], cb_field(m, names[i][0]));
    if (!rc)
        rc = json_array_size(images) ? put(to, "content", with_images(content, images))
             : content               ? copy(to, "content", content)
                                     : put(to, "content", json_string(""));
    if (rc) {
        json_decref(to);
        return rc;
    }
    return json_array_append_new(list, to) ? no_memory() : CB_OK;
}

static int chat_messages(const json_t *r, json_t *list)
{
    const json_t *messages, *m;
    size_t i;

    TRY(cb_field_array(r, "messages", &messages));
    json_array_foreach(messages, i, m)
    {
        if (!json_is_object(m))
            return cb_fail(CB_EARG, "messages[%zu]: must be an object", i);
        TRY(add_message(m, list));
    }
    return CB_OK;
}

static int prompt_messages(const json_t *r, json_t *list)
{
    const char *system = "", *prompt = "";
    json_t *m;
    int rc;

    TRY(cb_field_text(r, "system", &system));
    TRY(cb_field_text(r, "prompt", &prompt));
    if (*system &&
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", system)))
        return no_memory();
    m = json_pack("{s:s, s:s, s:O?}", "role", "user", "content", prompt, "images",
                  cb_field(r, "images"));
    rc = m ? add_message(m, list) : no_memory();
    json_decref(m);
    return rc;
}

/* ---- the request ---- */

static int convert(const json_t *r, int generate, json_t *to)
{
    json_t *list = json_array();
    int streams = 1;

    TRY(put(to, "messages", list)); /* owns it */
    TRY(refuse_others(r));
    TRY(cb_field_flag(r, "stream", &streams));
    TRY(put(to, "stream", json_boolean(streams)));
    TRY(add_options(r, to));
    TRY(add_format(r, to));
    TRY(add_thinking(r, to));
    return generate ? prompt_messages(r, list) : chat_messages(r, list);
}

/* Fields that all interfaces share stay: policies, constraints, tools. */
int cb_ollama_request(const json_t *request, int generate, json_t **out)
{
    *out = json_copy((json_t *)(uintptr_t)request);
    return *out ? convert(request, generate, *out) : no_memory();
}
