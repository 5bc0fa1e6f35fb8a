/* SPDX-License-Identifier: MIT */
/* api_completions.c - /v1/completions of OpenAI: prompts as texts or as token ids are continued. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "base/ints.h"
#include "fields.h"
#include "fill_in.h"
#include "prompt_logprobs.h"

enum { MOST_PROMPTS = 256 };

/* A request: a turn for each prompt */
struct several {
    struct stream stream;      /* the first field: the stream is the request */
    int n, at;                 /* at: the turn that a stream tells of */
    struct completion *turn[]; /* [n] */
};

/* What a turn's dialect knows beside the turn */
struct prompt_state {
    struct several *all;
    int place;                /* among the turns */
    int echo;                 /* 1: the answer begins with the prompt */
    int from;                 /* the prompt's first token that is text: BOS is none */
    struct buf text;          /* the prompt's, if it is echoed */
    struct job_token *scored; /* [n] the prompt's tokens, if their logprobs are asked for */
};

static void free_state(void *state)
{
    struct prompt_state *k = state;

    cb_buf_free(&k->text);
    free(k->scored);
    free(k);
}

/* ---- the answer ---- */

/* The old form of logprobs: lists beside each other */
struct lists {
    json_t *tokens, *probs, *tops, *offsets;
    size_t offset; /* of the next token in the text */
};

static void add_token(struct lists *l, const json_t *k, int first)
{
    const json_t *token = json_object_get(k, "token"), *one;
    json_t *top = first ? json_null() : json_object();
    size_t m;

    json_array_foreach(json_object_get(k, "top_logprobs"), m, one)
    {
        if (!first)
            cb_json_set(&top, json_string_value(json_object_get(one, "token")),
                        json_incref(json_object_get(one, "logprob")));
    }
    cb_json_add(&l->tokens, json_incref((json_t *)(uintptr_t)token));
    cb_json_add(&l->probs, first ? json_null() : json_incref(json_object_get(k, "logprob")));
    cb_json_add(&l->tops, top);
    cb_json_add(&l->offsets, json_integer((json_int_t)l->offset));
    l->offset += json_string_length(token);
}

static json_t *token_json(const struct completion *t, const struct job_token *p)
{
    json_t *top = json_array(), *j = cb_completion_token(t, &p->at);

    for (int m = 0; m < p->n_top; m++)
        cb_json_add(&top, cb_completion_token(t, &p->top[m]));
    cb_json_set(&j, "top_logprobs", top);
    return j;
}

/* Those of the tokens that the client was not told of; prompt: those of the prompt first */
static json_t *logprobs(struct choice *c, int prompt)
{
    struct lists l = { json_array(), json_array(), json_array(), json_array(), 0 };
    const struct completion *t = c->turn;
    const struct prompt_state *state = t->state;
    json_t *k;
    size_t i;

    if (t->order.logprobs < 0) {
        json_decref(l.tokens);
        json_decref(l.probs);
        json_decref(l.tops);
        json_decref(l.offsets);
        return json_null();
    }
    for (int n = state->from; prompt && state->scored && n < t->order.n; n++) {
        k = token_json(t, &state->scored[n]);
        add_token(&l, k, n == 0);
        json_decref(k);
    }
    json_array_foreach(c->logprobs, i, k) add_token(&l, k, 0);
    json_decref(c->logprobs);
    c->logprobs = NULL;
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", l.tokens, "token_logprobs", l.probs,
                     "top_logprobs", l.tops, "text_offset", l.offsets);
}

static json_t *answer(const struct completion *t, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", t->id, "object", "text_completion",
                     "created", (json_int_t)time(NULL), "model", t->s->m.name, "choices", choices);
}

static json_t *choice(struct choice *c, const char *s, size_t n, const char *reason, int prompt)
{
    const struct prompt_state *k = c->turn->state;

    return json_pack("{s:i, s:o, s:o, s:o}", "index", k->place * c->turn->n + c->index, "text",
                     cb_json_text(s, n), "logprobs", logprobs(c, prompt), "finish_reason",
                     reason ? json_string(reason) : json_null());
}

static void begin(struct completion *t, struct buf *out)
{
    const struct prompt_state *k = t->state;

    for (int i = 0; k->echo && i < t->n; i++)
        cb_event(out, NULL,
                 answer(t, json_pack("[o]", choice(&t->choice[i], k->text.s, k->text.n, NULL, 1))));
}

static void text(struct choice *c, const char *s, size_t n)
{
    cb_event(c->out, NULL, answer(c->turn, json_pack("[o]", choice(c, s, n, NULL, 0))));
}

static void end_choice(struct choice *c)
{
    cb_event(c->out, NULL,
             answer(c->turn, json_pack("[o]", choice(c, "", 0, c->job->end.reason, 0))));
}

