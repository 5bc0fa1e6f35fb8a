/* SPDX-License-Identifier: MIT */
/* generate.c - a prompt in, tokens out: the loop that run, chat and the tasks of eval share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/stop_text.h"
#include "cli/output/log.h"
#include "cmd.h"

/* ---- prompt ---- */

/* Slots that the context still has. A policy that drops tokens makes room. */
static int room(const struct engine *e)
{
    struct cb_memory m = { .kept_max = 0 };

    if (e->session && cb_session_len(e->session))
        cb_session_memory(e->session, &m);
    return e->n_ctx - m.kept_max;
}

int cb_check_fit(const struct engine *e, int n)
{
    const int used = e->n_ctx - room(e);

    if (n <= e->n_ctx - used)
        return CB_OK;
    if (used)
        return cb_fail(CB_EFULL,
                       "prompt: %d tokens do not fit after the %d that are in the context of %d", n,
                       used, e->n_ctx);
    return cb_fail(CB_EFULL, "prompt: %d tokens do not fit into the context of %d", n, e->n_ctx);
}

/* Does the policy make room for any number of generated tokens? Then it does for a prompt too, if
 * that is fed in pieces. */
static int makes_room(const struct engine *e)
{
    struct cb_memory m;

    return e->session && !cb_session_plan(e->session, e->n_ctx, 4 * e->n_ctx, &m);
}

int cb_check_pieces(const struct engine *e, int n)
{
    if (n <= room(e) || makes_room(e))
        return CB_OK;
    if (cb_session_len(e->session))
        return cb_check_fit(e, n);
    return cb_fail(
        CB_EFULL,
        "prompt: %d tokens do not fit into the context of %d (policies that drop tokens at "
        "each step, as streamingllm, read any length)",
        n, e->n_ctx);
}

struct watch {
    struct progress bar;
    int64_t done, before, total; /* tokens; before this piece; of all pieces */
};

static int on_progress(void *arg, int64_t done, int64_t total)
{
    struct watch *w = arg;

    (void)total;
    w->done = w->before + done;
    cb_progress_step(&w->bar, w->done, w->total);
    return cb_interrupted();
}

/* *done: tokens that went through the model, also when the rest was stopped. A prompt that is
 * longer than the context has passed cb_check_pieces(). */
static int prefill(struct engine *e, const struct opts *o, const char *label, const int32_t *ids,
                   int n, const struct cb_prefill *how, int *done)
{
    struct cb_prefill h = how ? *how : (struct cb_prefill){ 0 };
    struct watch w = { .total = n };
    int rc = CB_OK;

    if (n > room(e))
        cb_log_note("prompt: %d tokens are read in pieces of at most %d, the context; the policy "
                    "drops tokens after each piece",
                    n, e->n_ctx);
    cb_progress_start(&w.bar, cb_progress_when(o), label, "tokens");
    h.progress = on_progress;
    h.progress_arg = &w;
    for (int at = 0, piece; at < n && !rc; at += piece) {
        const int left = n - at, most = room(e);
        piece = left > most && most > 0 ? most : left;
        w.before = at;
        rc = cb_session_prefill(e->session, ids + at, piece, &h);
    }
    cb_progress_end(&w.bar);
    *done = rc ? (int)w.done : n;
    return rc;
}

int cb_prefill_bar(struct engine *e, const struct opts *o, const char *label, const int32_t *ids,
                   int n, const struct cb_prefill *how)
{
    int done;

    return prefill(e, o, label, ids, n, how, &done);
}

/* ---- text as it comes ---- */

/* Hands out generated text, but holds back a possible beginning of a stop text. */
struct outlet {
    const struct generate *g;
    struct generation *gen;
    struct buf *own;   /* [n_stop] texts of --stop */
    const char **stop; /* [n_stop] the same */
    int n_stop;
    cb_detokenizer *detok;
    size_t given; /* bytes of gen->text that were emitted */
};

static int emit_to(struct outlet *out, size_t end)
{
    const size_t n = end - out->given;
    const char *s = out->gen->text.s + out->given;

    out->given = end;
    return n && out->g->emit ? out->g->emit(out->g->emit_arg, s, n) : CB_OK;
}

/* Adds a token's text; sets *stopped when a stop text is complete. */
static int put_token(struct outlet *out, int32_t id, int *stopped)
{
    struct buf *t = &out->gen->text;
    const char *s, *fresh;
    size_t n, end;

    TRY(cb_detokenizer_push(out->detok, id, &s, &n));
    TRY(cb_buf_put(t, s, n));
    fresh = t->s + out->given;
    end = out->given + cb_stop_find(fresh, t->n - out->given, out->stop, out->n_stop, NULL);
    *stopped = end < t->n;
    if (*stopped) {
        t->n = end;
        t->s[end] = 0;
        return emit_to(out, end);
    }
    return emit_to(out,
                   out->given + cb_stop_safe(fresh, t->n - out->given, out->stop, out->n_stop));
}

