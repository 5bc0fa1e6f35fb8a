/* SPDX-License-Identifier: MIT */
/* cl_attention.c - attention and scores on an OpenCL device. Rows of the bank are read from the
 * mirror. Entries that are not there are left to the CPU, which attends to them meanwhile; the two
 * parts are joined by their log-sum-exp. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "cl.h"
#include "cl_runs.h"

enum { NQ = 8, NB = 64, SPLIT = 1024, MOST_HD = 512 };

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static int64_t q_span(const struct attn *a)
{
    return (int64_t)(a->n_tok - 1) * a->q_stride + (int64_t)a->n_head * a->hd;
}

static struct cl_program *program(struct cl *c, const struct attn *a)
{
    int kivi = 0;
    char options[96];

    for (int h = 0; h < a->n_kv; h++)
        kivi |= a->run[h].kivi != NULL;
    snprintf(options, sizeof options, "-DTYPE_K=%d -DTYPE_V=%d -DHD=%d -DKIVI=%d", (int)a->type_k,
             (int)a->type_v, a->hd, kivi);
    return cb_cl_program(c, CL_ATTENTION, options);
}

/* ---- on the CPU ---- */

/* The whole of an op whose rows the device does not have */
static void attend_on_host(struct cl *c, const struct attn *a)
{
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    struct attn host = *a;
    float *q = cb_cl_to_host(c, a->q, floats(q_span(a)));

    host.q = q;
    host.out = cb_cl_to_host(c, a->out, floats(rows * a->hd));
    host.lse = cb_cl_to_host(c, a->lse, floats(rows));
    if (!c->status) {
        c->host.ops->attention(&c->host, &host, 1);
        for (int h = 0; h < a->n_kv; h++)
            c->traffic.host_rows += (uint64_t)a->run[h].n;
    }
    cb_cl_from_host(c, a->out, host.out, floats(rows * a->hd));
    cb_cl_from_host(c, a->lse, host.lse, floats(rows));
    if (q != a->q)
        free(q);
}

/* Some entries of each run, one piece of each at a time */
struct rest {
    const struct attn *a;
    const struct cl_runs *runs;
    struct kv_run *run;   /* [n_kv] */
    float *q, *out, *lse; /* of all pieces so far */
    float *out2, *lse2;
};

/* The i-th missing piece of each head's run; 0: there is none. */
static int rest_piece(struct rest *r, int i)
{
    int any = 0;

    for (int h = 0; h < r->a->n_kv; h++) {
        int lo, hi;
        r->run[h] = r->a->run[h];
        r->run[h].n = 0;
        if (!cb_cl_runs_missing(r->runs, h, i, &lo, &hi))
            continue;
        any = 1;
        r->run[h] = cb_cl_run_part(r->a, h, lo, hi);
    }
    return any;
}

static int rest_open(struct cl *c, struct rest *r)
{
    const struct attn *a = r->a;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;

    r->run = cb_calloc((size_t)a->n_kv, sizeof *r->run);
    r->out = cb_alloc_aligned((size_t)(2 * rows * (a->hd + 1)), sizeof *r->out);
    r->q = cb_cl_to_host(c, a->q, floats(q_span(a)));
    if (!r->run || !r->out || !r->q) {
        cb_cl_fail(c, "attention", CL_OUT_OF_HOST_MEMORY);
        return 0;
    }
    r->lse = r->out + rows * a->hd;
    r->out2 = r->lse + rows;
    r->lse2 = r->out2 + rows * a->hd;
    return 1;
}

static void rest_close(struct rest *r)
{
    free(r->run);
    free(r->out);
    if (r->q != r->a->q)
        free(r->q);
}

/* Attention over what is missing -> out, lse */
static void rest_attend(struct cl *c, struct rest *r)
{
    struct attn part = *r->a;

    part.causal = part.window = 0; /* every query sees what is missing */
    part.run = r->run;
    part.q = r->q;
    for (int i = 0; rest_piece(r, i); i++) {
        part.out = i ? r->out2 : r->out;
        part.lse = i ? r->lse2 : r->lse;
        c->host.ops->attention(&c->host, &part, 1);
        if (i)
            c->host.ops->join(&c->host, r->out, r->lse, r->out2, r->lse2, part.n_tok * part.n_head,
                              part.hd);
        for (int h = 0; h < part.n_kv; h++)
            c->traffic.host_rows += (uint64_t)r->run[h].n;
    }
}

/* ---- on the device ---- */

struct call {
    const struct attn *a;
    struct cl_runs runs;
    float *q, *out, *lse; /* on the device */
    int n_split;
};

