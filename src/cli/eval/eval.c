/* SPDX-License-Identifier: MIT */
/* eval.c - shared by the tasks of eval: likelihoods, divergences, the two texts of a
 * continuation. */
#include "eval.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"

static double log_sum_exp(const float *x, int n)
{
    double max = x[0], sum = 0;

    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

double cb_nll(const float *logits, int n_vocab, int32_t id)
{
    return log_sum_exp(logits, n_vocab) - logits[id];
}

int32_t cb_argmax(const float *logits, int n_vocab)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

double cb_kl(const float *p, const float *q, int n_vocab)
{
    const double zp = log_sum_exp(p, n_vocab), zq = log_sum_exp(q, n_vocab);
    double sum = 0;

    for (int i = 0; i < n_vocab; i++) {
        const double lp = p[i] - zp;
        sum += exp(lp) * (lp - (q[i] - zq));
    }
    return sum;
}

void cb_score_add(struct score_sum *s, double nll)
{
    s->n++;
    s->sum += nll;
    s->sum2 += nll * nll;
}

double cb_score_mean(const struct score_sum *s)
{
    return s->n ? s->sum / (double)s->n : NAN;
}

double cb_score_error(const struct score_sum *s)
{
    const double mean = cb_score_mean(s);

    if (s->n < 2)
        return NAN;
    return sqrt(fmax(0, s->sum2 / (double)s->n - mean * mean) / (double)(s->n - 1));
}

static int read_ids(const struct opts *o, enum opt_id id, const struct engine *e, int flags,
                    int32_t **ids, int *n)
{
    struct buf t;
    int rc;

    TRY(cb_read_file(cb_opt_text(o, id), &t));
    rc = cb_tokenize(e->model, t.s, t.n, flags, ids, n);
    cb_buf_free(&t);
    return rc;
}

int cb_pair_given(const struct opts *o)
{
    const int has_context = cb_opt_set(o, ARG_CONTEXT) || cb_opt_set(o, ARG_BANK);

    if (has_context && cb_opt_set(o, ARG_TARGET))
        return CB_OK;
    return cb_usage("%s: none given", has_context ? "--target FILE" : "--context FILE");
}

int cb_pair_read(const struct opts *o, const struct engine *e, struct pair *out)
{
    *out = (struct pair){ 0 };
    if (cb_opt_set(o, ARG_CONTEXT))
        TRY(read_ids(o, ARG_CONTEXT, e, CB_TOK_BOS, &out->ctx, &out->n_ctx));
    TRY(read_ids(o, ARG_TARGET, e, 0, &out->tgt, &out->n_tgt));
    if (!out->n_tgt)
        return cb_fail(CB_EFORMAT, "%s: no tokens", cb_opt_text(o, ARG_TARGET));
    if (!out->n_ctx && !cb_opt_set(o, ARG_BANK))
        return cb_fail(CB_EFORMAT, "%s: no tokens", cb_opt_text(o, ARG_CONTEXT));
    return CB_OK;
}

int cb_pair_open(const struct opts *o, struct engine *e, struct pair *p)
{
    const int n_ctx = cb_opt_int(o, ARG_CTX), both = p->n_ctx + p->n_tgt;

    TRY(cb_context_begin(o, e, n_ctx || cb_opt_set(o, ARG_BANK) ? n_ctx : both, p->ctx, &p->n_ctx));
    if (!e->n_begun && !p->n_ctx)
        return cb_fail(CB_EARG, "%s: holds no tokens", cb_opt_text(o, ARG_BANK));
    return cb_check_fit(e, p->n_ctx + p->n_tgt);
}

void cb_pair_free(struct pair *p)
{
    free(p->ctx);
    free(p->tgt);
    *p = (struct pair){ 0 };
}
