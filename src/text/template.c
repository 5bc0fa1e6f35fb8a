/* SPDX-License-Identifier: MIT */
/* template.c - chat forms as rows of a table: the marks around the turns of a conversation. */
#include "template.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/suggest.h"

/* In the strings of a row: */
#define BOS "\1" /* the model's token for the beginning of a text */
#define EOS "\2" /* the token for its end */
#define GAP "\3" /* a space, unless the tokenizer itself puts one after a special token */

enum { SYSTEM, USER, ASSISTANT };
enum { TRIM_ASSISTANT = 1 << ASSISTANT, TRIM_ALL = 7 };

struct chat_form {
    const char *name;
    const char *mark[3]; /* the model's own template contains each; after '!': does not */
    enum { BOS_IF_ASKED, BOS_ALWAYS } bos; /* if asked: if the model's own template names it */
    enum { OWN_TURN, FIRST_TURN, LAST_TURN } system; /* or in front of a user text */
    int trim;               /* bits: the roles whose texts are trimmed of blanks */
    const char *note;       /* opens every system text; NULL = none */
    const char *turn[3][2]; /* system, user, assistant: opening and closing */
    const char *ask;
};

/* clang-format off */
#define CHATML(role) { "<|im_start|>" role "\n", "<|im_end|>\n" }
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3(role) { HEADER(role), "<|eot_id|>" }
#define ZEPHYR(role) { "<|" role "|>\n", EOS "\n" }

/* The first row whose marks all occur is taken, so more specific rows come first. */
static const struct chat_form forms[] = {
    { "chatml", { "<|im_start|>", "!<|im_sep|>" }, BOS_IF_ASKED, OWN_TURN, 0, NULL,
      { CHATML("system"), CHATML("user"), CHATML("assistant") }, "<|im_start|>assistant\n" },
    /* Llama 3.1 and 3.2: dates open the system turn, which is always present. */
    { "llama3.1", { "<|start_header_id|>", "Cutting Knowledge Date" }, BOS_ALWAYS, OWN_TURN,
      TRIM_ALL,
      "Cutting Knowledge Date: December 2023\nToday Date: ",
      { LLAMA3("system"), LLAMA3("user"), LLAMA3("assistant") }, HEADER("assistant") },
    { "llama3", { "<|start_header_id|>" }, BOS_ALWAYS, OWN_TURN, TRIM_ALL, NULL,
      { LLAMA3("system"), LLAMA3("user"), LLAMA3("assistant") }, HEADER("assistant") },
    { "llama2", { "[INST]", "<<SYS>>" }, BOS_ALWAYS, FIRST_TURN, TRIM_ALL, NULL,
      { { "<<SYS>>\n", "\n<</SYS>>\n\n" }, { BOS "[INST] ", " [/INST]" }, { " ", " " EOS } }, "" },
    /* [INST] is text in the first version and a token of its own since the second. */
    { "mistral-v7", { "[INST]", "[SYSTEM_PROMPT]" }, BOS_ALWAYS, OWN_TURN, 0, NULL,
      { { "[SYSTEM_PROMPT]" GAP, "[/SYSTEM_PROMPT]" }, { "[INST]" GAP, "[/INST]" }, { GAP, EOS } },
      "" },
    { "mistral-v1", { "[INST]", " [/INST]" }, BOS_ALWAYS, FIRST_TURN, 0, NULL,
      { { "", "\n\n" }, { GAP "[INST] ", " [/INST]" }, { " ", EOS } }, "" },
    { "mistral-v3", { "[INST]" }, BOS_ALWAYS, LAST_TURN, TRIM_ASSISTANT, NULL,
      { { "", "\n\n" }, { "[INST]" GAP, "[/INST]" }, { GAP, EOS } }, "" },
    { "gemma", { "<start_of_turn>" }, BOS_ALWAYS, FIRST_TURN, TRIM_ALL, NULL,
      { { "", "\n\n" }, { "<start_of_turn>user\n", "<end_of_turn>\n" },
        { "<start_of_turn>model\n", "<end_of_turn>\n" } }, "<start_of_turn>model\n" },
    { "zephyr", { "'<|user|>\n' + message['content'] + eos_token" }, BOS_IF_ASKED, OWN_TURN, 0,
      NULL,
      { ZEPHYR("system"), ZEPHYR("user"), ZEPHYR("assistant") }, "<|assistant|>\n" },
};
/* clang-format on */

enum { N_FORM = sizeof forms / sizeof *forms };

static const char *const roles[3] = { "system", "user", "assistant" };

/* ---- the text ---- */

struct text {
    struct buf b;
    struct gguf_str special[3]; /* for BOS, EOS, GAP */
    struct tok_plain *own;      /* [n_own] what the messages wrote */
    size_t n_own;
};

/* Appends a string of a row */
static void put_row(struct text *t, const char *s)
{
    for (; *s; s++) {
        if (*s >= 1 && *s <= 3)
            cb_buf_add(&t->b, t->special[*s - 1].s, t->special[*s - 1].n);
        else
            cb_buf_add(&t->b, s, 1);
    }
}

