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

/* Feeds the context and then the target, token by token, to both sessions; compares their
 * logits. */
static int feed(const struct opts *o, struct engine *full, struct engine *e, const struct pair *p,
                struct result *r)
{
    const int n_vocab = e->info.n_vocab;
    struct progress bar;
    int rc = CB_OK;

    if (full->n_begun)
        TRY(cb_prefill_bar(full, o, "bank", cb_session_tokens(e->session), full->n_begun, NULL));
    if (p->n_ctx)
        TRY(cb_prefill_bar(full, o, "full", p->ctx, p->n_ctx, NULL));
    if (p->n_ctx)
        TRY(cb_prefill_bar(e, o, "policy", p->ctx, p->n_ctx, NULL));
    cb_progress_start(&bar, cb_progress_when(o), "target", "tokens");
    for (int i = 0; i < p->n_tgt && !rc; i++) {
        const float *lf = cb_session_logits(full->session), *lp = cb_session_logits(e->session);
        const double kl = cb_kl(lf, lp, n_vocab);
        cb_score_add(&r->kl, kl);
        cb_score_add(&r->nll, cb_nll(lp, n_vocab, p->tgt[i]));
        cb_score_add(&r->nll_full, cb_nll(lf, n_vocab, p->tgt[i]));
        r->kl_max = kl > r->kl_max ? kl : r->kl_max;
        r->same_top1 += cb_argmax(lf, n_vocab) == cb_argmax(lp, n_vocab);
        snprintf(bar.extra, sizeof bar.extra, "KLD %.4f", cb_score_mean(&r->kl));
        cb_progress_step(&bar, i + 1, p->n_tgt);
        if (i + 1 == p->n_tgt)
            break;
        rc = cb_interrupted() ? CB_ECANCEL : cb_session_decode(full->session, p->tgt[i]);
        if (!rc)
            rc = cb_session_decode(e->session, p->tgt[i]);
    }
    cb_progress_end(&bar);
    return rc;
}

static int print(const struct opts *o, const struct engine *e, const struct pair *p,
                 const struct result *r)
{
    const double top1 = (double)r->same_top1 / p->n_tgt;
    struct cb_memory m;

    cb_session_memory(e->session, &m);
    if (cb_opt_flag(o, ARG_JSON))
        return cb_json_print(json_pack(
            "{s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:i, s:i, s:o}", "policy",
            cb_json_str(cb_engine_policy(o, e)), "kld_mean", cb_json_real(cb_score_mean(&r->kl)),
            "kld_error", cb_json_real(cb_score_error(&r->kl)), "kld_max", cb_json_real(r->kl_max),
            "top1_agreement", top1, "ppl", cb_json_real(exp(cb_score_mean(&r->nll))), "ppl_full",
            cb_json_real(exp(cb_score_mean(&r->nll_full))), "context_tokens", e->n_begun + p->n_ctx,
            "target_tokens", p->n_tgt, "memory", cb_json_memory(&m)));
    printf("KLD mean %.6f ± %.6f, max %.6f, top-1 agreement %.4f, perplexity %.4f (full %.4f), "
           "tokens %d, context %d, bank %llu bytes (full %llu)\n",
           cb_score_mean(&r->kl), cb_score_error(&r->kl), r->kl_max, top1,
           exp(cb_score_mean(&r->nll)), exp(cb_score_mean(&r->nll_full)), p->n_tgt,
           e->n_begun + p->n_ctx, (unsigned long long)m.kv_bytes,
           (unsigned long long)m.kv_full_bytes);
    return CB_OK;
}

/* The full cache: f16, dense. */
static int open_full(const struct engine *e, struct engine *full)
{
    const struct cb_session_params p = { .n_ctx = e->n_ctx };

    *full = *e;
    full->session = NULL;
    return cb_session_open(e->model, &p, &full->session);
}

static int evaluate(const struct opts *o, struct engine *e, struct pair *p)
{
    struct engine full;
    struct result r = { .kl_max = 0 };
    int rc;

    TRY(cb_pair_read(o, e, p));
    TRY(cb_pair_open(o, e, p));
    rc = open_full(e, &full);
    if (!rc)
        rc = feed(o, &full, e, p, &r);
    cb_session_close(full.session);
    return rc ? rc : print(o, e, p, &r);
}

static int run(const struct opts *o)
{
    struct engine e;
    struct pair p = { 0 };
    int rc;

    TRY(cb_pair_given(o));
    cb_interrupt_catch();
    rc = cb_engine_open(o, &e);
    if (!rc)
        rc = evaluate(o, &e, &p);
    cb_pair_free(&p);
    cb_engine_close(&e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_eval_kld = {
    .name = "eval kld",
    .operands = "",
    .brief = "measure how far a policy's predictions are from the full cache's",
    .sets = SET_PAIR | SET_BANK_FILE | SET_MODEL | SET_ENGINE | SET_THREADS | SET_CTX | SET_POLICY |
            SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
