/* SPDX-License-Identifier: MIT */
/* check_mask.c - every evicting policy on small random models, beside the slow run that keeps all
 * and masks what the policy's formula drops: the same slots and the same logits, token by token and
 * in a second turn. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/session.h"
#include "kit/slow.h"
#include "kit/tiny.h"
#include "kit/toy.h"

enum { CAP = 256, PROMPT = 90, STEPS = 64, SECOND = 20, LAYERS = 4 };

/* ---- what each policy drops, from its formula ---- */

/* Tokens that are left in layer l, KV head h, ascending -> out, count. */
static int left(const struct slow *s, int l, int h, int *out)
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

/* all but the first `sink` and the last `recent` */
static void drop_middle(struct slow *s, int l, int sink, int recent)
{
    int tok[CAP];
    for (int h = 0; h < s->hp.n_kv; h++) {
        const int n = left(s, l, h, tok);
        for (int i = sink; i < n - recent; i++)
            drop(s, l, h, tok[i]);
    }
}

/* Down to `keep`: the worst by score of what is neither among the first `sink` nor the last
 * `recent` goes, one by one; of equals by `raw`, then the later. score, raw: [CAP] by token */
static void drop_worst(struct slow *s, int l, int h, const double *score, const double *raw,
                       int keep, int sink, int recent)
{
    int tok[CAP], n;

    while ((n = left(s, l, h, tok)) > keep) {
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

static double heavy[LAYERS][8][CAP]; /* h2o: sums a query head */
static int is_lazy[LAYERS];

static void ref_window(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < LAYERS; l++)
        drop_middle(s, l, 0, 24);
}

static void ref_dense(struct slow *s, int prompt)
{
    for (int l = 0; l < LAYERS && prompt; l++)
        drop_middle(s, l, 0, 24);
}

static void ref_streaming(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < LAYERS; l++)
        drop_middle(s, l, 4, 20);
}

/* a cache that is long enough for holes */
static void ref_streaming_long(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < LAYERS; l++)
        drop_middle(s, l, 4, 146);
}

/* budget 0: sums alone */
static void h2o(struct slow *s, int mean, int budget)
{
    const int group = s->hp.n_head / s->hp.n_kv;

    for (int l = 0; l < LAYERS; l++)
        for (int kv = 0; kv < s->hp.n_kv; kv++) {
            double score[CAP] = { 0 };
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

static void ref_h2o_first(struct slow *s, int prompt)
{
    h2o(s, 0, prompt ? 0 : 24);
}

static void ref_h2o(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 0, 24);
}

static void ref_h2o_mean(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 1, 24);
}

static void ref_h2o_long(struct slow *s, int prompt)
{
    (void)prompt;
    h2o(s, 0, 140);
}

/* Votes of the last w queries of the feed, pooled over all that is left but the last w. */
static void votes(struct slow *s, int l, int w, int kernel, int max, int keep)
{
    const int group = s->hp.n_head / s->hp.n_kv;
    int tok[CAP];

    for (int kv = 0; kv < s->hp.n_kv; kv++) {
        const int n = left(s, l, kv, tok);
        double raw[CAP] = { 0 }, pooled[CAP] = { 0 };
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
        drop_worst(s, l, kv, pooled, raw, keep, 0, w);
    }
}

static void ref_snapkv(struct slow *s, int prompt)
{
    for (int l = 0; l < LAYERS && prompt; l++)
        votes(s, l, 8, 5, 0, 24);
}

/* decode=bounded,tail=10: the oldest generated token goes */
static void ref_snapkv_bounded(struct slow *s, int prompt)
{
    int tok[CAP];

    ref_snapkv(s, prompt);
    for (int l = 0; l < LAYERS && !prompt; l++)
        for (int h = 0; h < s->hp.n_kv; h++)
            if (left(s, l, h, tok) > 24 + 10)
                drop(s, l, h, tok[24]);
}

/* C = 12, alpha = 2, beta = 5, as the specification's toy: 18 13 7 2 for a long prompt */
static void ref_pyramid(struct slow *s, int prompt)
{
    static const int toy[LAYERS] = { 18, 13, 7, 2 };
    for (int l = 0; l < LAYERS && prompt; l++)
        votes(s, l, 2, 7, 1, toy[l] + 2);
}

