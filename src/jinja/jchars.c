/* SPDX-License-Identifier: MIT */
/* jchars.c - the characters of a text. A byte that is not UTF-8 counts as a character. */
#include <string.h>

#include "base/utf8.h"
#include "jvalue.h"

size_t cb_jchar(const struct jstr *s, size_t at)
{
    const int n = (unsigned char)s->s[at] < 0x80 ? 1 : cb_utf8_len(s->s + at, s->n - at);

    return n ? (size_t)n : 1;
}

size_t cb_jchars(const char *s, size_t n)
{
    const struct jstr t = { s, NULL, n };
    size_t count = 0;

    for (size_t i = 0; i < n; count++)
        i += cb_jchar(&t, i);
    return count;
}

size_t cb_jbyte_of(const struct jstr *s, size_t i)
{
    size_t at = 0;

    for (; i && at < s->n; i--)
        at += cb_jchar(s, at);
    return at;
}

uint32_t cb_jcode(const struct jstr *s, size_t at, size_t *len)
{
    static const uint8_t mask[5] = { 0, 0xFF, 0x1F, 0x0F, 0x07 };
    const size_t n = cb_jchar(s, at);
    uint32_t c = (unsigned char)s->s[at];

    *len = n;
    if (n == 1)
        return c;
    c &= mask[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | ((unsigned char)s->s[at + i] & 0x3F);
    return c;
}

int cb_jspace(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Is the character at s[at..at + n) one of set's, or a blank if there is no set? */
static int in_set(const struct jstr *s, size_t at, const struct jstr *set, size_t *n)
{
    const uint32_t c = cb_jcode(s, at, n);

    if (!set)
        return cb_jspace(c);
    for (size_t i = 0, len; i < set->n; i += len)
        if (cb_jcode(set, i, &len) == c)
            return 1;
    return 0;
}

struct jstr cb_jstrip(struct jstr s, const struct jstr *set, int left, int right)
{
    size_t from = 0, to = s.n, n;

    while (left && from < to && in_set(&s, from, set, &n))
        from += n;
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s.s[at] & 0xC0) == 0x80 && to - at < 4)
            at--;
        if (at + cb_jchar(&s, at) != to)
            at = to - 1;
        if (!in_set(&s, at, set, &n))
            break;
        to = at;
    }
    return (struct jstr){ s.s + from, s.own ? s.own + from : NULL, to - from };
}

int64_t cb_jfind(const struct jstr *s, size_t from, size_t to, const struct jstr *part)
{
    const char *p;

    if (from > to)
        return -1;
    if (!part->n)
        return (int64_t)from;
    p = memmem(s->s + from, to - from, part->s, part->n);
    return p ? p - s->s : -1;
}
