/* SPDX-License-Identifier: MIT */
/* api_completions.c - /v1/completions of OpenAI: a prompt as text or as token ids goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "fields.h"

/* ---- the answer ---- */

/* The old form of logprobs: lists beside each other */
static json_t *logprobs(struct choice *c)
{
    json_t *tokens = json_array(), *probs = json_array(), *tops = json_array(), *k;
    size_t i, m;

    if (c->turn->order.logprobs < 0) {
        json_decref(tokens);
        json_decref(probs);
        json_decref(tops);
        return json_null();
    }
    json_array_foreach(c->logprobs, i, k)
    {
        json_t *top = json_object(), *one;
        json_array_foreach(json_object_get(k, "top_logprobs"), m, one) json_object_set(
            top, json_string_value(json_object_get(one, "token")), json_object_get(one, "logprob"));
        json_array_append(tokens, json_object_get(k, "token"));
        json_array_append(probs, json_object_get(k, "logprob"));
        json_array_append_new(tops, top);
    }
    json_decref(c->logprobs);
    c->logprobs = NULL;
    return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", probs, "top_logprobs",
                     tops);
}

static json_t *answer(const struct turn *t, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", t->id, "object", "text_completion",
                     "created", (json_int_t)time(NULL), "model", t->s->m.name, "choices", choices);
}

static json_t *choice(struct choice *c, const char *s, size_t n, const char *reason)
{
    return json_pack("{s:i, s:o, s:o, s:o}", "index", c->index, "text", cb_json_text(s, n),
                     "logprobs", logprobs(c), "finish_reason",
                     reason ? json_string(reason) : json_null());
}

static void text(struct choice *c, const char *s, size_t n)
{
    cb_event(c->out, NULL, answer(c->turn, json_pack("[o]", choice(c, s, n, NULL))));
}

static void end_choice(struct choice *c)
{
    cb_event(c->out, NULL, answer(c->turn, json_pack("[o]", choice(c, "", 0, c->job->end.reason))));
}

static void end(struct turn *t, struct buf *out)
{
    cb_stream_end(t, t->include_usage ? answer(t, json_array()) : NULL, out);
}

static json_t *whole(struct turn *t)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < t->n; i++) {
        struct choice *c = &t->choice[i];
        cb_json_add(&choices, choice(c, c->all.s, c->all.n, c->job->end.reason));
    }
    j = answer(t, choices);
    cb_add_numbers(t, &j);
    return j;
}

static const struct dialect dialect = {
    .text = text,
    .thought = text, /* a completion has text alone */
    .end_choice = end_choice,
    .end = end,
    .error = cb_stream_error,
    .idle = cb_comment,
    .whole = whole,
    .call_prefix = "",
};

/* ---- the request ---- */

static int read_ids(struct turn *t, const json_t *list)
{
    const int n_vocab = cb_n_vocab(t->s->m.model);
    const json_t *v;
    size_t i;

    t->ids = cb_calloc(json_array_size(list) + 1, sizeof *t->ids);
    if (!t->ids)
        return CB_ENOMEM;
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= n_vocab)
            return cb_fail(CB_EARG, "prompt: [%zu] is no token id below %d", i, n_vocab);
        t->ids[i] = (int32_t)json_integer_value(v);
    }
    t->order.n = (int)json_array_size(list);
    return CB_OK;
}

static int read_prompt(struct turn *t, const json_t *r)
{
    const json_t *p = cb_field(r, "prompt");

    if (json_is_array(p) && json_array_size(p) == 1 && !json_is_integer(json_array_get(p, 0)))
        p = json_array_get(p, 0); /* a list of one prompt */
    if (json_is_array(p) && json_is_integer(json_array_get(p, 0)))
        return read_ids(t, p);
    if (!json_is_string(p))
        return cb_fail(CB_EARG, "prompt: must be a text or a list of token ids");
    TRY(cb_tokenize(t->s->m.model, json_string_value(p), json_string_length(p),
                    CB_TOK_BOS | CB_TOK_SPECIAL, &t->ids, &t->order.n));
    if (t->order.n || t->s->info.bos < 0)
        return CB_OK;
    free(t->ids);
    t->ids = cb_calloc(1, sizeof *t->ids);
    if (!t->ids)
        return CB_ENOMEM;
    t->ids[0] = t->s->info.bos; /* a text from nothing */
    t->order.n = 1;
    return CB_OK;
}

static int refuse(const json_t *r)
{
    int64_t best = 1;
    int echo = 0;

    TRY(cb_field_flag(r, "echo", &echo));
    TRY(cb_field_int(r, "best_of", 1, INT32_MAX, &best));
    if (echo)
        return cb_fail(CB_EARG, "echo: not supported");
    if (best > 1)
        return cb_fail(CB_EARG, "best_of: only 1 is supported");
    if (cb_field(r, "suffix"))
        return cb_fail(CB_EARG, "suffix: not supported");
    return CB_OK;
}

static int read_request(struct turn *t, const json_t *r)
{
    const json_t *options;
    int64_t top = -1;

    TRY(refuse(r));
    TRY(cb_field_int(r, "logprobs", 0, CB_LOGPROBS_MOST, &top));
    t->order.logprobs = (int)top;
    TRY(cb_field_object(r, "stream_options", &options));
    TRY(cb_field_flag(options, "include_usage", &t->include_usage));
    return read_prompt(t, r);
}

void cb_api_completions(struct exchange *x)
{
    cb_api_answer(x, &dialect, "cmpl-", read_request);
}
