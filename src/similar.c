/* SPDX-License-Identifier: MIT */
/* similar.c - which kept key a dropped one resembles most: for methods that merge. */
#include "similar.h"

#include <math.h>
#include <stdlib.h>

#include "err.h"

/* floats a step of a sum; keys an item; at once */
enum { LANES = 8, BLOCK = CB_STORE_MANY, BATCH = 4096 };

struct similar {
    float *kept; /* [n][hd] unit keys */
    float *gone; /* [BATCH][hd] the same of those that go */
    size_t cap;  /* floats of kept */
    struct near_slot *out;
    int *slot;    /* [n_ctx] the kept ones */
    int32_t *idx; /* [BATCH] */
    float *dot;   /* [BATCH] */
};

int cb_similar_open(struct cb_session *s)
{
    struct similar *m;

    if (!s->policy->m->merges)
        return CB_OK;
    m = s->similar = cb_calloc(1, sizeof *m);
    if (!m)
        return CB_ENOMEM;
    m->out = cb_alloc_aligned((size_t)s->n_ctx, sizeof *m->out);
    m->slot = cb_alloc_aligned((size_t)s->n_ctx, sizeof *m->slot);
    m->gone = cb_alloc_aligned((size_t)BATCH * (size_t)s->model->hp.hd, sizeof *m->gone);
    m->idx = cb_alloc_aligned(BATCH, sizeof *m->idx);
    m->dot = cb_alloc_aligned(BATCH, sizeof *m->dot);
    TRY(cb_par_reserve(s->dev->par, (size_t)BLOCK * (size_t)s->model->hp.hd * sizeof(float)));
    return m->out && m->slot && m->gone && m->idx && m->dot ? CB_OK : CB_ENOMEM;
}

void cb_similar_close(struct cb_session *s)
{
    if (!s->similar)
        return;
    free(s->similar->kept);
    free(s->similar->gone);
    free(s->similar->idx);
    free(s->similar->dot);
    free(s->similar->out);
    free(s->similar->slot);
    free(s->similar);
}

size_t cb_similar_bytes(const struct cb_session *s, int n_most, int n_kept)
{
    const size_t hd = (size_t)s->model->hp.hd, kept = (size_t)n_kept * hd;

    if (!s->similar)
        return 0;
    return (size_t)n_most * (sizeof *s->similar->out + sizeof *s->similar->slot) +
           (kept + kept / 4 + BATCH * (hd + 2)) * sizeof(float);
}

/* 8 lanes, then in order */
static float dot(const float *a, const float *b, int n)
{
    float lane[LANES] = { 0 }, sum = 0;
    int i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

static void unit(float *x, int n)
{
    const float norm = sqrtf(dot(x, x, n));
    const float scale = norm > 0 ? 1 / norm : 1;

    for (int i = 0; i < n; i++)
        x[i] *= scale;
}

struct job {
    struct cb_session *s;
    int l, kv, n;
    const int *slot; /* [n] */
    float *x;        /* [n][hd] unit keys */
};

/* Keys of slot[n], n <= BLOCK, as unit keys */
static void unit_keys(struct cb_session *s, int l, int kv, const int *slot, int n, float *x)
{
    const int hd = s->model->hp.hd;

    cb_store_get_many(&s->store[l], s->dev, kv, 0, slot, n, x);
    for (int i = 0; i < n; i++)
        unit(x + (size_t)i * (size_t)hd, hd);
}

static int block_of(const struct job *job, int item)
{
    const int left = job->n - item * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

static void unpack_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const size_t first = (size_t)item * BLOCK;

    (void)thread;
    unit_keys(job->s, job->l, job->kv, job->slot + first, block_of(job, item),
              job->x + first * (size_t)job->s->model->hp.hd);
}

static void unpack(struct job job)
{
    cb_par_for(job.s->dev->par, (job.n + BLOCK - 1) / BLOCK, unpack_item, &job);
}

/* Of a block of kept keys the one that is most like the only one that goes -> idx[item], dot[item] */
static void like_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    struct similar *m = job->s->similar;
    const int hd = job->s->model->hp.hd;
    float *x = cb_par_scratch(job->s->dev->par, thread);

    unit_keys(job->s, job->l, job->kv, job->slot + (size_t)item * BLOCK, block_of(job, item), x);
    m->idx[item] = 0;
    m->dot[item] = -INFINITY;
    for (int i = 0; i < block_of(job, item); i++) {
        const float u = dot(x + (size_t)i * (size_t)hd, m->gone, hd);
        if (u > m->dot[item]) {
            m->idx[item] = item * BLOCK + i;
            m->dot[item] = u;
        }
    }
}

/* One slot goes, as at each step of generation. */
static int one_nearest(struct cb_session *s, int l, int kv, int n_keep)
{
    struct similar *m = s->similar;
    struct near_slot *y = m->out;
    struct job job = { s, l, kv, n_keep, m->slot, NULL };
    const int n_item = (n_keep + BLOCK - 1) / BLOCK;
    int best = 0;

    unit_keys(s, l, kv, &y->from, 1, m->gone);
    cb_par_for(s->dev->par, n_item, like_item, &job);
    for (int i = 1; i < n_item; i++)
        best = m->dot[i] > m->dot[best] ? i : best;
    y->to = m->slot[m->idx[best]];
    y->cosine = m->dot[best];
    return 1;
}

static int make_room(struct similar *m, size_t need)
{
    if (need <= m->cap)
        return CB_OK;
    free(m->kept);
    m->cap = 0;
    if (!(m->kept = cb_alloc_aligned(need + need / 4, sizeof *m->kept)))
        return CB_ENOMEM;
    m->cap = need + need / 4;
    return CB_OK;
}

int cb_view_nearest(struct policy *p, int l, int kv, const int *keep, int n_keep,
                    const struct near_slot **out)
{
    struct cb_session *s = p->session;
    struct similar *m = s->similar;
    const int hd = s->model->hp.hd;
    int n_out = 0;

    for (int i = 0, k = 0; i < s->store[l].n[kv]; i++)
        if (k < n_keep && keep[k] == i)
            m->slot[k++] = i;
        else
            m->out[n_out++].from = i;
    *out = m->out;
    if (n_out == 1 && n_keep > 0 && n_keep <= BATCH * BLOCK)
        return one_nearest(s, l, kv, n_keep);
    TRY(make_room(m, (size_t)n_keep * (size_t)hd));
    unpack((struct job){ s, l, kv, n_keep, m->slot, m->kept });
    for (int from = 0; from < n_out; from += BATCH) {
        struct near_slot *y = m->out + from;
        const int n = n_out - from < BATCH ? n_out - from : BATCH;
        for (int i = 0; i < n; i++)
            m->idx[i] = y[i].from;
        unpack((struct job){ s, l, kv, n, m->idx, m->gone });
        s->dev->ops->nearest(s->dev, m->gone, n, m->kept, n_keep, hd, m->idx, m->dot);
        for (int i = 0; i < n; i++) {
            y[i].to = m->slot[m->idx[i]];
            y[i].cosine = m->dot[i];
        }
    }
    return n_out;
}
