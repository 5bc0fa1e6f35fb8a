/* SPDX-License-Identifier: MIT */
/* similar.c - which kept key a dropped one resembles most: for methods that merge. */
#include "similar.h"

#include <math.h>
#include <stdlib.h>

#include "err.h"

enum { LANES = 8, BLOCK = 64, BATCH = 4096 }; /* floats a step of a sum; keys an item; at once */

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
    const int *slot; /* the keys to unpack: these slots, or those of `from` */
    const struct near_slot *from;
    float *x; /* [n][hd] */
};

/* Keys become unit keys, BLOCK of them. */
static void unpack_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const int hd = job->s->model->hp.hd, first = item * BLOCK;

    (void)thread;
    for (int i = first; i < first + BLOCK && i < job->n; i++) {
        float *x = job->x + (size_t)i * (size_t)hd;
        cb_store_get(&job->s->store[job->l], job->s->dev, job->kv, 0,
                     job->slot ? job->slot[i] : job->from[i].from, x);
        unit(x, hd);
    }
}

static void unpack(struct job job)
{
    cb_par_for(job.s->dev->par, (job.n + BLOCK - 1) / BLOCK, unpack_item, &job);
}

int cb_view_nearest(struct policy *p, int l, int kv, const int *keep, int n_keep,
                    const struct near_slot **out)
{
    struct cb_session *s = p->session;
    struct similar *m = s->similar;
    const int hd = s->model->hp.hd;
    const size_t need = (size_t)n_keep * (size_t)hd;
    int n_out = 0;

    if (need > m->cap) {
        free(m->kept);
        m->cap = 0;
        if (!(m->kept = cb_alloc_aligned(need + need / 4, sizeof *m->kept)))
            return CB_ENOMEM;
        m->cap = need + need / 4;
    }
    for (int i = 0, k = 0; i < s->store[l].n[kv]; i++)
        if (k < n_keep && keep[k] == i)
            m->slot[k++] = i;
        else
            m->out[n_out++].from = i;
    unpack((struct job){ s, l, kv, n_keep, m->slot, NULL, m->kept });
    for (int from = 0; from < n_out; from += BATCH) {
        struct near_slot *y = m->out + from;
        const int n = n_out - from < BATCH ? n_out - from : BATCH;
        unpack((struct job){ s, l, kv, n, NULL, y, m->gone });
        s->dev->ops->nearest(s->dev, m->gone, n, m->kept, n_keep, hd, m->idx, m->dot);
        for (int i = 0; i < n; i++) {
            y[i].to = m->slot[m->idx[i]];
            y[i].cosine = m->dot[i];
        }
    }
    *out = m->out;
    return n_out;
}
