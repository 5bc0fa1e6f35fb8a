/* SPDX-License-Identifier: MIT */
/* chat_conversation.c - the conversation of ctxbank chat: turns, and what can be taken back. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "chat.h"
#include "cli/output/log.h"
#include "terminal.h"

int cb_chat_begin(struct chat *c)
{
    cb_timeline_cancel(c);
    while (c->n)
        cb_messages_drop(c);
    if (c->first_docs.n || c->fresh_bank)
        cb_timeline_forget(c); /* some of what is there may be of use */
    else
        TRY(cb_timeline_empty(c));
    cb_buf_clear(&c->docs);
    c->stopped = 0;
    if (c->first_docs.n)
        TRY(cb_buf_put(&c->docs, c->first_docs.s, c->first_docs.n));
    return c->system ? cb_messages_add(c, "system", c->system, 0) : CB_OK;
}

void cb_chat_free(struct chat *c)
{
    cb_timeline_cancel(c);
    while (c->n)
        cb_messages_drop(c);
    free(c->msg);
    free(c->before);
    free(c->n_doc);
    cb_buf_free(&c->docs);
    cb_buf_free(&c->first_docs);
    cb_buf_free(&c->system_file);
    cb_buf_free(&c->fed);
    cb_buf_free(&c->policy);
    cb_buf_free(&c->bank);
    cb_wrap_free(&c->wrap);
}

int cb_chat_pending(const struct chat *c)
{
    return c->n && !strcmp(c->msg[c->n - 1].role, "user");
}

/* ---- an answer ---- */

static int emit(void *arg, const char *s, size_t n)
{
    struct chat *c = arg;

    return isatty(STDOUT_FILENO) ? cb_wrap_put(&c->wrap, s, n) : cb_out_text(s, n);
}

/* What the timeline holds after an answer. Where it lacks tokens of the answer, or has more than
 * its text, the next turn compares the tokens after the prompt. */
static int note_answer(struct chat *c, const char *all, int n, const struct generation *gen)
{
    const int len = cb_session_len(c->e.session), prompt = c->here.at + n;
    const int whole = !gen->stopped_text && len == prompt + gen->n + (gen->end >= 0);

    cb_buf_clear(&c->fed);
    TRY(cb_buf_put(&c->fed, all, strlen(all)));
    if (whole)
        TRY(cb_buf_put(&c->fed, gen->text.s, gen->text.n));
    c->here = (struct place){ whole ? len : prompt, c->fed.n, whole ? gen->end : -1 };
    c->ready = -1;
    return CB_OK;
}

static int answer(struct chat *c, struct generation *gen)
{
    const struct generate g = {
        .e = &c->e,
        .o = c->o,
        .max_tokens = cb_opt_int(c->o, ARG_PREDICT),
        .emit = emit,
        .emit_arg = c,
        .keep_turn = 1,
        .fed = 1,
        .again = c->n_again,
    };
    const int n_prompt = gen->n_prompt;
    const double prompt_s = gen->prompt_s;
    int32_t *ids;
    char *all;
    int n, rc = cb_timeline_feed(c, &all, &ids, &n, gen);

    if (rc == TURN_OK) {
        const struct generation fed = *gen;
        c->wrap.width = cb_terminal_columns(STDOUT_FILENO);
        rc = cb_generate(&g, ids, n, gen);
        gen->n_prompt = n_prompt + fed.n_prompt;
        gen->prompt_s = prompt_s + fed.prompt_s;
        if (!rc)
            rc = cb_wrap_end(&c->wrap);
        if (!rc)
            rc = note_answer(c, all, n, gen);
    }
    free(ids);
    free(all);
    return rc;
}

static void note_end(const struct chat *c, const struct generation *gen)
{
    if (gen->full)
        cb_log_note(
            "the context of %d tokens is full: /undo takes the last turn back, /clear begins "
            "again, /policy streamingllm %lld continues with the first and the newest tokens",
            c->e.n_ctx, 2 * (long long)c->e.n_ctx);
    else
        cb_note_cut(c->o, gen);
    if (c->show_stats || cb_opt_flag(c->o, ARG_VERBOSE))
        cb_chat_stats(c);
}

