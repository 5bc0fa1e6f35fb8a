/* SPDX-License-Identifier: MIT */
/* follow.c - the ranks besides rank 0: each makes the calls that rank 0 tells it. */
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/err.h"
#include "device/node_weights.h"
#include "device/split_rows.h"
#include "in_step.h"
#include "orders.h"
#include "rank_fill.h"
#include "whole_bank.h"

/* ---- the plan ---- */

/* Rows that a rank sends for products of n_out rows, as all ranks send alike */
static uint64_t sent(const struct cb_session *s, int n_out)
{
    return sizeof(float) * (uint64_t)cb_split_rows_most(s->dev, n_out);
}

/* Queries, keys and values come in one message, then the output, the hidden ones, and the last
 * product of a layer; at the end, the logits. */
static void tensor_traffic(const struct cb_session *s, int *messages, uint64_t *bytes)
{
    const struct cb_model *m = s->model;

    *messages = 1;
    *bytes = sent(s, m->hp.n_vocab);
    for (int l = 0; l < m->hp.n_layer; l++) {
        const struct layer *y = &m->layer[l];
        if (y->moe || y->mixer || y->latent || y->input || y->gated || y->ngrams) {
            *messages = -1;
            *bytes = 0;
            return;
        }
        *messages += 4;
        *bytes += sent(s, y->q.n_out) + sent(s, y->k.n_out) + sent(s, y->v.n_out) +
                  sent(s, y->o.n_out) + sent(s, y->ffn.up.n_out) + sent(s, y->ffn.down.n_out);
    }
}

/* Every rank plans its own share, and all have all of them. */
static int plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    struct ranks *team = s->in_step->team;
    const char *host = cb_ranks_host(team, cb_ranks_me(team));
    struct rank_plan mine = { .host = "" };
    uint64_t more = 0;
    int messages, n_more = 0;

    TRY(cb_session_plan(s, n_prompt, n_gen, &mine.memory));
    memcpy(mine.host, host, strlen(host) + 1);
    mine.one_copy = cb_node_weights_ranks(s->dev);
    if (s->in_step->how == SPLIT_LAYERS)
        messages = 1, mine.sent_bytes = sizeof(float) * (uint64_t)s->model->hp.n_embd;
    else if (cb_split_rows_is(s->dev))
        tensor_traffic(s, &messages, &mine.sent_bytes);
    else
        cb_context_split_traffic(&s->attention, n_prompt + n_gen, &messages, &mine.sent_bytes);
    if (s->in_step->how == SPLIT_BOTH && messages >= 0)
        cb_context_split_traffic(&s->attention, n_prompt + n_gen, &n_more, &more);
    mine.sent_bytes += more;
    mine.messages = messages + n_more;
    return cb_ranks_share(team, &mine, sizeof mine, all);
}

int cb_session_plan_ranks(struct cb_session *s, int n_prompt, int n_gen, struct rank_plan *all)
{
    const int32_t given[] = { n_prompt, n_gen };

    TRY(cb_in_step_begin(s, VERB_PLAN, given, sizeof given));
    return cb_in_step_end(s->in_step, plan_ranks(s, n_prompt, n_gen, all));
}

/* ---- messages to be timed ---- */

static int ping(const struct cb_session *s, size_t bytes, int n)
{
    struct ranks *team = s->in_step->team;
    char *mine = cb_calloc(bytes, (size_t)cb_ranks_n(team) + 1);
    int err = mine ? CB_OK : CB_ENOMEM;

    for (int i = 0; !err && i < n; i++)
        err = cb_ranks_share(team, mine, bytes, mine + bytes);
    free(mine);
    return err;
}

int cb_session_ping(struct cb_session *s, size_t bytes, int n)
{
    const int32_t given[] = { (int32_t)bytes, n };

    TRY(cb_in_step_begin(s, VERB_PING, given, sizeof given));
    return cb_in_step_end(s->in_step, ping(s, bytes, n));
}

/* ---- the calls ---- */

