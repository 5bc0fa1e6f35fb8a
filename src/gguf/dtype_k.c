/* SPDX-License-Identifier: MIT */
/* dtype_k.c - the 256-element ("K") quantised blocks: 4 and 5 bits with a scale and a minimum for
 * each 32 elements, 6 bits with a scale for each 16. */
#include "dtype_k.h"

#include <math.h>
#include <string.h>

#include "half.h"

/* Q4_K: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles.
 * Q5_K: the same with 32 bytes of fifth bits before the nibbles.
 * Each 32 bytes of nibbles hold 64 elements: low = the first 32, high = the next. Bit 2c of a
 * fifth-bit byte belongs to the low half of chunk c, bit 2c + 1 to the high half. */
static inline void q45_to_f32(int five, const uint8_t *p, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += 256, p += five ? 176 : 144) {
        const float d = cb_f16_to_f32(cb_load16(p)), dmin = cb_f16_to_f32(cb_load16(p + 2));
        const uint8_t *high = p + 16, *q = five ? p + 48 : p + 16;

        for (int j = 0; j < 8; j++, y += 32) {
            const uint8_t *at = q + 32 * (j / 2);
            int sc, m;

            cb_q4_k_scale(p + 4, j, &sc, &m);
            for (int l = 0; l < 32; l++) {
                int v = j & 1 ? at[l] >> 4 : at[l] & 15;
                if (five)
                    v |= (high[l] >> j & 1) << 4;
                y[l] = d * (float)sc * (float)v - dmin * (float)m;
            }
        }
    }
}

void cb_q4_k_to_f32(const void *x, float *y, int64_t n)
{
    q45_to_f32(0, x, y, n);
}

void cb_q5_k_to_f32(const void *x, float *y, int64_t n)
{
    q45_to_f32(1, x, y, n);
}

/* Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 d. Element
 * 128h + 32c + l has its nibble in byte 64h + 32(c & 1) + l (high half for c >= 2) and its bit pair
 * c in byte 32h + l. */
void cb_q6_k_to_f32(const void *x, float *y, int64_t n)
{
    const uint8_t *p = x;

    for (int64_t i = 0; i < n; i += 256, p += 210) {
        const float d = cb_f16_to_f32(cb_load16(p + 208));

        for (int c = 0; c < 8; c++, y += 32) {
            const uint8_t *lo = p + 64 * (c / 4) + 32 * (c & 1), *hi = p + 128 + 32 * (c / 4);
            for (int l = 0; l < 32; l++) {
                const int v = (c & 2 ? lo[l] >> 4 : lo[l] & 15) | (hi[l] >> 2 * (c & 3) & 3) << 4;
                const int sc = (int8_t)p[192 + 2 * c + l / 16];
                y[l] = d * (float)sc * (float)(v - 32);
            }
        }
    }
}

/* The nearest whole number within lo..hi; lo of what is no number (0 / 0, where steps are too small
 * to be divided by) */
static int code(float v, int lo, int hi)
{
    v = floorf(v + 0.5f);
    return !(v > (float)lo) ? lo : v < (float)hi ? (int)v : hi;
}

/* How much the error of each of x[n] counts: the more the larger it is, and as its column matters.
 * share: of the mean square that is added to each square. No column counts for nothing, since codes
 * are fitted to all. NULL: columns matter alike. */
static void weigh(const float *x, const float *column, int n, float share, float *w)
{
    float square = 0, most = 0;

    for (int l = 0; l < n; l++) {
        square += x[l] * x[l];
        most = column ? fmaxf(most, column[l]) : 0;
    }
    for (int l = 0; l < n; l++)
        w[l] = (most > 0 ? column[l] / most + 1e-5f : 1) *
               sqrtf(share * square / (float)n + x[l] * x[l]);
}

/* x[32] ~ d * q - m with q = 0..top, d and m >= 0: tries a few grids, refits each by least squares
 * and keeps the one with the least squared error, weighted by w[32]. */
static void fit_min(const float *x, const float *w, int top, float *d_out, float *m_out)
{
    float lo = 0, hi = x[0], best = INFINITY, sum = 0, sx = 0;

    for (int l = 0; l < 32; l++) {
        lo = fminf(lo, x[l]);
        hi = fmaxf(hi, x[l]);
        sum += w[l];
        sx += w[l] * x[l];
    }
    *d_out = 0;
    *m_out = -lo;
    if (hi <= lo)
        return;
    for (int step = -10; step <= 10; step++) {
        const float inv = ((float)top + 0.1f * (float)step) / (hi - lo);
        float sq = 0, sqq = 0, sqx = 0, det, d, m, err = 0;

        for (int l = 0; l < 32; l++) {
            const float q = (float)code((x[l] - lo) * inv, 0, top);
            sq += w[l] * q;
            sqq += w[l] * q * q;
            sqx += w[l] * q * x[l];
        }
        det = sum * sqq - sq * sq;
        if (!(det > 0))
            continue;
        d = (sum * sqx - sq * sx) / det;
        m = (d * sq - sx) / sum;
        if (m < 0) { /* minima are stored unsigned */
            m = 0;
            d = sqx / sqq;
        }
        if (!(d > 0))
            continue;
        for (int l = 0; l < 32; l++) {
            const float e = d * (float)code((x[l] + m) / d, 0, top) - m - x[l];
            err += w[l] * e * e;
        }
        if (err < best) {
            best = err;
            *d_out = d;
            *m_out = m;
        }
    }
}

