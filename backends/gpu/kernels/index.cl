/* SPDX-License-Identifier: MIT */
/* index.cl - keys of a trained selector, in strips (src/device/index_strips.h): how a new one is
 * stored, and which score highest for one token's query. All kernels but the first run one after
 * the other, in the order of this file: keys are scored by their codes of 8 bits, the n_near best
 * of them by all their bits, and the k best of these are chosen. */

#define INDEX_ITEMS 128
#define KEYS_BLOCK 128 /* keys of a block, one an item */
#define KEY_HALF 16 /* most words of four codes of a half of a key */
#define KEY_WORDS (2 * KEY_HALF)
#define QUERY_HEADS 16 /* of a query, at a time */
#define BEST_ITEMS 256

/* As struct gpu_strips in gpu_index.c. The blocks are cut into pages of page_bytes. */
struct strips {
    int n, n_head, hd, pad;
    uint page_bytes;
    int k, n_near, n_piece;
    int per, after; /* tokens that a key stands for, and those after all keys' */
};

FUNCTION bytes_t byte_at(GLOBAL const struct strips *s, GLOBAL const ulong *page, uint i)
{
    return (bytes_t)page[i / s->page_bytes] + i % s->page_bytes;
}

/* Where key j's part begins that has `each` bytes a key, after `before` bytes of each key of its
 * block */
FUNCTION uint part_at(GLOBAL const struct strips *s, int j, int before, int each)
{
    const int row = 3 * s->pad / 2 + 4;

    return (uint)(j / KEYS_BLOCK) * (uint)(KEYS_BLOCK * row) +
           (uint)(KEYS_BLOCK * before + j % KEYS_BLOCK * each);
}

FUNCTION uint word_at(GLOBAL const struct strips *s, GLOBAL const ulong *page, uint i)
{
    return *(GLOBAL const uint *)byte_at(s, page, i);
}

FUNCTION float step_of(GLOBAL const struct strips *s, GLOBAL const ulong *page, int j)
{
    return AS_FLOAT(word_at(s, page, part_at(s, j, s->pad / 2, 4)));
}

/* x rounded, between -most and most; what is no number becomes 0 */
FUNCTION int whole(float x, int most)
{
    return x > (float)most ? most : x < (float)-most ? -most : x == x ? (int)rint(x) : 0;
}

/* The largest of |x[n]|, an item of INDEX_ITEMS */
FUNCTION float largest(GLOBAL const float *x, int n, IN_LOCAL float *part)
{
    float most = 0.0f;

    for (int i = ITEM(); i < n; i += INDEX_ITEMS)
        most = fmax(most, fabs(x[i]));
    return group_max(most, part, INDEX_ITEMS);
}

/* ---- a new key ---- */

/* Number c in steps: its code, with 128 added, and its rest, with 7 added */
FUNCTION int code_of(GLOBAL const float *x, int c, int hd, float inv)
{
    return (c < hd ? whole(x[c] * inv, 127) : 0) + 128;
}

FUNCTION int rest_of(GLOBAL const float *x, int c, int hd, float inv)
{
    const float v = c < hd ? x[c] * inv : 0.0f;

    return whole((v - (float)(code_of(x, c, hd, inv) - 128)) * 15.0f, 7) + 7;
}

/* Key GROUP(0) of x[n][hd] -> its upper bits, step, lower bits and rests, one after the other */
KERNEL void index_put(GLOBAL const float *x, int stride, int hd, GLOBAL uchar *out)
{
    LOCAL float part_[INDEX_ITEMS];
    GLOBAL const float *from = x + (long)GROUP(0) * stride;
    const int pad = (hd + 7) / 8 * 8, wide = pad / 2, item = ITEM();
    GLOBAL uchar *to = out + (long)GROUP(0) * (3 * wide + 4);
    const float step = largest(from, hd, part_) / 127.0f, inv = step > 0.0f ? 1.0f / step : 0.0f;

    if (item == 0)
        *(GLOBAL float *)(to + wide) = step;
    for (int i = item; i < wide; i += INDEX_ITEMS) {
        const int a = code_of(from, i, hd, inv), b = code_of(from, wide + i, hd, inv);
        to[i] = (uchar)(a >> 4 | b >> 4 << 4);
        to[wide + 4 + i] = (uchar)((a & 15) | (b & 15) << 4);
        to[2 * wide + 4 + i] = (uchar)(rest_of(from, 2 * i, hd, inv) |
                                       rest_of(from, 2 * i + 1, hd, inv) << 4);
    }
}