/* Hands out the rest at the end: an unfinished character, and text held back for a stop text. */
static int put_rest(struct outlet *out)
{
    const char *s;
    size_t n;

    cb_detokenizer_end(out->detok, &s, &n);
    TRY(cb_buf_put(&out->gen->text, s, n));
    return emit_to(out, out->gen->text.n);
}

/* ---- the loop ---- */

struct loop {
    const struct generate *g;
    struct generation *gen;
    struct outlet out;
    cb_sampler *sampler;
    cb_speculation *speculation; /* NULL: none */
    float *masked;               /* --ignore-eos: [n_vocab] logits without the ends */
};

static const float *next_logits(const struct loop *lp)
{
    return lp->speculation ? cb_speculation_logits(lp->speculation)
                           : cb_session_logits(lp->g->e->session);
}

static int decode(const struct loop *lp, int32_t id)
{
    return lp->speculation ? cb_speculation_decode(lp->speculation, id)
                           : cb_session_decode(lp->g->e->session, id);
}

static int full(const struct loop *lp)
{
    const struct engine *e = lp->g->e;
    const int len =
        lp->speculation ? cb_speculation_len(lp->speculation) : cb_session_len(e->session);

    return len >= e->n_ctx && (lp->speculation || room(e) < 1);
}

static int32_t pick(struct loop *lp)
{
    const struct engine *e = lp->g->e;
    const float *logits = next_logits(lp);
    const int32_t *end;
    int n;

    if (!lp->masked)
        return cb_sampler_pick(lp->sampler, logits);
    memcpy(lp->masked, logits, (size_t)e->info.n_vocab * sizeof *logits);
    n = cb_token_ends(e->model, &end);
    for (int i = 0; i < n; i++)
        lp->masked[end[i]] = -INFINITY;
    return cb_sampler_pick(lp->sampler, lp->masked);
}

static int add_id(struct loop *lp, int32_t id)
{
    struct generation *gen = lp->gen;

    TRY(cb_grow_by_one(&gen->ids, gen->n, sizeof *gen->ids));
    gen->ids[gen->n++] = id;
    cb_sampler_accept(lp->sampler, id);
    return CB_OK;
}

/* Generates one token; sets *reason if it was the last one. */
static int step(struct loop *lp, const char **reason)
{
    const struct generate *g = lp->g;
    const int32_t id = pick(lp);
    int stopped = 0;

    TRY(id); /* a grammar can leave no token */
    if (!lp->masked && cb_token_is_end(g->e->model, id)) {
        *reason = "stop";
        if (!g->keep_turn || full(lp))
            return CB_OK;
        lp->gen->end = id;
        return decode(lp, id);
    }
    TRY(add_id(lp, id));
    TRY(put_token(&lp->out, id, &stopped));
    lp->gen->stopped_text = stopped;
    if (stopped)
        *reason = "stop";
    else if (lp->gen->n == g->max_tokens)
        *reason = "length";
    if (full(lp)) {
        lp->gen->full = !*reason;
        *reason = *reason ? *reason : "length";
        return CB_OK;
    }
    if (*reason && !g->keep_turn)
        return CB_OK;
    lp->gen->n_step++;
    return decode(lp, id);
}

static int steps(struct loop *lp)
{
    const char *reason = lp->g->max_tokens == 0 ? "length" : NULL;
    const double start = cb_now_s();
    int rc = CB_OK;

    while (!rc && !reason) {
        if (cb_interrupted())
            reason = "interrupt";
        else
            rc = step(lp, &reason);
    }
    if (!rc && lp->speculation)
        rc = cb_speculation_end(lp->speculation);
    lp->gen->predicted_s = cb_now_s() - start;
    if (reason)
        lp->gen->finish_reason = reason;
    return rc ? rc : put_rest(&lp->out);
}

static int prompt(struct loop *lp, const int32_t *ids, int n)
{
    const double start = cb_now_s();
    int rc;

    for (int i = 0; i < n; i++)
        cb_sampler_accept(lp->sampler, ids[i]);
    rc = n && !lp->g->fed ? prefill(lp->g->e, lp->g->o, "prompt", ids, n, NULL, &lp->gen->n_prompt)
                          : CB_OK;
    if (!rc && !lp->g->fed)
        cb_context_remember(lp->g->e);
    if (!rc && lp->g->e->grammar) /* after the prompt, which need not follow it */
        rc = cb_sampler_set_grammar(lp->sampler, lp->g->e->model, lp->g->e->grammar);
    lp->gen->prompt_s = cb_now_s() - start;
    return rc;
}

