/* SPDX-License-Identifier: MIT */
/* chat_messages.c - the messages of a request in the OpenAI form, as chat templates take them. */
#include "chat_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "content.h"
#include "fields.h"
#include "json_scan.h"
#include "notes.h"
#include "prefix_store.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

/* ---- calls ---- */

static json_t *parsed(const char *s, size_t n)
{
    struct buf mended = { 0 };
    json_error_t why;
    json_t *j;

    if (!s[strspn(s, " \t\r\n")])
        return json_object();
    j = cb_json_read(s, n, &why);
    if (!j && json_error_code(&why) != json_error_out_of_memory && cb_json_mend(s, n, &mended) &&
        !mended.failed)
        j = cb_json_read(mended.s, mended.n, &why);
    if (!j && json_error_code(&why) != json_error_out_of_memory && !mended.failed)
        j = json_pack("{s:s}", "raw_arguments", s); /* the template wants an object */
    cb_buf_free(&mended);
    return j;
}

/* Arguments of a call, as text or as a value -> an object; NULL: memory ran out */
static json_t *call_arguments(const json_t *arguments)
{
    json_t *j;

    if (json_is_object(arguments))
        return json_incref((json_t *)(uintptr_t)arguments);
    j = json_is_string(arguments)
            ? parsed(json_string_value(arguments), json_string_length(arguments))
            : json_incref((json_t *)(uintptr_t)arguments);
    if (!arguments)
        j = json_object();
    if (!j || json_is_object(j))
        return j;
    if (json_is_null(j) || (json_is_array(j) && !json_array_size(j))) {
        json_decref(j);
        return json_object();
    }
    return json_pack("{s:o}", "raw_arguments", j);
}

/* Call k of message i: a function with a name and arguments, or these beside the id */
static int add_call(json_t **list, const json_t *call, size_t i, size_t k, json_t **ignored)
{
    static const char *const fields[] = { "arguments", "args", "parameters", "input" };
    const json_t *f = json_object_get(call, "function"), *args = NULL;
    const char *name;
    json_t *made;

    if (!json_is_object(f))
        f = call;
    name = json_string_value(json_object_get(f, "name"));
    if (!name)
        TRY(cb_note(ignored, "messages[%zu].tool_calls[%zu]: its name is missing", i, k));
    if (!json_is_object(call))
        return CB_OK;
    for (int n = 0; n < 4 && !args; n++)
        args = cb_field(f, fields[n]);
    made = json_pack("{s:s, s:{s:o, s:o}}", "type", "function", "function", "name",
                     cb_json_str(name ? name : "unknown"), "arguments", call_arguments(args));
    if (made && json_is_string(json_object_get(call, "id")))
        cb_json_set(&made, "id", json_incref(json_object_get(call, "id")));
    if (!made || json_array_append_new(*list, made))
        return no_memory();
    return CB_OK;
}

/* A call of a custom tool, as if it were a function with one text */
static int add_custom(json_t **list, const json_t *call, size_t i, size_t k, json_t **ignored)
{
    const json_t *custom = json_object_get(call, "custom");
    json_t *as = json_pack("{s:O*, s:{s:O?, s:{s:O?}}}", "id", json_object_get(call, "id"),
                           "function", "name", json_object_get(custom, "name"), "arguments",
                           "input", json_object_get(custom, "input"));
    const int rc = as ? add_call(list, as, i, k, ignored) : no_memory();

    json_decref(as);
    return rc;
}

static int add_each(json_t **list, const json_t *calls, size_t i, json_t **ignored)
{
    const json_t *call;
    size_t k;

    if (json_is_object(calls))
        return add_call(list, calls, i, 0, ignored);
    json_array_foreach(calls, k, call)
    {
        if (json_is_object(json_object_get(call, "custom")))
            TRY(add_custom(list, call, i, k, ignored));
        else
            TRY(add_call(list, call, i, k, ignored));
    }
    return CB_OK;
}

