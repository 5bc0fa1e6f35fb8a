/* SPDX-License-Identifier: MIT */
/* trial.c - compares policies with the full cache. One prefill serves as many of them as memory
 * allows. */
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/session.h"
#include "eval/ask.h"

#define SHARE_BYTES ((uint64_t)3 << 30) /* most bytes of sessions that share a prefill */

static int32_t likeliest(const float *x, int n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static double log_sum_exp(const float *x, int n)
{
    double max = (double)x[0], sum = 0;

    for (int i = 1; i < n; i++)
        max = fmax(max, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - max);
    return max + log(sum);
}

/* KL(p || q) of the softmax of two rows of logits */
static double divergence(const float *p, const float *q, int n)
{
    const double zp = log_sum_exp(p, n), zq = log_sum_exp(q, n);
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += exp((double)p[i] - zp) * ((double)p[i] - zp - ((double)q[i] - zq));
    return fmax(0, sum);
}

/* A prompt, and the tokens that are fed after it. */
struct script {
    const int32_t *prompt;
    int n_prompt;
    int32_t next[TRIAL_STEPS]; /* [n] */
    int n;                     /* rows of logits: before next[0], before next[1], ... */
    int right;                 /* 1: the answer is right */
    uint64_t read, kept;       /* bytes that the full cache's last step read, and that it holds */
};

static int n_vocab(const struct trial *t)
{
    struct cb_model_info info;

    cb_model_get_info(t->model, &info);
    return info.n_vocab;
}

static int open_full(const struct trial *t, cb_session **out)
{
    const struct cb_session_params p = { .n_ctx = t->n_ctx, .policy = "full" };
    return cb_session_open(t->model, &p, out);
}

static int open_one(const struct trial *t, int i, cb_session **out)
{
    const struct cb_session_params p = { .n_ctx = t->n_ctx,
                                         .policy = t->policy[i],
                                         .type_k = t->type_k ? t->type_k[i] : NULL,
                                         .type_v = t->type_v ? t->type_v[i] : NULL };
    return cb_session_open(t->model, &p, out);
}

/* Compares the policy's predictions with the full cache's, token by token after the prompt. */
static int compare(struct trial *t, int i, cb_session *s, const struct script *x)
{
    const int nv = n_vocab(t);
    struct cb_memory m;
    int same = 0;

    for (int k = 0; k < x->n; k++) {
        const float *full = t->logits + (size_t)k * (size_t)nv;
        t->of[i].kl += divergence(full, cb_session_logits(s), nv);
        same += likeliest(full, nv) == likeliest(cb_session_logits(s), nv);
        if (k + 1 < x->n)
            TRY(cb_session_decode(s, x->next[k]));
    }
    cb_session_memory(s, &m);
    t->of[i].same += same;
    t->of[i].held += x->right && same == x->n;
    t->of[i].read += x->read ? (double)m.kv_read_bytes_per_token / (double)x->read : 1;
    t->of[i].kept += x->kept ? (double)m.kv_bytes / (double)x->kept : 1;
    return CB_OK;
}

/* ---- the full cache's part ---- */

static int note_logits(struct trial *t, cb_session *s, struct script *x)
{
    const size_t nv = (size_t)n_vocab(t);

    if (!t->logits && !(t->logits = cb_alloc_aligned(TRIAL_STEPS * nv, sizeof *t->logits)))
        return CB_ENOMEM;
    memcpy(t->logits + (size_t)x->n * nv, cb_session_logits(s), nv * sizeof *t->logits);
    x->n++;
    return CB_OK;
}

static void note_read(cb_session *s, struct script *x)
{
    struct cb_memory m;

    cb_session_memory(s, &m);
    x->read = m.kv_read_bytes_per_token;
    x->kept = m.kv_bytes;
}

static int lead_text(struct trial *t, cb_session *s, struct script *x, int n_step)
{
    for (int k = 0; k < n_step; k++) {
        TRY(note_logits(t, s, x));
        if (k + 1 < n_step)
            TRY(cb_session_decode(s, x->next[k]));
    }
    note_read(s, x);
    return CB_OK;
}

/* Greedy, until the answer is right or ends. */
static int lead_item(struct trial *t, cb_session *s, struct script *x, const struct item *it)
{
    char text[TRIAL_STEPS * 16] = "";
    size_t n_text = 0;
    const int most = it->max_new < TRIAL_STEPS ? it->max_new : TRIAL_STEPS;

    while (x->n < most && !x->right) {
        const int32_t id = likeliest(cb_session_logits(s), n_vocab(t));
        int n;
        TRY(note_logits(t, s, x));
        x->next[x->n - 1] = id;
        if (cb_token_is_end(t->model, id))
            break;
        n = cb_token_bytes(t->model, id, 0, text + n_text, (int)(sizeof text - 1 - n_text));
        n_text += (size_t)n < sizeof text - 1 - n_text ? (size_t)n : 0;
        text[n_text] = '\0';
        x->right = cb_ask_score(it, text) >= 1;
        if (x->n < most && !x->right)
            TRY(cb_session_decode(s, id));
    }
    note_read(s, x);
    return CB_OK;
}

/* ---- rounds ---- */

static uint64_t kv_bytes(const cb_session *s, const struct script *x)
{
    struct cb_memory m;
    return cb_session_plan(s, x->n_prompt, 0, &m) ? 0 : m.kv_bytes;
}

/* Opens sessions for the policies from `from` on, as many as memory allows: own[0..*n-1]. */
static int open_round(struct trial *t, int from, const struct script *x, cb_session **own, int *n)
{
    uint64_t held = 0;

    for (*n = 0; from + *n < t->n; ++*n) {
        TRY(open_one(t, from + *n, &own[*n]));
        held += kv_bytes(own[*n], x);
        if (*n && held > SHARE_BYTES) {
            cb_session_close(own[*n]);
            break;
        }
    }
    return CB_OK;
}

/* The prompt, once for all sessions that can share the full cache's prefill */
static int prefill(struct trial *t, const struct script *x, cb_session *lead,
                   cb_session *const *own, int n)
{
    cb_session **follower = cb_calloc((size_t)n + 1, sizeof *follower);
    int n_follower = 0, err = follower ? CB_OK : CB_ENOMEM;

    for (int i = 0; i < n && !err; i++)
        if (cb_session_can_follow(own[i], lead))
            follower[n_follower++] = own[i];
        else
            err = cb_session_prefill(own[i], x->prompt, x->n_prompt, t->how);
    if (!err)
        err = cb_session_prefill_shared(lead, follower, NULL, n_follower, x->prompt, x->n_prompt,
                                        t->how);
    free(follower);
    return err;
}

/* The full cache answers, or is fed the text again; then the policies of the round are compared. */
static int play(struct trial *t, int from, struct script *x, const struct item *it, int n_step,
                cb_session *lead, cb_session *const *own, int n)
{
    TRY(prefill(t, x, lead, own, n));
    x->n = x->right = 0;
    TRY(it ? lead_item(t, lead, x, it) : lead_text(t, lead, x, n_step));
    for (int i = 0; i < n; i++)
        TRY(compare(t, from + i, own[i], x));
    return CB_OK;
}

static int round_of(struct trial *t, int from, struct script *x, const struct item *it, int n_step,
                    int *n)
{
    cb_session **own = cb_calloc((size_t)t->n + 1, sizeof *own), *lead = NULL;
    int err = own ? open_full(t, &lead) : CB_ENOMEM;

    *n = 0;
    if (!err)
        err = open_round(t, from, x, own, n);
    if (!err)
        err = play(t, from, x, it, n_step, lead, own, *n);
    for (int i = 0; own && i < *n; i++)
        cb_session_close(own[i]);
    cb_session_close(lead);
    free(own);
    return err;
}

static int rounds(struct trial *t, struct script *x, const struct item *it, int n_step)
{
    int n;

    for (int from = 0; from < t->n; from += n)
        TRY(round_of(t, from, x, it, n_step, &n));
    t->n_token += x->n;
    t->n_feed++;
    t->n_item += it != NULL;
    t->n_right += x->right;
    return CB_OK;
}

int cb_trial_text(struct trial *t, const int32_t *ids, int n, int n_step)
{
    struct script x = { .prompt = ids, .n_prompt = n - n_step };

    if (n_step > TRIAL_STEPS || n_step < 1 || n_step >= n)
        return cb_fail(CB_EARG, "%d of %d tokens: cannot be compared", n_step, n);
    memcpy(x.next, ids + n - n_step, (size_t)n_step * sizeof *ids);
    return rounds(t, &x, NULL, n_step);
}

int cb_trial_item(struct trial *t, const struct item *it)
{
    struct script x = { 0 };
    struct prompt p;
    int err;

    TRY(cb_ask_prompt(t->model, NULL, it, t->n_ctx - TRIAL_STEPS, 1, &p));
    x.prompt = p.ids;
    x.n_prompt = p.n;
    err = rounds(t, &x, it, 0);
    free(p.ids);
    return err;
}

void cb_trial_free(struct trial *t)
{
    free(t->logits);
    t->logits = NULL;
}
