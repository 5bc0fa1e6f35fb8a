/* SPDX-License-Identifier: MIT */
/* nearest.c - the row with the largest dot product: attention's f32 logits, then each query's
 * maximum instead of a sum. An item is ROWS queries; it packs the keys itself, a block at a time.
 */
#include <math.h>

#include "attn_tile.h"
#include "cpu/kern.h"

enum { ROWS = 252 };

struct job {
    struct par *par;
    const struct kern_attn *k;
    const float *x, *y;
    int n, m, hd;
    int32_t *idx;
    float *dot;
};

size_t cb_cpu_nearest_scratch(const struct kern_attn *k, int hd)
{
    const struct kern_qk *qk = k->qk[KV_F32];
    return ROWS * (qk->q_bytes(hd) + sizeof(float *)) + KEY_BLOCK * qk->k_bytes(hd) +
           (size_t)(SUB_TILES * k->mr * KEY_BLOCK) * sizeof(float) + 4 * 64;
}

/* Keys from..from+n-1 -> panels */
static void pack_block(const struct job *job, int from, int n, void *kp)
{
    const char *row[KEY_BLOCK];
    const struct kern_rows rows = {
        .t = KV_F32, .n = n, .row = row, .ahead = row, .bytes = (size_t)job->hd * sizeof(float)
    };

    for (int j = 0; j < KEY_BLOCK; j++)
        row[j] = (const char *)(job->y + (int64_t)(from + (j < n ? j : n - 1)) * job->hd);
    job->k->qk[KV_F32]->pack_k(&rows, job->hd, kp);
}

/* Updates one query's best key from its logits against a block. The first of equal keys stays. */
static void take_best(const struct job *job, int i, const float *s, int from, int n)
{
    const float top = job->k->largest(s, n);
    int j = 0;

    if (!(top > job->dot[i]))
        return;
    while (s[j] != top)
        j++;
    job->dot[i] = top;
    job->idx[i] = from + j;
}

static void nearest_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct kern_qk *qk = job->k->qk[KV_F32];
    const int first = item * ROWS, rows = job->n - first < ROWS ? job->n - first : ROWS;
    const int step = SUB_TILES * job->k->mr;
    char *mem = cb_par_scratch(job->par, thread);
    const float **q = cb_take(&mem, ROWS * sizeof *q);
    char *qp = cb_take(&mem, ROWS * qk->q_bytes(job->hd));
    void *kp = cb_take(&mem, KEY_BLOCK * qk->k_bytes(job->hd));
    float *s = cb_take(&mem, (size_t)(step * KEY_BLOCK) * sizeof *s);

    for (int i = 0; i < rows; i++) {
        q[i] = job->x + (int64_t)(first + i) * job->hd;
        job->idx[first + i] = 0;
        job->dot[first + i] = -INFINITY;
    }
    qk->pack_q(q, 1.0f, rows, job->k->mr, job->hd, qp);
    for (int from = 0; from < job->m; from += KEY_BLOCK) {
        const int n = job->m - from < KEY_BLOCK ? job->m - from : KEY_BLOCK;
        pack_block(job, from, n, kp);
        for (int r = 0; r < rows; r += step) {
            const int some = rows - r < step ? rows - r : step;
            qk->mul(qp + (size_t)r * qk->q_bytes(job->hd), some, job->k->mr, kp, n, job->hd, s);
            for (int i = 0; i < some; i++)
                take_best(job, first + r + i, s + i * KEY_BLOCK, from, n);
        }
    }
}

void cb_cpu_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot)
{
    struct job job = { d->par, cb_cpu_vec(d)->attn, x, y, n, m, hd, idx, dot };
    cb_par_for(d->par, (n + ROWS - 1) / ROWS, nearest_item, &job);
}
