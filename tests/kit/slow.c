/* SPDX-License-Identifier: MIT */
/* slow.c - a simple forward pass in doubles, one token and one head at a time. */
#include "slow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p)
        abort();
    return p;
}

struct slow *cb_slow_new(const struct cb_model *m, int cap)
{
    struct slow *s = zeroed(1, sizeof *s);
    const size_t n = (size_t)m->hp.n_layer * (size_t)m->hp.n_kv * (size_t)cap * (size_t)m->hp.hd;

    s->m = m;
    s->hp = m->hp;
    s->cap = cap;
    if (cb_rope_open(&s->rope, &m->hp.rope[0], cap))
        abort();
    s->raw = zeroed(n, sizeof(double));
    s->k = zeroed(n, sizeof(double));
    s->v = zeroed(n, sizeof(double));
    s->q = zeroed(n / (size_t)m->hp.n_kv * (size_t)m->hp.n_head, sizeof(double));
    s->left = zeroed(n / (size_t)m->hp.hd, 1);
    s->gone = zeroed((size_t)cap, 1);
    s->p = zeroed((size_t)m->hp.n_layer * (size_t)m->hp.n_head * (size_t)cap * (size_t)cap,
                  sizeof(double));
    s->logits = zeroed((size_t)m->hp.n_vocab, sizeof(double));
    return s;
}

void cb_slow_free(struct slow *s)
{
    cb_rope_close(&s->rope);
    free(s->raw);
    free(s->k);
    free(s->v);
    free(s->q);
    free(s->left);
    free(s->gone);
    free(s->p);
    free(s->logits);
    free(s);
}

static void row(const struct weight *w, int i, float *y)
{
    const char *raw = w->raw;
    cb_dtype[w->type].to_f32(raw + (size_t)i * cb_row_bytes(w->type, w->n_in), y, w->n_in);
}

static void product(const struct weight *w, const float *bias, const double *x, double *y)
{
    float *r = zeroed((size_t)w->n_in, sizeof *r);

    for (int i = 0; i < w->n_out; i++) {
        double sum = bias ? (double)bias[i] : 0;
        row(w, i, r);
        for (int j = 0; j < w->n_in; j++)
            sum += (double)r[j] * x[j];
        y[i] = sum;
    }
    free(r);
}

static void norm(const struct slow *s, const double *x, const float *w, double *y)
{
    double sum = 0;

    for (int i = 0; i < s->hp.n_embd; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < s->hp.n_embd; i++)
        y[i] = x[i] / sqrt(sum / s->hp.n_embd + (double)s->hp.norm_eps) * (double)w[i];
}

/* x[hd] of one head, rotated to a position -> y */
void cb_slow_rotate(const struct slow *s, const double *x, int pos, double *y)
{
    const int half = s->hp.n_rot / 2, pair = s->m->arch->rope == ROPE_PAIR;

    memcpy(y, x, (size_t)s->hp.hd * sizeof *y);
    for (int i = 0; i < half; i++) {
        const int a = pair ? 2 * i : i, b = pair ? a + 1 : i + half;
        const double t = pos * (double)s->rope.inv_freq[i];
        y[a] = x[a] * cos(t) - x[b] * sin(t);
        y[b] = x[a] * sin(t) + x[b] * cos(t);
    }
}

/* Attention of token t's query head h, raw[hd] -> out[hd]; also writes its row of p. */
static void attend(struct slow *s, int l, int h, int t, const double *raw, double *out)
{
    const int kv = h / (s->hp.n_head / s->hp.n_kv), hd = s->hp.hd;
    double *p =
        s->p + (((size_t)l * (size_t)s->hp.n_head + (size_t)h) * (size_t)s->cap + (size_t)t) *
                   (size_t)s->cap;
    double *q = zeroed((size_t)hd, sizeof *q), *k = zeroed((size_t)hd, sizeof *k), sum = 0;
    double max = -INFINITY;
    int rank = 0, n = 0;

    memcpy(s->q + cb_slow_query(s, l, h, t) * (size_t)hd, raw, (size_t)hd * sizeof *raw);
    for (int j = 0; j <= t; j++)
        n += s->left[cb_slow_at(s, l, kv, j)];
    cb_slow_rotate(s, raw, s->rolling ? n - 1 : t, q);
    for (int j = 0; j <= t; j++) {
        const size_t at = cb_slow_at(s, l, kv, j) * (size_t)hd;
        double x = 0;
        if (!s->left[cb_slow_at(s, l, kv, j)] || (s->window && j <= t - s->window)) {
            p[j] = -INFINITY;
            continue;
        }
        if (s->rolling)
            cb_slow_rotate(s, s->raw + at, rank++, k);
        else if (s->ceiling && t - j > s->ceiling)
            cb_slow_rotate(s, s->raw + at, t - s->ceiling, k);
        else
            memcpy(k, s->k + at, (size_t)hd * sizeof *k);
        for (int d = 0; d < hd; d++)
            x += q[d] * k[d];
        p[j] = x / sqrt((double)hd);
        max = fmax(max, p[j]);
    }
    for (int j = 0; j <= t; j++)
        sum += p[j] = exp(p[j] - max);
    memset(out, 0, (size_t)hd * sizeof *out);
    for (int j = 0; j <= t; j++) {
        p[j] /= sum;
        for (int d = 0; d < hd; d++)
            out[d] += p[j] * s->v[cb_slow_at(s, l, kv, j) * (size_t)hd + (size_t)d];
    }
    free(q);
    free(k);
}