static double ends_score(const struct slow *s, int l, int i, int sink, int recent)
{
    int tok[CAP];
    double sum = 0;

    left(s, l, 0, tok);
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

/* sink 2, recent 10; the mean of all scores is the threshold, see sim_spec() */
static double sim_threshold;

static void ref_sim_decode(struct slow *s, int prompt)
{
    static int decided[LAYERS];

    for (int l = 0; l < LAYERS; l++) {
        if (prompt)
            decided[l] = 0;
        if (!prompt && !decided[l]) {
            is_lazy[l] |= ends_score(s, l, s->n - 1, 2, 10) > sim_threshold;
            decided[l] = 1;
        }
        if (!prompt && is_lazy[l])
            drop_middle(s, l, 2, 10);
    }
}

static void ref_sim_prefill(struct slow *s, int prompt)
{
    for (int l = 0; l < LAYERS; l++) {
        const int first = s->n - 6 > s->feed ? s->n - 6 : s->feed;
        double m = 0;
        for (int i = first; prompt && i < s->n; i++)
            m += ends_score(s, l, i, 2, 10) / (s->n - first);
        is_lazy[l] |= prompt && m > sim_threshold;
        if (is_lazy[l])
            drop_middle(s, l, 2, 10);
    }
}

/* d2o: S = 24 beside 2 sinks, three quarters of it heavy hitters; by layer after softmax(-F) */
static struct {
    double acc[LAYERS][8][CAP], f[LAYERS], tau[LAYERS][8];
    int set, waits, heavy[LAYERS], recent[LAYERS], warm[LAYERS][8];
} d2o;

static double d2o_spread(const struct slow *s, int l)
{
    double v[8], lo = 1e300, hi = 0, sum = 0;
    int tok[CAP];

    for (int h = 0; h < s->hp.n_head; h++) {
        const int n = left(s, l, h / (s->hp.n_head / s->hp.n_kv), tok);
        double col[CAP] = { 0 }, mean = 0;
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
static double d2o_variance(const struct slow *s, int l)
{
    double col[CAP] = { 0 }, mean = 0, sum = 0;
    int tok[CAP];
    const int n = left(s, l, 0, tok);

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
    double share, gate;     /* share: of the tokens, 0 = 24; gate > 0: layers=gate */
    int first2, first_step; /* layers=first2; drop=first-decode */
};

/* The budgets of all layers, if they are set now. */
static void d2o_budgets(const struct slow *s, const struct d2o_how *how)
{
    const double of = how->share > 0 ? how->share * s->n : 24;
    double w[LAYERS], sum = 0;

    for (int l = 0; l < LAYERS; l++)
        sum += w[l] = how->uniform || how->first2 ? 1
                      : how->gate > 0             ? (d2o.f[l] <= how->gate ? 3 : 1)
                                                  : exp(-d2o.f[l]);
    for (int l = 0; l < LAYERS; l++) {
        d2o.heavy[l] = (int)(w[l] * LAYERS * of / sum * 0.75);
        d2o.recent[l] = (int)(w[l] * LAYERS * of / sum * 0.25);
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

/* Tokens out[m] of a head have just been dropped: merge those that resemble what is left. */
static void d2o_merge(struct slow *s, int l, int h, const int *out, int m,
                      const struct d2o_how *how)
{
    const int hd = s->hp.hd;
    double u[CAP], near[CAP], mean = 0;
    const double *k[CAP], *v[CAP];
    int into[CAP], tok[CAP];
    const int n = left(s, l, h, tok);

    for (int i = 0; i < m; i++) {
        u[i] = -2;
        for (int c = 0; c < n; c++) {
            const double x = cosine(s->k + cb_slow_at(s, l, h, out[i]) * (size_t)hd,
                                    s->k + cb_slow_at(s, l, h, tok[c]) * (size_t)hd, hd);
            if (x > u[i]) {
                u[i] = x;
                into[i] = tok[c];
            }
        }
        mean += u[i] / m;
    }
    d2o.tau[l][h] = d2o.warm[l][h] ? 0.7 * mean + 0.3 * d2o.tau[l][h] : mean;
    d2o.warm[l][h] = 1;
    for (int c = 0; c < n; c++) {
        int count = 0;
        for (int i = 0; i < m; i++)
            if (into[i] == tok[c] && tok[c] >= how->first && u[i] >= d2o.tau[l][h]) {
                near[count] = u[i];
                k[count] = s->k + cb_slow_at(s, l, h, out[i]) * (size_t)hd;
                v[count++] = s->v + cb_slow_at(s, l, h, out[i]) * (size_t)hd;
            }
        if (count && how->keys)
            d2o_into(s->k + cb_slow_at(s, l, h, tok[c]) * (size_t)hd, k, near, count, how->rule,
                     hd);
        if (count)
            d2o_into(s->v + cb_slow_at(s, l, h, tok[c]) * (size_t)hd, v, near, count, how->rule,
                     hd);
    }
}

/* Scores of the feed, and at the end of a prompt how dense each layer's attention is. */
static void d2o_look(const struct slow *s, int prompt, const struct d2o_how *how)
{
    const int group = s->hp.n_head / s->hp.n_kv;

    for (int l = 0; l < LAYERS; l++) {
        for (int h = 0; h < s->hp.n_head; h++)
            for (int i = s->feed; i < s->n; i++)
                for (int j = 0; j <= i; j++)
                    d2o.acc[l][h / group][j] += cb_slow_p(s, l, h, i, j);
        if (prompt && !(how->gate > 0 && d2o.set))
            d2o.f[l] = how->gate > 0 ? d2o_variance(s, l) : d2o_spread(s, l);
    }
}

static void d2o_run(struct slow *s, int prompt, const struct d2o_how *how)
{
    int was[CAP], out[CAP];
    const int now = prompt ? !how->first_step : d2o.waits;

    d2o_look(s, prompt, how);
    d2o.waits = prompt && how->first_step;
    if (now && (how->share > 0 || !d2o.set))
        d2o_budgets(s, how);
    d2o.set |= now;
    for (int l = how->first2 ? 2 : 0; l < LAYERS && !d2o.waits; l++)
        for (int h = 0; h < s->hp.n_kv && l != how->protect; h++) {
            const int n = left(s, l, h, was), keep = 2 + d2o.heavy[l] + d2o.recent[l];
            int m = 0;
            drop_worst(s, l, h, d2o.acc[l][h], d2o.acc[l][h], keep, 2, d2o.recent[l]);
            for (int i = 0; i < n; i++)
                if (!s->left[cb_slow_at(s, l, h, was[i])])
                    out[m++] = was[i];
            if (m && how->rule != DROP)
                d2o_merge(s, l, h, out, m, how);
        }
}

static void ref_d2o(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = EQ11 });
}

static void ref_d2o_printed(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = PRINTED });
}

static void ref_d2o_code(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .rule = CODE });
}

