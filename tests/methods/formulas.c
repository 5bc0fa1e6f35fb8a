/* SPDX-License-Identifier: MIT */
/* formulas.c - which tokens policies drop and merge, from their papers' formulas, in doubles. */
#include "formulas.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kit/toy.h"
#include "text/tok.h"

/* Tokens that are left in layer l, KV head h, ascending -> out, count. */
int cb_ref_left(const struct slow *s, int l, int h, int *out)
{
    int n = 0;
    for (int j = 0; j < s->n; j++)
        if (s->left[cb_slow_at(s, l, h, j)])
            out[n++] = j;
    return n;
}

static void drop(struct slow *s, int l, int h, int tok)
{
    s->left[cb_slow_at(s, l, h, tok)] = 0;
}

void cb_ref_drop_middle(struct slow *s, int l, int sink, int recent)
{
    int tok[CB_REF_CAP];
    for (int h = 0; h < s->hp.n_kv; h++) {
        const int n = cb_ref_left(s, l, h, tok);
        for (int i = sink; i < n - recent; i++)
            drop(s, l, h, tok[i]);
    }
}

/* Down to `keep`: the worst by score of what is neither among the first `sink` nor the last
 * `recent` goes, one by one; of equals by `raw`, then the later. score, raw: [CB_REF_CAP] by token
 */
static void drop_worst(struct slow *s, int l, int h, const double *score, const double *raw,
                       int keep, int sink, int recent)
{
    int tok[CB_REF_CAP], n;

    while ((n = cb_ref_left(s, l, h, tok)) > keep) {
        int w = -1;
        for (int i = sink; i < n - recent; i++) {
            const int a = tok[i];
            if (w < 0 || score[a] < score[w] ||
                (score[a] == score[w] && (raw[a] < raw[w] || (raw[a] == raw[w] && a > w))))
                w = a;
        }
        drop(s, l, h, w);
    }
}

static double heavy[CB_REF_LAYERS][8][CB_REF_CAP]; /* h2o: sums a query head */

void cb_ref_window(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < CB_REF_LAYERS; l++)
        cb_ref_drop_middle(s, l, 0, 24);
}

void cb_ref_dense(struct slow *s, int prompt)
{
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        cb_ref_drop_middle(s, l, 0, 24);
}

void cb_ref_streaming(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < CB_REF_LAYERS; l++)
        cb_ref_drop_middle(s, l, 4, 20);
}

/* a cache that is long enough for holes */
void cb_ref_streaming_long(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < CB_REF_LAYERS; l++)
        cb_ref_drop_middle(s, l, 4, 146);
}

/* Heads 1 and 2 of all layers keep everything. */
void cb_ref_duo(struct slow *s, int prompt)
{
    int tok[CB_REF_CAP];

    (void)prompt;
    for (int i = 0; i < CB_REF_LAYERS * s->hp.n_kv; i++) {
        const int l = i / s->hp.n_kv, h = i % s->hp.n_kv, n = cb_ref_left(s, l, h, tok);
        for (int j = 4; i != 1 && i != 2 && j < n - 20; j++)
            drop(s, l, h, tok[j]);
    }
}

static double steady[CB_REF_LAYERS][4][CB_REF_CAP][3]; /* roco: sum, sum of squares, queries */

/* What a query gives to a token, in the mean over a KV head's query heads */
static double group_p(const struct slow *s, int l, int kv, int i, int j)
{
    const int group = s->hp.n_head / s->hp.n_kv;
    double p = 0;

    for (int g = 0; g < group; g++)
        p += cb_slow_p(s, l, kv * group + g, i, j) / group;
    return p;
}

/* Of the tokens left but for the first 2 and the last 5, the worst by mean (by = 0) or the
 * steadiest (by = 1) that is not marked yet; of equal ones the later, or the earlier */
static int least_of(const struct slow *s, int l, int kv, int by, const char *mark)
{
    int tok[CB_REF_CAP], w = -1;
    const int n = cb_ref_left(s, l, kv, tok);
    double best = INFINITY;

    for (int i = 2; i < n - 5; i++) {
        const double *x = steady[l][kv][tok[i]], mean = x[0] / x[2];
        const double value = by ? sqrt(fmax(x[1] / x[2] - mean * mean, 0)) : mean;
        if (mark[tok[i]] != by && value <= best && (!by || value < best)) {
            best = value;
            w = tok[i];
        }
    }
    return w;
}

