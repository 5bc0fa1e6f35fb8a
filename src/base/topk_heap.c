/* SPDX-License-Identifier: MIT */
/* topk_heap.c - the first k of many numbers, with a heap of the best k seen so far. */
#include "topk_heap.h"

#include <math.h>
#include <stddef.h>

enum { LOOK = 64 }; /* numbers compared at once */

int cb_topk_before(const struct topk_item *a, const struct topk_item *b)
{
    if (a->x != b->x)
        return a->x > b->x;
    if (a->second != b->second)
        return a->second > b->second;
    return a->i < b->i;
}

/* heap[n] with the last in order on top */
static void sift(struct topk_item *heap, int n, int i)
{
    const struct topk_item x = heap[i];

    for (int c; (c = 2 * i + 1) < n; i = c) {
        c += c + 1 < n && cb_topk_before(&heap[c], &heap[c + 1]);
        if (!cb_topk_before(&x, &heap[c]))
            break;
        heap[i] = heap[c];
    }
    heap[i] = x;
}

static float number(float x)
{
    return isnan(x) ? -INFINITY : x;
}

static struct topk_item entry(const float *x, const float *second, int i)
{
    return (struct topk_item){ number(x[i]), second ? number(second[i]) : 0, i };
}

/* 1: none of LOOK numbers reaches bar. Most are far below it, and a vector comparison shows that
 * quickly. */
static int all_below(const float *x, float bar)
{
    int n = 0;

    for (int i = 0; i < LOOK; i++)
        n += x[i] >= bar;
    return !n;
}

void cb_topk_heap(const float *x, const float *second, int n, int k, struct topk_item *out)
{
    for (int i = 0; i < k; i++)
        out[i] = entry(x, second, i);
    for (int i = k / 2; i-- > 0;)
        sift(out, k, i);
    for (int from = k; k > 0 && from < n; from += LOOK) {
        const int end = n - from < LOOK ? n : from + LOOK;
        if (end - from == LOOK && all_below(x + from, out[0].x))
            continue;
        for (int i = from; i < end; i++) {
            const struct topk_item e = entry(x, second, i);
            if (cb_topk_before(&e, &out[0])) {
                out[0] = e;
                sift(out, k, 0);
            }
        }
    }
}
