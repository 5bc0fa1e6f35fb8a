/* SPDX-License-Identifier: MIT */
/* template_fit.c - what a chat template has a place for, and conversations mended to fit it. */
#include "template_fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "base/words.h"

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

/* ---- trying the template ---- */

static int has_words(const char *text, const char *words)
{
    const char *w;
    size_t n;

    while ((w = cb_word(&words, ' ', &n)))
        if (!memmem(text, strlen(text), w, n))
            return 0;
    return 1;
}

/* The conversation, a JSON text of variables, has all of the words, which are separated by blanks,
 * in its text -> *yes. A template that refuses it has not. */
static int writes(const cb_model *model, const struct cb_chat *chat, const char *vars,
                  const char *words, int *yes)
{
    json_error_t why;
    json_t *all = cb_json_read(vars, strlen(vars), &why), *own = NULL;
    struct cb_chat how = { chat->form, NULL };
    char *text = NULL, *dump;
    int rc, lacks = 0;

    if (chat->vars) {
        own = cb_json_read(chat->vars, strlen(chat->vars), &why);
        lacks = own ? json_is_object(own) && json_object_update_missing(all, own)
                    : json_error_code(&why) == json_error_out_of_memory;
    }
    dump = all && !lacks ? cb_json_dumps(all, JSON_COMPACT) : NULL;
    how.vars = dump;
    rc = dump ? cb_chat_text(model, &how, NULL, 0, 1, &text) : no_memory();
    *yes = !rc && has_words(text, words);
    free(text);
    free(dump);
    json_decref(all);
    json_decref(own);
    return rc == CB_ENOMEM ? rc : CB_OK;
}

/* The same for built-in forms, which take no variables */
static int form_writes(const cb_model *model, const struct cb_chat *chat,
                       const struct cb_message *msg, int n, const char *words, int *yes)
{
    const struct cb_chat how = { chat->form, NULL };
    char *text = NULL;
    const int rc = cb_chat_text(model, &how, msg, n, 1, &text);

    *yes = !rc && has_words(text, words);
    free(text);
    return rc == CB_ENOMEM ? rc : CB_OK;
}

#define M(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define TOOL                                                                                       \
    "{\"type\":\"function\",\"function\":{\"name\":\"probetool\",\"description\":\"probedesc\","   \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"probearg\":{\"type\":\"string\","       \
    "\"description\":\"x\"}},\"required\":[\"probearg\"]}}}"
#define CALL(more)                                                                                 \
    "{\"role\":\"assistant\",\"content\":\"\"," more "\"tool_calls\":[{\"type\":\"function\","     \
    "\"id\":\"probe0001\",\"function\":{\"name\":\"probetool\",\"arguments\":{\"probearg\":"       \
    "\"probevalue\"}}}]},{\"role\":\"tool\",\"name\":\"probetool\",\"tool_call_id\":"              \
    "\"probe0001\",\"content\":\"proberesult\"}"
#define ALL(messages)       "{\"messages\":[" messages "]}"
#define WITH_TOOL(messages) "{\"messages\":[" messages "],\"tools\":[" TOOL "]}"

static int try_form(const cb_model *model, const struct cb_chat *chat, struct template_fit *out)
{
    const struct cb_message systems[] = { { "system", "wordone" },
                                          { "system", "wordtwo" },
                                          { "user", "wordthree" } };
    const struct cb_message late[] = { { "user", "wordone" },
                                       { "assistant", "wordtwo" },
                                       { "system", "wordthree" },
                                       { "user", "wordfour" } };

    TRY(form_writes(model, chat, systems, 3, "wordone wordtwo wordthree", &out->systems));
    TRY(form_writes(model, chat, late, 4, "wordone wordtwo wordthree wordfour", &out->late));
    out->same_roles = out->assistant_first = 1;
    return CB_OK;
}

