/* SPDX-License-Identifier: MIT */
/* ref_rows.c - the stored forms of keys and values, by the table of element types. */
#include "ref_rows.h"

static const enum dtype kv_dtype[KV_TYPE_COUNT] = {
    [KV_F32] = DT_F32,
    [KV_F16] = DT_F16,
    [KV_BF16] = DT_BF16,
    [KV_Q8_0] = DT_Q8_0,
};

void cb_ref_kv_row(enum kv_type t, const void *rows, int64_t slot, int hd, float *y)
{
    const char *row = (const char *)rows + (size_t)slot * cb_kv_row_bytes(t, hd);
    cb_dtype[kv_dtype[t]].to_f32(row, y, hd);
}

void cb_ref_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows)
{
    const size_t row = cb_kv_row_bytes(t, hd);

    (void)d;
    for (int i = 0; i < n; i++)
        cb_dtype[kv_dtype[t]].from_f32(x + (int64_t)i * stride, (char *)rows + (size_t)i * row, hd);
}

void cb_ref_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y)
{
    (void)d;
    for (int i = 0; i < n; i++)
        cb_ref_kv_row(t, rows, idx ? idx[i] : i, hd, y + (int64_t)i * hd);
}
