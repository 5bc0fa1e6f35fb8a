/* SPDX-License-Identifier: MIT */
/* conversation_text.c - a conversation to one prompt text: by the model's own template or a
 * built-in form. */
#include "conversation_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "jinja/jinja.h"
#include "jinja/json_read.h"
#include "jinja/members.h"

enum {
    MAX_TEMPLATE = 1 << 20, /* bytes of source */
    MB = 1 << 20
};

struct source { /* a template in Jinja */
    const char *s;
    size_t n; /* 0: there is none */
};

/* ---- which template ---- */

static int own_source(const struct gguf *g, struct source *out)
{
    struct gguf_str s = { "", 0 };

    if (g)
        TRY(cb_gguf_string(g, "tokenizer.chat_template", &s));
    *out = (struct source){ s.s, s.n };
    return CB_OK;
}

static int is_source(const char *form)
{
    return strstr(form, "{{") || strstr(form, "{%");
}

static int parse(struct jrun *r, const struct source *src, const struct node **out)
{
    if (src->n > MAX_TEMPLATE)
        return cb_fail(CB_EUNSUPPORTED, "chat template: %zu bytes are more than %d", src->n,
                       MAX_TEMPLATE);
    return cb_jinja_parse(r, src->s, src->n, out);
}

static int understood(const struct source *src)
{
    const struct jinja_limits limits = { 64 * MB, 1, 10 * MB, 200 };
    const struct node *t;
    struct jrun r;
    int rc;

    cb_jrun_open(&r, &limits);
    rc = parse(&r, src, &t);
    cb_jrun_close(&r);
    return rc;
}

int cb_chat_check_own(const struct gguf *g)
{
    struct source src;

    TRY(own_source(g, &src));
    return src.n ? understood(&src) : CB_OK;
}

/* The template to run -> *src, or, if src->n is 0, the built-in form -> *f */
static int choose(const struct gguf *g, const char *form, struct source *src,
                  const struct chat_form **f)
{
    const int own = !form || !strcmp(form, "jinja");

    *src = (struct source){ form, form ? strlen(form) : 0 };
    if (!own && is_source(form))
        return CB_OK;
    if (!own) {
        src->n = 0;
        return cb_chat_form(g, form, f);
    }
    TRY(own_source(g, src));
    if (form && !src->n)
        return cb_fail(CB_EUNSUPPORTED, "tokenizer.chat_template: the model has none");
    if (src->n && (form || understood(src) == CB_OK))
        return CB_OK;
    src->n = 0;
    return cb_chat_form(g, NULL, f);
}

const char *cb_chat_default(const struct gguf *g)
{
    const struct chat_form *f;
    struct source src;

    if (choose(g, NULL, &src, &f) < 0)
        return NULL;
    return src.n ? "jinja" : cb_chat_form_name(f);
}

/* ---- the template's variables ---- */

/* Roles that are the format's words: a template may make a mark of one, such as <|user|>. */
static int is_role(const struct jv *v)
{
    static const char *const roles[] = {
        "system",        "user",  "assistant", "tool",    "developer", "function",
        "tool_response", "model", "ipython",   "chatbot", "tool_call", "tool_results",
    };

    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (cb_jis(v, roles[i]))
            return 1;
    return 0;
}

/* The known roles of the messages count as the template's own text. */
static int trust_roles(struct jrun *r, const struct jv *messages)
{
    for (size_t i = 0; i < messages->list->n; i++) {
        const struct jv *m = &messages->list->at[i], *role;
        if (m->kind != J_DICT)
            return cb_fail(CB_EARG, "conversation: message %zu is not an object", i);
        TRY(cb_jdict_at(r, m->dict, "role", &role));
        if (!role || role->kind != J_STR)
            return cb_fail(CB_EARG, "conversation: message %zu has no role", i);
        if (is_role(role)) {
            struct jv own = *role;
            own.str.own = NULL;
            TRY(cb_jdict_set(r, m->dict, "role", own));
        }
    }
    return CB_OK;
}

static int put_messages(struct jrun *r, const struct cb_message *msg, int n, struct jv *vars)
{
    struct jv list;

    TRY(cb_jlist_new(r, (size_t)n, &list));
    for (int i = 0; i < n; i++) {
        struct jv m, role, text;
        TRY(cb_jdict_new(r, &m));
        TRY(cb_jgiven(r, msg[i].role, strlen(msg[i].role), &role));
        TRY(cb_jgiven(r, msg[i].text, strlen(msg[i].text), &text));
        TRY(cb_jdict_set(r, m.dict, "role", role));
        TRY(cb_jdict_set(r, m.dict, "content", text));
        TRY(cb_jlist_add(r, &list, &m));
    }
    return cb_jdict_set(r, vars->dict, "messages", list);
}