static void pack_scales(const int sc[8], const int m[8], uint8_t s[12])
{
    memset(s, 0, 12);
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(sc[j] | (sc[j + 4] >> 4) << 6);
        s[j + 4] = (uint8_t)(m[j] | (m[j + 4] >> 4) << 6);
        s[j + 8] = (uint8_t)((sc[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

static inline void q45_from_f32(int five, const float *x, const float *column, uint8_t *p,
                                int64_t n)
{
    const int top = five ? 31 : 15;

    for (int64_t i = 0; i < n; i += 256, x += 256, p += five ? 176 : 144) {
        float d[8], m[8], w[256], dmax = 0, mmax = 0, ds, ms;
        uint8_t *high = p + 16, *q = five ? p + 48 : p + 16;
        int sc[8], mc[8];

        weigh(x, column ? column + i : NULL, 256, 2, w);
        for (int j = 0; j < 8; j++) {
            fit_min(x + 32 * j, w + 32 * j, top, &d[j], &m[j]);
            dmax = fmaxf(dmax, d[j]);
            mmax = fmaxf(mmax, m[j]);
        }
        cb_store16(p, cb_f32_to_f16(dmax / 63));
        cb_store16(p + 2, cb_f32_to_f16(mmax / 63));
        ds = cb_f16_to_f32(cb_load16(p));
        ms = cb_f16_to_f32(cb_load16(p + 2));
        memset(high, 0, (size_t)(five ? 160 : 128));
        for (int j = 0; j < 8; j++) {
            sc[j] = ds > 0 ? code(d[j] / ds, 0, 63) : 0;
            mc[j] = ms > 0 ? code(m[j] / ms, 0, 63) : 0;
            for (int l = 0; l < 32; l++) {
                const float step = ds * (float)sc[j];
                const float v = x[32 * j + l] + ms * (float)mc[j];
                const int c = step > 0 ? code(v / step, 0, top) : 0;
                q[32 * (j / 2) + l] |= (uint8_t)((c & 15) << 4 * (j & 1));
                if (five)
                    high[l] |= (uint8_t)((c >> 4) << j);
            }
        }
        pack_scales(sc, mc, p + 4);
    }
}

void cb_q4_k_from_f32(const float *x, void *y, int64_t n)
{
    q45_from_f32(0, x, NULL, y, n);
}

void cb_q5_k_from_f32(const float *x, void *y, int64_t n)
{
    q45_from_f32(1, x, NULL, y, n);
}

void cb_q4_k_weighted(const float *x, const float *column, void *y, int64_t n)
{
    q45_from_f32(0, x, column, y, n);
}

void cb_q5_k_weighted(const float *x, const float *column, void *y, int64_t n)
{
    q45_from_f32(1, x, column, y, n);
}

/* x[n] ~ d * q with q = -half..half - 1, by the error that w[n] weighs; d may be negative, so that
 * the largest magnitude can take -half. */
static float fit_signed(const float *x, const float *w, int n, int half)
{
    float ext = 0, best = -1, d_best = 0;

    for (int l = 0; l < n; l++)
        ext = fabsf(x[l]) > fabsf(ext) ? x[l] : ext;
    if (ext == 0)
        return 0;
    for (int step = -9; step <= 9; step++) {
        const float inv = -((float)half + 0.1f * (float)step) / ext;
        float sqx = 0, sqq = 0;

        for (int l = 0; l < n; l++) {
            const float q = (float)code(x[l] * inv, -half, half - 1);
            sqx += w[l] * q * x[l];
            sqq += w[l] * q * q;
        }
        if (sqq > 0 && sqx * sqx / sqq > best) { /* squared error = sum x^2 - sqx^2 / sqq */
            best = sqx * sqx / sqq;
            d_best = sqx / sqq;
        }
    }
    return d_best;
}

float cb_fit_signed(const float *x, const float *column, int half)
{
    float w[32];

    weigh(x, column, 32, 1, w);
    return fit_signed(x, w, 32, half);
}

void cb_q6_k_weighted(const float *x, const float *column, void *y, int64_t n)
{
    uint8_t *p = y;

    for (int64_t i = 0; i < n; i += 256, x += 256, p += 210) {
        float d[16], w[256], ext = 0, ds;

        weigh(x, column ? column + i : NULL, 256, 2, w);
        for (int j = 0; j < 16; j++) {
            d[j] = fit_signed(x + 16 * j, w + 16 * j, 16, 32);
            ext = fabsf(d[j]) > fabsf(ext) ? d[j] : ext;
        }
        memset(p, 0, 210);
        cb_store16(p + 208, cb_f32_to_f16(ext / -128));
        ds = cb_f16_to_f32(cb_load16(p + 208));
        for (int e = 0; e < 256; e++) {
            const int c = e / 32, l = e % 32;
            const int sc = ds != 0 ? code(d[e / 16] / ds, -128, 127) : 0;
            const float step = ds * (float)sc;
            const int v = step != 0 ? code(x[e] / step, -32, 31) + 32 : 32;

            p[192 + e / 16] = (uint8_t)(int8_t)sc;
            p[64 * (c / 4) + 32 * (c & 1) + l] |= (uint8_t)((v & 15) << (c & 2 ? 4 : 0));
            p[128 + 32 * (c / 4) + l] |= (uint8_t)((v >> 4) << 2 * (c & 3));
        }
    }
}

void cb_q6_k_from_f32(const float *x, void *y, int64_t n)
{
    cb_q6_k_weighted(x, NULL, y, n);
}
