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
#include <vector>

#define __global__
#define __device__
#define __constant__
#define __align__(n)    __attribute__((aligned(n)))
#define __shared__      static __attribute__((section("shared")))
#define __syncthreads() pretend_barrier()
#define __syncwarp()    pretend_barrier()

struct pretend_place {
    unsigned x, y, z;
};
extern pretend_place blockIdx, threadIdx, blockDim;
void pretend_barrier();

/* What the items of a group exchange at a barrier has two places in turn, so that the next exchange
 * need not wait until all have read this one. */
enum { PRETEND_ITEMS = 1024 };
extern unsigned char pretend_turn[PRETEND_ITEMS];

/* Copies of each item to shared memory that have not arrived; to NULL: a batch ends here. */
struct pretend_copy {
    void *to;
    const void *from;
};
extern std::vector<pretend_copy> pretend_copies[PRETEND_ITEMS];
extern "C" unsigned char __start_shared[], __stop_shared[];

static inline int pretend_next_turn()
{
    return pretend_turn[threadIdx.x] ^= 1;
}

/* All warps of a group call it at the same time. */
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int mask)
{
    static T all[2][PRETEND_ITEMS];
    const int item = (int)threadIdx.x, turn = pretend_next_turn();

    all[turn][item] = x;
    pretend_barrier();
    return all[turn][item ^ mask];
}

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

/* Items take turns, so nobody else adds meanwhile. */
static inline unsigned atomicAdd(unsigned *p, unsigned n)
{
    const unsigned was = *p;
    *p += n;
    return was;
}

static inline int __dp4a(int x, int y, int sum)
{
    for (int i = 0; i < 32; i += 8)
        sum += (int8_t)(x >> i) * (int8_t)(y >> i);
    return sum;
}

/* Numbers of bytes from 8 on would repeat a sign. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned which)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned to = 0;

    for (int i = 0; i < 4; i++)
        to |= (unsigned)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return to;
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

/* To the nearest, ties to even */
static inline __half __float2half_rn(float f)
{
    const unsigned u = __float_as_uint(f), sign = u >> 16 & 0x8000u, mag = u & 0x7fffffffu;
    /* a sum with this has the half's last bit as its own last bit */
    const unsigned e = (mag >> 23) > 113 ? mag >> 23 : 113;
    const float magic = __uint_as_float((e + 13) << 23);
    const unsigned digits = __float_as_uint(__uint_as_float(mag) + magic) - __float_as_uint(magic);

    if (mag > 0x7f800000u)
        return { (uint16_t)(sign | 0x7e00u) };
    if (mag >= 0x477ff000u) /* 65520 and more */
        return { (uint16_t)(sign | 0x7c00u) };
    return { (uint16_t)(sign | (((e - 113) << 10) + digits)) };
}

static inline unsigned short __half_as_ushort(__half h)
{
    return h.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    return { bits };
}

struct __align__(4) __half2 {
    __half x, y;
};

static inline __half2 __hmul2(__half2 a, __half2 b)
{
    return { __float2half_rn(__half2float(a.x) * __half2float(b.x)),
             __float2half_rn(__half2float(a.y) * __half2float(b.y)) };
}

/* Rounded once where the sum has not more digits than a float */
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c)
{
    return { __float2half_rn(fmaf(__half2float(a.x), __half2float(b.x), __half2float(c.x))),
             __float2half_rn(fmaf(__half2float(a.y), __half2float(b.y), __half2float(c.y))) };
}

static inline __half2 __hsub2(__half2 a, __half2 b)
{
    return { __float2half_rn(__half2float(a.x) - __half2float(b.x)),
             __float2half_rn(__half2float(a.y) - __half2float(b.y)) };
}

struct __align__(16) float4 {
    float x, y, z, w;
};

static inline float4 make_float4(float x, float y, float z, float w)
{
    return { x, y, z, w };
}

struct __align__(8) uint2 {
    unsigned x, y;
};

static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return { x, y };
}

struct __align__(16) uint4 {
    unsigned x, y, z, w;
};

static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}

#endif