/* --draft and --draft-model, where the policy allows it */
static int open_speculation(struct loop *lp)
{
    struct engine *e = lp->g->e;
    const int most = cb_engine_draft(lp->g->o), mtp = cb_session_draft_mtp(e->session);
    const int asked =
        most || (cb_opt_set(lp->g->o, ARG_DRAFT_MTP) && cb_opt_int(lp->g->o, ARG_DRAFT_MTP));
    const char *why = asked ? cb_speculation_why_not(e->session) : NULL;

    if (why)
        cb_log_note("no drafts (--draft): %s", why);
    else if (asked && !most && !mtp)
        cb_log_note("no drafts (--draft-mtp): the model has no head for later tokens that can be "
                    "used here");
    if (why || (!most && !mtp))
        return CB_OK;
    TRY(cb_speculation_new(e->session, most, &lp->speculation));
    TRY(cb_engine_draft_session(lp->g->o, e, e->n_ctx));
    return e->draft ? cb_speculation_set_draft(lp->speculation, e->draft) : CB_OK;
}

static int open_stops(struct outlet *out)
{
    const struct opts *o = out->g->o;
    const char *const *text = cb_opt_texts(o, ARG_STOP, &out->n_stop);

    out->own = cb_calloc((size_t)out->n_stop + 1, sizeof *out->own);
    out->stop = cb_calloc((size_t)out->n_stop + 1, sizeof *out->stop);
    if (!out->own || !out->stop)
        return CB_ENOMEM;
    for (int i = 0; i < out->n_stop; i++) {
        TRY(cb_put_text(o, text[i], &out->own[i]));
        out->stop[i] = out->own[i].s;
    }
    return CB_OK;
}

static void close_stops(struct outlet *out)
{
    for (int i = 0; out->own && i < out->n_stop; i++)
        cb_buf_free(&out->own[i]);
    free(out->own);
    free(out->stop);
}

static int open_sampler(struct loop *lp)
{
    const struct generate *g = lp->g;
    struct sampling s;
    int rc = cb_sampling_open(g->o, g->e, &s);

    s.p.seed += (uint64_t)g->again;
    lp->gen->seed = s.p.seed;
    if (!rc)
        rc = cb_sampler_new(&s.p, g->e->info.n_vocab, &lp->sampler);
    cb_sampling_close(&s);
    return rc;
}

static int open_loop(struct loop *lp)
{
    const struct generate *g = lp->g;
    lp->out = (struct outlet){ .g = g, .gen = lp->gen };
    TRY(open_stops(&lp->out));
    TRY(cb_buf_put(&lp->gen->text, "", 0));
    TRY(cb_detokenizer_new(g->e->model, 0, &lp->out.detok));
    TRY(open_sampler(lp));
    TRY(open_speculation(lp));
    if (!cb_opt_flag(g->o, ARG_IGNORE_EOS))
        return CB_OK;
    lp->masked = cb_calloc((size_t)g->e->info.n_vocab, sizeof *lp->masked);
    return lp->masked ? CB_OK : CB_ENOMEM;
}

int cb_generate(const struct generate *g, const int32_t *ids, int n, struct generation *out)
{
    struct loop lp = { .g = g, .gen = out };
    int rc;

    *out = (struct generation){ .n_prompt = n, .end = -1, .finish_reason = "interrupt" };
    rc = open_loop(&lp);
    if (!rc)
        rc = prompt(&lp, ids, n);
    if (!rc)
        rc = steps(&lp);
    else if (rc == CB_ECANCEL && cb_interrupted())
        rc = CB_OK;
    if (lp.speculation)
        cb_speculation_get_counts(lp.speculation, &out->drafts);
    cb_speculation_free(lp.speculation);
    close_stops(&lp.out);
    cb_sampler_free(lp.sampler);
    cb_detokenizer_free(lp.out.detok);
    free(lp.masked);
    return rc;
}

void cb_generation_free(struct generation *g)
{
    free(g->ids);
    cb_buf_free(&g->text);
    *g = (struct generation){ 0 };
}

void cb_note_cut(const struct opts *o, const struct generation *g)
{
    if (!strcmp(g->finish_reason, "length") && g->n == cb_opt_int(o, ARG_PREDICT))
        cb_log_note("the answer was cut after %d tokens (-n)", g->n);
}
