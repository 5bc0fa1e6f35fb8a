/* SPDX-License-Identifier: MIT */
/* split.cl - a token's numbers as sums of two halves, which the products of decoded tokens read
 * (codes_* in codes.cl). A share is a quarter of 32 numbers: four of each 16. Rows lie at
 * multiples of 16 bytes and have a multiple of 32 numbers. */

#ifdef HAS_MMA
/* Item 4 q + p of a warp has of each 32 elements 4 p..4 p + 3 and 16 + 4 p..16 + 4 p + 3, of the
 * rows q and q + 8 and of token q. In words of two halves they have the order 0, 2, 1, 3. After the
 * last token lie blocks (gpu_split.c) that may be read: warps have the same number of blocks, and
 * some more are read ahead. */
#define SPLIT_WORDS 32 /* of 32 elements: 4 for each of four items, then those of what is left */
#define SPLIT_ITEMS 1024 /* of `split` */

/* Where share i of a row begins; its second half is 16 numbers further. */
FUNCTION int share_at(int i)
{
    return i / 4 * 32 + i % 4 * 4;
}

FUNCTION void load_share(GLOBAL const float *row, int i, float *v)
{
    GLOBAL const uint *from = (GLOBAL const uint *)(row + share_at(i));
    uint word[8];

    load_four(word, from);
    load_four(word + 4, from + 16);
    UNROLL for (int k = 0; k < 8; k++)
        v[k] = AS_FLOAT(word[k]);
}

FUNCTION void store_share(GLOBAL float *row, int i, const float *v)
{
    GLOBAL uint *to = (GLOBAL uint *)(row + share_at(i));

    store_four(to, AS_UINT(v[0]), AS_UINT(v[1]), AS_UINT(v[2]), AS_UINT(v[3]));
    store_four(to + 16, AS_UINT(v[4]), AS_UINT(v[5]), AS_UINT(v[6]), AS_UINT(v[7]));
}

FUNCTION float most_of_share(const float *v, float most)
{
    UNROLL for (int k = 0; k < 8; k++)
        most = fmax(most, fabs(v[k]));
    return most;
}

/* to[n_in / 32][2][4][4], of v / step, a power of two */
FUNCTION void split_share(const float *v, float step, int i, GLOBAL uint *to)
{
    GLOBAL uint *at = to + i / 4 * SPLIT_WORDS + i % 4 * 4;
    const float factor = 1.0f / step;
    uint most[4], left[4];

    UNROLL for (int k = 0; k < 4; k++) {
        const float a = v[k / 2 * 4 + k % 2] * factor, b = v[k / 2 * 4 + k % 2 + 2] * factor;
        most[k] = pack_f16(a, b);
        left[k] = pack_f16(a - low_half(most[k]), b - high_half(most[k]));
    }
    store_four(at, most[0], most[1], most[2], most[3]);
    store_four(at + 16, left[0], left[1], left[2], left[3]);
}
#endif
