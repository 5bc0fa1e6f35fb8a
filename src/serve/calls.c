/* SPDX-License-Identifier: MIT */
/* calls.c - reads calls of tools in a model's text as they are written. */
#include "calls.h"

#include <string.h>

void cb_calls_open(struct calls *c, const struct call_sink *sink, const json_t *tools,
                   const struct call_form *form)
{
    *c = (struct calls){ .sink = sink, .tools = tools, .form = form, .stage = CALL_HEAD };
}

void cb_calls_named(struct calls *c, const char *name)
{
    strncpy(c->name, name, sizeof c->name - 1);
    cb_call_fix_name(c, c->name);
    c->depth = 0;
    c->stage = CALL_GIVEN;
}

/* ---- arguments as they come ---- */

static void put_mended(struct calls *c, struct buf *b)
{
    if (b->n && !b->failed)
        c->sink->args(c->sink->arg, b->s, b->n);
    cb_buf_free(b);
}

static enum calls_status end_arguments(struct calls *c)
{
    cb_call_end(c);
    cb_json_scan_inside(&c->scan, c->depth);
    return cb_call_stage(c, c->depth ? CALL_REST : CALL_GAP);
}

/* The arguments of a call whose name came first */
static enum calls_status given_arguments(struct calls *c, struct call_text *t)
{
    enum calls_status got;

    cb_call_blanks(t);
    if (t->i == t->n && !t->ended)
        return CALLS_MORE;
    if (t->i < t->n && !cb_call_closes(c, t)) {
        got = t->partial ? CALLS_MORE : cb_call_arguments(c, t, c->name);
        if (got != CALLS_NONE)
            return got;
        cb_call_begin(c, c->name); /* it is a call, whatever its arguments are */
        return cb_call_stage(c, CALL_RAW);
    }
    (void)cb_call_whole(c, c->name, "", 0);
    return cb_call_stage(c, CALL_GAP);
}

static enum calls_status json_arguments(struct calls *c, struct call_text *t)
{
    enum json_scan_status status;
    struct buf out = { 0 };

    t->i += cb_json_scan(&c->scan, t->s + t->i, t->n - t->i, &out, &status);
    if (status == JSON_BAD && !cb_call_closes(c, t) && t->partial) {
        put_mended(c, &out);
        return CALLS_MORE;
    }
    if (status == JSON_BAD || (status == JSON_MORE && t->ended)) {
        const int closed =
            (t->i == t->n || cb_call_closes(c, t)) && cb_json_scan_close(&c->scan, &out);
        put_mended(c, &out);
        if (!closed && t->i < t->n)
            return cb_call_stage(c, CALL_RAW);
        cb_call_end(c);
        return cb_call_stage(c, CALL_GAP);
    }
    put_mended(c, &out);
    return status == JSON_DONE ? end_arguments(c) : CALLS_MORE;
}

/* Arguments that are no JSON: as they are, up to what closes the form */
static enum calls_status raw_arguments(struct calls *c, struct call_text *t)
{
    const size_t from = t->i;

    while (t->i < t->n && !cb_call_closes(c, t) && !t->partial)
        t->i++;
    if (t->i > from)
        c->sink->args(c->sink->arg, t->s + from, t->i - from);
    if (t->i == t->n ? !t->ended : t->partial && !cb_call_closes(c, t))
        return CALLS_MORE;
    cb_call_end(c);
    return cb_call_stage(c, CALL_GAP);
}

/* What stands after the arguments in their object */
static enum calls_status rest(struct calls *c, struct call_text *t)
{
    enum json_scan_status status;

    t->i += cb_json_scan(&c->scan, t->s + t->i, t->n - t->i, NULL, &status);
    return status == JSON_MORE && !t->ended ? CALLS_MORE : cb_call_stage(c, CALL_GAP);
}

/* <tool_call> in place of </tool_call> at the end of all: 1, and t may stand at the end. Whether it
 * is the end is known when more comes. */
