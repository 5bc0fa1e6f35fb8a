/* SPDX-License-Identifier: MIT */
/* half.h - 16-bit floats, IEEE half and bfloat16, as they lie in files and in the bank. */
#ifndef HALF_H
#define HALF_H

#include <stdint.h>
#include <string.h>

/* Rounds to nearest even; NaN stays NaN. */
float cb_f16_to_f32(uint16_t h);
uint16_t cb_f32_to_f16(float f);
float cb_bf16_to_f32(uint16_t h);
uint16_t cb_f32_to_bf16(float f);

static inline uint16_t cb_load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void cb_store16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

#endif
