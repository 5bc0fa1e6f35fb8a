/* SPDX-License-Identifier: MIT */
/* d2o_formula.c - what D2O drops and merges, from the paper's equations, in doubles. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "formulas.h"

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
            cb_ref_drop_worst(s, l, h, d2o.acc[l][h], d2o.acc[l][h], keep, 2, d2o.recent[l]);
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

void cb_ref_d2o_reset(void)
{
    memset(&d2o, 0, sizeof d2o);
}
