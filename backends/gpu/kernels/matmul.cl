/* SPDX-License-Identifier: MIT */
/* matmul.cl - y = W x for one element type of W (TYPE, as enum dtype), which lies as in the file.
 * 32 elements of a row are unpacked at a time. A token's sums have one order in few_1 and few_8,
 * which multiply decoded tokens, so that its result does not depend on the tokens beside it. The
 * same holds in tile, which multiplies chunks of prompts, and in gemm.cl, which multiplies what
 * unpack_rows (as_halves.cl) made. Where codes are multiplied as they are, few_codes.cl takes the
 * place of few_1 and few_8. */

#define F32 0
#define F16 1
#define BF16 2
#define Q4_0 3
#define Q4_1 4
#define Q5_0 5
#define Q5_1 6
#define Q8_0 7
#define Q4_K 8
#define Q5_K 9
#define Q6_K 10

/* Elements after the end of a row count as 0. */
FUNCTION void unpack_float(WITH_OPTIONS bytes_t row, int n_in, int b, float *w)
{
    for (int i = 0; i < 32; i++) {
        const int c = b * 32 + i;
        w[i] = c >= n_in      ? 0.0f
               : TYPE == F32  ? load_f32(row + 4 * c)
               : TYPE == F16  ? load_f16(row + 2 * c)
                              : load_bf16(row + 2 * c);
    }
}

