/* SPDX-License-Identifier: MIT */
/* api_rerank.c - /v1/rerank: how well documents answer a query, by models that were trained to
 * judge pairs of texts: with a classifier in the file, or by the logits of "yes" and "no". */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api.h"
#include "base/err.h"
#include "base/ints.h"
#include "base/json_lenient.h"
#include "engine/embedding.h"
#include "fields.h"
#include "gguf/dtype.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "own_reading.h"

enum { MOST_DOCUMENTS = 2048 };

struct document {
    int index;
    int32_t *ids; /* [n] the query's and the document's prompt */
    int n;
    double score;
};

struct ranking {
    struct exchange *x;
    const cb_model *model;
    struct buf form; /* a chat template with the variables query and document */
    int32_t yes, no; /* tokens, of a model without a classifier */
    struct document *at;
    int n, longest, n_tok;
    cb_session *session;
    struct embedding last; /* of a model with a classifier: the last state, as sums */
};

/* ---- what kind of model it is ---- */

/* Qwen3-Reranker's own prompt, for files that have none (Zhang et al. 2025) */
static const char usual_form[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
    "answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n";

/* The file's template, in which {query} and {document} stand for the texts, as a chat template */
static int read_form(struct ranking *r)
{
    static const char *const names[] = { "{query}", "{document}" };
    struct gguf_str own = { usual_form, sizeof usual_form - 1 };
    const char *s, *end;

    TRY(cb_model_status(cb_gguf_string(r->model->gguf, "tokenizer.chat_template.rerank", &own)));
    for (s = own.s, end = own.s + own.n; s < end; s++) {
        const char *name = NULL;
        for (int i = 0; i < 2 && !name; i++)
            if ((size_t)(end - s) >= strlen(names[i]) && !memcmp(s, names[i], strlen(names[i])))
                name = names[i];
        if (!name)
            cb_buf_add(&r->form, s, 1);
        else
            cb_buf_print(&r->form, "{{ %.*s }}", (int)strlen(name) - 2, name + 1);
        s += name ? strlen(name) - 1 : 0;
    }
    if (own.n && end[-1] == '\n')
        cb_buf_add(&r->form, "\n", 1); /* Jinja takes the last line end away */
    return r->form.failed ? cb_fail(CB_ENOMEM, "out of memory") : CB_OK;
}

/* The one token of a word, or -1 */
static int word_token(const cb_model *model, const char *word, int32_t *out)
{
    int32_t *ids = NULL;
    int n = 0, rc = cb_tokenize(model, word, strlen(word), 0, &ids, &n);

    *out = !rc && n == 1 ? ids[0] : -1;
    free(ids);
    return rc;
}

static int is_reranker_by_name(const char *name)
{
    for (; *name; name++)
        if (!strncasecmp(name, "rerank", 6))
            return 1;
    return 0;
}

static int check_model(struct ranking *r)
{
    if (r->model->classifier.raw)
        return CB_OK;
    if (!is_reranker_by_name(r->x->s->info.name))
        return cb_fail(CB_EARG,
                       "model: %.100s ranks no texts: the file has no classifier (cls.output), and "
                       "its name does not say that it was trained to answer yes or no",
                       r->x->s->m.name);
    TRY(word_token(r->model, "yes", &r->yes));
    TRY(word_token(r->model, "no", &r->no));
    return r->yes < 0 || r->no < 0
               ? cb_fail(CB_EARG, "model: %.100s ranks no texts: \"yes\" and \"no\" are no tokens",
                         r->x->s->m.name)
               : CB_OK;
}

/* ---- the request ---- */

static int read_document(struct ranking *r, const char *query, const json_t *v)
{
    struct cb_chat how = { r->form.s, NULL };
    struct document *d = &r->at[r->n];
    const json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    json_t *vars;
    enum { EACH = sizeof *d->ids }; /* bytes that stay of a text's byte */
    char *vars_text;
    int rc;

    if (!json_is_string(text))
        return cb_fail(CB_EARG, "documents: [%d] must be a text", r->n);
    TRY(cb_exchange_hold(r->x, EACH * (strlen(query) + json_string_length(text))));
    vars = json_pack("{s:s, s:O}", "query", query, "document", text);
    vars_text = vars ? cb_json_dumps(vars, JSON_COMPACT) : NULL;
    json_decref(vars);
    if (!vars_text)
        return cb_fail(CB_ENOMEM, "out of memory");
    how.vars = vars_text;
    d->index = r->n++;
    rc = cb_chat_tokenize(r->model, &how, NULL, 0, 1, 0, &d->ids, &d->n);
    free(vars_text);
    TRY(rc);
    if (d->n > r->x->s->n_ctx)
        return cb_fail(CB_EARG, "documents: [%d] has %d tokens with the query, the context %d",
                       d->index, d->n, r->x->s->n_ctx);
    r->longest = d->n > r->longest ? d->n : r->longest;
    r->n_tok += d->n;
    return CB_OK;
}

static int read_request(struct ranking *r, const json_t *documents)
{
    const char *query = NULL;
    const json_t *v;
    size_t i;

    TRY(check_model(r));
    TRY(cb_field_text(r->x->json, "query", &query));
    if (!query)
        return cb_fail(CB_EARG, "query: must be a text");
    if (!json_is_array(documents) || !json_array_size(documents) ||
        json_array_size(documents) > MOST_DOCUMENTS)
        return cb_fail(CB_EARG, "documents: must be a list of 1 to %d texts", MOST_DOCUMENTS);
    TRY(read_form(r));
    r->at = cb_calloc(json_array_size(documents), sizeof *r->at);
    if (!r->at)
        return CB_ENOMEM;
    json_array_foreach(documents, i, v) TRY(read_document(r, query, v));
    return CB_OK;
}

/* ---- scores ---- */

/* The logit of the classifier's label i for the last state */
static double label(const struct ranking *r, int i, float *row)
{
    const struct weight *w = &r->model->classifier;
    double sum = 0;

    cb_dtype[w->type].to_f32((const char *)w->raw + (size_t)i * cb_row_bytes(w->type, w->n_in), row,
                             w->n_in);
    for (int j = 0; j < w->n_in; j++)
        sum += (double)row[j] * r->last.sum[j];
    return sum;
}

/* How likely "yes" is where the answer is "yes" or "no" */
static int score(struct ranking *r, double *out)
{
    const int two = r->model->classifier.n_out == 2;
    const float *logits;
    float *row;

    if (!r->model->classifier.raw) {
        logits = cb_session_logits(r->session);
        *out = 1 / (1 + exp((double)logits[r->no] - (double)logits[r->yes]));
        return CB_OK;
    }
    row = cb_calloc((size_t)r->model->hp.n_embd, sizeof *row);
    if (!row)
        return CB_ENOMEM;
    *out = 1 / (1 + exp((two ? label(r, 1, row) : 0) - label(r, 0, row)));
    free(row);
    return CB_OK;
}

static int common(const struct document *a, const struct document *b)
{
    int n = 0;

    while (n < min_int(a->n, b->n) && a->ids[n] == b->ids[n])
        n++;
    return n;
}

/* Reads a document after what it has in common with the one before: the query, at least. */
static int rank(struct ranking *r, int i)
{
    const struct own_reading reading = { r->x->s, r->x->gone, r->x->gone_arg };
    struct document *d = &r->at[i];
    int from = i ? min_int(common(d, d - 1), d->n - 1) : 0;
    struct cb_prefill how = { 0 };

    if (i && cb_session_truncate(r->session, from)) {
        cb_session_clear(r->session);
        from = 0;
    }
    if (r->model->classifier.raw)
        how = cb_embedding_prefill(&r->last);
    TRY(cb_own_reading(&reading, r->session, d->ids + from, d->n - from, &how));
    return score(r, &d->score);
}

static int rank_all(struct ranking *r)
{
    static const struct cb_embedding last = { CB_POOL_LAST, 0 };
    const struct cb_session_params p = { .n_ctx = r->longest };

    enum { RESULT = 512 }; /* bytes of a result's values and text */

    TRY(cb_exchange_hold(r->x, (size_t)r->n * RESULT));
    if (r->model->classifier.raw)
        TRY(cb_embedding_begin(&r->last, r->model, &last));
    TRY(cb_session_open(r->x->s->m.model, &p, &r->session));
    for (int i = 0; i < r->n; i++)
        TRY(rank(r, i));
    return CB_OK;
}

static int by_score(const void *a, const void *b)
{
    const struct document *x = a, *y = b;

    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return x->index - y->index;
}

/* ---- the answer ---- */

static json_t *answer(const struct ranking *r, const json_t *documents, int top, int echo)
{
    const int tei = json_object_get(r->x->json, "texts") != NULL;
    json_t *list = json_array();

    for (int i = 0; i < r->n && i < top; i++) {
        const struct document *d = &r->at[i];
        json_t *one =
            json_pack("{s:i, s:f}", "index", d->index, tei ? "score" : "relevance_score", d->score);
        if (echo)
            cb_json_set(&one, tei ? "text" : "document",
                        json_incref(json_array_get(documents, (size_t)d->index)));
        cb_json_add(&list, one);
    }
    if (tei) /* as Text Embeddings Inference has it */
        return list;
    return json_pack("{s:s, s:s, s:{s:i, s:i}, s:o}", "object", "list", "model", r->x->s->m.name,
                     "usage", "prompt_tokens", r->n_tok, "total_tokens", r->n_tok, "results", list);
}

static int run(struct ranking *r, const json_t *documents)
{
    int rc;

    TRY(read_request(r, documents));
    pthread_mutex_lock(&r->x->s->embedding); /* one such session at a time bounds the memory */
    rc = rank_all(r);
    cb_session_close(r->session);
    pthread_mutex_unlock(&r->x->s->embedding);
    TRY(cb_model_status(rc));
    qsort(r->at, (size_t)r->n, sizeof *r->at, by_score);
    return CB_OK;
}

void cb_api_rerank(struct exchange *x)
{
    struct ranking r = { .x = x, .model = x->s->m.model };
    const json_t *texts = cb_field(x->json, "texts");
    const json_t *documents = texts ? texts : cb_field(x->json, "documents");
    int64_t top = MOST_DOCUMENTS;
    int echo = 0, rc = cb_field_int(x->json, "top_n", 1, CB_FIELD_MOST, &top);

    if (!rc)
        rc = cb_field_flag(x->json, texts ? "return_text" : "return_documents", &echo);
    if (!rc)
        rc = run(&r, documents);
    if (rc)
        cb_exchange_fail(x, rc);
    else
        cb_exchange_json(x, 200, answer(&r, documents, (int)top, echo));
    for (int i = 0; i < r.n; i++)
        free(r.at[i].ids);
    free(r.at);
    cb_embedding_free(&r.last);
    cb_buf_free(&r.form);
}
