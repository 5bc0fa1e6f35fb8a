/* SPDX-License-Identifier: MIT */
/* haystack.c - a text as a ring of words, with needles between its sentences. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/file.h"
#include "base/plain_text.h"
#include "gen.h"

static const char blanks[] = " \t\r\n\v\f";

/* Does the word end a sentence? Its last character before closing quotes decides. */
static int ends_sentence(const char *w, int n)
{
    while (n && strchr("\"')]_", w[n - 1]))
        n--;
    return n && strchr(".!?", w[n - 1]);
}

int cb_haystack_make(const char *text, size_t n, struct haystack *out)
{
    int first = 1;

    *out = (struct haystack){ .text = cb_calloc(n + 1, 1) };
    out->word = cb_calloc(n / 2 + 1, sizeof *out->word);
    if (!out->text || !out->word) {
        cb_haystack_free(out);
        return CB_ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        out->text[i] = text[i] ? text[i] : ' ';
    for (size_t at = 0; at += strspn(out->text + at, blanks), out->text[at];) {
        const int len = (int)strcspn(out->text + at, blanks);
        out->word[out->n++] = (struct word){ at, len, first };
        first = ends_sentence(out->text + at, len);
        at += (size_t)len;
    }
    if (out->n)
        return CB_OK;
    cb_haystack_free(out);
    return cb_fail(CB_EFORMAT, "haystack: no words");
}

int cb_haystack_read(const char *path, struct haystack *out)
{
    struct buf b = { 0 };
    int err = cb_file_read_path(path, &b);

    if (!err)
        err = cb_plain_text(path, &b, NULL);
    *out = (struct haystack){ 0 };
    if (!err && (err = cb_haystack_make(b.s, b.n, out)) == CB_EFORMAT)
        err = cb_fail(CB_EFORMAT, "%s: no words to hide a needle in", path);
    cb_buf_free(&b);
    return err;
}

void cb_haystack_free(struct haystack *h)
{
    free(h->text);
    free(h->word);
    *h = (struct haystack){ 0 };
}

/* The last sentence start at or before `percent` of `units` words; the end of the text counts as
 * one. */
static int sentence_at(const struct haystack *h, int start, int units, double percent)
{
    int i = (int)(percent / 100 * units + 0.5);

    if (i >= units)
        return units;
    for (int back = 0; back < 100 && i - back > 0; back++)
        if (h->word[(start + i - back) % h->n].is_first)
            return i - back;
    return i;
}

void cb_hay_fill(const struct haystack *h, int start, int units, const char *const *insert,
                 const double *depth, int n, struct buf *out)
{
    int next = 0;

    for (int i = 0; i <= units; i++) {
        for (; next < n && sentence_at(h, start, units, depth[next]) <= i; next++)
            cb_buf_print(out, "%s%s", i || next ? " " : "", insert[next]);
        if (i < units) {
            const struct word *w = &h->word[(start + i) % h->n];
            cb_buf_add(out, " ", i || next ? 1 : 0);
            cb_buf_add(out, h->text + w->at, (size_t)w->n);
        }
    }
}