int cb_template_fit(const cb_model *model, const struct cb_chat *chat, struct template_fit *out)
{
    *out = (struct template_fit){ 0 };
    TRY(writes(model, chat, ALL(M("user", "wordone")), "wordone", &out->jinja));
    if (!out->jinja)
        return try_form(model, chat, out);
    TRY(writes(model, chat, WITH_TOOL(M("user", "wordone")), "probetool probearg", &out->tools));
    TRY(writes(model, chat, WITH_TOOL(M("user", "wordone") "," CALL("")),
               "probetool probevalue proberesult", &out->calls));
    TRY(writes(model, chat,
               ALL(M("system", "wordone") "," M("system", "wordtwo") "," M("user", "wordthree")),
               "wordone wordtwo wordthree", &out->systems));
    TRY(writes(model, chat,
               ALL(M("system", "wordone") "," M("user", "wordtwo") "," M(
                   "assistant", "wordthree") "," M("system", "wordfour") "," M("user", "wordfive")),
               "wordone wordtwo wordthree wordfour wordfive", &out->late));
    TRY(writes(
        model, chat,
        ALL(M("user", "wordone") "," M("user", "wordtwo") "," M("assistant", "wordthree") "," M(
            "assistant", "wordfour") "," M("user", "wordfive")),
        "wordone wordtwo wordthree wordfour wordfive", &out->same_roles));
    TRY(writes(model, chat, ALL(M("assistant", "wordone") "," M("user", "wordtwo")),
               "wordone wordtwo", &out->assistant_first));
    TRY(writes(model, chat,
               WITH_TOOL(M("user", "wordone") "," CALL("\"reasoning_content\":\"probethought\",")),
               "probethought", &out->thoughts));
    return writes(model, chat,
                  WITH_TOOL(M("user", "wordone") "," CALL("\"thinking\":\"probethought\",")),
                  "probethought", &out->thinking);
}

/* ---- mending ---- */

static int is(const json_t *m, const char *role)
{
    const char *own = json_string_value(json_object_get(m, "role"));
    return own && !strcmp(own, role);
}

static const char *text_of(const json_t *m)
{
    const char *s = json_string_value(json_object_get(m, "content"));
    return s ? s : "";
}

/* Gives m the text, which is emptied. */
static int set_text(json_t *m, struct buf *text)
{
    json_t *j = text->failed ? NULL : json_stringn(text->n ? text->s : "", text->n);

    cb_buf_free(text);
    return !j || json_object_set_new(m, "content", j) ? no_memory() : CB_OK;
}

/* Adds a text after m's own, with a blank line between */
static int add_text(json_t *m, const char *s)
{
    struct buf all = { 0 };

    cb_buf_text(&all, text_of(m));
    if (all.n && *s)
        cb_buf_text(&all, "\n\n");
    cb_buf_text(&all, s);
    return set_text(m, &all);
}

/* Joins message i to the one before it */
static int join_to(json_t *messages, size_t to, size_t i)
{
    TRY(add_text(json_array_get(messages, to), text_of(json_array_get(messages, i))));
    return json_array_remove(messages, i) ? no_memory() : CB_OK;
}

static int join_systems(const struct template_fit *f, json_t *messages)
{
    size_t front = 0, i;

    while (is(json_array_get(messages, front), "system"))
        front++;
    for (i = front; i < json_array_size(messages);) {
        json_t *m = json_array_get(messages, i);
        if (f->late || !is(m, "system")) {
            i++;
            continue;
        }
        if (front) {
            TRY(join_to(messages, front - 1, i));
            continue;
        }
        json_incref(m);
        (void)json_array_remove(messages, i);
        if (json_array_insert_new(messages, 0, m))
            return no_memory();
        front = 1;
        i = 1;
    }
    for (; !f->systems && front > 1; front--)
        TRY(join_to(messages, 0, 1));
    return CB_OK;
}

static int join_same(json_t *messages)
{
    for (size_t i = 1; i < json_array_size(messages);) {
        const json_t *a = json_array_get(messages, i - 1), *b = json_array_get(messages, i);
        const int same =
            (is(a, "user") && is(b, "user")) || (is(a, "assistant") && is(b, "assistant"));
        if (same && !json_object_get(a, "tool_calls") && !json_object_get(b, "tool_calls"))
            TRY(join_to(messages, i - 1, i));
        else
            i++;
    }
    return CB_OK;
}

/* ---- tools as words ---- */

