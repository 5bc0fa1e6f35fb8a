/* SPDX-License-Identifier: MIT */
/* wrap.c - text that comes in pieces, broken between words to fit the width of a terminal. */
#include "wrap.h"

#include <string.h>
#include <utf8proc.h>

#include "base/err.h"

/* Columns of the character s[n]. A control character is shown as a question mark. */
static int columns(const char *s, size_t n)
{
    utf8proc_int32_t c;

    if (utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &c) < 1 ||
        utf8proc_category(c) == UTF8PROC_CATEGORY_CC)
        return 1;
    return utf8proc_charwidth(c);
}

static int blanks(struct wrap *w)
{
    for (; w->blanks; w->blanks--, w->at++)
        TRY(w->out(" ", 1));
    return CB_OK;
}

/* Writes the word that is held back, on the next line if it does not fit on this one. */
static int release(struct wrap *w)
{
    if (!w->held.n)
        return CB_OK;
    if (w->width && !w->fence && w->at && w->at + w->blanks + w->word > w->width) {
        TRY(w->out("\n", 1));
        w->at = w->blanks = 0;
    }
    TRY(blanks(w));
    TRY(w->out(w->held.s, w->held.n));
    w->at += w->word;
    w->word = 0;
    cb_buf_clear(&w->held);
    return CB_OK;
}

static int line_end(struct wrap *w)
{
    TRY(release(w));
    w->blanks = 0; /* nobody sees them */
    if (w->n_line >= 3 && !memcmp(w->line, "```", 3))
        w->fence = !w->fence;
    w->at = w->n_line = 0;
    return w->out("\n", 1);
}

static int put_char(struct wrap *w, const char *s, size_t n)
{
    const int wide = columns(s, n);

    if (*s == '\n')
        return line_end(w);
    if (w->n_line < (int)sizeof w->line)
        w->line[w->n_line++] = *s;
    if (*s == ' ') {
        TRY(release(w));
        w->blanks++;
        return CB_OK;
    }
    if (*s == '\t') {
        TRY(release(w));
        w->blanks += 8 - (w->at + w->blanks) % 8;
        return CB_OK;
    }
    TRY(cb_buf_put(&w->held, s, n));
    w->word += wide;
    /* A line may be broken after a character of two columns, as of Chinese. Nothing is gained by
     * holding back what is longer than a line. */
    return wide > 1 || !w->width || w->word >= w->width ? release(w) : CB_OK;
}

int cb_wrap_put(struct wrap *w, const char *s, size_t n)
{
    size_t len;

    for (; n; s += len, n -= len) {
        for (len = 1; len < n && (s[len] & 0xc0) == 0x80;)
            len++;
        TRY(put_char(w, s, len));
    }
    return CB_OK;
}

int cb_wrap_end(struct wrap *w)
{
    TRY(release(w));
    w->blanks = w->at = w->n_line = w->fence = 0;
    return CB_OK;
}

void cb_wrap_free(struct wrap *w)
{
    cb_buf_free(&w->held);
}