/* Logits that heads share with the host: [n_head][stride], dense rows on the device */
static int share_logits(struct cl *c, struct call *x)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv;
    int most = 0, any = 0;

    for (int h = 0; h < a->n_kv; h++) {
        any |= a->run[h].logit != NULL;
        most = max_int(most, a->run[h].n);
    }
    for (int h = 0; any && h < a->n_kv; h++) {
        const struct kv_run *run = &a->run[h];
        float *on = run->logit ? cb_cl_room_for(c, floats((int64_t)group * most)) : NULL;
        x->runs.logit[h] = on;
        for (int g = 0; on && run->given && g < group; g++)
            cb_cl_send(c, on + (size_t)g * (size_t)most,
                       run->logit + (size_t)g * (size_t)a->logit_stride, floats(run->n));
    }
    return most;
}

/* Present entries' logits -> the host, which writes the others itself */
static void return_logits(struct cl *c, const struct call *x, int stride)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv;

    for (int h = 0; h < a->n_kv; h++) {
        const struct kv_run *run = &a->run[h];
        const float *on = x->runs.logit[h];
        for (int i = 0, from = 0, lo, hi; on && !run->given && from < run->n; i++, from = hi) {
            if (!cb_cl_runs_missing(&x->runs, h, i, &lo, &hi))
                lo = hi = run->n;
            c->owes = 1;
            for (int g = 0; g < group && lo > from; g++)
                cb_cl_fetch(c, run->logit + (size_t)g * (size_t)a->logit_stride + from,
                            on + (size_t)g * (size_t)stride + from, floats(lo - from));
        }
    }
}

static void launch(struct cl *c, struct cl_program *p, struct call *x, int logit_stride)
{
    const struct attn *a = x->a;
    const int group = a->n_head / a->n_kv;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    const size_t groups[3] = { (size_t)x->n_split, ((size_t)a->n_tok * (size_t)group + NQ - 1) / NQ,
                               (size_t)a->n_kv };
    const struct cl_arg arg[] = { CL_P(x->runs.on),
                                  CL_P(x->q),
                                  CL_I(a->q_stride),
                                  CL_I(a->n_tok),
                                  CL_I(a->n_head),
                                  CL_I(group),
                                  CL_F(a->scale),
                                  CL_F(a->softcap),
                                  CL_I(a->causal),
                                  CL_I(a->window),
                                  CL_I(x->n_split > 1 ? SPLIT : INT32_MAX / 2),
                                  CL_I(logit_stride),
                                  CL_P(x->out),
                                  CL_P(x->lse) };

    cb_cl_run(c, p, "attend", groups, NB, arg, 14, x->runs.deep);
    if (x->n_split > 1)
        cb_cl_join_parts(c, x->out, x->lse, x->out + rows * a->hd, x->lse + rows, x->n_split - 1,
                         rows * a->hd, rows, (int)rows, a->hd);
}

/* The CPU's part joins. */
static void add_rest(struct cl *c, struct call *x)
{
    const struct attn *a = x->a;
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    struct rest r = { .a = a, .runs = &x->runs };

    if (!x->runs.missing)
        return;
    clFlush(c->queue);
    if (rest_open(c, &r)) {
        rest_attend(c, &r);
        cb_cl_join_parts(c, x->out, x->lse, cb_cl_in(c, r.out, floats(rows * a->hd)),
                         cb_cl_in(c, r.lse, floats(rows)), 1, 0, 0, (int)rows, a->hd);
    }
    cb_cl_finish(c);
    rest_close(&r);
}

static void give(struct cl *c, float *to, const float *from, size_t bytes)
{
    if (!to || to == from || c->status)
        return;
    if (cb_cl_is_on(c, to))
        cb_cl_move(c, to, from, bytes);
    else
        cb_cl_back(c, to, bytes, from, bytes, bytes, 1);
}

static int longest(const struct attn *a)
{
    int n = 0;

    for (int h = 0; h < a->n_kv; h++)
        n = max_int(n, a->run[h].n);
    return n;
}

