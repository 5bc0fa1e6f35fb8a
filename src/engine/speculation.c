/* SPDX-License-Identifier: MIT */
/* speculation.c - decodes drafted tokens together with the next one. A token is accepted if the
 * caller chooses it, and taken back otherwise, so the text is that of a loop without drafts. */
#include <stdlib.h>

#include "assistant_drafter.h"
#include "attention/attend.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "drafter.h"
#include "model_drafter.h"
#include "mtp_drafter.h"
#include "session.h"

enum { MOST_PAUSE = 64 };

/* What proposes tokens, and whether it pays */
enum { LOOK_UP, MTP, MODEL, SOURCES };

struct source {
    double gain_s;   /* mean time that a draft saves */
    int pause, left; /* tokens without its drafts the next time, and now */
};

struct cb_speculation {
    cb_session *s;
    struct drafter *drafter;
    struct model_drafter model;
    struct source source[SOURCES];
    int from;   /* the source of the draft in the timeline */
    int most;   /* tokens a draft */
    int n, row; /* drafted tokens in the timeline; those of them that are accepted */
    int32_t draft[MOST_DRAFT];
    const float *logits; /* [n + 1][n_vocab] after the token before the draft, and after each */
    double alone_s;      /* mean time of a token without a draft; 0: not known */
    double took_s;       /* making and decoding the draft that is being judged */
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
    int max_draft;

    *out = NULL;
    if (most < 0 || most > MOST_DRAFT)
        return cb_fail(CB_EARG, "speculation: drafts of %d tokens: not 0 to %d", most, MOST_DRAFT);
    if (most && why)
        return cb_fail(CB_EUNSUPPORTED, "speculation: policy %s: %s", s->policy->m->name, why);
    TRY(cb_mtp_drafter_open(s));
    max_draft = max_int(most, cb_session_draft_mtp(s)) + 1;
    if (max_draft > 1 && !s->bank.n_feed) /* else a prompt in progress uses the work space */
        TRY(cb_session_work_fit_draft(s,
                                      min_int(max_draft, cb_attention_max_draft(&s->attention))));
    if (!(x = cb_calloc(1, sizeof *x)) || cb_drafter_new(&x->drafter)) {
        free(x);
        return CB_ENOMEM;
    }
    x->s = s;
    x->most = most;
    for (int i = 0; i < SOURCES; i++)
        x->source[i].pause = 1;
    *out = x;
    return CB_OK;
}

int cb_speculation_set_draft(cb_speculation *x, cb_session *draft)
{
    const int assists = draft && cb_assistant_has(draft);
    const char *why = draft && !assists ? cb_speculation_why_not(draft) : NULL;

    if (draft == x->s)
        return cb_fail(CB_EARG, "draft model: the session cannot guess for itself");
    if (why)
        return cb_fail(CB_EUNSUPPORTED, "draft model: %s", why);
    if (draft && draft->same_tokens != x->s->model) {
        TRY(cb_model_drafts_for(draft->model, x->s->model));
        draft->same_tokens = x->s->model;
    }
    if (assists) {
        TRY(cb_assistant_can(draft, x->s));
        TRY(cb_assistant_follow(x->s));
    }
    x->model = (struct model_drafter){ .s = draft, .n_vocab = x->s->model->hp.n_vocab };
    return CB_OK;
}

int cb_session_draft_mtp(const cb_session *s)
{
    return cb_session_has_head(s) ? s->model->draft_mtp : 0;
}

/* Takes back drafted tokens that are not accepted. */
static int take_back(struct cb_speculation *x)
{
    const int gone = x->n - x->row;

    x->n = x->row = 0;
    return gone ? cb_session_truncate(x->s, cb_session_len(x->s) - gone) : CB_OK;
}

/* Counts the accepted tokens of the draft in the timeline, which is over. */
static void count(struct cb_speculation *x)
{
    x->counts.accepted += x->row;
    x->counts.model_accepted += x->from == MODEL ? x->row : 0;
    x->counts.mtp_accepted += x->from == MTP ? x->row : 0;
}

