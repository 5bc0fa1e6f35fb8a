/* SPDX-License-Identifier: MIT */
/* speculation.c - decodes drafted tokens together with the next one. A token is accepted if the
 * caller chooses it, and taken back otherwise, so the text is that of a loop without drafts. */
#include <stdlib.h>

#include "attention/attend.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "drafter.h"
#include "session.h"

enum { MOST = 16, MOST_PAUSE = 64 };

struct cb_speculation {
    cb_session *s;
    struct drafter *drafter;
    int most;   /* tokens a draft */
    int n, row; /* drafted tokens in the timeline; those of them that are accepted */
    int32_t draft[MOST];
    const float *logits; /* [n + 1][n_vocab] after the token before the draft, and after each */
    double alone_s;      /* mean time of a token without a draft; 0: not known */
    double gain_s;       /* mean time that a draft saves */
    int pause, left;     /* tokens without drafts the next time, and now */
    double begun_s;      /* of the decode whose draft is being judged */
    double took_s;
    struct cb_speculation_counts counts;
};

const char *cb_speculation_why_not(const cb_session *s)
{
    return cb_attention_undraftable(&s->attention);
}

int cb_speculation_new(cb_session *s, int most, cb_speculation **out)
{
    struct cb_speculation *x;
    const char *why = cb_speculation_why_not(s);

    *out = NULL;
    if (most < 0 || most > MOST)
        return cb_fail(CB_EARG, "speculation: drafts of %d tokens: not 0 to %d", most, MOST);
    if (most && why)
        return cb_fail(CB_EUNSUPPORTED, "speculation: policy %s: %s", s->policy->m->name, why);
    if (!(x = cb_calloc(1, sizeof *x)) || cb_drafter_new(&x->drafter)) {
        free(x);
        return CB_ENOMEM;
    }
    x->s = s;
    x->most = most;
    x->pause = 1;
    *out = x;
    return CB_OK;
}

/* Takes back drafted tokens that are not accepted. */
static int take_back(struct cb_speculation *x)
{
    const int gone = x->n - x->row;

    x->n = x->row = 0;
    return gone ? cb_session_truncate(x->s, cb_session_len(x->s) - gone) : CB_OK;
}

int cb_speculation_end(cb_speculation *x)
{
    x->logits = NULL;
    return take_back(x);
}

void cb_speculation_free(cb_speculation *x)
{
    if (!x)
        return;
    cb_drafter_free(x->drafter);
    free(x);
}

int cb_speculation_len(const cb_speculation *x)
{
    return cb_session_len(x->s) - (x->n - x->row);
}

const float *cb_speculation_logits(const cb_speculation *x)
{
    return x->logits ? x->logits + (size_t)x->row * (size_t)x->s->model->hp.n_vocab
                     : cb_session_logits(x->s);
}

void cb_speculation_get_counts(const cb_speculation *x, struct cb_speculation_counts *out)
{
    *out = x->counts;
}

/* A mean that follows the last eight or so */
static double mean(double m, double x)
{
    return m == 0 ? x : m + (x - m) / 8;
}

/* Was the draft worth its time? After a loss, pauses get longer; the text never depends on it. */
static void judge(struct cb_speculation *x)
{
    x->counts.accepted += x->row;
    if (x->alone_s == 0)
        return;
    x->gain_s = mean(x->gain_s, (x->row + 1) * x->alone_s - x->took_s);
    if (x->gain_s >= 0) {
        x->pause = 1;
        return;
    }
    x->left = x->pause;
    x->pause = min_int(2 * x->pause, MOST_PAUSE);
}

/* Draft for what follows token id -> x->draft; returns its length */
static int guess(struct cb_speculation *x, int32_t id)
{
    cb_session *s = x->s;
    const int len = cb_session_len(s), room = cb_session_n_ctx(s) - len - 1;
    const int most = min_int(x->most, min_int(room, s->chunk - 1));

    if (most < 1 || x->alone_s == 0)
        return 0;
    if (x->left > 0) {
        x->left--;
        return 0;
    }
    if (cb_session_note_tokens(s, &id, 1))
        return 0;
    return cb_drafter_guess(x->drafter, s->token, len + 1, x->draft, most);
}

static int decode_alone(struct cb_speculation *x, int32_t id)
{
    const double start = cb_now_s();

    x->logits = NULL;
    TRY(cb_session_decode(x->s, id));
    x->alone_s = mean(x->alone_s, cb_now_s() - start);
    return CB_OK;
}

static int decode_draft(struct cb_speculation *x, int32_t id, int n)
{
    int32_t token[MOST + 1] = { id };
    const double start = cb_now_s();

    for (int i = 0; i < n; i++)
        token[i + 1] = x->draft[i];
    x->logits = NULL;
    TRY(cb_session_decode_all(x->s, token, n + 1, &x->logits));
    x->took_s = cb_now_s() - start;
    x->n = n;
    x->counts.drafted += n;
    return CB_OK;
}

int cb_speculation_decode(cb_speculation *x, int32_t id)
{
    int n;

    if (x->row < x->n && x->draft[x->row] == id) {
        x->row++;
        return CB_OK;
    }
    if (x->n)
        judge(x);
    TRY(take_back(x));
    n = guess(x, id);
    return n ? decode_draft(x, id, n) : decode_alone(x, id);
}