/* A told call: its session, NULL for a call that opens one, and n bytes of data */
struct told {
    cb_model *m;
    struct cb_session *s;
    const char *data;
    size_t n;
};

static int32_t number(const struct told *t, size_t i)
{
    int32_t x;

    memcpy(&x, t->data + i * sizeof x, sizeof x);
    return x;
}

/* A session that could not be opened here was opened nowhere: rank 0 says so. */
static int open_session(const struct told *t)
{
    const char *at = t->data + sizeof(struct order_open), **text[4];
    struct cb_session_params p = { 0 };
    struct order_open o;
    cb_session *s;

    memcpy(&o, t->data, sizeof o);
    text[0] = &p.type_k;
    text[1] = &p.type_v;
    text[2] = &p.policy;
    text[3] = &p.prefill;
    p.n_ctx = o.n_ctx;
    p.chunk = o.chunk;
    p.act_bits = o.act_bits;
    p.guest = o.guest;
    p.checkpoint_bytes = o.checkpoint_bytes;
    for (int i = 0; i < 4; i++) {
        *text[i] = o.has[i] ? at : NULL;
        at += strlen(at) + 1;
    }
    (void)cb_session_open(t->m, &p, &s);
    return CB_OK;
}

static int close_session(const struct told *t)
{
    cb_session_close(t->s);
    return CB_OK;
}

static int fork_session(const struct told *t)
{
    cb_session *f;

    (void)cb_session_fork(t->s, &f);
    return CB_OK;
}

static int load_session(const struct told *t)
{
    const char *path = t->data + sizeof(int32_t);
    const size_t at = sizeof(int32_t) + strlen(path) + 1; /* of the policy, if there is one */
    cb_session *s;

    (void)cb_session_load_as(t->m, path, number(t, 0), at < t->n ? t->data + at : NULL, &s);
    return CB_OK;
}

static void ignore(void *arg, int i, const float *x)
{
    (void)arg, (void)i, (void)x;
}

static int begin_prompt(const struct told *t)
{
    const size_t n = (t->n - sizeof(struct order_prompt)) / sizeof(int32_t);
    int32_t *tokens = cb_calloc(n, sizeof *tokens);
    struct order_prompt o;
    struct cb_prefill how = { 0 };
    int err;

    if (!tokens)
        return CB_ENOMEM;
    memcpy(&o, t->data, sizeof o);
    memcpy(tokens, t->data + sizeof o, n * sizeof *tokens);
    how.logits = o.gives == GIVES_LOGITS ? ignore : NULL;
    how.states = o.gives == GIVES_STATES ? ignore : NULL;
    how.logits_from = o.logits_from;
    t->s->partial_prompt = o.gives == GIVES_NOTHING;
    err = cb_session_prefill_begin(t->s, tokens, (int)n, &how);
    free(tokens);
    return err;
}

static int step_prompt(const struct told *t)
{
    const int left = cb_session_prefill_step(t->s);

    return left < 0 ? left : CB_OK;
}

static int cancel_prompt(const struct told *t)
{
    cb_session_prefill_take_back(t->s, number(t, 0));
    return CB_OK;
}

static int decode(const struct told *t)
{
    return cb_session_decode(t->s, number(t, 0));
}

static int decode_all(const struct told *t)
{
    int32_t tokens[ORDER_INLINE];
    const float *logits;

    if (t->n > sizeof tokens)
        return cb_fail(CB_EIO, "ranks: a draft of %zu bytes", t->n);
    memcpy(tokens, t->data, t->n);
    return cb_session_decode_all(t->s, tokens, (int)(t->n / sizeof *tokens), &logits);
}

static int cut(const struct told *t)
{
    return cb_session_truncate(t->s, number(t, 0));
}

static int guess(const struct told *t)
{
    const int n = cb_session_mtp_guess(t->s, number(t, 0));

    return n < 0 ? n : CB_OK;
}

static int give(const struct told *t)
{
    return cb_whole_bank_give(t->s);
}

