/* SPDX-License-Identifier: MIT */
/* index_strips.c - keys of trained selectors in strips, and the queries that meet them. */
#include "index_strips.h"

#include <math.h>
#include <string.h>

#include "device.h"

enum {
    MOST = 127,
    REST = 15,
    LOW = 7 /* the rest is -7..7 */
};

/* Where the upper bits of number c of key j are, and by how many bits they are shifted */
static uint8_t *place(int hd, uint8_t *block, int j, int c, int *shift)
{
    const int half = (int)cb_strip_half(hd);

    *shift = c < half ? 0 : 4;
    return block + (size_t)j * (size_t)half + (c < half ? c : c - half);
}

/* Number c of key j of a block becomes this code; those before it are set. */
static void put_code(int hd, uint8_t *block, int j, int c, int code)
{
    int shift;
    uint8_t *at = place(hd, block, j, c, &shift), *low = at + cb_strip_lower(hd);
    const int kept = shift ? 15 : 0; /* what stands in the lower bits */

    *at = (uint8_t)((*at & kept) | code >> 4 << shift);
    *low = (uint8_t)((*low & kept) | (code & 15) << shift);
}

static float largest(const float *x, int n)
{
    float most = 0;

    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    return most;
}

/* x rounded, between -most and most; what is no number becomes 0 */
static int whole(float x, float most)
{
    return x > most ? (int)most : x < -most ? -(int)most : x == x ? (int)nearbyintf(x) : 0;
}

static void put(const float *x, int hd, int j, uint8_t *block)
{
    const int pad = cb_strip_pad(hd);
    const float step = largest(x, hd) / MOST, inv = step > 0 ? 1 / step : 0;
    uint8_t *rest = block + cb_strip_scan_bytes(hd) + (size_t)j * (size_t)pad / 2;

    memcpy(block + STRIP_BLOCK * cb_strip_half(hd) + (size_t)j * sizeof step, &step, sizeof step);
    for (int c = 0; c < pad; c++) {
        const float v = c < hd ? x[c] * inv : 0;
        const int code = whole(v, MOST), low = whole((v - (float)code) * REST, LOW) + LOW;
        put_code(hd, block, j, c, code + 128);
        rest[c / 2] = (uint8_t)(c % 2 ? rest[c / 2] | low << 4 : low);
    }
}

void cb_strips_put(const float *x, int n, int stride, int hd, int at, void *blocks)
{
    for (int i = 0; i < n; i++)
        put(x + (size_t)i * (size_t)stride, hd, (at + i) % STRIP_BLOCK,
            (uint8_t *)blocks + (size_t)((at + i) / STRIP_BLOCK) * cb_strip_bytes(hd));
}

static void renew(int hd, uint8_t *block)
{
    const int pad = cb_strip_pad(hd);
    uint8_t code[STRIP_BLOCK * KV_MAX_HD];
    float step[STRIP_BLOCK];

    memcpy(code, block, STRIP_BLOCK * (size_t)pad);
    memcpy(step, block + STRIP_BLOCK * (size_t)pad, sizeof step);
    memcpy(block + STRIP_BLOCK * cb_strip_half(hd), step, sizeof step);
    for (int j = 0; j < STRIP_BLOCK; j++)
        for (int c = 0; c < pad; c++) {
            const int line = j / STRIP_KEYS * pad / 4 + c / 4;
            put_code(hd, block, j, c, code[(line * STRIP_KEYS + j % STRIP_KEYS) * 4 + c % 4]);
        }
}

void cb_strips_renew(int hd, void *blocks, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += cb_strip_bytes(hd))
        renew(hd, (uint8_t *)blocks + at);
}

/* Key j of a block -> y[hd] */
static void get(int hd, const uint8_t *block, int j, float *y)
{
    static const float part[REST + 1] = { -7 / 15.0f, -6 / 15.0f, -5 / 15.0f, -4 / 15.0f,
                                          -3 / 15.0f, -2 / 15.0f, -1 / 15.0f, 0,
                                          1 / 15.0f,  2 / 15.0f,  3 / 15.0f,  4 / 15.0f,
                                          5 / 15.0f,  6 / 15.0f,  7 / 15.0f,  8 / 15.0f };
    const int half = (int)cb_strip_half(hd);
    const uint8_t *upper = block + (size_t)j * (size_t)half, *lower = upper + cb_strip_lower(hd);
    const uint8_t *rest = block + cb_strip_scan_bytes(hd) + (size_t)j * (size_t)half;
    const float step = cb_strip_steps(hd, block)[j];

    for (int c = 0; c < hd; c++) {
        const int i = c < half ? c : c - half, shift = c < half ? 0 : 4;
        const int code = (upper[i] >> shift & 15) << 4 | (lower[i] >> shift & 15);
        y[c] = step * ((float)(code - 128) + part[rest[c / 2] >> c % 2 * 4 & 15]);
    }
}