static void ref_d2o_share(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .share = 0.2 });
}

/* Between the layers' variances; set by d2o_gate() */
static double gate;

static void ref_d2o_gate(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .share = 0.2, .gate = gate });
}

static void ref_d2o_first2(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .first2 = 1 });
}

static void ref_d2o_late(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .keys = 1, .protect = -1, .share = 0.2, .first_step = 1 });
}

static void ref_d2o_average(struct slow *s, int prompt)
{
    d2o_run(s, prompt,
            &(struct d2o_how){ .uniform = 1, .keys = 1, .protect = -1, .rule = AVERAGE });
}

static void ref_d2o_drop(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .protect = -1, .rule = DROP });
}

/* two sinks stay as they are */
static void ref_d2o_sinks(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .keys = 1, .protect = -1, .first = 2, .rule = EQ11 });
}

/* keys stay as they are, and layer 2 is left alone */
static void ref_d2o_values(struct slow *s, int prompt)
{
    d2o_run(s, prompt, &(struct d2o_how){ .protect = 2, .rule = EQ11 });
}

static void ref_tova(struct slow *s, int prompt)
{
    (void)prompt;
    for (int l = 0; l < LAYERS; l++) {
        double score[CAP] = { 0 };
        for (int h = 0; h < s->hp.n_head; h++)
            for (int j = 0; j < s->n; j++)
                score[j] += cb_slow_p(s, l, h, s->n - 1, j);
        for (int kv = 0; kv < s->hp.n_kv; kv++)
            drop_worst(s, l, kv, score, score, 24, 0, 0);
    }
}

/* ---- the slow run and the session, side by side ---- */

struct pair {
    const char *spec;
    void (*drop)(struct slow *s, int prompt);
    int rolling, window, prompt; /* prompt: tokens, 0 = PROMPT */
    int piece;                   /* > 0: tokens are dropped after every so many of a prompt */
};

