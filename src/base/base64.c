/* SPDX-License-Identifier: MIT */
/* base64.c - bytes as text. */
#include "base64.h"

#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void cb_base64_write(const void *bytes, size_t n, struct buf *out)
{
    const unsigned char *b = bytes;

    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const unsigned v = (unsigned)b[i] << 16 | (left > 1 ? (unsigned)b[i + 1] << 8 : 0) |
                           (left > 2 ? b[i + 2] : 0u);
        const char four[] = { letters[v >> 18], letters[v >> 12 & 63],
                              left > 1 ? letters[v >> 6 & 63] : '=',
                              left > 2 ? letters[v & 63] : '=' };
        cb_buf_add(out, four, sizeof four);
    }
}

int cb_base64_read(const char *s, size_t n, struct buf *out)
{
    unsigned v = 0;
    int bits = 0;

    for (int i = 0; i < 2 && n && s[n - 1] == '='; i++)
        n--;
    if (n % 4 == 1)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const char *letter = s[i] ? strchr(letters, s[i]) : NULL;
        if (!letter)
            return 0;
        v = (v << 6 | (unsigned)(letter - letters)) & 0xFFFF;
        bits += 6;
        if (bits >= 8) {
            const char byte = (char)(v >> (bits - 8));
            cb_buf_add(out, &byte, 1);
            bits -= 8;
        }
    }
    return 1;
}