static int is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum { TRIM_LEFT = 1, TRIM_RIGHT = 2 };

static void put_text(struct text *t, const char *s, int trim)
{
    size_t n = strlen(s);

    while ((trim & TRIM_RIGHT) && n && is_blank(s[n - 1]))
        n--;
    for (; (trim & TRIM_LEFT) && n && is_blank(*s); n--)
        s++;
    cb_buf_add(&t->b, s, n);
}

/* Appends the text of a message. */
static void put_own(struct text *t, const char *s, int trim)
{
    const size_t from = t->b.n;

    put_text(t, s, trim);
    if (!t->b.failed)
        t->b.failed = cb_grow_by_one(&t->own, t->n_own, sizeof *t->own) < 0;
    if (!t->b.failed)
        t->own[t->n_own++] = (struct tok_plain){ from, t->b.n };
}

/* ---- what the model's file says ---- */

/* The model's template, "\n" and "\'" unescaped -> *out, "" if there is none; the caller frees. */
static int own_template(const struct gguf *g, char **out)
{
    struct gguf_str s = { "", 0 };
    size_t n = 0;

    if (g)
        TRY(cb_gguf_string(g, "tokenizer.chat_template", &s));
    *out = cb_calloc(s.n + 1, 1);
    if (!*out)
        return CB_ENOMEM;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.s[i];
        if (c == '\\' && i + 1 < s.n) {
            c = s.s[++i];
            c = c == 'n' ? '\n' : c;
        }
        if (c) /* a NUL would hide the marks after it */
            (*out)[n++] = c;
    }
    return CB_OK;
}

/* The spelling of the token whose id is at `key` */
static struct gguf_str token_at(const struct gguf *g, const char *key, const char *otherwise)
{
    struct gguf_str s = { otherwise, strlen(otherwise) };
    const struct gguf_kv *kv = NULL;
    int64_t id = -1;

    if (g && cb_gguf_i64(g, key, &id) == 1 &&
        cb_gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING, &kv) == 1 && id >= 0 &&
        (uint64_t)id < kv->n)
        s = cb_gguf_array_str(kv, (uint64_t)id);
    return s;
}

/* The space after a special token, where the model's template writes one. SentencePiece itself
 * puts it there (tok_spm.c) unless the file turns that off; the text must not repeat it. */
static const char *gap(const struct gguf *g, const char *own)
{
    struct gguf_str s = { "", 0 };
    int yes = 1, spm;

    if (!g || cb_gguf_string(g, "tokenizer.ggml.model", &s) != 1)
        return "";
    spm = s.n == 5 && memcmp(s.s, "llama", 5) == 0;
    if (spm && (cb_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &yes) < 0 || yes))
        return "";
    return spm || strstr(own, "[INST] ") ? " " : "";
}

/* The default system text of a chatml template: the constant text between the marks of a system
 * turn. "" = none; the caller frees. */
static int default_system(const struct chat_form *f, char *own, char **out)
{
    static const char open[] = "<|im_start|>system\n", close[] = "<|im_end|>";
    enum { MOST_TURNS = 64 }; /* a template with more is hostile */
    char *p = own;
    size_t n = 0;
    int found = 0;

    if (strcmp(f->name, "chatml") != 0)
        p = own + strlen(own);
    for (int i = 0; i < MOST_TURNS && (p = strstr(p, open)); i++) {
        const char *end;
        p += sizeof open - 1;
        end = strstr(p, close);
        n = end ? (size_t)(end - p) : 0;
        found = n && !memchr(p, '{', n) && !memchr(p, '+', n);
        if (found)
            break;
    }
    p = found ? p : NULL;
    *out = cb_calloc(p ? n + 1 : 1, 1);
    if (!*out)
        return CB_ENOMEM;
    if (p)
        memcpy(*out, p, n);
    return CB_OK;
}

/* The date that a Llama 3.1 template uses by default */
static void put_day(struct text *t, const char *own)
{
    static const char key[] = "date_string = \"";
    const char *p = strstr(own, key), *end;

    p = p ? p + sizeof key - 1 : "26 Jul 2024\"";
    end = strchr(p, '"');
    cb_buf_add(&t->b, p, end ? (size_t)(end - p) : 0);
    put_text(t, "\n\n", 0);
}

/* ---- rendering ---- */

static int role_of(const char *role)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(role, roles[i]) == 0)
            return i;
    return cb_fail(CB_EARG, "chat: role \"%.40s\" is none of system, user, assistant", role);
}

struct chat {
    const struct chat_form *f;
    const char *own;
    struct text t;
    const char *pending; /* a system text that waits for the next user text */
};

static void put_turn(struct chat *c, int role, const char *text)
{
    const struct chat_form *f = c->f;
    int trim = f->trim >> role & 1 ? TRIM_LEFT | TRIM_RIGHT : 0;

    put_row(&c->t, f->turn[role][0]);
    if (role == SYSTEM && f->note) {
        put_text(&c->t, f->note, 0);
        put_day(&c->t, c->own);
    }
    if (role == USER && c->pending) {
        put_row(&c->t, f->turn[SYSTEM][0]);
        put_own(&c->t, c->pending, 0);
        put_row(&c->t, f->turn[SYSTEM][1]);
        c->pending = NULL;
        if (*f->turn[SYSTEM][0]) /* Llama 2 trims both texts as one */
            trim &= ~TRIM_LEFT;
    }
    put_own(&c->t, text, trim);
    put_row(&c->t, f->turn[role][1]);
}