static void keep_figures(struct chat *c, const struct generation *gen)
{
    c->last = *gen;
    c->last.ids = NULL;
    c->last.text = (struct buf){ 0 };
}

/* Answers the last message. */
static int say(struct chat *c)
{
    struct generation gen = { 0 };
    int rc = answer(c, &gen);

    if (rc == TURN_OK) {
        if (!gen.text.n || gen.text.s[gen.text.n - 1] != '\n' || !c->tty)
            putchar('\n');
        rc = cb_out_flush();
    }
    if (rc == TURN_OK && (gen.n || !cb_interrupted()))
        rc = cb_messages_add(c, "assistant", gen.text.s, 0);
    if (rc == TURN_OK) {
        keep_figures(c, &gen);
        note_end(c, &gen);
    }
    cb_generation_free(&gen);
    return rc;
}

/* ---- turns ---- */

/* Ctrl-C is caught once in a pipe, and at all times in a terminal. */
static void catch_interrupt(const struct chat *c)
{
    if (c->tty)
        cb_interrupt_forget();
    else
        cb_interrupt_catch();
}

static void release_interrupt(struct chat *c)
{
    if (cb_interrupted() && cb_interrupted() != SIGINT)
        c->leave = cb_interrupt_status(CB_ECANCEL);
    if (!c->tty)
        cb_interrupt_clear();
    else if (!c->leave)
        cb_interrupt_forget();
}

/* Puts the documents, if any, in front of the message, and what --in-prefix and its like say. */
static int add_user(struct chat *c, const char *text)
{
    const char *prefix = cb_opt_text(c->o, ARG_IN_PREFIX);
    const char *suffix = cb_opt_text(c->o, ARG_IN_SUFFIX);
    struct buf whole = { 0 };
    const size_t n_doc = c->docs.n;
    int rc = n_doc ? cb_buf_put(&whole, c->docs.s, n_doc) : CB_OK;

    if (!rc && prefix)
        rc = cb_put_text(c->o, prefix, &whole);
    if (!rc)
        rc = cb_buf_put(&whole, text, strlen(text));
    if (!rc && suffix)
        rc = cb_put_text(c->o, suffix, &whole);
    if (!rc)
        rc = cb_messages_add(c, "user", whole.s, n_doc);
    if (!rc)
        cb_buf_clear(&c->docs);
    cb_buf_free(&whole);
    return rc;
}

/* Takes message i back, and all after it; its documents wait for another message. */
static int take_back(struct chat *c, int i)
{
    struct buf docs = { 0 };
    int rc = CB_OK;

    if (c->n_doc[i])
        rc = cb_buf_put(&docs, c->msg[i].text, c->n_doc[i]);
    if (!rc && c->docs.n)
        rc = cb_buf_put(&docs, c->docs.s, c->docs.n);
    if (rc) {
        cb_buf_free(&docs);
        return rc;
    }
    cb_buf_free(&c->docs);
    c->docs = docs;
    if (c->before[i].at < 0)
        cb_timeline_forget(c);
    else
        c->here = c->before[i];
    c->looked_ahead = 0;
    while (c->n > i)
        cb_messages_drop(c);
    return CB_OK;
}

static int last_user(const struct chat *c)
{
    int i = c->n - 1;

    while (i >= 0 && strcmp(c->msg[i].role, "user"))
        i--;
    return i;
}

static void note_stopped(const struct chat *c)
{
    const int percent = cb_timeline_percent(c);

    if (c->leave)
        return;
    if (percent >= 0)
        cb_log_note("stopped after %d %% of the prompt: /again continues, another message or /undo "
                    "takes this one back",
                    percent);
    else
        cb_log_note("stopped: /again continues, another message or /undo takes this one back");
}

/* Answers the last message; takes it back if that fails. */
static int reply(struct chat *c, int rc)
{
    struct buf why = { 0 };

    if (!rc)
        rc = say(c);
    release_interrupt(c);
    if (rc == TURN_STOPPED || (!rc && cb_chat_pending(c)))
        note_stopped(c);
    if (rc >= 0)
        return CB_OK;
    if (rc != CB_EIO && cb_chat_pending(c) && !cb_buf_put(&why, cb_error(), strlen(cb_error())))
        (void)(take_back(c, last_user(c)) || cb_fail(rc, "%s", why.s));
    cb_buf_free(&why);
    return rc;
}

