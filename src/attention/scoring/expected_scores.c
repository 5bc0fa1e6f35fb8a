/* SPDX-License-Identifier: MIT */
/* expected_scores.c - the attention that future queries are expected to pay to tokens (Devoto et
 * al., 2025). A prompt's queries, turned back to position 0, have a mean and a covariance. The mean
 * rotation of the next positions is applied to both. For queries of that normal distribution the
 * expected weight of a key k is e^(k mean + k covariance k / 2), before the softmax's sum. */
#include <math.h>
#include <string.h>

#include "attention/gram.h"
#include "attention/scoring.h"
#include "attention/state_memory.h"
#include "attention/turned_queries.h"
#include "base/err.h"
#include "scores.h"

enum { KEYS = 8, MAX_HD = KV_MAX_HD }; /* keys read at once */

struct expected {
    float *q;      /* [chunk][n_head * hd] queries turned back to position 0, the host's */
    float *turn;   /* [n_rot / 2][2] cos, sin */
    double *sum;   /* [n_head][hd] */
    double *outer; /* [n_head][hd][hd] sums of products, the lower triangle */
    double *mix;   /* [2][n_rot / 2] mean cos, mean sin of the next positions */
    int64_t n;     /* queries in the sums */
};

static size_t square(const struct attention *a)
{
    const size_t hd = (size_t)a->model->hp.hd;
    return (size_t)a->model->hp.n_head * hd * hd;
}

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER && row->score.future > 0;
}

static int open(struct attention *a, void *state)
{
    const size_t row = cb_attention_row(a), n_rot = (size_t)a->model->hp.n_rot + 2;
    struct expected *x = state;

    x->q = cb_state_alloc(x, (size_t)a->chunk * row, sizeof *x->q);
    x->turn = cb_state_alloc(x, n_rot, sizeof *x->turn);
    x->sum = cb_state_calloc(x, row, sizeof *x->sum);
    x->outer = cb_state_calloc(x, square(a), sizeof *x->outer);
    x->mix = cb_state_calloc(x, n_rot, sizeof *x->mix);
    return CB_OK;
}

/* ---- a prompt's queries ---- */

struct gathering {
    struct expected *x;
    int n, hd;
    size_t row;
};

static void gather_head(void *ctx, int h, int thread)
{
    const struct gathering *g = ctx;
    const size_t head = (size_t)h, hd = (size_t)g->hd;

    (void)thread;
    cb_gram_add(g->x->q + head * hd, g->row, g->n, g->hd, g->x->sum + head * hd,
                g->x->outer + head * hd * hd);
}

static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int first)
{
    struct expected *x = cb_scoring_state(a, c->l);
    const int sink = a->plan[c->l].score.sink, skip = c->pos0 < sink ? sink - c->pos0 : 0;
    struct gathering g = { x, c->n - skip, a->model->hp.hd, cb_attention_row(a) };

    (void)read, (void)lse, (void)first;
    if (c->pos0 == a->bank->n_seen) {
        x->n = 0;
        memset(x->sum, 0, cb_attention_row(a) * sizeof *x->sum);
        memset(x->outer, 0, square(a) * sizeof *x->outer);
    }
    if (g.n < 1)
        return CB_OK;
    cb_device_copy(a->dev, x->q, cb_turned_queries(a, c, skip, c->pos0 + skip, 1),
                   (size_t)g.n * g.row * sizeof *x->q);
    x->n += g.n;
    cb_par_for(a->dev->par, a->model->hp.n_head, gather_head, &g);
    return CB_OK;
}

/* ---- what they are expected to attend to ---- */

