/* SPDX-License-Identifier: MIT */
/* mma_sync.cuh - mma.m16n8k16, mma.m16n8k8, ldmatrix and cp.async for the host's compiler: where
 * the PTX ISA says that an item of the warp holds which element. Has the name of the file in
 * backends/cuda. All warps of a group multiply at the same time, since their items wait for each
 * other at a barrier. */
#ifndef PRETEND_MMA_SYNC_CUH
#define PRETEND_MMA_SYNC_CUH

#include <cuda_fp16.h>

#define UNROLL
#define NO_UNROLL

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

/* The words of the warp's four matrices at lane/4 and lane%4, or of the matrices turned */
static void pretend_load_matrices(unsigned *to, const unsigned *row, int turned)
{
    static uint16_t all[2][PRETEND_WARPS][32][8];
    const int lane = (int)threadIdx.x % 32, at = lane / 4, pair = lane % 4 * 2;
    auto &rows = all[pretend_next_turn()][threadIdx.x / 32];

    if ((uintptr_t)row % 16 || (const unsigned char *)row < __start_shared ||
        (const unsigned char *)row >= __stop_shared)
        __builtin_trap();
    memcpy(rows[lane], row, sizeof rows[lane]);
    pretend_barrier();
    for (int m = 0; m < 4; m++) {
        const uint16_t lo = turned ? rows[8 * m + pair][at] : rows[8 * m + at][pair];
        const uint16_t hi = turned ? rows[8 * m + pair + 1][at] : rows[8 * m + at][pair + 1];
        to[m] = lo | (unsigned)hi << 16;
    }
}

static inline void load_matrices(unsigned *to, const unsigned *row)
{
    pretend_load_matrices(to, row, 0);
}

static inline void load_matrices_turned(unsigned *to, const unsigned *row)
{
    pretend_load_matrices(to, row, 1);
}

/* As late as it may be: the bytes come when they are waited for, and are NaN until then. */
static inline void COPY_16(unsigned *to, const void *from)
{
    if ((uintptr_t)to % 16 || (uintptr_t)from % 16 || (unsigned char *)to < __start_shared ||
        (unsigned char *)to >= __stop_shared)
        __builtin_trap();
    memset(to, 0xff, 16);
    pretend_copies[threadIdx.x].push_back({ to, from });
}

static inline void COPY_16_IF(int there, unsigned *to, const void *from)
{
    static const unsigned char zeros[16] __attribute__((aligned(16))) = { 0 };

    if ((uintptr_t)from % 16)
        __builtin_trap();
    COPY_16(to, there ? from : zeros);
}

static inline void COPIES_END()
{
    pretend_copies[threadIdx.x].push_back({ nullptr, nullptr });
}

template <int n> static inline void copies_wait()
{
    auto &copies = pretend_copies[threadIdx.x];
    size_t ends = 0, done = 0;

    for (size_t i = copies.size(); i-- && ends <= n;)
        if (!copies[i].to && ++ends > n)
            done = i + 1;
    for (size_t i = 0; i < done; i++)
        if (copies[i].to)
            memcpy(copies[i].to, copies[i].from, 16);
    copies.erase(copies.begin(), copies.begin() + (long)done);
}
#define COPIES_WAIT(n) copies_wait<n>()

static inline unsigned bits_with(unsigned word, unsigned mask, unsigned with)
{
    return (word & mask) | with;
}

#define ITEM_AGAIN() ITEM()

/* As far off as the device's may be */
static inline float quick_exp2(float x)
{
    const float y = exp2f(x) * (1 + 0x1p-22f * (x != 0));
    return y < 0x1p-126f ? 0 : y;
}

static inline float quick_divide(float x, float y)
{
    return y > 0x1p126f ? 0 : x / y * (1 - 0x1p-22f);
}

#endif
