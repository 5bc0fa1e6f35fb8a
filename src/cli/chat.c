/* SPDX-License-Identifier: MIT */
/* chat.c - ctxbank chat: reads turns as lines; the session's bank persists between turns. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "cmd.h"
#include "log.h"
#include "prompt.h"

struct chat {
    const struct opts *o;
    struct engine e;
    struct chat_choice choice;
    struct cb_message *msg; /* [n] with texts of our own */
    int n, cap;
    struct buf fed; /* the text of the session's timeline */
    int32_t end;    /* the token that ended the last turn, if it is in the timeline; else -1 */
    int anew;       /* 1 = the timeline no longer matches the conversation */
    int tty;
    int leave; /* 128 + a signal other than SIGINT that ended an answer, or 0 */
};

static const char help[] = "/help   this list\n"
                           "/clear  forget the conversation\n"
                           "/exit   leave (as Ctrl-D does)\n"
                           "A line that ends in \\ goes on in the next one; \"\"\" alone on a line "
                           "begins and ends a text of many lines.\n"
                           "Ctrl-C stops an answer.\n";

/* ---- the conversation ---- */

static int add_msg(struct chat *c, const char *role, const char *text)
{
    char *own = strdup(text);

    if (own && c->n == c->cap) {
        struct cb_message *m = cb_realloc(c->msg, (size_t)c->cap * 2 + 8, sizeof *m);
        if (!m) {
            free(own);
            return CB_ENOMEM;
        }
        c->msg = m;
        c->cap = c->cap * 2 + 8;
    }
    if (!own)
        return cb_fail(CB_ENOMEM, "out of memory");
    c->msg[c->n++] = (struct cb_message){ role, own };
    return CB_OK;
}

static void drop_last(struct chat *c)
{
    union {
        const char *in;
        char *out;
    } text = { c->msg[--c->n].text }; /* add_msg's strdup */
    free(text.out);
}

static int begin(struct chat *c)
{
    const char *system = cb_opt_text(c->o, ARG_SYSTEM);

    while (c->n)
        drop_last(c);
    c->anew = 1;
    return system ? add_msg(c, "system", system) : CB_OK;
}

/* ---- input ---- */

static int read_line(const struct chat *c, const char *sign, struct buf *line)
{
    char *s = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc;

    line->n = 0;
    if (c->tty) {
        fputs(sign, stderr);
        fflush(stderr);
    }
    errno = 0;
    n = getline(&s, &cap, stdin);
    if (n > 0 && s[n - 1] == '\n')
        n--;
    rc = n < 0 ? 0 : cb_buf_put(line, s, (size_t)n) ? CB_ENOMEM : 1;
    free(s);
    return rc;
}

/* Reads a turn of one or more lines. 1 = read, 0 = end of input. */
static int read_turn(const struct chat *c, struct buf *turn)
{
    struct buf line = { 0 };
    int rc, block = 0;

    turn->n = 0;
    TRY(cb_buf_put(turn, "", 0));
    while ((rc = read_line(c, turn->n || block ? ". " : "> ", &line)) > 0) {
        if (!strcmp(line.s, "\"\"\"")) {
            block = !block;
            if (!block)
                break;
            continue;
        }
        const int more = !block && line.n && line.s[line.n - 1] == '\\';
        if (cb_buf_put(turn, line.s, line.n - (size_t)more) ||
            (block || more ? cb_buf_put(turn, "\n", 1) : 0)) {
            rc = CB_ENOMEM;
            break;
        }
        if (!block && !more)
            break;
    }
    cb_buf_free(&line);
    return rc;
}

/* ---- a turn ---- */

static int emit(void *arg, const char *s, size_t n)
{
    (void)arg;
    return cb_out_text(s, n);
}

/* A new timeline: empty, or with what a bank holds, less what it holds of the prompt ids[*n]. */
static int begin_timeline(struct chat *c, int32_t *ids, int *n)
{
    TRY(cb_context_begin(c->o, &c->e, cb_opt_int(c->o, ARG_CTX), ids, n));
    return cb_engine_sampling(c->o, &c->e);
}

/* The tokens of the conversation that the timeline lacks. Only these go through the model:
 * generated text is never tokenized again. If the rendering does not begin with the text of the
 * timeline (a template that trims answers, a --stop text), the timeline begins anew. */
