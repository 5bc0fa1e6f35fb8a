/* SPDX-License-Identifier: MIT */
/* trained_blocks.c - reads the blocks of a model that was trained for PoD. */
#include "trained_blocks.h"

#include <stdlib.h>

#include "base/err.h"

static int read_count(const struct gguf *g, const char *key, int *out)
{
    int64_t n = 0;
    const int is = cb_gguf_i64(g, key, &n);

    if (is < 0)
        return is;
    if (!is || n < 1 || n > 1000000000)
        return cb_fail(CB_EFORMAT, "%s: %s must be a number of tokens", cb_gguf_path(g), key);
    *out = (int)n;
    return CB_OK;
}

/* A layer starts a block or belongs to that of the layer before. */
static int read_start(const struct gguf *g, const char *key, int n_kv, int n_layer, int *start)
{
    for (int i = 0; i < n_kv * n_layer; i++) {
        const int l = i % n_layer;
        int64_t x;
        TRY(cb_gguf_i64_at(g, key, (uint64_t)i, &x));
        if (x != l && (l == 0 || x != start[i - 1]))
            return cb_fail(CB_EFORMAT, "%s: %s[%d] must be %d or as before", cb_gguf_path(g), key,
                           i, l);
        start[i] = (int)x;
    }
    return CB_OK;
}

int cb_trained_blocks_read(const struct gguf *g, int n_kv, int n_layer, struct trained_blocks *out)
{
    static const char key[] = "ctxbank.pod.start";
    const struct gguf_kv *kv = cb_gguf_find(g, key);

    if (!kv)
        return CB_OK;
    if (kv->type != GGUF_ARRAY || kv->n != (uint64_t)n_kv * (uint64_t)n_layer)
        return cb_fail(CB_EFORMAT, "%s: %s must be an array of %d KV heads x %d layers",
                       cb_gguf_path(g), key, n_kv, n_layer);
    out->start = cb_calloc((size_t)n_kv * (size_t)n_layer, sizeof *out->start);
    if (!out->start)
        return CB_ENOMEM;
    TRY(read_start(g, key, n_kv, n_layer, out->start));
    TRY(read_count(g, "ctxbank.pod.sinks", &out->sinks));
    return read_count(g, "ctxbank.pod.recent", &out->recent);
}

void cb_trained_blocks_free(struct trained_blocks *b)
{
    free(b->start);
}
