/* SPDX-License-Identifier: MIT */
/* pack.c - packs the rows of a GGUF tensor into the groups that kern_mm.h describes. */
#include <string.h>

#include "gguf/dtype_k.h"
#include "kern_mm.h"

size_t cb_mm_group_bytes(enum dtype t, int n_in)
{
    const int n_blk = n_in / 32, tail = n_blk % MM_CHUNK;
    size_t n;

    if (!mm_layout[t].lines)
        return mm_fours(n_in) * MM_ROWS * (size_t)cb_dtype[t].block_bytes;
    n = (size_t)(n_blk / MM_CHUNK) * mm_scale_bytes(t, MM_CHUNK) +
        (size_t)n_blk * (size_t)mm_layout[t].lines * 64;
    return n + (tail ? mm_scale_bytes(t, tail) : 0);
}

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Word j of a row goes to line j. */
static inline void store_word(uint8_t *lines, int j, int r, uint32_t v)
{
    memcpy(lines + 64 * j + 4 * r, &v, sizeof v);
}

/* 32 fifth bits in column order -> the row's word in the line of fifth bits */
static uint32_t spread_bits(uint32_t bits)
{
    uint32_t v = 0;
    for (int g = 0; g < 8; g++) /* the product puts bit i of a nibble into byte i */
        v |= ((bits >> 4 * g & 15) * 0x00204081u & 0x01010101u) << g;
    return v;
}

/* Two words of nibbles; their low or high halves -> the words of block `half` */
static inline uint32_t join_nibbles(uint32_t a, uint32_t b, int half)
{
    const uint32_t m = 0x0f0f0f0f;
    return half ? (a >> 4 & m) | (b & m << 4) : (a & m) | (b & m) << 4;
}

/* Blocks of 32 with f16 scales: src is one block of one row. */
static inline void pack_32(enum dtype t, const uint8_t *src, int r, uint8_t *scales, uint8_t *lines)
{
    const int two = mm_layout[t].block_scale == 64;

    memcpy(scales + 2 * r, src, 2);
    if (two)
        memcpy(scales + 32 + 2 * r, src + 2, 2);
    src += two ? 4 : 2;
    if (mm_layout[t].lines == 5) {
        store_word(lines, 0, r, spread_bits(load32(src)));
        src += 4;
        lines += 64;
    }
    for (int j = 0; j < (mm_layout[t].lines == 8 ? 8 : 4); j++)
        store_word(lines, j, r, load32(src + 4 * j));
}

static inline void chunk_32(enum dtype t, const uint8_t *const *rows, size_t at, int n_blk,
                            uint8_t *dst)
{
    uint8_t *lines = dst + mm_scale_bytes(t, n_blk);

    for (int b = 0; b < n_blk; b++) {
        for (int r = 0; r < MM_ROWS; r++)
            if (rows[r])
                pack_32(t, rows[r] + at + (size_t)(b * cb_dtype[t].block_bytes), r,
                        dst + b * mm_layout[t].block_scale, lines);
        lines += 64 * mm_layout[t].lines;
    }
}

static inline void pack_q45_k(int five, const uint8_t *src, int r, uint8_t *dst)
{
    const uint8_t *high = src + 16, *q = src + (five ? 48 : 16);
    uint8_t *lines = dst + 64 + 8 * 32;

    memcpy(dst + 2 * r, src, 2);
    memcpy(dst + 32 + 2 * r, src + 2, 2);
    for (int b = 0; b < 8; b++) {
        const uint8_t *at = q + 32 * (b / 2);
        int sc, m;

        cb_q4_k_scale(src + 4, b, &sc, &m);
        dst[64 + 32 * b + r] = (uint8_t)sc;
        dst[64 + 32 * b + 16 + r] = (uint8_t)m;
        if (five) {
            uint32_t v = 0;
            for (int g = 0; g < 8; g++)
                v |= (load32(high + 4 * g) >> b & 0x01010101u) << g;
            store_word(lines, 0, r, v);
            lines += 64;
        }
        for (int j = 0; j < 4; j++)
            store_word(lines, j, r,
                       join_nibbles(load32(at + 4 * j), load32(at + 16 + 4 * j), b & 1));
        lines += 4 * 64;
    }
}

static void pack_q6_k(const uint8_t *src, int r, uint8_t *dst)
{
    uint8_t *lines = dst + 64 + 8 * 32;

    memcpy(dst + 2 * r, src + 208, 2);
    for (int b = 0; b < 8; b++, lines += 6 * 64) {
        const uint8_t *lo = src + 64 * (b / 4) + 32 * (b & 1), *hi = src + 128 + 32 * (b / 4);
        const int c = b & 3;

        dst[64 + 32 * b + r] = src[192 + 2 * b];
        dst[64 + 32 * b + 16 + r] = src[192 + 2 * b + 1];
        for (int h = 0; h < 2; h++) {
            uint32_t v = 0;
            for (int g = 0; g < 4; g++)
                v |= (load32(hi + 16 * h + 4 * g) >> 2 * c & 0x03030303u) << 2 * g;
            store_word(lines, h, r, v);
        }
        for (int j = 0; j < 4; j++)
            store_word(lines + 128, j, r,
                       join_nibbles(load32(lo + 4 * j), load32(lo + 16 + 4 * j), c >> 1));
    }
}

static void chunk_k(enum dtype t, const uint8_t *const *rows, size_t at, uint8_t *dst)
{
    for (int r = 0; r < MM_ROWS; r++) {
        if (!rows[r])
            continue;
        if (t == DT_Q6_K)
            pack_q6_k(rows[r] + at, r, dst);
        else
            pack_q45_k(t == DT_Q5_K, rows[r] + at, r, dst);
    }
}

