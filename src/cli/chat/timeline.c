/* SPDX-License-Identifier: MIT */
/* timeline.c - what the session of a conversation holds. The tokens of a conversation are compared
 * with those in the session, and only what is missing goes through the model: after /undo, after a
 * prompt that was stopped, after documents that were read ahead. Generated text is not tokenized
 * again. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "chat.h"

static int common(const int32_t *a, const int32_t *b, int n)
{
    int i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i;
}

void cb_timeline_forget(struct chat *c)
{
    c->here = (struct place){ c->base, 0, -1 };
    c->ready = -1;
    c->looked_ahead = 0;
    cb_buf_clear(&c->fed);
    for (int i = 0; i < c->n; i++)
        c->before[i].at = -1;
}

/* ---- a prompt in progress ---- */

static void going_free(struct chat *c)
{
    free(c->going.ids);
    c->going = (struct going){ 0 };
}

void cb_timeline_cancel(struct chat *c)
{
    if (!c->going.n)
        return;
    cb_session_prefill_cancel(c->e.session);
    going_free(c);
    c->looked_ahead = 0;
}

int cb_timeline_percent(const struct chat *c)
{
    const struct going *g = &c->going;

    return g->n && g->total ? (int)(100 * g->done / g->total) : g->n ? 0 : -1;
}

static int on_progress(void *arg, int64_t done, int64_t total)
{
    struct going *g = arg;

    g->done = done;
    g->total = total;
    if (g->bar)
        cb_progress_step(g->bar, done, total);
    return 0;
}

static int go(struct chat *c, const int32_t *ids, int n)
{
    const struct cb_prefill how = { .progress = on_progress, .progress_arg = &c->going };
    int32_t *own = cb_calloc((size_t)n, sizeof *own);
    int rc;

    if (!own)
        return CB_ENOMEM;
    memcpy(own, ids, (size_t)n * sizeof *own);
    rc = cb_session_prefill_begin(c->e.session, ids, n, &how);
    if (rc)
        free(own);
    else
        c->going = (struct going){ .ids = own, .n = n };
    return rc;
}

/* Does --bank-dir hold prompts of this policy? */
static int remembers(const struct chat *c)
{
    return c->e.dir && !c->bank.n && !strcmp(c->policy.s, c->first_policy);
}

/* One step. 1 = more is left */
static int step(struct chat *c)
{
    const int left = cb_session_prefill_step(c->e.session);

    if (left > 0)
        return 1;
    going_free(c);
    c->ready = left ? -1 : cb_session_len(c->e.session);
    if (!left && remembers(c))
        cb_context_remember(&c->e);
    return left;
}

/* All steps that are left, with a bar */
static int finish(struct chat *c)
{
    struct progress bar;
    int left = 1;

    cb_progress_start(&bar, cb_progress_when(c->o), "prompt", "tokens");
    c->going.bar = &bar;
    while (left > 0 && !cb_interrupted())
        left = step(c);
    c->going.bar = NULL;
    cb_progress_end(&bar);
    return left > 0 ? TURN_STOPPED : left;
}

/* ---- the session against the conversation ---- */

/* The session of the saved bank, once more */
static int reopen(struct chat *c)
{
    const char *named = cb_opt_text(c->o, ARG_BANK); /* /load names others, with their policies */
    const int n_ctx = c->e.n_ctx, is_named = named && !strcmp(named, c->bank.s);

    cb_session_close(c->e.session);
    c->e.session = NULL;
    TRY(cb_session_load_as(c->e.model, c->bank.s, n_ctx, is_named ? cb_bank_policy(c->o) : NULL,
                           &c->e.session));
    return cb_engine_sampling(c->o, &c->e);
}

/* Back to an empty conversation: after the saved bank, if there is one. */
int cb_timeline_empty(struct chat *c)
{
    cb_timeline_cancel(c);
    if (!c->base)
        cb_session_clear(c->e.session);
    else if (cb_session_len(c->e.session) < c->base || cb_session_truncate(c->e.session, c->base))
        TRY(reopen(c));
    cb_timeline_forget(c);
    return CB_OK;
}