static int opened_to_close(const struct calls *c, struct call_text *t)
{
    struct call_text at = *t;

    if (*c->form->open != '<')
        return 0;
    if (!cb_call_skip(&at, c->form->open)) {
        t->partial |= at.partial;
        return 0;
    }
    cb_call_blanks(&at);
    if (at.i < at.n)
        return 0;
    if (t->ended)
        t->i = at.i;
    return 1;
}

/* Between calls. CALLS_END: all calls have ended, or, with the stage changed, another begins. */
static enum calls_status gap(struct calls *c, struct call_text *t)
{
    const int alone = !*c->form->close;

    for (;;) {
        size_t at = t->i;
        cb_call_blanks(t);
        if (t->i < t->n && strchr(",;)", t->s[t->i]))
            t->i++;
        if (cb_call_skip(t, c->form->close) || (!alone && cb_call_skip(t, "</tool_call>")))
            return CALLS_END;
        if (c->in_list && cb_call_skip(t, "]")) {
            if (!c->wrapped)
                continue;
            c->wrapped = 0;
            cb_json_scan_inside(&c->scan, 1);
            return cb_call_stage(c, CALL_REST);
        }
        if (cb_call_skip_after(t))
            continue;
        if (opened_to_close(c, t))
            return t->ended ? CALLS_END : CALLS_MORE;
        if (cb_call_skip(t, "}") && t->i == t->n)
            continue; /* one bracket too many */
        if (t->i == at)
            break;
    }
    if (t->i == t->n || t->partial)
        return t->ended ? CALLS_END : CALLS_MORE;
    if (t->s[t->i] == '{' || cb_call_at(t, "<function=") || cb_call_at(t, "<invoke name=") ||
        cb_call_at(t, "<｜DSML｜invoke name=") || cb_call_at(t, "<｜tool▁call▁begin｜>") ||
        cb_call_at(t, "<|tool_call_begin|>") ||
        ((c->in_list || c->lines) && cb_call_is_name(t->s[t->i])))
        return cb_call_stage(c, CALL_HEAD);
    return t->partial ? CALLS_MORE : CALLS_END;
}

static enum calls_status step(struct calls *c, struct call_text *t)
{
    switch (c->stage) {
    case CALL_HEAD:
        return cb_call_start(c, t);
    case CALL_GIVEN:
        return given_arguments(c, t);
    case CALL_ARGS:
        return json_arguments(c, t);
    case CALL_RAW:
        return raw_arguments(c, t);
    case CALL_REST:
        return rest(c, t);
    case CALL_PARAMS:
    case CALL_VALUE:
        return cb_call_params(c, t);
    default:
        return gap(c, t);
    }
}

/* Code after a call in its fence is none of the answer's. */
static enum calls_status to_the_fence(struct call_text *t, int *stage)
{
    const size_t end = cb_call_find(t, "```");

    if (end == t->n && !t->ended)
        return CALLS_MORE;
    t->i = end;
    (void)cb_call_skip(t, "```");
    *stage = CALL_GAP;
    return CALLS_END;
}

enum calls_status cb_calls_read(struct calls *c, const char *s, size_t n, int ended, size_t *taken)
{
    struct call_text t = { s, n, 0, ended, 0 };
    enum { SMALL = 2048 };

    *taken = 0;
    /* a long text that told too little is not read again for each new byte */
    if (c->stage == CALL_HEAD && !ended && n > SMALL && n < c->seen + c->seen / 8)
        return CALLS_MORE;
    for (;;) {
        int was = c->stage;
        enum calls_status got = step(c, &t);
        if (got == CALLS_END && c->stage != was) {
            *taken = t.i;
            c->seen = 0;
            continue;
        }
        if (got == CALLS_NONE && c->n)
            got = CALLS_END; /* what follows the calls is text */
        if (got == CALLS_END && was == CALL_HEAD && c->lines && *c->form->open == '`')
            got = to_the_fence(&t, &was);
        if (was != CALL_HEAD)
            *taken = t.i;
        else
            c->seen = n;
        return got;
    }
}
