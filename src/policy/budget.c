/* SPDX-License-Identifier: MIT */
/* budget.c - splits a budget over layers: closed-form shapes, caps, rounding that keeps the sum,
 * and measures of a layer's need from its attention rows. All in doubles; only the last step makes
 * integers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

void cb_share_cap(double *share, int n, double total, double max)
{
    for (int pass = 0; pass < n; pass++) { /* each pass caps one more, or ends */
        double open = 0, left = total;
        int cut = 0;
        for (int i = 0; i < n; i++)
            if (share[i] >= max)
                left -= max;
            else
                open += share[i];
        for (int i = 0; i < n; i++) {
            if (share[i] >= max || !(open > 0))
                share[i] = fmin(share[i], max);
            else
                share[i] *= left / open;
            cut |= share[i] > max;
        }
        if (!cut)
            return;
    }
}

/* share[n] * by, none below min or above max -> out[n], unless NULL; returns the sum */
static double clamped(const double *share, int n, double by, double min, double max, double *out)
{
    double sum = 0;

    for (int i = 0; i < n; i++) {
        const double x = fmin(fmax(share[i] * by, min), max);
        sum += x;
        if (out)
            out[i] = x;
    }
    return sum;
}

void cb_share_clamp(double *share, int n, double total, double min, double max)
{
    double lo = 0, hi, sum = 0; /* all shares are scaled by one number between lo and hi */
    int below = 0;

    for (int i = 0; i < n; i++)
        sum += share[i];
    for (int i = 0; i < n; i++)
        below |= share[i] * total / sum < min;
    if (!below) {
        cb_share_cap(share, n, total, max);
        return;
    }
    for (hi = total / sum; hi < 1e18 && clamped(share, n, hi, min, max, NULL) < total;)
        hi *= 2;
    for (int i = 0; i < 200; i++)
        if (clamped(share, n, (lo + hi) / 2, min, max, NULL) < total)
            lo = (lo + hi) / 2;
        else
            hi = (lo + hi) / 2;
    clamped(share, n, hi, min, max, share);
}

void cb_share_round(const double *share, int n, int total, int *out)
{
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += out[i] = (int)floor(share[i]);
    for (; sum < total; sum++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (share[i] - out[i] > share[best] - out[best])
                best = i;
        out[best]++;
    }
}

void cb_share_linear(double *share, int n, double mean, double beta, double max)
{
    double top = mean / beta, bottom = 2 * mean - top;

    if (bottom > max) { /* the first layer holds no more: the rest goes to the others */
        bottom = max;
        top = 2 * mean - bottom;
    }
    for (int l = 0; l < n; l++)
        share[l] = n == 1 ? mean : bottom - (bottom - top) * l / (n - 1);
}

/* 1 + q + ... + q^(n-1) */
static double series(double q, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum = sum * q + 1;
    return sum;
}

void cb_share_geometric(double *share, int n, double mean, double beta, double max)
{
    double lo = 1,
           hi = beta > 1 ? beta * n : 1; /* bounds of q: a layer's budget / the next layer's */

    for (int i = 0; i < 200; i++) {
        const double q = (lo + hi) / 2;
        if (series(q, n) < beta * n)
            lo = q;
        else
            hi = q;
    }
    for (int l = n; l-- > 0;)
        share[l] = l == n - 1 ? mean / beta : share[l + 1] * hi;
    if (n == 1)
        share[0] = mean;
    cb_share_cap(share, n, mean * n, max);
}

void cb_share_exponential(double *share, int n, double mean, double beta, double max)
{
    double sum = 0;

    for (int l = 0; l < n; l++)
        sum += share[l] = n == 1 ? 1 : exp(-log(beta) * l / (n - 1));
    for (int l = 0; l < n; l++)
        share[l] *= mean * n / sum;
    cb_share_cap(share, n, mean * n, max);
}

double cb_scores_variance(const struct scores *s, int row, int n_row)
{
    double mean = 0, sum = 0;

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n; i++) {
            double x = 0;
            for (int r = row; r < row + n_row; r++)
                x += (double)s->s[(size_t)r * (size_t)s->stride + (size_t)i] / n_row;
            if (pass)
                sum += (x - mean) * (x - mean);
            else
                mean += x / s->n;
        }
    return s->n > 1 ? sum / (s->n - 1) : 0;
}

double cb_scores_spread(const struct scores *s)
{
    double lo = INFINITY, hi = 0, sum = 0;

    for (int r = 0; r < s->n_row; r++) {
        const double v = cb_scores_variance(s, r, 1);
        lo = fmin(lo, v);
        hi = fmax(hi, v);
        sum += v;
    }
    return (sum / s->n_row - lo) / (hi - lo + 1e-6);
}

double cb_row_entropy(const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum -= x[i] > 0 ? (double)x[i] * log((double)x[i]) : 0;
    return sum;
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

double cb_row_gini(const float *x, int n, float *tmp)
{
    double sum = 0, ranked = 0;

    memcpy(tmp, x, (size_t)n * sizeof *tmp);
    qsort(tmp, (size_t)n, sizeof *tmp, ascending);
    for (int i = 0; i < n; i++) {
        sum += (double)tmp[i];
        ranked += (2.0 * (i + 1) - n - 1) * (double)tmp[i];
    }
    return sum > 0 ? ranked / (n * sum) : 0;
}