/* f16 step, [f16 minimum], [u32 fifth bits], 16 bytes of nibbles: low = elements 0..15 */
FUNCTION void unpack_45(WITH_OPTIONS bytes_t row, int b, float *w)
{
    const int has_min = TYPE == Q4_1 ? 1 : TYPE == Q5_1, has_fifth = TYPE >= Q5_0;
    bytes_t p = row + b * (18 + 2 * has_min + 4 * has_fifth), fifth = p + 2 + 2 * has_min;
    bytes_t at = fifth + 4 * has_fifth;
    const float d = load_f16(p), m = has_min ? load_f16(p + 2) : 0.0f;
    const int off = has_min ? 0 : has_fifth ? 16 : 8;
    uint high = 0;

    if (has_fifth)
        high = (uint)fifth[0] | (uint)fifth[1] << 8 | (uint)fifth[2] << 16 | (uint)fifth[3] << 24;
    for (int i = 0; i < 16; i++) {
        const int lo = (at[i] & 15) | (int)(high >> i & 1) << 4;
        const int hi = at[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        w[i] = (float)(lo - off) * d + m;
        w[i + 16] = (float)(hi - off) * d + m;
    }
}

FUNCTION void unpack_q8_0(bytes_t row, int b, float *w)
{
    bytes_t p = row + b * 34;
    const float d = load_f16(p);

    for (int i = 0; i < 32; i++)
        w[i] = (float)(signed char)p[2 + i] * d;
}

/* f16 step and step of minima, 12 bytes of 6-bit scales and minima, [32 bytes of fifth bits], 128
 * bytes of nibbles; 32 bytes of them hold 64 elements */
FUNCTION void unpack_45_k(WITH_OPTIONS bytes_t row, int b, float *w)
{
    bytes_t p = row + b / 8 * (TYPE == Q5_K ? 176 : 144), s = p + 4, high = p + 16;
    const int j = b % 8;
    bytes_t q = p + (TYPE == Q5_K ? 48 : 16) + 32 * (j / 2);
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    const float d = load_f16(p) * (float)scale, m = load_f16(p + 2) * (float)least;

    for (int i = 0; i < 32; i++) {
        int v = j & 1 ? q[i] >> 4 : q[i] & 15;
        if (TYPE == Q5_K)
            v |= (high[i] >> j & 1) << 4;
        w[i] = d * (float)v - m;
    }
}

/* 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 step */
FUNCTION void unpack_q6_k(bytes_t row, int b, float *w)
{
    bytes_t p = row + b / 8 * 210;
    const int c = b % 8;
    bytes_t lo = p + 64 * (c / 4) + 32 * (c & 1), hi = p + 128 + 32 * (c / 4);
    const float d = load_f16(p + 208);
    const float d0 = d * (float)(signed char)p[192 + 2 * c];
    const float d1 = d * (float)(signed char)p[193 + 2 * c];

    for (int i = 0; i < 32; i++) {
        const int v = (c & 2 ? lo[i] >> 4 : lo[i] & 15) | (hi[i] >> 2 * (c & 3) & 3) << 4;
        w[i] = (i < 16 ? d0 : d1) * (float)(v - 32);
    }
}

/* Elements 32 b .. 32 b + 31 of a row */
FUNCTION void unpack(WITH_OPTIONS bytes_t row, int n_in, int b, float *w)
{
    if (TYPE <= BF16)
        unpack_float(OPTIONS row, n_in, b, w);
    else if (TYPE <= Q5_1)
        unpack_45(OPTIONS row, b, w);
    else if (TYPE == Q8_0)
        unpack_q8_0(row, b, w);
    else if (TYPE <= Q5_K)
        unpack_45_k(OPTIONS row, b, w);
    else
        unpack_q6_k(row, b, w);
}

/* One 32-element piece of x; elements after the end count as 0. */
FUNCTION float dot32(const float *w, GLOBAL const float *x, int n)
{
    float sum = 0.0f;

    if (n >= 32)
        for (int i = 0; i < 32; i++)
            sum += w[i] * x[i];
    else
        for (int i = 0; i < n; i++)
            sum += w[i] * x[i];
    return sum;
}

FUNCTION void store(GLOBAL float *y, GLOBAL const float *bias, int o, int add, float sum)
{
    if (bias)
        sum += bias[o];
    *y = add ? *y + sum : sum;
}

#define FEW_ITEMS 32

/* The sum of what a group's sub-groups have, which goes on with their trees: its bits do not depend
 * on the size of sub-groups, which a compiler chooses for each kernel. */
FUNCTION float tree_sum(IN_LOCAL float *of)
{
    for (int n = SUBGROUPS(FEW_ITEMS) / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            of[i] = of[2 * i] + of[2 * i + 1];
    return of[0];
}

/* A group computes one row's product with up to T tokens from tokens T * GROUP(1) on. */
#define FEW(name, T)                                                                               \
    KERNEL void name(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, GLOBAL const float *x, \
                     int n_tok, GLOBAL const float *bias, GLOBAL float *y, int y_stride, int add)  \
    {                                                                                              \
        LOCAL float part[T][FEW_ITEMS];                                                            \
        const int o = GROUP(0), first = GROUP(1) * T, item = ITEM();                               \
        bytes_t row = weight + (long)o * row_bytes;                                                \
        float sum[T], w[32];                                                                       \
        for (int t = 0; t < T; t++)                                                                \
            sum[t] = 0.0f;                                                                         \
        for (int b = item; b * 32 < n_in; b += FEW_ITEMS) {                                        \
            unpack(OPTIONS row, n_in, b, w);                                                       \
            for (int t = 0; t < T; t++) {                                                          \
                const int tok = first + t < n_tok ? first + t : n_tok - 1;                         \
                sum[t] += dot32(w, x + (long)tok * n_in + b * 32, n_in - b * 32);                  \
            }                                                                                      \
        }                                                                                          \
        for (int t = 0; t < T; t++)                                                                \
            part[t][SUBGROUP()] = subgroup_sum(sum[t]);                                            \
        BARRIER();                                                                                 \
        if (item < T && first + item < n_tok)                                                      \
            store(y + (long)(first + item) * y_stride + o, bias, o, add, tree_sum(part[item]));    \
    }

FEW(few_1, 1)
FEW(few_8, 8)

/* ---- prompts ---- */

/* Four elements of a row of x; those after its end count as 0. */
FUNCTION float4 four_of(GLOBAL const float *row, int n_in, int i)
{
    if (i + 4 <= n_in)
        return FOUR(row[i], row[i + 1], row[i + 2], row[i + 3]);
    return FOUR(i < n_in ? row[i] : 0.0f, i + 1 < n_in ? row[i + 1] : 0.0f,
                i + 2 < n_in ? row[i + 2] : 0.0f, 0.0f);
}

/* One element of eight tokens */
#define ACROSS(v, e) EIGHT(v[0].e, v[1].e, v[2].e, v[3].e, v[4].e, v[5].e, v[6].e, v[7].e)

/* A group computes TILE rows' products with TILE tokens, 32 elements at a time; an item those of
 * eight rows, SIDE apart, with eight tokens in a row. In LOCAL memory rows are TILE_STEP floats
 * apart, and what eight tokens have is TILE_TURN eights apart, so that items side by side meet all
 * banks. Groups side by side have the same rows, which then come from memory once. */
#define TILE 64
#define SIDE 8
#define TILE_STEP 36
#define TILE_TURN 33
KERNEL OF_EIGHTS void tile(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, int n_out,
                           GLOBAL const float *x, int n_tok, GLOBAL const float *bias,
                           GLOBAL float *y, int y_stride, int add)
{
    LOCAL ALIGNED_16 float w_[TILE * TILE_STEP];
    LOCAL eight_t x_[SIDE * TILE_TURN];
    const int row0 = GROUP(1) * TILE, item = ITEM(), r = item % SIDE, c = item / SIDE;
    const int row = row0 + item < n_out ? row0 + item : n_out - 1;
    const int tok0 = GROUP(0) * TILE + c * 8, n = n_tok - tok0;
    eight_t sum[8];
    float4 four[8];
    float w[32];

    UNROLL for (int i = 0; i < 8; i++)
        sum[i] = EIGHT(0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f);
    for (int b = 0; b * 32 < n_in; b++) {
        unpack(OPTIONS weight + (long)row * row_bytes, n_in, b, w);
        for (int k = 0; k < 32; k++)
            w_[item * TILE_STEP + k] = w[k];
        UNROLL for (int i = 0; i < 8; i++)
            four[i] = four_of(x + (long)(i < n ? tok0 + i : n_tok - 1) * n_in, n_in,
                              b * 32 + r * 4);
        x_[c * TILE_TURN + r * 4] = ACROSS(four, x);
        x_[c * TILE_TURN + r * 4 + 1] = ACROSS(four, y);
        x_[c * TILE_TURN + r * 4 + 2] = ACROSS(four, z);
        x_[c * TILE_TURN + r * 4 + 3] = ACROSS(four, w);
        BARRIER();
        for (int k = 0; n > 0 && k < 32; k++) {
            const eight_t xk = x_[c * TILE_TURN + k];
            UNROLL for (int i = 0; i < 8; i++)
                sum[i] += w_[(r + SIDE * i) * TILE_STEP + k] * xk;
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < 8; i++) {
        const int o = row0 + r + SIDE * i;
        float to[8];
        store_eight(to, sum[i]);
        for (int t = 0; t < 8; t++)
            if (o < n_out && t < n)
                store(y + (long)(tok0 + t) * y_stride + o, bias, o, add, to[t]);
    }
}

#ifdef HAS_MMA
/* ---- where a warp multiplies small matrices of halves at once ---- */

#include "codes.cl"

#include "as_halves.cl"
#include "few_codes.cl"
#endif
