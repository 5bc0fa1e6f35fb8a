/* SPDX-License-Identifier: MIT */
/* attn_q8_avx2.c - stored values as pairs of 16-bit integers. q8_0 rows keep their codes;
 * attn_half.c converts the other types. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"

#define UNROLL _Pragma("GCC unroll 16")

VEC_INLINE __m256i load32(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* Codes of 32 dims of two keys -> pairs */
VEC_INLINE void store_pairs(__m256i u, __m256i w, int16_t *y)
{
    const __m256i lo = _mm256_unpacklo_epi8(u, w), hi = _mm256_unpackhi_epi8(u, w);
    const __m128i part[4] = { _mm256_castsi256_si128(lo), _mm256_castsi256_si128(hi),
                              _mm256_extracti128_si256(lo, 1), _mm256_extracti128_si256(hi, 1) };

    UNROLL
    for (int i = 0; i < 4; i++)
        _mm256_storeu_si256((void *)(y + 16 * i), _mm256_cvtepi8_epi16(part[i]));
}

/* Codes are unchanged; each block of 32 dims has its own scales. */
static void pack_q8(const struct kern_rows *v, int hd, int at, struct i16_values *y)
{
    for (int j = 0; j < v->n && j < v->n_ahead; j++)
        for (size_t i = 0; i < v->bytes; i += 64)
            __builtin_prefetch(v->ahead[j] + i, 0, 2);
    for (int b = 0; b < hd / 32; b++, y++) {
        int16_t *code = y->code + 32 * at;
        uint16_t scale[KEY_BLOCK] = { 0 };
        for (int j = 0; j < v->n; j += 2, code += 64) {
            const char *p = v->row[j] + b * 34, *q = v->row[j + 1] + b * 34;
            const int both = j + 1 < v->n;
            store_pairs(load32(p + 2), both ? load32(q + 2) : _mm256_setzero_si256(), code);
            memcpy(scale + j, p, sizeof *scale);
            if (both)
                memcpy(scale + j + 1, q, sizeof *scale);
        }
        for (int j = 0; j < v->n; j += VW)
            v_store(y->scale + at + j, v_load_f16(scale + j));
    }
}

void cb_pack_v_i16_avx2(const struct kern_rows *v, int hd, int at, void *vp)
{
    if (v->t == KV_Q8_0)
        pack_q8(v, hd, at, vp);
    else
        cb_pack_v_half_avx2(v, hd, at, vp);
}
