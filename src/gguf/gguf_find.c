/* SPDX-License-Identifier: MIT */
/* gguf_find.c - looks up keys and tensors of a GGUF file by name. */
#include <stdlib.h>
#include <string.h>

#include "gguf_file.h"

static int cmp_str(const struct gguf_str *a, const struct gguf_str *b)
{
    const int d = memcmp(a->s, b->s, a->n < b->n ? a->n : b->n);

    return d ? d : (a->n > b->n) - (a->n < b->n);
}

int cb_gguf_cmp_name(const void *a, const void *b)
{
    return cmp_str(*(const struct gguf_str *const *)a, *(const struct gguf_str *const *)b);
}

const char *cb_gguf_path(const struct gguf *g)
{
    return g->path;
}

uint64_t cb_gguf_file_bytes(const struct gguf *g)
{
    uint64_t bytes = g->size;

    for (int i = 0; i < g->n_part; i++)
        bytes += g->part[i]->size;
    return bytes;
}

const struct gguf_kv *cb_gguf_kv_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_kv ? &g->kv[i] : NULL;
}

static const void *find_named(const struct gguf_str **e, uint64_t n, const char *name)
{
    const struct gguf_str want = { name, strlen(name) }, *key = &want;
    const struct gguf_str **hit = bsearch(&key, e, n, sizeof *e, cb_gguf_cmp_name);

    return hit ? *hit : NULL;
}

const struct gguf_kv *cb_gguf_find(const struct gguf *g, const char *key)
{
    return find_named(g->by_key, g->n_kv, key);
}

uint64_t cb_gguf_n_tensor(const struct gguf *g)
{
    return g->n_tensor;
}

const struct gguf_tensor *cb_gguf_tensor_at(const struct gguf *g, uint64_t i)
{
    return i < g->n_tensor ? &g->tensor[i] : NULL;
}

const struct gguf_tensor *cb_gguf_tensor(const struct gguf *g, const char *name)
{
    return find_named(g->by_name, g->n_tensor, name);
}
