/* SPDX-License-Identifier: MIT */
/* chat.h - shared by the files of ctxbank chat: the conversation, and the timeline that holds it.
 */
#ifndef CHAT_H
#define CHAT_H

#include "cli/cmd.h"
#include "cli/prompt.h"
#include "wrap.h"

/* A place in the session's timeline */
struct place {
    int at;      /* tokens in front of it; -1 = unknown */
    size_t fed;  /* bytes of the conversation's text that they stand for */
    int32_t end; /* the token before it, if it ended a turn and the text has it still to come; else
                    -1 */
};

/* A prompt that goes through the model in steps */
struct going {
    int32_t *ids; /* [n]; n = 0: none */
    int n;
    int64_t done, total;  /* as the library reports progress */
    struct progress *bar; /* or NULL */
};

struct chat {
    const struct opts *o;
    struct engine e;
    struct chat_choice choice;
    const char *system; /* message, or NULL */
    struct buf system_file;
    struct buf policy;        /* of the session */
    const char *first_policy; /* of the session that the options made */
    struct buf bank;          /* the file that the session came from, or "" */

    struct cb_message *msg; /* [n] with texts of our own */
    struct place *before;   /* [n] the timeline before each message */
    size_t *n_doc;          /* [n] bytes of documents at the beginning of each message */
    int n;
    struct buf docs; /* documents in front of the next message, with a blank line after each */
    struct buf first_docs; /* those of the command line */

    struct buf fed;     /* the text of the conversation that the timeline has, [here.fed] */
    struct place here;  /* after it; there may be more tokens, which are of use if they match */
    int base;           /* tokens of a saved bank in front of the conversation */
    int fresh_bank;     /* 1: it is not known yet whether the bank is a part of the conversation */
    int ready;          /* length of the timeline whose logits are at hand, or -1 */
    struct going going; /* what the session is being fed */
    int looked_ahead;   /* 1: the documents have been fed, or cannot be */
    int stopped;        /* 1: Ctrl-C: documents are not read while the user types */

    int n_again;            /* answers that replaced another one */
    struct generation last; /* figures of the last answer */
    int show_stats, leave, done;
    int tty, colour;
    struct wrap wrap;
};

/* What a turn came to, besides a negative status */
enum { TURN_OK = 0, TURN_STOPPED = 1 /* Ctrl-C while the prompt was read */ };

/* ---- chat_conversation.c: the conversation ---- */

int cb_chat_begin(struct chat *c); /* as at the start: the system message and the documents of -f */
int cb_chat_turn(struct chat *c, const char *text);
int cb_chat_again(struct chat *c);         /* a new answer, or one to a message that was stopped */
int cb_chat_pending(const struct chat *c); /* 1: the last message has no answer */
int cb_chat_undo(struct chat *c);          /* takes the last message back */
int cb_chat_add_file(struct chat *c, const char *path);
int cb_chat_policy(struct chat *c, const char *policy, int n_ctx);
void cb_chat_stats(const struct chat *c);
void cb_chat_free(struct chat *c);

/* ---- chat_save.c ---- */

int cb_chat_save(struct chat *c, const char *path);
int cb_chat_load(struct chat *c, const char *path);

/* ---- messages.c: the list of messages and the documents for the next one ---- */

int cb_messages_add(struct chat *c, const char *role, const char *text, size_t n_doc);
void cb_messages_drop(struct chat *c); /* the last one */
int cb_messages_document(struct buf *docs, const char *path);

/* ---- timeline.c: what the session holds ---- */

/* Feeds what the conversation has and the session lacks. *all: its text; ids[*n]: its tokens after
 * c->here. The caller frees both. TURN_STOPPED: Ctrl-C; the work is kept, and another call goes
 * on with it. */
int cb_timeline_feed(struct chat *c, char **all, int32_t **ids, int *n, struct generation *gen);
/* Feeds the documents that are waiting. One step, or with `all` until it is done or stopped.
 * Returns 1 while work is left, else a status. */
int cb_timeline_ahead(struct chat *c, int all);
/* CB_EFULL if the documents that are waiting do not fit. */
int cb_timeline_documents_fit(struct chat *c);
int cb_timeline_empty(struct chat *c);         /* the session, but for a saved bank in front */
void cb_timeline_cancel(struct chat *c);       /* drops a prompt in progress */
void cb_timeline_forget(struct chat *c);       /* nothing is known of the tokens in the session */
int cb_timeline_percent(const struct chat *c); /* of the prompt in progress, or -1 */

/* ---- chat_commands.c: /help and the others ---- */

/* 1: text was a command, and has been obeyed or refused. */
int cb_words_obey(struct chat *c, const char *text, int *rc);
int cb_words_complete(void *arg, const char *head, size_t *from, struct buf *list);

#endif
