/* SPDX-License-Identifier: MIT */
/* conversation.c - turns messages into a prompt, as text or as token ids. */
#include "base/err.h"
#include "model/model.h"
#include "text/conversation_text.h"

int cb_chat_text(const cb_model *m, const struct cb_chat *how, const struct cb_message *msg, int n,
                 int ask, char **text)
{
    struct chat_text t;

    *text = NULL;
    TRY(cb_chat_render(m ? m->gguf : NULL, how, msg, n, ask, &t));
    *text = t.s;
    t.s = NULL;
    cb_chat_text_free(&t);
    return CB_OK;
}

/* Keeps the ranges of the messages' own text that lie after the first `from` bytes, counted from
 * there. Returns their number. */
static int own_from(struct chat_text *t, size_t from)
{
    int n = 0;

    for (int i = 0; i < t->n_own; i++) {
        const struct tok_plain *p = &t->own[i];
        if (p->to > from)
            t->own[n++] = (struct tok_plain){ p->from > from ? p->from - from : 0, p->to - from };
    }
    return n;
}

int cb_chat_tokenize(const cb_model *m, const struct cb_chat *how, const struct cb_message *msg,
                     int n, int ask, size_t from, int32_t **ids, int *n_ids)
{
    struct chat_text t;
    int flags = CB_TOK_SPECIAL, rc;

    *ids = NULL;
    *n_ids = 0;
    TRY(cb_chat_render(m->gguf, how, msg, n, ask, &t));
    if (!from && !t.has_bos)
        flags |= CB_TOK_BOS;
    if (from > t.n)
        rc = cb_fail(CB_EARG, "chat: the conversation has %zu bytes, fewer than %zu", t.n, from);
    else
        rc = cb_tok_encode_marked(m->tok, t.s + from, t.n - from, flags, t.own, own_from(&t, from),
                                  ids, n_ids);
    cb_chat_text_free(&t);
    return rc;
}
