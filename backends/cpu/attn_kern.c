/* SPDX-License-Identifier: MIT */
/* attn_kern.c - the pieces of attention over f32 products: packing, two register-tiled products,
 * softmax and sums. Built once for each ISA. Every element of a result is one chain of additions in
 * the order of the keys, whatever the tiles: so it does not depend on how queries are grouped. */
#include "kern_vec.h"
#include "vec.h"

#define UNROLL _Pragma("GCC unroll 16")

enum { NK = VW * NV };

/* VW elements of a stored row from c on */
VEC_INLINE vf load_row(enum kv_type t, const char *row, int c)
{
    switch (t) {
    case KV_F16:
        return v_load_f16(row + 2 * c);
    case KV_BF16:
        return v_load_bf16(row + 2 * c);
    case KV_Q8_0:
        row += c / 32 * 34;
        return v_mul(v_load_i8(row + 2 + c % 32), v_set1(v_f16(row)));
    default:
        return v_load((const float *)(const void *)row + c);
    }
}

/* The last n < VW elements of a row. Blocks of 32 have no such rest. */
static vf load_rest(enum kv_type t, const char *row, int c, int n)
{
    float x[VW] = { 0 };

    if (t == KV_F32)
        memcpy(x, row + 4 * c, (size_t)n * sizeof *x);
    else
        cb_dtype[t == KV_F16 ? DT_F16 : DT_BF16].to_f32(row + 2 * c, x, n);
    return v_load(x);
}

static size_t f32_bytes(int hd)
{
    return (size_t)hd * sizeof(float);
}

/* Tiles of mr rows, the last one lower: [hd][rows of the tile]. */
static void pack_q(const float *const *q, float scale, int rows, int mr, int hd, void *qp)
{
    float *y = qp;

    for (int r0 = 0; r0 < rows; r0 += mr) {
        const int m = rows - r0 < mr ? rows - r0 : mr;
        for (int r = 0; r < m; r++)
            for (int c = 0; c < hd; c++)
                y[c * m + r] = q[r0 + r][c] * scale;
        y += (size_t)m * (size_t)hd;
    }
}

/* VW keys -> kp[c][0..VW-1], rows NK apart */
VEC_INLINE void pack_keys(enum kv_type t, const char *const *row, int n, int hd, float *kp)
{
    for (int c = 0; c < hd; c += VW) {
        const int m = hd - c < VW ? hd - c : VW;
        vf x[VW];
        if (m == VW && n == VW) {
            UNROLL
            for (int i = 0; i < VW; i++)
                x[i] = load_row(t, row[i], c);
        } else {
            for (int i = 0; i < VW; i++)
                x[i] = i >= n    ? v_set1(0.0f)
                       : m == VW ? load_row(t, row[i], c)
                                 : load_rest(t, row[i], c, m);
        }
        v_transpose(x);
        UNROLL
        for (int i = 0; i < VW; i++)
            if (i < m)
                v_store(kp + (c + i) * NK, x[i]);
    }
}

VEC_INLINE void pack_panels(enum kv_type t, const char *const *row, int n, int hd, float *kp)
{
    for (int j = 0; j < n; j += NK)
        for (int i = 0; i < NK; i += VW) {
            const int left = n - j - i;
            pack_keys(t, row + j + i,
                      left > VW  ? VW
                      : left > 0 ? left
                                 : 0,
                      hd, kp + (size_t)j * (size_t)hd + i);
        }
}

static void pack_k(enum kv_type t, const char *const *row, int n, int hd, void *kp)
{
    switch (t) {
    case KV_F16:
        pack_panels(KV_F16, row, n, hd, kp);
        break;
    case KV_BF16:
        pack_panels(KV_BF16, row, n, hd, kp);
        break;
    case KV_Q8_0:
        pack_panels(KV_Q8_0, row, n, hd, kp);
        break;
    default:
        pack_panels(KV_F32, row, n, hd, kp);
        break;
    }
}

static void pack_v(enum kv_type t, const char *const *row, int n, int hd, int hd_pad, float *v)
{
    for (int j = 0; j < n; j++, v += hd_pad) {
        VEC_NAME(cb_vec_).decode(t, row[j], hd, v);
        for (int c = hd; c < hd_pad; c++)
            v[c] = 0.0f;
    }
}