static void put_json(struct buf *out, const json_t *j)
{
    char *text = j ? cb_json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    cb_buf_text(out, text ? text : "");
    out->failed |= !text;
    free(text);
}

/* A call of the conversation, as the model is told to write it */
static int word_calls(json_t *m)
{
    const json_t *calls = json_object_get(m, "tool_calls"), *call;
    struct buf all = { 0 };
    size_t i;

    cb_buf_text(&all, text_of(m));
    json_array_foreach(calls, i, call)
    {
        const json_t *f = json_object_get(call, "function");
        cb_buf_text(&all, all.n ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        put_json(&all, json_object_get(f, "name"));
        cb_buf_text(&all, ", \"arguments\": ");
        put_json(&all, json_object_get(f, "arguments"));
        cb_buf_text(&all, "}\n</tool_call>");
    }
    TRY(set_text(m, &all));
    (void)json_object_del(m, "tool_calls");
    return CB_OK;
}

static int word_result(json_t *m)
{
    struct buf all = { 0 };

    cb_buf_text(&all, "<tool_response>\n");
    cb_buf_text(&all, text_of(m));
    cb_buf_text(&all, "\n</tool_response>");
    (void)json_object_del(m, "tool_call_id");
    (void)json_object_del(m, "name");
    if (json_object_set_new(m, "role", json_string("user"))) {
        cb_buf_free(&all);
        return no_memory();
    }
    return set_text(m, &all);
}

/* Results that stand beside each other are one turn of the user. */
static int word_conversation(json_t *messages)
{
    int after_result = 0;

    for (size_t i = 0; i < json_array_size(messages);) {
        json_t *m = json_array_get(messages, i);
        const int result = is(m, "tool");
        if (json_object_get(m, "tool_calls"))
            TRY(word_calls(m));
        if (result)
            TRY(word_result(m));
        if (result && after_result)
            TRY(join_to(messages, i - 1, i));
        else
            i++;
        after_result = result;
    }
    return CB_OK;
}

static int word_tools(json_t *messages, const json_t *tools)
{
    struct buf all = { 0 };
    const json_t *t;
    json_t *system;
    size_t i;
    int rc;

    if (!is(json_array_get(messages, 0), "system") &&
        json_array_insert_new(messages, 0,
                              json_pack("{s:s, s:s}", "role", "system", "content", "")))
        return no_memory();
    system = json_array_get(messages, 0);
    cb_buf_text(&all, "You can call functions:\n<tools>\n");
    json_array_foreach(tools, i, t)
    {
        put_json(&all, json_object_get(t, "function"));
        cb_buf_text(&all, "\n");
    }
    cb_buf_text(&all, "</tools>\nTo call one, write only this, then wait for its <tool_response>:\n"
                      "<tool_call>\n{\"name\": NAME, \"arguments\": {...}}\n</tool_call>");
    rc = all.failed ? no_memory() : add_text(system, all.s);
    cb_buf_free(&all);
    return rc;
}

static int name_thoughts(const struct template_fit *f, json_t *messages)
{
    json_t *m;
    size_t i;

    if (f->thoughts || !f->thinking)
        return CB_OK;
    json_array_foreach(messages, i, m)
    {
        json_t *thought = json_object_get(m, "reasoning_content");
        if (thought && json_object_set(m, "thinking", thought))
            return no_memory();
        (void)json_object_del(m, "reasoning_content");
    }
    return CB_OK;
}

int cb_template_mend(const struct template_fit *f, json_t *messages, const json_t *tools)
{
    json_t *first;

    if ((tools && !f->tools) || !f->calls)
        TRY(word_conversation(messages));
    TRY(join_systems(f, messages));
    if (tools && !f->tools)
        TRY(word_tools(messages, tools));
    if (!f->same_roles)
        TRY(join_same(messages));
    first = json_array_get(messages, is(json_array_get(messages, 0), "system"));
    if (!f->assistant_first && is(first, "assistant") &&
        json_array_insert_new(messages, is(json_array_get(messages, 0), "system"),
                              json_pack("{s:s, s:s}", "role", "user", "content", "")))
        return no_memory();
    return name_thoughts(f, messages);
}
