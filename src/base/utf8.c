/* SPDX-License-Identifier: MIT */
/* utf8.c - whole UTF-8 characters, in a text and in a stream of pieces. */
#include "utf8.h"

#include <string.h>

/* Length of a character that starts with b, 0 = none does; *lo, *hi: range of the second byte. */
static int lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80; /* no overlong forms */
    *hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF; /* no surrogates, none above U+10FFFF */
    if (b < 0x80)
        return 1;
    if (b < 0xC2 || b > 0xF4)
        return 0;
    return b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

int cb_utf8_len(const char *s, size_t n)
{
    unsigned char lo, hi;
    const int len = lead((unsigned char)s[0], &lo, &hi);

    if (len < 2)
        return len;
    if ((size_t)len > n)
        return 0;
    for (int i = 1; i < len; i++, lo = 0x80, hi = 0xBF)
        if ((unsigned char)s[i] < lo || (unsigned char)s[i] > hi)
            return 0;
    return len;
}

static int is_control(const unsigned char *s, int len)
{
    return (len == 1 && (s[0] < 0x20 || s[0] == 0x7f)) || (len == 2 && s[0] == 0xC2 && s[1] < 0xA0);
}

size_t cb_utf8_plain(char *s, size_t n, const char *keep)
{
    size_t m = 0;

    for (size_t i = 0; i < n;) {
        const int len = cb_utf8_len(s + i, n - i);
        if (len == 1 && s[i] && strchr(keep, s[i])) {
            s[m++] = s[i++];
        } else if (!len || is_control((const unsigned char *)s + i, len)) {
            s[m++] = '?';
            i += (size_t)(len ? len : 1);
        } else {
            memmove(s + m, s + i, (size_t)len);
            m += (size_t)len;
            i += (size_t)len;
        }
    }
    return m;
}

int cb_utf8_put(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}

int cb_utf8_flush(struct utf8_hold *h, char *out)
{
    if (!h->n)
        return 0;
    h->n = 0;
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

/* 1: b is valid as byte h->n (at least 1) of the held character */
static int goes_on(const struct utf8_hold *h, unsigned char b)
{
    unsigned char lo, hi;

    lead((unsigned char)h->b[0], &lo, &hi);
    return h->n == 1 ? b >= lo && b <= hi : (b & 0xC0) == 0x80;
}

int cb_utf8_push(struct utf8_hold *h, const char *in, int n, char *out)
{
    int m = 0;
    unsigned char lo, hi;

    for (int i = 0; i < n; i++) {
        if (h->n && !goes_on(h, (unsigned char)in[i]))
            m += cb_utf8_flush(h, out + m);
        h->b[h->n++] = in[i];
        if (h->n == lead((unsigned char)h->b[0], &lo, &hi)) {
            memcpy(out + m, h->b, (size_t)h->n);
            m += h->n;
            h->n = 0;
        } else if (!lead((unsigned char)h->b[0], &lo, &hi)) {
            m += cb_utf8_flush(h, out + m);
        }
    }
    return m;
}
