/* SPDX-License-Identifier: MIT */
/* coverage.c - how much of full attention falls on what a policy reads. */
#include "coverage.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/session.h"

/* ---- the rows of full attention ---- */

int cb_full_rows_open(struct full_rows *r, const cb_model *m, int n_ctx)
{
    *r = (struct full_rows){ .n_layer = cb_model_policy_layers(m),
                             .n_head = m->hp.n_head,
                             .n_ctx = n_ctx };
    r->row =
        cb_alloc_aligned((size_t)r->n_layer * (size_t)r->n_head * (size_t)n_ctx, sizeof *r->row);
    return r->row ? CB_OK : CB_ENOMEM;
}

void cb_full_rows_close(struct full_rows *r)
{
    free(r->row);
    *r = (struct full_rows){ 0 };
}

static float *full_row(const struct full_rows *r, int l, int h)
{
    return r->row + ((size_t)l * (size_t)r->n_head + (size_t)h) * (size_t)r->n_ctx;
}

/* Where sinks that are no tokens take a part, the tokens' share of the rest counts. */
void cb_full_rows_look(void *rows, int l, int n_cand, const struct scores *s)
{
    struct full_rows *r = rows;

    (void)n_cand;
    if (s->prompt)
        return;
    assert(s->n_row == r->n_head && s->n <= r->n_ctx);
    r->n = s->n;
    for (int h = 0; h < r->n_head; h++) {
        const float *x = s->s + (size_t)h * (size_t)s->stride;
        float *y = full_row(r, l, h);
        double sum = 0;
        for (int j = 0; j < s->n; j++)
            sum += (double)x[j];
        for (int j = 0; j < s->n; j++)
            y[j] = sum > 0 ? (float)((double)x[j] / sum) : 0;
    }
}

/* ---- beside what is read ---- */

static int in_passage(const struct coverage *c, int pos)
{
    return pos >= c->from && pos < c->to;
}

/* Query heads h..h+n_head-1 of layer l have read the same tokens, those in c->mark. */
static void add(struct coverage *c, int l, int h, int n_head, struct cover *out)
{
    const int n = c->full->n;
    double recall = 0, best = 0;
    int read = 0, common = 0, in = 0, best_in = 0;

    memset(c->row, 0, (size_t)n * sizeof *c->row);
    for (int i = h; i < h + n_head; i++)
        for (int j = 0; j < n; j++)
            c->row[j] += full_row(c->full, l, i)[j] / (float)n_head;
    for (int j = 0; j < n; j++) {
        read += c->mark[j];
        in += c->mark[j] && in_passage(c, j);
        recall += c->mark[j] ? (double)c->row[j] : 0;
    }
    c->dev->ops->topk(c->dev, c->row, n, read, c->top);
    for (int j = 0; j < read; j++) {
        best += (double)c->row[c->top[j]];
        common += c->mark[c->top[j]];
        best_in += in_passage(c, c->top[j]);
    }
    out->read += read;
    out->share += (double)read / n;
    out->recall += recall;
    out->best += best;
    out->overlap += (double)common / read;
    out->hit += (double)in / read;
    out->best_hit += (double)best_in / read;
    out->found += c->to ? (double)in / (c->to - c->from) : 0;
}

static void add_scaled(struct cover *to, const struct cover *x, double by)
{
    to->read += by * x->read;
    to->share += by * x->share;
    to->recall += by * x->recall;
    to->best += by * x->best;
    to->overlap += by * x->overlap;
    to->hit += by * x->hit;
    to->best_hit += by * x->best_hit;
    to->found += by * x->found;
}

static void look(void *arg, const struct attention *a, int l)
{
    struct coverage *c = arg;
    const int i = cb_policy_index(a->policy, l), group = cb_attention_group(a);
    const int each = cb_reads_by_head(a) ? 1 : group, parts = group / each;

    if (i < 0)
        return;
    assert(c->n_step < c->cap_step && a->bank->n_seen + 1 == c->full->n);
    for (int kv = 0; kv < c->n_kv; kv++) {
        struct cover x = { 0 };
        for (int h = kv * group; h < (kv + 1) * group; h += each) {
            memset(c->mark, 0, (size_t)c->full->n);
            cb_reads_mark(a, l, h, c->mark);
            add(c, i, h, each, &x);
        }
        add_scaled(&c->sum[i * c->n_kv + kv], &x, 1.0 / parts);
        c->missing[c->n_step] += (1 - x.recall / parts) / (c->full->n_layer * c->n_kv);
    }
    c->n_step += i == c->full->n_layer - 1;
}

int cb_coverage_open(struct coverage *c, const cb_model *m, const struct full_rows *full,
                     int n_step)
{
    const size_t n = (size_t)full->n_ctx;

    *c = (struct coverage){ .full = full, .dev = m->dev, .n_kv = m->hp.n_kv, .cap_step = n_step };
    c->watch = (struct read_watch){ look, c };
    c->sum = cb_calloc((size_t)full->n_layer * (size_t)c->n_kv, sizeof *c->sum);
    c->missing = cb_calloc((size_t)n_step, sizeof *c->missing);
    c->mark = cb_calloc(n, 1);
    c->row = cb_alloc_aligned(n, sizeof *c->row);
    c->top = cb_calloc(n, sizeof *c->top);
    return c->sum && c->missing && c->mark && c->row && c->top ? CB_OK : CB_ENOMEM;
}

void cb_coverage_close(struct coverage *c)
{
    free(c->sum);
    free(c->missing);
    free(c->mark);
    free(c->row);
    free(c->top);
    *c = (struct coverage){ 0 };
}

void cb_coverage_watch(struct coverage *c, cb_session *s)
{
    s->attention.watch = &c->watch;
}

struct cover cb_coverage_mean(const struct coverage *c, int l, int n_l, int kv, int n_k)
{
    struct cover mean = { 0 };

    for (int i = l; i < l + n_l; i++)
        for (int k = kv; k < kv + n_k; k++)
            add_scaled(&mean, &c->sum[i * c->n_kv + k], 1.0 / (c->n_step * n_l * n_k));
    return mean;
}
