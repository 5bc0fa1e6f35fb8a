/* SPDX-License-Identifier: MIT */
/* formulas.c - which tokens policies drop and merge, from their papers' formulas, in doubles. */
#include "formulas.h"

#include <check.h>
#include <math.h>
#include <string.h>

/* Tokens that are left in layer l, KV head h, ascending -> out, count. */
int cb_ref_left(const struct slow *s, int l, int h, int *out)
{
    int n = 0;
    for (int j = 0; j < s->n; j++)
        if (s->left[cb_slow_at(s, l, h, j)])
            out[n++] = j;
    return n;
}

void cb_ref_drop(struct slow *s, int l, int h, int tok)
{
    s->left[cb_slow_at(s, l, h, tok)] = 0;
}

void cb_ref_drop_middle(struct slow *s, int l, int sink, int recent)
{
    int tok[CB_REF_CAP];
    for (int h = 0; h < s->hp.n_kv; h++) {
        const int n = cb_ref_left(s, l, h, tok);
        for (int i = sink; i < n - recent; i++)
            cb_ref_drop(s, l, h, tok[i]);
    }
}

void cb_ref_drop_worst(struct slow *s, int l, int h, const double *score, const double *raw,
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
        cb_ref_drop(s, l, h, w);
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
            cb_ref_drop(s, l, h, tok[j]);
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

/* The token with the least mean (by = 0) or the steadiest one (by = 1) that is not marked yet,
 * among those left but for the first 2 and the last 5; the later of equal means, the earlier of
 * equally steady ones */
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
                cb_ref_drop(s, l, kv, least_of(s, l, kv, 0, feasible));
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
                cb_ref_drop_worst(s, l, kv, score, score, budget, 0, budget / 2);
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
        cb_ref_drop_worst(s, l, kv, pooled, raw, keep, 0, w);
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
        cb_ref_drop(s, l, head, worst);
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
                cb_ref_drop(s, l, h, tok[first[l][h]]);
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
                cb_ref_drop(s, l, h, tok[24]);
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
            cb_ref_drop_worst(s, l, kv, score, score, keep, sink, 0);
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
                cb_ref_drop(s, l, h, tok[kept[l]]);
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

void cb_ref_tova(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < CB_REF_LAYERS; l++) {
        double score[CB_REF_CAP] = { 0 };
        for (int h = 0; h < s->hp.n_head; h++)
            for (int j = 0; j < s->n; j++)
                score[j] += cb_slow_p(s, l, h, s->n - 1, j);
        for (int kv = 0; kv < s->hp.n_kv; kv++)
            cb_ref_drop_worst(s, l, kv, score, score, 24, 0, 0);
    }
}

void cb_ref_reset(void)
{
    memset(heavy, 0, sizeof heavy);
    memset(steady, 0, sizeof steady);
    cb_ref_sim_reset();
    cb_ref_d2o_reset();
}
