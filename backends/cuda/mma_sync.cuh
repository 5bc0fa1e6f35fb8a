/* SPDX-License-Identifier: MIT */
/* mma_sync.cuh - products of small matrices by a warp's 32 items together. An item holds some
 * elements of each matrix, as the PTX ISA says for mma.m16n8k16 and mma.m16n8k8. */
#ifndef MMA_SYNC_CUH
#define MMA_SYNC_CUH

/* Before a loop over an array that is to lie in registers */
#define UNROLL _Pragma("unroll")

/* d[16][8] += a[16][16] b[16][8], f16 x f16 -> f32; from compute capability 8.0 on */
static __device__ inline void mma_m16n8k16(float *d, const unsigned *a, const unsigned *b)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* d[16][8] += a[16][8] b[8][8] */
static __device__ inline void mma_m16n8k8(float *d, const unsigned *a, const unsigned *b)
{
#ifdef __CUDA_ARCH__
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
}

#ifdef __CUDA_ARCH__
#define HAS_M16N8K16 (__CUDA_ARCH__ >= 800)
#else
#define HAS_M16N8K16 0 /* the host's pass */
#endif

#endif
