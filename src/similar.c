/* SPDX-License-Identifier: MIT */
/* similar.c - which kept key a dropped one resembles most: for methods that merge. */
#include "similar.h"

#include <math.h>
#include <stdlib.h>

#include "err.h"

enum { LANES = 8, BLOCK = 16 }; /* floats a step of a sum; dropped keys an item of work */

struct similar {
    float *kept; /* [n][hd] unit keys */
    size_t cap;  /* floats */
    struct near_slot *out;
    int *slot; /* [n_ctx] the kept ones */
};

int cb_similar_open(struct cb_session *s)
{
    struct similar *m = s->similar = cb_calloc(1, sizeof *m);
    if (!m)
        return CB_ENOMEM;
    m->out = cb_alloc_aligned((size_t)s->n_ctx, sizeof *m->out);
    m->slot = cb_alloc_aligned((size_t)s->n_ctx, sizeof *m->slot);
    return m->out && m->slot ? CB_OK : CB_ENOMEM;
}

void cb_similar_close(struct cb_session *s)
{
    if (!s->similar)
        return;
    free(s->similar->kept);
    free(s->similar->out);
    free(s->similar->slot);
    free(s->similar);
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
    for (int i = 0; norm > 0 && i < n; i++)
        x[i] /= norm;
}

struct job {
    struct cb_session *s;
    int l, kv, n_kept, n_out;
};

/* Keys become unit keys, BLOCK of them. */
static void unpack_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct similar *m = job->s->similar;
    const int hd = job->s->model->hp.hd, from = item * BLOCK;

    (void)thread;
    for (int i = from; i < from + BLOCK && i < job->n_kept; i++) {
        float *x = m->kept + (size_t)i * (size_t)hd;
        cb_store_get(&job->s->store[job->l], job->s->dev, job->kv, 0, m->slot[i], x);
        unit(x, hd);
    }
}

static void nearest_item(void *ctx, int item, int thread)
{
    enum { MAX_HD = 512 };
    const struct job *job = ctx;
    const struct similar *m = job->s->similar;
    const int hd = job->s->model->hp.hd, from = item * BLOCK;
    float x[MAX_HD];

    (void)thread;
    for (int i = from; i < from + BLOCK && i < job->n_out; i++) {
        struct near_slot *y = &m->out[i];
        cb_store_get(&job->s->store[job->l], job->s->dev, job->kv, 0, y->from, x);
        unit(x, hd);
        y->cosine = -INFINITY;
        for (int j = 0; j < job->n_kept; j++) {
            const float c = dot(x, m->kept + (size_t)j * (size_t)hd, hd);
            if (c > y->cosine) {
                y->cosine = c;
                y->to = m->slot[j];
            }
        }
    }
}

int cb_view_nearest(struct policy *p, int l, int kv, const int *keep, int n_keep,
                    const struct near_slot **out)
{
    struct cb_session *s = p->session;
    struct similar *m = s->similar;
    struct job job = { s, l, kv, n_keep, 0 };
    const size_t need = (size_t)n_keep * (size_t)s->model->hp.hd;

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
            m->out[job.n_out++].from = i;
    cb_par_for(s->dev->par, (n_keep + BLOCK - 1) / BLOCK, unpack_item, &job);
    cb_par_for(s->dev->par, (job.n_out + BLOCK - 1) / BLOCK, nearest_item, &job);
    *out = m->out;
    return job.n_out;
}
