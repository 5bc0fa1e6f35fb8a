/* SPDX-License-Identifier: MIT */
/* context_share.c - what the ranks of a context split share of a prompt that was dealt out: rows of
 * its last tokens, of all of them, and results of queries. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "context_pieces.h"
#include "context_split.h"

/* The rank that computes token i of the prompt */
static int rank_of(const struct context_split *x, int i)
{
    return cb_piece_of(x, i) % x->n;
}

int cb_context_split_last(const struct attention *a, float *x, int n)
{
    if (!cb_context_split_works(a))
        return CB_OK;
    return cb_ranks_tell(a->split->team, a->split->n - 1, x, (size_t)n * sizeof *x, 0);
}

/* The rows of a step are at or after those of the rank's own that are still to be shared. */
int cb_context_split_gather(const struct attention *a, float *rows, int n)
{
    const struct context_split *x = a->split;
    const size_t row = (size_t)n;
    int end = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    for (int j = 0; j < x->n_step; j++)
        end += cb_piece(x, j * x->n + x->me + 1) - cb_piece(x, j * x->n + x->me);
    for (int j = x->n_step - 1; j >= 0; j--) {
        const int own = cb_piece(x, j * x->n + x->me + 1) - cb_piece(x, j * x->n + x->me);
        const size_t most = (size_t)cb_piece_most(x) * row;
        memset(x->mine, 0, most * sizeof *x->mine);
        memcpy(x->mine, rows + (size_t)(end -= own) * row, (size_t)own * row * sizeof *rows);
        TRY(cb_ranks_share(x->team, x->mine, most * sizeof *x->mine, x->all));
        for (int r = 0; r < x->n; r++) {
            const int at = cb_piece(x, j * x->n + r), m = cb_piece(x, j * x->n + r + 1) - at;
            memcpy(rows + (size_t)at * row, x->all + (size_t)r * most,
                   (size_t)m * row * sizeof *rows);
        }
    }
    return CB_OK;
}

/* Rows of tokens from..end-1 -> rows[end - from][row] on every rank; own[]: this rank's, in order
 */
static int share_rows(const struct context_split *x, int from, int end, const float *own,
                      size_t row, float *rows)
{
    const size_t n = (size_t)(end - from) * row;

    memset(x->mine, 0, n * sizeof *x->mine);
    for (int i = from; i < end; i++)
        if (rank_of(x, i) == x->me) {
            memcpy(x->mine + (size_t)(i - from) * row, own, row * sizeof *own);
            own += row;
        }
    TRY(cb_ranks_share(x->team, x->mine, n * sizeof *x->mine, x->all));
    for (int i = from; i < end; i++)
        memcpy(rows + (size_t)(i - from) * row,
               x->all + (size_t)rank_of(x, i) * n + (size_t)(i - from) * row, row * sizeof *rows);
    return CB_OK;
}

/* Rows move towards the end or stay. So the last tokens go first: no row that is still to be moved
 * is overwritten. */
int cb_context_split_last_rows(const struct attention *a, float *rows, size_t row, int n)
{
    const struct context_split *x = a->split;
    const int first = cb_context_split_works(a) ? x->n_feed - n : 0, step = (int)(x->most / row);
    int left = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    for (int i = first; i < x->n_feed; i++)
        left += rank_of(x, i) == x->me;
    for (int end = x->n_feed; end > first; end -= step) {
        const int from = max_int(first, end - step);
        for (int i = from; i < end; i++)
            left -= rank_of(x, i) == x->me;
        TRY(share_rows(x, from, end, rows + (size_t)left * row, row,
                       rows + (size_t)(from - first) * row));
    }
    return CB_OK;
}

int cb_context_split_last_of(const struct attention *a, float *ring, size_t row, int w)
{
    const struct context_split *x = a->split;
    const int n = min_int(w, a->bank->n_feed), skip = a->bank->n_feed - n;
    float *rows;
    int err, own = 0;

    if (!cb_context_split_works(a))
        return CB_OK;
    if (!(rows = cb_calloc((size_t)n * row, sizeof *rows)))
        return CB_ENOMEM;
    for (int i = skip; i < skip + n; i++)
        if (rank_of(x, i) == x->me)
            memcpy(rows + (size_t)own++ * row, ring + (size_t)((x->from + i) % w) * row,
                   row * sizeof *rows);
    err = cb_context_split_last_rows(a, rows, row, n);
    for (int i = 0; !err && i < n; i++)
        memcpy(ring + (size_t)((x->from + skip + i) % w) * row, rows + (size_t)i * row,
               row * sizeof *rows);
    free(rows);
    return err;
}

/* Of rows[n][row], of which this rank has its queries' -> all of them */
static int share_queries(const struct context_split *x, float *rows, size_t row, int n)
{
    const size_t most = (size_t)((n + x->n - 1) / x->n) * row;
    const int own = cb_query_share(x, x->me, n), end = cb_query_share(x, x->me + 1, n);

    memset(x->mine, 0, most * sizeof *x->mine);
    memcpy(x->mine, rows + (size_t)own * row, (size_t)(end - own) * row * sizeof *rows);
    TRY(cb_ranks_share(x->team, x->mine, most * sizeof *x->mine, x->all));
    for (int r = 0; r < x->n; r++) {
        const int first = cb_query_share(x, r, n);
        memcpy(rows + (size_t)first * row, x->all + (size_t)r * most,
               (size_t)(cb_query_share(x, r + 1, n) - first) * row * sizeof *rows);
    }
    return CB_OK;
}

int cb_context_split_share_out(struct attention *a, const struct attention_call *call)
{
    const size_t n_head = (size_t)a->model->hp.n_head;
    const size_t hd = (size_t)a->model->layer[call->c.l].hd;

    TRY(share_queries(a->split, call->out, n_head * hd, call->c.n));
    return call->lse ? share_queries(a->split, call->lse, n_head, call->c.n) : CB_OK;
}
