/* SPDX-License-Identifier: MIT */
/* reply.c - splits a model's text, as it comes, into thoughts, text, and calls of tools. */
#include "reply.h"

#include <string.h>

#include "base/stop_text.h"

enum state {
    BEGINS,  /* nothing but white space so far */
    RESUMES, /* the same after a thought */
    TEXT,
    THOUGHT,
    CALL,
    HEADER /* of a channel */
};

static const char *const thoughts[][2] = {
    { "<think>", "</think>" },
    { "[THINK]", "[/THINK]" }, /* Magistral */
    { "<seed:think>", "</seed:think>" },
    { "<|START_THINKING|>", "<|END_THINKING|>" }, /* Command */
    { "<|channel>thought\n", "<channel|>" },      /* Gemma 4 */
    { "<|inner_prefix|>", "<|inner_suffix|>" },   /* Apertus */
};
enum { N_THOUGHT = sizeof thoughts / sizeof *thoughts, IN_CHANNEL = N_THOUGHT };

static const char message[] = "<|message|>";
/* What ends a channel's text: the first two open another header */
static const char *const channel[] = { "<|channel|>", "<|start|>", "<|end|>", "<|return|>",
                                       "<|call|>" };
enum { N_CHANNEL = sizeof channel / sizeof *channel, HEADER_MOST = 512 };

void cb_reply_open(struct reply *r, const struct reply_sink *sink, const json_t *tools,
                   enum reply_begin begin)
{
    static const int state[] = { BEGINS, THOUGHT, TEXT, HEADER };

    *r = (struct reply){ .sink = *sink, .tools = tools, .state = state[begin] };
    r->call_sink = (struct call_sink){ sink->call, sink->args, sink->end_call, sink->arg };
    r->channels = tools || begin == REPLY_IN_CHANNELS;
}

void cb_reply_close(struct reply *r)
{
    cb_buf_free(&r->held);
}

int cb_reply_in_thought(const struct reply *r)
{
    return r->state == THOUGHT;
}

static void drop(struct reply *r, size_t n)
{
    if (n)
        memmove(r->held.s, r->held.s + n, r->held.n - n + 1);
    r->held.n -= n;
}

static void give_text(struct reply *r, size_t n)
{
    if (n)
        r->sink.text(r->sink.arg, r->held.s, n);
    drop(r, n);
}

static size_t blanks(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", s[i]))
        i++;
    return i;
}

/* s[n] without white space at its end */
static size_t trimmed(const char *s, size_t n)
{
    while (n && strchr(" \t\r\n", s[n - 1]))
        n--;
    return n;
}

static int begins_with(const char *s, size_t n, const char *mark)
{
    return n >= strlen(mark) && !memcmp(s, mark, strlen(mark));
}

/* ---- states: each returns 1 if what is held may tell more ---- */

static int open_thought(struct reply *r, size_t n, int mark)
{
    drop(r, n);
    r->state = THOUGHT;
    r->mark = mark;
    return 1;
}

static void open_call(struct reply *r, size_t lead, const struct call_form *form)
{
    r->lead = lead;
    r->state = CALL;
    cb_calls_open(&r->calls, &r->call_sink, r->tools, form);
}

/* 1: s[n] begins with a tool's name alone on its line, and {, as GLM 4 writes calls; -1: it may */
static int begins_with_tool(const struct reply *r, const char *s, size_t n)
{
    const json_t *t;
    size_t i;

    json_array_foreach(r->tools, i, t)
    {
        const json_t *name = json_object_get(json_object_get(t, "function"), "name");
        const size_t len = json_string_length(name);
        size_t at = len + 1;
        if (!len || memcmp(s, json_string_value(name), len < n ? len : n) != 0)
            continue;
        if (n > len && s[len] != '\n')
            continue;
        at += n > at ? blanks(s + at, n - at) : 0;
        if (at >= n)
            return -1;
        if (s[at] == '{')
            return 1;
    }
    return 0;
}

static int begins(struct reply *r, int ended)
{
    const size_t at = blanks(r->held.s, r->held.n), n = r->held.n - at;
    const char *s = r->held.s + at;
    int tool;

    if (!n && !ended)
        return 0;
    for (int i = 0; i < N_THOUGHT && r->state == BEGINS; i++) {
        if (begins_with(s, n, thoughts[i][0]))
            return open_thought(r, at + strlen(thoughts[i][0]), i);
        if (!ended && n < strlen(thoughts[i][0]) && !memcmp(s, thoughts[i][0], n))
            return 0;
    }
    tool = r->tools && n ? begins_with_tool(r, s, n) : 0;
    if (tool < 0 && !ended)
        return 0;
    if (r->state == RESUMES || (r->tools && n))
        drop(r, at); /* the blank lines after a thought, and before a call */
    r->state = TEXT;
    if (tool > 0 || (r->tools && n && strchr("{[", *r->held.s)))
        open_call(r, 0, &cb_call_alone);
    return r->held.n > 0;
}