/* budget=24,exempt=0.25,sink=2,tail=5 */
void cb_ref_roco(struct slow *s, int prompt)
{
    int tok[CB_REF_CAP];

    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int kv = 0; kv < s->hp.n_kv; kv++) {
            const int n = cb_ref_left(s, l, kv, tok), go = n - 24;
            char feasible[CB_REF_CAP] = { 0 };
            if (prompt && go <= 0)
                continue;
            for (int i = s->feed; i < s->n; i++)
                for (int j = 0; j < n && tok[j] <= i; j++) {
                    const double p = group_p(s, l, kv, i, tok[j]);
                    steady[l][kv][tok[j]][0] += p;
                    steady[l][kv][tok[j]][1] += p * p;
                    steady[l][kv][tok[j]][2] += 1;
                }
            for (int k = 24 - 6 - 2 > go ? 24 - 6 - 2 : go; go > 0 && k > 0; k--) {
                const int t = least_of(s, l, kv, 1, feasible);
                if (t >= 0)
                    feasible[t] = 1;
            }
            for (int k = 0; k < go; k++)
                drop(s, l, kv, least_of(s, l, kv, 0, feasible));
        }
}

/* budget 0: sums alone */
static void h2o(struct slow *s, int mean, int budget)
{
    const int group = s->hp.n_head / s->hp.n_kv;

    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int kv = 0; kv < s->hp.n_kv; kv++) {
            double score[CB_REF_CAP] = { 0 };
            for (int g = 0; g < group; g++)
                for (int j = 0; j < s->n; j++) {
                    double *sum = &heavy[l][kv * group + g][j];
                    for (int i = s->feed > j ? s->feed : j; i < s->n; i++)
                        *sum += cb_slow_p(s, l, kv * group + g, i, j);
                    score[j] = mean ? score[j] + *sum : fmax(score[j], *sum);
                }
            if (budget)
                drop_worst(s, l, kv, score, score, budget, 0, budget / 2);
        }
}

void cb_ref_h2o_first(struct slow *s, int prompt)
{
    h2o(s, 0, prompt ? 0 : 24);
}

void cb_ref_h2o(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 0, 24);
}

void cb_ref_h2o_mean(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 1, 24);
}

void cb_ref_h2o_long(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 0, 140);
}

/* Votes of the last w queries of the feed, pooled over all that is left but the last w -> raw,
 * pooled: [CB_REF_CAP] by token */
static void count_votes(struct slow *s, int l, int kv, int w, int kernel, int max, double *raw,
                        double *pooled)
{
    const int group = s->hp.n_head / s->hp.n_kv;
    int tok[CB_REF_CAP];
    const int n = cb_ref_left(s, l, kv, tok);

    memset(raw, 0, CB_REF_CAP * sizeof *raw);
    memset(pooled, 0, CB_REF_CAP * sizeof *pooled);
    for (int c = 0; c < n - w; c++)
        for (int g = 0; g < group; g++)
            for (int i = s->n - w > s->feed ? s->n - w : s->feed; i < s->n; i++)
                raw[tok[c]] += cb_slow_p(s, l, kv * group + g, i, tok[c]) / group;
    for (int c = 0; c < n - w; c++) {
        double sum = 0, top = 0;
        for (int d = c - kernel / 2; d <= c + kernel / 2; d++)
            if (d >= 0 && d < n - w) {
                sum += raw[tok[d]] / kernel;
                top = fmax(top, raw[tok[d]]);
            }
        pooled[tok[c]] = max ? top : sum;
    }
}

static void votes(struct slow *s, int l, int w, int kernel, int max, int keep)
{
    double raw[CB_REF_CAP], pooled[CB_REF_CAP];

    for (int kv = 0; kv < s->hp.n_kv; kv++) {
        count_votes(s, l, kv, w, kernel, max, raw, pooled);
        drop_worst(s, l, kv, pooled, raw, keep, 0, w);
    }
}

/* Ada-KV: of the tokens past the first `sink` and before the last w, the KV heads of a layer choose
 * `each` a head. Each head's best `own` are safe; the worst of all others goes, until the sum over
 * the heads is right. */
static void rivals(struct slow *s, int l, double raw[8][CB_REF_CAP], double by[8][CB_REF_CAP],
                   int sink, int w, int each, int own)
{
    int tok[CB_REF_CAP], sum = 0;

    for (int kv = 0; kv < s->hp.n_kv; kv++) {
        const int n = cb_ref_left(s, l, kv, tok);
        sum += n > w + sink ? n - w - sink : 0;
        for (int i = 0; i < own; i++) {
            int best = -1;
            for (int c = sink; c < n - w; c++)
                if (by[kv][tok[c]] < 1e9 &&
                    (best < 0 || by[kv][tok[c]] > by[kv][best] ||
                     (by[kv][tok[c]] == by[kv][best] && raw[kv][tok[c]] > raw[kv][best])))
                    best = tok[c];
            if (best >= 0)
                by[kv][best] = 1e9 + 1;
        }
    }
    for (; sum > each * s->hp.n_kv; sum--) {
        int worst = -1, head = 0, slot = 0;
        for (int kv = 0; kv < s->hp.n_kv; kv++) {
            const int n = cb_ref_left(s, l, kv, tok);
            for (int c = sink; c < n - w; c++) {
                const double x = by[kv][tok[c]], y = worst < 0 ? 0 : by[head][worst];
                const double a = raw[kv][tok[c]], b = worst < 0 ? 0 : raw[head][worst];
                if (worst < 0 || x < y || (x == y && (a < b || (a == b && c >= slot)))) {
                    worst = tok[c];
                    head = kv;
                    slot = c;
                }
            }
        }
        drop(s, l, head, worst);
    }
}

