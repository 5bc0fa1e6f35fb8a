/* SPDX-License-Identifier: MIT */
/* api_state.c - what the server is and does: /health, /props, /slots, /metrics. */
#include <inttypes.h>
#include <stdlib.h>

#include "api.h"
#include "base/err.h"
#include "model_shelf.h"

void cb_api_health(struct exchange *x)
{
    cb_exchange_json(x, 200, json_pack("{s:s}", "status", "ok"));
}

static json_t *names(int (*at)(int i, struct cb_method_info *out))
{
    struct cb_method_info method;
    json_t *list = json_array();

    for (int i = 0; !at(i, &method); i++)
        cb_json_add(&list, json_string(method.name));
    return list;
}

void cb_api_props(struct exchange *x)
{
    const struct scheduler_params *p = cb_scheduler_params(x->s->scheduler);
    const struct cb_session_params *session = &p->slots.session;
    const struct cb_sampler_params *k = &x->s->m.sampler;

    cb_exchange_json(
        x, 200,
        json_pack("{s:o, s:i, s:i, s:i, s:s, s:o, s:s, s:o, s:s, s:s, s:s, s:I, s:s, s:{s:f, s:i, "
                  "s:f, s:f}}",
                  "model", cb_api_model_json(x, cb_shelf_find(x->shelf, x->s->m.name)), "n_ctx",
                  x->s->n_ctx, "total_slots", p->slots.n, "queue", p->most_waiting, "policy",
                  session->policy ? session->policy : "full", "policies", names(cb_policy_at),
                  "prefill", session->prefill ? session->prefill : "dense", "prefills",
                  names(cb_prefill_at), "type_k", session->type_k ? session->type_k : "f16",
                  "type_v", session->type_v ? session->type_v : "f16", "chat_template",
                  x->s->m.chat.form      ? x->s->m.chat.form
                  : x->s->info.chat_form ? x->s->info.chat_form
                                         : "none",
                  "bank_bytes_limit", (json_int_t)p->slots.most_bytes, "version", cb_version(),
                  "sampling", "temperature", (double)k->temp, "top_k", k->top_k, "top_p",
                  (double)k->top_p, "min_p", (double)k->min_p));
}

void cb_api_slots(struct exchange *x)
{
    static const char *const state[] = { "waiting", "prompt", "generating", "ended" };
    const int n = cb_scheduler_params(x->s->scheduler)->slots.n;
    struct slot_view *v = cb_calloc((size_t)n, sizeof *v);
    json_t *list = json_array();

    if (v)
        cb_scheduler_views(x->s->scheduler, v);
    for (int i = 0; v && i < n; i++)
        cb_json_add(&list, json_pack("{s:i, s:b, s:s, s:i, s:i, s:f, s:i, s:I, s:s}", "id", i,
                                     "is_processing", v[i].working, "state",
                                     v[i].working ? state[v[i].state]
                                     : v[i].open  ? "kept"
                                                  : "empty",
                                     "n_tokens", v[i].n_tokens, "n_prompt", v[i].n_prompt,
                                     "progress", v[i].read, "n_generated", v[i].n_made, "kv_bytes",
                                     (json_int_t)v[i].kv_bytes, "policy", v[i].policy));
    free(v);
    cb_exchange_json(x, 200, list);
}

/* ---- /metrics, the text form of Prometheus ---- */

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    cb_buf_print(b, "# HELP ctxbank_%s %s\n# TYPE ctxbank_%s %s\n", name, help, name, type);
}

static void put_count(struct buf *b, const char *name, uint64_t n, const char *help)
{
    head(b, name, "counter", help);
    cb_buf_print(b, "ctxbank_%s %" PRIu64 "\n", name, n);
}

static void put_seconds(struct buf *b, const char *name, double s, const char *help)
{
    head(b, name, "counter", help);
    cb_buf_print(b, "ctxbank_%s %.6f\n", name, s);
}

