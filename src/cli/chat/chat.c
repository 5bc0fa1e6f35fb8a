/* SPDX-License-Identifier: MIT */
/* chat.c - ctxbank chat: reads messages and commands, from a terminal or a file. */
#include "chat.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/file.h"
#include "cli/output/log.h"
#include "line.h"

/* Where messages come from */
struct input {
    struct chat *c;
    struct terminal t;
    struct line_reader r;
    int more;       /* 1: the message continues in the next line */
    int percent;    /* of the documents, as the prompt shows it */
    int interrupts; /* on empty lines, one after the other */
    int failed;     /* 1: a message of a pipe had no answer */
};

/* ---- lines ---- */

/* Are documents read while the user types? */
static int reading(const struct chat *c)
{
    return !c->stopped && !cb_chat_pending(c);
}

static void prompt_text(void *arg, char *text, size_t cap)
{
    struct input *in = arg;

    in->percent = reading(in->c) ? cb_timeline_percent(in->c) : -1;
    if (in->percent >= 0 && !in->more)
        snprintf(text, cap, "[reading %d %%] > ", in->percent);
    else
        snprintf(text, cap, "%s", in->more ? ". " : "> ");
}

/* Reads documents while the user types. */
static int work(void *arg, int *redraw)
{
    struct input *in = arg;
    int rc;

    if (!reading(in->c))
        return 0;
    rc = cb_timeline_ahead(in->c, 0);
    *redraw = cb_timeline_percent(in->c) != in->percent;
    if (rc < 0) { /* the next message meets the same failure, and reports it */
        in->c->stopped = 1;
        return 0;
    }
    return rc;
}

/* 1 = read, 0 = end of the input */
static int piped_line(struct buf *line)
{
    const int rc = cb_file_line(stdin, "standard input", line);

    if (rc > 0 && line->s[line->n - 1] == '\n')
        line->s[--line->n] = '\0';
    if (rc > 0 && line->n && line->s[line->n - 1] == '\r')
        line->s[--line->n] = '\0';
    if (rc > 0 && line->n >= 3 && !memcmp(line->s, "\xef\xbb\xbf", 3)) { /* a byte order mark */
        memmove(line->s, line->s + 3, line->n - 2);
        line->n -= 3;
    }
    return rc;
}

/* Ctrl-C on an empty line stops the documents, or at the second time leaves. */
static int interrupted(struct input *in)
{
    struct chat *c = in->c;

    if (in->more) {
        in->interrupts = 0;
    } else if (reading(c) && cb_timeline_percent(c) >= 0) {
        c->stopped = 1;
        cb_log_note("stopped after %d %%: the next message continues it", cb_timeline_percent(c));
    } else if (in->interrupts++) {
        return LINE_END;
    } else {
        cb_log_note("Ctrl-C again leaves");
    }
    return LINE_INTERRUPTED;
}

static int next_line(struct input *in, struct buf *line)
{
    int rc;

    if (!in->c->tty)
        return piped_line(line);
    rc = cb_line_read(&in->r, line);
    if (rc == LINE_INTERRUPTED)
        return line->n ? rc : interrupted(in);
    in->interrupts = 0;
    if (rc == LINE_END && cb_interrupted())
        in->c->leave = cb_interrupt_status(CB_ECANCEL);
    return rc;
}

/* Reads a message of one or more lines. Returns as next_line() does. */
static int next_message(struct input *in, struct buf *message)
{
    struct buf line = { 0 };
    int rc, block = 0;

    in->more = 0;
    cb_buf_clear(message);
    TRY(cb_buf_put(message, "", 0));
    while ((rc = next_line(in, &line)) == LINE_READ) {
        if (!strcmp(line.s, "\"\"\"")) {
            block = !block;
            in->more = block;
            if (!block)
                break;
            continue;
        }
        const int more = !block && line.n && line.s[line.n - 1] == '\\';
        in->more = block || more;
        cb_buf_add(message, line.s, line.n - (size_t)more);
        if (in->more)
            cb_buf_add(message, "\n", 1);
        if (!in->more)
            break;
    }
    if (rc == LINE_END && message->n) /* the end of the input ends the message */
        rc = LINE_READ;
    cb_buf_free(&line);
    return rc < 0 ? rc : cb_buf_put(message, "", 0) ? CB_ENOMEM : rc;
}

/* ---- the loop ---- */

static int blank(const char *text)
{
    return !text[strspn(text, " \t\n")];
}

static int say(struct chat *c, const char *text)
{
    return blank(text) ? CB_OK : cb_chat_turn(c, text);
}