static void rival_votes(struct slow *s, int l, int w, int kernel, int max, int each, int own)
{
    static double raw[8][CB_REF_CAP], pooled[8][CB_REF_CAP];

    for (int kv = 0; kv < s->hp.n_kv; kv++)
        count_votes(s, l, kv, w, kernel, max, raw[kv], pooled[kv]);
    rivals(s, l, raw, pooled, 0, w, each, own);
}

void cb_ref_adakv(struct slow *s, int prompt)
{
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        rival_votes(s, l, 8, 5, 0, 16, 3);
}

/* decode=bounded,tail=10 */
void cb_ref_adakv_bounded(struct slow *s, int prompt)
{
    static int first[CB_REF_LAYERS][8];
    int tok[CB_REF_CAP];

    cb_ref_adakv(s, prompt);
    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int h = 0; h < s->hp.n_kv; h++) {
            const int n = cb_ref_left(s, l, h, tok);
            first[l][h] = prompt ? n : first[l][h];
            if (n > first[l][h] + 10)
                drop(s, l, h, tok[first[l][h]]);
        }
}

void cb_ref_snapkv(struct slow *s, int prompt)
{
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        votes(s, l, 8, 5, 0, 24);
}

/* decode=bounded,tail=10: the oldest generated token goes */
void cb_ref_snapkv_bounded(struct slow *s, int prompt)
{
    int tok[CB_REF_CAP];

    cb_ref_snapkv(s, prompt);
    for (int l = 0; l < CB_REF_LAYERS && !prompt; l++)
        for (int h = 0; h < s->hp.n_kv; h++)
            if (cb_ref_left(s, l, h, tok) > 24 + 10)
                drop(s, l, h, tok[24]);
}

/* KeyDiff: of the keys' unit vectors the mean is the anchor; the largest cosines with it go. */
static void keydiff(struct slow *s, int keep, int sink)
{
    const int hd = s->hp.hd;

    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int kv = 0; kv < s->hp.n_kv; kv++) {
            int tok[CB_REF_CAP];
            const int n = cb_ref_left(s, l, kv, tok);
            double anchor[512] = { 0 }, score[CB_REF_CAP] = { 0 }, norm = 0;
            for (int pass = 0; pass < 2; pass++)
                for (int i = 0; i < n; i++) {
                    const double *k = s->k + cb_slow_at(s, l, kv, tok[i]) * (size_t)hd;
                    double length = 0;
                    for (int c = 0; c < hd; c++)
                        length += k[c] * k[c];
                    for (int c = 0; c < hd && !pass; c++)
                        anchor[c] += k[c] / sqrt(length) / n;
                    for (int c = 0; c < hd && pass; c++)
                        score[tok[i]] -= k[c] * anchor[c] / sqrt(length);
                }
            for (int c = 0; c < hd; c++)
                norm += anchor[c] * anchor[c];
            for (int i = 0; i < n; i++)
                score[tok[i]] /= sqrt(norm);
            drop_worst(s, l, kv, score, score, keep, sink, 0);
        }
}

void cb_ref_keydiff(struct slow *s, int prompt)
{
    if (prompt)
        keydiff(s, 24, 2);
}

/* decode=bounded,chunk=32 */
void cb_ref_keydiff_bounded(struct slow *s, int prompt)
{
    int tok[CB_REF_CAP];

    if (prompt || cb_ref_left(s, 0, 0, tok) == 24 + 32)
        keydiff(s, 24, 2);
}

/* z of Expected Attention: the expected logit of each stored token past the first `sink`, for one
 * query head and the `future` positions after the prompt -> z, by token */
