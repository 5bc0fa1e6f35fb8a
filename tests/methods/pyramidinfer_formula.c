/* SPDX-License-Identifier: MIT */
/* pyramidinfer_formula.c - PyramidInfer, from the paper's formulas and its published program's, in
 * doubles: which tokens of a prompt the next layer computes, and which generated ones stay. */
#include <math.h>
#include <string.h>

#include "formulas.h"

struct form {
    double recent, decay, weight, keep, gen_decay;
    int context, interval, sink, block;
};

static int past[CB_REF_LAYERS], recent[CB_REF_LAYERS];

static double cosine(int l, double least)
{
    return (1 - least) * (cos(M_PI * l / CB_REF_LAYERS) + 1) / 2 + least;
}

/* Mean over heads of what the last `rows` queries give to token j; they weigh 1 to `weight` */
static double weighted(const struct slow *s, int l, int rows, double weight, int j)
{
    double sum = 0;

    for (int i = 0; i < rows; i++)
        for (int h = 0; h < s->hp.n_head; h++)
            sum += cb_slow_p(s, l, h, s->n - rows + i, j) *
                   (rows > 1 ? 1 + (weight - 1) * i / (rows - 1) : 1) / s->hp.n_head;
    return sum;
}

/* Marks all but the best k of tok[n]: 1 in out[n]. Of equal ones the earlier is better. */
static void worst(const struct slow *s, int l, int rows, double weight, const int *tok, int n,
                  int k, char *out)
{
    double x[CB_REF_CAP];

    memset(out, 0, (size_t)n);
    for (int i = 0; i < n; i++)
        x[i] = weighted(s, l, rows, weight, tok[i]);
    for (int gone = 0; gone < n - k; gone++) {
        int w = -1;
        for (int i = 0; i < n; i++)
            if (!out[i] && (w < 0 || x[i] <= x[w]))
                w = i;
        out[w] = 1;
    }
}

static void narrow(const struct form *f, struct slow *s, int l)
{
    const int fed = s->n - s->feed, r = (int)(f->recent * fed), first = s->feed == 0;
    int tok[CB_REF_CAP], n = 0, context, k, least, sink;
    char out[CB_REF_CAP];

    for (int j = s->feed; j < s->n; j++)
        if (!s->gone[j])
            tok[n++] = j;
    context = n - 1 - r;
    least = f->context < fed - 1 - r ? f->context : fed - 1 - r;
    k = (int)(context * cosine(l, f->decay));
    sink = first ? f->sink : 0;
    if (l == 0 || l == CB_REF_LAYERS - 1 || l % f->interval || context <= least || k <= least)
        return;
    worst(s, l, 1 + r, f->weight, tok + sink, context - sink, k - sink, out);
    for (int i = 0; i < context - sink; i++)
        s->gone[tok[sink + i]] = out[i];
}

static void thin(const struct form *f, struct slow *s, int l)
{
    const int k = (int)fmax(1, f->block * f->keep * cosine(l, f->gen_decay));
    int tok[CB_REF_CAP], n = cb_ref_left(s, l, 0, tok);
    const int from = n - 1 - recent[l] - f->block;
    char out[CB_REF_CAP];

    if (n - recent[l] - past[l] < f->block)
        return;
    worst(s, l, 1 + recent[l], f->weight, tok + from, f->block, k, out);
    for (int h = 0; h < s->hp.n_kv; h++)
        for (int i = 0; i < f->block; i++)
            s->left[cb_slow_at(s, l, h, tok[from + i])] &= !out[i];
    past[l] = cb_ref_left(s, l, 0, tok) - recent[l];
}

static void settle(const struct form *f, struct slow *s, int prompt)
{
    int tok[CB_REF_CAP];

    for (int l = 0; l < CB_REF_LAYERS; l++) {
        if (prompt) {
            past[l] = cb_ref_left(s, l, 0, tok);
            recent[l] = (int)(f->recent * (s->n - s->feed));
        } else {
            thin(f, s, l);
        }
    }
}

/* recent=0.1,decay=0.5,context=8,sink=2,weight=1.5,gen_decay=0.3 */
static const struct form steep = { 0.1, 0.5, 1.5, 0.9, 0.3, 8, 1, 2, 16 };
/* recent=0.25,decay=0.7,interval=2,context=0,block=5,keep=0.7 */
static const struct form rare = { 0.25, 0.7, 1.2, 0.7, 0.1, 0, 2, 4, 5 };

void cb_ref_pyramidinfer(struct slow *s, int prompt)
{
    settle(&steep, s, prompt);
}

void cb_ref_pyramidinfer_pass(struct slow *s, int l)
{
    narrow(&steep, s, l);
}

void cb_ref_pyramidinfer_rare(struct slow *s, int prompt)
{
    settle(&rare, s, prompt);
}

void cb_ref_pyramidinfer_rare_pass(struct slow *s, int l)
{
    narrow(&rare, s, l);
}
