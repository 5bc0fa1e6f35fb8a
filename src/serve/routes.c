/* SPDX-License-Identifier: MIT */
/* routes.c - from a method and a path to the handler. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "base/err.h"
#include "base/json_lenient.h"
#include "model_shelf.h"
#include "prefix_store.h"

enum {
    OPEN = 1,  /* answered without a key */
    EARLY = 2, /* answered while the server begins */
    ALL = 4,   /* of no model, or of all */
    LIST = 8   /* its body may be a list */
};

static const struct route {
    const char *method, *path;
    api_fn handler;
    int how;
    /* What is built while it is read: values like those of its JSON, so often, and bytes for each
     * byte of the body (tests/cli/check-memory measures them) */
    int json, text;
} routes[] = {
    { "GET", "/", cb_api_page, OPEN | EARLY | ALL, 1, 0 },
    { "GET", "/openapi.json", cb_api_openapi, OPEN | EARLY | ALL, 1, 0 },
    { "GET", "/health", cb_api_health, OPEN | ALL, 1, 0 },
    { "GET", "/v1/health", cb_api_health, OPEN | ALL, 1, 0 },
    { "GET", "/v1/models", cb_api_models, ALL, 1, 0 },
    { "GET", "/models", cb_api_models, ALL, 1, 0 },
    { "GET", "/v1/models/", cb_api_model, ALL, 1, 0 },
    { "GET", "/props", cb_api_props, 0, 1, 0 },
    { "GET", "/slots", cb_api_slots, 0, 1, 0 },
    { "GET", "/metrics", cb_api_metrics, ALL, 1, 0 },
    { "POST", "/v1/chat/completions", cb_api_chat, 0, 2, 32 },
    { "POST", "/chat/completions", cb_api_chat, 0, 2, 32 },
    { "POST", "/v1/completions", cb_api_completions, 0, 1, 32 },
    { "POST", "/completions", cb_api_completions, 0, 1, 32 },
    { "POST", "/completion", cb_api_completion, 0, 1, 32 },
    { "POST", "/infill", cb_api_infill, 0, 1, 48 },
    { "POST", "/apply-template", cb_api_apply_template, 0, 2, 40 },
    { "GET", "/lora-adapters", cb_api_adapters, ALL, 1, 0 },
    { "POST", "/lora-adapters", cb_api_set_adapters, ALL | LIST, 1, 0 },
    { "POST", "/v1/messages", cb_api_messages, 0, 3, 32 },
    { "POST", "/v1/messages/count_tokens", cb_api_count_tokens, 0, 3, 32 },
    { "POST", "/v1/responses", cb_api_responses, 0, 3, 32 },
    { "POST", "/api/chat", cb_api_ollama_chat, 0, 4, 32 },
    { "POST", "/api/generate", cb_api_ollama_generate, 0, 4, 48 },
    { "POST", "/api/show", cb_api_ollama_show, 0, 1, 0 },
    { "POST", "/api/embed", cb_api_embeddings, 0, 1, 32 },
    { "POST", "/api/embeddings", cb_api_embeddings, 0, 1, 32 },
    { "GET", "/api/tags", cb_api_ollama_tags, ALL, 1, 0 },
    { "GET", "/api/ps", cb_api_ollama_ps, ALL, 1, 0 },
    { "GET", "/api/version", cb_api_ollama_version, OPEN | ALL, 1, 0 },
    { "POST", "/v1/embeddings", cb_api_embeddings, 0, 1, 32 },
    { "POST", "/embeddings", cb_api_embeddings, 0, 1, 32 },
    { "POST", "/v1/rerank", cb_api_rerank, 0, 2, 32 },
    { "POST", "/rerank", cb_api_rerank, 0, 2, 32 },
    { "POST", "/v1/reranking", cb_api_rerank, 0, 2, 32 },
    { "POST", "/reranking", cb_api_rerank, 0, 2, 32 },
    { "POST", "/v1/banks", cb_api_new_bank, 0, 4, 40 },
    { "GET", "/v1/banks", cb_api_banks, ALL, 1, 0 },
    { "DELETE", "/v1/banks/", cb_api_delete_bank, ALL, 1, 0 },
    { "POST", "/tokenize", cb_api_tokenize, 0, 1, 32 },
    { "POST", "/detokenize", cb_api_detokenize, 0, 1, 0 },
    { "GET", "/tokenizer_info", cb_api_tokenizer_info, 0, 1, 0 },
};
enum { N_ROUTE = sizeof routes / sizeof *routes };

