/* SPDX-License-Identifier: MIT */
/* chat_prompt.c - a conversation in the OpenAI form, through the model's template, as token ids. */
#include "chat_prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "documents.h"
#include "fields.h"

/* ---- messages ---- */

/* The text of a message's content: a text, or parts of texts. NULL, with the failure set: neither.
 */
static json_t *text_of(const json_t *content, size_t i)
{
    struct buf all = { 0 };
    json_t *j;

    if (!content || json_is_null(content))
        return json_string("");
    if (json_is_string(content))
        return json_copy((json_t *)(uintptr_t)content);
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *t = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(t) || (type && !strstr(type, "text") && strcmp(type, "refusal"))) {
            cb_buf_free(&all);
            cb_fail(CB_EARG, "messages[%zu].content[%zu]: %s: only parts of type text are read", i,
                    k, type ? type : "no type");
            return NULL;
        }
        if (k)
            cb_buf_text(&all, "\n");
        cb_buf_add(&all, json_string_value(t), json_string_length(t));
    }
    if (!json_is_array(content)) {
        cb_fail(CB_EARG, "messages[%zu].content: must be a text or a list of parts", i);
        return NULL;
    }
    j = json_stringn(all.n ? all.s : "", all.n);
    cb_buf_free(&all);
    return j;
}

/* Templates want arguments as an object; clients send them as text. */
static json_t *with_parsed_arguments(const json_t *calls)
{
    json_t *copy = json_deep_copy(calls), *call;
    size_t i;

    json_array_foreach(copy, i, call)
    {
        json_t *f = json_object_get(call, "function");
        const char *args = json_string_value(json_object_get(f, "arguments"));
        json_t *parsed = args ? json_loads(args, 0, NULL) : NULL;
        if (json_is_object(parsed))
            json_object_set(f, "arguments", parsed);
        json_decref(parsed);
    }
    return copy;
}

/* Message i's calls: each has a name, and arguments as a text or an object. */
static int check_calls(const json_t *calls, size_t i)
{
    const json_t *call;
    size_t k;

    json_array_foreach(calls, k, call)
    {
        const json_t *f = json_object_get(call, "function"), *args = cb_field(f, "arguments");
        if (!json_is_string(json_object_get(f, "name")))
            return cb_fail(CB_EARG, "messages[%zu].tool_calls[%zu].function.name: must be a text",
                           i, k);
        if (args && !json_is_string(args) && !json_is_object(args))
            return cb_fail(CB_EARG,
                           "messages[%zu].tool_calls[%zu].function.arguments: must be a text or an "
                           "object",
                           i, k);
    }
    return CB_OK;
}

static const char *first_call_id(const json_t *calls)
{
    return json_string_value(json_object_get(json_array_get(calls, 0), "id"));
}

/* The calls of an assistant's message: as the model wrote them if that is remembered, so that the
 * tokens are those of the session; else for the template to write. */
static int add_calls(const struct server *s, json_t *to, const json_t *calls, int *plain)
{
    const char *id = first_call_id(calls);
    char *raw = id ? cb_transcripts_call(s->transcripts, id) : NULL;

    if (raw) {
        json_object_set_new(to, "content", json_string(raw));
        free(raw);
        return CB_OK;
    }
    *plain = 0;
    return json_object_set_new(to, "tool_calls", with_parsed_arguments(calls))
               ? cb_fail(CB_ENOMEM, "out of memory")
               : CB_OK;
}

static int is_role(const char *role)
{
    static const char *const known[] = { "system", "developer", "user", "assistant", "tool" };

    for (size_t i = 0; role && i < sizeof known / sizeof *known; i++)
        if (!strcmp(role, known[i]))
            return 1;
    return 0;
}

/* Message i as templates take it. *plain = 0: it has more than a role and a text. */
static int add_message(const struct server *s, json_t *list, const json_t *m, size_t i, int *plain)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *calls = cb_field(m, "tool_calls");
    json_t *text, *to;
    const char *id = NULL;

    if (!json_is_object(m))
        return cb_fail(CB_EARG, "messages[%zu]: must be an object", i);
    if (!is_role(role))
        return cb_fail(CB_EARG,
                       "messages[%zu].role: must be system, developer, user, assistant or tool", i);
    if (calls && !json_is_array(calls))
        return cb_fail(CB_EARG, "messages[%zu].tool_calls: must be a list", i);
    TRY(check_calls(calls, i));
    text = text_of(json_object_get(m, "content"), i);
    if (!text)
        return CB_EARG;
    to = json_pack("{s:s, s:o}", "role", !strcmp(role, "developer") ? "system" : role, "content",
                   text);
    if (!to || json_array_append_new(list, to))
        return cb_fail(CB_ENOMEM, "out of memory");
    TRY(cb_field_text(m, "tool_call_id", &id));
    if (!strcmp(role, "tool")) {
        *plain = 0;
        if (id)
            json_object_set_new(to, "tool_call_id", json_string(id));
        if (json_is_string(json_object_get(m, "name")))
            json_object_set(to, "name", json_object_get(m, "name"));
    }
    return json_array_size(calls) ? add_calls(s, to, calls, plain) : CB_OK;
}