/* ---- scores of all keys ---- */

/* Head GROUP(0) of q[n_head][hd] and its weight (w NULL: 1) -> code[n_head][KEY_WORDS] words, those
 * of the second half of a key from KEY_HALF on, and weight[n_head] in steps; no key is counted yet.
 */
KERNEL void index_query(GLOBAL const struct strips *s, GLOBAL const float *q, GLOBAL const float *w,
                        GLOBAL signed char *code, GLOBAL float *weight, GLOBAL uint *count)
{
    LOCAL float part_[INDEX_ITEMS];
    const int h = GROUP(0), item = ITEM(), wide = s->pad / 2;
    GLOBAL const float *x = q + (long)h * s->hd;
    const float step = largest(x, s->hd, part_) / 127.0f, inv = step > 0.0f ? 1.0f / step : 0.0f;

    for (int i = item; i < 4 * KEY_WORDS; i += INDEX_ITEMS) {
        const int at = i % (4 * KEY_HALF), c = i < 4 * KEY_HALF ? at : wide + at;
        code[h * 4 * KEY_WORDS + i] =
            (signed char)(at < wide && c < s->hd ? whole(x[c] * inv, 127) : 0);
    }
    if (item == 0)
        weight[h] = step * (w ? w[h] : 1.0f);
    if (h == 0)
        list_clear(count, INDEX_ITEMS);
}

/* Block GROUP(0) -> score[n] */
KERNEL void index_scan(GLOBAL const struct strips *s, GLOBAL const ulong *page,
                       GLOBAL const uint *code, GLOBAL const float *weight, GLOBAL float *score)
{
    LOCAL uint code_[QUERY_HEADS * KEY_WORDS];
    LOCAL float weight_[QUERY_HEADS];
    const int item = ITEM(), j = GROUP(0) * KEYS_BLOCK + item, wide = s->pad / 2;
    const uint upper = part_at(s, j, 0, wide), lower = part_at(s, j, wide + 4, wide);
    uint lo[KEY_HALF], hi[KEY_HALF];
    float all = 0.0f;

    UNROLL for (int i = 0; i < KEY_HALF; i++) {
        lo[i] = hi[i] = 0;
        if (4 * i < wide) {
            const uint u = word_at(s, page, upper + 4u * (uint)i);
            const uint l = word_at(s, page, lower + 4u * (uint)i);
            lo[i] = ((u & 0x0f0f0f0fu) << 4 | (l & 0x0f0f0f0fu)) ^ 0x80808080u;
            hi[i] = ((u & 0xf0f0f0f0u) | (l >> 4 & 0x0f0f0f0fu)) ^ 0x80808080u;
        }
    }
    for (int from = 0; from < s->n_head; from += QUERY_HEADS) {
        const int heads = s->n_head - from < QUERY_HEADS ? s->n_head - from : QUERY_HEADS;
        for (int i = item; i < heads * KEY_WORDS; i += INDEX_ITEMS)
            code_[i] = code[from * KEY_WORDS + i];
        if (item < heads)
            weight_[item] = weight[from + item];
        BARRIER();
        for (int h = 0; h < heads; h++) {
            int sum = 0;
            UNROLL for (int i = 0; i < KEY_HALF; i++) {
                sum = dot4_signed(lo[i], code_[h * KEY_WORDS + i], sum);
                sum = dot4_signed(hi[i], code_[h * KEY_WORDS + KEY_HALF + i], sum);
            }
            all += weight_[h] * (float)(sum > 0 ? sum : 0);
        }
        BARRIER();
    }
    if (j < s->n)
        score[j] = all * step_of(s, page, j);
}

/* ---- the n_near best of them, a piece GROUP(0) of the keys ---- */

/* -> count[LIST_COUNTS] */
KERNEL void index_count(GLOBAL const struct strips *s, GLOBAL const float *score, int pass,
                        GLOBAL uint *count)
{
    LOCAL uint count_[LIST_BUCKETS];
    LOCAL int before_[INDEX_ITEMS], end_[2];

    list_count(score, s->n, s->n_near, GROUP(0), pass, count, INDEX_ITEMS, count_, before_, end_);
}