static void add(double *x, const double *y, int n)
{
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void layer(struct slow *s, int l, int t, double *x)
{
    const struct hparams *hp = &s->hp;
    const struct layer *y = &s->m->layer[l];
    const size_t ne = (size_t)hp->n_embd, nq = (size_t)(hp->n_head * hp->hd);
    const size_t nkv = (size_t)(hp->n_kv * hp->hd), nf = (size_t)hp->n_ff;
    double *b = zeroed(3 * ne + 2 * nq + 2 * nkv + 2 * nf, sizeof *b), *nx = b, *o = nx + ne;
    double *q = o + ne, *k = q + nq, *v = k + nkv, *att = v + nkv, *g = att + nq, *u = g + nf;

    norm(s, x, y->attn_norm.w, nx);
    product(&y->q, y->q_bias, nx, q);
    if (!y->kv_back) {
        product(&y->k, y->k_bias, nx, k);
        product(&y->v, y->v_bias, nx, v);
    }
    for (int h = 0; h < hp->n_kv; h++) {
        const size_t at = cb_slow_at(s, l, h, t), n = (size_t)hp->hd;
        const size_t of = cb_slow_at(s, l - y->kv_back, h, t) * n;
        if (y->kv_back) { /* all tokens of the feed have gone through that layer */
            memcpy(k + (size_t)h * n, s->raw + of, n * sizeof *k);
            memcpy(v + (size_t)h * n, s->v + of, n * sizeof *v);
        }
        memcpy(s->raw + at * n, k + (size_t)h * n, n * sizeof *k);
        memcpy(s->v + at * n, v + (size_t)h * n, n * sizeof *v);
        cb_slow_rotate(s, k + (size_t)h * n, t, s->k + at * n);
        s->left[at] = 1;
    }
    for (int h = 0; h < hp->n_head; h++)
        attend(s, l, h, t, q + h * hp->hd, att + h * hp->hd);
    product(&y->o, y->o_bias, att, o);
    add(x, o, hp->n_embd);
    norm(s, x, y->ffn_norm.w, nx);
    product(&y->ffn.gate, NULL, nx, g);
    product(&y->ffn.up, NULL, nx, u);
    for (int i = 0; i < hp->n_ff; i++)
        g[i] *= u[i] / (1 + exp(-g[i]));
    product(&y->ffn.down, NULL, g, o);
    add(x, o, hp->n_embd);
    free(b);
}

void cb_slow_feed(struct slow *s, const int32_t *tokens, int n)
{
    const size_t ne = (size_t)s->hp.n_embd;
    double *x = zeroed(((size_t)n + 1) * ne, sizeof *x), *last = x + ((size_t)n - 1) * ne;
    float *e = zeroed(ne, sizeof *e);

    s->feed = s->n;
    s->n += n;
    for (int i = 0; i < n; i++) {
        row(&s->m->embd, tokens[i], e);
        for (size_t d = 0; d < ne; d++)
            x[(size_t)i * ne + d] = (double)e[d];
    }
    memset(s->gone, 0, (size_t)s->cap);
    for (int l = 0; l < s->hp.n_layer; l++) {
        for (int i = 0; i < n; i++)
            if (!s->gone[s->feed + i])
                layer(s, l, s->feed + i, x + (size_t)i * ne);
        if (s->pass)
            s->pass(s, l);
    }
    norm(s, last, s->m->out_norm.w, last + ne);
    product(&s->m->output, NULL, last + ne, s->logits);
    free(x);
    free(e);
}
