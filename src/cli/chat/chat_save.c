/* SPDX-License-Identifier: MIT */
/* chat_save.c - /save and /load: the session in a bank, and the messages beside it in FILE.chat. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "base/new_file.h"
#include "chat.h"
#include "cli/options/opts_files.h"
#include "cli/output/log.h"

enum { FORMAT = 1 };

static int beside(const char *path, struct buf *out)
{
    TRY(cb_buf_put(out, path, strlen(path)));
    return cb_buf_put(out, ".chat", 5);
}

/* ---- save ---- */

static json_t *conversation(const struct chat *c)
{
    json_t *messages = json_array();

    for (int i = 0; i < c->n; i++)
        cb_json_add(&messages, json_pack("{s:s, s:o, s:I}", "role", c->msg[i].role, "text",
                                         cb_json_str(c->msg[i].text), "document_bytes",
                                         (json_int_t)c->n_doc[i]));
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "format", (int)FORMAT, "tokens",
                     cb_session_len(c->e.session), "at", c->here.at, "base", c->base, "end",
                     (int)c->here.end, "text", cb_json_text(c->fed.s ? c->fed.s : "", c->here.fed),
                     "documents", cb_json_text(c->docs.s ? c->docs.s : "", c->docs.n), "messages",
                     messages);
}

static int write_conversation(const struct chat *c, const char *path)
{
    json_t *j = conversation(c);
    char *text = j ? cb_json_dumps(j, JSON_INDENT(2)) : NULL;
    int rc;

    json_decref(j);
    if (!text)
        return cb_json_fail("conversation");
    rc = cb_new_file_save(path, text, strlen(text));
    free(text);
    return rc;
}

int cb_chat_save(struct chat *c, const char *path)
{
    const int read = cb_opts_reading(c->o, path);
    struct buf chat = { 0 };
    int rc;

    if (c->going.n)
        return cb_fail(CB_EARG, "/save: a prompt is being read; wait for its end, or /undo it");
    if (read >= 0 && read != ARG_BANK)
        return cb_fail(CB_EARG, "/save %s: the chat reads this file", path);
    rc = beside(path, &chat);
    if (!rc)
        rc = cb_session_save(c->e.session, path);
    if (!rc)
        rc = write_conversation(c, chat.s);
    if (!rc)
        cb_log_note("%s: %d tokens, and the messages in %s", path, cb_session_len(c->e.session),
                    chat.s);
    cb_buf_free(&chat);
    return rc;
}

/* ---- load ---- */

static const char *known_role(const char *name)
{
    static const char *const roles[] = { "system", "user", "assistant" };

    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(name, roles[i]))
            return roles[i];
    return NULL;
}

static int number(const json_t *j, const char *key)
{
    return (int)json_integer_value(json_object_get(j, key));
}

static int good_message(const json_t *m)
{
    const char *text = json_string_value(json_object_get(m, "text"));
    const int n_doc = number(m, "document_bytes");

    return known_role(json_string_value(json_object_get(m, "role"))) && text && n_doc >= 0 &&
           (size_t)n_doc <= strlen(text);
}

/* Do the messages belong to a session of `len` tokens? */
static int check(const json_t *j, int len, const char *path)
{
    const json_t *messages = json_object_get(j, "messages");
    const int at = number(j, "at"), base = number(j, "base");
    size_t i;
    const json_t *m;

    if (number(j, "format") != FORMAT)
        return cb_fail(CB_EUNSUPPORTED, "%s: not of format %d", path, FORMAT);
    if (number(j, "tokens") != len || at < 0 || at > len || base < 0 || base > at)
        return cb_fail(CB_EFORMAT, "%s: belongs to another bank", path);
    for (i = 0; (m = json_array_get(messages, i)); i++)
        if (!good_message(m))
            return cb_fail(CB_EFORMAT, "%s: message %zu has no role, text or document", path, i);
    return CB_OK;
}

/* The messages beside a bank -> *j, or NULL if there are none */
static int read_conversation(const char *path, json_t **j)
{
    struct buf text;
    int rc;

    *j = NULL;
    if (access(path, F_OK))
        return CB_OK;
    TRY(cb_read_file(path, &text));
    rc = cb_json_parse(text.s, text.n, path, j);
    cb_buf_free(&text);
    return rc;
}

static int put_text(struct buf *out, const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    cb_buf_clear(out);
    return cb_buf_put(out, json_is_string(v) ? json_string_value(v) : "", json_string_length(v));
}

/* What was checked takes the place of the conversation. */
static int resume_saved(struct chat *c, const json_t *j)
{
    size_t i;
    const json_t *m;
    const json_t *messages = json_object_get(j, "messages");

    while (c->n)
        cb_messages_drop(c);
    for (i = 0; (m = json_array_get(messages, i)); i++) {
        TRY(cb_messages_add(c, known_role(json_string_value(json_object_get(m, "role"))),
                            json_string_value(json_object_get(m, "text")),
                            (size_t)number(m, "document_bytes")));
        c->before[c->n - 1].at = -1;
    }
    TRY(put_text(&c->docs, j, "documents"));
    TRY(put_text(&c->fed, j, "text"));
    c->fresh_bank = 0;
    c->base = number(j, "base");
    c->here = (struct place){ number(j, "at"), c->fed.n, number(j, "end") };
    return CB_OK;
}

/* The policy that the bank was saved with */
static int saved_policy(const char *path, struct buf *out)
{
    char *about;
    json_t *j;
    const char *policy;
    int rc;

    TRY(cb_bank_describe(path, &about));
    rc = cb_json_parse(about, strlen(about), path, &j);
    free(about);
    TRY(rc);
    policy = json_string_value(json_object_get(json_object_get(j, "session"), "policy"));
    rc = cb_buf_put(out, policy ? policy : "", policy ? strlen(policy) : 0);
    json_decref(j);
    return rc;
}

/* Loads everything before anything is given up. */
static int load(struct chat *c, const char *path, cb_session **s, json_t **j)
{
    struct buf chat = { 0 };
    int rc = beside(path, &chat);

    if (!rc)
        rc = read_conversation(chat.s, j);
    if (!rc)
        rc = cb_session_load(c->e.model, path, 0, s);
    if (!rc && *j)
        rc = check(*j, cb_session_len(*s), chat.s);
    cb_buf_free(&chat);
    return rc;
}

static int replace(struct chat *c, const char *path, cb_session *s, const json_t *j)
{
    cb_timeline_cancel(c);
    cb_session_close(c->e.session);
    c->e.session = s;
    c->e.n_ctx = cb_session_n_ctx(s);
    c->base = 0;
    c->fresh_bank = 1; /* until its messages are there */
    cb_buf_clear(&c->policy);
    cb_buf_clear(&c->bank);
    cb_buf_clear(&c->first_docs);
    TRY(cb_buf_put(&c->bank, path, strlen(path)));
    TRY(saved_policy(path, &c->policy));
    TRY(cb_engine_sampling(c->o, &c->e));
    TRY(cb_chat_begin(c));
    return j ? resume_saved(c, j) : CB_OK;
}

int cb_chat_load(struct chat *c, const char *path)
{
    cb_session *s = NULL;
    json_t *j = NULL;
    int rc = load(c, path, &s, &j);

    if (rc) {
        cb_session_close(s);
    } else {
        rc = replace(c, path, s, j);
        if (!rc)
            cb_log_note("%s: %d tokens%s", path, cb_session_len(s),
                        j ? "" : "; the conversation begins after them");
    }
    json_decref(j);
    return rc;
}