/* Codes of 32 columns -> the lines of one row */
static inline void store_codes(int n_line, const uint8_t *code, int r, uint8_t *lines)
{
    uint32_t pairs[2] = { 0, 0 }, third = 0;

    for (int g = 0; n_line == 4 && g < 4; g++)
        store_word(lines, g, r, load32(code + 4 * g) | load32(code + 16 + 4 * g) << 4);
    if (n_line == 4)
        return;
    for (int g = 0; g < 8; g++) {
        pairs[g / 4] |= (load32(code + 4 * g) & 0x03030303) << 2 * (g % 4);
        third |= (load32(code + 4 * g) >> 2 & 0x01010101) << g;
    }
    if (n_line == 3)
        store_word(lines, 0, r, third);
    for (int h = 0; h < 2; h++)
        store_word(lines + 64 * (n_line - 2), h, r, pairs[h]);
}

/* Scales of 32 columns, s being the first of b's that belongs to them */
static inline void store_scales(enum mm_scale form, const struct opened *b, int s, int r,
                                uint8_t *dst)
{
    switch (form) {
    case MM_HALVES:
        memcpy(dst + 2 * r, &b->d, 2);
        break;
    case MM_EXPONENT:
        dst[r] = (uint8_t)b->d;
        break;
    case MM_ONE:
        dst[r] = (uint8_t)b->scale[s];
        break;
    case MM_BYTES:
        dst[r] = (uint8_t)b->scale[s];
        dst[16 + r] = b->min[s];
        break;
    default:
        for (int h = 0; h < 2; h++)
            dst[16 * h + r] = (uint8_t)(b->scale[s + h] | b->min[s + h] << 4);
    }
}

/* Blocks that dtype_coded.c opens */
static void chunk_coded(enum dtype t, const uint8_t *const *rows, size_t at, int n_blk,
                        uint8_t *dst)
{
    const struct mm_layout l = mm_layout[t];
    const int step = cb_dtype[t].block / 32;
    uint8_t *lines = dst + mm_scale_bytes(t, n_blk);
    struct opened b = { 0 };

    for (int i = 0; i < n_blk * MM_ROWS; i += step) { /* blocks of a row are adjacent */
        const int r = i / n_blk, k = i % n_blk;

        if (!rows[r])
            continue;
        cb_coded[t].open(rows[r] + at + (size_t)(k / step * cb_dtype[t].block_bytes), &b);
        if (l.chunk_scale) {
            memcpy(dst + 2 * r, &b.d, 2);
            memcpy(dst + 32 + 2 * r, &b.dmin, 2);
        }
        for (int j = k; j < k + step; j++) {
            if (l.block_scale)
                store_scales(l.scale, &b, 2 * (j - k), r, dst + l.chunk_scale + j * l.block_scale);
            store_codes(l.lines, b.code + 32 * (j - k), r, lines + 64 * l.lines * j);
        }
    }
}

static void chunk(enum dtype t, const uint8_t *const *rows, size_t at, int n_blk, uint8_t *dst)
{
    switch (t) { /* constant arguments: each type gets its own loop */
    case DT_Q4_0:
        chunk_32(DT_Q4_0, rows, at, n_blk, dst);
        break;
    case DT_Q4_1:
        chunk_32(DT_Q4_1, rows, at, n_blk, dst);
        break;
    case DT_Q5_0:
        chunk_32(DT_Q5_0, rows, at, n_blk, dst);
        break;
    case DT_Q5_1:
        chunk_32(DT_Q5_1, rows, at, n_blk, dst);
        break;
    case DT_Q8_0:
        chunk_32(DT_Q8_0, rows, at, n_blk, dst);
        break;
    case DT_Q4_K:
    case DT_Q5_K:
    case DT_Q6_K:
        chunk_k(t, rows, at, dst);
        break;
    default:
        chunk_coded(t, rows, at, n_blk, dst);
    }
}

/* `width` columns of a row are adjacent */
static inline void pack_float(size_t size, size_t width, const uint8_t *const *rows, int n_in,
                              uint8_t *dst)
{
    for (size_t r = 0; r < MM_ROWS; r++)
        for (size_t k = 0; rows[r] && k < (size_t)n_in; k++)
            memcpy(dst + (k / width * width * MM_ROWS + r * width + k % width) * size,
                   rows[r] + k * size, size);
}

void cb_mm_pack(enum dtype t, const uint8_t *const *rows, int n_in, int fours, void *dst)
{
    uint8_t *out = dst;

    if (!rows[MM_ROWS - 1] || n_in % 4) /* absent rows: zero scales; absent columns */
        memset(dst, 0, cb_mm_group_bytes(t, n_in));
    if (!mm_layout[t].lines) {
        if (t == DT_F32)
            pack_float(4, 1, rows, n_in, dst);
        else if (fours)
            pack_float(2, 4, rows, n_in, dst);
        else
            pack_float(2, 1, rows, n_in, dst);
        return;
    }
    for (int b = 0; b < n_in / 32; b += MM_CHUNK) {
        const int n = n_in / 32 - b < MM_CHUNK ? n_in / 32 - b : MM_CHUNK;

        chunk(t, rows, cb_row_bytes(t, 32 * (int64_t)b), n, out);
        out += mm_scale_bytes(t, n) + (size_t)n * (size_t)mm_layout[t].lines * 64;
    }
}
