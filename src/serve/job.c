/* SPDX-License-Identifier: MIT */
/* job.c - one answer: what was ordered, the tokens and the text as they come, the end. */
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/stop_text.h"

/* ---- orders ---- */

static void *copy(const void *from, int n, size_t size)
{
    void *to = cb_calloc((size_t)n + 1, size); /* one more: a list of none is no failure */

    if (to && n)
        memcpy(to, from, (size_t)n * size);
    return to;
}

/* 1: the text is there, or was not asked for */
static int copy_text(const char **text)
{
    if (*text)
        *text = strdup(*text);
    return *text != NULL;
}

static int own_order(struct job_order *o)
{
    const char **stop = cb_calloc((size_t)o->n_stop + 1, sizeof *stop);
    const char *const *from = o->stop;
    int ok = stop != NULL;

    o->ids = copy(o->ids, o->n, sizeof *o->ids);
    o->bias = copy(o->bias, o->n_bias, sizeof *o->bias);
    o->stop = stop;
    for (int i = 0; ok && i < o->n_stop; i++) {
        stop[i] = from[i];
        ok = copy_text(&stop[i]);
    }
    if (o->policy)
        ok = copy_text(&o->policy) && ok;
    if (o->prefill)
        ok = copy_text(&o->prefill) && ok;
    return ok && o->ids && o->bias ? CB_OK : cb_fail(CB_ENOMEM, "out of memory");
}

/* free() of what own_order() made */
static void drop(const void *p)
{
    union {
        const void *in;
        void *out;
    } at = { p };
    free(at.out);
}

static void free_order(struct job_order *o)
{
    for (int i = 0; o->stop && i < o->n_stop; i++)
        drop(o->stop[i]);
    drop(o->stop);
    drop(o->ids);
    drop(o->bias);
    drop(o->policy);
    drop(o->prefill);
}

/* ---- groups ---- */

static int open_job(struct job *j, cb_model *model)
{
    const struct job_order *o = &j->group->order;
    struct cb_sampler_params p = o->sampler;
    const int n_vocab = cb_n_vocab(model);

    p.seed += (uint64_t)j->index;
    j->end.stop = -1;
    j->patient = 1;
    TRY(cb_sampler_new(&p, n_vocab, &j->sampler));
    TRY(cb_detokenizer_new(model, 0, &j->detok));
    for (int i = 0; i < o->n; i++)
        cb_sampler_accept(j->sampler, o->ids[i]);
    if (o->grammar) /* after the prompt, which need not follow it */
        TRY(cb_sampler_set_grammar(j->sampler, model, o->grammar));
    if (!o->n_bias && !o->ignore_end)
        return CB_OK;
    j->biased = cb_calloc((size_t)n_vocab, sizeof *j->biased);
    return j->biased ? CB_OK : CB_ENOMEM;
}

static int open_group(struct job_group *g, cb_model *model)
{
    for (int i = 0; i < g->n; i++)
        g->job[i] = (struct job){ .group = g, .index = i };
    cb_clock_cond(&g->changed);
    TRY(own_order(&g->order));
    for (int i = 0; i < g->order.n_bias; i++)
        if (g->order.bias[i].id < 0 || g->order.bias[i].id >= cb_n_vocab(model))
            return cb_fail(CB_EARG, "logit_bias: there is no token %d", g->order.bias[i].id);
    for (int i = 0; i < g->n; i++)
        TRY(open_job(&g->job[i], model));
    return CB_OK;
}

int cb_group_new(cb_model *model, const struct job_order *order, int n, struct job_group **out)
{
    struct job_group *g = cb_calloc(1, sizeof *g + (size_t)n * sizeof *g->job);
    int rc;

    *out = NULL;
    if (!g) {
        cb_grammar_free(order->grammar);
        return CB_ENOMEM;
    }
    g->order = *order;
    g->n = n;
    rc = open_group(g, model);
    if (rc)
        cb_group_free(g);
    else
        *out = g;
    return rc;
}

static void free_news(struct job_news *w)
{
    cb_buf_free(&w->text);
    free(w->token);
}

void cb_group_free(struct job_group *g)
{
    for (int i = 0; i < g->n; i++) {
        struct job *j = &g->job[i];
        free_news(&j->fresh);
        free_news(&j->seen);
        free_news(&j->made);
        cb_buf_free(&j->held);
        cb_sampler_free(j->sampler);
        cb_detokenizer_free(j->detok);
        free(j->biased);
        free(j->out);
    }
    pthread_cond_destroy(&g->changed);
    cb_grammar_free(g->order.grammar); /* after the samplers */
    free_order(&g->order);
    free(g);
}

/* ---- tokens ---- */

static int32_t pick(struct job *j, const cb_model *model, const float *logits)
{
    const struct job_order *o = &j->group->order;
    const int32_t *end;
    int n;

    if (!j->biased)
        return cb_sampler_pick(j->sampler, logits);
    memcpy(j->biased, logits, (size_t)cb_n_vocab(model) * sizeof *logits);
    for (int i = 0; i < o->n_bias; i++)
        j->biased[o->bias[i].id] += o->bias[i].add;
    n = o->ignore_end ? cb_token_ends(model, &end) : 0;
    for (int i = 0; i < n; i++)
        j->biased[end[i]] = -INFINITY;
    return cb_sampler_pick(j->sampler, j->biased);
}