int cb_route_is_open(const char *path)
{
    for (int i = 0; i < N_ROUTE; i++)
        if (routes[i].how & OPEN && !strcmp(path, routes[i].path))
            return 1;
    return 0;
}

/* A route that ends in a slash stands for all below it, but for the page. A slash too many at the
 * end of a path is nothing. */
static int fits(const char *path, const char *route)
{
    const size_t n = strlen(route), len = strlen(path);

    if (n > 1 && route[n - 1] == '/')
        return !strncmp(path, route, n) && path[n];
    return !strncmp(path, route, n) && (len == n || (n > 1 && len == n + 1 && path[n] == '/'));
}

size_t cb_route_cost(const char *method, const char *path, const char *body, size_t n)
{
    const size_t json = cb_json_cost(body, n);

    for (int i = 0; i < N_ROUTE; i++)
        if (fits(path, routes[i].path) && !strcmp(method, routes[i].method))
            return (size_t)routes[i].json * json + (size_t)routes[i].text * n;
    return 0;
}

static void allow(struct exchange *x, const char *method)
{
    const size_t n = strlen(x->allow);

    snprintf(x->allow + n, sizeof x->allow - n, "%s%s%s", n ? ", " : "", method,
             strcmp(method, "GET") ? "" : ", HEAD");
}

/* The route, or NULL; x->allow: the methods of the path if it has others */
static const struct route *route_of(struct exchange *x)
{
    const char *method = strcmp(x->method, "HEAD") ? x->method : "GET";

    for (int i = 0; i < N_ROUTE; i++) {
        if (!fits(x->path, routes[i].path))
            continue;
        if (!strcmp(method, routes[i].method))
            return &routes[i];
        allow(x, routes[i].method);
    }
    return NULL;
}

static void refuse_json(struct exchange *x, const json_error_t *why)
{
    struct buf text = { 0 };

    cb_buf_print(&text, "the body is not JSON: line %d, column %d: %s", why->line, why->column,
                 why->text);
    cb_exchange_error(x, 400, text.s ? text.s : "the body is not JSON", NULL);
    cb_buf_free(&text);
}

/* The body as a JSON object, or a list where the route takes one. 0: it is none, and x has the
 * error
 */
static int read_json(struct exchange *x, int how)
{
    static const char bom[] = "\xef\xbb\xbf";
    const char *s = x->body.n ? x->body.s : "";
    json_error_t why;
    char first;

    if (!strncmp(s, bom, sizeof bom - 1))
        s += sizeof bom - 1;
    first = s[strspn(s, " \t\r\n")];
    if (first == '{' || (first == '[' && how & LIST)) { /* a long list is not read to be refused */
        x->json = cb_json_read(s, x->body.n - (size_t)(s - x->body.s), &why);
        if (!x->json)
            refuse_json(x, &why);
    } else {
        cb_exchange_error(x, 400, "the body must be a JSON object in UTF-8", NULL);
    }
    cb_buf_free(&x->body); /* the answer may take long */
    return x->json != NULL;
}

/* A document that the request names is read as if it stood in the body. 0: there is no room, and x
 * has the error */
