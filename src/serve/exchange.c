/* SPDX-License-Identifier: MIT */
/* exchange.c - answers and errors in the forms that clients expect. */
#include "exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json_lenient.h"
#include "base/random.h"
#include "base/shortage.h"
#include "base/words.h"

int cb_exchange_lacks(void)
{
    return cb_memory_failed() || cb_json_failed();
}

void cb_exchange_forget(void)
{
    cb_memory_forget();
    cb_json_forget();
}

void cb_exchange_json(struct exchange *x, int status, json_t *j)
{
    char *text = j ? cb_json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    x->status = text ? status : 500;
    x->type = "application/json";
    cb_buf_clear(&x->out);
    cb_buf_text(&x->out, text ? text : "{\"error\":{\"message\":\"out of memory\"}}");
    free(text);
}

int cb_is_anthropic(const struct exchange *x)
{
    return cb_begins(x->path, "/v1/messages");
}

int cb_is_ollama(const struct exchange *x)
{
    return cb_begins(x->path, "/api/");
}

static enum error_form form_of(const struct exchange *x)
{
    return cb_is_anthropic(x) ? ERRORS_ANTHROPIC : cb_is_ollama(x) ? ERRORS_PLAIN : ERRORS_OPENAI;
}

static const char *kind(int anthropic, int status)
{
    static const struct {
        int status;
        const char *openai, *anthropic;
    } list[] = {
        { 401, "authentication_error", "authentication_error" },
        { 403, "permission_error", "permission_error" },
        { 404, "not_found_error", "not_found_error" },
        { 413, "invalid_request_error", "request_too_large" },
        { 429, "rate_limit_error", "rate_limit_error" },
        { 503, "unavailable_error", "overloaded_error" },
        { 529, "unavailable_error", "overloaded_error" },
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].status == status)
            return anthropic ? list[i].anthropic : list[i].openai;
    if (status < 500)
        return "invalid_request_error";
    return anthropic ? "api_error" : "server_error";
}

/* The code by which clients tell errors apart, where none is given; NULL: none */
static const char *code_of(int status, const char *field)
{
    switch (status) {
    case 400:
        return field ? "invalid_value" : NULL;
    case 401:
        return "invalid_api_key";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_exceeded";
    case 500:
        return "server_error";
    case 503:
        return "service_unavailable";
    default:
        return NULL;
    }
}

static json_t *text_or_null(const char *s)
{
    return s ? cb_json_str(s) : json_null();
}

static json_t *error_json(enum error_form form, int status, const char *message, const char *field,
                          const char *code)
{
    const char *type = kind(form == ERRORS_ANTHROPIC, status);

    if (form == ERRORS_PLAIN)
        return json_pack("{s:o}", "error", cb_json_str(message));
    if (form == ERRORS_ANTHROPIC)
        return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message",
                         cb_json_str(message));
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", cb_json_str(message), "type",
                     type, "param", text_or_null(field), "code",
                     text_or_null(code ? code : code_of(status, field)));
}

json_t *cb_error_json(enum error_form form, int status, const char *message, const char *field)
{
    return error_json(form, status, message, field, NULL);
}

static void put_error(struct exchange *x, int status, json_t *error)
{
    cb_exchange_json(x, status, error);
    if (status == 429 || status == 503 || status == 529)
        x->retry_after = 1;
}

void cb_exchange_coded(struct exchange *x, int status, const char *message, const char *field,
                       const char *code)
{
    put_error(x, status, error_json(form_of(x), status, message, field, code));
}

void cb_exchange_error(struct exchange *x, int status, const char *message, const char *field)
{
    cb_exchange_coded(x, status, message, field, NULL);
}

/* In the words by which agents know that they must shorten the conversation */
void cb_exchange_overflow(struct exchange *x, int n_prompt, int n_ctx)
{
    const int responses = strstr(x->path, "/responses") != NULL,
              chat = strstr(x->path, "/chat/") != NULL;
    struct buf why = { 0 };
    json_t *j, *numbers;

    if (cb_is_anthropic(x))
        cb_buf_print(&why, "prompt is too long: %d tokens > %d maximum", n_prompt, n_ctx - 1);
    else
        cb_buf_print(
            &why,
            "This model's maximum context length is %d tokens. However, your messages "
            "resulted in %d tokens. Please reduce the length of the messages. (The request "
            "exceeds the available context size.)",
            n_ctx, n_prompt);
    j = error_json(form_of(x), 400, why.s ? why.s : "out of memory",
                   chat        ? "messages"
                   : responses ? "input"
                               : "prompt",
                   "context_length_exceeded");
    numbers = json_pack("{s:i, s:i}", "n_prompt_tokens", n_prompt, "n_ctx", n_ctx);
    if (form_of(x) == ERRORS_OPENAI && numbers) /* no harm if memory runs out for them */
        (void)!json_object_update(json_object_get(j, "error"), numbers);
    json_decref(numbers);
    put_error(x, 400, j);
    cb_buf_free(&why);
}

int cb_exchange_hold(struct exchange *x, size_t bytes)
{
    return x->hold ? x->hold(x->hold_arg, bytes) : CB_OK;
}

void cb_exchange_give_back(struct exchange *x, size_t bytes)
{
    if (x->give_back)
        x->give_back(x->hold_arg, bytes);
}

void cb_exchange_was_read(struct exchange *x, size_t bytes)
{
    if (x->reading > bytes)
        cb_exchange_give_back(x, x->reading - bytes);
    x->reading = x->reading > bytes ? bytes : x->reading;
}

/* For a negative status of the library */
static int http_status(int status)
{
    if (status == CB_ECANCEL || status == SERVE_EBUSY)
        return 503;
    if (status == SERVE_ETOOLARGE)
        return 413;
    return status == CB_EARG || status == CB_EFULL || status == CB_EUNSUPPORTED ||
                   status == CB_EFORMAT
               ? 400
               : 500;
}

int cb_model_status(int status)
{
    return status == CB_EFORMAT ? SERVE_EMODEL : status;
}

/* The length of the field that a failure's text begins with, or 0 */
static size_t field_of(const char *why)
{
    const size_t n = strcspn(why, ": ");

    return why[n] == ':' || cb_begins(why, "policy ") || cb_begins(why, "prefill ") ? n : 0;
}

void cb_exchange_report(struct exchange *x, int status, const char *why)
{
    char field[128];

    snprintf(field, sizeof field, "%.*s", (int)field_of(why), why);
    cb_exchange_error(x, http_status(status), why, status == CB_EARG && *field ? field : NULL);
}

void cb_exchange_fail(struct exchange *x, int status)
{
    cb_exchange_report(x, status, cb_error());
}

void cb_event(struct buf *out, const char *name, json_t *j)
{
    char *text = j ? cb_json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

    json_decref(j);
    if (name)
        cb_buf_print(out, "event: %s\n", name);
    cb_buf_print(out, "data: %s\n\n", text ? text : "{\"error\":{\"message\":\"out of memory\"}}");
    free(text);
}

int cb_ids_open(struct id_source *ids)
{
    ids->n = 0;
    return cb_random(&ids->key, sizeof ids->key);
}

void cb_next_id(struct id_source *ids, const char *prefix, char *out, size_t cap)
{
    const uint64_t a = cb_siphash_word(&ids->key, ids->n++),
                   b = cb_siphash_word(&ids->key, ids->n++);

    snprintf(out, cap, "%s%016" PRIx64 "%08" PRIx32, prefix, a, (uint32_t)b);
}
