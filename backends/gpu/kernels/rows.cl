/* SPDX-License-Identifier: MIT */
/* rows.cl - numbers of stored rows of keys and values. */

/* Number c of a row; type: enum kv_type */
FUNCTION float stored(int type, bytes_t row, int c)
{
    bytes_t p;

    if (type == 0)
        return load_f32(row + 4 * c);
    if (type == 1)
        return load_f16(row + 2 * c);
    if (type == 2)
        return load_bf16(row + 2 * c);
    p = row + 34 * (c / 32);
    return (float)(signed char)p[2 + c % 32] * load_f16(p);
}
