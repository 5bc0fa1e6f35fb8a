/* SPDX-License-Identifier: MIT */
/* prepacked.c - reads prepacked blocks number by number. f16 and bf16: 16-bit codes and a step for
 * each row. q8_0: the bytes that the rows had, in another order. */
#include "prepacked.h"

#include <string.h>

enum { Q8_ROW = 34 }; /* bytes of 32 numbers: a scale and their codes */

const char *cb_prepacked_form(const char *isa)
{
    static const char *const form[][2] = { { "avx512bw", "avx512" },   { "avx512vnni", "avx512" },
                                           { "avx512vbmi", "avx512" }, { "amx", "avx512" },
                                           { "avxvnni", "avx2" },      { "i8mm", "neon" },
                                           { "bf16", "neon" } };

    for (size_t i = 0; i < sizeof form / sizeof *form; i++)
        if (!strcmp(isa, form[i][0]))
            return form[i][1];
    return isa;
}

int cb_prepacked_panel(const char *isa)
{
    const char *form = cb_prepacked_form(isa);

    return !strcmp(form, "avx512") ? 32 : !strcmp(form, "avx2") ? 16 : 0;
}

/* Number c of key j: within 32 dims, pair p of a panel holds dims p and 16 + p. */
static int key_code(const int16_t *codes, int hd, int panel, int j, int c)
{
    const int pair = c / 32 * 16 + c % 16;

    return codes[j / panel * panel * hd + (pair * panel + j % panel) * 2 + c % 32 / 16];
}

/* Number c of value j: pairs of values, 32 dims of all entries together */
static int value_code(const int16_t *codes, int j, int c)
{
    return codes[c / 32 * 32 * KV_PREPACK + j / 2 * 64 + c % 32 * 2 + j % 2];
}

/* 32 dims of a panel of keys: codes in fours with 128 added, then the keys' scales */
static void open_q8_key(const uint8_t *codes, int hd, int panel, int j, uint8_t *row)
{
    const size_t bytes = (size_t)panel * Q8_ROW;
    const uint8_t *x = codes + (size_t)(j / panel) * (size_t)(hd / 32) * bytes;

    for (int b = 0; b < hd / 32; b++, x += bytes, row += Q8_ROW) {
        memcpy(row, x + (size_t)panel * 32 + (size_t)(j % panel) * 2, 2);
        for (int c = 0; c < 32; c++)
            row[2 + c] = x[(c / 4 * panel + j % panel) * 4 + c % 4] ^ 0x80;
    }
}

/* 32 dims of all values: codes in pairs of values, then the values' scales */
static void open_q8_value(const uint8_t *codes, int hd, int j, uint8_t *row)
{
    const uint8_t *x = codes;

    for (int b = 0; b < hd / 32; b++, x += KV_PREPACK * Q8_ROW, row += Q8_ROW) {
        memcpy(row, x + KV_PREPACK * 32 + (size_t)j * 2, 2);
        for (int c = 0; c < 32; c++)
            row[2 + c] = x[32 * (j & ~1) + 2 * c + j % 2];
    }
}

void cb_prepacked_open(struct device *d, enum kv_type t, int v, int hd, int panel,
                       const void *codes, const float *step, float *x, void *rows)
{
    const size_t row = cb_kv_row_bytes(t, hd);

    for (int j = 0; j < KV_PREPACK; j++) {
        if (t == KV_Q8_0 && v)
            open_q8_value(codes, hd, j, (uint8_t *)x + (size_t)j * row);
        else if (t == KV_Q8_0)
            open_q8_key(codes, hd, panel, j, (uint8_t *)x + (size_t)j * row);
        for (int c = 0; t != KV_Q8_0 && c < hd; c++)
            x[j * hd + c] =
                step[j] * (float)(v ? value_code(codes, j, c) : key_code(codes, hd, panel, j, c));
    }
    if (t == KV_Q8_0)
        memcpy(rows, x, KV_PREPACK * row);
    else
        d->ops->kv_encode(d, t, x, KV_PREPACK, hd, hd, rows);
}