int cb_speculation_end(cb_speculation *x)
{
    count(x);
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

/* Was its draft worth its time? After a loss, pauses get longer; the text never depends on it. */
static void judge(struct source *from, double gain_s)
{
    from->gain_s = mean(from->gain_s, gain_s);
    if (from->gain_s >= 0) {
        from->pause = 1;
        return;
    }
    from->left = from->pause;
    from->pause = min_int(2 * from->pause, MOST_PAUSE);
}

/* 1: it pauses */
static int pauses(struct source *from)
{
    if (from->left <= 0)
        return 0;
    from->left--;
    return 1;
}

/* The assistant's draft for what follows the noted token; a failure ends drafts, not the text. */
static int guess_by_assistant(struct cb_speculation *x, int most)
{
    const int got = cb_assistant_guess(x->model.s, x->s, x->draft, most);

    if (got >= 0)
        return got;
    cb_model_log(x->s->model, CB_LOG_NOTE, "no more drafts of the draft model: %s", cb_error());
    x->model.s = NULL;
    return 0;
}

/* The model's draft for what follows tokens[n]; no guess after its time is a loss. */
static int guess_by_model(struct cb_speculation *x, const int32_t *tokens, int n, int most)
{
    const double start = cb_now_s();
    int reads = 0, got;

    if (!x->model.s || pauses(&x->source[MODEL]))
        return 0;
    if (cb_assistant_has(x->model.s))
        got = guess_by_assistant(x, most);
    else
        got = cb_model_drafter_guess(&x->model, tokens, n, x->draft, most, x->alone_s, &reads);
    if (!got && !reads)
        judge(&x->source[MODEL], start - cb_now_s());
    return got;
}

/* The draft of the model's own head for what follows the noted token */
static int guess_by_head(struct cb_speculation *x, int most)
{
    const double start = cb_now_s();
    int n;

    if (most < 1 || !cb_mtp_drafter_of(x->s) || pauses(&x->source[MTP]))
        return 0;
    n = cb_session_mtp_guess(x->s, most);
    for (int i = 0; i < n; i++)
        x->draft[i] = cb_mtp_drafter_of(x->s)->draft[i];
    if (!n)
        judge(&x->source[MTP], start - cb_now_s());
    return n;
}

/* Tokens of a draft after the one at len. None fills the first block that is prepacked: attention
 * may read the rows before it as they are, and a cut would leave them rounded. Where layers
 * remember without keys, none crosses a place of checkpoints: these are made of tokens that stay.
 */
static int before_grid(const cb_session *s, int len)
{
    const int first = len + 1 < KV_PREPACK ? KV_PREPACK - 2 - len : INT32_MAX;
    const int room = min_int(first, cb_attention_draft_room(&s->attention, len) - 1);

    return cb_attention_has(&s->attention, READ_STATE)
               ? min_int(room, STATE_GRID - 2 - len % STATE_GRID)
               : room;
}

/* Draft for what follows token id -> x->draft; returns its length */
static int guess(struct cb_speculation *x, int32_t id)
{
    cb_session *s = x->s;
    const int len = cb_session_len(s), room = cb_session_n_ctx(s) - len - 1;
    const int all = min_int(min_int(room, s->chunk - 1), before_grid(s, len));
    const int most = min_int(x->most, all);
    int n = 0;

    if (all < 1 || x->alone_s == 0 || cb_session_note_tokens(s, &id, 1))
        return 0;
    x->from = LOOK_UP;
    if (most > 0 && !pauses(&x->source[LOOK_UP]))
        n = cb_drafter_guess(x->drafter, s->token, len + 1, x->draft, most);
    if (n)
        return n;
    x->from = MTP;
    n = guess_by_head(x, min_int(all, cb_session_draft_mtp(s)));
    if (n || most < 1)
        return n;
    x->from = MODEL;
    return guess_by_model(x, s->token, len + 1, most);
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
    int32_t token[MOST_DRAFT + 1] = { id };

    for (int i = 0; i < n; i++)
        token[i + 1] = x->draft[i];
    x->logits = NULL;
    TRY(cb_session_decode_all(x->s, token, n + 1, &x->logits));
    x->n = n;
    x->counts.drafted += n;
    if (x->from == MODEL)
        x->counts.model_drafted += n;
    if (x->from == MTP)
        x->counts.mtp_drafted += n;
    return CB_OK;
}

int cb_speculation_decode(cb_speculation *x, int32_t id)
{
    double start;
    int n;

    if (x->row < x->n && x->draft[x->row] == id) {
        x->row++;
        return CB_OK;
    }
    if (x->n) {
        count(x);
        judge(&x->source[x->from], (x->row + 1) * x->alone_s - x->took_s);
    }
    TRY(take_back(x));
    start = cb_now_s();
    n = guess(x, id);
    TRY(n);
    if (!n)
        return decode_alone(x, id);
    TRY(decode_draft(x, id, n));
    x->took_s = cb_now_s() - start;
    return CB_OK;
}
