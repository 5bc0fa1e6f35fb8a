/* SPDX-License-Identifier: MIT */
/* jcase.c - letters: small, capital, title. One character maps to one, unlike in Python, where a
 * few such as U+00DF become two. */
#include "jcase.h"

#include <utf8proc.h>

#include "base/utf8.h"

uint32_t cb_jlower_of(uint32_t c)
{
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

uint32_t cb_jupper_of(uint32_t c)
{
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

int cb_jis_letter(uint32_t c)
{
    const utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);

    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

static uint32_t mapped(uint32_t c, enum jcase how, int inside)
{
    const uint32_t low = cb_jlower_of(c);

    switch (how) {
    case CASE_UPPER:
        return cb_jupper_of(c);
    case CASE_TITLE:
    case CASE_CAPITAL:
        return inside ? low : cb_jupper_of(c);
    case CASE_SWAP:
        return low != c ? low : cb_jupper_of(c);
    default:
        return low;
    }
}

int cb_jcase(struct jrun *r, const struct jstr *s, enum jcase how, struct jv *out)
{
    struct jout o = { .r = r };
    int inside = 0; /* a word, or the text */

    for (size_t i = 0, n; i < s->n; i += n) {
        const uint32_t c = cb_jcode(s, i, &n);
        char buf[4] = { s->s[i] };
        const int valid = n > 1 || (unsigned char)s->s[i] < 0x80;
        const int len = valid ? cb_utf8_put(mapped(c, how, inside), buf) : 1;
        TRY(cb_jout_bytes(&o, buf, (size_t)len, s->own && s->own[i]));
        inside = how == CASE_CAPITAL || cb_jis_letter(c);
    }
    *out = cb_jout_str(&o);
    return CB_OK;
}
