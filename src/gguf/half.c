/* SPDX-License-Identifier: MIT */
/* half.c - 16-bit floats to 32 bits and back. */
#include "half.h"

float cb_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    uint32_t u;
    float f;

    if (mag >= 0x7c00) { /* infinity, NaN */
        u = sign | 0x7f800000u | (mag & 0x3ff) << 13;
    } else if (mag >= 0x400) {
        u = sign | ((mag << 13) + (112u << 23));
    } else { /* a multiple of 2^-24 */
        f = (float)mag * 0x1p-24f;
        memcpy(&u, &f, sizeof u);
        u |= sign;
    }
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t cb_f32_to_f16(float f)
{
    uint32_t u, mag;
    uint16_t sign;

    memcpy(&u, &f, sizeof u);
    sign = (uint16_t)(u >> 16 & 0x8000);
    mag = u & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x1ff));
    if (mag >= 0x477ff000) /* rounds to 2^16 or more */
        return sign | 0x7c00;
    if (mag < 0x38800000) { /* below 2^-14: the float adder rounds at 2^-24 */
        float a;
        memcpy(&a, &mag, sizeof a);
        a += 0.5f;
        memcpy(&mag, &a, sizeof mag);
        return (uint16_t)(sign | (mag - 0x3f000000));
    }
    mag -= 112u << 23;
    mag += 0xfff + (mag >> 13 & 1);
    return (uint16_t)(sign | mag >> 13);
}

float cb_bf16_to_f32(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t cb_f32_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
