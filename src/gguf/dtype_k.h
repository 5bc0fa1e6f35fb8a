/* SPDX-License-Identifier: MIT */
/* dtype_k.h - the 256-element ("K") and the coded quantised blocks, rows of the table in dtype.c.
 */
#ifndef DTYPE_K_H
#define DTYPE_K_H

#include <stdint.h>

void cb_q4_k_to_f32(const void *x, float *y, int64_t n);
void cb_q5_k_to_f32(const void *x, float *y, int64_t n);
void cb_q6_k_to_f32(const void *x, float *y, int64_t n);
void cb_q4_k_from_f32(const float *x, void *y, int64_t n);
void cb_q5_k_from_f32(const float *x, void *y, int64_t n);
void cb_q6_k_from_f32(const float *x, void *y, int64_t n);
/* The same for columns that do not matter alike: column[n], or NULL */
void cb_q4_k_weighted(const float *x, const float *column, void *y, int64_t n);
void cb_q5_k_weighted(const float *x, const float *column, void *y, int64_t n);
void cb_q6_k_weighted(const float *x, const float *column, void *y, int64_t n);
/* The step of 32 numbers with codes -half..half - 1, where column[32] matters */
float cb_fit_signed(const float *x, const float *column, int half);

/* dtype_coded.c */
void cb_q2_k_to_f32(const void *x, float *y, int64_t n);
void cb_q3_k_to_f32(const void *x, float *y, int64_t n);
void cb_iq4_nl_to_f32(const void *x, float *y, int64_t n);
void cb_iq4_xs_to_f32(const void *x, float *y, int64_t n);
void cb_mxfp4_to_f32(const void *x, float *y, int64_t n);
void cb_tq1_0_to_f32(const void *x, float *y, int64_t n);
void cb_tq2_0_to_f32(const void *x, float *y, int64_t n);
void cb_iq1_s_to_f32(const void *x, float *y, int64_t n);
void cb_iq1_m_to_f32(const void *x, float *y, int64_t n);
void cb_iq2_xxs_to_f32(const void *x, float *y, int64_t n);
void cb_iq2_xs_to_f32(const void *x, float *y, int64_t n);
void cb_iq2_s_to_f32(const void *x, float *y, int64_t n);
void cb_iq3_xxs_to_f32(const void *x, float *y, int64_t n);
void cb_iq3_s_to_f32(const void *x, float *y, int64_t n);

/* Scale (6 bits) and minimum (6 bits) of the 32-element sub-block j = 0..7 of Q4_K and Q5_K. */
static inline void cb_q4_k_scale(const uint8_t s[12], int j, int *scale, int *min)
{
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

#endif
