/* SPDX-License-Identifier: MIT */
/* chat_prompt.c - a conversation in the OpenAI form, through the model's template, as token ids. */
#include "chat_prompt.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "chat_messages.h"
#include "fields.h"

/* The last message, of the assistant, that the answer continues */
struct unfinished {
    json_t *message; /* or NULL */
};

static int no_memory(void)
{
    return cb_fail(CB_ENOMEM, "out of memory");
}

/* ---- the template's variables ---- */

/* Those of the server, of the request, and the effort that it asks for */
static int variables(const struct server *s, const json_t *request, json_t **out)
{
    const json_t *own, *effort = cb_field(request, "reasoning_effort");
    json_error_t why;

    *out =
        s->m.chat.vars ? cb_json_read(s->m.chat.vars, strlen(s->m.chat.vars), &why) : json_object();
    if (!*out)
        return no_memory();
    TRY(cb_field_object(request, "chat_template_kwargs", &own));
    if (json_object_get(own, "messages") || json_object_get(own, "tools"))
        return cb_fail(CB_EARG,
                       "chat_template_kwargs: messages and tools have fields of their own");
    if (json_is_string(effort) && s->fit.jinja &&
        json_object_set(*out, "reasoning_effort", (json_t *)(uintptr_t)effort))
        return no_memory();
    return own && json_object_update(*out, (json_t *)(uintptr_t)own) ? no_memory() : CB_OK;
}

/* ---- the template ---- */

