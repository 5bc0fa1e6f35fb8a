/* SPDX-License-Identifier: MIT */
/* detokenizer.c - turns tokens into text as they come, in whole characters. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "model/model.h"

struct cb_detokenizer {
    const struct tok *tok;
    int flags;
    int begun; /* 1: the text has a byte already, or its first one was dropped */
    struct utf8_hold hold;
    char *piece, *text; /* [cap], [3 * (cap + 1) + 1] */
    int cap;
};

enum { FIRST_CAP = 64 };

/* Makes room for a token of n bytes. */
static int grow(struct cb_detokenizer *d, int n)
{
    char *piece, *text;

    if (n <= d->cap)
        return CB_OK;
    piece = cb_realloc(d->piece, (size_t)n, 1);
    if (!piece)
        return CB_ENOMEM;
    d->piece = piece;
    text = cb_realloc(d->text, 3 * ((size_t)n + 1) + 1, 1);
    if (!text)
        return CB_ENOMEM;
    d->text = text;
    d->cap = n;
    return CB_OK;
}

int cb_detokenizer_new(const cb_model *m, int flags, cb_detokenizer **out)
{
    struct cb_detokenizer *d = cb_calloc(1, sizeof *d);

    *out = NULL;
    if (!d)
        return CB_ENOMEM;
    d->tok = m->tok;
    d->flags = flags;
    if (grow(d, FIRST_CAP)) {
        cb_detokenizer_free(d);
        return CB_ENOMEM;
    }
    *out = d;
    return CB_OK;
}

void cb_detokenizer_free(cb_detokenizer *d)
{
    if (!d)
        return;
    free(d->piece);
    free(d->text);
    free(d);
}

static void give(struct cb_detokenizer *d, int n, const char **text, size_t *len)
{
    d->text[n] = '\0';
    *text = d->text;
    *len = (size_t)n;
}

int cb_detokenizer_push(cb_detokenizer *d, int32_t id, const char **text, size_t *len)
{
    const int special = (d->flags & CB_TOK_SPECIAL) != 0;
    int n = cb_tok_piece(d->tok, id, special, d->piece, d->cap), skip = 0;

    give(d, 0, text, len);
    if (n > d->cap) {
        TRY(grow(d, n));
        cb_tok_piece(d->tok, id, special, d->piece, n);
    }
    if (n && !d->begun) { /* after a special token, the text's first space is still to come */
        skip = (d->flags & CB_TOK_WHOLE) && cb_tok_space_prefix(d->tok) && *d->piece == ' ';
        d->begun = !cb_tok_is_special(d->tok, id);
    }
    n = cb_utf8_push(&d->hold, d->piece + skip, n - skip, d->text);
    give(d, n, text, len);
    return CB_OK;
}

void cb_detokenizer_end(cb_detokenizer *d, const char **text, size_t *len)
{
    give(d, cb_utf8_flush(&d->hold, d->text), text, len);
    d->begun = 0;
}