static void expected_logits(struct slow *s, int l, int h, int sink, int future, double *z)
{
    enum { HD = 64 };
    const int hd = s->hp.hd, from = s->feed > sink ? s->feed : sink, n = s->n - from;
    const int kv = h / (s->hp.n_head / s->hp.n_kv);
    double mean[HD] = { 0 }, turn[HD][HD] = { { 0 } }, unit[HD], y[HD];

    ck_assert_int_le(hd, HD);
    for (int i = from; i < s->n; i++)
        for (int c = 0; c < hd; c++)
            mean[c] += s->q[cb_slow_query(s, l, h, i) * (size_t)hd + (size_t)c] / n;
    for (int c = 0; c < hd; c++) { /* column c of the mean rotation */
        memset(unit, 0, sizeof unit);
        unit[c] = 1;
        for (int p = s->n; p < s->n + future; p++) {
            cb_slow_rotate(s, unit, p, y);
            for (int r = 0; r < hd; r++)
                turn[r][c] += y[r] / future;
        }
    }
    for (int j = sink; j < s->n; j++) {
        const double *k = s->k + cb_slow_at(s, l, kv, j) * (size_t)hd;
        double back[HD] = { 0 }, spread = 0;
        for (int r = 0; r < hd; r++)
            for (int c = 0; c < hd; c++)
                back[c] += turn[r][c] * k[r];
        z[j] = 0;
        for (int c = 0; c < hd; c++)
            z[j] += back[c] * mean[c] / sqrt(hd);
        for (int i = from; i < s->n; i++) {
            double x = 0;
            for (int c = 0; c < hd; c++)
                x += back[c] * (s->q[cb_slow_query(s, l, h, i) * (size_t)hd + (size_t)c] - mean[c]);
            spread += x * x / n;
        }
        z[j] += spread / (2 * hd);
    }
}

/* budget 24, sink 4, future 16 */
static void expected(struct slow *s, int l, double eps, int own)
{
    static double score[8][CB_REF_CAP];
    const int group = s->hp.n_head / s->hp.n_kv, hd = s->hp.hd;
    int tok[CB_REF_CAP];

    for (int kv = 0; kv < s->hp.n_kv; kv++) {
        const int n = cb_ref_left(s, l, kv, tok);
        memset(score[kv], 0, sizeof score[kv]);
        for (int h = kv * group; h < (kv + 1) * group; h++) {
            double z[CB_REF_CAP], sum = 0;
            expected_logits(s, l, h, 4, 16, z);
            for (int c = 4; c < n; c++)
                sum += exp(z[tok[c]]);
            for (int c = 4; c < n; c++)
                score[kv][tok[c]] += exp(z[tok[c]]) / sum / group;
        }
        for (int c = 4; c < n; c++) {
            const double *v = s->v + cb_slow_at(s, l, kv, tok[c]) * (size_t)hd;
            double length = 0;
            for (int d = 0; d < hd; d++)
                length += v[d] * v[d];
            score[kv][tok[c]] = (score[kv][tok[c]] + eps) * sqrt(length);
        }
    }
    rivals(s, l, score, score, 4, 0, 20, own);
}

void cb_ref_expected(struct slow *s, int prompt)
{
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        expected(s, l, 0.01, 4);
}

void cb_ref_expected_even(struct slow *s, int prompt)
{
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        expected(s, l, 0, 20);
}

/* ---- KVzip ---- */

enum { ZIP_SINK = 4, ZIP_PIECE = 32, ZIP_BUDGET = 24 };
static double zip[CB_REF_LAYERS][8][CB_REF_CAP];

static int put_text(const struct slow *s, const char *text, int flags, int32_t *to, int n)
{
    int32_t *id;
    int m;

    ck_assert_int_eq(cb_tok_encode(s->m->tok, text, strlen(text), flags, &id, &m), 0);
    memcpy(to + n, id, (size_t)m * sizeof *id);
    free(id);
    return n + m;
}

/* The model repeats tokens from..to-1 of a text of n, which it has read. */
static void repeat(struct slow *s, const int32_t *text, int n, int from, int to)
{
    const int group = s->hp.n_head / s->hp.n_kv;
    int32_t id[CB_REF_CAP];
    int m = 0;

    if (from == ZIP_SINK) {
        m = put_text(s, "\n\nRepeat the previous context exactly.", 0, id, m);
    } else {
        m = put_text(s, "\n\nRepeat the part of the previous context exactly, starting with", 0, id,
                     m);
        for (int j = from - 8; j < from; j++)
            id[m++] = text[j];
    }
    if (cb_tok_find(s->m->tok, "<|im_end|>") >= 0) /* the model has a chat form */
        m = put_text(s, "<|im_end|>\n<|im_start|>assistant\n", CB_TOK_SPECIAL, id, m);
    else
        m = put_text(s, "\n", 0, id, m);
    for (int j = from; j < to; j++)
        id[m++] = text[j];
    ck_assert_int_le(n + m, s->cap);
    cb_slow_feed(s, id, m);
    for (int l = 0; l < CB_REF_LAYERS; l++)
        for (int h = 0; h < s->hp.n_head; h++)
            for (int u = n; u < n + m; u++) {
                double sum = 0;
                for (int j = 0; j <= u; j++)
                    if (j < ZIP_SINK || (j >= from && j < to) || j >= n)
                        sum += cb_slow_p(s, l, h, u, j);
                for (int j = from; j < to; j++)
                    zip[l][h / group][j] =
                        fmax(zip[l][h / group][j], cb_slow_p(s, l, h, u, j) / sum);
            }
}