static int as_messages(const json_t *list, struct cb_message **out, int *n)
{
    const json_t *m;
    size_t i;

    *n = (int)json_array_size(list);
    *out = cb_calloc((size_t)*n + 1, sizeof **out);
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

/* Tokens that were sampled stand for their text where the conversation is remembered: in place of
 * the first tokens of *p. A text that spells special tokens reads as a conversation with such
 * tokens does; then the marks differ, and nothing is replaced. */
static int put_remembered(const struct server *s, const struct cb_chat *how,
                          const struct cb_message *msg, int n, struct chat_prompt *p)
{
    int32_t *ids, *rest = NULL;
    int n_ids = 0, n_rest, rc;
    const size_t from =
        cb_token_history_find(s->transcripts, p->text, strlen(p->text), &ids, &n_ids);

    if (!from)
        return CB_OK;
    rc = cb_chat_tokenize(s->m.model, how, msg, n, 1, from, &rest, &n_rest);
    if (!rc)
        rc = cb_append_i32(&ids, &n_ids, rest, n_rest);
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

static void reverse(const char *s, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = s[n - 1 - i];
}

/* Where the last place of `word` in s begins, NULL = none or no memory. Texts come from clients:
 * memmem() takes time in proportion to their length, strstr() does not, and a search that begins
 * again after each place would not. So the first place is searched in both written backwards. */
static const char *last_place(const char *s, const char *word)
{
    const size_t n = strlen(s), m = strlen(word);
    char *back = m && m <= n ? cb_realloc(NULL, n + m, 1) : NULL;
    const char *at = NULL;

    if (back) {
        reverse(s, n, back);
        reverse(word, m, back + n);
        at = memmem(back, n, back + n, m);
        at = at ? s + (n - (size_t)(at - back) - m) : NULL;
    }
    free(back);
    return at;
}

/* How many tokens come before the text of the user's last message: another question may begin
 * there. It is found in what the template wrote, so no template need be known. */
static int find_parting(const struct server *s, const struct cb_chat *how,
                        const struct cb_message *msg, int n, const json_t *list,
                        struct chat_prompt *p)
{
    const json_t *m = json_array_get(list, json_array_size(list) - 1);
    const char *said = json_string_value(json_object_get(m, "content"));
    const char *at = said && *said ? last_place(p->text, said) : NULL;
    enum { MARGIN = 2 };
    int32_t *rest = NULL;
    int n_rest = 0, same = 0, rc;

    if (!at || at == p->text)
        return CB_OK;
    rc = cb_chat_tokenize(s->m.model, how, msg, n, 1, (size_t)(at - p->text), &rest, &n_rest);
    while (!rc && same < n_rest && same < p->n &&
           p->ids[p->n - 1 - same] == rest[n_rest - 1 - same])
        same++;
    if (same) /* where a blank goes in front of a text, its first token is another one */
        p->parting = p->n - same - (same < n_rest ? MARGIN : 0);
    p->parting = p->parting < 0 ? 0 : p->parting;
    free(rest);
    return rc;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    const size_t m = strlen(end);

    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return n >= m && !memcmp(s + n - m, end, m);
}

/* ---- an answer that has begun ---- */

/* Appends text s[n] that the assistant has said. marks: it may spell special tokens. */
static int add_said(const struct server *s, const char *text, int marks, struct chat_prompt *p)
{
    const size_t n = strlen(text), had = strlen(p->text);
    const int gap = s->info.space_prefix && !marks;
    int32_t *ids = NULL, *line = NULL;
    int n_ids = 0, n_line = 0, rc;
    struct buf all = { 0 };
    char *whole;

    /* after a line end, no blank is put in front of the text */
    cb_buf_text(&all, gap ? "\n" : "");
    cb_buf_text(&all, text);
    rc = all.failed
             ? no_memory()
             : cb_tokenize(s->m.model, all.s, all.n, marks ? CB_TOK_SPECIAL : 0, &ids, &n_ids);
    if (!rc && gap)
        rc = cb_tokenize(s->m.model, "\n", 1, 0, &line, &n_line);
    if (n_line > n_ids || (n_line && memcmp(ids, line, (size_t)n_line * sizeof *ids) != 0))
        n_line = 0;
    if (!rc)
        rc = cb_append_i32(&p->ids, &p->n, ids + n_line, n_ids - n_line);
    whole = rc ? NULL : cb_realloc(p->text, had + n + 1, 1);
    if (whole) {
        memcpy(whole + had, text, n + 1);
        p->text = whole;
    } else if (!rc) {
        rc = CB_ENOMEM;
    }
    cb_buf_free(&all);
    free(ids);
    free(line);
    return rc;
}

/* The assistant's last message after the template's opening of its turn */
static int add_unfinished(const struct server *s, const json_t *m, struct chat_prompt *p)
{
    const char *text = json_string_value(json_object_get(m, "content"));
    const char *thought = json_string_value(json_object_get(m, "reasoning_content"));
    const int has_text = text && *text, has_thought = thought && *thought;

    if (p->begin == REPLY_IN_CHANNELS && has_text)
        TRY(add_said(s, "<|channel|>final<|message|>", 1, p));
    if (p->begin == REPLY_BEGINS && has_thought)
        TRY(add_said(s, "<think>\n", 1, p));
    if (p->begin != REPLY_IN_CHANNELS && has_thought) {
        TRY(add_said(s, thought, 0, p));
        p->begin = REPLY_IN_THOUGHT;
    }
    if (!has_text)
        return CB_OK;
    if (p->begin == REPLY_IN_THOUGHT)
        TRY(add_said(s, "\n</think>\n\n", 1, p));
    p->begin = REPLY_IN_TEXT;
    return add_said(s, text, 0, p);
}

/* Takes the last message out of the list if the answer is to continue it. */
static int take_unfinished(const json_t *request, json_t *list, struct unfinished *out)
{
    const size_t n = json_array_size(list);
    json_t *last = json_array_get(list, n - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    int wanted = 0, asked = 0;

    TRY(cb_field_flag(request, "continue_final_message", &wanted));
    TRY(cb_field_flag(request, "add_generation_prompt", &asked));
    if (cb_field(request, "continue_final_message") ? !wanted : asked)
        return CB_OK;
    if (!role || strcmp(role, "assistant") || json_object_get(last, "tool_calls"))
        return wanted ? cb_fail(CB_EARG, "continue_final_message: the last message is not a text "
                                         "of the assistant")
                      : CB_OK;
    out->message = json_incref(last);
    return json_array_remove(list, n - 1) ? no_memory() : CB_OK;
}

/* ---- the prompt ---- */

/* A conversation in the words of the template */
struct rendering {
    const json_t *list;
    struct cb_chat how;
    struct cb_message *msg; /* [n] */
    int n;
    char *vars_text, *text;
};

static void free_rendering(struct rendering *r)
{
    free(r->msg);
    free(r->vars_text);
    free(r->text);
    *r = (struct rendering){ 0 };
}

static int render(const struct server *s, const json_t *list, json_t *vars, const json_t *tools,
                  struct rendering *r)
{
    *r = (struct rendering){ .list = list, .how = { s->m.chat.form, NULL } };
    if (s->fit.jinja && json_object_set(vars, "messages", (json_t *)(uintptr_t)list))
        return no_memory();
    if (s->fit.jinja && s->fit.tools && tools &&
        json_object_set(vars, "tools", (json_t *)(uintptr_t)tools))
        return no_memory();
    if (json_object_size(vars)) {
        r->how.vars = r->vars_text = cb_json_dumps(vars, JSON_COMPACT);
        if (!r->vars_text)
            return no_memory();
    }
    if (!s->fit.jinja)
        TRY(as_messages(list, &r->msg, &r->n));
    return cb_chat_text(s->m.model, &r->how, r->msg, r->n, 1, &r->text);
}

/* Bytes at the front of the text whose tokens are remembered */
static size_t remembered(const struct server *s, const struct rendering *r)
{
    int32_t *ids;
    int n;
    const size_t bytes = cb_token_history_find(s->transcripts, r->text, strlen(r->text), &ids, &n);

    if (bytes)
        free(ids);
    return bytes;
}

/* Is the conversation as the model wrote it better than the one in the template's own words? It is
 * if more of it is remembered. Some templates look for the calls that results belong to: what
 * follows the last such turn must be what it is where the template sees the calls. */
static int is_better(const struct server *s, const struct rendering *written, const json_t *last,
                     const struct rendering *own)
{
    const char *raw = json_string_value(last), *at = last_place(written->text, raw);
    const size_t n_own = strlen(own->text), n = at ? strlen(at) - strlen(raw) : 0;

    return at && n <= n_own && !memcmp(own->text + n_own - n, at + strlen(raw), n) &&
           remembered(s, written) >= remembered(s, own);
}

static int put_rendering(const struct server *s, struct rendering *r, struct chat_prompt *p)
{
    p->text = r->text;
    r->text = NULL;
    TRY(tokenize(s, &r->how, r->msg, r->n, p));
    TRY(find_parting(s, &r->how, r->msg, r->n, r->list, p));
    p->begin = ends_with(p->text, "<think>")              ? REPLY_IN_THOUGHT
               : ends_with(p->text, "<|start|>assistant") ? REPLY_IN_CHANNELS
                                                          : REPLY_BEGINS;
    return CB_OK;
}

/* written: the same conversation with turns as the model wrote them, the last of which is `last`;
 * or NULL. A template may refuse either. */
static int render_better(const struct server *s, const json_t *list, const json_t *written,
                         const json_t *last, json_t *vars, struct chat_prompt *p)
{
    struct rendering a = { 0 }, b = { 0 };
    int rc_b = written ? render(s, written, vars, p->tools, &b) : CB_EARG;
    int rc = rc_b == CB_ENOMEM ? rc_b : render(s, list, vars, p->tools, &a);

    if (rc != CB_ENOMEM) {
        const int use_b = !rc_b && (rc || is_better(s, &b, last, &a));
        if (use_b || !rc)
            rc = put_rendering(s, use_b ? &b : &a, p);
    }
    free_rendering(&a);
    free_rendering(&b);
    return rc;
}

static int make(const struct server *s, const json_t *request, json_t *list, json_t *vars,
                struct unfinished *u, struct chat_prompt *p)
{
    json_t *written = NULL, *last = NULL;
    int fit = 1, rc;

    TRY(cb_field_flag(request, "fit_template", &fit));
    TRY(take_unfinished(request, list, u));
    if (!fit && p->tools && !s->fit.tools)
        return cb_fail(CB_EARG, "tools: the model's chat template has no place for them");
    rc = cb_chat_as_written(list, &written, &last);
    if (!rc && fit)
        rc = cb_template_mend(&s->fit, list, p->tools);
    if (!rc && fit && written)
        rc = cb_template_mend(&s->fit, written, p->tools);
    if (!rc)
        rc = render_better(s, list, written, last, vars, p);
    json_decref(written);
    json_decref(last);
    TRY(rc);
    return u->message ? add_unfinished(s, u->message, p) : CB_OK;
}

int cb_chat_prompt(const struct server *s, const json_t *request, struct chat_prompt *out)
{
    json_t *list = NULL, *vars = NULL;
    struct unfinished u = { NULL };
    struct chat_tools tools;
    int rc;

    *out = (struct chat_prompt){ 0 };
    rc = cb_chat_tools(request, &out->ignored, &tools);
    out->tools = json_incref(tools.list);
    out->choice = json_incref(tools.choice);
    out->one_call = tools.one;
    cb_chat_tools_free(&tools);
    if (!rc)
        rc = cb_chat_messages(s, request, &out->ignored, &list);
    if (!rc)
        rc = variables(s, request, &vars);
    if (!rc)
        rc = make(s, request, list, vars, &u, out);
    if (!rc && cb_exchange_lacks()) /* a part is missing that nobody was told of */
        rc = no_memory();
    json_decref(u.message);
    json_decref(list);
    json_decref(vars);
    return rc;
}

void cb_chat_prompt_free(struct chat_prompt *p)
{
    free(p->ids);
    free(p->text);
    json_decref(p->tools);
    json_decref(p->choice);
    json_decref(p->ignored);
    *p = (struct chat_prompt){ 0 };
}
