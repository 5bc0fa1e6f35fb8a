/* SPDX-License-Identifier: MIT */
/* mma_sync.cuh - products of small matrices by a warp's 32 items together. An item holds some
 * elements of each matrix, as the PTX ISA says for mma.m16n8k16 and mma.m16n8k8. Loads of such
 * matrices from LOCAL memory, and copies to LOCAL memory that do not wait. */
#ifndef MMA_SYNC_CUH
#define MMA_SYNC_CUH

/* Before a loop over an array that is to lie in registers */
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1") /* a short text is wanted */

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

/* Four matrices of 8 rows of 8 halves, from LOCAL memory: item i names the address of row i % 8 of
 * matrix i / 8, a multiple of 16. to[m] gets two neighbours of matrix m's row item / 4, columns
 * item % 4 * 2 and the next. */
static __device__ inline void load_matrices(unsigned *to, const unsigned *row)
{
#ifdef __CUDA_ARCH__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#endif
}

/* The same of the matrices with rows and columns exchanged: to[m] gets column item / 4, rows
 * item % 4 * 2 and the next. */
static __device__ inline void load_matrices_turned(unsigned *to, const unsigned *row)
{
#ifdef __CUDA_ARCH__
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row)));
#endif
}

/* Copies 16 bytes from GLOBAL to LOCAL memory, both at multiples of 16. They are there after
 * COPIES_WAIT; other items see them after a barrier behind it. Before compute capability 8.0 the
 * item waits at once. */
static __device__ inline void COPY_16(unsigned *to, const void *from)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)
                 : "memory");
#elif defined __CUDA_ARCH__
    *(uint4 *)to = *(const uint4 *)from;
#endif
}

/* The same; where `there` is 0, zeros instead, and `from` may be any multiple of 16. */
static __device__ inline void COPY_16_IF(int there, unsigned *to, const void *from)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
#elif defined __CUDA_ARCH__
    *(uint4 *)to = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#endif
}

/* The item's copies since the last COPIES_END are one batch. */
static __device__ inline void COPIES_END()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

/* Waits until no more than the item's last n batches, a constant, are under way. */
template <int n> static __device__ inline void copies_wait()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
#endif
}
#define COPIES_WAIT(n) copies_wait<n>()

/* (word & mask) | with, in one instruction; a compiler makes two if both are constants. */
static __device__ inline unsigned bits_with(unsigned word, unsigned mask, unsigned with)
{
    unsigned d = 0;
#ifdef __CUDA_ARCH__
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(word), "r"(mask), "r"(with));
#endif
    return d;
}

/* ITEM(), read anew: what follows from it is not kept in registers for a loop's next turn. */
static __device__ inline int ITEM_AGAIN()
{
    int item = 0;
#ifdef __CUDA_ARCH__
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(item));
#endif
    return item;
}

/* 2 to the x, to 22 bits; 0 where that is less than the smallest normal number */
static __device__ inline float quick_exp2(float x)
{
    float y = x;
#ifdef __CUDA_ARCH__
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
#endif
    return y;
}

/* x / y, to 22 bits; 0 where y is beyond 2 to the 126 */
static __device__ inline float quick_divide(float x, float y)
{
#ifdef __CUDA_ARCH__
    float z;
    asm volatile("div.approx.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
#else
    return x / y; /* the host's pass */
#endif
}

#ifdef __CUDA_ARCH__
#define HAS_M16N8K16 (__CUDA_ARCH__ >= 800)
#else
#define HAS_M16N8K16 0 /* the host's pass */
#endif

#endif
