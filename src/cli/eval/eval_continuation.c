/* SPDX-License-Identifier: MIT */
/* eval_continuation.c - ctxbank eval continuation: a context is read under the policy, then a
 * target is scored token by token. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cmd.h"
#include "engine/session.h"
#include "eval.h"

struct result {
    struct score_sum sum;
    double *nll;   /* [n_tgt] */
    int32_t *top1; /* [n_tgt] */
    json_t *kept;  /* slots a layer after the context */
};

static json_t *kept_slots(const struct cb_session *s)
{
    json_t *list = json_array();

    for (int l = 0; l < s->model->hp.n_layer; l++)
        cb_json_add(&list, json_integer(cb_store_max_len(&s->bank.store[l])));
    return list;
}

static int score(const struct opts *o, struct engine *e, const struct pair *p, struct result *r)
{
    struct progress bar;
    int rc;

    r->nll = cb_calloc((size_t)p->n_tgt, sizeof *r->nll);
    r->top1 = cb_calloc((size_t)p->n_tgt, sizeof *r->top1);
    if (!r->nll || !r->top1)
        return CB_ENOMEM;
    if (p->n_ctx)
        TRY(cb_prefill_bar(e, o, "context", p->ctx, p->n_ctx, NULL));
    r->kept = kept_slots(e->session);
    cb_progress_start(&bar, cb_progress_when(o), "target", "tokens");
    rc = CB_OK;
    for (int i = 0; i < p->n_tgt && !rc; i++) {
        const float *logits = cb_session_logits(e->session);
        r->nll[i] = cb_nll(logits, e->info.n_vocab, p->tgt[i]);
        r->top1[i] = cb_argmax(logits, e->info.n_vocab);
        cb_score_add(&r->sum, r->nll[i]);
        cb_progress_step(&bar, i + 1, p->n_tgt);
        if (i + 1 < p->n_tgt)
            rc = cb_interrupted() ? CB_ECANCEL : cb_session_decode(e->session, p->tgt[i]);
    }
    cb_progress_end(&bar);
    return rc;
}

static int print_json(const struct engine *e, const struct pair *p, const struct result *r)
{
    json_t *ids = json_array(), *nll = json_array(), *top1 = json_array();
    const double mean = cb_score_mean(&r->sum);
    struct cb_memory m;

    cb_session_memory(e->session, &m);
    for (int i = 0; i < p->n_tgt; i++) {
        cb_json_add(&ids, json_integer(p->tgt[i]));
        cb_json_add(&nll, cb_json_real(r->nll[i]));
        cb_json_add(&top1, json_integer(r->top1[i]));
    }
    return cb_json_print(json_pack("{s:o, s:o, s:i, s:i, s:o, s:o, s:o, s:O, s:o}", "nll",
                                   cb_json_real(mean), "ppl", cb_json_real(exp(mean)),
                                   "context_tokens", e->n_begun + p->n_ctx, "target_tokens",
                                   p->n_tgt, "target_ids", ids, "token_nll", nll, "top1", top1,
                                   "kept", r->kept, "memory", cb_json_memory(&m)));
}

static void print_text(const struct opts *o, const struct engine *e, const struct pair *p,
                       const struct result *r)
{
    const double mean = cb_score_mean(&r->sum);
    struct cb_memory m;

    cb_session_memory(e->session, &m);
    for (int i = 0; i < p->n_tgt && cb_opt_flag(o, ARG_PER_TOKEN); i++)
        printf("%d %d %.6f %d\n", i, p->tgt[i], r->nll[i], r->top1[i]);
    printf("perplexity %.4f, nll %.6f, tokens %d, context %d, slots a layer %d to %d, bank %llu "
           "bytes (full %llu)\n",
           exp(mean), mean, p->n_tgt, e->n_begun + p->n_ctx, m.kept_min, m.kept_max,
           (unsigned long long)m.kv_bytes, (unsigned long long)m.kv_full_bytes);
}

static int evaluate(const struct opts *o, struct engine *e, struct pair *p, struct result *r)
{
    TRY(cb_pair_read(o, e, p));
    TRY(cb_pair_open(o, e, p));
    TRY(score(o, e, p, r));
    if (cb_opt_flag(o, ARG_JSON))
        return print_json(e, p, r);
    print_text(o, e, p, r);
    return CB_OK;
}

static int run(const struct opts *o)
{
    struct engine e;
    struct pair p = { 0 };
    struct result r = { .nll = NULL };
    int rc;

    TRY(cb_pair_given(o));
    cb_interrupt_catch();
    rc = cb_engine_open(o, &e);
    if (!rc)
        rc = evaluate(o, &e, &p, &r);
    free(r.nll);
    free(r.top1);
    json_decref(r.kept);
    cb_pair_free(&p);
    cb_engine_close(&e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_eval_continuation = {
    .name = "eval continuation",
    .operands = "",
    .brief = "measure how likely a text is after a long context",
    .sets = SET_OWN_CONTINUATION | SET_PAIR | SET_BANK_FILE | SET_MODEL | SET_ENGINE | SET_THREADS |
            SET_CTX | SET_POLICY | SET_JSON | SET_PROGRESS | SET_GENERAL,
    .run = run,
};
