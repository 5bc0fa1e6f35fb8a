/* SPDX-License-Identifier: MIT */
/* chooser.c - a layer that reads all chooses, at each decoded token, what the layers behind it
 * read: the stored tokens with the largest score of any query head (OmniKV, Hao et al. 2025,
 * section 4.2). The score is a softmax over the candidates alone, from the logits of the layer's
 * own attention; as one query's order is that of the logarithms, nothing need be exponentiated.
 * With a window of queries, rows of past queries are kept and only the newest is computed. */
#include "chooser.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"

/* One choosing layer. */
struct choice {
    int n_cand;    /* tokens that are not in the tail */
    int cand;      /* of them, those outside the window: what is scored */
    int n;         /* slots chosen; -1 = all */
    int32_t *slot; /* [n_ctx] ascending */
    float *q;      /* [window][n_head * hd], position modulo window; NULL when the window is 1 */
    float *row;    /* [window][n_ctx] scores of each of these queries */
    int *row_pos;  /* [window] whose they are; -1 = nobody's */
    int row_cand;  /* over how many candidates they were scored */
};

struct select {
    struct choice *of; /* [n_layer] */
    float *logit;      /* [n_head][n_ctx] */
    float *score;      /* [n_ctx] */
    struct kv_run *run;
};

int cb_selects(const struct read *r)
{
    return r->what == READ_ALL && (r->k > 0 || r->share > 0);
}

/* ---- open ---- */

static int window_of(const struct cb_session *s, int l)
{
    return s->plan[l].want.window > 1 ? s->plan[l].want.window : 1;
}

static int open_window(struct cb_session *s, struct choice *c, int w)
{
    const size_t row = (size_t)s->model->hp.n_head * (size_t)s->model->hp.hd;

    c->q = cb_alloc_aligned((size_t)w * row, sizeof *c->q);
    c->row = cb_alloc_aligned((size_t)w * (size_t)s->n_ctx, sizeof *c->row);
    c->row_pos = cb_calloc((size_t)w, sizeof *c->row_pos);
    return c->q && c->row && c->row_pos ? CB_OK : CB_ENOMEM;
}

int cb_select_open(struct cb_session *s)
{
    const struct hparams *hp = &s->model->hp;
    struct select *se;
    int any = 0;

    for (int l = 0; l < hp->n_layer; l++)
        any |= cb_selects(&s->plan[l].read);
    if (!any)
        return CB_OK;
    if (hp->window)
        return cb_policy_refuse(s->policy, "the model reads only the last %d tokens in every layer",
                                hp->window);
    se = s->select = cb_calloc(1, sizeof *se);
    if (!se)
        return CB_ENOMEM;
    /* pages of these come as the context grows */
    se->of = cb_calloc((size_t)hp->n_layer, sizeof *se->of);
    se->logit = cb_alloc_aligned((size_t)hp->n_head * (size_t)s->n_ctx, sizeof *se->logit);
    se->score = cb_alloc_aligned((size_t)s->n_ctx, sizeof *se->score);
    se->run = cb_calloc((size_t)hp->n_kv, sizeof *se->run);
    if (!se->of || !se->logit || !se->score || !se->run)
        return CB_ENOMEM;
    for (int l = 0; l < hp->n_layer; l++) {
        if (!cb_selects(&s->plan[l].read))
            continue;
        se->of[l].slot = cb_alloc_aligned((size_t)s->n_ctx, sizeof *se->of[l].slot);
        if (!se->of[l].slot)
            return CB_ENOMEM;
        if (window_of(s, l) > 1)
            TRY(open_window(s, &se->of[l], window_of(s, l)));
    }
    cb_select_clear(s);
    return CB_OK;
}

size_t cb_select_bytes(const struct cb_session *s, int n_most)
{
    const size_t nh = (size_t)s->model->hp.n_head, n = (size_t)n_most;
    size_t floats = (nh + 1) * n;

    for (int l = 0; s->select && l < s->model->hp.n_layer; l++) {
        const size_t w = s->select->of[l].q ? (size_t)window_of(s, l) : 0;
        floats += s->select->of[l].slot ? n + w * (nh * (size_t)s->model->hp.hd + n) : 0;
    }
    return s->select ? floats * sizeof(float) : 0;
}

void cb_select_close(struct cb_session *s)
{
    struct select *se = s->select;

    if (!se)
        return;
    for (int l = 0; se->of && l < s->model->hp.n_layer; l++) {
        free(se->of[l].slot);
        free(se->of[l].q);
        free(se->of[l].row);
        free(se->of[l].row_pos);
    }
    free(se->of);
    free(se->logit);
    free(se->score);
    free(se->run);
    free(se);
}

void cb_select_clear(struct cb_session *s)
{
    for (int l = 0; s->select && l < s->model->hp.n_layer; l++) {
        struct choice *c = &s->select->of[l];
        c->n_cand = 0;
        c->n = c->row_cand = -1;
        for (int r = 0; c->row_pos && r < window_of(s, l); r++)
            c->row_pos[r] = -1;
    }
}

/* ---- candidates ---- */

/* How many of n candidates the layer chooses. */
static int k_of(const struct read *r, int n)
{
    const int k = r->share > 0 ? (int)(r->share * n) : r->k;
    return max_int(k, 1);
}

/* The tail's older part joins the candidates when it has grown too long. */
static void move_tail(struct cb_session *s, int l)
{
    struct choice *c = &s->select->of[l];
    const int n = s->store[l].n[0], most = s->plan[l].read.tail;

    c->n_cand = max_int(c->n_cand, s->ctx_end);
    if (n - c->n_cand > most)
        c->n_cand = max_int(c->n_cand, n - (most ? window_of(s, l) : 1));
}

