/* SPDX-License-Identifier: MIT */
/* index_strips.h - a trained selector's keys as they are scanned: on 8 bits, of which the first
 * pass over all keys reads the upper 4, and 4 bits more that only the keys near the end of a choice
 * are read by.
 *
 * key = step * (code + rest / 15), with the step of its largest number. A block of STRIP_BLOCK keys
 * of hd numbers, padded to a multiple of 8, has
 *   uint8 upper[128][hd / 2]               of the codes with 128 added, 4 bits each: byte i has
 *                                          number i in its lower bits, number hd / 2 + i above
 *   float step[128]
 *   uint8 lower[128][hd / 2]               likewise
 *   uint8 rest[128][hd / 2]                two a byte, the even number's in the lower bits
 * Devices that multiply bytes make strips of some keys: uint8 code[hd / 4][16 keys][4].
 * A query is rounded to 8 bits, with a step for each head. All devices round alike. */
#ifndef INDEX_STRIPS_H
#define INDEX_STRIPS_H

#include <stddef.h>
#include <stdint.h>

enum {
    STRIP_BLOCK = 128,       /* keys of a block */
    STRIP_MOST_HEADS = 1024, /* of a selector: hparams.c */
    STRIP_KEYS = 16,         /* of a strip */
    STRIP_HEADS = 8,         /* index heads of a tile */
    STRIP_SAMPLE = 32,
    STRIP_STAGES = 4,
    STRIP_OWN = 512, /* bytes of a query that are the device's */
};

static inline int cb_strip_pad(int hd)
{
    return (hd + 7) & ~7;
}

/* Bytes of a block's codes and steps, which a scan reads at most, and of the whole block */
static inline size_t cb_strip_scan_bytes(int hd)
{
    return STRIP_BLOCK * ((size_t)cb_strip_pad(hd) + sizeof(float));
}

static inline size_t cb_strip_bytes(int hd)
{
    return cb_strip_scan_bytes(hd) + STRIP_BLOCK * (size_t)cb_strip_pad(hd) / 2;
}

/* Bytes of a block's keys, each of which has parts in all of it */
static inline size_t cb_strip_row_bytes(int hd)
{
    return cb_strip_bytes(hd) / STRIP_BLOCK;
}

/* Bytes of n keys, in whole blocks */
static inline size_t cb_strips_bytes(int hd, int n)
{
    return ((size_t)n + STRIP_BLOCK - 1) / STRIP_BLOCK * cb_strip_bytes(hd);
}

/* Bytes of a key's upper bits, and how far from them its lower bits are */
static inline size_t cb_strip_half(int hd)
{
    return (size_t)cb_strip_pad(hd) / 2;
}

static inline size_t cb_strip_lower(int hd)
{
    return STRIP_BLOCK * (cb_strip_half(hd) + sizeof(float));
}

static inline const float *cb_strip_steps(int hd, const void *block)
{
    return (const float *)(const void *)((const uint8_t *)block + STRIP_BLOCK * cb_strip_half(hd));
}

/* The code, with 128 added, of number c of key j of a block */
static inline int cb_strip_code(int hd, const void *block, int j, int c)
{
    const size_t half = cb_strip_half(hd), i = (size_t)c < half ? (size_t)c : (size_t)c - half;
    const uint8_t *at = (const uint8_t *)block + (size_t)j * half + i;
    const int shift = (size_t)c < half ? 0 : 4;

    return (at[0] >> shift & 15) << 4 | (at[cb_strip_lower(hd)] >> shift & 15);
}

/* x[n][hd], `stride` floats apart, become keys at.. of the blocks. */
void cb_strips_put(const float *x, int n, int stride, int hd, int at, void *blocks);
/* Whole blocks as saved banks of formats 1 to 3 have them, in place: in these, uint8 code[8 strips]
 * [hd / 4][16 keys][4] and then the steps stand where the upper bits, steps and lower bits are. */
void cb_strips_renew(int hd, void *blocks, size_t bytes);
/* Keys idx[n] -> y[n][hd] */
void cb_strips_get(const void *blocks, const int32_t *idx, int n, int hd, float *y);

/* Index heads of a query as they are multiplied, in tiles of STRIP_HEADS, those first that can
 * weigh most; the last tile's other heads weigh 0 */
struct strip_query {
    int quads, n_tile;    /* hd / 4, and tiles */
    const int32_t *code;  /* [tile][quads][STRIP_HEADS] four codes each */
    const int32_t *start; /* [tile][STRIP_HEADS] -128 times the sum of the codes */
    const float *weight;  /* [tile][STRIP_HEADS] weight * step */
};

size_t cb_strip_query_bytes(int n_head, int hd); /* a multiple of 64 */

/* Work space of struct index_scan, after its queries. Devices may sample keys: STRIP_SAMPLE of each
 * `every`-th block, for a choice of k some 64 of the best. */
struct index_scan_work {
    void *own; /* [n_tok] STRIP_OWN bytes */
    int every, n_sample;
    float *sample; /* [n_tok][STRIP_STAGES][n_sample] */
    int32_t *best; /* [n_sample] */
};

/* Cuts memory for n_tok queries of n keys, of which at most k are wanted; returns the bytes. mem
 * may be NULL. Less than for any smaller k */
size_t cb_index_scan_bytes(void *mem, int n_tok, int n_head, int hd, int n, int k,
                           struct index_scan_work *w);
/* x[hd] in codes, `apart` quads from four to the next; *start: -128 times their sum. Returns the
 * step. */
float cb_strip_codes(const float *x, int hd, int apart, int32_t *code, int32_t *start);
/* q[n_head][hd], weight[n_head] (NULL: 1) -> *out, which lies in mem */
void cb_strip_query(const float *q, const float *weight, int n_head, int hd, void *mem,
                    struct strip_query *out);

#endif
