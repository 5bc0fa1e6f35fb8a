/* SPDX-License-Identifier: MIT */
/* index_choice.h - the keys of a trained selector that score highest for a query: the sum over its
 * index heads of weight * max(0, q . key). For readers. */
#ifndef INDEX_CHOICE_H
#define INDEX_CHOICE_H

#include "index_keys.h"

enum { INDEX_QUERIES = 8 }; /* that are scored at once */

struct index_choice {
    int hd, n_head, k;  /* most that are chosen */
    size_t stride;      /* of scores */
    float *score;       /* [INDEX_QUERIES][stride] */
    void *work;         /* of the scan */
    float *key;         /* [near] keys that are scored once more */
    float *near;        /* scores of candidates */
    int32_t *cand, *at; /* [k + near] candidates, and places among them */
    int32_t *place;     /* [near] of those that are scored once more */
    uint8_t *taken;     /* [k + near] */
    float *query;       /* [n_head * (hd + 1)] of a query that came from the device */
};

/* Queries of a chunk */
struct index_queries {
    const float *q;      /* [n][n_head][hd] at q + i * stride */
    const float *weight; /* [n][n_head] at weight + i * stride; NULL: 1 */
    int stride, n;       /* n: at most INDEX_QUERIES */
};

/* For choices of at most k out of n_key keys of hd numbers, by n_head heads. Its memory is the
 * reader's state's (state_memory.h). */
int cb_index_choice_open(struct index_choice *x, void *state, int n_head, int hd, int n_key, int k);
/* Work space of feeds of n_feed tokens and n keys */
size_t cb_index_choice_bytes(const struct index_choice *x, int n_feed, int n);
/* The k best of the n_key[i] keys that each query sees, k <= n_key[i] -> list[n][list_stride],
 * ascending. Ties: the earlier key */
void cb_index_choose(struct index_choice *x, const struct attention *a,
                     const struct index_keys *keys, const struct index_queries *q, const int *n_key,
                     int k, int32_t *list, size_t list_stride);
/* The tokens that keys key[k] stand for, `per` each, and those of `end` tokens after the last whole
 * key's -> list, ascending; returns how many. list may be key; key NULL: only the last are written.
 */
int cb_index_tokens(const int32_t *key, int k, int per, int end, int32_t *list);
/* For the token of rows r, which may be in the device's memory: the tokens that the k best out of
 * n > k keys stand for, and `after` tokens after all keys' -> list. later: the list need not be
 * there before cb_device_wait(), if the device chooses */
void cb_index_choose_one(struct index_choice *x, const struct attention *a,
                         const struct index_keys *keys, const struct index_rows *r, int n, int k,
                         int after, int later, int32_t *list);
/* Bytes that a choice of k out of n keys reads */
uint64_t cb_index_choice_reads(const struct index_keys *keys, int n, int k);

#endif