/* The spelling of the token whose id is at `key`, as the variable `name` */
static int put_token(struct jrun *r, const struct gguf *g, const char *key, const char *name,
                     struct jv *vars)
{
    const struct gguf_kv *kv = NULL;
    struct gguf_str s;
    int64_t id = -1;

    if (!g || cb_gguf_i64(g, key, &id) != 1 ||
        cb_gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &kv) != 1 || id < 0 ||
        (uint64_t)id >= kv->n)
        return CB_OK;
    s = cb_gguf_array_str(kv, (uint64_t)id);
    return cb_jdict_set(r, vars->dict, name, cb_jstr_of((struct jstr){ s.s, NULL, s.n }));
}

static int make_vars(struct jrun *r, const struct gguf *g, const struct cb_chat *how,
                     const struct cb_message *msg, int n, int ask, struct jv *vars)
{
    const struct jv *messages;

    TRY(cb_jdict_new(r, vars));
    TRY(put_messages(r, msg, n, vars));
    TRY(cb_jdict_set(r, vars->dict, "add_generation_prompt", cb_jbool(ask)));
    TRY(put_token(r, g, "tokenizer.ggml.bos_token_id", "bos_token", vars));
    TRY(put_token(r, g, "tokenizer.ggml.eos_token_id", "eos_token", vars));
    if (how && how->vars) {
        struct jv more;
        TRY(cb_jread(r, how->vars, strlen(how->vars), &more));
        if (more.kind != J_DICT)
            return cb_fail(CB_EARG, "chat-template-kwargs: not a JSON object");
        for (size_t i = 0; i < more.dict->n; i++)
            TRY(cb_jdict_put(r, vars->dict, &more.dict->at[i].key, &more.dict->at[i].value));
    }
    TRY(cb_jdict_at(r, vars->dict, "messages", &messages));
    if (messages->kind != J_LIST)
        return cb_fail(CB_EARG, "conversation: \"messages\" is not a list");
    return trust_roles(r, messages);
}

/* ---- system messages ---- */

static const struct jv *text_of(struct jrun *r, const struct jv *messages, size_t i,
                                const char *role)
{
    const struct jv *v;

    if (i >= messages->list->n || cb_jdict_at(r, messages->list->at[i].dict, "role", &v) < 0 ||
        !cb_jis(v, role) || cb_jdict_at(r, messages->list->at[i].dict, "content", &v) < 0)
        return NULL;
    return v && v->kind == J_STR && v->str.n ? v : NULL;
}

/* A copy of the variables without the system message at the front. merge: its text stands before
 * the user's first one. *done = 0: there is no such message. */
static int without_system(struct jrun *r, const struct jv *vars, int merge, struct jv *out,
                          int *done)
{
    const struct jv *messages, *system, *user;
    struct jout o = { .r = r };
    struct jv list, first;

    TRY(cb_jdict_at(r, vars->dict, "messages", &messages));
    system = text_of(r, messages, 0, "system");
    user = text_of(r, messages, 1, "user");
    *done = system && user;
    if (!*done)
        return CB_OK;
    TRY(cb_jout_put(&o, system->str));
    TRY(cb_jout_text(&o, "\n\n"));
    TRY(cb_jout_put(&o, user->str));
    TRY(cb_jdict_new(r, &first));
    TRY(cb_jdict_set(r, first.dict, "role", cb_jtext("user")));
    TRY(cb_jdict_set(r, first.dict, "content", merge ? cb_jout_str(&o) : *user));
    TRY(cb_jlist_new(r, messages->list->n, &list));
    TRY(cb_jlist_add(r, &list, &first));
    for (size_t i = 2; i < messages->list->n; i++)
        TRY(cb_jlist_add(r, &list, &messages->list->at[i]));
    TRY(cb_jdict_new(r, out));
    for (size_t i = 0; i < vars->dict->n; i++)
        TRY(cb_jdict_put(r, out->dict, &vars->dict->at[i].key, &vars->dict->at[i].value));
    return cb_jdict_set(r, out->dict, "messages", list);
}

/* Some templates refuse a system message, and some leave it out. Then its text goes in front of the
 * user's first one, as others write it. */