/* s[m][KEY_BLOCK] = q[hd][m] k[hd][NK] */
VEC_INLINE void qk_tile(int m, const float *q, const float *k, int hd, float *s)
{
    vf acc[MAX_TILE][NV];

    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int v = 0; v < NV; v++)
        acc[r][v] = v_set1(0.0f);
    for (int c = 0; c < hd; c++, q += m, k += NK) {
        vf kv[NV];
        UNROLL
        for (int v = 0; v < NV; v++)
            kv[v] = v_load(k + v * VW);
        UNROLL
        for (int r = 0; r < m; r++) {
            const vf x = v_set1(q[r]);
            UNROLL
            for (int v = 0; v < NV; v++)
                acc[r][v] = v_fma(x, kv[v], acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int v = 0; v < NV; v++)
        v_store(s + r * KEY_BLOCK + v * VW, acc[r][v]);
}

/* o[m][nv * VW] = o * f + s[m][n] v[n][nv * VW]; rows of o are hd_pad apart */
VEC_INLINE void pv_tile(enum kv_type t, int m, int nv, const float *s, const char *const *row,
                        int c, int n, int hd_pad, float *o, const float *f)
{
    vf acc[MAX_TILE][NV];

    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int v = 0; v < nv; v++)
        acc[r][v] = v_mul(v_load(o + r * hd_pad + v * VW), v_set1(f[r]));
    for (int j = 0; j < n; j++) {
        vf x[NV];
        UNROLL
        for (int v = 0; v < nv; v++)
            x[v] = load_row(t, row[j], c + v * VW);
        UNROLL
        for (int r = 0; r < m; r++) {
            const vf p = v_set1(s[r * KEY_BLOCK + j]);
            UNROLL
            for (int v = 0; v < nv; v++)
                acc[r][v] = v_fma(p, x[v], acc[r][v]);
        }
    }
    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int v = 0; v < nv; v++)
        v_store(o + r * hd_pad + v * VW, acc[r][v]);
}

/* A row count known when compiling for each height of a tile. */
#define HEIGHTS(m, CALL)                                                                           \
    switch (m) {                                                                                   \
    case 1:                                                                                        \
        CALL(1);                                                                                   \
        break;                                                                                     \
    case 2:                                                                                        \
        CALL(2);                                                                                   \
        break;                                                                                     \
        HEIGHTS_UP(CALL)                                                                           \
    default:                                                                                       \
        break;                                                                                     \
    }
#define HEIGHT(i, CALL)                                                                            \
    case i:                                                                                        \
        CALL(i <= MR ? i : 1);                                                                     \
        break;
#define HEIGHTS_UP(CALL)                                                                           \
    HEIGHT(3, CALL)                                                                                \
    HEIGHT(4, CALL)                                                                                \
    HEIGHT(5, CALL)                                                                                \
    HEIGHT(6, CALL)                                                                                \
    HEIGHT(7, CALL)                                                                                \
    HEIGHT(8, CALL)                                                                                \
    HEIGHT(9, CALL)                                                                                \
    HEIGHT(10, CALL)                                                                               \
    HEIGHT(11, CALL)                                                                               \
    HEIGHT(12, CALL)

static void qk_any(int m, const float *q, const float *k, int hd, float *s)
{
#define QK(m) qk_tile(m, q, k, hd, s)
    HEIGHTS(m, QK)
}

/* The panel stays in the nearest cache while the tiles of queries pass. */
static void mul_f32(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    const float *q = qp, *k = kp;

    for (int j = 0; j < n; j += NK)
        for (int r = 0; r < rows; r += mr)
            qk_any(rows - r < mr ? rows - r : mr, q + (size_t)r * (size_t)hd,
                   k + (size_t)j * (size_t)hd, hd, s + r * KEY_BLOCK + j);
}

struct pv {
    const char *const *row;
    int n, hd_pad;
};

VEC_INLINE void pv_wide(enum kv_type t, int m, const struct pv *p, int c, const float *s, float *o,
                        const float *f){
#define PV(m) pv_tile(t, m, NV, s, p->row, c, p->n, p->hd_pad, o + c, f)
    HEIGHTS(m, PV)
}

VEC_INLINE void pv_one(enum kv_type t, int m, const struct pv *p, int c, const float *s, float *o,
                       const float *f){
#define PV1(m) pv_tile(t, m, 1, s, p->row, c, p->n, p->hd_pad, o + c, f)
    HEIGHTS(m, PV1)
}

VEC_INLINE void pv_all(enum kv_type t, const float *s, int rows, int mr, const struct pv *p,
                       float *o, const float *f)
{
    int c = 0;

    for (; c + NK <= p->hd_pad; c += NK)
        for (int r = 0; r < rows; r += mr)
            pv_wide(t, rows - r < mr ? rows - r : mr, p, c, s + r * KEY_BLOCK, o + r * p->hd_pad,
                    f + r);
    for (; c < p->hd_pad; c += VW)
        for (int r = 0; r < rows; r += mr)
            pv_one(t, rows - r < mr ? rows - r : mr, p, c, s + r * KEY_BLOCK, o + r * p->hd_pad,
                   f + r);
}

