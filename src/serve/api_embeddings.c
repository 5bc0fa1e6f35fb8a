/* SPDX-License-Identifier: MIT */
/* api_embeddings.c - /v1/embeddings of OpenAI, /api/embed and /api/embeddings of Ollama. The
 * connection's thread reads the texts itself, in steps between which answers get their turns; one
 * request at a time, so that memory stays bounded.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/words.h"
#include "engine/embedding.h"
#include "fields.h"
#include "own_reading.h"

enum { MOST_TEXTS = 2048 };

struct text {
    int32_t *ids;
    int n;
};

struct request {
    struct exchange *x;
    struct text *text; /* [n] */
    int n, n_tok, longest;
    int base64, n_dim; /* n_dim: numbers of an embedding that are wanted */
    cb_session *session;
    float *out; /* [n_embd] */
};

/* ---- the request ---- */

static int read_ids(const struct request *r, const json_t *list, struct text *t)
{
    const int n_vocab = cb_n_vocab(r->x->s->m.model);
    const json_t *v;
    size_t i;

    t->ids = cb_calloc(json_array_size(list) + 1, sizeof *t->ids);
    if (!t->ids)
        return CB_ENOMEM;
    json_array_foreach(list, i, v)
    {
        TRY(cb_field_token(v, "input", i, n_vocab, &t->ids[i]));
        t->n++;
    }
    return CB_OK;
}

static int read_text(struct request *r, const json_t *v)
{
    struct text *t = &r->text[r->n++];

    if (json_is_array(v))
        TRY(read_ids(r, v, t));
    else if (json_is_string(v))
        TRY(cb_tokenize(r->x->s->m.model, json_string_value(v), json_string_length(v),
                        CB_TOK_BOS | CB_TOK_EOS | CB_TOK_SPECIAL, &t->ids, &t->n));
    else
        return cb_fail(CB_EARG, "input: must be a text, token ids, or a list of them");
    if (!t->n)
        return cb_fail(CB_EARG, "input: text %d is empty", r->n);
    if (t->n > r->x->s->n_ctx)
        return cb_fail(CB_EARG, "input: text %d has %d tokens, the context %d", r->n, t->n,
                       r->x->s->n_ctx);
    r->longest = t->n > r->longest ? t->n : r->longest;
    r->n_tok += t->n;
    return CB_OK;
}

/* A text, token ids, or a list of either */
static int read_input(struct request *r, const json_t *v)
{
    const int many = json_is_array(v) && !json_is_number(json_array_get(v, 0));
    const size_t n = many ? json_array_size(v) : 1;

    if (!n || n > MOST_TEXTS)
        return cb_fail(CB_EARG, "input: must have 1 to %d texts", MOST_TEXTS);
    r->text = cb_calloc(n, sizeof *r->text);
    if (!r->text)
        return CB_ENOMEM;
    for (size_t i = 0; i < n; i++)
        TRY(read_text(r, many ? json_array_get(v, i) : v));
    return CB_OK;
}

static int read_request(struct request *r)
{
    const json_t *j = r->x->json;
    const char *format = "float";
    int64_t n_dim = r->x->s->info.n_embd;

    TRY(cb_field_text(j, "encoding_format", &format));
    r->base64 = !strcasecmp(format, "base64");
    if (!r->base64 && *format && strcasecmp(format, "float"))
        return cb_fail(CB_EARG, "encoding_format: must be float or base64");
    TRY(cb_field_int(j, "dimensions", 1, n_dim, &n_dim));
    r->n_dim = (int)n_dim;
    return read_input(r, cb_field(j, cb_field(j, "input") ? "input" : "prompt"));
}

/* ---- the work ---- */

static int embed(const struct request *r, const struct text *t)
{
    const struct own_reading reading = { r->x->s, r->x->gone, r->x->gone_arg };
    const struct serve_model *m = &r->x->s->m;
    const struct cb_embedding how = { m->pooling, 1 };
    struct cb_prefill read;
    struct embedding e;
    int rc = cb_embedding_begin(&e, m->model, &how);

    if (!rc) {
        read = cb_embedding_prefill(&e);
        cb_session_clear(r->session);
        rc = cb_own_reading(&reading, r->session, t->ids, t->n, &read);
    }
    e.n_embd = r->n_dim; /* the first numbers, scaled to length 1 */
    if (!rc)
        cb_embedding_end(&e, r->out);
    cb_embedding_free(&e);
    return rc;
}

/* ---- the answer ---- */

static json_t *in_base64(const float *x, int n)
{
    struct buf out = { 0 };
    json_t *j;

    cb_base64_write(x, (size_t)n * sizeof *x, &out); /* little endian, as the machine */
    j = out.failed ? NULL : json_stringn(out.s, out.n);
    cb_buf_free(&out);
    return j;
}

static json_t *in_numbers(const float *x, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        cb_json_add(&list, cb_json_real((double)x[i]));
    return list;
}

static int embed_all(struct request *r, json_t **list)
{
    const struct cb_session_params p = { .n_ctx = r->longest };

    enum { NUMBER = 112 }; /* bytes of a number's value and its text */

    TRY(cb_exchange_hold(r->x, (size_t)r->n * (size_t)r->n_dim * NUMBER));
    r->out = cb_calloc((size_t)r->x->s->info.n_embd, sizeof *r->out);
    if (!r->out)
        return CB_ENOMEM;
    TRY(cb_session_open(r->x->s->m.model, &p, &r->session));
    for (int i = 0; i < r->n; i++) {
        TRY(embed(r, &r->text[i]));
        cb_json_add(
            list,
            json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i, "embedding",
                      r->base64 ? in_base64(r->out, r->n_dim) : in_numbers(r->out, r->n_dim)));
    }
    return CB_OK;
}

static int answer(struct request *r, json_t **list)
{
    int rc;

    TRY(read_request(r));
    pthread_mutex_lock(&r->x->s->embedding);
    rc = embed_all(r, list);
    cb_session_close(r->session);
    pthread_mutex_unlock(&r->x->s->embedding);
    return cb_model_status(rc);
}

/* What Ollama's clients expect of the list of embeddings, which it owns */
static json_t *plain_answer(const struct request *r, json_t *list)
{
    const int one = cb_begins(r->x->path, "/api/embeddings");
    json_t *all = json_array(), *e, *j;
    size_t i;

    json_array_foreach(list, i, e) cb_json_add(&all, json_incref(json_object_get(e, "embedding")));
    if (one)
        j = json_pack("{s:O}", "embedding", json_array_get(all, 0));
    else
        j = json_pack("{s:s, s:O, s:i}", "model", r->x->s->m.name, "embeddings", all,
                      "prompt_eval_count", r->n_tok);
    json_decref(all);
    json_decref(list);
    return j;
}

void cb_api_embeddings(struct exchange *x)
{
    struct request r = { .x = x };
    json_t *list = json_array();
    const int rc = answer(&r, &list);

    if (rc) {
        json_decref(list);
        cb_exchange_fail(x, rc);
    } else if (cb_is_ollama(x)) {
        cb_exchange_json(x, 200, plain_answer(&r, list));
    } else {
        cb_exchange_json(x, 200,
                         json_pack("{s:s, s:o, s:s, s:{s:i, s:i}}", "object", "list", "data", list,
                                   "model", x->s->m.name, "usage", "prompt_tokens", r.n_tok,
                                   "total_tokens", r.n_tok));
    }
    for (int i = 0; i < r.n; i++)
        free(r.text[i].ids);
    free(r.text);
    free(r.out);
}