/* The worst of all tokens between the first ones and the last `recent`, in layers first..end-1 */
static void drop_least_repeated(struct slow *s, int first, int end, int recent)
{
    int worst[3] = { -1, 0, 0 };

    for (int l = first; l < end; l++)
        for (int h = 0; h < s->hp.n_kv; h++)
            for (int j = ZIP_SINK; j < s->n - recent; j++)
                if (s->left[cb_slow_at(s, l, h, j)] &&
                    (worst[0] < 0 || zip[l][h][j] <= zip[worst[0]][worst[1]][worst[2]])) {
                    worst[0] = l;
                    worst[1] = h;
                    worst[2] = j;
                }
    drop(s, worst[0], worst[1], worst[2]);
}

/* Only the first prompt is dropped; `step` layers compete. */
static void kvzip(struct slow *s, int step, int recent)
{
    const int n = s->n, feed = s->feed;
    const size_t bytes = (size_t)s->hp.n_vocab * sizeof(double);
    double *logits;

    if (feed > 0)
        return;
    logits = malloc(bytes);
    memcpy(logits, s->logits, bytes);
    memset(zip, 0, sizeof zip);
    for (int from = ZIP_SINK; from < n; from += ZIP_PIECE) {
        repeat(s, cb_toy_text(s->m), n, from, from + ZIP_PIECE < n ? from + ZIP_PIECE : n);
        s->n = n;
    }
    s->feed = feed;
    memcpy(s->logits, logits, bytes);
    free(logits);
    for (int first = 0; first < CB_REF_LAYERS; first += step)
        for (int gone = 0; gone < step * s->hp.n_kv * (n - ZIP_BUDGET); gone++)
            drop_least_repeated(s, first, first + step, recent);
}

void cb_ref_kvzip(struct slow *s, int prompt)
{
    if (prompt)
        kvzip(s, CB_REF_LAYERS, 0);
}

void cb_ref_kvzip_layer(struct slow *s, int prompt)
{
    if (prompt)
        kvzip(s, 1, 6);
}

/* C = 12, alpha = 2, beta = 5, as the specification's toy: 18 13 7 2 for a long prompt */
void cb_ref_pyramid(struct slow *s, int prompt)
{
    static const int toy[CB_REF_LAYERS] = { 18, 13, 7, 2 };
    for (int l = 0; l < CB_REF_LAYERS && prompt; l++)
        votes(s, l, 2, 7, 1, toy[l] + 2);
}

/* Entropy, or by definition the Gini coefficient: the mean difference of two entries of the row,
 * over twice its mean; mean over KV heads, of the last 2 queries */
static double measured(const struct slow *s, int l, int gini)
{
    double all = 0;

    for (int kv = 0; kv < s->hp.n_kv; kv++) {
        const int group = s->hp.n_head / s->hp.n_kv;
        double row[CB_REF_CAP] = { 0 }, sum = 0, x = 0;
        int tok[CB_REF_CAP];
        const int n = cb_ref_left(s, l, kv, tok);
        for (int h = kv * group; h < (kv + 1) * group; h++)
            for (int q = s->n - 2; q < s->n; q++)
                for (int i = 0; i < n && tok[i] <= q; i++)
                    row[i] += cb_slow_p(s, l, h, q, tok[i]);
        for (int i = 0; i < n; i++)
            sum += row[i];
        for (int i = 0; i < n; i++)
            for (int j = 0; gini && j < n; j++)
                x += fabs(row[i] - row[j]) / (2 * n * sum);
        for (int i = 0; i < n && !gini; i++)
            x -= row[i] > 0 ? row[i] / sum * log(row[i] / sum) : 0;
        all += x / s->hp.n_kv;
    }
    return all;
}

/* C = 12, alpha = 2: each layer's part of the sum of 40 chosen tokens after its measure */
static void pyramid_measured(struct slow *s, int prompt, int gini)
{
    double x[CB_REF_LAYERS], part[CB_REF_LAYERS], sum = 0;
    int keep[CB_REF_LAYERS], left = 10 * CB_REF_LAYERS;

    if (!prompt)
        return;
    for (int l = 0; l < CB_REF_LAYERS; l++)
        sum += x[l] = measured(s, l, gini);
    for (int l = 0; l < CB_REF_LAYERS; l++) {
        part[l] = 10 * CB_REF_LAYERS * x[l] / sum;
        left -= keep[l] = (int)part[l];
    }
    for (; left > 0; left--) {
        int best = 0;
        for (int l = 1; l < CB_REF_LAYERS; l++)
            best = part[l] - keep[l] > part[best] - keep[best] ? l : best;
        keep[best]++;
    }
    for (int l = 0; l < CB_REF_LAYERS; l++)
        votes(s, l, 2, 7, 1, keep[l] + 2);
}

