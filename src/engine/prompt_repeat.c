/* SPDX-License-Identifier: MIT */
/* prompt_repeat.c - the request to repeat is the paper's: the user asks for the context, or for the
 * part after its last tokens so far; then the assistant's turn begins, and the piece follows. */
#include "prompt_repeat.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "text/conversation_text.h"

enum { TAIL = 8 }; /* tokens before a piece that the request quotes */

struct words {
    int32_t *id;
    int n;
};

struct prompt_repeat {
    struct words first, later; /* the requests for the first piece and for later ones */
    struct words turn;         /* from the user's turn to the assistant's */
    struct repeat_plan plan;
    int32_t *token; /* of a feed */
};

static int encode(const struct cb_model *m, const char *text, int flags, struct words *out)
{
    return cb_tok_encode(m->tok, text, strlen(text), flags, &out->id, &out->n);
}

/* What the model's chat form has between a user's text and the assistant's; without one, a new line
 */
static int open_turn(const struct cb_model *m, struct words *out)
{
    const struct cb_message msg = { "user", "context" };
    struct chat_text t;
    int err = CB_OK;

    if (!cb_chat_default(m->gguf))
        return encode(m, "\n", 0, out);
    TRY(cb_chat_render(m->gguf, NULL, &msg, 1, 1, &t));
    if (t.n_own)
        err = encode(m, t.s + t.own[t.n_own - 1].to, CB_TOK_SPECIAL, out);
    cb_chat_text_free(&t);
    return err;
}

static int open_words(const struct cb_model *m, struct prompt_repeat *r)
{
    TRY(encode(m, "\n\nRepeat the previous context exactly.", 0, &r->first));
    TRY(encode(m, "\n\nRepeat the part of the previous context exactly, starting with", 0,
               &r->later));
    return open_turn(m, &r->turn);
}

/* Tokens that stand before a piece */
static int request(const struct prompt_repeat *r, int first)
{
    return r->turn.n + (first ? r->first.n : r->later.n + TAIL);
}

int cb_prompt_repeat_room(const struct prompt_repeat *r, int n)
{
    const int left = r ? n - r->plan.sink : 0;

    if (left <= 0)
        return 0;
    return left <= r->plan.piece ? left + request(r, 1)
                                 : r->plan.piece + max_int(request(r, 1), request(r, 0));
}

static int fill(const struct cb_model *m, const struct policy *p, int n_ctx,
                struct prompt_repeat *r)
{
    const int most = m->hp.chunked ? m->hp.window : INT32_MAX;
    int room;

    TRY(open_words(m, r));
    room = cb_prompt_repeat_room(r, n_ctx);
    if (room > most - n_ctx)
        return cb_fail(CB_EUNSUPPORTED,
                       "policy %s: repeats up to %d tokens after a context of %d, which is more "
                       "than %d in all",
                       p->m->name, room, n_ctx, most);
    r->token = cb_calloc((size_t)room + 1, sizeof *r->token);
    return r->token ? CB_OK : CB_ENOMEM;
}

int cb_prompt_repeat_new(const struct cb_model *m, const struct policy *p, int n_ctx,
                         struct prompt_repeat **out)
{
    const struct repeat_plan *plan = cb_policy_repeat(p);

    *out = NULL;
    if (!plan)
        return CB_OK;
    if (!m->tok)
        return cb_fail(CB_EUNSUPPORTED, "policy %s: needs the model's vocabulary", p->m->name);
    if (!(*out = cb_calloc(1, sizeof **out)))
        return CB_ENOMEM;
    (*out)->plan = *plan;
    return fill(m, p, n_ctx, *out);
}

void cb_prompt_repeat_free(struct prompt_repeat *r)
{
    if (!r)
        return;
    free(r->first.id);
    free(r->later.id);
    free(r->turn.id);
    free(r->token);
    free(r);
}

int64_t cb_prompt_repeat_total(const struct prompt_repeat *r, int n)
{
    const int left = r ? n - r->plan.sink : 0;

    return left <= 0 ? 0
                     : left + request(r, 1) +
                           (int64_t)((left - 1) / r->plan.piece) * (int64_t)request(r, 0);
}

static int put(int32_t *to, int n, const int32_t *id, int n_id)
{
    memcpy(to + n, id, (size_t)n_id * sizeof *id);
    return n + n_id;
}

int cb_prompt_repeat_feed(struct prompt_repeat *r, const int32_t *prompt, int n, int done,
                          int *from, int *to, const int32_t **token)
{
    const struct words *ask = done ? &r->later : &r->first;
    const int tail = min_int(TAIL, done);
    int m = 0;

    *from = done ? done : r->plan.sink;
    if (*from >= n)
        return 0;
    *to = min_int(n, *from + r->plan.piece);
    m = put(r->token, m, ask->id, ask->n);
    m = put(r->token, m, prompt + *from - tail, tail);
    m = put(r->token, m, r->turn.id, r->turn.n);
    m = put(r->token, m, prompt + *from, *to - *from);
    *token = r->token;
    return m;
}