static int is_system(const json_t *m)
{
    const char *role = json_string_value(json_object_get(m, "role"));
    return role && (!strcmp(role, "system") || !strcmp(role, "developer"));
}

/* Messages of a bank that the request names, in front of its own */
static int add_bank(const struct server *s, const json_t *request, json_t *list, int *plain)
{
    const char *id = NULL;
    json_t *bank, *m;
    size_t i;
    int rc = CB_OK;

    TRY(cb_field_text(request, "bank", &id));
    if (!id)
        return CB_OK;
    bank = cb_documents_messages(s->documents, id);
    if (!bank)
        return cb_fail(CB_EARG, "bank: there is none with this id");
    json_array_foreach(bank, i, m)
    {
        rc = rc ? rc : add_message(s, list, m, i, plain);
    }
    json_decref(bank);
    return rc;
}

static int read_messages(const struct server *s, const json_t *request, json_t *list, int *plain)
{
    const json_t *in;
    json_t *m;
    size_t i;

    TRY(cb_field_array(request, "messages", &in));
    if (!json_array_size(in))
        return cb_fail(CB_EARG, "messages: must have at least one message");
    TRY(add_bank(s, request, list, plain));
    json_array_foreach(in, i, m) TRY(add_message(s, list, m, i, plain));
    if (s->m.system && !is_system(json_array_get(list, 0)))
        json_array_insert_new(list, 0,
                              json_pack("{s:s, s:s}", "role", "system", "content", s->m.system));
    return CB_OK;
}

/* ---- tools ---- */

static int check_choice(const json_t *request, int *use)
{
    const json_t *choice = cb_field(request, "tool_choice");
    const char *word = json_string_value(choice);

    *use = !word || strcmp(word, "none") != 0;
    if (!choice || (word && (!*use || !strcmp(word, "auto") || !strcmp(word, "required"))) ||
        json_is_string(json_object_get(json_object_get(choice, "function"), "name")))
        return CB_OK;
    return cb_fail(CB_EARG, "tool_choice: must be none, auto, required, or name a function");
}

static int check_tools(const struct server *s, const json_t *tools)
{
    const json_t *t;
    size_t i;

    json_array_foreach(tools, i, t)
    {
        const json_t *f = json_object_get(t, "function");
        if (!json_is_string(json_object_get(f, "name")))
            return cb_fail(CB_EARG, "tools[%zu].function.name: must be a text", i);
    }
    if (!s->info.chat_form || strcmp(s->info.chat_form, "jinja"))
        return cb_fail(CB_EARG, "tools: the model's chat template has no place for them");
    return CB_OK;
}

/* ---- the template ---- */

/* The variables: those of the server, of the request, the tools, and messages that are not plain */
static int variables(const struct server *s, const json_t *request, json_t *messages,
                     const json_t *tools, json_t **out)
{
    const json_t *own;

    *out = s->m.chat.vars ? json_loads(s->m.chat.vars, 0, NULL) : json_object();
    if (!*out)
        *out = json_object();
    TRY(cb_field_object(request, "chat_template_kwargs", &own));
    if (json_object_get(own, "messages") || json_object_get(own, "tools"))
        return cb_fail(CB_EARG,
                       "chat_template_kwargs: messages and tools have fields of their own");
    if (own)
        json_object_update(*out, (json_t *)(uintptr_t)own);
    if (tools)
        json_object_set(*out, "tools", (json_t *)(uintptr_t)tools);
    if (messages)
        json_object_set(*out, "messages", messages);
    return CB_OK;
}

static int as_messages(const json_t *list, struct cb_message **out, int *n)
{
    const json_t *m;
    size_t i;

    *n = (int)json_array_size(list);
    *out = cb_calloc((size_t)*n, sizeof **out);
    if (!*out)
        return CB_ENOMEM;
    json_array_foreach(list, i, m)(*out)[i] =
        (struct cb_message){ json_string_value(json_object_get(m, "role")),
                             json_string_value(json_object_get(m, "content")) };
    return CB_OK;
}

/* 1: both have the same special tokens in the same order */
static int same_marks(const cb_model *m, const int32_t *a, int n_a, const int32_t *b, int n_b)
{
    char byte[1];
    int i = 0, k = 0;

    for (;; i++, k++) {
        while (i < n_a && cb_token_bytes(m, a[i], 0, byte, 1))
            i++;
        while (k < n_b && cb_token_bytes(m, b[k], 0, byte, 1))
            k++;
        if (i == n_a || k == n_b)
            return i == n_a && k == n_b;
        if (a[i] != b[k])
            return 0;
    }
}