static int hold_document(struct exchange *x)
{
    const char *id = json_string_value(json_object_get(x->json, "bank"));
    const size_t bytes = id ? cb_prefix_store_cost(cb_shelf_documents(x->shelf), id) : 0;
    const int rc = bytes ? cb_exchange_hold(x, bytes) : CB_OK;

    if (rc)
        cb_exchange_fail(x, rc);
    else
        x->reading += bytes;
    return !rc;
}

/* What the request calls its model, or NULL */
static const char *model_name(const struct exchange *x)
{
    const json_t *v = json_is_object(x->json) ? json_object_get(x->json, "model") : NULL;

    if (!v && cb_is_ollama(x) && json_is_object(x->json))
        v = json_object_get(x->json, "name"); /* as older clients call it */
    return json_is_string(v) ? json_string_value(v) : x->model;
}

/* The entry of that name; Ollama's clients put a tag after it. */
static int find_model(const struct exchange *x, const char *name)
{
    static const char tag[] = ":latest";
    const size_t n = strlen(name), m = sizeof tag - 1;
    int i = cb_shelf_find(x->shelf, name);
    char *bare;

    if (i >= 0 || !cb_is_ollama(x) || n <= m || strcmp(name + n - m, tag) != 0)
        return i;
    bare = cb_calloc(n - m + 1, 1);
    if (!bare)
        return -1; /* and the answer tells it */
    memcpy(bare, name, n - m);
    i = cb_shelf_find(x->shelf, bare);
    free(bare);
    return i;
}

/* The entry that the request names, in its body or its address, or the only one there is; -1: none,
 * and x has the error */
static int named_model(struct exchange *x)
{
    const char *name = model_name(x);
    struct buf why = { 0 };
    int i = name ? find_model(x, name) : -1;

    if (i >= 0 || !cb_shelf_several(x->shelf) || (!name && cb_shelf_n(x->shelf) == 1))
        return i >= 0 ? i : 0;
    if (name) {
        cb_api_no_model(x, name);
        return -1;
    }
    cb_buf_text(&why, "model: the server has several, name one:");
    for (i = 0; i < cb_shelf_n(x->shelf); i++)
        cb_buf_print(&why, "%s %s", i ? "," : "", cb_shelf_name(x->shelf, i));
    cb_exchange_error(x, 400, why.s ? why.s : "model: missing", "model");
    cb_buf_free(&why);
    return -1;
}

/* Opens the request's model. 0: it cannot be had, and x has the error */
static int take_model(struct exchange *x)
{
    const int i = named_model(x);
    int rc;

    if (i < 0)
        return 0;
    rc = cb_shelf_take(x->shelf, i, x->gone, x->gone_arg, &x->s);
    if (rc == CB_EFULL || rc == CB_ECANCEL)
        cb_exchange_fail(x, rc);
    else if (rc) /* no client's fault */
        cb_exchange_error(x, 500, cb_error(), "model");
    return !rc;
}

static int ready(struct exchange *x, const struct route *r)
{
    if (*r->method == 'P' && !(read_json(x, r->how) && hold_document(x)))
        return 0;
    return r->how & ALL || take_model(x);
}

void cb_route(struct exchange *x)
{
    const struct route *r = route_of(x);

    cb_exchange_forget();
    if (!r && *x->allow) {
        cb_exchange_error(x, 405, "this path takes another method", NULL);
    } else if (!r) {
        cb_exchange_coded(x, 404, "Not found: there is no such path", NULL, "not_found");
    } else if (!x->shelf && !(r->how & EARLY)) {
        cb_exchange_error(x, 503, "Loading model: try again soon", NULL);
    } else if (ready(x, r)) {
        r->handler(x);
    }
    json_decref(x->json);
    x->json = NULL;
    if (!x->stream && x->status < 500 && (cb_exchange_lacks() || x->out.failed)) {
        cb_buf_free(&x->out); /* it may lack a part, or be a wrong refusal */
        cb_exchange_error(x, 500, "out of memory", NULL);
    }
}
