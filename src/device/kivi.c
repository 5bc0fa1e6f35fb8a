/* SPDX-License-Identifier: MIT */
/* kivi.c - groups of 32, 64 or 128 numbers on 2 or 4 bits (KIVI, Liu et al. 2024, section 3.1:
 * round to nearest between a group's smallest and largest). */
#include "kivi.h"

#include "planes.h"

static void put_half(void *at, int i, uint16_t h)
{
    memcpy((char *)at + 2 * i, &h, sizeof h);
}

static float get_half(const void *at, int i)
{
    uint16_t h;
    memcpy(&h, (const char *)at + 2 * i, sizeof h);
    return cb_f16_to_f32(h);
}

/* to the nearest whole number, ties to even, for 0 <= x < 2^22 */
static float nearest(float x)
{
    const float big = 12582912.0f;
    return (x + big) - big;
}

/* Each 32 codes are n bytes: code i of them is at bit bits * (i / n) of byte i % n, so that the
 * codes in one byte are n apart. */
void cb_kivi_encode(int bits, int group, const float *x, int stride, void *at)
{
    const int top = (1 << bits) - 1, n = 4 * bits;
    uint8_t *code = (uint8_t *)at + 4;
    float min = x[0], max = x[0], step;

    for (int i = 1; i < group; i++) {
        const float y = x[(int64_t)i * stride];
        min = y < min ? y : min;
        max = y > max ? y : max;
    }
    put_half(at, 0, cb_f32_to_f16((max - min) / (float)top));
    put_half(at, 1, cb_f32_to_f16(min));
    step = get_half(at, 0);
    min = get_half(at, 1);
    memset(code, 0, (size_t)(group / KIVI_GROUP * n));
    for (int i = 0; i < group && step > 0; i++) {
        const float y = (x[(int64_t)i * stride] - min) / step;
        const int c = !(y > 0) ? 0 : y >= (float)top ? top : (int)nearest(y), j = i % KIVI_GROUP;
        uint8_t *to = &code[i / KIVI_GROUP * n + j % n];
        *to = (uint8_t)(*to | c << (j / n * bits));
    }
}

float cb_kivi_decode(int bits, const void *at, int i)
{
    const int n = 4 * bits, j = i % KIVI_GROUP;
    const uint8_t *code = (const uint8_t *)at + 4 + i / KIVI_GROUP * n;
    const int c = code[j % n] >> (j / n * bits) & ((1 << bits) - 1);

    return get_half(at, 1) + (float)c * get_half(at, 0);
}

int cb_kivi_planes_at(const struct kv_kivi *q, int row, int hd, const uint8_t **block,
                      const uint8_t **rest)
{
    const int slot = q->lo_k + row;

    *block = q->plane + (size_t)(slot / SKETCH_BLOCK) * cb_sketch_bytes(q->plane_bits, hd);
    *rest = q->k + (size_t)row * cb_planes_row_bytes(q->plane_bits, hd);
    return slot % SKETCH_BLOCK;
}

static void get_planes(const struct kv_kivi *q, int row, int hd, float *y)
{
    const uint8_t *block, *rest;
    const int token = cb_kivi_planes_at(q, row, hd, &block, &rest);
    uint16_t x[CB_KIVI_MAX_HD];

    cb_planes_get(q->plane_bits, hd, block, token, rest, x);
    for (int c = 0; c < hd; c++)
        y[c] = cb_f16_to_f32(x[c]);
}

static void get_grouped(const struct kv_kivi *q, int v, int row, int hd, float *y)
{
    const int bits = v ? q->bits_v : q->bits_k, group = cb_kivi_group(q, v);
    const size_t bytes = cb_kivi_group_bytes(bits, group);
    const uint8_t *at = v ? q->v + (size_t)row * (size_t)(hd / group) * bytes
                          : q->k + (size_t)(row / group) * (size_t)hd * bytes;

    for (int c = 0; c < hd; c++)
        y[c] = v ? cb_kivi_decode(bits, at + (size_t)(c / group) * bytes, c % group)
                 : cb_kivi_decode(bits, at + (size_t)c * bytes, row % group);
}

void cb_kivi_get(const struct kv_kivi *q, int v, int row, int hd, float *y)
{
    if (!v && cb_kivi_in_planes(q))
        get_planes(q, row, hd, y);
    else
        get_grouped(q, v, row, hd, y);
}