void cb_strips_get(const void *blocks, const int32_t *idx, int n, int hd, float *y)
{
    for (int i = 0; i < n; i++, y += hd)
        get(hd, (const uint8_t *)blocks + (size_t)(idx[i] / STRIP_BLOCK) * cb_strip_bytes(hd),
            idx[i] % STRIP_BLOCK, y);
}

/* ---- queries ---- */

static int tiles(int n_head)
{
    return (n_head + STRIP_HEADS - 1) / STRIP_HEADS;
}

size_t cb_strip_query_bytes(int n_head, int hd)
{
    const size_t heads = (size_t)tiles(n_head) * STRIP_HEADS;

    return (heads * ((size_t)cb_strip_pad(hd) + 2 * sizeof(float)) + 63) & ~(size_t)63;
}

static size_t round64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

size_t cb_index_scan_bytes(void *mem, int n_tok, int n_head, int hd, int n, int k,
                           struct index_scan_work *w)
{
    const size_t query = (size_t)n_tok * cb_strip_query_bytes(n_head, hd);
    const size_t own = query + STRIP_OWN * (size_t)n_tok, rows = (size_t)n_tok * STRIP_STAGES;
    const int every = k / 256 > 2 ? k / 256 : 2;
    const int n_sample = ((n - 1) / STRIP_BLOCK / every + 1) * STRIP_SAMPLE;
    const size_t sample = own + round64(rows * (size_t)n_sample * sizeof *w->sample);
    char *p = mem;

    if (mem)
        *w = (struct index_scan_work){ p + query, every, n_sample, (float *)(void *)(p + own),
                                       (int32_t *)(void *)(p + sample) };
    return sample + round64((size_t)n_sample * sizeof *w->best);
}

float cb_strip_codes(const float *x, int hd, int apart, int32_t *code, int32_t *start)
{
    const float step = largest(x, hd) / MOST, inv = step > 0 ? 1 / step : 0;
    int8_t *to = (int8_t *)code;
    int sum = 0;

    for (int c = 0; c < hd; c++) {
        const int v = whole(x[c] * inv, MOST);
        to[c / 4 * apart * 4 + c % 4] = (int8_t)v;
        sum += v;
    }
    *start = -128 * sum;
    return step;
}

/* A key can get more by heads of larger |weight| |q|: these come first; at equality the first. */
static void order_heads(const float *q, const float *weight, int n_head, int hd, int *order)
{
    float most[STRIP_MOST_HEADS];

    for (int h = 0; h < n_head; h++) {
        float sum = 0, w = weight ? weight[h] : 1;
        int at = h;
        for (int c = 0; c < hd; c++)
            sum += q[h * hd + c] * q[h * hd + c];
        sum *= w * w;
        for (; at > 0 && most[at - 1] < sum; at--) {
            most[at] = most[at - 1];
            order[at] = order[at - 1];
        }
        most[at] = sum;
        order[at] = h;
    }
}

void cb_strip_query(const float *q, const float *weight, int n_head, int hd, void *mem,
                    struct strip_query *out)
{
    const int quads = cb_strip_pad(hd) / 4, n = tiles(n_head) * STRIP_HEADS;
    int32_t *code = mem, *start = code + (size_t)n * (size_t)quads;
    float *w = (float *)(start + n);
    int order[STRIP_MOST_HEADS];

    memset(mem, 0, cb_strip_query_bytes(n_head, hd));
    order_heads(q, weight, n_head, hd, order);
    for (int i = 0; i < n_head; i++) {
        const int h = order[i];
        int32_t *to = code + (size_t)(i / STRIP_HEADS * quads * STRIP_HEADS + i % STRIP_HEADS);
        w[i] = cb_strip_codes(q + (size_t)h * (size_t)hd, hd, STRIP_HEADS, to, &start[i]) *
               (weight ? weight[h] : 1);
    }
    *out = (struct strip_query){ quads, n / STRIP_HEADS, code, start, w };
}