/* What may follow a text: marks[] -> how many; those of calls come first. */
static int text_marks(const struct reply *r, const char *marks[CALL_FORMS + N_CHANNEL])
{
    int n = 0;

    for (int i = 0; r->tools && i < CALL_FORMS; i++)
        marks[n++] = cb_call_forms[i].open;
    for (int i = 0; r->channels && i < N_CHANNEL; i++)
        marks[n++] = channel[i];
    return n;
}

static int in_text(struct reply *r, int ended)
{
    const char *marks[CALL_FORMS + N_CHANNEL];
    const int n_mark = text_marks(r, marks);
    size_t at, n;
    int which;

    at = cb_stop_find(r->held.s, r->held.n, marks, n_mark, &which);
    if (which < 0) {
        n = ended ? r->held.n : cb_stop_safe(r->held.s, r->held.n, marks, n_mark);
        if (r->tools && (!ended || !trimmed(r->held.s, n)))
            n = trimmed(r->held.s, n);
        give_text(r, n);
        return 0;
    }
    n = trimmed(r->held.s, at);
    give_text(r, n);
    if (which < n_mark - (r->channels ? N_CHANNEL : 0)) {
        open_call(r, at - n, &cb_call_forms[which]);
    } else if (marks[which] == channel[0] || marks[which] == channel[1]) {
        drop(r, at - n);
        r->state = HEADER;
    } else {
        drop(r, at - n + strlen(marks[which]));
    }
    return r->held.n > 0;
}

static int in_thought(struct reply *r, int ended)
{
    const char *const *marks = r->mark == IN_CHANNEL ? channel : &thoughts[r->mark][1];
    const int n_mark = r->mark == IN_CHANNEL ? N_CHANNEL : 1;
    int which;
    const size_t at = cb_stop_find(r->held.s, r->held.n, marks, n_mark, &which);
    const size_t safe =
        which >= 0 || ended ? at : cb_stop_safe(r->held.s, r->held.n, marks, n_mark);
    const size_t n = which < 0 && ended ? safe : trimmed(r->held.s, safe);

    if (n)
        r->sink.thought(r->sink.arg, r->held.s, n);
    if (which < 0) {
        drop(r, n);
        return 0;
    }
    drop(r, r->mark == IN_CHANNEL && which < 2 ? at : at + strlen(marks[which]));
    r->state = RESUMES;
    return 1;
}

static int in_call(struct reply *r, int ended)
{
    size_t taken;
    const enum calls_status got =
        cb_calls_read(&r->calls, r->held.s + r->lead, r->held.n - r->lead, ended, &taken);

    if (taken) {
        drop(r, r->lead + taken);
        r->lead = 0;
    }
    if (got == CALLS_MORE)
        return 0;
    r->state = TEXT;
    if (got == CALLS_NONE)
        give_text(r, r->lead + strlen(r->calls.form->open));
    return r->held.n > 0;
}

/* Before <|message|>: the channel, and to whom the message goes */
static int in_header(struct reply *r, int ended)
{
    static const char *const end[] = { message };
    const size_t at = cb_stop_find(r->held.s, r->held.n, end, 1, NULL), n = r->held.n;
    const char *const head = r->held.s, *to;
    char name[CALL_NAME] = "";
    size_t len = 0;
    int thinks;

    if (at == n && n < HEADER_MOST && !ended && strchr("< ", *r->held.s))
        return 0;
    r->state = TEXT;
    if (at == n) { /* no header at all */
        give_text(r, n > 0);
        return r->held.n > 0;
    }
    to = r->tools ? memmem(head, at, "to=", 3) : NULL;
    for (to = to ? to + 3 : head + at; to + len < head + at && !strchr(" <", to[len]);)
        len++;
    if (len < sizeof name)
        memcpy(name, to, len);
    thinks = memmem(head, at, "analysis", 8) != NULL;
    drop(r, at + strlen(message));
    if (*name) {
        open_call(r, 0, &cb_call_given);
        cb_calls_named(&r->calls, name);
    } else if (thinks) {
        (void)open_thought(r, 0, IN_CHANNEL);
    }
    return 1;
}

static void go_on(struct reply *r, int ended)
{
    int more = 1;

    while (more)
        more = r->state == TEXT      ? in_text(r, ended)
               : r->state == THOUGHT ? in_thought(r, ended)
               : r->state == CALL    ? in_call(r, ended)
               : r->state == HEADER  ? in_header(r, ended)
                                     : begins(r, ended);
}

void cb_reply_push(struct reply *r, const char *s, size_t n)
{
    cb_buf_add(&r->held, s, n);
    if (r->held.n)
        go_on(r, TEXT_GOES_ON);
}

void cb_reply_end(struct reply *r, int cut)
{
    cb_buf_add(&r->held, "", 0);
    if (!r->held.failed)
        go_on(r, cut ? TEXT_CUT : TEXT_ENDED);
}