static int put_all(struct chat *c, const struct cb_message *msg, int n, const char *system)
{
    const struct chat_form *f = c->f;
    int last_user = -1;

    for (int i = 0; i < n; i++) {
        TRY(role_of(msg[i].role));
        if (role_of(msg[i].role) == USER)
            last_user = i;
    }
    if ((*system || f->note) && (!n || role_of(msg[0].role) != SYSTEM))
        put_turn(c, SYSTEM, system);
    for (int i = 0; i < n; i++) {
        const int role = role_of(msg[i].role);
        const char *held = c->pending;
        if (role == SYSTEM && f->system != OWN_TURN) {
            if (i > last_user)
                return cb_fail(CB_EARG, "chat: %s has no place for a system text after the user's",
                               f->name);
            c->pending = msg[i].text;
            continue;
        }
        if (f->system == LAST_TURN && i != last_user)
            c->pending = NULL;
        put_turn(c, role, msg[i].text);
        if (f->system == LAST_TURN && i != last_user)
            c->pending = held;
    }
    return CB_OK;
}

int cb_chat_form_render(const struct gguf *g, const struct chat_form *f,
                        const struct cb_message *msg, int n, int ask, struct chat_text *out)
{
    struct chat c = { .f = f };
    char *own = NULL, *system = NULL;
    int rc = own_template(g, &own), bos;

    if (rc == CB_OK)
        rc = default_system(f, own, &system);
    if (rc < 0)
        goto done;
    c.own = own;
    c.t.special[0] = token_at(g, "tokenizer.ggml.bos_token_id", "");
    c.t.special[1] = token_at(g, "tokenizer.ggml.eos_token_id", "</s>");
    c.t.special[2] = (struct gguf_str){ gap(g, own), strlen(gap(g, own)) };
    bos = f->bos == BOS_ALWAYS || strstr(own, "bos_token");
    cb_buf_add(&c.t.b, "", 0);
    if (bos && f->turn[USER][0][0] != BOS[0])
        put_row(&c.t, BOS);
    rc = put_all(&c, msg, n, system);
    if (ask)
        put_row(&c.t, f->ask);
    if (rc == CB_OK && c.t.b.failed)
        rc = CB_ENOMEM;
    if (rc < 0)
        goto done;
    out->n = c.t.b.n;
    out->s = cb_buf_take(&c.t.b);
    out->own = c.t.own;
    out->n_own = (int)c.t.n_own;
    out->has_bos = c.t.special[0].n && out->n >= c.t.special[0].n &&
                   memcmp(out->s, c.t.special[0].s, c.t.special[0].n) == 0;
    c.t.own = NULL;
done:
    free(own);
    free(system);
    cb_buf_free(&c.t.b);
    free(c.t.own);
    return rc;
}

void cb_chat_text_free(struct chat_text *t)
{
    free(t->s);
    free(t->own);
    *t = (struct chat_text){ 0 };
}

/* ---- the table ---- */

const char *cb_chat_form_name(const struct chat_form *f)
{
    return f->name;
}

const struct chat_form *cb_chat_form_row(int i)
{
    return i >= 0 && i < N_FORM ? &forms[i] : NULL;
}

static const char *form_name(const void *ctx, int i)
{
    (void)ctx;
    return i < N_FORM ? forms[i].name : NULL;
}

static int unknown(int status, const char *what, const char *name)
{
    char list[256];

    cb_name_list(list, sizeof list, form_name, NULL);
    return cb_fail(status, "%s%s: the forms are %s", what, name, list);
}

static int has_marks(const struct chat_form *f, const char *own)
{
    for (int i = 0; i < 3 && f->mark[i]; i++)
        if (*f->mark[i] == '!' ? strstr(own, f->mark[i] + 1) != NULL : !strstr(own, f->mark[i]))
            return 0;
    return 1;
}

int cb_chat_form(const struct gguf *g, const char *name, const struct chat_form **out)
{
    char *own;
    int found = -1, empty;

    if (name) {
        for (int i = 0; i < N_FORM; i++)
            if (strcmp(name, forms[i].name) == 0)
                found = i;
        if (found < 0)
            return unknown(CB_EARG, "no chat form has the name ", name);
        *out = &forms[found];
        return CB_OK;
    }
    TRY(own_template(g, &own));
    for (int i = N_FORM - 1; i >= 0; i--)
        if (has_marks(&forms[i], own))
            found = i;
    empty = !*own;
    free(own);
    if (found < 0)
        return unknown(CB_EUNSUPPORTED, "tokenizer.chat_template: ",
                       empty ? "the model has none" : "its form is not known");
    *out = &forms[found];
    return CB_OK;
}