static void put_gauge(struct buf *b, const char *name, uint64_t n, const char *help)
{
    head(b, name, "gauge", help);
    cb_buf_print(b, "ctxbank_%s %" PRIu64 "\n", name, n);
}

static void put_histogram(struct buf *b, const char *name, const struct histogram *h,
                          const char *help)
{
    uint64_t sum = 0;

    head(b, name, "histogram", help);
    for (int i = 0; i < CB_BUCKETS - 1; i++) {
        sum += h->count[i];
        cb_buf_print(b, "ctxbank_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, cb_bucket_s[i], sum);
    }
    cb_buf_print(b, "ctxbank_%s_bucket{le=\"+Inf\"} %" PRIu64 "\nctxbank_%s_sum %.6f\n", name, h->n,
                 name, h->sum);
    cb_buf_print(b, "ctxbank_%s_count %" PRIu64 "\n", name, h->n);
}

static void put_ends(struct buf *b, const struct scheduler_stats *s)
{
    static const char *const reason[] = { "stop", "length", "cancelled", "error" };

    head(b, "answers_total", "counter", "Answers that have ended, by reason.");
    for (int i = 0; i < 4; i++)
        cb_buf_print(b, "ctxbank_answers_total{reason=\"%s\"} %" PRIu64 "\n", reason[i],
                     s->ended[i]);
}

void cb_api_metrics(struct exchange *x)
{
    struct scheduler_stats s;
    struct buf *b = &x->out;

    cb_shelf_stats(x->shelf, &s);
    put_count(b, "answers_ordered_total", s.ordered, "Answers that were ordered.");
    put_count(b, "requests_refused_total", s.refused, "Requests that found the queue full.");
    put_ends(b, &s);
    put_count(b, "prompt_tokens_total", s.prompt_tokens, "Tokens of prompts that were computed.");
    put_count(b, "cached_tokens_total", s.cached_tokens,
              "Tokens of prompts that a kept session held.");
    put_count(b, "bank_hit_tokens_total", s.hit_tokens,
              "Tokens of prompts that the bank folder held; they count as cached too.");
    put_count(b, "bank_saved_tokens_total", s.saved_tokens,
              "Tokens of prompts that the bank folder was given.");
    put_count(b, "bank_save_failures_total", s.save_failures,
              "Prompts that could not be written to the bank folder.");
    put_count(b, "generated_tokens_total", s.made_tokens, "Tokens of answers that have ended.");
    put_count(b, "decode_batches_total", s.batches, "Decoding steps.");
    put_count(b, "drafted_tokens_total", s.drafted, "Tokens of drafts.");
    put_count(b, "accepted_tokens_total", s.accepted, "Tokens of drafts that became text.");
    put_count(b, "decoded_tokens_total", s.batched, "Tokens in decoding steps.");
    put_seconds(b, "prompt_seconds_total", s.prompt_s, "Time spent on prompts.");
    put_seconds(b, "decode_seconds_total", s.decode_s, "Time spent on decoding steps.");
    put_count(b, "bank_read_bytes_total", s.read_bytes,
              "Bytes of keys and values that decoded tokens read.");
    put_gauge(b, "bank_bytes", s.bank_bytes, "Bytes of keys and values that are held.");
    put_gauge(b, "requests_waiting", (uint64_t)s.waiting, "Answers in the queue.");
    put_gauge(b, "requests_reading", (uint64_t)s.reading, "Answers whose prompt is computed.");
    put_gauge(b, "requests_writing", (uint64_t)s.writing, "Answers that are generated.");
    put_gauge(b, "request_bytes", x->request_bytes,
              "Bytes of memory that requests under way take.");
    put_histogram(b, "first_token_seconds", &s.first_token, "Time to the first token.");
    put_histogram(b, "between_tokens_seconds", &s.between, "Time between decoding steps.");
    x->status = 200;
    x->type = "text/plain; version=0.0.4; charset=utf-8";
}
