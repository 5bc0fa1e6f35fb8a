/* SPDX-License-Identifier: MIT */
/* tok_nfc.c - Unicode normalisation form C in linear time. The library's own function sorts
 * combining marks by insertion, which takes quadratic time on a long run of marks. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "tok_impl.h"

enum { MAX_DECOMP = 8 }; /* code points; Unicode has none above 4 */

static int ccc(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

/* Sorts one run of marks by combining class, stably; tmp[n] is scratch. */
static void order_run(int32_t *c, size_t n, int32_t *tmp)
{
    size_t at[257] = { 0 };

    for (size_t i = 0; i < n; i++)
        at[ccc(c[i]) + 1]++;
    for (int i = 1; i < 257; i++)
        at[i] += at[i - 1];
    for (size_t i = 0; i < n; i++)
        tmp[at[ccc(c[i])]++] = c[i];
    memcpy(c, tmp, n * sizeof *c);
}

/* Canonical ordering of c[n]; tmp[n] is scratch. */
static void order(int32_t *c, size_t n, int32_t *tmp)
{
    for (size_t i = 0, k; i < n; i = k) {
        int sorted = 1;

        for (k = i; k < n && ccc(c[k]); k++)
            sorted &= k == i || ccc(c[k - 1]) <= ccc(c[k]);
        if (!sorted)
            order_run(c + i, k - i, tmp);
        k += k == i;
    }
}

/* Decomposes, orders and composes one character and the characters that may combine with it. */
static int segment(struct tok_work *w, const char *s, size_t len, size_t *n)
{
    size_t n_cp = 0;
    utf8proc_ssize_t m;

    for (size_t i = 0; i < len;) {
        utf8proc_int32_t c;
        int last = 0;

        i += (size_t)utf8proc_iterate((const utf8proc_uint8_t *)s + i, (utf8proc_ssize_t)(len - i),
                                      &c);
        TRY(cb_grow(&w->cp, &w->cap_cp, n_cp + MAX_DECOMP, sizeof *w->cp));
        m = utf8proc_decompose_char(c, w->cp + n_cp, MAX_DECOMP,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &last);
        if (m < 0 || m > MAX_DECOMP)
            return cb_fail(CB_EFORMAT, "text: U+%04X has no normal form", (unsigned)c);
        n_cp += (size_t)m;
    }
    TRY(cb_grow(&w->cp, &w->cap_cp, 2 * n_cp, sizeof *w->cp));
    order(w->cp, n_cp, w->cp + n_cp);
    m = utf8proc_normalize_utf32(w->cp, (utf8proc_ssize_t)n_cp, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (m < 0)
        return cb_fail(CB_EFORMAT, "text: %s", utf8proc_errmsg(m));
    TRY(cb_grow(&w->buf, &w->cap_buf, *n + 4 * (size_t)m, 1));
    for (utf8proc_ssize_t i = 0; i < m; i++)
        *n += (size_t)cb_utf8_put((uint32_t)w->cp[i], w->buf + *n);
    return 0;
}

/* Characters below U+0300 (lead bytes below 0xCC) are in normal form and combine with no character
 * before them, so a segment may start at each. */
int cb_tok_nfc(struct tok_work *w, const char *text, size_t len, size_t *n)
{
    *n = 0;
    for (size_t i = 0, k; i < len; i = k) {
        size_t run = i; /* [i, run): starters that nothing follows */

        for (k = i; k < len; k++) {
            const unsigned char b = (unsigned char)text[k];
            if (b >= 0xCC)
                break;
            if (b < 0x80 || b >= 0xC0)
                run = k;
        }
        if (k == len)
            run = len;
        TRY(cb_grow(&w->buf, &w->cap_buf, *n + (run - i) + 1, 1));
        memcpy(w->buf + *n, text + i, run - i);
        *n += run - i;
        while (k < len && ((unsigned char)text[k] & 0xC0) != 0x80 && (unsigned char)text[k] >= 0xCC)
            k += (size_t)cb_utf8_len(text + k, len - k);
        if (k > run)
            TRY(segment(w, text + run, k - run, n));
    }
    return 0;
}
