/* SPDX-License-Identifier: MIT */
/* dialects.c - what the interfaces of completions share: a conversation as a prompt, the way of a
 * request to its answer, and what all OpenAI forms of an answer have. */
#include <stdlib.h>
#include <string.h>

#include "answer_form.h"
#include "api.h"
#include "base/err.h"
#include "chat_prompt.h"
#include "fields.h"

/* ---- the request ---- */

/* A call that is forced constrains the answer. */
static int force_call(struct completion *t, const json_t *choice)
{
    cb_grammar *grammar;

    TRY(cb_answer_form_call(t->x, choice, t->tools, &grammar));
    if (!grammar)
        return CB_OK;
    if (t->grammar) {
        cb_grammar_free(grammar);
        return cb_fail(CB_EARG, "tool_choice: the answer is constrained by another field too");
    }
    t->grammar = grammar;
    return CB_OK;
}

/* Gives the turn what the prompt has, and takes it from there. */
static int take_prompt(struct completion *t, struct chat_prompt *p)
{
    if (p->ignored && !t->ignored)
        t->ignored = json_incref(p->ignored);
    else if (p->ignored && json_array_extend(t->ignored, p->ignored))
        return cb_fail(CB_ENOMEM, "out of memory");
    t->ids = p->ids;
    t->order.n = p->n;
    t->order.parting = p->parting;
    t->text = p->text;
    t->begin = p->begin;
    t->tools = p->tools;
    t->one_call = p->one_call;
    t->order.shown = t->s->marks.ids;
    t->order.n_shown = t->tools ? t->s->marks.n : t->s->marks.n_thought;
    p->ids = NULL;
    p->text = NULL;
    p->tools = NULL;
    return force_call(t, p->choice);
}

int cb_completion_chat(struct completion *t, const json_t *request)
{
    struct chat_prompt p;
    int rc = cb_chat_prompt(t->s, request, &p);

    if (!rc)
        rc = take_prompt(t, &p);
    cb_chat_prompt_free(&p);
    return rc;
}

int cb_completion_convert(struct completion *t, const json_t *request,
                          int (*convert)(const json_t *request, json_t **ignored, json_t **chat))
{
    json_t *chat = NULL;
    int rc = convert(request, &t->ignored, &chat);

    if (!rc)
        rc = cb_completion_chat(t, chat);
    json_decref(chat);
    return rc;
}

void cb_api_answer(struct exchange *x, const struct dialect *d, const char *id_prefix,
                   int (*read_request)(struct completion *t, const json_t *request))
{
    struct completion *t;
    int rc = cb_completion_new(x, d, &t);

    if (!rc && id_prefix)
        cb_next_id(&t->names, id_prefix, t->id, sizeof t->id);
    if (!rc)
        rc = read_request(t, x->json);
    if (!rc) {
        cb_completion_run(t, x);
        return;
    }
    cb_exchange_fail(x, rc);
    if (t)
        cb_completion_free(t);
}

/* ---- the answer, in the OpenAI forms ---- */

static json_t *usage(const struct completion *t)
{
    const int in = cb_completion_prompt_tokens(t), out = cb_completion_made_tokens(t);

    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "prompt_tokens", in, "completion_tokens",
                     out, "total_tokens", in + out, "prompt_tokens_details", "cached_tokens",
                     cb_completion_cached_tokens(t), "completion_tokens_details",
                     "reasoning_tokens", cb_completion_thought_tokens(t));
}

void cb_add_numbers(const struct completion *t, json_t **answer)
{
    cb_json_set(answer, "usage", usage(t));
    cb_json_set(answer, "timings", cb_completion_timings(t));
    cb_json_set(answer, "memory", cb_completion_memory(t));
}

void cb_stream_end(const struct completion *t, json_t *last, struct buf *out)
{
    if (last) {
        cb_add_numbers(t, &last);
        cb_event(out, NULL, last);
    }
    cb_buf_text(out, "data: [DONE]\n\n");
}

void cb_stream_error(struct completion *t, const char *message, struct buf *out)
{
    (void)t;
    cb_event(out, NULL, cb_error_json(ERRORS_OPENAI, 500, message, NULL));
}

void cb_comment(struct buf *out)
{
    cb_buf_text(out, ": the answer is being computed\n"); /* an empty line would end an event */
}
