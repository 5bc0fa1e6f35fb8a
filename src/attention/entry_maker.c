/* SPDX-License-Identifier: MIT */
/* entry_maker.c - rows that stand for several tokens. Each number of an entry is a softmax over its
 * tokens of its own, which is summed as the tokens come: the largest logit so far, the sum of the
 * weights, and that of the weighted values, which are scaled when a larger logit comes. So the
 * state is three numbers for each of the entry's, however many tokens it stands for, and entries do
 * not depend on how tokens were cut into calls. */
#include "entry_maker.h"

#include <math.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "state_memory.h"

enum { COLUMNS = 64 }; /* of an entry, that a thread takes at a time */

/* Sums of n numbers */
struct sums {
    float *max, *weight, *value; /* [n] */
};

struct making {
    const struct compressor *x;
    const float *value, *logit;
    int stride, n_tok, pos0, ratio;
    float *state;
    float *row; /* entries */
};

static struct sums sums_at(const struct making *m, int i)
{
    float *at = m->state + (size_t)i * 3 * (size_t)m->x->n;
    return (struct sums){ at, at + m->x->n, at + 2 * m->x->n };
}

static void begin(struct sums s, int from, int to)
{
    for (int i = from; i < to; i++) {
        s.max[i] = -INFINITY;
        s.weight[i] = s.value[i] = 0;
    }
}

static void move(struct sums to, struct sums from, int lo, int hi)
{
    const size_t bytes = (size_t)(hi - lo) * sizeof(float);

    memcpy(to.max + lo, from.max + lo, bytes);
    memcpy(to.weight + lo, from.weight + lo, bytes);
    memcpy(to.value + lo, from.value + lo, bytes);
}

/* Adds a token's values[n] by its logits[n] and those of its place. */
static void add(struct sums s, const float *value, const float *logit, const float *place, int from,
                int to)
{
    for (int i = from; i < to; i++) {
        const float x = logit[i] + place[i];
        if (x > s.max[i]) {
            const float less = expf(s.max[i] - x);
            s.weight[i] = s.weight[i] * less + 1;
            s.value[i] = s.value[i] * less + value[i];
            s.max[i] = x;
        } else {
            const float e = expf(x - s.max[i]);
            s.weight[i] += e;
            s.value[i] += e * value[i];
        }
    }
}

/* Some columns of all tokens. Set 0: of the entry in progress; 1: of the next one, to which the
 * tokens of this one give their first vectors. */
static void columns(void *ctx, int item, int thread)
{
    const struct making *m = ctx;
    const struct compressor *x = m->x;
    const int from = item * COLUMNS, to = min_int(x->n, from + COLUMNS);
    const int width = x->overlap ? 2 * x->n : x->n, own = width - x->n;
    const struct sums now = sums_at(m, 0), next = sums_at(m, x->overlap);
    float *row = m->row;

    (void)thread;
    for (int t = 0; t < m->n_tok; t++) {
        const int place = (m->pos0 + t) % m->ratio;
        const size_t at = (size_t)t * (size_t)m->stride;
        const float *v = m->value + at, *g = m->logit + at;
        const float *bias = x->place + (size_t)place * (size_t)width;
        if (!place && x->overlap && m->pos0 + t)
            move(now, next, from, to);
        else if (!place)
            begin(now, from, to);
        if (!place && x->overlap)
            begin(next, from, to);
        if (x->overlap)
            add(next, v, g, bias, from, to);
        add(now, v + own, g + own, bias + own, from, to);
        if (place < m->ratio - 1)
            continue;
        for (int i = from; i < to; i++)
            row[i] = now.value[i] / now.weight[i];
        row += x->n;
    }
}

int cb_entry_make(const struct attention *a, const struct layer *y, const struct compressor *x,
                  const float *value, const float *logit, int stride, int n, int pos0, float *state,
                  struct entry_work *w)
{
    const struct rope *rope = &a->rope[y->rope];
    const int ratio = y->compressed->ratio, first = pos0 / ratio, n_rot = rope->n_rot;
    const int made = (pos0 + n) / ratio - first;
    const struct ops *op = a->host->ops;
    struct making m = { x, value, logit, stride, n, pos0, ratio, state, w->row };

    cb_par_for(a->host->par, (x->n + COLUMNS - 1) / COLUMNS, columns, &m);
    if (!made)
        return 0;
    op->rmsnorm(a->host, w->row, x->norm.w, a->model->hp.norm_eps, x->n, 1, made, x->n, w->row,
                x->n);
    for (int i = 0; i < made; i++)
        cb_rope_table(rope, (first + i) * ratio, 1, w->cs + (size_t)i * (size_t)n_rot);
    op->rope(a->host, a->model->hp.rope_kind, w->row + x->n - n_rot, made, 1, x->n, x->n, n_rot,
             w->cs);
    return made;
}

int cb_entry_work_open(struct entry_work *w, void *state, const struct cb_model *m, int chunk)
{
    size_t row = 0, cs = 0;

    for (int l = 0; l < m->hp.n_layer; l++) {
        const struct layer *y = &m->layer[l];
        const int n = max_int(y->compressed->entry.n, y->compressed->index.n);
        const size_t most = y->compressed->ratio ? (size_t)(chunk / y->compressed->ratio + 1) : 0;
        row = max_size(row, most * (size_t)n);
        cs = max_size(cs, most * (size_t)m->hp.n_rot);
    }
    if (!row)
        return CB_OK;
    w->row = cb_state_alloc(state, row, sizeof *w->row);
    w->cs = cb_state_alloc(state, cs, sizeof *w->cs);
    w->bytes = (row + cs) * sizeof *w->row;
    return cb_state_status(state);
}