float *cb_select_logits(struct cb_session *s, int l)
{
    struct choice *c = &s->select->of[l];
    const int n = s->store[l].n[0];

    move_tail(s, l);
    /* what the window holds of the candidates is always read */
    c->cand = min_int(c->n_cand, max_int(0, n - window_of(s, l)));
    c->n = -1;
    return k_of(&s->plan[l].read, c->n_cand) < c->n_cand ? s->select->logit : NULL;
}

void cb_select_chunk(struct cb_session *s, int l, const float *q, int stride, int n, int pos0)
{
    const size_t row = (size_t)s->model->hp.n_head * (size_t)s->model->hp.hd;
    const int w = window_of(s, l);
    struct choice *c = &s->select->of[l];

    for (int i = max_int(0, n - w); c->q && i < n; i++) {
        const int at = (pos0 + i) % w;
        memcpy(c->q + (size_t)at * row, q + (size_t)i * (size_t)stride, row * sizeof *q);
        c->row_pos[at] = -1;
    }
}

/* ---- scores ---- */

/* Logits of one query -> out[cand]: the largest of all heads; with a softmax, its logarithm. */
static void score_row(struct cb_session *s, int l, float *out)
{
    s->dev->ops->best_head(s->dev, s->select->logit, s->n_ctx, s->model->hp.n_head,
                           s->select->of[l].cand, s->plan[l].want.norm != NORM_LOGIT, out);
}

/* ---- a window of queries ---- */

/* The logits of the query at position pos, which may stand before some candidates. */
static void past_logits(struct cb_session *s, int l, int pos)
{
    const struct hparams *hp = &s->model->hp;
    const struct choice *c = &s->select->of[l];
    const size_t row = (size_t)hp->n_head * (size_t)hp->hd;
    const struct score sc = { .a = { .n_tok = 1,
                                     .n_head = hp->n_head,
                                     .n_kv = hp->n_kv,
                                     .hd = hp->hd,
                                     .scale = 1.0f / sqrtf((float)hp->hd),
                                     .type_k = s->store[l].type_k,
                                     .type_v = s->store[l].type_v,
                                     .run = s->select->run,
                                     .q = c->q + (size_t)(pos % window_of(s, l)) * row,
                                     .q_stride = (int)row },
                              .logit = 1,
                              .out = s->select->logit,
                              .out_stride = s->n_ctx };

    for (int h = 0; h < hp->n_kv; h++)
        s->select->run[h] = cb_store_run(&s->store[l], h, 0, c->cand);
    for (int h = 0; h < hp->n_head; h++)
        memset(s->select->logit + (size_t)h * (size_t)s->n_ctx, 0, (size_t)c->cand * sizeof(float));
    s->dev->ops->score(s->dev, &sc);
}

static void exp_row(const struct cb_session *s, int l, float *row, int n)
{
    for (int j = 0; s->plan[l].want.norm == NORM_SOFTMAX && j < n; j++)
        row[j] = expf(row[j]);
}

/* Scores of each query of the window, those that are not there yet; their weighted sum -> score. */
static void score_window(struct cb_session *s, int l)
{
    struct choice *c = &s->select->of[l];
    const int w = window_of(s, l), n = s->store[l].n[0];
    const float decay = s->plan[l].want.decay > 0 ? s->plan[l].want.decay : 1;
    float weight = 1;

    for (int pos = n - 1; pos >= max_int(0, n - w); pos--, weight *= decay) {
        const int at = pos % w;
        float *row = c->row + (size_t)at * (size_t)s->n_ctx;
        if (c->row_pos[at] != pos || c->row_cand != c->cand) {
            if (pos < n - 1)
                past_logits(s, l, pos);
            score_row(s, l, row);
            exp_row(s, l, row, c->cand);
            c->row_pos[at] = pos;
        }
        for (int j = 0; j < c->cand; j++)
            s->select->score[j] = (pos < n - 1 ? s->select->score[j] : 0) + weight * row[j];
    }
    c->row_cand = c->cand;
}

void cb_select_step(struct cb_session *s, int l, const float *q)
{
    struct choice *c = &s->select->of[l];
    const int n = s->store[l].n[0], in_window = c->n_cand - c->cand;
    const int k = min_int(c->cand, max_int(1, k_of(&s->plan[l].read, c->n_cand) - in_window));

    cb_select_chunk(s, l, q, 0, 1, n - 1);
    if (window_of(s, l) > 1)
        score_window(s, l);
    else
        score_row(s, l, s->select->score);
    s->dev->ops->topk(s->dev, s->select->score, c->cand, k, c->slot);
    c->n = k;
    for (int j = c->cand; j < n; j++)
        c->slot[c->n++] = j;
    if (c->n == n)
        c->n = -1;
}

const int32_t *cb_select_slots(const struct cb_session *s, int l, int *n)
{
    const struct choice *c = &s->select->of[l];
    *n = c->n;
    return c->n < 0 ? NULL : c->slot;
}

int cb_select_reads(const struct cb_session *s, int l, int n, int n_prompt)
{
    const struct read *r = &s->plan[l].read;
    int k, tail;

    if (r->what != READ_AS)
        return n;
    r = &s->plan[r->as].read;
    k = k_of(r, n_prompt);
    tail = n - n_prompt;
    return k < n_prompt && tail <= r->tail ? k + tail : min_int(n, k + min_int(tail, r->tail));
}
