/* SPDX-License-Identifier: MIT */
/* fuzz_request.c - bodies of requests: the first byte chooses the interface. Each request gets one
 * answer, which is JSON or a stream that ends; the server's memory stays within its limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json_lenient.h"
#include "fuzz_model.h"
#include "serve/api.h"
#include "serve/model_shelf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const paths[] = {
    "/v1/chat/completions",
    "/v1/completions",
    "/completion",
    "/infill",
    "/apply-template",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/banks",
    "/tokenize",
    "/detokenize",
    "/v1/messages/count_tokens",
};
enum { N_PATH = sizeof paths / sizeof *paths, N_CTX = 128, MEMORY = 32 << 20 };

static const char template[] =
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>"
    "{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

static int open_model(void *arg, int i, const float *scale, struct serve_model *out)
{
    (void)arg;
    (void)i;
    (void)scale;
    *out = (struct serve_model){
        .model = cb_fuzz_model(),
        .chat = { .form = template },
        .pooling = CB_POOL_MEAN,
        .sampler = cb_sampler_defaults(),
        .scheduler = { .slots = { .n = 2, .session = { .n_ctx = N_CTX, .chunk = 32 } },
                       .most_waiting = 64,
                       .n_tenant = 1,
                       .draft = 4,
                       .decode_latency_s = 0.1 },
        .held = out,
    };
    return CB_OK;
}

static void close_model(void *arg, struct serve_model *m)
{
    (void)arg;
    (void)m;
}

static struct model_shelf *shelf(void)
{
    static const struct serve_entry entry = { .name = "tiny", .path = "tiny.gguf" };
    static struct model_shelf *s;
    struct model_shelf_params p = {
        .models = { .at = &entry, .n = 1, .open = open_model, .close = close_model },
        .n_tenant = 1,
        .most_requests = MEMORY
    };

    if (s)
        return s;
    cb_json_watch();
    if (cb_prefix_store_new(MEMORY / 8, &p.documents) || cb_shelf_open(&p, &s))
        abort();
    return s;
}

static size_t held;

static int hold(void *arg, size_t bytes)
{
    (void)arg;
    if (bytes > MEMORY - held)
        return SERVE_ETOOLARGE;
    held += bytes;
    return CB_OK;
}

static void give_back(void *arg, size_t bytes)
{
    (void)arg;
    held -= bytes < held ? bytes : held;
}

static int is_there(void *arg)
{
    (void)arg;
    return 0;
}

/* A stream ends by itself: answers have at most N_CTX tokens. */
static void read_stream(struct exchange *x)
{
    struct buf piece = { 0 };
    int more = 1, left = 100000;

    while (more && left-- > 0) {
        cb_buf_clear(&piece);
        more = x->stream->next(x->stream, &piece);
    }
    if (more)
        abort();
    cb_buf_free(&piece);
    x->stream->close(x->stream);
}

static void check(const struct exchange *x)
{
    json_error_t why;
    json_t *j;

    if (x->status < 200 || x->status > 599)
        abort();
    j = json_loadb(x->out.n ? x->out.s : "", x->out.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (!j || (x->status >= 400 && !json_object_get(j, "error"))) {
        fprintf(stderr, "%d: %s\n", x->status, x->out.n ? x->out.s : "nothing");
        abort();
    }
    json_decref(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct exchange x = {
        .shelf = shelf(), .method = "POST", .gone = is_there, .hold = hold, .give_back = give_back
    };

    if (!n)
        return 0;
    x.path = paths[*data % N_PATH];
    cb_buf_add(&x.body, (const char *)data + 1, n - 1);
    held = 0;
    x.reading = cb_route_cost(x.method, x.path, x.body.n ? x.body.s : "", x.body.n);
    if (!x.body.failed && !hold(NULL, x.reading)) {
        cb_route(&x);
        if (x.stream)
            read_stream(&x);
        else
            check(&x);
        if (x.s)
            cb_shelf_give(x.shelf, x.s);
    }
    cb_buf_free(&x.body);
    cb_buf_free(&x.out);
    return 0;
}
