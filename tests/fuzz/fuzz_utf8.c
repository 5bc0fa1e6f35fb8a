/* SPDX-License-Identifier: MIT */
/* fuzz_utf8.c - bytes for a fuzzer: whole, in pieces, and made plain, they become valid UTF-8. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        const int len = cb_utf8_len(s + i, n - i);
        if (!len)
            return 0;
        i += (size_t)len;
    }
    return 1;
}

/* The bytes pushed in pieces of n -> out; returns how many come out. */
static size_t push_all(const uint8_t *data, size_t size, size_t piece, char *out)
{
    struct utf8_hold h = { .n = 0 };
    size_t n = 0;

    for (size_t i = 0; i < size; i += piece) {
        const size_t k = piece < size - i ? piece : size - i;
        char *in = malloc(k); /* exactly as long as it is */
        if (!in)
            return 0;
        memcpy(in, data + i, k);
        n += (size_t)cb_utf8_push(&h, in, (int)k, out + n);
        free(in);
    }
    return n + (size_t)cb_utf8_flush(&h, out + n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 4096 };
    static char whole[3 * MOST + 16], parts[6 * MOST + 16], plain[MOST];
    size_t n, m;

    if (size > MOST)
        return 0;
    n = push_all(data, size, MOST, whole);
    m = push_all(data, size, size % 3 + 1, parts);
    if (!is_utf8(whole, n) || n != m || memcmp(whole, parts, n))
        abort();
    if (size)
        memcpy(plain, data, size);
    n = cb_utf8_plain(plain, size, "\n");
    if (n > size || !is_utf8(plain, n))
        abort();
    return 0;
}