/* The mean cos and sin of `future` positions from pos on */
static void mean_rotation(struct attention *a, int l, int pos, int future)
{
    const int table = a->model->layer[l].rope, half = a->model->hp.n_rot / 2;
    struct expected *x = cb_scoring_state(a, l);
    double *c = x->mix, *s = c + half;
    const float *cs = x->turn;

    memset(c, 0, 2 * (size_t)half * sizeof *c);
    for (int i = 0; table >= 0 && i < future; i++) {
        cb_rope_turn(&a->rope[table], pos + i, x->turn);
        for (int f = 0; f < half; f++) {
            c[f] += (double)cs[2 * f] / future;
            s[f] += (double)cs[2 * f + 1] / future;
        }
    }
}

/* x[hd] at a stride, rotated by the mean rotation */
static void rotate(const struct attention *a, int l, double *x, size_t stride)
{
    const int half = a->model->hp.n_rot / 2, pair = a->model->hp.rope_kind == ROPE_PAIR;
    const struct expected *e = cb_scoring_state(a, l);
    const double *c = e->mix, *s = c + half;

    for (int f = 0; a->model->layer[l].rope >= 0 && f < half; f++) {
        double *u = x + (size_t)(pair ? 2 * f : f) * stride;
        double *v = x + (size_t)(pair ? 2 * f + 1 : f + half) * stride;
        const double y = *u;
        *u = y * c[f] - *v * s[f];
        *v = y * s[f] + *v * c[f];
    }
}

/* A head's sums become the mean and, of the exponent k mean + k covariance k / 2, the part that is
 * multiplied twice with the key; both scaled. */
static void expect(struct attention *a, int l, int h)
{
    struct expected *e = cb_scoring_state(a, l);
    const int hd = a->model->hp.hd;
    const double scale = (double)a->model->hp.attn_scale, n = (double)e->n;
    double *mean = e->sum + (size_t)h * (size_t)hd;
    double *cov = e->outer + (size_t)h * (size_t)hd * (size_t)hd;

    for (int i = 0; i < hd; i++)
        mean[i] /= n;
    for (int i = 0; i < hd; i++)
        for (int j = 0; j <= i; j++) {
            const double x = cov[i * hd + j] / n - mean[i] * mean[j];
            cov[i * hd + j] = cov[j * hd + i] = x * scale * scale / 2;
        }
    rotate(a, l, mean, 1);
    for (int i = 0; i < hd; i++)
        rotate(a, l, cov + i * hd, 1);
    for (int j = 0; j < hd; j++)
        rotate(a, l, cov + j, (size_t)hd);
    for (int i = 0; i < hd; i++)
        mean[i] *= scale;
}

struct weighing {
    struct attention *a;
    int l, kv, n, stride;
    float *out; /* of the KV head's first query head */
};

/* z[KEYS] of the keys k[hd][KEYS]. cov is symmetric: twice the lower triangle */
static void weigh(const double *k, int hd, const double *mean, const double *cov, double *z)
{
    for (int t = 0; t < KEYS; t++)
        z[t] = 0;
    for (int i = 0; i < hd; i++) {
        const double *row = cov + (size_t)i * (size_t)hd, *ki = k + (size_t)i * KEYS;
        double y[KEYS] = { 0 };
        for (int j = 0; j < i; j++)
            for (int t = 0; t < KEYS; t++)
                y[t] += row[j] * k[j * KEYS + t];
        for (int t = 0; t < KEYS; t++)
            z[t] += ki[t] * (mean[i] + 2 * y[t] + row[i] * ki[t]);
    }
}

static void weigh_keys(void *ctx, int item, int thread)
{
    const struct weighing *w = ctx;
    const struct expected *e = cb_scoring_state(w->a, w->l);
    const struct store *st = &w->a->bank->store[w->l];
    const int hd = st->hd, group = cb_attention_group(w->a), from = item * KEYS;
    const int n = w->n - from < KEYS ? w->n - from : KEYS;
    float x[KEYS * MAX_HD];
    double k[KEYS * MAX_HD], z[KEYS];

    (void)thread;
    cb_store_get_range(st, w->a->dev, w->kv, 0, from, n, x);
    for (int c = 0; c < hd; c++)
        for (int t = 0; t < KEYS; t++)
            k[c * KEYS + t] = t < n ? (double)x[t * hd + c] : 0;
    for (int g = 0; g < group; g++) {
        const size_t h = (size_t)(w->kv * group + g);
        float *out = w->out + (size_t)g * (size_t)w->stride + (size_t)from;
        weigh(k, hd, e->sum + h * (size_t)hd, e->outer + h * (size_t)hd * (size_t)hd, z);
        for (int t = 0; t < n; t++)
            out[t] = (float)z[t];
    }
}

