/* SPDX-License-Identifier: MIT */
/* minicache_formula.c - MiniCache, from the paper's formulas, in doubles: two layers' keys, and
 * their values, become one direction of length 1 times the length that each had; the tokens with
 * the largest angles stay. */
#include <check.h>
#include <math.h>

#include "formulas.h"

enum { MAX_HD = 64 };

struct form {
    int start, tail;
    double t, retain;
};

static int merged, kept[CB_REF_LAYERS][8][2]; /* tokens; of them unmerged ones, by head and side */

static double length(const double *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double angle(const double *x, const double *y, int n)
{
    double cosine = 0;

    for (int i = 0; i < n; i++)
        cosine += x[i] / length(x, n) * (y[i] / length(y, n));
    return acos(fmin(1, fmax(-1, cosine)));
}

/* x and y become lengths of one direction, that at t on the great circle from x to y. */
static void share(double *x, double *y, int n, double t)
{
    const double turn = angle(x, y, n), a = length(x, n), b = length(y, n);
    double e[MAX_HD];

    ck_assert(n <= MAX_HD && sin(turn) > 1e-6);
    for (int i = 0; i < n; i++)
        e[i] = (sin((1 - t) * turn) * x[i] / a + sin(t * turn) * y[i] / b) / sin(turn);
    ck_assert_double_eq_tol(length(e, n), 1, 1e-9);
    for (int i = 0; i < n; i++) {
        x[i] = a * e[i];
        y[i] = b * e[i];
    }
}

/* Keys or values of tokens merged.. of layer l and the next */
static void merge(struct slow *s, const struct form *f, int l, int h, int side)
{
    const int hd = s->hp.hd, total = (int)(f->retain < 1 ? ceil(f->retain * s->n) : f->retain);
    double *rows = side ? s->v : s->k, *x = rows + cb_slow_at(s, l, h, 0) * (size_t)hd;
    double *y = rows + cb_slow_at(s, l + 1, h, 0) * (size_t)hd;
    char stays[CB_REF_CAP] = { 0 };

    for (int *n = &kept[l][h][side], best; *n < total && *n < s->n; ++*n) {
        best = -1;
        for (int j = merged; j < s->n; j++)
            if (!stays[j] && (best < 0 || angle(x + j * hd, y + j * hd, hd) >
                                              angle(x + best * hd, y + best * hd, hd)))
                best = j;
        if (best < 0)
            break;
        stays[best] = 1;
    }
    for (int j = merged; j < s->n; j++)
        if (!stays[j])
            share(x + j * hd, y + j * hd, hd, f->t);
}

static void settle(struct slow *s, const struct form *f, int prompt)
{
    if (!s->feed)
        merged = 0;
    for (int i = 0; !merged && i < CB_REF_LAYERS * 8 * 2; i++)
        (&kept[0][0][0])[i] = 0;
    if (!prompt && s->n - merged < f->tail)
        return;
    for (int l = f->start; l + 1 < CB_REF_LAYERS; l += 2)
        for (int h = 0; h < s->hp.n_kv; h++)
            for (int side = 0; side < 2; side++)
                merge(s, f, l, h, side);
    merged = s->n;
}

void cb_ref_minicache(struct slow *s, int prompt)
{
    settle(s, &(struct form){ CB_REF_LAYERS / 2, 10, 0.6, 24 }, prompt);
}

void cb_ref_minicache_share(struct slow *s, int prompt)
{
    settle(s, &(struct form){ 0, 7, 0.3, 0.1 }, prompt);
}