static int fill(const struct told *t)
{
    return cb_rank_fill_told(t->s, t->data + sizeof(int32_t), number(t, 0));
}

static struct cb_session *session_of(const struct in_step *x, int id)
{
    return id >= 0 && id < x->n_id && (size_t)id < x->cap ? x->at[id] : NULL;
}

static int batch(const struct told *t)
{
    const size_t n = t->n / (2 * sizeof(int32_t));
    cb_session **s = cb_calloc(n, sizeof(cb_session *));
    int32_t *tokens = cb_calloc(n, sizeof *tokens);
    int err = s && tokens ? CB_OK : CB_ENOMEM;

    for (size_t i = 0; !err && i < n; i++) {
        s[i] = session_of(t->m->in_step, number(t, i));
        tokens[i] = number(t, n + i);
        if (!s[i])
            err = cb_fail(CB_EIO, "ranks: a session that is not here");
    }
    if (!err)
        err = cb_decode_batch(s, tokens, (int)n);
    free(s);
    free(tokens);
    return err;
}

static int plan_with(const struct told *t)
{
    struct rank_plan *all = cb_calloc((size_t)cb_ranks_n(t->m->in_step->team), sizeof *all);
    int err = all ? cb_session_plan_ranks(t->s, number(t, 0), number(t, 1), all) : CB_ENOMEM;

    free(all);
    return err;
}

static int ping_with(const struct told *t)
{
    return cb_session_ping(t->s, (size_t)number(t, 0), number(t, 1));
}

typedef int (*call_fn)(const struct told *t);
static const call_fn call_of[VERB_END] = {
    [VERB_OPEN] = open_session,
    [VERB_CLOSE] = close_session,
    [VERB_FORK] = fork_session,
    [VERB_LOAD] = load_session,
    [VERB_BEGIN] = begin_prompt,
    [VERB_STEP] = step_prompt,
    [VERB_CANCEL] = cancel_prompt,
    [VERB_DECODE] = decode,
    [VERB_DECODE_ALL] = decode_all,
    [VERB_BATCH] = batch,
    [VERB_CUT] = cut,
    [VERB_GUESS] = guess,
    [VERB_GIVE] = give,
    [VERB_FILL] = fill,
    [VERB_PLAN] = plan_with,
    [VERB_PING] = ping_with,
};

static int make_call(cb_model *m, const struct order *o, const char *data)
{
    const struct told t = { m, session_of(m->in_step, o->session), data, (size_t)o->n };

    if (o->verb != VERB_OPEN && o->verb != VERB_LOAD && !t.s)
        return cb_fail(CB_EIO, "ranks: a session that is not here");
    return call_of[o->verb](&t);
}

/* Data that do not fit into the order come in a message of their own. */
static int make_long(cb_model *m, const struct order *o)
{
    char *data = cb_calloc((size_t)o->n, 1);
    int err = data ? cb_ranks_tell(m->in_step->team, 0, data, (size_t)o->n, 0) : CB_ENOMEM;

    if (!err)
        err = make_call(m, o, data);
    free(data);
    return err;
}

/* Sessions that rank 0 has left open */
static void close_all(struct in_step *x)
{
    for (int i = 0; i < x->n_id && (size_t)i < x->cap; i++)
        cb_session_close(x->at[i]);
}

int cb_in_step_follow(cb_model *m)
{
    struct order o;

    if (!m->in_step)
        return CB_OK;
    for (;;) {
        TRY(cb_ranks_tell(m->in_step->team, 0, &o, sizeof o, 1));
        if (o.verb == VERB_END) {
            close_all(m->in_step);
            return CB_OK;
        }
        TRY(o.n > ORDER_INLINE ? make_long(m, &o) : make_call(m, &o, o.data));
    }
}

int cb_in_step_finish(cb_model *m)
{
    struct order o = { .verb = VERB_END };

    return m && m->in_step ? cb_ranks_tell(m->in_step->team, 0, &o, sizeof o, 1) : CB_OK;
}