/* A softmax over all but the first `sink` of z[n], which get 0 */
static void softmax(float *z, int n, int sink)
{
    float max = -INFINITY;
    double sum = 0;

    for (int j = sink; j < n; j++)
        max = z[j] > max ? z[j] : max;
    for (int j = sink; j < n; j++)
        sum += (double)(z[j] = expf(z[j] - max));
    for (int j = 0; j < n; j++)
        z[j] = j < sink ? 0 : (float)((double)z[j] / sum);
}

/* The scores of all slots of layer l, by each query head -> out[n_head][stride] */
static void softmaxes(struct attention *a, int l, float *out, int stride)
{
    const struct score_plan *p = &a->plan[l].score;
    const struct store *st = &a->bank->store[l];
    const struct expected *e = cb_scoring_state(a, l);
    const int group = cb_attention_group(a);

    if (!e->n) { /* a prompt of first tokens alone */
        for (int h = 0; h < a->model->hp.n_head; h++)
            memset(out + (size_t)h * (size_t)stride, 0, (size_t)st->n[h / group] * sizeof *out);
        return;
    }
    mean_rotation(a, l, a->bank->n_seen + a->bank->n_feed, p->future);
    for (int h = 0; h < a->model->hp.n_head; h++)
        expect(a, l, h);
    for (int kv = 0; kv < st->n_kv; kv++) {
        float *row = out + (size_t)(kv * group) * (size_t)stride;
        struct weighing w = { a, l, kv, st->n[kv], stride, row };
        cb_par_for(a->dev->par, (w.n + KEYS - 1) / KEYS, weigh_keys, &w);
        for (int g = 0; g < group; g++)
            softmax(row + (size_t)g * (size_t)stride, w.n, p->sink);
    }
}

/* Row r of the scores, (row[n] + eps) times the lengths of the values of layer l's KV head */
static void by_value(struct attention *a, int l, int kv, float eps, float *row)
{
    const struct store *st = &a->bank->store[l];
    /* where keys are values, the rotated part is no part of the value */
    const int from_dim = st->one_row ? a->model->hp.n_rot : 0;
    float x[KEYS * MAX_HD];

    for (int from = 0; from < st->n[kv]; from += KEYS) {
        const int n = st->n[kv] - from < KEYS ? st->n[kv] - from : KEYS;
        cb_store_get_range(st, a->dev, kv, 1, from, n, x);
        for (int i = 0; i < n; i++) {
            double sum = 0;
            for (int c = from_dim; c < st->hd; c++)
                sum += (double)x[i * st->hd + c] * (double)x[i * st->hd + c];
            row[from + i] = (row[from + i] + eps) * (float)sqrt(sum);
        }
    }
}

static void prompt(struct attention *a, int l, struct scores *out)
{
    const size_t ctx = (size_t)a->bank->n_ctx;
    float *rows = a->scores_at->rows;
    int n_row;

    softmaxes(a, l, a->scores_at->score, a->bank->n_ctx);
    n_row = cb_scores_reduce(a, l, a->scores_at->score);
    for (int r = 0; r < n_row; r++)
        by_value(a, l, r, a->plan[l].score.eps, rows + (size_t)r * ctx);
    cb_scores_hand_over(a, l, rows, a->bank->n_feed, 1, out);
}

const struct scoring cb_scoring_expected = {
    .reads = 1,
    .claims = claims,
    .state = sizeof(struct expected),
    .open = open,
    .chunk = chunk,
    .prompt = prompt,
};
