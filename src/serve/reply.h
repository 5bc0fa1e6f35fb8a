/* SPDX-License-Identifier: MIT */
/* reply.h - splits a model's text, as it comes, into thoughts, text, and calls of tools. Forms of
 * calls: <tool_call>{"name": ..., "arguments": ...}</tool_call>, and a reply that is nothing but
 * JSON, fenced or not ({"name": ..., "parameters": ...}, or a list of such), if the tool is known.
 */
#ifndef REPLY_H
#define REPLY_H

#include <stddef.h>

#include "base/buf.h"
#include "base/json.h"

struct reply_sink {
    void (*text)(void *arg, const char *s, size_t n);
    void (*thought)(void *arg, const char *s, size_t n);
    void (*call)(void *arg, const char *name, const char *arguments); /* arguments: JSON */
    void *arg;
};

struct reply {
    struct reply_sink sink;
    const json_t *tools; /* in the OpenAI form; NULL: no calls are looked for */
    int state;           /* zeroed: the beginning */
    struct buf held;
};

/* in_thought: the prompt has opened a thought already. */
void cb_reply_open(struct reply *r, const struct reply_sink *sink, const json_t *tools,
                   int in_thought);
void cb_reply_push(struct reply *r, const char *s, size_t n);
void cb_reply_end(struct reply *r); /* what was held back */
void cb_reply_close(struct reply *r);

#endif
