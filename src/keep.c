/* SPDX-License-Identifier: MIT */
/* keep.c - which slots to keep: what methods share. */
#include <math.h>
#include <stdlib.h>

#include "err.h"
#include "policy.h"

int cb_keep_ends(int n, int sink, int recent, int *out)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (i >= sink && i < n - recent)
            i = n - recent;
        if (i < n)
            out[m++] = i;
    }
    return m;
}

struct key {
    float s, raw;
    int slot;
};

/* what is not a number loses to all that is */
static float number(float x)
{
    return isnan(x) ? -INFINITY : x;
}

/* the order of preference: larger score, larger raw score, lower slot */
static int better(const struct key *a, const struct key *b)
{
    if (a->s != b->s)
        return a->s > b->s;
    if (a->raw != b->raw)
        return a->raw > b->raw;
    return a->slot < b->slot;
}

/* heap[n], the worst on top */
static void sift(struct key *heap, int n, int i)
{
    const struct key x = heap[i];
    for (int c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && better(&heap[c], &heap[c + 1]))
            c++;
        if (!better(&x, &heap[c]))
            break;
        heap[i] = heap[c];
    }
    heap[i] = x;
}

static int ascending(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

int cb_keep_top(const float *s, const float *raw, int n, int k, int sink, int recent, int *out)
{
    const int from = sink < n ? sink : n, to = n - recent > from ? n - recent : from;
    int m = 0, free_k;
    struct key *heap;

    for (int i = 0; i < from; i++)
        out[m++] = i;
    for (int i = to; i < n; i++)
        out[m++] = i;
    free_k = k - m < to - from ? k - m : to - from;
    if (free_k > 0) {
        heap = cb_calloc((size_t)free_k, sizeof *heap);
        if (!heap)
            return CB_ENOMEM;
        for (int i = from, held = 0; i < to; i++) {
            const struct key x = { number(s[i]), raw ? number(raw[i]) : 0, i };
            if (held < free_k) {
                heap[held++] = x;
                for (int j = held == free_k ? held / 2 : 0; j-- > 0;)
                    sift(heap, held, j);
            } else if (better(&x, &heap[0])) {
                heap[0] = x;
                sift(heap, held, 0);
            }
        }
        for (int i = 0; i < free_k; i++)
            out[m++] = heap[i].slot;
        free(heap);
    }
    qsort(out, (size_t)m, sizeof *out, ascending);
    return m;
}

int cb_keep_budget(double budget, int n)
{
    const double b = budget < 1 ? floor(budget * n) : budget;
    return b < 1 ? 1 : b > 1e9 ? 1000000000 : (int)b;
}

int cb_keep_part(double x, int of)
{
    const double n = x < 1 && x > 0 ? fmax(1, floor(x * of)) : x;
    return n < of ? (int)n : of;
}

int cb_keep_slots(double budget, int n_prompt, int n_gen, int grow)
{
    const int keep = cb_keep_budget(budget, n_prompt), n = n_prompt + n_gen;
    if (grow)
        return (n_prompt < keep ? n_prompt : keep) + n_gen;
    return n < keep ? n : keep;
}