/* -> part[n_piece][2] */
KERNEL void index_part(GLOBAL const struct strips *s, GLOBAL const float *score,
                       GLOBAL const uint *count, GLOBAL int *part)
{
    LOCAL int before_[INDEX_ITEMS], end_[2];

    list_part(score, s->n, s->n_near, GROUP(0), count, part, INDEX_ITEMS, before_, end_);
}

/* -> near[n_near], ascending; the earlier ones of equals */
KERNEL void index_list(GLOBAL const struct strips *s, GLOBAL const float *score,
                       GLOBAL const uint *count, GLOBAL const int *part, GLOBAL int *near)
{
    LOCAL int before_[INDEX_ITEMS], end_[2];
    int from, to, equal, seen;
    uint kth;

    near += list_begin(score, s->n, s->n_near, GROUP(0), count, part, INDEX_ITEMS, before_, end_,
                       &from, &to, &kth, &equal, &seen);
    for (int j = from; j < to; j++)
        if (is_best(score[j], kth, equal, &seen))
            *near++ = j;
}

/* ---- the k best of these ---- */

/* Number c of key j, in steps */
FUNCTION float number_of(GLOBAL const struct strips *s, GLOBAL const ulong *page, int j, int c)
{
    const int wide = s->pad / 2, i = c < wide ? c : c - wide, shift = c < wide ? 0 : 4;
    const uint at[] = { part_at(s, j, 0, wide) + (uint)i, part_at(s, j, wide + 4, wide) + (uint)i,
                        part_at(s, j, s->pad + 4, wide) + (uint)(c / 2) };
    const int upper = *byte_at(s, page, at[0]) >> shift & 15;
    const int lower = *byte_at(s, page, at[1]) >> shift & 15;
    const int rest = *byte_at(s, page, at[2]) >> c % 2 * 4 & 15;

    return (float)((upper << 4 | lower) - 128) + (float)(rest - 7) / 15.0f;
}

/* Key near[GROUP(0)] by all its bits -> exact[n_near] */
KERNEL void index_near(GLOBAL const struct strips *s, GLOBAL const ulong *page,
                       GLOBAL const float *q, GLOBAL const float *w, GLOBAL const int *near,
                       GLOBAL float *exact)
{
    LOCAL float key_[4 * KEY_WORDS], part_[INDEX_ITEMS];
    const int item = ITEM(), j = near[GROUP(0)], hd = s->hd;
    const float step = step_of(s, page, j);
    float all = 0.0f;

    for (int c = item; c < hd; c += INDEX_ITEMS)
        key_[c] = step * number_of(s, page, j, c);
    BARRIER();
    for (int h = item; h < s->n_head; h += INDEX_ITEMS) {
        float sum = 0.0f;
        for (int c = 0; c < hd; c++)
            sum += q[(long)h * hd + c] * key_[c];
        all += (w ? w[h] : 1.0f) * fmax(sum, 0.0f);
    }
    all = group_sum(all, part_, INDEX_ITEMS);
    if (item == 0)
        exact[GROUP(0)] = all;
}

/* The tokens of the k best, and those after all keys' -> found, after their number. An item has
 * adjacent ones of the n_near. */
KERNEL void index_best(GLOBAL const struct strips *s, GLOBAL const int *near,
                       GLOBAL const float *exact, GLOBAL int *found)
{
    LOCAL int before_[BEST_ITEMS], end_[2];
    LOCAL uint count_[BEST_ITEMS];
    const int item = ITEM(), n = s->n_near, each = (n + BEST_ITEMS - 1) / BEST_ITEMS;
    const int from = item * each, to = from + each < n ? from + each : n;
    const int per = s->per, n_found = s->k * per;
    int equal, seen = 0;
    const uint kth = group_kth(exact, n, s->k, count_, before_, end_, &equal);

    if (item == 0)
        found[0] = n_found + s->after;
    for (int i = item; i < s->after; i += BEST_ITEMS)
        found[1 + n_found + i] = s->n * per + i;
    found += 1 + per * group_best_before(exact, from, to, kth, equal, before_, BEST_ITEMS, &seen);
    for (int i = from; i < to; i++)
        if (is_best(exact[i], kth, equal, &seen))
            for (int t = 0; t < per; t++)
                *found++ = near[i] * per + t;
}
