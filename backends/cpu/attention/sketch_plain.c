/* SPDX-License-Identifier: MIT */
/* sketch_plain.c - scores by sketched keys in plain C, for an ISA without kernels of its own. The
 * compiler makes vectors of the loops over the 16 tokens of a vector of codes. */
#include <math.h>
#include <string.h>

#include "cpu/vector/kern_vec.h"
#include "cpu/vector/vec.h"
#include "device/sketch.h"
#include "sketch_form.h"

/* sum[16] += a vector of codes times the weights of its channels */
VEC_INLINE void add_vector(int bits, const uint8_t *code, const int8_t *w, int32_t *sum)
{
    const int mask = (1 << bits) - 1;

    for (int k = 0; k < 8 / bits; k++)
        for (int t = 0; t < 16; t++) {
            const uint8_t *x = code + 4 * t;
            const int8_t *y = w + 4 * k;
            const int shift = bits * k;
            sum[t] += y[0] * (x[0] >> shift & mask) + y[1] * (x[1] >> shift & mask) +
                      y[2] * (x[2] >> shift & mask) + y[3] * (x[3] >> shift & mask);
        }
}

VEC_INLINE void scan_of(int bits, int pad, const struct sketch_strips *strips,
                        const struct sketch_form *f, const uint8_t *code, int16_t *score)
{
    const int wide = 32 / bits, each = SKETCH_STRIP / wide;

    for (int g = 0; g < SKETCH_BLOCK / 32; g++, score += 32, code += pad * 4 * bits) {
        int32_t sum[2][16] = { { 0 } };
        for (int i = 0; i < strips->n * each; i++)
            for (int v = 0; v < 2; v++)
                add_vector(bits, code + (strips->at[i / each] * each + i % each) * 128 + v * 64,
                           f->w + i * wide, sum[v]);
        for (int t = 0; t < 32; t++) {
            const int x = sum[t / 4 % 2][t / 8 * 4 + t % 4] >> cb_sketch_shift(bits);
            score[t] = cb_sketch_score(f, x);
        }
    }
}

static void scan(int bits, int hd, const struct sketch_strips *strips, const uint8_t *block, int n,
                 const float *q, int heads, int16_t *score, int stride)
{
    const int pad = cb_sketch_pad(hd);
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD];
    struct sketch_form f;

    for (int b = 0; b < n; b++, block += cb_sketch_bytes(bits, hd), score += SKETCH_BLOCK) {
        cb_sketch_steps(hd, block, step, min);
        for (int h = 0; h < heads; h++) {
            cb_sketch_form(&f, bits, strips, q + h * pad, step, min);
            if (bits == 2)
                scan_of(2, pad, strips, &f, block + (size_t)pad * 4, score + h * stride);
            else
                scan_of(4, pad, strips, &f, block + (size_t)pad * 4, score + h * stride);
        }
    }
}

static uint32_t weigh(const int16_t *score, int n, int16_t *top)
{
    uint32_t sum = 0;
    int most = INT16_MIN;

    for (int j = 0; j < n; j++)
        most = score[j] > most ? score[j] : most;
    for (int j = 0; j < n; j++) {
        const int below = most - score[j], down = below / 32;
        sum += (uint32_t)cb_sketch_weight[below % 32] >> (down < 31 ? down : 31);
    }
    *top = (int16_t)most;
    return sum;
}

static void rank(const int16_t *score, int stride, const int16_t *lse, int heads, int n,
                 uint16_t *out)
{
    for (int j = 0; j < n; j++)
        out[j] = SKETCH_BUCKETS - 1;
    for (int h = 0; h < heads; h++, score += stride)
        for (int j = 0; j < n; j++) {
            const int below = lse[h] - score[j], x = below > 0 ? below : 0;
            out[j] = (uint16_t)(x < out[j] ? x : out[j]);
        }
}

static const struct kern_sketch sketch = { scan, weigh, rank, cb_sketch_count, cb_sketch_pick };

/* An ISA without dot products */
const struct kern_dots DOT_NAME(cb_dots_) = { .sketch = &sketch };