static const struct pair pairs[] = {
    { "window:budget=24", ref_window, 0, 24, 0, 0 },
    { "window:budget=24,prefill=dense", ref_window, 0, 0, 0, 0 },
    { "window:budget=24,decode=grow", ref_dense, 0, 0, 0, 0 },
    { "streamingllm:budget=24", ref_streaming, 1, 0, 0, 0 },
    { "streamingllm:recent=20,positions=kept", ref_streaming, 0, 0, 0, 0 },
    { "streamingllm:budget=150", ref_streaming_long, 1, 0, 160, 0 },
    { "streamingllm:budget=24,prefill=windowed", ref_streaming, 1, 0, 0, 1 },
    { "streamingllm:budget=24,prefill=windowed,positions=kept", ref_streaming, 0, 0, 0, 1 },
    { "streamingllm:recent=24,sink=0,prefill=windowed", ref_window, 1, 0, 0, 1 },
    { "h2o:budget=24", ref_h2o, 0, 0, 0, 0 },
    { "h2o:budget=140", ref_h2o_long, 0, 0, 160, 0 },
    { "h2o:budget=24,drop=first-decode", ref_h2o_first, 0, 0, 0, 0 },
    { "h2o:budget=24,drop=chunk,chunk=32", ref_h2o, 0, 0, 0, 32 },
    { "h2o:budget=24,drop=chunk,chunk=9", ref_h2o, 0, 0, 0, 9 },
    { "h2o:budget=24,group=mean,recent=12", ref_h2o_mean, 0, 0, 0, 0 },
    { "snapkv:budget=24,window=8", ref_snapkv, 0, 0, 0, 0 },
    { "snapkv:budget=24,window=8,decode=bounded,tail=10", ref_snapkv_bounded, 0, 0, 0, 0 },
    { "pyramidkv:budget=12,window=2,beta=5", ref_pyramid, 0, 0, 0, 0 },
    { "tova:budget=24", ref_tova, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2", ref_d2o, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge=avg,layers=uniform", ref_d2o_average, 0, 0, 0, 0 },
    { "d2o:budget=0.2,sink=2", ref_d2o_share, 0, 0, 0, 0 },
    { "d2o:budget=0.2,sink=2,layers=gate", ref_d2o_gate, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,layers=first2", ref_d2o_first2, 0, 0, 0, 0 },
    { "d2o:budget=0.2,sink=2,drop=first-decode", ref_d2o_late, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge=off", ref_d2o_drop, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge=printed", ref_d2o_printed, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge=code", ref_d2o_code, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge_sinks=0", ref_d2o_sinks, 0, 0, 0, 0 },
    { "d2o:budget=24,sink=2,merge_keys=0,protect=2", ref_d2o_values, 0, 0, 0, 0 },
    { "simlayerkv:sink=2,recent=10", ref_sim_decode, 0, 0, 0, 0 },
    { "simlayerkv:sink=2,recent=10,mode=prefill,window=6", ref_sim_prefill, 0, 0, 0, 0 },
};
enum { N_PAIR = sizeof pairs / sizeof *pairs };

static void same_slots(const struct cb_session *s, const struct slow *r, const char *when)
{
    int tok[CAP];

    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < r->hp.n_kv; h++) {
            const int n = left(r, l, h, tok);
            ck_assert_msg(n == s->bank.store[l].n[h], "%s: layer %d head %d: %d slots, expected %d",
                          when, l, h, s->bank.store[l].n[h], n);
            for (int i = 0; i < n; i++)
                ck_assert_msg(cb_store_pos(&s->bank.store[l], h, i) == tok[i],
                              "%s: layer %d head %d: slot %d holds token %d, expected %d", when, l,
                              h, i, cb_store_pos(&s->bank.store[l], h, i), tok[i]);
        }
}

static void same_logits(const struct cb_session *s, const struct slow *r, const char *when)
{
    const float *a = cb_session_logits(s);
    double diff = 0, size = 0;

    for (int i = 0; i < r->hp.n_vocab; i++) {
        diff = fmax(diff, fabs((double)a[i] - r->logits[i]));
        size = fmax(size, fabs(r->logits[i]));
    }
    ck_assert_msg(diff < 2e-4 * size, "%s: logits differ by %g of %g", when, diff, size);
}