static int render_all(struct jrun *r, const struct node *t, const struct jv *vars, struct jstr *out)
{
    const int rc = cb_jinja_render(r, t, vars, out);
    struct jstr other;
    struct jv less;
    int has, again;

    if (rc != CB_OK && rc != CB_EARG)
        return rc;
    again = without_system(r, vars, 0, &less, &has);
    if (again < 0 || !has)
        return rc;
    again = cb_jinja_render(r, t, &less, &other);
    if (again == CB_OK && (rc < 0 || (out->n == other.n && !memcmp(out->s, other.s, out->n)))) {
        TRY(without_system(r, vars, 1, &less, &has));
        return cb_jinja_render(r, t, &less, out);
    }
    return rc < 0 ? cb_jinja_render(r, t, vars, out) : rc; /* for the first failure's text */
}

/* ---- the text ---- */

/* The stretches that values wrote */
static int own_ranges(const struct jstr *s, struct chat_text *out)
{
    size_t n = 0;

    for (size_t i = 0; s->own && i < s->n; i++)
        n += s->own[i] && (!i || !s->own[i - 1]);
    out->own = cb_calloc(n + 1, sizeof *out->own);
    if (!out->own)
        return CB_ENOMEM;
    for (size_t i = 0; s->own && i < s->n; i++) {
        if (!s->own[i])
            continue;
        if (!i || !s->own[i - 1])
            out->own[out->n_own++].from = i;
        out->own[out->n_own - 1].to = i + 1;
    }
    return CB_OK;
}

static int to_text(struct jrun *r, const struct jv *vars, const struct jstr *s,
                   struct chat_text *out)
{
    const struct jv *bos;

    if (s->n && memchr(s->s, 0, s->n))
        return cb_fail(CB_EARG, "conversation: a text has a NUL byte");
    TRY(cb_jdict_at(r, vars->dict, "bos_token", &bos));
    out->has_bos = bos && bos->kind == J_STR && bos->str.n && s->n >= bos->str.n &&
                   !memcmp(s->s, bos->str.s, bos->str.n) && !(s->own && s->own[0]);
    TRY(own_ranges(s, out));
    out->s = cb_calloc(s->n + 1, 1);
    if (!out->s)
        return CB_ENOMEM;
    memcpy(out->s, s->s, s->n);
    out->n = s->n;
    return CB_OK;
}

static struct jinja_limits limits_for(const struct source *src, const struct cb_chat *how,
                                      const struct cb_message *msg, int n)
{
    size_t in = src->n + (how && how->vars ? strlen(how->vars) : 0);

    for (int i = 0; i < n; i++)
        in += strlen(msg[i].text) + 64;
    return (struct jinja_limits){ .memory_bytes = 64 * MB + 64 * in,
                                  .output_bytes = MB + 8 * in,
                                  .steps = 20 * MB + in,
                                  .depth = 200 };
}

static int run(struct jrun *r, const struct gguf *g, const struct source *src,
               const struct cb_chat *how, const struct cb_message *msg, int n, int ask,
               struct chat_text *out)
{
    const time_t now = time(NULL);
    struct jstr text = { "", NULL, 0 };
    const struct jv *messages;
    const struct node *t;
    struct jv vars;

    if (!localtime_r(&now, &r->now))
        r->now = (struct tm){ .tm_mday = 1, .tm_year = 70 };
    TRY(parse(r, src, &t));
    TRY(make_vars(r, g, how, msg, n, ask, &vars));
    TRY(cb_jdict_at(r, vars.dict, "messages", &messages));
    if (messages->list->n || ask)
        TRY(render_all(r, t, &vars, &text));
    return to_text(r, &vars, &text, out);
}

static int render_source(const struct gguf *g, const struct source *src, const struct cb_chat *how,
                         const struct cb_message *msg, int n, int ask, struct chat_text *out)
{
    const struct jinja_limits limits = limits_for(src, how, msg, n);
    struct jrun r;
    int rc;

    cb_jrun_open(&r, &limits);
    rc = run(&r, g, src, how, msg, n, ask, out);
    cb_jrun_close(&r);
    if (rc < 0)
        cb_chat_text_free(out);
    return rc;
}

int cb_chat_render(const struct gguf *g, const struct cb_chat *how, const struct cb_message *msg,
                   int n, int ask, struct chat_text *out)
{
    const int has_vars = how && how->vars;
    const struct chat_form *f;
    struct source src;

    *out = (struct chat_text){ 0 };
    TRY(choose(g, how ? how->form : NULL, &src, &f));
    if (!src.n && has_vars)
        return cb_fail(CB_EUNSUPPORTED, "chat: the built-in form %s has no variables",
                       cb_chat_form_name(f));
    if (!src.n)
        return cb_chat_form_render(g, f, msg, n, ask, out);
    return render_source(g, &src, how, msg, n, ask, out);
}
