/* SPDX-License-Identifier: MIT */
/* reply.h - splits a model's text, as it comes, into thoughts, text, and calls of tools (calls.h).
 * Thoughts stand in marks such as <think> at the beginning, or in a channel (gpt-oss). */
#ifndef REPLY_H
#define REPLY_H

#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"
#include "calls.h"

struct reply_sink {
    void (*text)(void *arg, const char *s, size_t n);
    void (*thought)(void *arg, const char *s, size_t n);
    void (*call)(void *arg, const char *name); /* a call begins */
    void (*args)(void *arg, const char *s, size_t n);
    void (*end_call)(void *arg);
    void *arg;
};

enum reply_begin {
    REPLY_BEGINS,
    REPLY_IN_THOUGHT,  /* the prompt has opened a thought */
    REPLY_IN_TEXT,     /* the prompt ends with the answer's beginning */
    REPLY_IN_CHANNELS, /* the model writes channels, and the prompt ends before the first */
};

struct reply {
    struct reply_sink sink;
    struct call_sink call_sink;
    const json_t *tools; /* in the OpenAI form; NULL: no calls are looked for */
    int state, channels;
    int mark;    /* of the thought: a row of the table */
    size_t lead; /* blanks before a call */
    struct calls calls;
    struct buf held;
};

void cb_reply_open(struct reply *r, const struct reply_sink *sink, const json_t *tools,
                   enum reply_begin begin);
void cb_reply_push(struct reply *r, const char *s, size_t n);
/* What was held back. cut: the text was cut, so that a call without its arguments is none. */
void cb_reply_end(struct reply *r, int cut);
void cb_reply_close(struct reply *r);
int cb_reply_in_thought(const struct reply *r);

#endif