void cb_ref_pyramid_entropy(struct slow *s, int prompt)
{
    pyramid_measured(s, prompt, 0);
}

void cb_ref_pyramid_gini(struct slow *s, int prompt)
{
    pyramid_measured(s, prompt, 1);
}

/* decode=bounded,tail=10 */
void cb_ref_pyramid_bounded(struct slow *s, int prompt)
{
    static const int kept[CB_REF_LAYERS] = { 20, 15, 9, 4 };
    int tok[CB_REF_CAP];

    cb_ref_pyramid(s, prompt);
    for (int l = 0; l < CB_REF_LAYERS && !prompt; l++)
        for (int h = 0; h < s->hp.n_kv; h++)
            if (cb_ref_left(s, l, h, tok) > kept[l] + 10)
                drop(s, l, h, tok[kept[l]]);
}

double cb_ref_ends(const struct slow *s, int l, int i, int sink, int recent)
{
    int tok[CB_REF_CAP];
    double sum = 0;

    cb_ref_left(s, l, 0, tok);
    for (int h = 0; h < s->hp.n_head; h++)
        for (int c = 0, n = 0; c <= i; c++) {
            int rank = n, after = 0;
            if (!s->left[cb_slow_at(s, l, 0, c)])
                continue;
            n++;
            for (int d = c + 1; d <= i; d++)
                after += s->left[cb_slow_at(s, l, 0, d)];
            if (rank < sink || after < recent)
                sum += cb_slow_p(s, l, h, i, c);
        }
    return sum / s->hp.n_head;
}

/* d2o: S = 24 beside 2 sinks, three quarters of it heavy hitters; by layer after softmax(-F) */
static struct {
    double acc[CB_REF_LAYERS][8][CB_REF_CAP], f[CB_REF_LAYERS];
    double tau[CB_REF_LAYERS][8][2]; /* by keys, by values */
    int set, waits, heavy[CB_REF_LAYERS], recent[CB_REF_LAYERS], warm[CB_REF_LAYERS][8][2];
} d2o;

static double d2o_spread(const struct slow *s, int l)
{
    double v[8], lo = 1e300, hi = 0, sum = 0;
    int tok[CB_REF_CAP];

    for (int h = 0; h < s->hp.n_head; h++) {
        const int n = cb_ref_left(s, l, h / (s->hp.n_head / s->hp.n_kv), tok);
        double col[CB_REF_CAP] = { 0 }, mean = 0;
        v[h] = 0;
        for (int c = 0; c < n; c++)
            for (int i = s->feed; i < s->n; i++)
                col[c] += i >= tok[c] ? cb_slow_p(s, l, h, i, tok[c]) : 0;
        for (int c = 0; c < n; c++)
            mean += col[c] / n;
        for (int c = 0; c < n; c++)
            v[h] += (col[c] - mean) * (col[c] - mean) / (n - 1);
        lo = fmin(lo, v[h]);
        hi = fmax(hi, v[h]);
    }
    for (int h = 0; h < s->hp.n_head; h++)
        sum += (v[h] - lo) / (hi - lo + 1e-6) / s->hp.n_head;
    return sum;
}

static double cosine(const double *a, const double *b, int n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < n; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    return ab / sqrt(aa * bb);
}

/* Equation 4: variance of the column sums of the heads' mean, for the feed's rows. */
double cb_ref_variance(const struct slow *s, int l)
{
    double col[CB_REF_CAP] = { 0 }, mean = 0, sum = 0;
    int tok[CB_REF_CAP];
    const int n = cb_ref_left(s, l, 0, tok);

    for (int h = 0; h < s->hp.n_head; h++)
        for (int c = 0; c < n; c++)
            for (int i = s->feed > tok[c] ? s->feed : tok[c]; i < s->n; i++)
                col[c] += cb_slow_p(s, l, h, i, tok[c]) / s->hp.n_head;
    for (int c = 0; c < n; c++)
        mean += col[c] / n;
    for (int c = 0; c < n; c++)
        sum += (col[c] - mean) * (col[c] - mean) / (n - 1);
    return sum / ((double)(s->n - s->feed) * (s->n - s->feed) / n);
}

