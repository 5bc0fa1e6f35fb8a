/* SPDX-License-Identifier: MIT */
/* api_text.c - /tokenize and /detokenize. */
#include <stdlib.h>

#include "api.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "fields.h"

/* Memory for what the answer has grown by since the last time, in steps */
static int hold_growth(struct exchange *x, size_t n, int each, size_t *held)
{
    enum { STEP = 64 << 10 };

    if (n < *held)
        return CB_OK;
    *held += STEP;
    return cb_exchange_hold(x, (size_t)each * STEP);
}

/* The text of a token as JSON */
static int put_piece(struct buf *out, const cb_model *m, int32_t id)
{
    char s[256];
    const int n = cb_token_bytes(m, id, 1, s, sizeof s);
    json_t *j = cb_json_text(s, (size_t)(n < (int)sizeof s ? n : (int)sizeof s));
    char *text = j ? cb_json_dumps(j, JSON_ENCODE_ANY) : NULL;

    cb_buf_print(out, "{\"id\":%d,\"piece\":%s}", id, text ? text : "null");
    json_decref(j);
    free(text);
    return text ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

/* ids[n] -> the answer. Its text is written at once: values would take many times its bytes. */
static int put_tokens(struct exchange *x, const int32_t *ids, int n, int pieces)
{
    enum { GROWS = 3 }; /* a buffer and its next, twice as large */
    size_t held = 0;

    cb_buf_clear(&x->out);
    cb_buf_text(&x->out, "{\"tokens\":[");
    for (int i = 0; i < n; i++) {
        TRY(hold_growth(x, x->out.n, GROWS, &held));
        if (i)
            cb_buf_add(&x->out, ",", 1);
        if (pieces)
            TRY(put_piece(&x->out, x->s->m.model, ids[i]));
        else
            cb_buf_print(&x->out, "%d", ids[i]);
    }
    cb_buf_print(&x->out, "],\"count\":%d,\"max_model_len\":%d}", n, x->s->n_ctx);
    return x->out.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

static int tokenize(struct exchange *x)
{
    const json_t *v = cb_field(x->json, "content");
    /* vLLM's field, by which a text has the tokens that begin it unless the request says otherwise
     */
    const json_t *prompt = v ? NULL : cb_field(x->json, "prompt");
    int bos = prompt != NULL, special = 1, pieces = 0, n, rc;
    int32_t *ids;

    v = prompt ? prompt : v;
    if (!json_is_string(v))
        return cb_fail(CB_EARG, "content: must be a text");
    TRY(cb_field_flag(x->json, "add_special", &bos));
    TRY(cb_field_flag(x->json, "add_special_tokens", &bos));
    TRY(cb_field_flag(x->json, "parse_special", &special));
    TRY(cb_field_flag(x->json, "with_pieces", &pieces));
    TRY(cb_tokenize(x->s->m.model, json_string_value(v), json_string_length(v),
                    (bos ? CB_TOK_BOS : 0) | (special ? CB_TOK_SPECIAL : 0), &ids, &n));
    rc = put_tokens(x, ids, n, pieces);
    free(ids);
    return rc;
}

void cb_api_tokenize(struct exchange *x)
{
    const int rc = tokenize(x);

    if (rc) {
        cb_buf_free(&x->out);
        cb_exchange_fail(x, rc);
        return;
    }
    x->status = 200;
    x->type = "application/json";
}

static int detokenize(struct exchange *x, cb_detokenizer *d, struct buf *text)
{
    const int n_vocab = cb_n_vocab(x->s->m.model);
    enum { COPIES = 18 }; /* checked, as two values, as JSON */
    const json_t *list, *v;
    size_t i, n, held = 0;
    const char *s;
    int32_t id;

    TRY(cb_field_array(x->json, "tokens", &list));
    if (!list)
        return cb_fail(CB_EARG, "tokens: must be a list of token ids");
    json_array_foreach(list, i, v)
    {
        TRY(cb_field_token(v, "tokens", i, n_vocab, &id));
        TRY(cb_detokenizer_push(d, id, &s, &n));
        TRY(cb_buf_put(text, s, n));
        TRY(hold_growth(x, text->n, COPIES, &held));
    }
    cb_detokenizer_end(d, &s, &n);
    return cb_buf_put(text, s, n);
}

void cb_api_detokenize(struct exchange *x)
{
    cb_detokenizer *d;
    struct buf text = { 0 };
    int rc = cb_detokenizer_new(x->s->m.model, CB_TOK_SPECIAL | CB_TOK_WHOLE, &d);

    if (!rc)
        rc = detokenize(x, d, &text);
    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200,
                         json_pack("{s:o, s:o}", "content", cb_json_text(text.s, text.n), "prompt",
                                   cb_json_text(text.s, text.n))); /* llama-server's, vLLM's */
    cb_detokenizer_free(d);
    cb_buf_free(&text);
}

/* The text of a special token, or null */
static json_t *special_token(const cb_model *m, int32_t id)
{
    char s[256];
    const int n = id < 0 ? 0 : cb_token_bytes(m, id, 1, s, sizeof s);

    return n > 0 && n <= (int)sizeof s ? cb_json_text(s, (size_t)n) : json_null();
}

void cb_api_tokenizer_info(struct exchange *x)
{
    const struct cb_model_info *f = &x->s->info;
    const cb_model *m = x->s->m.model;

    cb_exchange_json(x, 200,
                     json_pack("{s:o, s:o, s:n, s:b, s:i, s:i}", "bos_token",
                               special_token(m, f->bos), "eos_token", special_token(m, f->eos),
                               "pad_token", "add_bos_token", f->add_bos, "vocab_size", f->n_vocab,
                               "model_max_length", x->s->n_ctx));
}
