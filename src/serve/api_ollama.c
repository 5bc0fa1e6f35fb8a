/* SPDX-License-Identifier: MIT */
/* api_ollama.c - the routes below /api that clients of Ollama ask: chat, generate, tags, ps, show,
 * version. Streams are lines of JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "fields.h"
#include "fill_in.h"
#include "model_shelf.h"
#include "ollama_request.h"

/* ---- an answer's lines ---- */

static json_t *now(void)
{
    const time_t t = time(NULL);
    char text[32] = "1970-01-01T00:00:00Z";
    struct tm at;

    if (gmtime_r(&t, &at))
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &at);
    return json_string(text);
}

static int is_generate(const struct completion *t)
{
    return !strcmp(t->x->path, "/api/generate") || !strcmp(t->x->path, "/api/generate/");
}

/* A line with some text and thought; owns both, NULL = none */
static json_t *piece(const struct completion *t, json_t *text, json_t *thought)
{
    json_t *j = json_pack("{s:s, s:o}", "model", t->s->m.name, "created_at", now());
    json_t *to = is_generate(t) ? j : json_pack("{s:s}", "role", "assistant");

    cb_json_set(&to, is_generate(t) ? "response" : "content", text ? text : json_string(""));
    if (thought)
        cb_json_set(&to, "thinking", thought);
    if (is_generate(t))
        j = to;
    else
        cb_json_set(&j, "message", to);
    cb_json_set(&j, "done", json_false());
    return j;
}

static void put_line(struct buf *out, json_t *j)
{
    char *text = j ? cb_json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    cb_buf_text(out, text ? text : "{\"error\":\"out of memory\"}");
    cb_buf_text(out, "\n");
    free(text);
}

static json_int_t nanoseconds(double from, double to)
{
    return to > from && from > 0 ? (json_int_t)((to - from) * 1e9) : 0;
}

/* What the last line has, put into *j */
static void add_end(const struct completion *t, json_t **j)
{
    const struct job *job = t->choice[0].job;
    const struct job_times *at = &job->times;

    cb_json_set(j, "done", json_true());
    cb_json_set(j, "done_reason", json_string(job->end.reason));
    cb_json_set(j, "total_duration", json_integer(nanoseconds(at->ordered, at->ended)));
    cb_json_set(j, "load_duration", json_integer(nanoseconds(at->ordered, at->admitted)));
    cb_json_set(j, "prompt_eval_count", json_integer(t->order.n));
    cb_json_set(j, "prompt_eval_duration", json_integer(nanoseconds(at->admitted, at->read)));
    cb_json_set(j, "eval_count", json_integer(job->n_out));
    cb_json_set(j, "eval_duration", json_integer(nanoseconds(at->read, at->ended)));
    cb_json_set(j, "cached_tokens", json_integer(job->n_cached));
    if (t->ignored)
        cb_json_set(j, "ignored", json_incref(t->ignored));
}

/* ---- calls ---- */

/* Without its arguments, for which a mark stands */
static json_t *call_json(const json_t *call)
{
    return json_pack("{s:O, s:{s:O, s:o}}", "id", json_object_get(call, "id"), "function", "name",
                     json_object_get(call, "name"), "arguments", cb_completion_written(call));
}

/* A call is told whole, once it is there. */
static void end_call(struct choice *c, const json_t *call)
{
    json_t *j = piece(c->turn, NULL, NULL);

    cb_json_set(&j, "message",
                json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "", "tool_calls",
                          call_json(call)));
    struct buf line = { 0 };
    put_line(&line, j);
    cb_completion_put_arguments(&line, call);
    cb_buf_add(c->out, line.s ? line.s : "", line.n);
    c->out->failed |= line.failed;
    cb_buf_free(&line);
}

/* ---- the dialect ---- */

static void text(struct choice *c, const char *s, size_t n)
{
    put_line(c->out, piece(c->turn, cb_json_text(s, n), NULL));
}

static void thought(struct choice *c, const char *s, size_t n)
{
    put_line(c->out, piece(c->turn, NULL, cb_json_text(s, n)));
}

static void end(struct completion *t, struct buf *out)
{
    json_t *j = piece(t, NULL, NULL);

    add_end(t, &j);
    put_line(out, j);
}

static void error(struct completion *t, const char *message, struct buf *out)
{
    (void)t;
    put_line(out, json_pack("{s:o}", "error", cb_json_str(message)));
}

static json_t *whole(struct completion *t)
{
    const struct choice *c = &t->choice[0];
    json_t *j, *calls = json_array(), *call;
    size_t i;

    j = piece(t, cb_json_text(c->text.s, c->text.n),
              c->thought.n ? cb_json_text(c->thought.s, c->thought.n) : NULL);
    json_array_foreach(c->calls, i, call) cb_json_add(&calls, call_json(call));
    if (json_array_size(calls) && !is_generate(t) && j &&
        json_object_set(json_object_get(j, "message"), "tool_calls", calls)) {
        json_decref(j);
        j = NULL;
    }
    json_decref(calls);
    add_end(t, &j);
    return j;
}

static const struct dialect dialect = {
    .stream_type = "application/x-ndjson",
    .text = text,
    .thought = thought,
    .end_call = end_call,
    .end = end,
    .error = error,
    .whole = whole,
    .call_prefix = "call_",
};

