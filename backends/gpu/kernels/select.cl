/* SPDX-License-Identifier: MIT */
/* select.cl - the largest of many: heads, tokens, dot products. */

#define ITEMS_A_GROUP 64

/* Log-sum-exp of row GROUP(0)'s numbers from GROUP(1) * piece on, as two numbers to be added: the
 * largest, and what the others add -> lse[rows][pieces][2] */
KERNEL void part_lse(GLOBAL const float *logit, int stride, int n, int piece, GLOBAL float *lse)
{
    LOCAL float part[2][ITEMS_A_GROUP];
    const int item = ITEM(), from = GROUP(1) * piece, to = from + piece < n ? from + piece : n;
    GLOBAL const float *x = logit + (long)GROUP(0) * stride;
    float max = -INFINITY, sum = 0.0f;

    for (int i = from + item; i < to; i += ITEMS_A_GROUP)
        max = fmax(max, x[i]);
    max = group_max(max, part[0], ITEMS_A_GROUP);
    for (int i = from + item; i < to; i += ITEMS_A_GROUP)
        sum += exp(x[i] - max);
    sum = group_sum(sum, part[1], ITEMS_A_GROUP);
    lse += 2 * (GROUP(0) * ((n + piece - 1) / piece) + GROUP(1));
    if (item == 0) {
        lse[0] = max;
        lse[1] = log(sum);
    }
}

/* Row GROUP(0): that of its n pieces, as part_lse leaves them -> lse[rows][2] */
KERNEL void head_lse(GLOBAL const float *part_, int n, GLOBAL float *lse)
{
    LOCAL float part[2][ITEMS_A_GROUP];
    GLOBAL const float *x = part_ + 2 * GROUP(0) * n;
    const int item = ITEM();
    float max = -INFINITY, sum = 0.0f;

    for (int i = item; i < n; i += ITEMS_A_GROUP)
        max = fmax(max, x[2 * i]);
    max = group_max(max, part[0], ITEMS_A_GROUP);
    for (int i = item; i < n; i += ITEMS_A_GROUP)
        sum += exp(x[2 * i] - max + x[2 * i + 1]);
    sum = group_sum(sum, part[1], ITEMS_A_GROUP);
    if (item == 0) {
        lse[2 * GROUP(0)] = max;
        lse[2 * GROUP(0) + 1] = log(sum);
    }
}

KERNEL void best_head(GLOBAL const float *logit, int stride, int n_head, int normed,
                      GLOBAL const float *lse, GLOBAL float *best, long n)
{
    const long j = THREAD();
    float most = -INFINITY;

    if (j >= n)
        return;
    for (int h = 0; h < n_head; h++) {
        float x = logit[(long)h * stride + j];
        if (normed)
            x = x - lse[2 * h] - lse[2 * h + 1];
        most = h && most > x ? most : x;
    }
    best[j] = most;
}

/* Row GROUP(0) of x: the row of y with the largest dot product, the lower index of equals */
KERNEL void nearest(GLOBAL const float *x, GLOBAL const float *y, int m, int hd, GLOBAL int *idx,
                    GLOBAL float *dot_)
{
    LOCAL float most_[ITEMS_A_GROUP];
    LOCAL int at_[ITEMS_A_GROUP];
    GLOBAL const float *q = x + (long)GROUP(0) * hd;
    const int item = ITEM();
    float most = -INFINITY;
    int at = m;

    for (int j = item; j < m; j += ITEMS_A_GROUP) {
        float sum = 0.0f;
        for (int c = 0; c < hd; c++)
            sum += q[c] * y[(long)j * hd + c];
        if (sum > most) {
            most = sum;
            at = j;
        }
    }
    most_[item] = most;
    at_[item] = at;
    BARRIER();
    if (item == 0) {
        for (int i = 1; i < ITEMS_A_GROUP; i++)
            if (most_[i] > most || (most_[i] == most && at_[i] < at)) {
                most = most_[i];
                at = at_[i];
            }
        idx[GROUP(0)] = at;
        dot_[GROUP(0)] = most;
    }
}

#ifdef HAS_MMA
#include "cache.cl"
#endif