/* Does a bank that was opened hold the beginning of these tokens, or a text of its own? */
static void place_bank(struct chat *c, const int32_t *ids, int n)
{
    const int held = cb_session_len(c->e.session);
    const int same = common(ids, cb_session_tokens(c->e.session), held < n ? held : n);

    c->fresh_bank = 0;
    c->base = same >= held / 2 ? 0 : held;
    c->here.at = c->base;
}

/* The text of msg[n_msg], and its tokens after c->here */
static int tokens(struct chat *c, const struct cb_message *msg, int n_msg, char **all,
                  int32_t **ids, int *n)
{
    const struct cb_chat *how = &c->choice.how;
    size_t len;
    int skip;

    TRY(cb_chat_text(c->e.model, how, msg, n_msg, 1, all));
    len = strlen(*all);
    if (!len)
        return cb_fail(CB_EARG, "chat template: writes nothing for this conversation");
    if (len < c->here.fed || memcmp(*all, c->fed.s ? c->fed.s : "", c->here.fed))
        cb_timeline_forget(c); /* a template that changes what it has written */
    TRY(cb_chat_tokenize(c->e.model, how, msg, n_msg, 1, c->here.fed, ids, n));
    if (*n && c->fresh_bank)
        place_bank(c, *ids, *n);
    skip = *n && ((c->here.end >= 0 && (*ids)[0] == c->here.end) ||
                  (c->base && !c->here.fed && c->e.info.add_bos && (*ids)[0] == c->e.info.bos));
    if (skip)
        memmove(*ids, *ids + 1, (size_t)-- * n * sizeof **ids);
    return CB_OK;
}

/* Is the prompt in progress a part of these tokens? */
static int going_matches(const struct chat *c, const int32_t *ids, int n)
{
    const int have = cb_session_len(c->e.session) - c->here.at;

    return have >= 0 && have + c->going.n <= n &&
           common(ids, cb_session_tokens(c->e.session) + c->here.at, have) == have &&
           common(ids + have, c->going.ids, c->going.n) == c->going.n;
}

enum { REDO = 2 }; /* the session had to be emptied */

/* Cuts the session back to what it has of ids[n] -> *have tokens of them. */
static int cut_back(struct chat *c, const int32_t *ids, int n, int *have)
{
    const int there = cb_session_len(c->e.session) - c->here.at;
    int same;

    *have = there;
    if (there < 0)
        return REDO;
    if (!there)
        return CB_OK;
    same = common(ids, cb_session_tokens(c->e.session) + c->here.at, there < n ? there : n);
    if (same == there && (same < n || c->ready == c->here.at + n))
        return CB_OK;
    *have = same == n ? n - 1 : same; /* the last token gives the logits */
    c->ready = -1;
    return cb_session_truncate(c->e.session, c->here.at + *have) ? REDO : CB_OK;
}

static int has_all(const struct chat *c, const int32_t *ids, int n)
{
    return cb_session_len(c->e.session) - c->here.at >= n &&
           common(ids, cb_session_tokens(c->e.session) + c->here.at, n) == n;
}

/* Fills an empty session with what --bank-dir remembers of ids[n]. */
static int look_up(struct chat *c, const int32_t *ids, int n)
{
    int32_t *copy;
    int left = n, rc;

    if (!remembers(c) || cb_session_len(c->e.session) || c->going.n || c->here.at)
        return CB_OK;
    copy = cb_calloc((size_t)n + 1, sizeof *copy);
    if (!copy)
        return CB_ENOMEM;
    memcpy(copy, ids, (size_t)n * sizeof *copy);
    rc = cb_context_begin(c->o, &c->e, c->e.n_ctx, copy, &left);
    free(copy);
    c->ready = !left ? n : -1;
    return rc ? rc : cb_engine_sampling(c->o, &c->e);
}

