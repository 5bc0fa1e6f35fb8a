/* SPDX-License-Identifier: MIT */
/* mma_sync.cuh - mma.m16n8k16 and mma.m16n8k8 for the host's compiler: where the PTX ISA says that
 * an item of the warp holds which element. Has the name of the file in backends/cuda. All warps of a
 * group multiply at the same time, since their items wait for each other at a barrier. */
#ifndef PRETEND_MMA_SYNC_CUH
#define PRETEND_MMA_SYNC_CUH

#include <cuda_fp16.h>

#define UNROLL

extern int pretend_capability; /* 75: mma.m16n8k8 alone */
#define HAS_M16N8K16 (pretend_capability >= 80)

enum { PRETEND_WARPS = PRETEND_ITEMS / 32 };

/* d[16][8] += a[16][k] b[k][8], where k is 8 or 16. Element i of an item's a is in row
 * group + 8 * (i / 2 % 2), column 2 * lane % 8 + i % 2 + 8 * (i / 4); of b in row
 * 2 * lane % 8 + i % 2 + 8 * (i / 2), column group; of d in row group + 8 * (i / 2), column
 * 2 * lane % 8 + i % 2. */
static void pretend_mma(int k, float *d, const unsigned *a, const unsigned *b)
{
    static struct {
        float a[16][16], b[16][8];
    } all[2][PRETEND_WARPS];
    const int group = (int)threadIdx.x % 32 / 4, pair = (int)threadIdx.x % 4 * 2;
    auto &warp = all[pretend_next_turn()][threadIdx.x / 32];
    auto half = [](const unsigned *from, int i) {
        return __half2float({ (uint16_t)(from[i / 2] >> i % 2 * 16) });
    };

    for (int i = 0; i < k / 2; i++)
        warp.a[group + i / 2 % 2 * 8][pair + i % 2 + i / 4 * 8] = half(a, i);
    for (int i = 0; i < k / 4; i++)
        warp.b[pair + i % 2 + i / 2 * 8][group] = half(b, i);
    pretend_barrier();
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < k; j++)
            d[i] += warp.a[group + i / 2 * 8][j] * warp.b[j][pair + i % 2];
}

static inline void mma_m16n8k16(float *d, const unsigned *a, const unsigned *b)
{
    pretend_mma(16, d, a, b);
}

static inline void mma_m16n8k8(float *d, const unsigned *a, const unsigned *b)
{
    pretend_mma(8, d, a, b);
}

#endif
