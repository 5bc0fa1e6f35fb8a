/* SPDX-License-Identifier: MIT */
/* context_pieces.h - how a prompt is cut into pieces for the ranks of a context split.
 * context_split.c deals the pieces out, context_share.c shares their results. */
#ifndef CONTEXT_PIECES_H
#define CONTEXT_PIECES_H

#include <stddef.h>
#include <stdint.h>

struct ranks;
struct rank_choice;

struct context_split {
    struct ranks *team;
    int me, n;
    int block;          /* positions that are dealt out together, a multiple of KV_PREPACK */
    char *deals;        /* [n_layer] */
    int works;          /* 1: a prompt is dealt out as work */
    int *row;           /* [n_ctx] tokens of the prompt that this rank computes */
    int from;           /* position where the prompt began */
    int n_feed, n_step; /* its tokens, and steps a layer; 0: each rank computes all tokens */
    int *keep;          /* [n_ctx] */
    size_t most;        /* floats of a message */
    float *mine, *all;  /* [most], [n][most] */
    float *step;        /* [n][cb_piece_most()][2 n_kv hd + n_head hd] a step's rows and queries */
    float *out;         /* [chunk][n_head * hd] results of another rank's queries */
    struct rank_choice *choice;
};

/* The first token of piece p of the prompt; the piece after the last one begins at its end. */
static inline int cb_piece(const struct context_split *x, int p)
{
    return (int)((int64_t)p * x->n_feed / ((int64_t)x->n_step * x->n));
}

/* Tokens of the longest piece; others may have one less. */
static inline int cb_piece_most(const struct context_split *x)
{
    const int64_t n = (int64_t)x->n_step * x->n;
    return (int)((x->n_feed + n - 1) / n);
}

/* The piece that token i of the prompt is of */
static inline int cb_piece_of(const struct context_split *x, int i)
{
    int p = (int)((int64_t)i * x->n_step * x->n / x->n_feed);

    while (cb_piece(x, p + 1) <= i)
        p++;
    while (cb_piece(x, p) > i)
        p--;
    return p;
}

/* The first query of rank r's share of a chunk of n; the share after the last one begins at n. */
static inline int cb_query_share(const struct context_split *x, int r, int n)
{
    return (int)((int64_t)r * n / x->n);
}

#endif
