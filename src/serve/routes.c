/* SPDX-License-Identifier: MIT */
/* routes.c - from a method and a path to the handler. */
#include <string.h>

#include "api.h"

static const struct route {
    const char *method, *path;
    api_fn handler;
    int open; /* 1: answered without a key */
} routes[] = {
    { "GET", "/health", cb_api_health, 1 },
    { "GET", "/v1/health", cb_api_health, 1 },
    { "GET", "/v1/models", cb_api_models, 0 },
    { "GET", "/models", cb_api_models, 0 },
    { "GET", "/props", cb_api_props, 0 },
    { "GET", "/slots", cb_api_slots, 0 },
    { "GET", "/metrics", cb_api_metrics, 0 },
    { "POST", "/v1/chat/completions", cb_api_chat, 0 },
    { "POST", "/chat/completions", cb_api_chat, 0 },
    { "POST", "/v1/completions", cb_api_completions, 0 },
    { "POST", "/completions", cb_api_completions, 0 },
    { "POST", "/v1/messages", cb_api_messages, 0 },
    { "POST", "/v1/messages/count_tokens", cb_api_count_tokens, 0 },
    { "POST", "/v1/responses", cb_api_responses, 0 },
    { "POST", "/v1/banks", cb_api_new_bank, 0 },
    { "GET", "/v1/banks", cb_api_banks, 0 },
    { "DELETE", "/v1/banks/", cb_api_delete_bank, 0 },
    { "POST", "/tokenize", cb_api_tokenize, 0 },
    { "POST", "/detokenize", cb_api_detokenize, 0 },
};
enum { N_ROUTE = sizeof routes / sizeof *routes };

int cb_route_is_open(const char *path)
{
    for (int i = 0; i < N_ROUTE; i++)
        if (routes[i].open && !strcmp(path, routes[i].path))
            return 1;
    return 0;
}

/* A path that ends in a slash stands for all below it. */
static int fits(const char *path, const char *route)
{
    const size_t n = strlen(route);

    return route[n - 1] == '/' ? !strncmp(path, route, n) && path[n] : !strcmp(path, route);
}

/* The route; *allowed: the method of the path if it is another one, or NULL */
static const struct route *find(const struct exchange *x, const char **allowed)
{
    const char *method = strcmp(x->method, "HEAD") ? x->method : "GET";

    *allowed = NULL;
    for (int i = 0; i < N_ROUTE; i++) {
        if (!fits(x->path, routes[i].path))
            continue;
        if (!strcmp(method, routes[i].method))
            return &routes[i];
        *allowed = routes[i].method;
    }
    return NULL;
}

/* The body as a JSON object. 0: it is none, and x has the error */
static int read_json(struct exchange *x)
{
    json_error_t why;

    x->json = json_loadb(x->n_body ? x->body : "", x->n_body, 0, &why);
    if (json_is_object(x->json))
        return 1;
    if (x->json)
        cb_exchange_error(x, 400, "the body must be a JSON object", NULL);
    else {
        struct buf text = { 0 };
        cb_buf_print(&text, "the body is not JSON: line %d, column %d: %s", why.line, why.column,
                     why.text);
        cb_exchange_error(x, 400, text.s ? text.s : "the body is not JSON", NULL);
        cb_buf_free(&text);
    }
    return 0;
}

void cb_route(struct exchange *x)
{
    const char *allowed;
    const struct route *r = find(x, &allowed);

    if (!r && allowed) {
        cb_exchange_error(x, 405, "this path takes another method", NULL);
    } else if (!r) {
        cb_exchange_error(x, 404, "there is no such path", NULL);
    } else if (!x->s) {
        cb_exchange_error(x, 503, "the model is being loaded", NULL);
    } else if (*r->method != 'P' || read_json(x)) {
        r->handler(x);
    }
    json_decref(x->json);
    x->json = NULL;
}