static int add_calls(json_t *to, const json_t *m, size_t i, json_t **ignored)
{
    const json_t *calls = cb_field(m, "tool_calls"), *old = cb_field(m, "function_call");
    json_t *list;
    int rc;

    if (!json_array_size(calls) && !json_object_size(calls))
        calls = json_is_object(old) ? old : NULL;
    if (!calls)
        return CB_OK;
    list = json_array();
    rc = list ? add_each(&list, calls, i, ignored) : no_memory();
    if (!rc && json_array_size(list) && json_object_set(to, "tool_calls", list))
        rc = no_memory();
    json_decref(list);
    return rc;
}

/* The turn as the model wrote it, if that is remembered */
static const char as_written[] = "as written";

static int add_remembered(const struct server *s, json_t *to, const json_t *m)
{
    const json_t *first = json_array_get(cb_field(m, "tool_calls"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    char *raw = NULL;
    int failed;

    if (id)
        TRY(cb_token_history_call(s->transcripts, id, &raw));
    if (!raw)
        return CB_OK;
    failed = json_object_set_new(to, as_written, json_string(raw));
    free(raw);
    return failed ? no_memory() : CB_OK;
}

/* A message without what was read of it: its text has the calls and thoughts. */
static int put_written(json_t *m, const json_t *raw)
{
    (void)json_object_del(m, "tool_calls");
    (void)json_object_del(m, "reasoning_content");
    return json_object_set(m, "content", (json_t *)(uintptr_t)raw) ? no_memory() : CB_OK;
}

int cb_chat_as_written(json_t *list, json_t **written, json_t **last)
{
    json_t *m;
    size_t i;

    *written = *last = NULL;
    json_array_foreach(list, i, m) if (json_object_get(m, as_written)) *last = m;
    if (!*last)
        return CB_OK;
    *last = json_incref(json_object_get(*last, as_written));
    if (!(*written = cb_json_deep_copy(list)))
        return no_memory();
    json_array_foreach(*written, i, m)
    {
        json_t *raw = json_incref(json_object_get(m, as_written));
        const int rc = raw ? put_written(m, raw) : CB_OK;
        json_decref(raw);
        if (rc)
            return rc;
        (void)json_object_del(m, as_written);
        (void)json_object_del(json_array_get(list, i), as_written);
    }
    return CB_OK;
}

/* ---- messages ---- */

/* The role under the name that templates have for it; one that none has is the user's. */
static const char *role_of(const json_t *m)
{
    static const char *const known[][2] = {
        { "system", "system" },     { "developer", "system" },     { "user", "user" },
        { "human", "user" },        { "assistant", "assistant" },  { "ai", "assistant" },
        { "model", "assistant" },   { "bot", "assistant" },        { "gpt", "assistant" },
        { "tool", "tool" },         { "function", "tool" },        { "ipython", "tool" },
        { "observation", "tool" },  { "tool_response", "tool" },   { "tool_result", "tool" },
        { "chatbot", "assistant" }, { "function_result", "tool" },
    };
    const char *role = json_string_value(json_object_get(m, "role"));
    size_t len;

    role = role ? role + strspn(role, " \t\r\n") : "";
    len = strcspn(role, " \t\r\n");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i][0]) == len && !strncasecmp(role, known[i][0], len))
            return known[i][1];
    if (len)
        return NULL;
    return json_is_string(json_object_get(m, "tool_call_id")) ? "tool"
           : cb_field(m, "tool_calls")                        ? "assistant"
                                                              : NULL;
}

static int set_text(json_t *to, const char *key, const json_t *text)
{
    return json_is_string(text) && json_object_set(to, key, (json_t *)(uintptr_t)text) ? no_memory()
                                                                                       : CB_OK;
}

/* The fields that only some roles have */
static int add_more(const struct server *s, json_t *to, const json_t *m, size_t i, const char *role,
                    const struct content *c, json_t **ignored)
{
    json_t *thought;

    if (!strcmp(role, "tool")) {
        TRY(set_text(to, "tool_call_id", json_object_get(m, "tool_call_id")));
        return set_text(to, "name", json_object_get(m, "name"));
    }
    if (strcmp(role, "assistant"))
        return CB_OK;
    TRY(add_calls(to, m, i, ignored));
    TRY(add_remembered(s, to, m));
    if (!c->thought.n)
        return CB_OK;
    thought = cb_content_json(&c->thought);
    return !thought || json_object_set_new(to, "reasoning_content", thought) ? no_memory() : CB_OK;
}