/* How tokens merge: equation 11 and its variants; one layer may keep all. */
struct d2o_how {
    int uniform, keys, protect,
        first; /* protect: the layer, -1 = none; first that takes others in */
    enum { EQ11, PRINTED, CODE, AVERAGE, DROP } rule;
    double share, gate;     /* share: of the tokens, 0 = 24; gate > 0: layers=gate or paper */
    double alpha;           /* of both */
    int paper;              /* dense layers keep alpha S, the others S */
    int first2, first_step; /* layers=first2; drop=first-decode */
    enum { BY_KEYS, BY_VALUES, BY_EACH } similar;
};

/* The budgets of all layers, if they are set now. */
static void d2o_budgets(const struct slow *s, const struct d2o_how *how)
{
    const double of = how->share > 0 ? how->share * s->n : 24;
    double w[CB_REF_LAYERS], sum = 0;

    for (int l = 0; l < CB_REF_LAYERS; l++)
        sum += w[l] = how->uniform || how->first2 ? 1
                      : how->gate > 0             ? (d2o.f[l] <= how->gate ? how->alpha : 1)
                                                  : exp(-d2o.f[l]);
    if (how->paper)
        sum = CB_REF_LAYERS;
    for (int l = 0; l < CB_REF_LAYERS; l++) {
        d2o.heavy[l] = (int)fmax(1, w[l] * CB_REF_LAYERS * of / sum * 0.75);
        d2o.recent[l] = (int)fmax(1, w[l] * CB_REF_LAYERS * of / sum * 0.25);
    }
}

/* What goes into one kept token x[hd], with similarities u[m] and each token's x at from[m] */
static void d2o_into(double *x, const double *const *from, const double *u, int m, int rule, int hd)
{
    double y[64], of = rule == EQ11 || rule == PRINTED ? exp(1) : 1, all = 0;

    ck_assert_int_le(hd, 64);
    for (int i = 0; i < m; i++)
        all += exp(u[i]);
    for (int d = 0; d < hd; d++)
        y[d] = of * x[d];
    for (int i = 0; i < m; i++)
        for (int d = 0; d < hd; d++)
            y[d] += from[i][d] * (rule == EQ11      ? exp(u[i])
                                  : rule == PRINTED ? all
                                  : rule == CODE    ? u[i]
                                                    : 1);
    of += rule == EQ11 || rule == PRINTED ? all : m;
    for (int d = 0; d < hd; d++)
        x[d] = y[d] / of;
}

/* The most similar of the n tokens tok[] for each of out[m], by rows x of the head's tokens ->
 * into, u; returns the mean similarity */
static double most_similar(const double *x, const int *out, int m, const int *tok, int n, int hd,
                           int *into, double *u)
{
    double mean = 0;

    for (int i = 0; i < m; i++) {
        u[i] = -2;
        for (int c = 0; c < n; c++) {
            const double y =
                cosine(x + (size_t)out[i] * (size_t)hd, x + (size_t)tok[c] * (size_t)hd, hd);
            if (y > u[i]) {
                u[i] = y;
                into[i] = tok[c];
            }
        }
        mean += u[i] / m;
    }
    return mean;
}

/* Tokens out[m] of a head have just been dropped: merge those that resemble what is left, by their
 * keys (by = 0) or values; keys, values: which rows are merged */
static void d2o_merge_by(struct slow *s, int l, int h, const int *out, int m,
                         const struct d2o_how *how, int by, int keys, int values)
{
    const int hd = s->hp.hd;
    double *const k = s->k + cb_slow_at(s, l, h, 0) * (size_t)hd;
    double *const v = s->v + cb_slow_at(s, l, h, 0) * (size_t)hd;
    double u[CB_REF_CAP], near[CB_REF_CAP], *tau = &d2o.tau[l][h][by];
    const double *k_of[CB_REF_CAP], *v_of[CB_REF_CAP];
    int into[CB_REF_CAP], tok[CB_REF_CAP];
    const int n = cb_ref_left(s, l, h, tok);
    const double mean = most_similar(by ? v : k, out, m, tok, n, hd, into, u);

    *tau = d2o.warm[l][h][by] ? 0.7 * mean + 0.3 * *tau : mean;
    d2o.warm[l][h][by] = 1;
    for (int c = 0; c < n; c++) {
        int count = 0;
        for (int i = 0; i < m; i++)
            if (into[i] == tok[c] && tok[c] >= how->first && u[i] >= *tau) {
                near[count] = u[i];
                k_of[count] = k + (size_t)out[i] * (size_t)hd;
                v_of[count++] = v + (size_t)out[i] * (size_t)hd;
            }
        if (count && keys)
            d2o_into(k + (size_t)tok[c] * (size_t)hd, k_of, near, count, how->rule, hd);
        if (count && values)
            d2o_into(v + (size_t)tok[c] * (size_t)hd, v_of, near, count, how->rule, hd);
    }
}

