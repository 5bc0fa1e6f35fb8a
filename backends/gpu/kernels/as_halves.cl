/* SPDX-License-Identifier: MIT */
/* as_halves.cl - rows of tokens and of weights as halves, which gemm.cl multiplies; a part of
 * matmul.cl, for devices where a warp multiplies small matrices of halves at once. */

/* The number by which a row is divided before it becomes halves; all `items` of the group together
 * find it. */
FUNCTION float row_step(GLOBAL const float *row, int n_in, IN_LOCAL float *most_, int items)
{
    float most = 0.0f;

    for (int i = ITEM(); i < n_in; i += ITEMS())
        most = fmax(most, fabs(row[i]));
    return half_step(group_max(most, most_, items));
}

/* A row of x (GROUP(0)) as halves [n_in rounded up to 32], two a word: x / scale[row], a power of
 * two. */
KERNEL void halves(WITH_OPTIONS GLOBAL const float *x, int n_in, GLOBAL uint *to,
                   GLOBAL float *scale)
{
    LOCAL float most_[256];
    const int item = ITEM(), items = ITEMS(), n_word = (n_in + 31) / 32 * 16;
    GLOBAL const float *row = x + (long)GROUP(0) * n_in;
    const float step = row_step(row, n_in, most_, 256), factor = 1.0f / step;

    if (item == 0)
        scale[GROUP(0)] = step;
    for (int i = item; i < n_word; i += items) {
        const float lo = 2 * i < n_in ? row[2 * i] * factor : 0.0f;
        const float hi = 2 * i + 1 < n_in ? row[2 * i + 1] * factor : 0.0f;
        to[(long)GROUP(0) * n_word + i] = pack_f16(lo, hi);
    }
}

/* An item's share of 32 elements of a row, as halves in their order: four of either half. Steps
 * that are halves are multiplied as such, which rounds once, as it does from floats. */
FUNCTION void share_of(int type, bytes_t row, int b, int p, uint *to)
{
    const int one_step = type == Q4_0 || type == Q5_0 || type == Q8_0;
    bytes_t at = row + (long)(type >= Q4_K ? b / 8 : b) * code_bytes(type);
    struct codes c;
    struct steps s;
    uint codes[2][2];

    if (type >= Q4_K) {
        s = steps_of(type, at);
        c = type == Q6_K ? codes_6_k(at, &s, b % 8, p) : codes_45_k(type, at, &s, b % 8, p);
    } else {
        c = type == Q8_0 ? codes_8(at, p) : codes_45(type, at, p);
    }
    halves_of_codes(type, &c, codes[0], codes[1]);
    for (int half = 0; half < 2; half++) {
        const float d = half ? c.d_hi : c.d_lo;
        uint *of = codes[half];
        if (one_step) {
            const uint step = *(GLOBAL const ushort *)at * 0x00010001u;
            of[0] = mul_halves(of[0], step);
            of[1] = mul_halves(of[1], step);
            to[2 * half] = (of[0] & 0xffffu) | of[1] << 16;
            to[2 * half + 1] = of[0] >> 16 | (of[1] & 0xffff0000u);
        } else {
            to[2 * half] = pack_f16(low_half(of[0]) * d + c.m, low_half(of[1]) * d + c.m);
            to[2 * half + 1] = pack_f16(high_half(of[0]) * d + c.m, high_half(of[1]) * d + c.m);
        }
    }
}

/* The same of a row of F16 or BF16; elements after its end count as 0. */
FUNCTION void float_share_of(int type, bytes_t row, int n_in, int b, int p, uint *to)
{
    for (int i = 0; i < 4; i++) {
        float of[2];
        for (int k = 0; k < 2; k++) {
            const int c = b * 32 + i / 2 * 16 + 4 * p + i % 2 * 2 + k;
            of[k] = c >= n_in ? 0.0f : type == F16 ? half_at(row + 2 * c) : load_bf16(row + 2 * c);
        }
        to[i] = pack_f16(of[0], of[1]);
    }
}

#define SHARE_OF(t)                                                                                \
    case t:                                                                                        \
        share_of(t, row, i / 4, i % 4, share);                                                     \
        break

/* Row GROUP(0) of a weight as halves [n_in rounded up to 32], two a word, for gemm.cl */
KERNEL void unpack_rows(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, GLOBAL uint *to)
{
    const int n_block = (n_in + 31) / 32;
    bytes_t row = weight + (long)GROUP(0) * row_bytes;

    to += (long)GROUP(0) * n_block * 16;
    for (int i = ITEM(); i < 4 * n_block; i += ITEMS()) {
        uint share[4];
        switch (TYPE) {
            SHARE_OF(Q4_0);
            SHARE_OF(Q4_1);
            SHARE_OF(Q5_0);
            SHARE_OF(Q5_1);
            SHARE_OF(Q8_0);
            SHARE_OF(Q4_K);
            SHARE_OF(Q5_K);
            SHARE_OF(Q6_K);
        default:
            float_share_of(TYPE, row, n_in, i / 4, i % 4, share);
        }
        store_two(to + i / 4 * 16 + i % 4 * 2, share[0], share[1]);
        store_two(to + i / 4 * 16 + i % 4 * 2 + 8, share[2], share[3]);
    }
}
