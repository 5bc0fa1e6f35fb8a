/* SPDX-License-Identifier: MIT */
/* api_llama.c - /completion, /infill and /apply-template with the fields of llama-server. */
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/array.h"
#include "base/err.h"
#include "chat_prompt.h"
#include "fields.h"
#include "fill_in.h"

/* ---- the answer ---- */

static json_t *timings(const struct completion *t)
{
    const struct job *j = t->choice[0].job;
    const double read_ms = (j->times.read - j->times.admitted) * 1e3,
                 made_ms = (j->times.ended - j->times.read) * 1e3;
    const int n_read = t->order.n - j->n_cached, n_made = j->n_out;

    return json_pack(
        "{s:i, s:i, s:f, s:f, s:f, s:i, s:f, s:f, s:f}", "cache_n", j->n_cached, "prompt_n", n_read,
        "prompt_ms", read_ms, "prompt_per_token_ms", n_read ? read_ms / n_read : 0.0,
        "prompt_per_second", read_ms > 0 ? n_read * 1e3 / read_ms : 0.0, "predicted_n", n_made,
        "predicted_ms", made_ms, "predicted_per_token_ms", n_made ? made_ms / n_made : 0.0,
        "predicted_per_second", made_ms > 0 ? n_made * 1e3 / made_ms : 0.0);
}

static json_t *settings(const struct completion *t)
{
    const struct cb_sampler_params *p = &t->order.sampler;

    return json_pack("{s:i, s:i, s:f, s:i, s:f, s:f, s:f}", "n_ctx", t->s->n_ctx, "n_predict",
                     t->order.max_tokens, "temperature", (double)p->temp, "top_k", p->top_k,
                     "top_p", (double)p->top_p, "min_p", (double)p->min_p, "repeat_penalty",
                     (double)p->repeat_penalty);
}

static const char *stop_type(const struct completion *t)
{
    const struct job_end *end = &t->choice[0].job->end;

    return !strcmp(end->reason, "length") ? "limit" : end->stop >= 0 ? "word" : "eos";
}

/* What an answer has when it has ended, put into *j */
static void add_end(struct completion *t, json_t **j)
{
    const struct job *job = t->choice[0].job;
    const int stop = job->end.stop;

    cb_json_set(j, "stop", json_true());
    cb_json_set(j, "stop_type", json_string(stop_type(t)));
    cb_json_set(j, "stopping_word", cb_json_str(stop >= 0 ? t->stop[stop] : ""));
    cb_json_set(j, "model", cb_json_str(t->s->m.name));
    cb_json_set(j, "tokens_predicted", json_integer(job->n_out));
    cb_json_set(j, "tokens_evaluated", json_integer(t->order.n));
    cb_json_set(j, "tokens_cached", json_integer(job->n_cached));
    cb_json_set(j, "truncated", json_false());
    cb_json_set(j, "generation_settings", settings(t));
    cb_json_set(j, "timings", timings(t));
    cb_json_set(j, "memory", cb_completion_memory(t));
    if (t->ignored)
        cb_json_set(j, "ignored", json_incref(t->ignored));
}

static json_t *piece(struct choice *c, const char *s, size_t n)
{
    json_t *j = json_pack("{s:i, s:o, s:b}", "index", 0, "content", cb_json_text(s, n), "stop", 0);

    if (c->logprobs)
        cb_json_set(&j, "completion_probabilities", c->logprobs);
    c->logprobs = NULL;
    return j;
}

static void text(struct choice *c, const char *s, size_t n)
{
    cb_event(c->out, NULL, piece(c, s, n));
}

static void end(struct completion *t, struct buf *out)
{
    json_t *j = piece(&t->choice[0], "", 0);

    add_end(t, &j);
    cb_event(out, NULL, j);
}

static json_t *whole(struct completion *t)
{
    struct choice *c = &t->choice[0];
    json_t *j = piece(c, c->all.s, c->all.n);

    add_end(t, &j);
    return j;
}

