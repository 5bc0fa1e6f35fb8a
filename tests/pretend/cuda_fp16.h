/* SPDX-License-Identifier: MIT */
/* cuda_fp16.h - words of CUDA C++ for the host's compiler: a group's items are fibers that take
 * turns at barriers (pretend_cuda.cc). Has the name of the header that backends/cuda/prelude.cu
 * includes.
 */
#ifndef PRETEND_CUDA_FP16_H
#define PRETEND_CUDA_FP16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __constant__
#define __shared__      static __attribute__((section("shared")))
#define __syncthreads() pretend_barrier()

struct pretend_place {
    unsigned x, y, z;
};
extern pretend_place blockIdx, threadIdx, blockDim;
void pretend_barrier();

static inline float __uint_as_float(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline unsigned __float_as_uint(float f)
{
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}

struct __half {
    uint16_t bits;
};

static inline float __half2float(__half h)
{
    const unsigned mag = h.bits & 0x7fffu;
    const float sign = h.bits & 0x8000u ? -1.0f : 1.0f;

    if (mag >= 0x7c00u)
        return sign * __uint_as_float(mag << 13 | 0x7f800000u);
    return sign * (__uint_as_float(mag << 13) * 0x1p112f);
}

#endif
