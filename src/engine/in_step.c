/* SPDX-License-Identifier: MIT */
/* in_step.c - opens a model on several ranks, and tells the others the calls on its sessions. */
#include "in_step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention/attend.h"
#include "base/array.h"
#include "base/buf.h"
#include "base/err.h"
#include "device/split_rows.h"
#include "gguf/samples.h"
#include "orders.h"

enum { SETTINGS = 2048 };

/* ---- are all ranks alike? ---- */

static enum split split_of(const struct cb_model *m, int both)
{
    if (cb_split_rows_is(m->dev))
        return both ? SPLIT_BOTH : SPLIT_TENSOR;
    return m->share.n_all ? SPLIT_LAYERS : SPLIT_CONTEXT;
}

/* What must be the same everywhere -> lines NAME=VALUE. Adapters count by their weights. Sessions
 * are opened with the settings of rank 0. */
static int settings(struct cb_model *m, enum split how, char *text)
{
    static const char *const name[] = { "context", "tensor", "layers", "tensor+context" };
    uint64_t weights = cb_gguf_samples(m->gguf);

    if (m->max_rank)
        TRY(cb_model_fingerprint(m, &weights));
    memset(text, 0, SETTINGS);
    snprintf(text, SETTINGS,
             "version=%s\nsplit=%s\nmodel=%016" PRIx64 "\nweights=%016" PRIx64
             "\ninstruction set=%s\nprompt products=%s\n",
             cb_version(), name[how], m->fingerprint, weights, m->dev->isa, m->matmul);
    return CB_OK;
}

/* The first line in which two texts differ: its name and its values there */
static int differ(const struct ranks *team, int rank, const char *a, const char *b)
{
    int name, na, nb;

    while (*a == *b) {
        const size_t n = strcspn(a, "\n") + 1;
        if (strncmp(a, b, n))
            break;
        a += n;
        b += n;
    }
    name = (int)strcspn(a, "=");
    na = (int)strcspn(a, "\n") - name - 1;
    nb = (int)strcspn(b + name, "\n") - 1;
    return cb_fail(CB_EARG, "rank %d (%s) differs from rank 0: %.*s %.*s, not %.*s", rank,
                   cb_ranks_host(team, rank), name, a, nb, b + name + 1, na, a + name + 1);
}

static int check_alike(cb_model *m, struct ranks *team, enum split how)
{
    const int n = cb_ranks_n(team);
    char *all = cb_calloc((size_t)n + 1, SETTINGS), *mine = all + (size_t)n * SETTINGS;
    int err;

    if (!all)
        return CB_ENOMEM;
    err = settings(m, how, mine);
    if (!err)
        err = cb_ranks_share(team, mine, SETTINGS, all);
    for (int r = 1; !err && r < n; r++)
        if (strcmp(all, all + (size_t)r * SETTINGS))
            err = differ(team, r, all, all + (size_t)r * SETTINGS);
    free(all);
    return err;
}

/* ---- the model ---- */