/* ---- requests ---- */

static int read_chat(struct completion *t, const json_t *r)
{
    if (t->n > 1)
        return cb_fail(CB_EARG, "n: one answer only");
    return cb_completion_chat(t, r);
}

/* A prompt as it is: with raw, or between two texts */
static int read_raw(struct completion *t, const char *prompt, const char *suffix)
{
    const struct fill_in what = { prompt, suffix, NULL };

    t->begin = REPLY_IN_TEXT;
    return suffix ? cb_fill_in(t->s->m.model, &what, &t->ids, &t->order.n)
                  : cb_tokenize(t->s->m.model, prompt, strlen(prompt), CB_TOK_BOS | CB_TOK_SPECIAL,
                                &t->ids, &t->order.n);
}

static int read_generate(struct completion *t, const json_t *r)
{
    const char *prompt = "", *suffix = NULL;
    int raw = 0;

    TRY(cb_field_text(r, "prompt", &prompt));
    TRY(cb_field_text(r, "suffix", &suffix));
    TRY(cb_field_flag(r, "raw", &raw));
    suffix = suffix && *suffix ? suffix : NULL;
    return raw || suffix ? read_raw(t, prompt, suffix) : read_chat(t, r);
}

/* What a request without a prompt asks for: the model, which is loaded now */
static void tell_loaded(struct exchange *x, int generate)
{
    json_t *j = json_pack("{s:s, s:o, s:b, s:s}", "model", x->s->m.name, "created_at", now(),
                          "done", 1, "done_reason", "load");

    if (generate)
        cb_json_set(&j, "response", json_string(""));
    else
        cb_json_set(&j, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    cb_exchange_json(x, 200, j);
}

static void run(struct exchange *x, int generate)
{
    const json_t *asked = json_object_get(x->json, generate ? "prompt" : "messages");
    const int none = !asked || json_is_null(asked) ||
                     (generate ? json_is_string(asked) && !json_string_length(asked)
                               : json_is_array(asked) && !json_array_size(asked));
    json_t *r;
    int rc;

    if (none) {
        tell_loaded(x, generate);
        return;
    }
    rc = cb_ollama_request(x->json, generate, &r);
    if (rc) {
        json_decref(r);
        cb_exchange_fail(x, rc);
        return;
    }
    json_decref(x->json);
    x->json = r;
    cb_api_answer(x, &dialect, NULL, generate ? read_generate : read_chat);
}

void cb_api_ollama_chat(struct exchange *x)
{
    run(x, 0);
}

void cb_api_ollama_generate(struct exchange *x)
{
    run(x, 1);
}

/* ---- models ---- */

static json_t *details(const struct shelf_view *v)
{
    char size[32] = "";
    const double n = (double)v->info.n_params;

    if (v->state == SHELF_LOADED)
        snprintf(size, sizeof size, n < 1e9 ? "%.1fM" : "%.1fB", n < 1e9 ? n / 1e6 : n / 1e9);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf",
                     "family", v->arch, "families", v->arch, "parameter_size", size,
                     "quantization_level", v->quant);
}

static json_t *tag(const struct shelf_view *v)
{
    char digest[80], at[32] = "1970-01-01T00:00:00Z";
    struct tm tm;

    /* of the file's shape: reading all its bytes would take too long */
    snprintf(digest, sizeof digest, "%064" PRIx64, v->info.fingerprint);
    if (gmtime_r(&v->begun, &tm))
        strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:o}", "name", cb_json_str(v->entry->name), "model",
                     cb_json_str(v->entry->name), "modified_at", at, "size",
                     (json_int_t)v->entry->bytes, "digest", digest, "details", details(v));
}

static void tell_models(struct exchange *x, int loaded_only)
{
    json_t *list = json_array();
    struct shelf_view v;

    for (int i = 0; i < cb_shelf_n(x->shelf); i++) {
        cb_shelf_look(x->shelf, i, &v);
        if (!loaded_only || v.state == SHELF_LOADED)
            cb_json_add(&list, tag(&v));
    }
    cb_exchange_json(x, 200, json_pack("{s:o}", "models", list));
}

void cb_api_ollama_tags(struct exchange *x)
{
    tell_models(x, 0);
}

void cb_api_ollama_ps(struct exchange *x)
{
    tell_models(x, 1);
}

void cb_api_ollama_show(struct exchange *x)
{
    const struct server *s = x->s;
    json_t *can = json_pack("[s]", "completion");
    struct shelf_view v;

    cb_shelf_look(x->shelf, cb_shelf_find(x->shelf, s->m.name), &v);
    if (s->fit.jinja || s->info.chat_form)
        cb_json_add(&can, json_string("tools")); /* by the template or the system message */
    cb_exchange_json(x, 200,
                     json_pack("{s:s, s:s, s:s, s:o, s:{s:s, s:I, s:i}, s:o}", "modelfile", "",
                               "parameters", "", "template", "", "details", details(&v),
                               "model_info", "general.architecture", s->info.arch,
                               "general.parameter_count", (json_int_t)s->info.n_params,
                               "context_length", s->n_ctx, "capabilities", can));
}

void cb_api_ollama_version(struct exchange *x)
{
    cb_exchange_json(x, 200, json_pack("{s:s}", "version", cb_version()));
}
