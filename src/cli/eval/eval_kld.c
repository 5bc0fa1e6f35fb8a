/* SPDX-License-Identifier: MIT */
/* eval_kld.c - ctxbank eval kld: how far a policy's predictions are from the full cache's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "cli/cmd.h"
#include "eval.h"

struct result {
    struct score_sum kl, nll, nll_full;
    double kl_max;
    int same_top1;
};

/* A policy, and how far it is from the full cache. */
struct seat {
    const char *policy;
    cb_session *s;
    struct result r;
};

struct work {
    const struct opts *o;
    struct engine *e, full; /* e: its session is seat 0's */
    struct pair p;
    struct seat *seat; /* [n] --policy, and those of --also */
    int n;
    struct progress bar;
};

/* ---- opening ---- */

static int open_also(struct work *w, const char *policy, struct seat *x)
{
    const struct cb_session_params chosen = w->e->chosen; /* seat 0's */
    struct cb_session_params p;
    int rc;

    x->policy = policy;
    rc = cb_engine_params(w->o, w->e, policy, w->e->n_ctx, &p);
    w->e->chosen = chosen;
    return rc ? rc : cb_session_open(w->e->model, &p, &x->s);
}

/* The full cache: f16, dense. */
static int open_full(struct work *w)
{
    const struct cb_session_params p = { .n_ctx = w->e->n_ctx };

    w->full = *w->e;
    w->full.session = NULL;
    return cb_session_open(w->e->model, &p, &w->full.session);
}

static int open_all(struct work *w)
{
    int n_also = 0;
    const char *const *also =
        cb_opt_set(w->o, ARG_ALSO) ? cb_opt_texts(w->o, ARG_ALSO, &n_also) : NULL;

    TRY(cb_pair_read(w->o, w->e, &w->p));
    TRY(cb_pair_open(w->o, w->e, &w->p));
    w->seat = cb_calloc((size_t)n_also + 1, sizeof *w->seat);
    if (!w->seat)
        return CB_ENOMEM;
    w->seat[0] = (struct seat){ .policy = cb_engine_policy(w->o, w->e), .s = w->e->session };
    w->n = 1;
    for (int i = 0; i < n_also; i++, w->n++)
        TRY(open_also(w, also[i], &w->seat[i + 1]));
    return open_full(w);
}

/* ---- the context ---- */

static int on_progress(void *arg, int64_t done, int64_t total)
{
    cb_progress_step(arg, done, total);
    return cb_interrupted();
}

/* What does not follow the full cache reads the context itself. */
static int read_apart(struct work *w, const struct seat *x)
{
    struct engine e = *w->e;

    e.session = x->s;
    return cb_prefill_bar(&e, w->o, "policy", w->p.ctx, w->p.n_ctx, NULL);
}

static int read_shared(struct work *w, cb_session **follower)
{
    const struct cb_prefill how = { .progress = on_progress, .progress_arg = &w->bar };
    int n = 0, rc;

    for (int i = 0; i < w->n; i++)
        if (cb_session_can_follow(w->seat[i].s, w->full.session))
            follower[n++] = w->seat[i].s;
        else
            TRY(read_apart(w, &w->seat[i]));
    cb_progress_start(&w->bar, cb_progress_when(w->o), "full", "tokens");
    rc = cb_session_prefill_shared(w->full.session, follower, NULL, n, w->p.ctx, w->p.n_ctx, &how);
    cb_progress_end(&w->bar);
    return rc;
}

static int read_context(struct work *w)
{
    const int n_begun = w->e->n_begun;
    cb_session **follower;
    int rc;

    if (n_begun) { /* the policy's session holds it already */
        TRY(cb_prefill_bar(&w->full, w->o, "bank", cb_session_tokens(w->e->session), n_begun,
                           NULL));
        if (w->p.n_ctx)
            TRY(cb_prefill_bar(&w->full, w->o, "full", w->p.ctx, w->p.n_ctx, NULL));
        return w->p.n_ctx ? read_apart(w, &w->seat[0]) : CB_OK;
    }
    follower = cb_calloc((size_t)w->n, sizeof(cb_session *));
    rc = follower ? read_shared(w, follower) : CB_ENOMEM;
    free(follower);
    return rc;
}

/* ---- the target ---- */

static void compare(struct work *w, struct seat *x, int32_t next)
{
    const int n_vocab = w->e->info.n_vocab;
    const float *lf = cb_session_logits(w->full.session), *lp = cb_session_logits(x->s);
    const double kl = cb_kl(lf, lp, n_vocab);

    cb_score_add(&x->r.kl, kl);
    cb_score_add(&x->r.nll, cb_nll(lp, n_vocab, next));
    cb_score_add(&x->r.nll_full, cb_nll(lf, n_vocab, next));
    x->r.kl_max = kl > x->r.kl_max ? kl : x->r.kl_max;
    x->r.same_top1 += cb_argmax(lf, n_vocab) == cb_argmax(lp, n_vocab);
}

