/* SPDX-License-Identifier: MIT */
/* repetition.c - which tokens would prolong a repetition of the last ones. */
#include "repetition.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct repetition {
    int n_last, n_vocab;
    int32_t *ring; /* [n_last] */
    int64_t n;     /* tokens ever added */
    int32_t *back; /* [n_last] the ring's tokens, the newest one first */
    int *same;     /* [n_last] how many tokens from here are those from the newest one */
    int *longest;  /* [n_vocab] 0 between calls */
    char *breaks;  /* [n_vocab] */
};

int cb_repetition_new(int n_last, int n_vocab, const int32_t *breaker, int n,
                      struct repetition **out)
{
    struct repetition *r = cb_calloc(1, sizeof *r);

    *out = r;
    if (!r)
        return CB_ENOMEM;
    r->n_last = n_last;
    r->n_vocab = n_vocab;
    r->ring = cb_calloc((size_t)n_last, sizeof *r->ring);
    r->back = cb_calloc((size_t)n_last, sizeof *r->back);
    r->same = cb_calloc((size_t)n_last, sizeof *r->same);
    r->longest = cb_calloc((size_t)n_vocab, sizeof *r->longest);
    r->breaks = cb_calloc((size_t)n_vocab, 1);
    if (!r->ring || !r->back || !r->same || !r->longest || !r->breaks)
        return CB_ENOMEM; /* the caller frees what there is */
    for (int i = 0; i < n; i++)
        if (breaker[i] >= 0 && breaker[i] < n_vocab)
            r->breaks[breaker[i]] = 1;
    return CB_OK;
}

int cb_repetition_fork(const struct repetition *from, struct repetition **out)
{
    cb_repetition_free(*out);
    TRY(cb_repetition_new(from->n_last, from->n_vocab, NULL, 0, out));
    memcpy((*out)->ring, from->ring, (size_t)from->n_last * sizeof *from->ring);
    memcpy((*out)->breaks, from->breaks, (size_t)from->n_vocab);
    (*out)->n = from->n;
    return CB_OK;
}

void cb_repetition_free(struct repetition *r)
{
    if (!r)
        return;
    free(r->ring);
    free(r->back);
    free(r->same);
    free(r->longest);
    free(r->breaks);
    free(r);
}

void cb_repetition_add(struct repetition *r, int32_t token)
{
    r->ring[r->n++ % r->n_last] = token;
}

/* The Z algorithm: same[i] = how many tokens back[i..] shares with back[0..], at most `most` */
static void match(struct repetition *r, int n, int most)
{
    int left = 0, right = 0; /* back[left..right-1] is the match that reaches farthest */

    for (int i = 1; i < n; i++) {
        int k = i < right && r->same[i - left] < right - i ? r->same[i - left]
                : i < right                                ? right - i
                                                           : 0;
        while (i + k < n && k < most && r->back[k] == r->back[i + k])
            k++;
        r->same[i] = k;
        if (i + k > right) {
            left = i;
            right = i + k;
        }
    }
}

void cb_repetition_each(struct repetition *r, void (*fn)(void *arg, int32_t token, int n),
                        void *arg)
{
    const int n = r->n < r->n_last ? (int)r->n : r->n_last;
    int most = 0;

    for (int i = 0; i < n; i++)
        r->back[i] = r->ring[(r->n - 1 - i) % r->n_last];
    while (most < n && !r->breaks[r->back[most]])
        most++;
    match(r, n, most);
    for (int i = 1; i < n; i++) {
        int *longest = &r->longest[r->back[i - 1]];
        if (!r->breaks[r->back[i - 1]] && r->same[i] > *longest)
            *longest = r->same[i];
    }
    for (int i = 1; i < n; i++) {
        int *longest = &r->longest[r->back[i - 1]];
        if (*longest)
            fn(arg, r->back[i - 1], *longest);
        *longest = 0;
    }
}