/* Failures that the conversation survives are reported here. */
static int one(struct input *in, const char *text)
{
    struct chat *c = in->c;
    int rc;

    if (!cb_words_obey(c, text, &rc))
        rc = say(c, text);
    if (rc != CB_EFULL && rc != CB_EARG && !(c->tty && rc < 0 && !ferror(stdout)))
        return rc;
    cb_log_failure(rc);
    in->failed |= !c->tty;
    if (rc == CB_EFULL)
        cb_log_note(
            "/clear begins again, /undo takes the last turn back, /policy changes the cache "
            "and its size");
    return CB_OK;
}

static int talk(struct input *in)
{
    struct chat *c = in->c;
    struct buf message = { 0 };
    int rc = LINE_READ;

    if (c->tty)
        cb_log_note("%s, context %d; /help lists commands", c->e.info.name, c->e.n_ctx);
    while (!c->done && !c->leave && (rc = next_message(in, &message)) > 0) {
        if (rc == LINE_INTERRUPTED)
            continue;
        if (c->tty && !blank(message.s))
            cb_line_remember(&in->r, message.s);
        rc = one(in, message.s);
        if (rc)
            break;
    }
    cb_buf_free(&message);
    return rc < 0 ? rc : c->leave ? c->leave : in->failed; /* which was told */
}

static int open_input(struct input *in)
{
    in->percent = -1;
    if (!in->c->tty)
        return CB_OK;
    TRY(cb_terminal_open(&in->t));
    in->t.work = work;
    in->t.work_arg = in;
    in->r = (struct line_reader){ .t = &in->t,
                                  .prompt = prompt_text,
                                  .complete = cb_words_complete,
                                  .arg = in,
                                  .colour = in->c->colour };
    return cb_line_open(&in->r);
}

static void close_input(struct input *in)
{
    if (!in->c->tty)
        return;
    cb_line_close(&in->r);
    cb_terminal_close(&in->t);
}

/* ---- the command ---- */

static int open_chat(struct chat *c)
{
    const struct opts *o = c->o;
    const char *bank = cb_opt_text(o, ARG_BANK), *policy;
    const char *const *file;
    int n, none = 0;

    TRY(cb_engine_open(o, &c->e));
    TRY(cb_chat_choose(o, &c->e, &c->choice));
    TRY(cb_read_system(o, &c->system_file, &c->system));
    file = cb_opt_texts(o, ARG_DOCUMENT, &n);
    for (int i = 0; i < n; i++)
        TRY(cb_messages_document(&c->first_docs, file[i]));
    TRY(cb_context_begin(o, &c->e, cb_opt_int(o, ARG_CTX), NULL, &none));
    policy = bank ? cb_engine_policy(o, &c->e) : c->e.chosen.policy;
    TRY(cb_buf_put(&c->policy, policy, strlen(policy)));
    c->first_policy = policy;
    TRY(cb_engine_sampling(o, &c->e));
    TRY(cb_buf_put(&c->bank, bank ? bank : "", bank ? strlen(bank) : 0));
    c->fresh_bank = bank != NULL;
    c->wrap.out = cb_out_text;
    TRY(cb_chat_begin(c));
    return c->docs.n ? cb_timeline_documents_fit(c) : CB_OK;
}

static int in_colour(const struct chat *c)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    if (!cb_opt_is(c->o, ARG_COLOR, "auto"))
        return cb_opt_is(c->o, ARG_COLOR, "on");
    return c->tty && isatty(STDERR_FILENO) && !(no && *no) && term && strcmp(term, "dumb");
}

static int run(const struct opts *o)
{
    struct chat c = { .o = o, .tty = isatty(STDIN_FILENO), .ready = -1 };
    struct input in = { .c = &c, .t.wake_fd = -1 };
    int rc;

    c.colour = in_colour(&c);
    rc = open_chat(&c);
    if (!rc)
        rc = open_input(&in);
    if (!rc)
        rc = talk(&in);
    close_input(&in);
    if (c.e.session)
        cb_chat_free(&c);
    cb_chat_choice_free(&c.choice);
    cb_engine_close(&c.e);
    return rc;
}

const struct cmd cb_cmd_chat = {
    .name = "chat",
    .operands = "",
    .brief = "talk with a model, turn by turn",
    .example = "-m model.gguf -f report.txt",
    .sets = SET_OWN_CHAT | SET_CHAT | SET_GENERATE | SET_SAMPLE | SET_REPETITIONS | SET_BANK_FILE |
            SET_BANK_DIR | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX | SET_POLICY |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
};
