/* SPDX-License-Identifier: MIT */
/* fuzz_tokens.c - texts of any bytes through tokenizers of each kind. Where a tokenizer neither
 * normalizes nor puts a space in front, the tokens of a text spell it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "kit/tiny.h"
#include "text/tok.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct {
    const char *name;
    int exact; /* 1: tokens spell the text */
} family[] = { { "llama", 0 }, { "qwen2", 0 }, { "smollm", 1 }, { "llama3.1", 1 } };
enum { N_FAMILY = sizeof family / sizeof *family };

static const struct tok *vocabulary(int i)
{
    static struct gguf *g[N_FAMILY];
    static struct tok *t[N_FAMILY];
    struct tiny tiny;
    char path[64];

    if (t[i])
        return t[i];
    tiny = cb_tiny_small(family[i].name);
    snprintf(path, sizeof path, "/tmp/fuzz_tokens.%d.tmp", (int)getpid());
    cb_tiny_save(&tiny, path);
    if (cb_gguf_open(path, &g[i]) || cb_tok_open_as(g[i], NULL, &t[i]))
        abort();
    unlink(path);
    return t[i];
}

/* Bytes that the tokens spell */
static size_t spelled(const struct tok *t, const int32_t *ids, int n, char *out, size_t cap)
{
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        const int len = cb_tok_piece(t, ids[i], 1, out + at, (int)(cap - at));
        if (len < 0 || (size_t)len > cap - at)
            abort();
        at += (size_t)len;
    }
    return at;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const size_t cap = 64 * (n + 1);
    char *out = malloc(cap);

    for (int i = 0; out && n < 1 << 16 && i < N_FAMILY; i++) {
        int32_t *ids;
        size_t len;
        int n_ids;
        if (cb_tok_encode(vocabulary(i), (const char *)data, n, 0, &ids, &n_ids))
            continue;
        len = spelled(vocabulary(i), ids, n_ids, out, cap);
        if (family[i].exact && (len != n || (n && memcmp(out, data, n) != 0)))
            abort();
        free(ids);
    }
    free(out);
    return 0;
}
