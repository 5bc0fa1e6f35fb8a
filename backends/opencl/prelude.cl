/* SPDX-License-Identifier: MIT */
/* prelude.cl - the words that kernels are written in, for OpenCL C 1.2. The other kernel texts use
 * nothing that these words do not name, so another language needs another prelude only. */
#define KERNEL __kernel
#define GLOBAL __global
#define LOCAL __local /* of a variable */
#define IN_LOCAL __local /* of what a pointer leads to */
#define FUNCTION static inline
#define WITH_OPTIONS /* TYPE, TYPE_V, HD, KIVI: the compiler's */
#define OPTIONS
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP(d) ((int)get_group_id(d))
#define ITEM() ((int)get_local_id(0))
#define ITEMS() ((int)get_local_size(0))
#define THREAD() ((long)get_global_id(0))
#define AS_FLOAT(u) as_float(u)
#define AS_UINT(f) as_uint(f)
#define ADD_TO(p, n) atomic_add(p, n) /* *p += n, while other items add to it as well */

/* The number of an item's sub-group in its group, how many a group of `items` has, the items of
 * one; what another item of it has, that whose number differs in the bits of `mask` */
#ifdef HAS_SUBGROUPS
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define SUBGROUP() ((int)get_sub_group_id())
#define SUBGROUPS(items) ((int)get_num_sub_groups())
#define SUBGROUP_ITEMS() ((int)get_sub_group_size())
#define from_item(x, mask) sub_group_shuffle_xor(x, (uint)(mask))
#else /* an item alone */
#define SUBGROUP() ITEM()
#define SUBGROUPS(items) (items)
#define SUBGROUP_ITEMS() 1
#define from_item(x, mask) (x)
#endif

typedef GLOBAL const uchar *bytes_t;

FUNCTION float load_f16(bytes_t p)
{
    return vload_half(0, (GLOBAL const half *)p);
}

FUNCTION float load_bf16(bytes_t p)
{
    return AS_FLOAT((uint)p[0] << 16 | (uint)p[1] << 24);
}

FUNCTION float load_f32(bytes_t p)
{
    return *(GLOBAL const float *)p;
}

/* sum + the products of four bytes each, those of x without sign and below 128 */
FUNCTION int dot4(uint x, uint y, int sum)
{
    const int4 a = convert_int4(as_uchar4(x)), b = convert_int4(as_char4(y));

    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/* The same where both have signs */
FUNCTION int dot4_signed(uint x, uint y, int sum)
{
    const int4 a = convert_int4(as_char4(x)), b = convert_int4(as_char4(y));

    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

/* ---- eight floats at once ---- */

#define UNROLL _Pragma("unroll")
#define ALIGNED_16 __attribute__((aligned(16)))
/* A kernel of such vectors, so that compilers for CPUs do not make vectors of its items. */
#define OF_EIGHTS __attribute__((vec_type_hint(float8)))
#define FOUR(a, b, c, d) ((float4)(a, b, c, d))
#define EIGHT(a, b, c, d, e, f, g, h) ((float8)(a, b, c, d, e, f, g, h))

typedef float8 eight_t;

FUNCTION void store_eight(float *to, eight_t v)
{
    vstore8(v, 0, to);
}
