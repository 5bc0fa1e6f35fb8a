/* SPDX-License-Identifier: MIT */
/* nearest_key.c - finds the kept key that a dropped key resembles most, for methods that merge. */
#include "nearest_key.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* lanes of a sum; keys in a work item; dropped keys compared at once; largest head_dim */
enum { LANES = 8, BLOCK = CB_STORE_MANY, BATCH = 4096, MOST_HD = KV_MAX_HD };

struct nearest_key {
    struct bank *b;
    int col;     /* column of the stores: 1 / length of each key */
    float *kept; /* [n][hd] keys or values of length 1 */
    float *gone; /* [BATCH][hd] the same of dropped slots */
    size_t cap;  /* floats of kept */
    struct near_slot *out;
    int *slot;    /* [n_ctx] kept slots */
    int32_t *idx; /* [BATCH] */
    float *dot;   /* [BATCH] */
    float *row;   /* [n_ctx] dot products with the rows of one KV head */
};

int cb_nearest_key_new(struct bank *b, int col, struct nearest_key **out)
{
    struct nearest_key *m = cb_calloc(1, sizeof *m);

    if (!m)
        return CB_ENOMEM;
    *out = m;
    m->b = b;
    m->col = col;
    m->out = cb_alloc_aligned((size_t)b->n_ctx, sizeof *m->out);
    m->slot = cb_alloc_aligned((size_t)b->n_ctx, sizeof *m->slot);
    m->gone = cb_alloc_aligned((size_t)BATCH * (size_t)b->hd, sizeof *m->gone);
    m->idx = cb_alloc_aligned(BATCH, sizeof *m->idx);
    m->dot = cb_alloc_aligned(BATCH, sizeof *m->dot);
    m->row = cb_alloc_aligned((size_t)b->n_ctx, sizeof *m->row);
    return m->out && m->slot && m->gone && m->idx && m->dot && m->row ? CB_OK : CB_ENOMEM;
}

void cb_nearest_key_free(struct nearest_key *m)
{
    if (!m)
        return;
    free(m->kept);
    free(m->gone);
    free(m->idx);
    free(m->dot);
    free(m->row);
    free(m->out);
    free(m->slot);
    free(m);
}

size_t cb_nearest_key_bytes(const struct nearest_key *m, int n_most, int n_kept)
{
    const size_t hd = (size_t)m->b->hd, kept = (size_t)n_kept * hd;

    return (size_t)n_most * (sizeof *m->out + sizeof *m->slot + sizeof(float)) +
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

static float inverse_length(const float *x, int n)
{
    const float length = sqrtf(dot(x, x, n));
    return length > 0 ? 1 / length : 1;
}

static void unit(float *x, int n)
{
    const float scale = inverse_length(x, n);

    for (int i = 0; i < n; i++)
        x[i] *= scale;
}

struct job {
    struct nearest_key *m;
    int l, kv, v, n;
    const int *slot; /* [n] */
    float *x;        /* [n][hd] of length 1 */
};

/* Keys, or with v = 1 values, of slot[n], n <= BLOCK, scaled to length 1 */
static void unit_rows(struct nearest_key *m, int l, int kv, int v, const int *slot, int n, float *x)
{
    const int hd = m->b->hd;

    cb_store_get_many(&m->b->store[l], m->b->dev, kv, v, slot, n, x);
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
    unit_rows(job->m, job->l, job->kv, job->v, job->slot + first, block_of(job, item),
              job->x + first * (size_t)job->m->b->hd);
}

static void unpack(struct job job)
{
    cb_par_for(job.m->b->dev->par, (job.n + BLOCK - 1) / BLOCK, unpack_item, &job);
}

/* ---- one slot is dropped, as at each decode step ---- */

/* The column of 1 / length of each key; 0: not known yet */
static float *lengths(struct nearest_key *m, int l, int kv)
{
    return cb_store_col(&m->b->store[l], kv, m->col);
}

void cb_nearest_key_forget(struct nearest_key *m, int l, int kv, int slot)
{
    lengths(m, l, kv)[slot] = 0;
}

static void know_lengths(struct nearest_key *m, int l, int kv, float *inv)
{
    const struct store *st = &m->b->store[l];
    float key[MOST_HD];

    for (int i = 0; i < st->n[kv]; i++)
        if (!(inv[i] > 0)) {
            cb_store_get(st, m->b->dev, kv, 0, i, key);
            inv[i] = inverse_length(key, st->hd);
        }
}

/* Dot products of q with the keys of one KV head, in the order of the rows -> row */
static void products(struct nearest_key *m, int l, struct kv_run run, const float *q, float *row)
{
    const struct store *st = &m->b->store[l];
    const struct score sc = { .a = { .n_tok = 1,
                                     .n_head = 1,
                                     .n_kv = 1,
                                     .hd = st->hd,
                                     .scale = 1,
                                     .causal = !run.idx, /* as a prompt's last query sees all */
                                     .type_k = st->type_k,
                                     .type_v = st->type_v,
                                     .run = &run,
                                     .q = q },
                              .logit = 1,
                              .out = row };

    memset(row, 0, (size_t)run.n * sizeof *row);
    m->b->dev->ops->score(m->b->dev, &sc);
}

int cb_nearest_key_one(struct nearest_key *m, int l, int kv, int slot, const struct near_slot **out)
{
    const int n = m->b->store[l].n[kv];
    const struct kv_run run = cb_store_run(&m->b->store[l], kv, 0, n);
    struct near_slot y = { .from = slot, .cosine = -INFINITY };
    float *inv = lengths(m, l, kv);

    *out = m->out;
    if (n == 1)
        return 0;
    know_lengths(m, l, kv, inv);
    unit_rows(m, l, kv, 0, &slot, 1, m->gone);
    products(m, l, run, m->gone, m->row);
    for (int i = 0; i < n; i++) {
        const float u = m->row[run.order ? run.order[i] : i] * inv[i];
        if (u > y.cosine && i != slot) {
            y.to = i;
            y.cosine = u;
        }
    }
    m->out[0] = y;
    return 1;
}

static int make_room(struct nearest_key *m, size_t need)
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

int cb_nearest_key_all(struct nearest_key *m, int l, int kv, int v, const int *keep, int n_keep,
                       const struct near_slot **out)
{
    const int hd = m->b->hd;
    int n_out = 0;

    for (int i = 0, k = 0; i < m->b->store[l].n[kv]; i++)
        if (k < n_keep && keep[k] == i)
            m->slot[k++] = i;
        else
            m->out[n_out++].from = i;
    *out = m->out;
    TRY(make_room(m, (size_t)n_keep * (size_t)hd));
    unpack((struct job){ m, l, kv, v, n_keep, m->slot, m->kept });
    for (int from = 0; from < n_out; from += BATCH) {
        struct near_slot *y = m->out + from;
        const int n = n_out - from < BATCH ? n_out - from : BATCH;
        for (int i = 0; i < n; i++)
            m->idx[i] = y[i].from;
        unpack((struct job){ m, l, kv, v, n, m->idx, m->gone });
        m->b->dev->ops->nearest(m->b->dev, m->gone, n, m->kept, n_keep, hd, m->idx, m->dot);
        for (int i = 0; i < n; i++) {
            y[i].to = m->slot[m->idx[i]];
            y[i].cosine = m->dot[i];
        }
    }
    return n_out;
}
