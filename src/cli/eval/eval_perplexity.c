/* SPDX-License-Identifier: MIT */
/* eval_perplexity.c - ctxbank eval perplexity: windows side by side, sliding, or one stream; as a
 * whole, and by the number of tokens before each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "base/new_file.h"
#include "cli/cmd.h"
#include "cli/output/chart.h"
#include "cli/output/csv.h"
#include "eval.h"

/* Of one policy */
struct result {
    const char *policy;
    struct score_sum sum;
    struct score_sum
        *at; /* [n_place] of tokens with i * width to (i + 1) * width - 1 before them */
    int n_window;
    struct cb_memory memory;
};

struct ppl {
    const struct opts *o;
    struct engine e;
    int32_t *ids;
    int n;              /* tokens of the text */
    int window;         /* tokens in a window; of a stream: in all */
    int width, n_place; /* --positions; 0: not asked */
    struct result *of;  /* [n_of] */
    int n_of;
    struct result *r; /* of the policy whose turn it is */
    struct progress bar;
    int64_t done, total; /* tokens, for the bar */
    const int32_t *next; /* [window] the token after each token of the current window */
    int n_next;          /* entries of next; logits beyond them have no target */
};

/* Scores token id with n tokens before it. */
static void score_token(struct ppl *p, int n, const float *logits, int32_t id)
{
    const double nll = cb_nll(logits, p->e.info.n_vocab, id);

    cb_score_add(&p->r->sum, nll);
    if (p->width)
        cb_score_add(&p->r->at[n / p->width], nll);
}

static void on_logits(void *arg, int i, const float *logits)
{
    struct ppl *p = arg;
    if (i < p->n_next)
        score_token(p, i + 1, logits, p->next[i]);
}

