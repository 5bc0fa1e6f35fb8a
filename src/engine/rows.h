/* SPDX-License-Identifier: MIT */
/* rows.h - the tokens that go through a layer together. */
#ifndef ROWS_H
#define ROWS_H

#include "session.h"

/* Either a chunk of one session's feed, which begins at position pos0 (the feed ends before
 * pos_end), or the next token of each of n sessions, or n_tok decoded tokens of one session. The
 * work space is the first session's. */
struct rows {
    struct cb_session *const *s; /* [n] */
    struct attention *const *a;  /* [n] theirs */
    int n, n_tok;                /* n_tok == n where n > 1 */
    int one_by_one;              /* 1: n == 1, and the tokens attend one after another */
    int pos0, pos_end;           /* as in struct chunk */
    const int32_t *pos;
    const int32_t *id; /* [n_tok] the tokens, where layers are told of them (struct layer_input) */
    float *x;          /* [n_tok][n_stream * n_embd] the residual stream */
    const float *cs[ROPE_TABLES]; /* [n_tok][n_rot/2][2] of the table's n_rot */
    int unread; /* in the last layer: number of first rows that nothing reads after it */
};

/* How many of a feed's last rows have logits or states that somebody asks for */
int cb_rows_wanted(const struct cb_session *s, const struct cb_prefill *how);
/* How many of the rows i .. i + m - 1 of a feed, counted from the first one, nothing reads after
 * layer l. 0 in models with several streams, where all are read. */
int cb_rows_unread(const struct cb_session *s, const struct cb_prefill *how, int l, int i, int m);
/* The rows that are read after the layer */
struct rows cb_rows_read(const struct rows *all);

/* The session of row i */
static inline struct cb_session *cb_rows_session(const struct rows *r, int i)
{
    return r->s[r->n > 1 ? i : 0];
}

/* The position of row i */
static inline int cb_rows_pos(const struct rows *r, int i)
{
    return r->n > 1 ? r->s[i]->bank.n_seen : r->pos ? r->pos[i] : r->pos0 + i;
}

#endif
