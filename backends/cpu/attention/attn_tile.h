/* SPDX-License-Identifier: MIT */
/* attn_tile.h - a tile of queries of one KV head and a block of keys, as attention and scores read
 * them. */
#ifndef ATTN_TILE_H
#define ATTN_TILE_H

#include "cpu/vector/kern_vec.h"

/* Queries [tok, tok + n_tok) x the heads of a KV head: row r is query r / group, head r % group.
 * The arrays lie in a thread's scratch. */
struct tile {
    const struct kern_attn *k;
    const struct attn *a;
    const struct kv_run *run;
    int kv, group, tok, n_tok, rows, mr, hd_pad;
    int unit;             /* rows that are packed together, and read the same blocks */
    int lo, hi;           /* entries that some row reads */
    const uint8_t *reads; /* [rows / unit][n_col] 0: the unit skips the block; NULL: all are read */
    int n_col;
    int *row_lo, *row_hi; /* [rows]: the entries that each row reads; both ascend */
    const float **q;      /* [rows]; multiplied by scale, so that logits are base 2 */
    float scale;
    void *qp;  /* q, packed */
    float cap; /* the softcap in base 2; 0 = none */
    const struct kern_qk *qk;
};

/* Up to KEY_BLOCK entries from `from` on, as row addresses. The second half of the arrays is the
 * next block. */
struct block {
    const struct kv_run *run; /* NULL before the first block */
    int from, n;
    int prepacked; /* 1: the block has codes and steps in the run instead of rows */
    struct kern_rows k, v;
    const char *k_row[2 * KEY_BLOCK], *v_row[2 * KEY_BLOCK];
};

/* Takes 64-byte aligned memory from a scratch. */
static inline void *cb_take(char **at, size_t bytes)
{
    char *p = *at;
    *at = p + ((bytes + 63) & ~(size_t)63);
    return p;
}

static inline int cb_hd_pad(const struct kern_attn *k, int hd)
{
    return (hd + k->vw - 1) / k->vw * k->vw;
}

/* Target height of a tile: what stays in L2 beside a block of keys. */
int cb_tile_rows(int hd);
size_t cb_tile_bytes(const struct kern_attn *k, int rows, int hd);
size_t cb_packed_key_bytes(const struct kern_attn *k, int hd); /* the largest of all types */
/* Tokens a tile so that n_item_per_tile * tiles keeps the team busy. */
int cb_tile_tokens(const struct device *d, const struct attn *a);
/* each: a query's rows are a unit; 0: all rows are one */
void cb_tile_open(struct tile *t, const struct kern_attn *k, const struct attn *a, int kv, int tok,
                  int n_tok, int each, char **mem);
/* Opens the entries from `from`, a multiple of KEY_BLOCK, to `end` or the block's end. */
void cb_block_open(struct block *b, const struct attn *a, const struct kv_run *run, int from,
                   int end);

/* 1: f16 and bf16 rows are multiplied as integers. The conversion pays where enough queries share a
 * KV head, or where most rows are prepacked. The choice must not depend on the chunks of a
 * prompt. */
static inline int cb_in_integers(const struct attn *a, enum kv_type t)
{
    return (t == KV_F16 || t == KV_BF16) &&
           (a->causal || a->prompt || a->n_head / a->n_kv >= 4 || a->run[0].prepacked);
}

/* The kernel for the logits. */
static inline const struct kern_qk *cb_qk_of(const struct kern_attn *k, const struct attn *a)
{
    return k->qk_half && cb_in_integers(a, a->type_k) && a->hd % 16 == 0 ? k->qk_half
                                                                         : k->qk[a->type_k];
}

/* Logits of rows [r, r + m) of the tile against packed keys; r is a multiple of t->mr. */
static inline void cb_tile_logits(const struct tile *t, int r, int m, const void *kp, int n,
                                  float *s)
{
    const struct kern_qk *qk = t->qk;
    const char *q = (const char *)t->qp + (size_t)r * qk->q_bytes(t->a->hd);
    qk->mul(q, m, t->mr, kp, n, t->a->hd, s);
}

/* Codes of entry `at` of a run's keys (v = 0) or values if it is prepacked, else NULL */
static inline const char *cb_codes_at(const struct tile *t, int v, int at)
{
    const size_t row = cb_kv_row_bytes(v ? t->a->type_v : t->a->type_k, t->a->hd);
    const char *base = v ? t->run->v : t->run->k;
    return at < t->run->prepacked ? base + (size_t)at * row : NULL;
}

static inline const float *cb_steps_at(const float *step, int at)
{
    return step ? step + at : NULL;
}

/* Logits of rows [r, r + m) of the tile against the prepacked block at `from`; ahead: as many codes
 * to prefetch, or NULL */
static inline void cb_prepacked_logits(const struct tile *t, int from, int r, int m,
                                       const char *ahead, float *s)
{
    const int hd = t->a->hd;
    t->k->prepack[t->a->type_k]->mul((const char *)t->qp + (size_t)r * t->qk->q_bytes(hd), m, t->mr,
                                     cb_codes_at(t, 0, from), cb_steps_at(t->run->step_k, from),
                                     r ? NULL : ahead, hd, s);
}

/* 1: values are multiplied as integers. */
static inline int cb_integer_values(const struct kern_attn *k, const struct attn *a,
                                    enum kv_type type)
{
    return k->pack_v_i16 && a->hd % 32 == 0 &&
           (type == KV_Q8_0 || (k->qk_half && cb_in_integers(a, type)));
}

#endif
