/* SPDX-License-Identifier: MIT */
/* drafter.c - an index of all runs of KEY tokens: a table of the latest position of each hash, and
 * for each position the one before it with the same hash. An entry is a hint. Candidates are
 * compared with the timeline itself, so a timeline that was cut needs no cleaning up. */
#include "drafter.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"

enum {
    KEY = 3, /* tokens that must match; shorter runs are common by chance */
    TABLE = 1 << 16,
    CANDIDATES = 64, /* most positions that are compared */
    LONGEST = 32     /* a longer match says no more */
};

struct drafter {
    int32_t latest[TABLE]; /* end of the latest run of this hash, or -1 */
    int32_t *before;       /* [cap] the end of the run before */
    size_t cap;
    int n; /* ends that are indexed */
};

int cb_drafter_new(struct drafter **out)
{
    struct drafter *d = *out = cb_calloc(1, sizeof *d);

    if (!d)
        return CB_ENOMEM;
    memset(d->latest, 0xFF, sizeof d->latest);
    d->n = KEY;
    return CB_OK;
}

void cb_drafter_free(struct drafter *d)
{
    if (d)
        free(d->before);
    free(d);
}

/* Hash of the KEY tokens before tokens[end] */
static uint32_t hash(const int32_t *tokens, int end)
{
    uint32_t h = 0;

    for (int i = end - KEY; i < end; i++)
        h = (h + (uint32_t)tokens[i]) * 2654435761u;
    return (h ^ h >> 15) % TABLE;
}

/* Indexes the runs that end before tokens[n], but not the last one. */
static int index_to(struct drafter *d, const int32_t *tokens, int n)
{
    TRY(cb_grow(&d->before, &d->cap, n, sizeof *d->before));
    if (d->n > n) { /* another timeline, or one that was cut */
        memset(d->latest, 0xFF, sizeof d->latest);
        d->n = KEY;
    }
    for (; d->n < n; d->n++) {
        int32_t *slot = &d->latest[hash(tokens, d->n)];
        d->before[d->n] = *slot;
        *slot = d->n;
    }
    return CB_OK;
}

/* How many tokens before `end` are those before n, up to LONGEST */
static int match(const int32_t *tokens, int end, int n)
{
    const int most = min_int(end, LONGEST);
    int m = 0;

    while (m < most && tokens[end - 1 - m] == tokens[n - 1 - m])
        m++;
    return m;
}

int cb_drafter_guess(struct drafter *d, const int32_t *tokens, int n, int32_t *draft, int most)
{
    int best = 0, at = 0;

    if (n <= KEY || index_to(d, tokens, n))
        return 0;
    for (int end = d->latest[hash(tokens, n)], i = 0; end >= KEY && i < CANDIDATES; i++) {
        const int m = match(tokens, end, n);
        if (m > best) {
            best = m;
            at = end;
        }
        if (d->before[end] >= end)
            break;
        end = d->before[end];
    }
    if (best < KEY)
        return 0;
    for (int i = 0; i < most; i++) /* a run that reaches the end repeats itself */
        draft[i] = at + i < n ? tokens[at + i] : draft[at + i - n];
    return most;
}
