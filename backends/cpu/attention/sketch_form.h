/* SPDX-License-Identifier: MIT */
/* sketch_form.h - a query head as a block of sketched keys wants it, in plain C (ref_sketch.c has
 * the definition). */
#ifndef SKETCH_FORM_H
#define SKETCH_FORM_H

#include <math.h>
#include <stdint.h>

#include "device/sketch.h"

struct sketch_form {
    int8_t w[SKETCH_MAX_HD]; /* of the strips that are scored, one after the other */
    int mult, base;
};

/* Rounded, and limited to what fits; a NaN becomes the least. */
static inline int cb_sketch_whole(float x, int most)
{
    if (!(x > (float)-most - 1))
        return -most - 1;
    if (x >= (float)most)
        return most;
    return (int)rintf(x); /* ties to even */
}

static inline int cb_sketch_mult(int bits, float top)
{
    return cb_sketch_whole(top * cb_sketch_mult_unit(bits), INT16_MAX);
}

static inline int16_t cb_sketch_clamp(int x)
{
    return (int16_t)(x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x);
}

static inline void cb_sketch_form(struct sketch_form *f, int bits,
                                  const struct sketch_strips *strips, const float *q,
                                  const float *step, const float *min)
{
    float w[SKETCH_MAX_HD], lane[16] = { 0 }, top = 0, inv;
    const int m = strips->n * SKETCH_STRIP;

    for (int j = 0; j < m; j++) {
        const int c = cb_sketch_channel(strips, j);
        lane[j % 16] = fmaf(q[c], min[c], lane[j % 16]);
        w[j] = q[c] * step[c];
        top = fabsf(w[j]) > top ? fabsf(w[j]) : top;
    }
    for (int j = m; j < strips->n_all * SKETCH_STRIP; j++) {
        const int c = cb_sketch_channel(strips, j);
        lane[j % 16] = fmaf(q[c], fmaf(step[c], cb_sketch_middle(bits), min[c]), lane[j % 16]);
    }
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    inv = top > 0 ? 127 / top : 0;
    for (int c = 0; c < m; c++)
        f->w[c] = (int8_t)cb_sketch_whole(w[c] * inv, 127);
    f->mult = cb_sketch_mult(bits, top);
    f->base = cb_sketch_whole(lane[0], INT16_MAX);
}

/* The score of a token whose shifted sum of products is x */
static inline int16_t cb_sketch_score(const struct sketch_form *f, int x)
{
    return cb_sketch_clamp(f->base + ((cb_sketch_clamp(x) * f->mult + 0x4000) >> 15));
}

/* Adds to count[r] how often r is in rank[n]: a branch for the few below `most` would cost more
 * than counting all. */
static inline void cb_sketch_count(const uint16_t *rank, int n, int most, uint32_t *count)
{
    (void)most;
    for (int j = 0; j < n; j++)
        count[rank[j]]++;
}

/* Entries whose rank is below `limit`, and the first *n_equal of those at it -> from + their
 * indices; returns how many. */
static inline int cb_sketch_pick(const uint16_t *x, int n, int limit, int *n_equal, int from,
                                 int32_t *idx)
{
    int out = 0;

    for (int j = 0; j < n; j++) {
        if (x[j] > limit || (x[j] == limit && *n_equal <= 0))
            continue;
        *n_equal -= x[j] == limit;
        idx[out++] = from + j;
    }
    return out;
}

#endif
