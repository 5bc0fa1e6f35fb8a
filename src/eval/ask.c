/* SPDX-License-Identifier: MIT */
/* ask.c - turns an item into token ids, and a session's logits into an answer. */
#include "ask.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/words.h"
#include "metric.h"

/* ---- the prompt ---- */

struct whole {
    char *text;     /* owned */
    size_t context; /* bytes before the question */
    const char *form;
    struct cb_message msg; /* the message in a chat form; its text is `user` */
    char *user;            /* owned; NULL without a form */
};

static int plain_text(const struct item *it, struct whole *w)
{
    struct buf b = { 0 };

    cb_buf_text(&b, it->context);
    cb_buf_text(&b, it->question);
    w->context = strlen(it->context);
    w->text = cb_buf_take(&b);
    return w->text ? CB_OK : CB_ENOMEM;
}

/* Offset of the question. Templates may trim blanks, so those at the question's ends are
 * ignored. */
static size_t find_question(const char *text, const char *question)
{
    static const char blanks[] = " \t\r\n";
    const size_t len = strlen(text);
    size_t n;

    question += strspn(question, blanks);
    n = strlen(question);
    while (n && strchr(blanks, question[n - 1]))
        n--;
    for (size_t at = n && n <= len ? len - n + 1 : 0; at-- > 0;) /* it stands near the end */
        if (!memcmp(text + at, question, n))
            return at;
    return len;
}

static int chat_text(const cb_model *m, const char *form, const struct item *it, struct whole *w)
{
    const struct cb_chat how = { .form = form };

    TRY(plain_text(it, w));
    w->form = form;
    w->user = w->text;
    w->msg = (struct cb_message){ "user", w->user };
    w->text = NULL;
    TRY(cb_chat_text(m, &how, &w->msg, 1, 1, &w->text));
    w->context = find_question(w->text, it->question);
    return CB_OK;
}

static int to_ids(const cb_model *m, const struct whole *w, struct prompt *out)
{
    const struct cb_chat how = { .form = w->form };

    if (w->form)
        return cb_chat_tokenize(m, &how, &w->msg, 1, 1, 0, &out->ids, &out->n);
    return cb_tokenize(m, w->text, strlen(w->text), CB_TOK_BOS, &out->ids, &out->n);
}

/* 1: ids[0] is a BOS token that is not in the text. */
static int bos_added(const cb_model *m, const struct whole *w, const int32_t *ids, int n)
{
    struct cb_model_info info;
    char bos[64];
    int len;

    cb_model_get_info(m, &info);
    if (!n || info.bos < 0 || ids[0] != info.bos)
        return 0;
    len = cb_token_bytes(m, info.bos, 1, bos, sizeof bos);
    return len > (int)sizeof bos || strncmp(w->text, bos, (size_t)len) != 0;
}

/* Index of the first token that begins in the question. A token across the border counts as the
 * question's. */
static int split_at(const cb_model *m, const struct whole *w, const int32_t *ids, int n)
{
    struct cb_model_info info;
    size_t bytes = 0;
    int i = bos_added(m, w, ids, n);

    cb_model_get_info(m, &info);
    if (info.space_prefix && n > i) /* the first token has an extra leading blank */
        bytes = (size_t)cb_token_bytes(m, ids[i], 1, NULL, 0) - 1, i++;
    for (; i < n; i++) {
        bytes += (size_t)cb_token_bytes(m, ids[i], 1, NULL, 0);
        if (bytes > w->context)
            return i;
    }
    return n;
}

/* Keeps half of the room from the front, half from the end. */
static void cut_middle(struct prompt *p, int room)
{
    const int front = room / 2, back = room - front;

    p->truncated = p->n - room;
    memmove(p->ids + front, p->ids + p->n - back, (size_t)back * sizeof *p->ids);
    if (p->split > front)
        p->split = p->split - p->truncated > front ? p->split - p->truncated : front;
    p->n = room;
}

int cb_ask_prompt(const cb_model *m, const char *form, const struct item *it, int room,
                  int truncate, struct prompt *out)
{
    struct whole w = { 0 };
    int err;

    *out = (struct prompt){ 0 };
    err = form ? chat_text(m, form, it, &w) : plain_text(it, &w);
    if (!err)
        err = to_ids(m, &w, out);
    if (!err)
        out->split = split_at(m, &w, out->ids, out->n);
    free(w.text);
    free(w.user);
    if (!err && out->n > room && (!truncate || room < 2))
        err = cb_fail(CB_EFULL, "%s: %d tokens and %d for the answer do not fit into %d", it->id,
                      out->n, it->max_new, room + it->max_new);
    if (!err && out->n > room)
        cut_middle(out, room);
    if (!err && out->split < 1)
        out->split = out->n; /* nothing precedes the question: there is no context to compress */
    if (err) {
        free(out->ids);
        *out = (struct prompt){ 0 };
    }
    return err;
}

/* ---- the answer ---- */

static int32_t likeliest(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static int add_token(const cb_model *m, int32_t id, struct buf *pred)
{
    char small[256], *big;
    const int n = cb_token_bytes(m, id, 0, small, sizeof small);

    if (n <= (int)sizeof small) {
        cb_buf_add(pred, small, (size_t)n);
    } else {
        big = cb_calloc((size_t)n, 1);
        if (!big)
            return CB_ENOMEM;
        cb_token_bytes(m, id, 0, big, n);
        cb_buf_add(pred, big, (size_t)n);
        free(big);
    }
    return pred->failed ? CB_ENOMEM : CB_OK;
}

/* An answer that is scored by its first line ends with that line; empty lines before it do not
 * count. */
static int line_ended(struct buf *pred)
{
    const size_t skip = strspn(pred->s, "\n");
    char *end = strchr(pred->s + skip, '\n');

    if (!end)
        return 0;
    *end = '\0';
    pred->n = (size_t)(end - pred->s);
    return 1;
}

/* No further text can change the score: every reference was found. */
static int settled(const struct item *it, const char *pred)
{
    return cb_begins(it->metric->name, "contains") && strcmp(it->metric->name, "contains_norm") &&
           cb_ask_score(it, pred) >= 1;
}

int cb_ask_answer(const cb_model *m, cb_session *s, const struct item *it, int (*stop)(void *arg),
                  void *arg, struct buf *pred)
{
    struct cb_model_info info;

    cb_model_get_info(m, &info);
    cb_buf_clear(pred);
    cb_buf_text(pred, "");
    for (int i = 0; i < it->max_new; i++) {
        const int32_t id = likeliest(cb_session_logits(s), info.n_vocab);
        if (stop && stop(arg))
            return cb_fail(CB_ECANCEL, "stopped");
        if (cb_token_is_end(m, id))
            break;
        TRY(add_token(m, id, pred));
        if ((it->stop_at_line && line_ended(pred)) || settled(it, pred->s))
            break;
        if (i + 1 < it->max_new)
            TRY(cb_session_decode(s, id));
    }
    return CB_OK;
}

double cb_ask_score(const struct item *it, const char *pred)
{
    const struct golds g = { (const char *const *)it->answer, it->n_answer,
                             (const char *const *)it->classes, it->n_class };
    const char *from = pred;

    if (it->stop_at_line)
        from += strspn(from, "\n");
    return it->metric->score(from, &g);
}