int cb_in_step_open(cb_model *m, struct ranks *team, int both)
{
    pthread_mutexattr_t nests;
    struct in_step *x;
    enum split how;

    if (cb_ranks_n(team) == 1)
        return CB_OK;
    how = split_of(m, both);
    TRY(check_alike(m, team, how));
    if (!(x = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    x->team = team;
    x->how = how;
    pthread_mutexattr_init(&nests);
    pthread_mutexattr_settype(&nests, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&x->lock, &nests);
    pthread_mutexattr_destroy(&nests);
    m->in_step = x;
    return CB_OK;
}

void cb_in_step_close(cb_model *m)
{
    struct in_step *x = m ? m->in_step : NULL;

    if (!x)
        return;
    m->in_step = NULL;
    pthread_mutex_destroy(&x->lock);
    free(x->at);
    free(x);
}

/* ---- a call ---- */

static int tell(struct in_step *x, enum verb verb, int session, const void *data, size_t n)
{
    struct order o = { .verb = verb, .session = session, .n = n };

    if (x->broken)
        return cb_fail(CB_EIO, "ranks: an earlier call failed on rank 0 alone");
    if (n <= ORDER_INLINE && n)
        memcpy(o.data, data, n);
    TRY(cb_ranks_tell(x->team, 0, &o, sizeof o, 1));
    /* rank 0 only reads it */
    return n > ORDER_INLINE ? cb_ranks_tell(x->team, 0, (void *)(uintptr_t)data, n, 0) : CB_OK;
}

static void leave(struct in_step *x)
{
    x->depth--;
    pthread_mutex_unlock(&x->lock);
}

static int begin(struct in_step *x, enum verb verb, int session, const void *data, size_t n)
{
    int err;

    if (!x)
        return CB_OK;
    pthread_mutex_lock(&x->lock);
    if (x->depth++ || cb_ranks_me(x->team))
        return CB_OK;
    err = tell(x, verb, session, data, n);
    if (err)
        leave(x);
    return err;
}

int cb_in_step_begin(const struct cb_session *s, enum verb verb, const void *data, size_t n)
{
    return begin(s->in_step, verb, s->step_id, data, n);
}

int cb_in_step_end(struct in_step *x, int err)
{
    if (!x)
        return err;
    x->broken |= err < 0 && x->depth == 1;
    leave(x);
    return err;
}

/* ---- a call that makes a session ---- */

static int told_open(struct in_step *x, const struct cb_session_params *p)
{
    const char *const text[] = { p->type_k, p->type_v, p->policy, p->prefill };
    struct order_open o = { p->n_ctx, p->chunk, p->act_bits, p->guest, p->checkpoint_bytes, { 0 } };
    struct buf b = { 0 };
    int err;

    for (int i = 0; i < 4; i++)
        o.has[i] = text[i] != NULL;
    cb_buf_add(&b, (const char *)&o, sizeof o);
    for (int i = 0; i < 4; i++)
        cb_buf_add(&b, text[i] ? text[i] : "", text[i] ? strlen(text[i]) + 1 : 1);
    err = b.failed ? CB_ENOMEM : begin(x, VERB_OPEN, -1, b.s, b.n);
    cb_buf_free(&b);
    return err;
}

int cb_in_step_begin_open(cb_model *m, const struct cb_session_params *p, const struct method *own)
{
    if (!m->in_step)
        return CB_OK;
    if (own)
        return cb_fail(CB_EUNSUPPORTED,
                       "policy %s is not one of the library's: not yet on several "
                       "ranks",
                       own->name);
    return told_open(m->in_step, p);
}

/* What a rank says of a session that it has made */
struct made {
    int32_t status, id;
    uint64_t plan;
};

/* CB_OK where all ranks have made it, and plan the same; else a failure, with rank 0's message
 * where that failed too */
static int agree(struct in_step *x, const struct cb_session *s, int err)
{
    const int n = cb_ranks_n(x->team);
    struct made mine = { err, x->n_id,
                         err || x->how == SPLIT_LAYERS ? 0 : cb_policy_plan_hash(s->policy) };
    struct made *all = cb_calloc((size_t)n, sizeof *all);
    int failed = all ? cb_ranks_share(x->team, &mine, sizeof mine, all) : CB_ENOMEM;

    for (int r = 0; !failed && !err && r < n; r++) {
        if (all[r].status)
            failed = cb_fail(all[r].status, "rank %d (%s) cannot open the session", r,
                             cb_ranks_host(x->team, r));
        else if (all[r].id != mine.id || all[r].plan != all[0].plan)
            failed = cb_fail(CB_EARG, "rank %d (%s) differs from rank 0: policy's plan", r,
                             cb_ranks_host(x->team, r));
    }
    free(all);
    return err ? err : failed;
}

static int split_context(struct in_step *x, struct cb_session *s)
{
    char *deals = cb_calloc((size_t)s->model->hp.n_layer, 1);
    const int works = x->how == SPLIT_CONTEXT; /* else products need all ranks' rows */
    int err = deals ? CB_OK : CB_ENOMEM;

    if (!err && works)
        err = cb_split_check(&s->attention, deals);
    else if (!err && x->how == SPLIT_BOTH)
        cb_split_deals(&s->attention, deals);
    if (!err)
        err = cb_context_split_open(&s->attention, x->team, deals, works);
    free(deals);
    return err;
}

static int join(struct in_step *x, struct cb_session *s)
{
    if (x->how != SPLIT_LAYERS)
        TRY(split_context(x, s));
    TRY(cb_grow(&x->at, &x->cap, (size_t)x->n_id + 1, sizeof(struct cb_session *)));
    s->step_id = x->n_id;
    s->in_step = x;
    return CB_OK;
}

int cb_in_step_end_open(cb_model *m, struct cb_session *s, int err)
{
    struct in_step *x = m->in_step;

    if (!x)
        return err;
    if (!err && !s->in_step)
        err = join(x, s);
    if (x->depth == 1) {
        err = agree(x, s, err);
        if ((size_t)x->n_id < x->cap)
            x->at[x->n_id] = err ? NULL : s;
        x->n_id++;
    }
    if (err && s)
        s->in_step = NULL; /* it will be closed on every rank, without being told */
    leave(x);
    return err;
}

void cb_in_step_forget(struct cb_session *s)
{
    if (s->in_step)
        s->in_step->at[s->step_id] = NULL;
}

int cb_in_step_alone(const struct cb_session *s, const char *what)
{
    return s->in_step ? cb_fail(CB_EUNSUPPORTED, "%s: not yet on several ranks", what) : CB_OK;
}

int cb_in_step_reads_logits(const struct cb_session *s)
{
    return !s->in_step || cb_split_rows_is(s->dev) || !cb_ranks_me(s->in_step->team);
}

int cb_in_step_has_bank(const struct cb_session *s)
{
    return !s->in_step || s->in_step->how != SPLIT_LAYERS;
}

int cb_in_step_leads(const struct cb_session *s)
{
    return !s->in_step || !cb_ranks_me(s->in_step->team) || s->in_step->depth > 0;
}

int cb_in_step_begin_prompt(const struct cb_session *s, const int32_t *tokens, int n)
{
    const struct cb_prefill *how = &s->how;
    struct order_prompt o = { s->partial_prompt ? GIVES_NOTHING
                              : how->logits     ? GIVES_LOGITS
                              : how->states     ? GIVES_STATES
                                                : GIVES_LAST,
                              how->logits_from };
    struct buf b = { 0 };
    int err;

    if (!s->in_step)
        return CB_OK;
    cb_buf_add(&b, (const char *)&o, sizeof o);
    cb_buf_add(&b, (const char *)tokens, (size_t)n * sizeof *tokens);
    err = b.failed ? CB_ENOMEM : cb_in_step_begin(s, VERB_BEGIN, b.s, b.n);
    cb_buf_free(&b);
    return err;
}

int cb_in_step_begin_load(cb_model *m, const char *path, int n_ctx, const char *policy)
{
    const int32_t number = n_ctx;
    struct buf b = { 0 };
    int err;

    if (!m->in_step)
        return CB_OK;
    if (m->in_step->how == SPLIT_LAYERS)
        return cb_fail(CB_EUNSUPPORTED,
                       "%s: a saved bank has all layers: not yet with ranks that "
                       "have some",
                       path);
    cb_buf_add(&b, (const char *)&number, sizeof number);
    cb_buf_add(&b, path, strlen(path) + 1);
    if (policy)
        cb_buf_add(&b, policy, strlen(policy) + 1);
    err = b.failed ? CB_ENOMEM : begin(m->in_step, VERB_LOAD, -1, b.s, b.n);
    cb_buf_free(&b);
    return err;
}