static int add_token(struct job_news *w, const struct job_token *t)
{
    TRY(cb_grow_by_one(&w->token, w->n_token, sizeof *w->token));
    w->token[w->n_token++] = *t;
    return CB_OK;
}

static int note_token(struct job *j, const cb_model *model, const float *logits, int32_t id)
{
    const int top = j->group->order.logprobs;
    struct job_token t;

    TRY(cb_grow_by_one(&j->out, j->n_made, sizeof *j->out));
    j->out[j->n_made++] = id;
    cb_sampler_accept(j->sampler, id);
    if (top < 0)
        return CB_OK;
    cb_logprobs(logits, cb_n_vocab(model), id, top, &t);
    return add_token(&j->made, &t);
}

/* ---- text ---- */

/* Hands out the first n bytes of what is held. */
static int give(struct job *j, size_t n)
{
    TRY(cb_buf_put(&j->made.text, n ? j->held.s : "", n));
    if (n)
        memmove(j->held.s, j->held.s + n, j->held.n - n + 1);
    j->held.n -= n;
    return CB_OK;
}

/* The name of a special token that is shown */
static int put_name(struct job *j, const cb_model *model, int32_t id)
{
    const struct job_order *o = &j->group->order;
    char name[64];
    int n = 0;

    for (int i = 0; i < o->n_shown && !n; i++)
        n = o->shown[i] == id ? cb_token_bytes(model, id, 1, name, sizeof name) : 0;
    return cb_buf_put(&j->held, name, (size_t)(n < (int)sizeof name ? n : 0));
}

/* Takes the text of a token; sets the end when a stop text is complete. */
static int put_text(struct job *j, const cb_model *model, int32_t id)
{
    const struct job_order *o = &j->group->order;
    struct buf *t = &j->held;
    const char *s;
    size_t n, at;

    TRY(cb_detokenizer_push(j->detok, id, &s, &n));
    TRY(cb_buf_put(t, s, n));
    TRY(put_name(j, model, id));
    at = cb_stop_find(t->s, t->n, o->stop, o->n_stop, &j->end.stop);
    if (j->end.stop < 0)
        return give(j, cb_stop_safe(t->s, t->n, o->stop, o->n_stop));
    j->end.reason = "stop";
    return give(j, at);
}

/* An unfinished character, and text that was held back for a stop text that did not come */
static int put_rest(struct job *j)
{
    const char *s;
    size_t n;

    cb_detokenizer_end(j->detok, &s, &n);
    TRY(cb_buf_put(&j->held, s, n));
    return give(j, j->held.n);
}

static int take_token(struct job *j, const cb_model *model, const float *logits, int32_t id)
{
    TRY(note_token(j, model, logits, id));
    TRY(put_text(j, model, id));
    if (!j->end.reason && j->n_made == j->group->order.max_tokens)
        j->end.reason = "length";
    return CB_OK;
}

int cb_job_sample(struct job *j, cb_model *model, const float *logits, int32_t *id)
{
    int rc = CB_OK;

    if (j->group->order.max_tokens == 0) {
        j->end.reason = "length";
        return 0;
    }
    *id = pick(j, model, logits);
    if (*id < 0) /* a grammar can leave no token */
        rc = *id;
    else if (!j->group->order.ignore_end && cb_token_is_end(model, *id))
        j->end.reason = "stop";
    else
        rc = take_token(j, model, logits, *id);
    if (!rc && j->end.reason && j->end.stop < 0)
        rc = put_rest(j);
    if (rc)
        cb_job_fail(j, rc);
    return !j->end.reason;
}

void cb_job_fail(struct job *j, int status)
{
    j->end.reason = "error";
    j->end.status = status;
    snprintf(j->end.error, sizeof j->end.error, "%s", cb_error());
}

/* ---- news ---- */

void cb_job_publish(struct job *j)
{
    struct job_news *to = &j->fresh, *from = &j->made;
    int lost = 0;

    j->n_out = j->n_made;
    if (from->text.n)
        cb_buf_add(&to->text, from->text.s, from->text.n);
    cb_buf_clear(&from->text);
    for (int i = 0; i < from->n_token; i++)
        lost |= add_token(to, &from->token[i]) != CB_OK;
    from->n_token = 0;
    if ((lost || to->text.failed) && !j->end.status) /* an answer with a gap must not look whole */
        cb_job_fail(j, cb_fail(CB_ENOMEM, "out of memory"));
}

int cb_job_take(struct job *j)
{
    const struct job_news t = j->seen;

    j->seen = j->fresh;
    j->fresh = t;
    cb_buf_clear(&j->fresh.text);
    j->fresh.n_token = 0;
    return j->seen.text.n || j->seen.n_token;
}