/* Feeds those of ids[n] that the session lacks; *fed: their number. */
static int feed(struct chat *c, const int32_t *ids, int n, int *fed)
{
    int have, rc;

    if (c->going.n && !going_matches(c, ids, n))
        cb_timeline_cancel(c);
    if (c->going.n) {
        *fed += c->going.n;
        TRY(finish(c));
        if (c->going.n)
            return TURN_STOPPED;
    }
    rc = cut_back(c, ids, n, &have);
    if (rc)
        return rc;
    if (have == n)
        return CB_OK;
    TRY(cb_check_fit(&c->e, n - have));
    TRY(go(c, ids + have, n - have));
    *fed += n - have;
    return finish(c);
}

int cb_timeline_feed(struct chat *c, char **all, int32_t **ids, int *n, struct generation *gen)
{
    const double start = cb_now_s();
    int rc = CB_OK;

    *all = NULL;
    *ids = NULL;
    for (int tries = 0; tries < 2; tries++) {
        free(*all);
        free(*ids);
        *ids = NULL;
        gen->n_prompt = 0;
        TRY(tokens(c, c->msg, c->n, all, ids, n));
        if (!tries)
            TRY(look_up(c, *ids, *n));
        rc = feed(c, *ids, *n, &gen->n_prompt);
        if (rc != REDO)
            break;
        TRY(cb_timeline_empty(c));
    }
    gen->prompt_s = cb_now_s() - start;
    return rc;
}

/* ---- documents ---- */

/* The tokens that the next message will begin with, whatever is asked: those that two questions
 * have in common, but the last, which a third question might change. The caller frees *ids. */
static int head_tokens(struct chat *c, int32_t **ids, int *n)
{
    struct cb_message *msg = cb_calloc((size_t)c->n + 1, sizeof *msg);
    struct buf text = { 0 };
    int32_t *other = NULL;
    char *all = NULL;
    int n_other, rc;

    *ids = NULL;
    if (!msg)
        return CB_ENOMEM;
    if (c->n)
        memcpy(msg, c->msg, (size_t)c->n * sizeof *msg);
    rc = cb_buf_put(&text, c->docs.s, c->docs.n);
    if (!rc)
        rc = cb_buf_put(&text, "0", 1);
    msg[c->n] = (struct cb_message){ "user", text.s };
    if (!rc)
        rc = tokens(c, msg, c->n + 1, &all, ids, n);
    free(all);
    all = NULL;
    if (!rc) {
        text.s[text.n - 1] = 'A';
        rc = tokens(c, msg, c->n + 1, &all, &other, &n_other);
    }
    if (!rc) {
        *n = common(*ids, other, *n < n_other ? *n : n_other) - 1;
        *n = *n < 0 ? 0 : *n;
    }
    free(all);
    free(other);
    free(msg);
    cb_buf_free(&text);
    return rc;
}

int cb_timeline_documents_fit(struct chat *c)
{
    int32_t *ids;
    int n, rc = head_tokens(c, &ids, &n);
    const int there = cb_session_len(c->e.session) + c->going.n - c->here.at;

    if (!rc) {
        const int same =
            there > 0 && there < n ? there : 0; /* about: the rest is found out later */
        rc = cb_check_fit(&c->e, n - same);
    }
    free(ids);
    return rc;
}

/* Begins with the documents, if there is something to feed. */
static int look_ahead(struct chat *c)
{
    int32_t *ids;
    int n, have = 0, rc = head_tokens(c, &ids, &n);

    c->looked_ahead = 1;
    if (!rc)
        rc = look_up(c, ids, n);
    if (!rc)
        rc = has_all(c, ids, n) ? (have = n, CB_OK) : cut_back(c, ids, n, &have);
    if (rc == REDO) {
        free(ids);
        TRY(cb_timeline_empty(c));
        rc = head_tokens(c, &ids, &n);
        c->looked_ahead = 1;
        have = 0;
    }
    if (!rc && have < n)
        rc = cb_check_fit(&c->e, n - have);
    if (!rc && have < n)
        rc = go(c, ids + have, n - have);
    free(ids);
    return rc;
}

int cb_timeline_ahead(struct chat *c, int all)
{
    if (!c->going.n && (c->looked_ahead || !c->docs.n))
        return 0;
    if (!c->going.n)
        TRY(look_ahead(c));
    if (!c->going.n)
        return 0;
    if (all)
        return finish(c);
    return step(c) || !c->looked_ahead;
}