/* usage, timings and memory; the numbers of tokens are those of all turns */
static void add_numbers(const struct several *all, json_t **j)
{
    int in = 0, out = 0, cached = 0;

    for (int i = 0; i < all->n; i++) {
        in += cb_completion_prompt_tokens(all->turn[i]);
        out += cb_completion_made_tokens(all->turn[i]);
        cached += cb_completion_cached_tokens(all->turn[i]);
    }
    cb_add_numbers(all->turn[0], j);
    cb_json_set(j, "usage",
                json_pack("{s:i, s:i, s:i, s:{s:i}}", "prompt_tokens", in, "completion_tokens", out,
                          "total_tokens", in + out, "prompt_tokens_details", "cached_tokens",
                          cached));
}

static void end(struct completion *t, struct buf *out)
{
    const struct prompt_state *k = t->state;
    json_t *last;

    if (k->place + 1 < k->all->n)
        return;
    if (t->include_usage) {
        last = answer(t, json_array());
        add_numbers(k->all, &last);
        cb_event(out, NULL, last);
    }
    cb_stream_end(t, NULL, out);
}

static json_t *whole(const struct several *all)
{
    json_t *choices = json_array(), *j;

    for (int i = 0; i < all->n; i++) {
        struct completion *t = all->turn[i];
        const struct prompt_state *k = t->state;
        for (int c = 0; c < t->n; c++) {
            struct buf said = { 0 };
            if (k->echo)
                cb_buf_add(&said, k->text.s, k->text.n);
            cb_buf_add(&said, t->choice[c].all.s, t->choice[c].all.n);
            cb_json_add(&choices, said.failed ? NULL
                                              : choice(&t->choice[c], said.s, said.n,
                                                       t->choice[c].job->end.reason, k->echo));
            cb_buf_free(&said);
        }
    }
    j = answer(all->turn[0], choices);
    add_numbers(all, &j);
    return j;
}

static const struct dialect dialect = {
    .begin = begin,
    .text = text,
    .thought = text, /* a completion has text alone */
    .end_choice = end_choice,
    .end = end,
    .error = cb_stream_error,
    .idle = cb_comment,
    .call_prefix = "",
};

/* ---- the request ---- */

static int read_ids(struct completion *t, const json_t *list)
{
    const int n_vocab = cb_n_vocab(t->s->m.model);
    const json_t *v;
    size_t i;

    t->ids = cb_calloc(json_array_size(list) + 1, sizeof *t->ids);
    if (!t->ids)
        return CB_ENOMEM;
    json_array_foreach(list, i, v)
    {
        TRY(cb_field_token(v, "prompt", i, n_vocab, &t->ids[i]));
    }
    t->order.n = (int)json_array_size(list);
    return CB_OK;
}