static int new_ids(struct chat *c, const char *all, int32_t **ids, int *n)
{
    const size_t len = strlen(all);
    const int begins = c->anew || len < c->fed.n || memcmp(all, c->fed.s, c->fed.n);

    if (begins) {
        c->fed.n = 0;
        c->end = -1;
        c->anew = 0;
    }
    TRY(cb_chat_tokenize(c->e.model, &c->choice.how, c->msg, c->n, 1, c->fed.n, ids, n));
    if (*n && (*ids)[0] == c->end)
        memmove(*ids, *ids + 1, (size_t)-- * n * sizeof **ids);
    return begins ? begin_timeline(c, *ids, n) : CB_OK;
}

static int answer(struct chat *c, const char *all, struct generation *gen)
{
    const struct generate g = {
        .e = &c->e,
        .o = c->o,
        .max_tokens = cb_opt_int(c->o, ARG_PREDICT),
        .emit = emit,
        .keep_turn = 1,
    };
    int32_t *ids = NULL;
    int n, before, rc = new_ids(c, all, &ids, &n);

    if (!rc)
        rc = cb_check_fit(&c->e, n);
    if (!rc) {
        before = cb_session_len(c->e.session);
        rc = cb_generate(&g, ids, n, gen);
        c->anew = rc || gen->stopped_text || cb_session_len(c->e.session) < before + n + gen->n;
    }
    free(ids);
    TRY(rc);
    c->end = gen->end;
    c->fed.n = 0;
    TRY(cb_buf_put(&c->fed, all, strlen(all)));
    return cb_buf_put(&c->fed, gen->text.s, gen->text.n);
}

static int say(struct chat *c, struct generation *gen)
{
    char *all;
    int rc;

    TRY(cb_chat_text(c->e.model, &c->choice.how, c->msg, c->n, 1, &all));
    cb_interrupt_catch();
    rc = answer(c, all, gen);
    if (cb_interrupted() && cb_interrupted() != SIGINT)
        c->leave = cb_interrupt_status(CB_ECANCEL);
    cb_interrupt_clear();
    free(all);
    TRY(rc);
    putchar('\n');
    if (cb_opt_flag(c->o, ARG_VERBOSE))
        cb_note_timings(&c->e, gen);
    return cb_out_flush();
}

static int turn(struct chat *c, const char *text)
{
    struct generation gen = { 0 };
    int rc;

    TRY(add_msg(c, "user", text));
    rc = say(c, &gen);
    if (!rc)
        rc = add_msg(c, "assistant", gen.text.s);
    if (rc == CB_EFULL) { /* undo: the conversation is as before */
        drop_last(c);
        cb_log_failure(rc);
        cb_log_note("/clear begins a new conversation");
        rc = CB_OK;
    }
    cb_generation_free(&gen);
    return rc;
}

/* ---- the loop ---- */

static int one(struct chat *c, const char *text, int *done)
{
    if (!strcmp(text, "/exit") || !strcmp(text, "/quit"))
        *done = 1;
    else if (!strcmp(text, "/help"))
        fputs(help, stderr);
    else if (!strcmp(text, "/clear"))
        return begin(c);
    else if (text[0] == '/' && !strchr(text, '\n') && !strchr(text, ' '))
        cb_log_note("%s: no such command; /help lists them", text);
    else if (*text)
        return turn(c, text);
    return CB_OK;
}

static int talk(struct chat *c)
{
    struct buf in = { 0 };
    int done = 0, rc = CB_OK;

    if (c->tty)
        cb_log_note("%s, context %d; /help lists commands", c->e.info.name, c->e.n_ctx);
    while (!done && (rc = read_turn(c, &in)) > 0) {
        rc = one(c, in.s, &done);
        if (rc || c->leave)
            break;
    }
    cb_buf_free(&in);
    return rc < 0 ? rc : c->leave;
}

static int run(const struct opts *o)
{
    struct chat c = { .o = o, .end = -1, .tty = isatty(STDIN_FILENO) };
    int none = 0, rc = cb_engine_open(o, &c.e);

    if (!rc)
        rc = cb_chat_choose(o, &c.e, &c.choice);
    if (!rc)
        rc = begin_timeline(&c, NULL, &none);
    if (!rc)
        rc = begin(&c);
    if (!rc)
        rc = talk(&c);
    while (c.n)
        drop_last(&c);
    free(c.msg);
    cb_buf_free(&c.fed);
    cb_chat_choice_free(&c.choice);
    cb_engine_close(&c.e);
    return rc;
}

const struct cmd cb_cmd_chat = {
    .name = "chat",
    .operands = "",
    .brief = "talk with a model, turn by turn",
    .sets = SET_CHAT | SET_GENERATE | SET_SAMPLE | SET_MODEL | SET_ENGINE | SET_CTX | SET_POLICY |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
};