/* What was thought, from the fields in which clients send it back */
static int add_thoughts(const json_t *m, struct content *c)
{
    static const char *const fields[] = { "reasoning_content", "reasoning", "thinking" };

    for (int i = 0; i < 3 && !c->thought.n; i++) {
        const json_t *t = json_object_get(m, fields[i]);
        if (json_is_string(t) && json_string_length(t))
            TRY(cb_buf_put(&c->thought, json_string_value(t), json_string_length(t)));
    }
    return CB_OK;
}

static int read_message(const struct server *s, json_t *list, const json_t *m, size_t i,
                        json_t **ignored, struct content *c)
{
    const char *role = role_of(m);
    char where[64];
    json_t *to;

    if (!role) {
        role = json_string_value(json_object_get(m, "role"));
        TRY(cb_note(ignored, "messages[%zu].role: %.40s; the message is the user's", i,
                    role ? role : "missing"));
        role = "user";
    }
    snprintf(where, sizeof where, "messages[%zu].content", i);
    TRY(cb_content_add(json_object_get(m, "content"), where, ignored, c));
    TRY(add_thoughts(m, c));
    to = json_pack("{s:s, s:o}", "role", role, "content", cb_content_json(&c->text));
    if (!to || json_array_append_new(list, to))
        return no_memory();
    return add_more(s, to, m, i, role, c, ignored);
}

static int add_message(const struct server *s, json_t *list, const json_t *m, size_t i,
                       json_t **ignored)
{
    struct content c = { { 0 }, { 0 } };
    int rc;

    if (json_is_null(m))
        return CB_OK;
    if (json_is_string(m))
        return json_array_append_new(
                   list, json_pack("{s:s, s:O}", "role", "user", "content", (json_t *)(uintptr_t)m))
                   ? no_memory()
                   : CB_OK;
    if (!json_is_object(m))
        return cb_fail(CB_EARG, "messages[%zu]: must be an object", i);
    rc = read_message(s, list, m, i, ignored, &c);
    cb_content_free(&c);
    return rc;
}

/* Messages of a bank that the request names, in front of its own */
static int add_bank(const struct server *s, const json_t *request, json_t **ignored, json_t *list)
{
    const char *id = NULL;
    json_t *bank, *m;
    size_t i;
    int rc = CB_OK;

    TRY(cb_field_text(request, "bank", &id));
    if (!id)
        return CB_OK;
    bank = cb_prefix_store_messages(s->documents, id);
    if (!bank)
        return cb_fail(CB_EARG, "bank: there is none with this id");
    json_array_foreach(bank, i, m) rc = rc ? rc : add_message(s, list, m, i, ignored);
    json_decref(bank);
    return rc;
}

static int add_system(const struct server *s, json_t *list)
{
    const char *first = json_string_value(json_object_get(json_array_get(list, 0), "role"));

    if (!s->m.system || (first && !strcmp(first, "system")))
        return CB_OK;
    return json_array_insert_new(list, 0,
                                 json_pack("{s:s, s:s}", "role", "system", "content", s->m.system))
               ? no_memory()
               : CB_OK;
}

int cb_chat_messages(const struct server *s, const json_t *request, json_t **ignored, json_t **list)
{
    const json_t *in;
    json_t *m;
    size_t i;

    *list = json_array();
    if (!*list)
        return no_memory();
    TRY(cb_field_array(request, "messages", &in));
    if (!json_array_size(in))
        return cb_fail(CB_EARG, "messages: must have at least one message");
    TRY(add_bank(s, request, ignored, *list));
    json_array_foreach(in, i, m) TRY(add_message(s, *list, m, i, ignored));
    return add_system(s, *list);
}