/* 1: done; 0: the CPU has to do all of it */
static int attend(struct cl *c, struct cl_program *p, const struct attn *a)
{
    const int64_t rows = (int64_t)a->n_tok * a->n_head;
    struct call x = { .a = a };
    int stride, ok;

    x.n_split = a->n_tok == 1 ? max_int(1, (longest(a) + SPLIT - 1) / SPLIT) : 1;
    x.q = cb_cl_in(c, a->q, floats(q_span(a)));
    x.out = x.n_split == 1 && cb_cl_is_on(c, a->out)
                ? a->out
                : cb_cl_room_for(c, floats(x.n_split * rows * a->hd));
    x.lse = x.n_split == 1 && a->lse && cb_cl_is_on(c, a->lse)
                ? a->lse
                : cb_cl_room_for(c, floats(x.n_split * rows));
    if (!cb_cl_runs_open(c, &x.runs, a))
        return 0;
    stride = share_logits(c, &x);
    ok = cb_cl_runs_find(c, &x.runs) && !c->status;
    if (ok) {
        launch(c, p, &x, stride);
        return_logits(c, &x, stride);
        add_rest(c, &x);
        give(c, a->out, x.out, floats(rows * a->hd));
        give(c, a->lse, x.lse, floats(rows));
    }
    cb_cl_runs_close(c, &x.runs);
    cb_cl_done(c);
    return ok || c->status;
}

static void attend_call(struct cl *c, const struct attn *a)
{
    struct cl_program *p;

    if (c->status || a->n_tok < 1)
        return;
    p = a->hd <= MOST_HD ? program(c, a) : NULL;
    if (!p)
        cb_cl_say(c, 1, "the CPU attends: the kernel for this model does not compile");
    if (!p || !attend(c, p, a))
        attend_on_host(c, a);
}

void cb_cl_attention(struct device *d, const struct attn *a, int n)
{
    for (int i = 0; i < n; i++)
        attend_call(cb_cl_of(d), &a[i]);
}

/* ---- scores ---- */

static int score_rows(const struct score *s)
{
    return s->peak ? 1 : s->a.n_head / (s->per ? s->per : 1);
}

static void score_on_host(struct cl *c, const struct score *s)
{
    const size_t q_bytes = s->a.q ? floats(q_span(&s->a)) : 0;
    struct score host = *s;
    float *q = cb_cl_to_host(c, s->a.q, q_bytes);

    host.a.q = q;
    cb_cl_finish(c);
    if (!c->status)
        c->host.ops->score(&c->host, &host);
    if (q != s->a.q)
        free(q);
}

static int score(struct cl *c, struct cl_program *p, const struct score *s)
{
    const struct attn *a = &s->a;
    const int n = longest(a), rows = score_rows(s), group = a->n_head / a->n_kv;
    const int64_t queries = (int64_t)a->n_tok * a->n_head;
    const size_t groups[3] = { ((size_t)n + NB - 1) / NB, (size_t)a->n_kv, 1 };
    const float *q = cb_cl_in(c, a->q, floats(q_span(a)));
    const float *lse = cb_cl_in(c, s->logit ? NULL : a->lse, floats(queries));
    const float *weight = cb_cl_in(c, s->weight, floats(a->n_tok));
    float *out = cb_cl_room_for(c, floats((int64_t)rows * n));
    struct cl_runs runs;
    int ok;

    if (!cb_cl_runs_open(c, &runs, a))
        return 0;
    ok = cb_cl_runs_find(c, &runs) && !runs.missing && !c->status;
    for (int r = 0; ok && r < rows; r++)
        cb_cl_send(c, out + (size_t)r * (size_t)n, s->out + (size_t)r * (size_t)s->out_stride,
                   floats(n));
    if (ok) {
        const struct cl_arg arg[] = { CL_P(runs.on),     CL_P(q),
                                      CL_I(a->q_stride), CL_I(a->n_tok),
                                      CL_I(a->n_head),   CL_I(group),
                                      CL_F(a->scale),    CL_F(a->softcap),
                                      CL_I(a->causal),   CL_I(a->window),
                                      CL_P(lse),         CL_P(weight),
                                      CL_I(s->logit),    CL_I(s->per ? s->per : 1),
                                      CL_P(out),         CL_I(n) };
        cb_cl_run(c, p, "score", groups, NB, arg, 16, runs.deep);
        cb_cl_back(c, s->out, floats(s->out_stride), out, floats(n), floats(n), rows);
    }
    cb_cl_runs_close(c, &runs);
    cb_cl_done(c);
    return ok || c->status;
}

/* Scores of logits that the host has, and the largest over heads, are the CPU's. */
void cb_cl_score(struct device *d, const struct score *s)
{
    struct cl *c = cb_cl_of(d);
    struct cl_program *p;
    int given = 0;

    if (c->status || s->a.n_tok < 1 || longest(&s->a) < 1)
        return;
    for (int h = 0; h < s->a.n_kv; h++)
        given |= s->a.run[h].given;
    p = !given && !s->peak && s->a.hd <= MOST_HD ? program(c, &s->a) : NULL;
    if (!p || !score(c, p, s))
        score_on_host(c, s);
}
