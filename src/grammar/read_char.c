/* SPDX-License-Identifier: MIT */
/* read_char.c - characters and numbers in texts of grammars. */
#include <ctype.h>
#include <stddef.h>

#include "base/utf8.h"
#include "readers.h"

int cb_read_char(const char *s, size_t n, uint32_t *c)
{
    static const uint8_t lead[5] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    const int len = cb_utf8_len(s, n);

    *c = (uint8_t)*s & lead[len];
    for (int i = 1; i < len; i++)
        *c = *c << 6 | ((uint8_t)s[i] & 0x3F);
    return len;
}

int cb_read_hex(const char *s, size_t left, int n, uint32_t *c)
{
    *c = 0;
    if (left < (size_t)n)
        return 0;
    for (int i = 0; i < n; i++) {
        const int x = (unsigned char)s[i];
        if (!isxdigit(x))
            return 0;
        *c = *c << 4 | (uint32_t)(isdigit(x) ? x - '0' : (x | 32) - 'a' + 10);
    }
    return 1;
}

size_t cb_read_count(const char *s, size_t left, int *v)
{
    size_t n = 0;

    for (*v = 0; n < left && isdigit((unsigned char)s[n]); n++)
        *v = *v > GRAMMAR_MAX_REPEAT ? *v : *v * 10 + (s[n] - '0');
    if (*v > GRAMMAR_MAX_REPEAT)
        *v = GRAMMAR_MAX_REPEAT + 1;
    return n;
}