int cb_chat_turn(struct chat *c, const char *text)
{
    int rc;

    if (cb_chat_pending(c)) {
        cb_log_note("the message before, which was stopped, is taken back");
        TRY(take_back(c, last_user(c)));
    }
    c->n_again = 0;
    c->stopped = 0;
    catch_interrupt(c);
    rc = cb_timeline_ahead(c, 1);
    if (rc < 0) {
        release_interrupt(c);
        return rc;
    }
    TRY(add_user(c, text));
    return reply(c, rc);
}

int cb_chat_again(struct chat *c)
{
    const int user = last_user(c);

    if (user < 0)
        return cb_fail(CB_EARG, "/again: there is no message yet");
    if (!cb_chat_pending(c)) {
        cb_messages_drop(c);
        c->n_again++;
        if (cb_opt_real(c->o, ARG_TEMP) <= 0)
            cb_log_note("at temperature 0 the answer is the same");
    }
    if (c->before[user].at < 0)
        cb_timeline_forget(c);
    else
        c->here = c->before[user];
    catch_interrupt(c);
    return reply(c, CB_OK);
}

int cb_chat_undo(struct chat *c)
{
    const int user = last_user(c), answered = !cb_chat_pending(c);

    if (user < 0)
        return cb_fail(CB_EARG, "/undo: there is no message to take back");
    c->n_again = 0;
    TRY(take_back(c, user));
    cb_log_note("the last message %s taken back%s", answered ? "and its answer are" : "is",
                c->docs.n ? "; its documents stay" : "");
    return CB_OK;
}

/* ---- what commands change ---- */

int cb_chat_add_file(struct chat *c, const char *path)
{
    const size_t before = c->docs.n;
    int rc;

    if (cb_chat_pending(c))
        return cb_fail(CB_EARG, "/file: first /again or /undo the message that was stopped");
    rc = cb_messages_document(&c->docs, path);
    if (!rc)
        rc = cb_timeline_documents_fit(c);
    if (rc && c->docs.s) {
        c->docs.n = before;
        c->docs.s[before] = '\0';
    }
    c->looked_ahead = 0;
    c->stopped = 0;
    return rc;
}

/* The conversation continues in another session. */
int cb_chat_policy(struct chat *c, const char *policy, int n_ctx)
{
    cb_session *old = c->e.session;
    const int old_ctx = c->e.n_ctx;
    struct buf name = { 0 };
    int rc;

    if (c->base || c->fresh_bank)
        return cb_fail(CB_EARG, "/policy: the context of a saved bank keeps its policy");
    cb_timeline_cancel(c);
    TRY(cb_buf_put(&name, policy, strlen(policy)));
    c->e.session = NULL;
    rc = cb_engine_session(c->o, &c->e, name.s, n_ctx ? n_ctx : old_ctx);
    if (!rc)
        rc = cb_engine_sampling(c->o, &c->e);
    if (rc) {
        cb_session_close(c->e.session);
        c->e.session = old;
        c->e.n_ctx = old_ctx;
        cb_buf_free(&name);
        return rc;
    }
    cb_session_close(old);
    cb_buf_free(&c->policy);
    c->policy = name;
    cb_timeline_forget(c);
    return CB_OK;
}

void cb_chat_stats(const struct chat *c)
{
    const char *dim = c->colour ? "\033[2m" : "", *off = c->colour ? "\033[0m" : "";
    struct cb_memory m;

    cb_session_memory(c->e.session, &m);
    if (c->last.n)
        cb_note_timings(&c->e, &c->last);
    fprintf(stderr, "%spolicy %s, %d tokens of conversation, %d to %d a layer in a context of %d",
            dim, c->policy.s, cb_session_len(c->e.session), m.kept_min, m.kept_max, c->e.n_ctx);
    if (m.kv_read_bytes_per_token && m.kv_bytes)
        fprintf(stderr, ", a token reads %.1f MiB (%.0f %% of the bank)",
                (double)m.kv_read_bytes_per_token / 1048576,
                100 * (double)m.kv_read_bytes_per_token / (double)m.kv_bytes);
    fprintf(stderr, "%s\n", off);
}