static void d2o_merge(struct slow *s, int l, int h, const int *out, int m,
                      const struct d2o_how *how)
{
    if (how->similar != BY_EACH) {
        d2o_merge_by(s, l, h, out, m, how, how->similar == BY_VALUES, how->keys, 1);
        return;
    }
    d2o_merge_by(s, l, h, out, m, how, 0, 1, 0);
    d2o_merge_by(s, l, h, out, m, how, 1, 0, 1);
}

/* Scores of the feed, and at the end of a prompt how dense each layer's attention is. */
static void d2o_look(const struct slow *s, int prompt, const struct d2o_how *how)
{
    const int group = s->hp.n_head / s->hp.n_kv;

    for (int l = 0; l < CB_REF_LAYERS; l++) {
        for (int h = 0; h < s->hp.n_head; h++)
            for (int i = s->feed; i < s->n; i++)
                for (int j = 0; j <= i; j++)
                    d2o.acc[l][h / group][j] += cb_slow_p(s, l, h, i, j);
        if (prompt && !(how->gate > 0 && d2o.set))
            d2o.f[l] = how->gate > 0 ? cb_ref_variance(s, l) : d2o_spread(s, l);
    }
}

static void d2o_run(struct slow *s, int prompt, const struct d2o_how *how)
{
    int was[CB_REF_CAP], out[CB_REF_CAP];
    const int now = prompt ? !how->first_step : d2o.waits;

    d2o_look(s, prompt, how);
    d2o.waits = prompt && how->first_step;
    if (now && (how->share > 0 || !d2o.set))
        d2o_budgets(s, how);
    for (int l = how->first2 ? 2 : 0; l < CB_REF_LAYERS && !d2o.waits; l++)
        for (int h = 0; h < s->hp.n_kv && l != how->protect; h++) {
            const int n = cb_ref_left(s, l, h, was), keep = 2 + d2o.heavy[l] + d2o.recent[l];
            int m = 0;
            drop_worst(s, l, h, d2o.acc[l][h], d2o.acc[l][h], keep, 2, d2o.recent[l]);
            for (int i = 0; i < n; i++)
                if (!s->left[cb_slow_at(s, l, h, was[i])])
                    out[m++] = was[i];
            d2o.set |= m > 0;
            if (m && how->rule != DROP)
                d2o_merge(s, l, h, out, m, how);
        }
}

void cb_ref_d2o(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = EQ11 });
}

void cb_ref_d2o_printed(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = PRINTED });
}

void cb_ref_d2o_code(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = CODE });
}

void cb_ref_d2o_by_values(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1, .protect = -1, .rule = EQ11, .similar = BY_VALUES });
}

void cb_ref_d2o_by_each(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1, .protect = -1, .rule = EQ11, .similar = BY_EACH });
}

void cb_ref_d2o_share(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .share = 0.2 });
}

/* Between the layers' variances; set by d2o_gate() */
double cb_ref_gate_at;

void cb_ref_d2o_gate(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){
                .keys = 1, .protect = -1, .share = 0.2, .gate = cb_ref_gate_at, .alpha = 3 });
}

void cb_ref_d2o_gate_5(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1, .protect = -1, .gate = cb_ref_gate_at, .alpha = 5 });
}

void cb_ref_d2o_paper(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1,
                               .protect = -1,
                               .share = 0.2,
                               .gate = cb_ref_gate_at,
                               .alpha = 2,
                               .paper = 1 });
}

void cb_ref_d2o_first2(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .first2 = 1 });
}

void cb_ref_d2o_late(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1, .protect = -1, .share = 0.2, .first_step = 1 });
}

void cb_ref_d2o_average(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .uniform = 1, .keys = 1, .protect = -1, .rule = AVERAGE });
}

void cb_ref_d2o_drop(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .protect = -1, .rule = DROP });
}

/* two sinks stay as they are */
void cb_ref_d2o_sinks(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .first = 2, .rule = EQ11 });
}

/* keys stay as they are, and layer 2 is left alone */
void cb_ref_d2o_values(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .protect = 2, .rule = EQ11 });
}

void cb_ref_tova(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < CB_REF_LAYERS; l++) {
        double score[CB_REF_CAP] = { 0 };
        for (int h = 0; h < s->hp.n_head; h++)
            for (int j = 0; j < s->n; j++)
                score[j] += cb_slow_p(s, l, h, s->n - 1, j);
        for (int kv = 0; kv < s->hp.n_kv; kv++)
            drop_worst(s, l, kv, score, score, 24, 0, 0);
    }
}

void cb_ref_reset(void)
{
    memset(heavy, 0, sizeof heavy);
    memset(steady, 0, sizeof steady);
    cb_ref_sim_reset();
    memset(&d2o, 0, sizeof d2o);
}