static const struct dialect dialect = {
    .text = text,
    .thought = text, /* as the model writes it */
    .end = end,
    .error = cb_stream_error,
    .idle = cb_comment,
    .whole = whole,
    .call_prefix = "",
};

/* ---- prompts ---- */

/* A text, or a token id, after what the prompt has so far */
static int add_part(struct completion *t, const json_t *v, size_t i)
{
    const int n_vocab = cb_n_vocab(t->s->m.model);
    int32_t *ids = NULL, one;
    int n = 0, rc;

    if (json_is_number(v)) {
        TRY(cb_field_token(v, "prompt", i, n_vocab, &one));
        return cb_append_i32(&t->ids, &t->order.n, &one, 1);
    }
    if (json_is_object(v)) /* with pictures beside it, maybe */
        v = json_object_get(v, "prompt_string");
    if (!json_is_string(v))
        return cb_fail(CB_EARG, "prompt: must be a text, or a list of texts and token ids");
    TRY(cb_tokenize(t->s->m.model, json_string_value(v), json_string_length(v),
                    CB_TOK_SPECIAL | (i ? 0 : CB_TOK_BOS), &ids, &n));
    rc = cb_append_i32(&t->ids, &t->order.n, ids, n);
    free(ids);
    return rc;
}

/* One prompt: a text, or texts and token ids one after the other */
static int read_prompt(struct completion *t, const json_t *prompt)
{
    const json_t *v;
    size_t i;

    if (!json_is_array(prompt))
        return add_part(t, prompt, 0);
    json_array_foreach(prompt, i, v) TRY(add_part(t, v, i));
    return CB_OK;
}

static int read_shared(struct completion *t, const json_t *r)
{
    int64_t top = -1;

    if (t->n > 1)
        return cb_fail(CB_EARG, "n: one answer only; /v1/completions gives more");
    TRY(cb_field_int(r, "n_probs", 0, CB_LOGPROBS_MOST, &top));
    t->order.logprobs = top > 0 ? (int)top : -1;
    t->begin = REPLY_IN_TEXT;
    return CB_OK;
}

static int read_completion(struct completion *t, const json_t *r)
{
    TRY(read_shared(t, r));
    return read_prompt(t, cb_field(r, "prompt"));
}

void cb_api_completion(struct exchange *x)
{
    cb_api_answer(x, &dialect, NULL, read_completion);
}

/* prompt: what the current line has so far, after input_prefix */
static int read_infill(struct completion *t, const json_t *r)
{
    const char *prefix = NULL, *suffix = NULL, *prompt = "";
    struct buf before = { 0 };
    struct fill_in what;
    const json_t *files;
    int rc;

    TRY(read_shared(t, r));
    TRY(cb_field_text(r, "input_prefix", &prefix));
    TRY(cb_field_text(r, "input_suffix", &suffix));
    TRY(cb_field_text(r, "prompt", &prompt));
    TRY(cb_field_array(r, "input_extra", &files));
    if (!prefix || !suffix)
        return cb_fail(CB_EARG, "%s: must be a text", prefix ? "input_suffix" : "input_prefix");
    cb_buf_text(&before, prefix);
    cb_buf_text(&before, prompt);
    what = (struct fill_in){ before.s, suffix, files };
    rc = before.failed ? cb_fail(CB_ENOMEM, "out of memory")
                       : cb_fill_in(t->s->m.model, &what, &t->ids, &t->order.n);
    cb_buf_free(&before);
    return rc;
}

void cb_api_infill(struct exchange *x)
{
    cb_api_answer(x, &dialect, NULL, read_infill);
}

/* ---- a conversation as its template writes it ---- */

void cb_api_apply_template(struct exchange *x)
{
    struct chat_prompt p;
    const int rc = cb_chat_prompt(x->s, x->json, &p);

    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200,
                         json_pack("{s:o, s:i, s:O*}", "prompt", cb_json_str(p.text), "tokens", p.n,
                                   "ignored", p.ignored));
    cb_chat_prompt_free(&p);
}