static void show(struct ppl *p, int64_t done)
{
    if (p->r->sum.n)
        snprintf(p->bar.extra, sizeof p->bar.extra, "perplexity %.4f",
                 exp(cb_score_mean(&p->r->sum)));
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
    p->r->n_window++;
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
    for (int at = 0; scored < p->n && (most < 0 || p->r->n_window < most); at += stride) {
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
    p->total = p->window;
    p->r->n_window = 1;
    for (int i = 0; i + 1 < p->window; i++) {
        if (cb_interrupted())
            return CB_ECANCEL;
        TRY(cb_session_decode(p->e.session, p->ids[i]));
        score_token(p, i + 1, cb_session_logits(p->e.session), p->ids[i + 1]);
        show(p, i + 2);
    }
    return CB_OK;
}

static int score(struct ppl *p)
{
    const int most = cb_opt_int(p->o, ARG_CHUNKS), stride = cb_opt_int(p->o, ARG_STRIDE);
    int rc;

    TRY(cb_engine_session(p->o, &p->e, p->r->policy, p->window));
    p->done = 0;
    cb_progress_start(&p->bar, cb_progress_when(p->o), "perplexity", "tokens");
    rc = cb_opt_flag(p->o, ARG_STREAM) ? stream(p)
         : stride                      ? sliding(p, stride, most)
                                       : windows(p, most);
    cb_progress_end(&p->bar);
    cb_session_memory(p->e.session, &p->r->memory);
    return rc;
}

/* ---- results ---- */

static json_t *json_places(const struct ppl *p, const struct result *r)
{
    json_t *a = json_array();

    for (int i = 0; i < p->n_place; i++)
        cb_json_add(&a, json_pack("{s:i, s:i, s:I, s:o, s:o}", "from", i * p->width, "to",
                                  (i + 1) * p->width - 1, "tokens", (json_int_t)r->at[i].n, "nll",
                                  cb_json_real(cb_score_mean(&r->at[i])), "nll_error",
                                  cb_json_real(cb_score_error(&r->at[i]))));
    return a;
}

static json_t *json_result(const struct ppl *p, const struct result *r)
{
    const double nll = cb_score_mean(&r->sum), err = cb_score_error(&r->sum);
    json_t *x = json_pack("{s:o, s:o, s:o, s:o, s:I, s:i, s:i, s:o}", "policy",
                          cb_json_str(r->policy), "perplexity", cb_json_real(exp(nll)),
                          "perplexity_error", cb_json_real(exp(nll) * err), "nll",
                          cb_json_real(nll), "tokens", (json_int_t)r->sum.n, "windows", r->n_window,
                          "text_tokens", p->n, "memory", cb_json_memory(&r->memory));

    if (p->width)
        cb_json_set(&x, "positions", json_places(p, r));
    return x;
}

/* One object, or with several policies a list */
static int print_json(const struct ppl *p)
{
    json_t *all = p->n_of > 1 ? json_array() : NULL;

    for (int i = 0; i < p->n_of && all; i++)
        cb_json_add(&all, json_result(p, &p->of[i]));
    return cb_json_print(p->n_of > 1 ? all : json_result(p, p->of));
}

static void csv_row(const struct result *r, double from, double to, const struct score_sum *s)
{
    const double nll = cb_score_mean(s);
    const double v[] = { from, to, (double)s->n, nll, cb_score_error(s), exp(nll) };

    cb_csv_text(r->policy, stdout);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        cb_csv_number(v[i], stdout);
    putchar('\n');
}

static void print_csv(const struct ppl *p)
{
    puts("policy,from,to,tokens,nll,nll_error,perplexity");
    for (int i = 0; i < p->n_of; i++) {
        const struct result *r = &p->of[i];
        csv_row(r, NAN, NAN, &r->sum);
        for (int k = 0; k < p->n_place; k++)
            csv_row(r, k * p->width, (k + 1) * p->width - 1, &r->at[k]);
    }
}

static void print_places(const struct ppl *p)
{
    printf("\n| tokens before | n |");
    for (int i = 0; i < p->n_of; i++)
        printf(" %s |", p->of[i].policy);
    printf("\n| --- | --- |");
    for (int i = 0; i < p->n_of; i++)
        printf(" --- |");
    for (int k = 0; k < p->n_place; k++) {
        if (!p->of->at[k].n)
            continue;
        printf("\n| %d to %d | %lld |", k * p->width, (k + 1) * p->width - 1,
               (long long)p->of->at[k].n);
        for (int i = 0; i < p->n_of; i++)
            printf(" %.4f |", cb_score_mean(&p->of[i].at[k]));
    }
    putchar('\n');
}

static void print_md(const struct ppl *p)
{
    for (int i = 0; i < p->n_of; i++) {
        const struct result *r = &p->of[i];
        const double nll = cb_score_mean(&r->sum), err = cb_score_error(&r->sum);
        if (p->n_of > 1)
            printf("%s: ", r->policy);
        printf("perplexity %.4f ± %.4f, nll %.6f, tokens %lld, windows %d\n", exp(nll),
               exp(nll) * err, nll, (long long)r->sum.n, r->n_window);
    }
    if (p->width)
        print_places(p);
}

static int draw(const struct ppl *p, const char *path)
{
    const size_t n = (size_t)p->n_of;
    double *y = cb_calloc(n * (size_t)p->n_place, sizeof *y);
    struct curve *curve = cb_calloc(n, sizeof *curve);
    char title[240];
    const struct diagram d = { title,      "tokens before",  curve,   p->n_of,
                               p->n_place, .step = p->width, .cut = 1 };
    int err = y && curve ? CB_OK : CB_ENOMEM;

    for (int i = 0; i < p->n_of && !err; i++) {
        curve[i] = (struct curve){ p->of[i].policy, y + (size_t)i * (size_t)p->n_place, .ink = i };
        for (int k = 0; k < p->n_place; k++)
            y[i * p->n_place + k] = cb_score_mean(&p->of[i].at[k]);
    }
    snprintf(title, sizeof title, "%.120s %.30s: negative log-likelihood (nats)", p->e.info.name,
             p->e.info.quant);
    if (!err)
        err = cb_chart_diagrams(path, &d, 1);
    free(y);
    free(curve);
    return err;
}

static int print(const struct ppl *p)
{
    const char *plot = cb_opt_text(p->o, ARG_MEASURE_PLOT);

    if (cb_opt_flag(p->o, ARG_JSON) || cb_opt_is(p->o, ARG_TABLE, "json"))
        TRY(print_json(p));
    else
        (cb_opt_is(p->o, ARG_TABLE, "csv") ? print_csv : print_md)(p);
    return plot ? draw(p, plot) : CB_OK;
}

/* ---- the text, and who reads it ---- */

static int read_text(struct ppl *p)
{
    const int given = cb_opt_set(p->o, ARG_PPL_WINDOW);
    struct buf t;
    int rc;

    TRY(cb_read_file(cb_opt_text(p->o, ARG_PPL_FILE), &t));
    rc = cb_tokenize(p->e.model, t.s, t.n, CB_TOK_BOS, &p->ids, &p->n);
    cb_buf_free(&t);
    TRY(rc);
    p->window = cb_opt_int(p->o, ARG_PPL_WINDOW);
    if (cb_opt_flag(p->o, ARG_STREAM))
        p->window = p->n = given && p->window < p->n ? p->window : p->n;
    return p->n < 2 ? cb_fail(CB_EARG, "%s: %d tokens; there is nothing to score",
                              cb_opt_text(p->o, ARG_PPL_FILE), p->n)
                    : CB_OK;
}

static int open_results(struct ppl *p)
{
    const char *const *policy = cb_engine_policies(p->o, &p->e, &p->n_of);

    p->n_place = p->width ? (min_int(p->window, p->n) - 1) / p->width + 1 : 0;
    if (!(p->of = cb_calloc((size_t)p->n_of, sizeof *p->of)))
        return CB_ENOMEM;
    for (int i = 0; i < p->n_of; i++) {
        p->of[i].policy = policy[i];
        if (!(p->of[i].at = cb_calloc((size_t)p->n_place + 1, sizeof *p->of[i].at)))
            return CB_ENOMEM;
    }
    return CB_OK;
}

static void close_results(struct ppl *p)
{
    for (int i = 0; p->of && i < p->n_of; i++)
        free(p->of[i].at);
    free(p->of);
}

static int evaluate(struct ppl *p)
{
    TRY(cb_new_file_check(cb_opt_text(p->o, ARG_MEASURE_PLOT))); /* before the work */
    TRY(read_text(p));
    TRY(open_results(p));
    for (int i = 0; i < p->n_of; i++) {
        p->r = &p->of[i];
        TRY(score(p));
    }
    return print(p);
}

static int run(const struct opts *o)
{
    struct ppl p = { .o = o, .width = cb_opt_int(o, ARG_POSITIONS) };
    int rc;

    if (!cb_opt_set(o, ARG_PPL_FILE))
        return cb_usage("-f FILE: none given");
    if (cb_opt_set(o, ARG_MEASURE_PLOT) && !p.width)
        return cb_usage("--plot: draws the table of --positions, which is not given");
    cb_interrupt_catch();
    rc = cb_engine_open(o, &p.e);
    if (!rc)
        rc = evaluate(&p);
    close_results(&p);
    free(p.ids);
    cb_engine_close(&p.e);
    return cb_interrupt_status(rc);
}

const struct cmd cb_cmd_eval_perplexity = {
    .name = "eval perplexity",
    .operands = "",
    .brief = "measure the perplexity of a text",
    .example = "-m model.gguf -c 2048 -f text.txt",
    .sets = SET_OWN_PERPLEXITY | SET_MODEL | SET_ENGINE | SET_THREADS | SET_POLICIES | SET_JSON |
            SET_PROGRESS | SET_GENERAL,
    .run = run,
};
