/* SPDX-License-Identifier: MIT */
/* messages.c - the messages of a conversation, and documents that come in front of one. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "cli/chat/chat.h"

int cb_messages_add(struct chat *c, const char *role, const char *text, size_t n_doc)
{
    char *own;

    TRY(cb_grow_by_one(&c->msg, c->n, sizeof *c->msg));
    TRY(cb_grow_by_one(&c->before, c->n, sizeof *c->before));
    TRY(cb_grow_by_one(&c->n_doc, c->n, sizeof *c->n_doc));
    own = strdup(text);
    if (!own)
        return cb_fail(CB_ENOMEM, "out of memory");
    c->msg[c->n] = (struct cb_message){ role, own };
    c->before[c->n] = c->here;
    c->n_doc[c->n++] = n_doc;
    return CB_OK;
}

void cb_messages_drop(struct chat *c)
{
    union {
        const char *in;
        char *out;
    } text = { c->msg[--c->n].text }; /* the strdup of cb_messages_add */
    free(text.out);
}

int cb_messages_document(struct buf *docs, const char *path)
{
    struct buf text;
    int rc;

    TRY(cb_read_document(path, &text));
    while (text.n && text.s[text.n - 1] == '\n')
        text.s[--text.n] = '\0';
    rc = cb_buf_put(docs, text.s, text.n);
    cb_buf_free(&text);
    return rc ? rc : cb_buf_put(docs, "\n\n", 2);
}
