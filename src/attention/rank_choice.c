/* SPDX-License-Identifier: MIT */
/* rank_choice.c - the best entries of lists of which each rank has found its own best. The ranks
 * share them, and each finds the score of the last one chosen, and how many of the entries with
 * this very score are chosen: those of the lowest positions. */
#include "rank_choice.h"

#include <math.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/err.h"

enum { NONE = -1 }; /* in place of a position: no entry */

struct entry {
    float score;
    int32_t pos;
};

struct rank_choice {
    struct ranks *team;
    int n_list, most;
    struct entry *mine; /* [n_list][most] */
    struct entry *all;  /* [ranks][n_list][most] */
    float *score;       /* [ranks * most] of a list */
    int32_t *at;        /* [ranks * most] places among them; [0..]: then positions of ties */
    int32_t *chosen;    /* [n_list][most] positions of this rank */
    int *n;             /* [n_list] entries, then chosen ones, of this rank */
    char *shared;
    size_t cap_shared, cap, cap_all, cap_chosen, cap_n, cap_score, cap_at;
};

int cb_rank_choice_open(struct ranks *team, struct rank_choice **out)
{
    if (!(*out = cb_calloc(1, sizeof **out)))
        return CB_ENOMEM;
    (*out)->team = team;
    return CB_OK;
}

void cb_rank_choice_close(struct rank_choice *x)
{
    if (!x)
        return;
    free(x->shared);
    free(x->mine);
    free(x->all);
    free(x->score);
    free(x->at);
    free(x->chosen);
    free(x->n);
    free(x);
}

size_t cb_rank_choice_bytes(const struct rank_choice *x)
{
    return x->cap_shared + (x->cap + x->cap_all) * sizeof(struct entry) +
           x->cap_score * sizeof *x->score + (x->cap_at + x->cap_chosen) * sizeof *x->at;
}

uint64_t cb_rank_choice_sends(int n_list, int most)
{
    return (uint64_t)n_list * (uint64_t)most * sizeof(struct entry);
}

int cb_rank_choice_share(struct rank_choice *x, const void *mine, size_t bytes, const void **all)
{
    TRY(cb_grow(&x->shared, &x->cap_shared, bytes * (size_t)cb_ranks_n(x->team), 1));
    TRY(cb_ranks_share(x->team, mine, bytes, x->shared));
    *all = x->shared;
    return CB_OK;
}

int cb_rank_choice_join(struct rank_choice *x, float *lse, int n)
{
    const int n_rank = cb_ranks_n(x->team);
    const void *all;
    const float *of;

    TRY(cb_rank_choice_share(x, lse, (size_t)n * sizeof *lse, &all));
    of = all;
    for (int i = 0; i < n; i++) {
        double most = -INFINITY, sum = 0;
        for (int r = 0; r < n_rank; r++)
            most = (double)of[r * n + i] > most ? (double)of[r * n + i] : most;
        for (int r = 0; r < n_rank; r++)
            sum += exp((double)of[r * n + i] - most);
        lse[i] = (float)(most + log(sum));
    }
    return CB_OK;
}

int cb_rank_choice_begin(struct rank_choice *x, int n_list, int most)
{
    const size_t n = (size_t)n_list * (size_t)most, n_rank = (size_t)cb_ranks_n(x->team);

    TRY(cb_grow(&x->mine, &x->cap, n, sizeof *x->mine));
    TRY(cb_grow(&x->all, &x->cap_all, n * n_rank, sizeof *x->all));
    TRY(cb_grow(&x->score, &x->cap_score, n_rank * (size_t)most, sizeof *x->score));
    TRY(cb_grow(&x->at, &x->cap_at, n_rank * (size_t)most, sizeof *x->at));
    TRY(cb_grow(&x->chosen, &x->cap_chosen, n, sizeof *x->chosen));
    TRY(cb_grow(&x->n, &x->cap_n, (size_t)n_list, sizeof *x->n));
    x->n_list = n_list;
    x->most = most;
    for (size_t i = 0; i < n; i++)
        x->mine[i] = (struct entry){ 0, NONE };
    for (int i = 0; i < n_list; i++)
        x->n[i] = 0;
    return CB_OK;
}

void cb_rank_choice_add(struct rank_choice *x, int list, float score, int32_t pos)
{
    x->mine[(size_t)list * (size_t)x->most + (size_t)x->n[list]++] = (struct entry){ score, pos };
}

/* The entries of a list that rank r has sent; they end at the first without a position. */
static const struct entry *sent(const struct rank_choice *x, int r, int list)
{
    return x->all + ((size_t)r * (size_t)x->n_list + (size_t)list) * (size_t)x->most;
}

static int by_value(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

/* The least score that is chosen in a list; of the entries that have it, those up to position
 * *last are. */
static float least_chosen(struct rank_choice *x, struct device *d, int list, int k, int32_t *last)
{
    int n = 0, n_equal = 0, n_tie = 0;
    float least;

    for (int r = 0; r < cb_ranks_n(x->team); r++)
        for (int i = 0; i < x->most && sent(x, r, list)[i].pos != NONE; i++)
            x->score[n++] = sent(x, r, list)[i].score;
    k = k < n ? k : n;
    *last = NONE;
    if (k < 1)
        return 0;
    d->ops->topk(d, x->score, n, k, x->at);
    least = x->score[x->at[0]];
    for (int i = 1; i < k; i++)
        least = x->score[x->at[i]] < least ? x->score[x->at[i]] : least;
    for (int i = 0; i < k; i++)
        n_equal += x->score[x->at[i]] == least;
    for (int r = 0; r < cb_ranks_n(x->team); r++)
        for (int i = 0; i < x->most && sent(x, r, list)[i].pos != NONE; i++)
            if (sent(x, r, list)[i].score == least)
                x->at[n_tie++] = sent(x, r, list)[i].pos;
    qsort(x->at, (size_t)n_tie, sizeof *x->at, by_value);
    *last = n_equal ? x->at[n_equal - 1] : NONE;
    return least;
}

static void choose(struct rank_choice *x, struct device *d, int list, int k)
{
    const struct entry *e = x->mine + (size_t)list * (size_t)x->most;
    int32_t *to = x->chosen + (size_t)list * (size_t)x->most, last;
    const float least = least_chosen(x, d, list, k, &last);
    int n = 0;

    for (int i = 0; k > 0 && i < x->n[list]; i++)
        if (e[i].score > least || (e[i].score == least && e[i].pos <= last))
            to[n++] = e[i].pos;
    x->n[list] = n;
}

int cb_rank_choice_end(struct rank_choice *x, struct device *d, const int *k)
{
    TRY(cb_ranks_share(x->team, x->mine, (size_t)x->n_list * (size_t)x->most * sizeof *x->mine,
                       x->all));
    for (int i = 0; i < x->n_list; i++)
        choose(x, d, i, k[i]);
    return CB_OK;
}

const int32_t *cb_rank_choice_of(const struct rank_choice *x, int list, int *n)
{
    *n = x->n[list];
    return x->chosen + (size_t)list * (size_t)x->most;
}
