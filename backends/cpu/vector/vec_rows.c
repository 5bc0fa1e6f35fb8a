/* SPDX-License-Identifier: MIT */
/* vec_rows.c - the stored forms of keys and values, a row at a time. Built once for each ISA. */
#include "vec_rows.h"

#include "vec.h"

/* {f16 scale, 32 signed codes}: the largest magnitude is 127 steps */
static void encode_q8(const float *x, int hd, char *row)
{
    for (int b = 0; b < hd; b += 32, row += 34) {
        vf amax = v_set1(0.0f);
        float d, inv;
        uint16_t h;
        for (int i = 0; i < 32; i += VW)
            amax = v_max(amax, v_abs(v_load(x + b + i)));
        d = v_hmax(amax) / 127.0f;
        inv = d > 0.0f ? 1.0f / d : 0.0f;
        h = cb_f32_to_f16(d);
        memcpy(row, &h, sizeof h);
        for (int i = 0; i < 32; i += VW)
            v_store_i8(row + 2 + i, v_round(v_mul(v_load(x + b + i), v_set1(inv))));
    }
}

void VEC_NAME(cb_encode_row_)(enum kv_type t, const float *x, int hd, void *row)
{
    char *y = row;
    int i = 0;

    switch (t) {
    case KV_F16:
        for (; i + VW <= hd; i += VW)
            v_store_f16(y + 2 * i, v_load(x + i));
        if (i < hd)
            cb_dtype[DT_F16].from_f32(x + i, y + 2 * i, hd - i);
        break;
    case KV_BF16:
        for (; i + VW <= hd; i += VW)
            v_store_bf16(y + 2 * i, v_load(x + i));
        if (i < hd)
            cb_dtype[DT_BF16].from_f32(x + i, y + 2 * i, hd - i);
        break;
    case KV_Q8_0:
        encode_q8(x, hd, y);
        break;
    case KV_F32:
    case KV_TYPE_COUNT:
        memcpy(y, x, (size_t)hd * sizeof *x);
        break;
    }
}

static void decode_q8(const char *row, int hd, float *y)
{
    for (int b = 0; b < hd; b += 32, row += 34) {
        const vf d = v_set1(v_f16(row));
        for (int i = 0; i < 32; i += VW)
            v_store(y + b + i, v_mul(v_load_i8(row + 2 + i), d));
    }
}

void VEC_NAME(cb_decode_row_)(enum kv_type t, const void *row, int hd, float *y)
{
    const char *x = row;
    int i = 0;

    switch (t) {
    case KV_F16:
        for (; i + VW <= hd; i += VW)
            v_store(y + i, v_load_f16(x + 2 * i));
        if (i < hd)
            cb_dtype[DT_F16].to_f32(x + 2 * i, y + i, hd - i);
        break;
    case KV_BF16:
        for (; i + VW <= hd; i += VW)
            v_store(y + i, v_load_bf16(x + 2 * i));
        if (i < hd)
            cb_dtype[DT_BF16].to_f32(x + 2 * i, y + i, hd - i);
        break;
    case KV_Q8_0:
        decode_q8(x, hd, y);
        break;
    case KV_F32:
    case KV_TYPE_COUNT:
        memcpy(y, x, (size_t)hd * sizeof *y);
        break;
    }
}