/* One token goes to all sessions. */
static int decode(struct work *w, int32_t id)
{
    if (cb_interrupted())
        return CB_ECANCEL;
    TRY(cb_session_decode(w->full.session, id));
    for (int k = 0; k < w->n; k++)
        TRY(cb_session_decode(w->seat[k].s, id));
    return CB_OK;
}

static int feed(struct work *w)
{
    const int n = w->p.n_tgt;
    int rc = CB_OK;

    cb_progress_start(&w->bar, cb_progress_when(w->o), "target", "tokens");
    for (int i = 0; i < n && !rc; i++) {
        for (int k = 0; k < w->n; k++)
            compare(w, &w->seat[k], w->p.tgt[i]);
        snprintf(w->bar.extra, sizeof w->bar.extra, "KLD %.4f", cb_score_mean(&w->seat[0].r.kl));
        cb_progress_step(&w->bar, i + 1, n);
        if (i + 1 < n)
            rc = decode(w, w->p.tgt[i]);
    }
    cb_progress_end(&w->bar);
    return rc;
}

/* ---- results ---- */

static json_t *result_json(const struct work *w, const struct seat *x)
{
    const struct result *r = &x->r;
    struct cb_memory m;

    cb_session_memory(x->s, &m);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:i, s:i, s:o}", "policy", cb_json_str(x->policy),
        "kld_mean", cb_json_real(cb_score_mean(&r->kl)), "kld_error",
        cb_json_real(cb_score_error(&r->kl)), "kld_max", cb_json_real(r->kl_max), "top1_agreement",
        (double)r->same_top1 / w->p.n_tgt, "ppl", cb_json_real(exp(cb_score_mean(&r->nll))),
        "ppl_full", cb_json_real(exp(cb_score_mean(&r->nll_full))), "context_tokens",
        w->e->n_begun + w->p.n_ctx, "target_tokens", w->p.n_tgt, "memory", cb_json_memory(&m));
}

static void print_text(const struct work *w, const struct seat *x)
{
    const struct result *r = &x->r;
    struct cb_memory m;

    cb_session_memory(x->s, &m);
    if (w->n > 1)
        printf("%s: ", x->policy);
    printf("KLD mean %.6f ± %.6f, max %.6f, top-1 agreement %.4f, perplexity %.4f (full %.4f), "
           "tokens %d, context %d, bank %llu bytes (full %llu)\n",
           cb_score_mean(&r->kl), cb_score_error(&r->kl), r->kl_max,
           (double)r->same_top1 / w->p.n_tgt, exp(cb_score_mean(&r->nll)),
           exp(cb_score_mean(&r->nll_full)), w->p.n_tgt, w->e->n_begun + w->p.n_ctx,
           (unsigned long long)m.kv_bytes, (unsigned long long)m.kv_full_bytes);
}

static int print(const struct work *w)
{
    json_t *list;

    if (!cb_opt_flag(w->o, ARG_JSON)) {
        for (int k = 0; k < w->n; k++)
            print_text(w, &w->seat[k]);
        return CB_OK;
    }
    if (w->n == 1)
        return cb_json_print(result_json(w, w->seat));
    list = json_array();
    for (int k = 0; k < w->n; k++)
        cb_json_add(&list, result_json(w, &w->seat[k]));
    return cb_json_print(list);
}

static int evaluate(struct work *w)
{
    TRY(open_all(w));
    TRY(read_context(w));
    TRY(feed(w));
    return print(w);
}

static int run(const struct opts *o)
{
    struct engine e;
    struct work w = { .o = o, .e = &e };
    int rc;

    TRY(cb_pair_given(o));
    if (cb_opt_set(o, ARG_ALSO) && cb_opt_set(o, ARG_BANK))
        return cb_usage("--also: not with --bank, which one policy saved");
    cb_interrupt_catch();
    rc = cb_engine_open(o, &e);
    if (!rc)
        rc = evaluate(&w);
    cb_session_close(w.full.session);
    for (int i = 1; i < w.n; i++)
        cb_session_close(w.seat[i].s);
    free(w.seat);
    cb_pair_free(&w.p);
    cb_engine_close(&e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_eval_kld = {
    .name = "eval kld",
    .operands = "",
    .brief = "measure how far a policy's predictions are from the full cache's",
    .sets = SET_OWN_KLD | SET_PAIR | SET_BANK_FILE | SET_MODEL | SET_ENGINE | SET_THREADS |
            SET_CTX | SET_POLICY | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
