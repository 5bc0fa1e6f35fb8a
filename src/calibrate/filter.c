/* SPDX-License-Identifier: MIT */
/* filter.c - which layers can choose for later ones. */
#include "filter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/model.h"

/* ---- recalls ---- */

int cb_recall_open(struct recall *r, const cb_model *m, int k, int n_ctx)
{
    const size_t n = (size_t)cb_model_policy_layers(m);

    *r = (struct recall){
        .n_layer = cb_model_policy_layers(m), .n_head = m->hp.n_head, .k = k, .dev = m->dev
    };
    r->sum = cb_calloc(n * n, sizeof *r->sum);
    r->top = cb_calloc(n * (size_t)k, sizeof *r->top);
    r->n_top = cb_calloc(n, sizeof *r->n_top);
    r->score = cb_alloc_aligned((size_t)n_ctx, sizeof *r->score);
    r->share = cb_alloc_aligned((size_t)n_ctx, sizeof *r->share);
    return r->sum && r->top && r->n_top && r->score && r->share ? CB_OK : CB_ENOMEM;
}

void cb_recall_close(struct recall *r)
{
    free(r->sum);
    free(r->top);
    free(r->n_top);
    free(r->score);
    free(r->share);
}

/* Reduces the heads' attention over the candidates: the largest of any head ranks a candidate for
 * the choice, the mean over heads is the layer's attention. */
static void reduce(struct recall *r, int n, const struct scores *s)
{
    memset(r->score, 0, (size_t)n * sizeof *r->score);
    memset(r->share, 0, (size_t)n * sizeof *r->share);
    for (int h = 0; h < s->n_row; h++) {
        const float *x = s->s + (size_t)h * (size_t)s->stride;
        double sum = 0;
        for (int j = 0; j < n; j++)
            sum += (double)x[j];
        for (int j = 0; j < n && sum > 0; j++) {
            const float p = (float)((double)x[j] / sum);
            r->score[j] = fmaxf(r->score[j], p);
            r->share[j] += p / (float)s->n_row;
        }
    }
}

void cb_recall_look(void *recall, int l, int n_cand, const struct scores *s)
{
    struct recall *r = recall;
    int32_t *top = r->top + (size_t)l * (size_t)r->k;

    if (s->prompt)
        return;
    reduce(r, n_cand, s);
    r->n_top[l] = r->k < n_cand ? r->k : n_cand;
    r->dev->ops->topk(r->dev, r->score, n_cand, r->n_top[l], top);
    for (int a = 0; a <= l; a++)
        for (int i = 0; i < r->n_top[a]; i++)
            r->sum[a * r->n_layer + l] +=
                (double)r->share[r->top[(size_t)a * (size_t)r->k + (size_t)i]];
    r->n_step += l == r->n_layer - 1;
}

double cb_recall_at(const struct recall *r, int a, int b)
{
    return r->n_step ? r->sum[a * r->n_layer + b] / (double)r->n_step : 0;
}

double cb_recall_ability(const struct recall *r, int a, int w)
{
    const int end = a + w < r->n_layer ? a + w : r->n_layer;
    double sum = 0;

    for (int b = a; b < end; b++)
        sum += cb_recall_at(r, a, b);
    return sum / (end - a);
}

/* ---- sets ---- */

/* The loss of layers a+1+wait..end-1 when they read what layer a chose. */
static double loss(const double *at, int n_layer, int a, int end, int wait)
{
    double sum = 0;

    for (int b = a + 1 + wait; b < end; b++)
        sum += 1 - at[a * n_layer + b];
    return sum;
}

/* least[m][f]: the least loss of layers f.. with m filters, the first of which is f; next[m][f]:
 * the second filter. */
static void fill(const double *at, int n, double *least, int *next)
{
    for (int f = 0; f < n; f++)
        least[n + f] = loss(at, n, f, n, 0);
    for (int m = 2; m <= MAX_FILTERS; m++)
        for (int f = 0; f < n; f++) {
            least[m * n + f] = INFINITY;
            for (int g = f + 1; g < n; g++) {
                const double x = loss(at, n, f, g, 0) + least[(m - 1) * n + g];
                if (x < least[m * n + f]) {
                    least[m * n + f] = x;
                    next[m * n + f] = g;
                }
            }
        }
}

int cb_filter_best(const double *at, int n_layer, int n_dense, struct filter_set *out)
{
    const size_t cells = (size_t)(MAX_FILTERS + 1) * (size_t)n_layer;
    double *least = cb_calloc(cells, sizeof *least);
    int *next = cb_calloc(cells, sizeof *next);

    out->n = 0;
    out->lost = INFINITY;
    if (least && next)
        fill(at, n_layer, least, next);
    for (int m = 2; least && next && m <= MAX_FILTERS; m++) {
        const int first = n_dense - m;
        if (first < 1 || first >= n_layer || !(least[m * n_layer + first] < out->lost))
            continue;
        out->n = m;
        out->lost = least[m * n_layer + first];
        out->layer[0] = first;
        for (int i = 1; i < m; i++)
            out->layer[i] = next[(m - i + 1) * n_layer + out->layer[i - 1]];
    }
    free(least);
    free(next);
    return out->n;
}

/* Adds the set's other filters after the n so far, all ways; the best of them -> out */
static void add_filters(const double *at, int n_layer, int most, const struct filter_set *set,
                        struct filter_set *out)
{
    const int last = set->layer[set->n - 1];

    if (set->n == most) {
        struct filter_set x = *set;
        x.lost = 0;
        for (int i = 0; i < x.n; i++)
            x.lost += loss(at, n_layer, x.layer[i], i + 1 < x.n ? x.layer[i + 1] : n_layer, 1);
        if (x.lost < out->lost)
            *out = x;
        return;
    }
    for (int f = last + 2; f < n_layer; f++) { /* after the layer that waits */
        struct filter_set x = *set;
        x.layer[x.n++] = f;
        add_filters(at, n_layer, most, &x, out);
    }
}

int cb_filter_paper(const double *at, int n_layer, struct filter_set *out)
{
    const int m = n_layer >= 28 ? 3 : n_layer >= 20 ? 2 : 1;

    *out = (struct filter_set){ .lost = INFINITY };
    for (int first = 1; first + 2 * m <= n_layer / 4; first++) {
        const struct filter_set set = { .layer = { first }, .n = 1 };
        add_filters(at, n_layer, m, &set, out);
    }
    return out->n;
}

int cb_filter_dense(const struct filter_set *set, int n_layer, int wait)
{
    int n = set->layer[0];

    for (int i = 0; i < set->n; i++) {
        const int next = i + 1 < set->n ? set->layer[i + 1] : n_layer;
        n += next - set->layer[i] < 1 + wait ? next - set->layer[i] : 1 + wait;
    }
    return n;
}