/* A threshold that parts the layers of this text. */
static double part_layers(const struct slow *r, int mode)
{
    double lo = 1, hi = 0;
    for (int l = 0; l < LAYERS; l++) {
        double m = 0;
        for (int i = r->n - (mode ? 6 : 1); i < r->n; i++)
            m += ends_score(r, l, i, 2, 10) / (mode ? 6 : 1);
        lo = fmin(lo, m);
        hi = fmax(hi, m);
    }
    return (lo + hi) / 2;
}

static double d2o_gate(const struct slow *r)
{
    double lo = 1e9, hi = 0;
    for (int l = 0; l < LAYERS; l++) {
        lo = fmin(lo, d2o_variance(r, l));
        hi = fmax(hi, d2o_variance(r, l));
    }
    ck_assert(hi > 1.01 * lo);
    return (lo + hi) / 2;
}

static cb_model *open_model(const char *family)
{
    struct tiny t = cb_tiny_small(family);

    t.n_layer = LAYERS;
    return cb_toy_model(&t, "ref", 1);
}

/* The slow run's prompt, but for what is dropped at its end */
static void slow_prompt(const struct pair *t, struct slow *r, const int32_t *tok, int n)
{
    for (; t->piece && n > t->piece; tok += t->piece, n -= t->piece) {
        r->rolling = t->rolling;
        cb_slow_feed(r, tok, t->piece);
        t->drop(r, 1);
    }
    cb_slow_feed(r, tok, n);
}

static void run_pair(const struct pair *t, const char *family, int chunk)
{
    cb_model *m = open_model(family);
    const int32_t *tok = cb_toy_text(m);
    struct slow *r = cb_slow_new(m, CAP);
    char spec[128], when[192];
    const int prompt = t->prompt ? t->prompt : PROMPT, end = prompt + STEPS;
    cb_session *s;

    snprintf(spec, sizeof spec, "%s", t->spec);
    memset(heavy, 0, sizeof heavy);
    memset(is_lazy, 0, sizeof is_lazy);
    memset(&d2o, 0, sizeof d2o);
    r->window = t->window;
    slow_prompt(t, r, tok, prompt);
    if (!strncmp(spec, "simlayerkv", 10)) {
        sim_threshold = part_layers(r, strstr(spec, "prefill") != NULL);
        snprintf(spec, sizeof spec, "%s,threshold=%.17g", t->spec, sim_threshold);
    }
    if (strstr(spec, "layers=gate")) {
        gate = d2o_gate(r);
        snprintf(spec, sizeof spec, "%s,gate=%.17g", t->spec, gate);
    }
    s = cb_toy_session(m, spec, "f32", chunk);
    cb_toy_ok(cb_session_prefill(s, tok, prompt, NULL));
    same_logits(s, r, spec);
    t->drop(r, 1);
    same_slots(s, r, spec);
    r->rolling = t->rolling;
    for (int i = prompt; i < end; i++) {
        snprintf(when, sizeof when, "%s, %s, step %d", spec, family, i - prompt);
        cb_slow_feed(r, tok + i, 1);
        cb_toy_ok(cb_session_decode(s, tok[i]));
        same_logits(s, r, when);
        t->drop(r, 0);
        same_slots(s, r, when);
    }
    snprintf(when, sizeof when, "%s, %s, second turn", spec, family);
    slow_prompt(t, r, tok + end, SECOND);
    cb_toy_ok(cb_session_prefill(s, tok + end, SECOND, NULL));
    same_logits(s, r, when);
    t->drop(r, 1);
    same_slots(s, r, when);
    cb_slow_feed(r, tok + end + SECOND, 1);
    cb_toy_ok(cb_session_decode(s, tok[end + SECOND]));
    same_logits(s, r, when);
    cb_session_close(s);
    cb_slow_free(r);
    cb_model_close(m);
}

START_TEST(as_the_slow_run_with_a_mask)
{
    run_pair(&pairs[_i / 2], _i % 2 ? "qwen2" : "llama", _i % 2 ? 7 : 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mask");
    TCase *t = tcase_create("slow");
    SRunner *r;
    int failed;

    suite_add_tcase(suite, t);
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, as_the_slow_run_with_a_mask, 0, 2 * N_PAIR);
    r = srunner_create(suite);
    srunner_run_all(r, CK_NORMAL);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
