/* SPDX-License-Identifier: MIT */
/* eval_perplexity.c - ctxbank eval perplexity: windows side by side, sliding, or one stream. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cmd.h"
#include "eval.h"

struct ppl {
    const struct opts *o;
    struct engine e;
    int32_t *ids;
    int n;      /* tokens of the text */
    int window; /* tokens in a window */
    int n_window;
    struct score_sum sum;
    struct progress bar;
    int64_t done, total; /* tokens, for the bar */
    const int32_t *next; /* [window] the token after each token of the current window */
    int n_next;          /* entries of next; logits beyond them have no target */
};

static void on_logits(void *arg, int i, const float *logits)
{
    struct ppl *p = arg;
    if (i < p->n_next)
        cb_score_add(&p->sum, cb_nll(logits, p->e.info.n_vocab, p->next[i]));
}

static void show(struct ppl *p, int64_t done)
{
    if (p->sum.n)
        snprintf(p->bar.extra, sizeof p->bar.extra, "perplexity %.4f", exp(cb_score_mean(&p->sum)));
    cb_progress_step(&p->bar, done, p->total);
}

static int on_progress(void *arg, int64_t done, int64_t total)
{
    struct ppl *p = arg;
    (void)total;
    show(p, p->done + done);
    return cb_interrupted();
}

/* Feeds one window of n tokens and scores the tokens that follow token `from` and later ones. */
static int window(struct ppl *p, const int32_t *at, int n, int from)
{
    const struct cb_prefill how = {
        .progress = on_progress,
        .progress_arg = p,
        .logits = on_logits,
        .logits_arg = p,
        .logits_from = from,
    };
    int32_t *ids = cb_calloc((size_t)n, sizeof *ids);
    int rc;

    if (!ids)
        return CB_ENOMEM;
    memcpy(ids, at, (size_t)n * sizeof *ids);
    if (p->e.info.add_bos)
        ids[0] = p->e.info.bos;
    p->next = at + 1;
    p->n_next = n - 1;
    cb_session_clear(p->e.session);
    rc = cb_session_prefill(p->e.session, ids, n, &how);
    free(ids);
    p->done += n;
    p->n_window++;
    return rc;
}

/* Adjacent windows, each scored on its second half. */
static int windows(struct ppl *p, int most)
{
    const int n = p->n / p->window;
    const int count = most >= 0 && most < n ? most : n;

    if (p->n < p->window)
        return cb_fail(CB_EARG, "%s: %d tokens are less than one window of %d (-c)",
                       cb_opt_text(p->o, ARG_PPL_FILE), p->n, p->window);
    p->total = (int64_t)count * p->window;
    for (int i = 0; i < count; i++)
        TRY(window(p, p->ids + (size_t)i * (size_t)p->window, p->window, p->window / 2));
    return CB_OK;
}

/* Overlapping windows: each scores the tokens that the previous one did not reach; the first scores
 * all but its first token. */
static int sliding(struct ppl *p, int stride, int most)
{
    int scored = 1; /* tokens already scored, or that cannot be scored */

    if (stride >= p->window)
        return cb_usage("--stride: %d is not less than the window of %d (-c)", stride, p->window);
    p->total = p->n;
    for (int at = 0; scored < p->n && (most < 0 || p->n_window < most); at += stride) {
        const int n = p->n - at < p->window ? p->n - at : p->window;
        TRY(window(p, p->ids + at, n, scored - 1 - at));
        scored = at + n;
        p->done = scored;
    }
    return CB_OK;
}

/* One stream: decodes token by token with the policy's cache. */
static int stream(struct ppl *p)
{
    p->total = p->n;
    p->n_window = 1;
    for (int i = 0; i + 1 < p->n; i++) {
        if (cb_interrupted())
            return CB_ECANCEL;
        TRY(cb_session_decode(p->e.session, p->ids[i]));
        cb_score_add(&p->sum,
                     cb_nll(cb_session_logits(p->e.session), p->e.info.n_vocab, p->ids[i + 1]));
        show(p, i + 2);
    }
    return CB_OK;
}

static int score(struct ppl *p)
{
    const int most = cb_opt_int(p->o, ARG_CHUNKS), stride = cb_opt_int(p->o, ARG_STRIDE);
    const int streamed = cb_opt_flag(p->o, ARG_STREAM);
    int rc;

    p->window = cb_opt_int(p->o, ARG_PPL_WINDOW);
    if (streamed && cb_opt_set(p->o, ARG_PPL_WINDOW) && p->window < p->n)
        p->n = p->window;
    if (p->n < 2)
        return cb_fail(CB_EARG, "%s: %d tokens; there is nothing to score",
                       cb_opt_text(p->o, ARG_PPL_FILE), p->n);
    TRY(cb_engine_session(p->o, &p->e, cb_opt_text(p->o, ARG_POLICY), streamed ? p->n : p->window));
    cb_progress_start(&p->bar, cb_progress_when(p->o), "perplexity", "tokens");
    rc = streamed ? stream(p) : stride ? sliding(p, stride, most) : windows(p, most);
    cb_progress_end(&p->bar);
    return rc;
}

static int print(const struct ppl *p)
{
    const double nll = cb_score_mean(&p->sum), err = cb_score_error(&p->sum);
    struct cb_memory m;

    cb_session_memory(p->e.session, &m);
    if (cb_opt_flag(p->o, ARG_JSON))
        return cb_json_print(json_pack("{s:o, s:o, s:o, s:o, s:I, s:i, s:i, s:o}", "policy",
                                       cb_json_str(cb_opt_text(p->o, ARG_POLICY)), "perplexity",
                                       cb_json_real(exp(nll)), "perplexity_error",
                                       cb_json_real(exp(nll) * err), "nll", cb_json_real(nll),
                                       "tokens", (json_int_t)p->sum.n, "windows", p->n_window,
                                       "text_tokens", p->n, "memory", cb_json_memory(&m)));
    printf("perplexity %.4f ± %.4f, nll %.6f, tokens %lld, windows %d\n", exp(nll), exp(nll) * err,
           nll, (long long)p->sum.n, p->n_window);
    return CB_OK;
}

static int evaluate(struct ppl *p)
{
    struct buf t;
    int rc;

    TRY(cb_read_file(cb_opt_text(p->o, ARG_PPL_FILE), &t));
    rc = cb_tokenize(p->e.model, t.s, t.n, CB_TOK_BOS, &p->ids, &p->n);
    cb_buf_free(&t);
    if (!rc)
        rc = score(p);
    return rc ? rc : print(p);
}

static int run(const struct opts *o)
{
    struct ppl p = { .o = o };
    int rc;

    if (!cb_opt_set(o, ARG_PPL_FILE))
        return cb_usage("-f FILE: none given");
    cb_interrupt_catch();
    rc = cb_engine_open(o, &p.e);
    if (!rc)
        rc = evaluate(&p);
    free(p.ids);
    cb_engine_close(&p.e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_eval_perplexity = {
    .name = "eval perplexity",
    .operands = "",
    .brief = "measure the perplexity of a text",
    .sets = SET_OWN_PERPLEXITY | SET_MODEL | SET_ENGINE | SET_POLICY | SET_JSON | SET_PROGRESS |
            SET_GENERAL,
    .run = run,
};
