/* SPDX-License-Identifier: MIT */
/* prelude.cu - the words that kernels are written in, for CUDA C++. Options are a kernel's first
 * argument, so one image serves all element types. */
#include <cuda_fp16.h>
#include <mma_sync.cuh>

#define KERNEL extern "C" __global__
/* One whose groups have this many items; registers are shared out so that this many groups fit */
#define KERNEL_OF(items, groups) extern "C" __global__ __launch_bounds__(items, groups)
#define GLOBAL
#define LOCAL __shared__
#define IN_LOCAL
#define FUNCTION static __device__ inline
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __syncwarp() /* all warps of a group come to it as often */
#define GROUP(d) ((int)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define ITEM() ((int)threadIdx.x)
#define ITEMS() ((int)blockDim.x)
#define THREAD() ((long)blockIdx.x * blockDim.x + threadIdx.x)
#define AS_FLOAT(u) __uint_as_float(u)
#define AS_UINT(f) __float_as_uint(f)
#define ADD_TO(p, n) atomicAdd(p, n)

/* A warp, as in backends/opencl/prelude.cl; groups have a multiple of its items. */
#define SUBGROUP() (ITEM() / 32)
#define SUBGROUPS(items) ((items) / 32)
#define SUBGROUP_ITEMS() 32
#define from_item(x, mask) __shfl_xor_sync(0xffffffffu, x, mask)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef const uchar *bytes_t;

/* As struct gpu_options in driver.h */
struct options {
    int type, type_v, hd, kivi;
};
#define WITH_OPTIONS const struct options options_,
#define OPTIONS options_,
#define TYPE options_.type
#define TYPE_V options_.type_v
#define HD options_.hd
#define KIVI options_.kivi

FUNCTION float load_f16(bytes_t p)
{
    return __half2float(*(const __half *)p);
}

FUNCTION float load_bf16(bytes_t p)
{
    return AS_FLOAT((uint)p[0] << 16 | (uint)p[1] << 24);
}

FUNCTION float load_f32(bytes_t p)
{
    return *(const float *)p;
}

FUNCTION int dot4(uint x, uint y, int sum)
{
    return __dp4a((int)x, (int)y, sum);
}

FUNCTION int dot4_signed(uint x, uint y, int sum)
{
    return dot4(x, y, sum);
}

/* ---- eight floats at once ---- */

#define ALIGNED_16 __align__(16)
#define OF_EIGHTS
#define FOUR(a, b, c, d) make_float4(a, b, c, d)
#define EIGHT(a, b, c, d, e, f, g, h) (eight_t{ { a, b, c, d, e, f, g, h } })

struct ALIGNED_16 eight_t {
    float at[8];
};

FUNCTION eight_t operator*(float w, const eight_t &v)
{
    eight_t to;

    UNROLL for (int i = 0; i < 8; i++)
        to.at[i] = w * v.at[i];
    return to;
}

FUNCTION void operator+=(eight_t &to, const eight_t &v)
{
    UNROLL for (int i = 0; i < 8; i++)
        to.at[i] += v.at[i];
}

FUNCTION void store_eight(float *to, const eight_t &v)
{
    UNROLL for (int i = 0; i < 8; i++)
        to[i] = v.at[i];
}

/* ---- matrices of halves ---- */

#define HAS_MMA 1

FUNCTION uint pack_f16(float lo, float hi)
{
    return (uint)__half_as_ushort(__float2half_rn(lo)) |
           (uint)__half_as_ushort(__float2half_rn(hi)) << 16;
}

/* The same; what is beyond the largest half becomes the largest. */
FUNCTION uint pack_f16_limited(float lo, float hi)
{
    const float most = 65504.0f;

    return pack_f16(fmaxf(-most, fminf(lo, most)), fmaxf(-most, fminf(hi, most)));
}

FUNCTION float low_half(uint word)
{
    return __half2float(__ushort_as_half((unsigned short)word));
}

FUNCTION float high_half(uint word)
{
    return low_half(word >> 16);
}

FUNCTION __half2 halves_in(uint word)
{
    __half2 x;

    memcpy(&x, &word, sizeof x);
    return x;
}

FUNCTION uint word_of(__half2 x)
{
    uint word;

    memcpy(&word, &x, sizeof word);
    return word;
}

/* Both halves of a word less those of another */
FUNCTION uint sub_halves(uint a, uint b)
{
    return word_of(__hsub2(halves_in(a), halves_in(b)));
}

/* Both products */
FUNCTION uint mul_halves(uint a, uint b)
{
    return word_of(__hmul2(halves_in(a), halves_in(b)));
}

/* a b + c, both rounded once */
FUNCTION uint mul_add_halves(uint a, uint b, uint c)
{
    return word_of(__hfma2(halves_in(a), halves_in(b), halves_in(c)));
}

/* Bytes of two words: those of x have the numbers 0..3, those of y 4..7. Four bits of `which` say
 * what each byte becomes. */
FUNCTION uint pick_bytes(uint x, uint y, uint which)
{
    return __byte_perm(x, y, which);
}

/* Numbers up to `most`, divided by this power of two, are less than 512: none overflows as a half,
 * and what is small beside the largest keeps its digits. */
FUNCTION float half_step(float most)
{
    const int e = (int)(AS_UINT(most) >> 23) - 8;

    return AS_FLOAT((uint)(most > 0.0f ? (e > 1 ? e : 1) : 127) << 23);
}

FUNCTION void store_four(uint *to, uint a, uint b, uint c, uint d)
{
    *(uint4 *)to = make_uint4(a, b, c, d);
}

/* Two words to an address that is a multiple of 8 */
FUNCTION void store_two(uint *to, uint a, uint b)
{
    *(uint2 *)to = make_uint2(a, b);
}

/* Four words from an address that is a multiple of 16 */
FUNCTION void load_four(uint *to, const uint *from)
{
    const uint4 v = *(const uint4 *)from;

    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
}

/* d[16][8] += a[16][16] b[16][8]; which elements an item holds: mma_sync.cuh */
FUNCTION void mma(float *d, const uint *a, const uint *b)
{
    if (HAS_M16N8K16) {
        mma_m16n8k16(d, a, b);
    } else {
        mma_m16n8k8(d, a, b);
        mma_m16n8k8(d, a + 2, b + 1);
    }
}