/* Appends rest[n] to *ids. */
static int join(int32_t **ids, int *n, const int32_t *rest, int n_rest)
{
    int32_t *all = cb_realloc(*ids, (size_t)(*n + n_rest) + 1, sizeof *all);

    if (!all)
        return CB_ENOMEM;
    if (n_rest)
        memcpy(all + *n, rest, (size_t)n_rest * sizeof *rest);
    *ids = all;
    *n += n_rest;
    return CB_OK;
}

/* Tokens that were sampled stand for their text where the conversation is remembered: in place of
 * the first tokens of *p. A text that spells special tokens reads as a conversation with such
 * tokens does; then the marks differ, and nothing is replaced. */
static int put_remembered(const struct server *s, const struct cb_chat *how,
                          const struct cb_message *msg, int n, struct chat_prompt *p)
{
    int32_t *ids, *rest = NULL;
    int n_ids = 0, n_rest, rc;
    const size_t from = cb_transcripts_find(s->transcripts, p->text, strlen(p->text), &ids, &n_ids);

    if (!from)
        return CB_OK;
    rc = cb_chat_tokenize(s->m.model, how, msg, n, 1, from, &rest, &n_rest);
    if (!rc)
        rc = join(&ids, &n_ids, rest, n_rest);
    free(rest);
    if (!rc && same_marks(s->m.model, ids, n_ids, p->ids, p->n)) {
        free(p->ids);
        p->ids = ids;
        p->n = n_ids;
        return CB_OK;
    }
    free(ids);
    return rc;
}

static int tokenize(const struct server *s, const struct cb_chat *how, const struct cb_message *msg,
                    int n, struct chat_prompt *p)
{
    TRY(cb_chat_tokenize(s->m.model, how, msg, n, 1, 0, &p->ids, &p->n));
    return put_remembered(s, how, msg, n, p);
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    const size_t m = strlen(end);

    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return n >= m && !memcmp(s + n - m, end, m);
}

/* A template that writes the same without the tools has no place for them: the model would not know
 * of them. */
static int check_told(const struct server *s, const struct cb_message *msg, int n,
                      const json_t *vars, const char *text)
{
    json_t *less = json_copy((json_t *)(uintptr_t)vars);
    struct cb_chat how = { s->m.chat.form, NULL };
    char *vars_text, *without;
    int rc;

    json_object_del(less, "tools");
    how.vars = vars_text = json_object_size(less) ? json_dumps(less, JSON_COMPACT) : NULL;
    json_decref(less);
    rc = cb_chat_text(s->m.model, &how, msg, n, 1, &without);
    if (!rc && !strcmp(without, text))
        rc = cb_fail(CB_EARG, "tools: the model's chat template has no place for them");
    free(vars_text);
    free(without);
    return rc;
}

static int render(const struct server *s, const json_t *list, const json_t *vars, int plain,
                  struct chat_prompt *p)
{
    char *vars_text = json_object_size(vars) ? json_dumps(vars, JSON_COMPACT) : NULL;
    const struct cb_chat how = { s->m.chat.form, vars_text };
    struct cb_message *msg = NULL;
    int n = 0, rc = CB_OK;

    if (json_object_size(vars) && !vars_text)
        return cb_fail(CB_ENOMEM, "out of memory");
    if (plain)
        rc = as_messages(list, &msg, &n);
    if (!rc)
        rc = cb_chat_text(s->m.model, &how, msg, n, 1, &p->text);
    if (!rc && json_object_get(vars, "tools"))
        rc = check_told(s, msg, n, vars, p->text);
    if (!rc)
        rc = tokenize(s, &how, msg, n, p);
    if (!rc)
        p->begin = ends_with(p->text, "<think>")            ? REPLY_IN_THOUGHT
                   : ends_with(p->text, "<|start|>assistant") ? REPLY_IN_CHANNELS
                                                              : REPLY_BEGINS;
    free(msg);
    free(vars_text);
    return rc;
}

int cb_chat_prompt(const struct server *s, const json_t *request, struct chat_prompt *out)
{
    json_t *list = json_array(), *vars = NULL;
    const json_t *tools;
    int plain = 1, use, rc;

    *out = (struct chat_prompt){ 0 };
    rc = check_choice(request, &use);
    if (!rc)
        rc = cb_field_array(request, "tools", &tools);
    if (!rc && (!json_array_size(tools) || !use))
        tools = NULL;
    if (!rc && tools)
        rc = check_tools(s, tools);
    if (!rc)
        rc = read_messages(s, request, list, &plain);
    if (!rc)
        rc = variables(s, request, plain ? NULL : list, tools, &vars);
    if (!rc && tools)
        out->tools = json_incref((json_t *)(uintptr_t)tools);
    if (!rc)
        rc = render(s, list, vars, plain, out);
    json_decref(list);
    json_decref(vars);
    return rc;
}

void cb_chat_prompt_free(struct chat_prompt *p)
{
    free(p->ids);
    free(p->text);
    json_decref(p->tools);
    *p = (struct chat_prompt){ 0 };
}