static void pv(enum kv_type t, const float *s, int rows, int mr, const char *const *row, int n,
               int hd_pad, float *o, const float *factor)
{
    const struct pv p = { row, n, hd_pad };

    switch (t) {
    case KV_F16:
        pv_all(KV_F16, s, rows, mr, &p, o, factor);
        break;
    case KV_BF16:
        pv_all(KV_BF16, s, rows, mr, &p, o, factor);
        break;
    case KV_Q8_0:
        pv_all(KV_Q8_0, s, rows, mr, &p, o, factor);
        break;
    default:
        pv_all(KV_F32, s, rows, mr, &p, o, factor);
        break;
    }
}

VEC_INLINE vf capped(vf x, float cap)
{
    return v_mul(v_tanh(x), v_set1(cap));
}

static float exp2_one(float x)
{
    float y[VW];
    v_store(y, v_exp2(v_set1(x)));
    return y[0];
}

/* 2^(a - b) where -inf stands for nothing summed yet */
static float ratio(float a, float b)
{
    return a == b ? 1.0f : exp2_one(a - b);
}

static float soften(float *s, int n, int lo, int hi, float cap, float *m, float *l)
{
    vf top = v_set1(-INFINITY), sum = v_set1(0.0f), base;
    float max, f;

    if (cap > 0.0f)
        for (int j = 0; j < n; j += VW)
            v_store(s + j, capped(v_load(s + j), cap));
    for (int j = 0; j < lo && j < n; j++)
        s[j] = -INFINITY;
    for (int j = hi > 0 ? hi : 0; j < n; j++)
        s[j] = -INFINITY;
    for (int j = 0; j < n; j += VW)
        top = v_max(top, v_load(s + j));
    max = v_hmax(top);
    max = max > *m ? max : *m;
    base = v_set1(max > -INFINITY ? max : 0.0f);
    for (int j = 0; j < n; j += VW) {
        const vf p = v_exp2(v_sub(v_load(s + j), base));
        v_store(s + j, p);
        sum = v_add(sum, p);
    }
    f = ratio(*m, max);
    *l = *l * f + v_hsum(sum);
    *m = max;
    return f;
}

static void fold(int rows, int hd_pad, float *o, float *m, float *l, const float *o2,
                 const float *m2, const float *l2)
{
    for (int r = 0; r < rows; r++) {
        const float max = m[r] > m2[r] ? m[r] : m2[r];
        const float a = ratio(m[r], max), b = ratio(m2[r], max);
        float *y = o + (size_t)r * (size_t)hd_pad;
        const float *x = o2 + (size_t)r * (size_t)hd_pad;
        for (int c = 0; c < hd_pad; c += VW)
            v_store(y + c, v_fma(v_load(y + c), v_set1(a), v_mul(v_load(x + c), v_set1(b))));
        l[r] = l[r] * a + l2[r] * b;
        m[r] = max;
    }
}

VEC_INLINE vf mass_of(vf s, float cap, vf lse2, vf w, int raw)
{
    if (cap > 0.0f)
        s = capped(s, cap);
    return raw ? v_mul(s, w) : v_mul(v_exp2(v_sub(s, lse2)), w);
}

/* up to 2^126 per entry; a lse that belongs to these entries gives at most 1 */
static void mass(const float *s, int lo, int hi, float cap, float lse2, float w, int raw,
                 float *out)
{
    const vf lv = v_set1(lse2), wv = v_set1(w);
    int j = lo;

    for (; j + VW <= hi; j += VW)
        v_store(out + j, v_add(v_load(out + j), mass_of(v_load(s + j), cap, lv, wv, raw)));
    if (j < hi) {
        const int k = hi - j;
        const vf x = mass_of(v_load_n(s + j, k), cap, lv, wv, raw);
        v_store_n(out + j, v_add(v_load_n(out + j, k), x), k);
    }
}

static const struct kern_qk qk_f32 = { f32_bytes, f32_bytes, pack_q, pack_k, mul_f32 };

const struct kern_attn VEC_NAME(cb_attn_) = {
    .mr = MR,
    .nk = NK,
    .vw = VW,
    .qk = { &qk_f32, &qk_f32, &qk_f32, &qk_f32 },
    .pack_v = pack_v,
    .soften = soften,
    .pv = pv,
    .fold = fold,
    .mass = mass,
};