static int read_prompt(struct completion *t, const json_t *p, const char *suffix)
{
    if (suffix && *suffix && !json_is_string(p))
        return cb_fail(CB_EARG, "suffix: needs a prompt that is a text");
    if (suffix && *suffix)
        return cb_fill_in(t->s->m.model, &(struct fill_in){ json_string_value(p), suffix, NULL },
                          &t->ids, &t->order.n);
    if (json_is_array(p) && json_array_size(p))
        return read_ids(t, p);
    if (!json_is_string(p))
        return cb_fail(CB_EARG, "prompt: must be a text, token ids, or a list of either");
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

/* The prompt's text, and how likely its tokens are */
static int read_echo(struct completion *t, struct prompt_state *k, const json_t *prompt)
{
    enum { TOKEN = 1024 }; /* bytes: of a token's values in the answer */
    const size_t each = sizeof *k->scored + TOKEN * (size_t)(1 + max_int(t->order.logprobs, 0));
    const int is_text = json_is_string(prompt);
    char name[256];

    k->from = t->order.n && t->ids[0] == t->s->info.bos;
    TRY(cb_buf_put(&k->text, is_text ? json_string_value(prompt) : "",
                   is_text ? json_string_length(prompt) : 0));
    for (int i = k->from; !is_text && i < t->order.n; i++) {
        const int n = cb_token_bytes(t->s->m.model, t->ids[i], 1, name, sizeof name);
        TRY(cb_buf_put(&k->text, name, (size_t)(n < (int)sizeof name ? n : (int)sizeof name)));
    }
    if (t->order.logprobs < 0 || t->order.n >= t->s->n_ctx)
        return CB_OK; /* the latter is told later */
    TRY(cb_exchange_hold(t->x, ((size_t)t->order.n + 1) * each));
    k->scored = cb_calloc((size_t)t->order.n + 1, sizeof *k->scored);
    if (!k->scored)
        return CB_ENOMEM;
    k->scored[0].at.id = t->ids[0];
    return cb_prompt_logprobs(t->s, t->ids, t->order.n, t->order.logprobs, t->gone, t->gone_arg,
                              k->scored);
}

static int read_turn(struct completion *t, const json_t *r, const json_t *prompt)
{
    struct prompt_state *k = t->state;
    const json_t *options;
    const char *suffix = NULL;
    int64_t top = -1, best = 1;

    TRY(cb_field_int(r, "best_of", 1, CB_FIELD_MOST, &best));
    if (best > t->n)
        return cb_fail(CB_EARG, "best_of: more than n is not supported");
    TRY(cb_field_flag(r, "echo", &k->echo));
    if (json_is_boolean(json_object_get(r, "logprobs"))) /* as conversations have it */
        top = json_is_true(json_object_get(r, "logprobs")) ? 0 : -1;
    else
        TRY(cb_field_int(r, "logprobs", 0, CB_LOGPROBS_MOST, &top));
    t->order.logprobs = (int)top;
    TRY(cb_field_object(r, "stream_options", &options));
    TRY(cb_field_flag(options, "include_usage", &t->include_usage));
    TRY(cb_field_text(r, "suffix", &suffix));
    TRY(read_prompt(t, prompt, suffix));
    return k->echo ? read_echo(t, k, prompt) : CB_OK;
}

static int add_turn(struct exchange *x, struct several *all, const json_t *prompt)
{
    struct prompt_state *k = cb_calloc(1, sizeof *k);
    struct completion *t;
    int rc;

    if (!k)
        return CB_ENOMEM;
    rc = cb_completion_new(x, &dialect, &t);
    if (rc) {
        free(k);
        return rc;
    }
    k->all = all;
    k->place = all->n;
    t->state = k;
    t->free_state = free_state;
    cb_next_id(&t->names, "cmpl-", t->id, sizeof t->id);
    if (all->n)
        memcpy(t->id, all->turn[0]->id, sizeof t->id);
    all->turn[all->n++] = t;
    return read_turn(t, x->json, prompt);
}

static void free_several(struct several *all)
{
    for (int i = 0; i < all->n; i++)
        cb_completion_free(all->turn[i]);
    free(all);
}

/* The request's prompts, of which each becomes a turn; the caller frees *out, also after a failure.
 */
static int read_prompts(struct exchange *x, struct several **out)
{
    const json_t *p = cb_field(x->json, "prompt");
    const int many =
        json_is_array(p) && json_array_size(p) && !json_is_number(json_array_get(p, 0));
    const size_t n = many ? json_array_size(p) : 1;

    *out = NULL;
    if (n > MOST_PROMPTS)
        return cb_fail(CB_EARG, "prompt: at most %d prompts", MOST_PROMPTS);
    *out = cb_calloc(1, sizeof **out + n * sizeof *(*out)->turn);
    if (!*out)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++)
        TRY(add_turn(x, *out, many ? json_array_get(p, i) : p));
    return CB_OK;
}

/* ---- running ---- */

static int next(struct stream *stream, struct buf *out)
{
    struct several *all = (struct several *)stream;
    struct completion *now = all->turn[all->at];

    if (now->stream.next(&now->stream, out))
        return 1;
    return !now->broken && now->n_ended == now->n && ++all->at < all->n;
}

static void close_several(struct stream *stream)
{
    free_several((struct several *)stream);
}

/* 1: x has a stream, which owns all */
static int open_streams(struct exchange *x, struct several *all)
{
    for (int i = 0; i < all->n; i++)
        if (!cb_completion_open_stream(all->turn[i], x))
            return 0;
    all->stream = (struct stream){ next, close_several };
    x->status = 200;
    x->type = "text/event-stream";
    x->stream = &all->stream;
    return 1;
}

void cb_api_completions(struct exchange *x)
{
    struct several *all;
    const int rc = read_prompts(x, &all);
    int ok = !rc, n_tok = 0;

    if (rc)
        cb_exchange_fail(x, rc);
    for (int i = 0; ok && i < all->n; i++) {
        ok = cb_completion_start(all->turn[i], x);
        n_tok += cb_completion_prompt_tokens(all->turn[i]);
    }
    if (ok)
        cb_completion_was_read(x, n_tok);
    if (ok && all->turn[0]->streams && open_streams(x, all))
        return;
    ok = ok && !all->turn[0]->streams;
    for (int i = 0; ok && i < all->n; i++)
        ok = cb_completion_finish(all->turn[i], x);
    if (ok)
        cb_exchange_json(x, 200, whole(all));
    if (all)
        free_several(all);
}
