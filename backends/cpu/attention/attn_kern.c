/* SPDX-License-Identifier: MIT */
/* attn_kern.c - the pieces of attention with f32 products: packing, two register-tiled products,
 * softmax and sums. Built once for each ISA. Every element of a result is one chain of additions in
 * the order of the keys, whatever the tiles. The result therefore does not depend on how queries
 * are grouped. */
#include "attn_i16.h"
#include "cpu/vector/vec.h"
#include "cpu/vector/vec_rows.h"

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

/* The last n < VW elements of a row. Types with blocks of 32 have no such rest. */
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

/* Offset of element c in a row */
VEC_INLINE size_t at_byte(enum kv_type t, int c)
{
    return t == KV_Q8_0 ? (size_t)(c / 32 * 34) : (size_t)c * (t == KV_F32 ? 4 : 2);
}

/* Prefetches the cache lines that begin in elements [c, c + n) of row j of the next block: a few
 * lines at each step, since a core can have only few requests to memory in flight. */
VEC_INLINE void prefetch(enum kv_type t, const struct kern_rows *k, int j, int c, int n)
{
    const size_t end = at_byte(t, c + n);

    if (j < k->n_ahead)
        for (size_t i = (at_byte(t, c) + 63) & ~(size_t)63; i < end; i += 64)
            __builtin_prefetch(k->ahead[j] + i, 0, 2);
}

/* Elements [c, c + VW) of VW keys, transposed: x[i] is element c + i of each */
VEC_INLINE void load_keys(enum kv_type t, const char *const *row, int c, vf *x)
{
    UNROLL
    for (int i = 0; i < VW; i++)
        x[i] = load_row(t, row[i], c);
    v_transpose(x);
}

/* The same for the last n < VW elements */
static void load_keys_rest(enum kv_type t, const char *const *row, int c, int n, vf *x)
{
    for (int i = 0; i < VW; i++)
        x[i] = load_rest(t, row[i], c, n);
    v_transpose(x);
}

/* VW keys -> kp[c][0..VW-1], rows NK apart */
VEC_INLINE void pack_keys(enum kv_type t, const struct kern_rows *k, int j, int hd, float *kp)
{
    const char *const *row = k->row + j;
    vf x[VW];
    int c = 0;

    for (; c + VW <= hd; c += VW) {
        for (int a = 0; a < VW; a++)
            prefetch(t, k, j + a, c, VW);
        load_keys(t, row, c, x);
        UNROLL
        for (int i = 0; i < VW; i++)
            v_store(kp + (c + i) * NK, x[i]);
    }
    if (c < hd) {
        load_keys_rest(t, row, c, hd - c, x);
        for (int i = 0; c + i < hd; i++)
            v_store(kp + (c + i) * NK, x[i]);
    }
}

VEC_INLINE void pack_panels(enum kv_type t, const struct kern_rows *k, int hd, float *kp)
{
    for (int j = 0; j < k->n; j += NK)
        for (int i = 0; i < NK; i += VW)
            pack_keys(t, k, j + i, hd, kp + (size_t)j * (size_t)hd + i);
}

/* Makes the type a compile-time constant. */
#define TYPES(type, CALL)                                                                          \
    switch (type) {                                                                                \
    case KV_F16:                                                                                   \
        CALL(KV_F16);                                                                              \
        break;                                                                                     \
    case KV_BF16:                                                                                  \
        CALL(KV_BF16);                                                                             \
        break;                                                                                     \
    case KV_Q8_0:                                                                                  \
        CALL(KV_Q8_0);                                                                             \
        break;                                                                                     \
    default:                                                                                       \
        CALL(KV_F32);                                                                              \
        break;                                                                                     \
    }

#define PACK_K(t) pack_panels(t, k, hd, kp)
static void pack_k(const struct kern_rows *k, int hd, void *kp)
{
    TYPES(k->t, PACK_K);
}

static void pack_v(const struct kern_rows *k, int hd, int hd_pad, float *v)
{
    for (int j = 0; j < k->n; j++, v += hd_pad) {
        if (j < k->n_ahead)
            for (size_t i = 0; i < k->bytes; i += 64)
                __builtin_prefetch(k->ahead[j] + i, 0, 2);
        VEC_NAME(cb_decode_row_)(k->t, k->row[j], hd, v);
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

/* Makes the row count a compile-time constant for each height of a tile. */
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

#define QK(m) qk_tile(m, q, k, hd, s)
static void qk_any(int m, const float *q, const float *k, int hd, float *s)
{
    HEIGHTS(m, QK);
}

/* The panel stays in L1 while the tiles of queries pass. */
static void mul_f32(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s)
{
    const float *q = qp, *k = kp;

    for (int j = 0; j < n; j += NK)
        for (int r = 0; r < rows; r += mr)
            qk_any(rows - r < mr ? rows - r : mr, q + (size_t)r * (size_t)hd,
                   k + (size_t)j * (size_t)hd, hd, s + r * KEY_BLOCK + j);
}

/* acc[m] += q[n][m] x[n] */
VEC_INLINE void add_products(int m, int n, const float *q, const vf *x, vf *acc)
{
    UNROLL
    for (int i = 0; i < n; i++) {
        UNROLL
        for (int r = 0; r < m; r++)
            acc[r] = v_fma(v_set1(q[i * m + r]), x[i], acc[r]);
    }
}

/* Transposes VW keys in registers, overlapped with the products. */
VEC_INLINE void direct_tile(enum kv_type t, int m, const float *q, const struct kern_rows *k, int j,
                            int hd, float *s)
{
    const char *const *row = k->row + j;
    vf acc[MAX_TILE], x[VW];
    int c = 0;

    UNROLL
    for (int r = 0; r < m; r++)
        acc[r] = v_set1(0.0f);
    for (; c + VW <= hd; c += VW) {
        for (int a = 0; a < VW; a++)
            prefetch(t, k, j + a, c, VW);
        load_keys(t, row, c, x);
        add_products(m, VW, q + c * m, x, acc);
    }
    if (c < hd) {
        vf y[VW];
        load_keys_rest(t, row, c, hd - c, y);
        for (int i = 0; c + i < hd; i++)
            add_products(m, 1, q + (c + i) * m, y + i, acc);
    }
    UNROLL
    for (int r = 0; r < m; r++)
        v_store(s + r * KEY_BLOCK, acc[r]);
}

#define DIRECT(m) direct_tile(t, m, q, k, j, hd, s)
VEC_INLINE void direct_any(enum kv_type t, int m, const float *q, const struct kern_rows *k, int j,
                           int hd, float *s)
{
    HEIGHTS(m, DIRECT);
}

VEC_INLINE void direct_all(const struct kern_rows *k, enum kv_type t, const void *qp, int rows,
                           int hd, float *s)
{
    for (int j = 0; j < (k->n + NK - 1) / NK * NK; j += VW)
        direct_any(t, rows, qp, k, j, hd, s + j);
}

#define DIRECT_ALL(t) direct_all(k, t, qp, rows, hd, s)
static void direct_f32(const void *qp, int rows, const struct kern_rows *k, int hd, float *s)
{
    TYPES(k->t, DIRECT_ALL);
}

/* o[m][nv * VW] = o * f + s[m][n] v[n][nv * VW]; rows of o are hd_pad apart */
VEC_INLINE void pv_tile(enum kv_type t, int m, int nv, const float *s, const struct kern_rows *k,
                        int c, int ahead, int hd_pad, float *o, const float *f)
{
    vf acc[MAX_TILE][NV];

    UNROLL
    for (int r = 0; r < m; r++)
        UNROLL
    for (int v = 0; v < nv; v++)
        acc[r][v] = v_mul(v_load(o + r * hd_pad + v * VW), v_set1(f[r]));
    for (int j = 0; j < k->n; j++) {
        vf x[NV];
        if (ahead)
            prefetch(t, k, j, c, nv * VW);
        UNROLL
        for (int v = 0; v < nv; v++)
            x[v] = load_row(t, k->row[j], c + v * VW);
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

#define PV(m) pv_tile(t, m, nv, s, k, c, ahead, hd_pad, o, f)
VEC_INLINE void pv_any(enum kv_type t, int m, int nv, const float *s, const struct kern_rows *k,
                       int c, int ahead, int hd_pad, float *o, const float *f)
{
    HEIGHTS(m, PV);
}

VEC_INLINE void pv_all(enum kv_type t, const struct kern_soft *soft, const struct kern_rows *k,
                       int hd_pad, float *o)
{
    for (int c = 0; c < hd_pad; c += NK)
        for (int r = 0; r < soft->rows; r += soft->mr) {
            const int m = soft->rows - r < soft->mr ? soft->rows - r : soft->mr;
            const int ahead = k->n_ahead && !r;
            const float *s = soft->s + r * KEY_BLOCK, *f = soft->factor + r;
            if (hd_pad - c >= NK)
                pv_any(t, m, NV, s, k, c, ahead, hd_pad, o + r * hd_pad + c, f);
            else
                pv_any(t, m, 1, s, k, c, ahead, hd_pad, o + r * hd_pad + c, f);
        }
}

#define PV_ALL(t) pv_all(t, soft, v, hd_pad, o)
static void pv(const struct kern_soft *soft, const struct kern_rows *v, int hd_pad, float *o)
{
    TYPES(v->t, PV_ALL);
}

VEC_INLINE vf capped(vf x, float cap)
{
    return v_mul(v_tanh(x), v_set1(cap));
}

/* 2^(a - b); -inf means that nothing has been summed yet */
static float ratio(float a, float b)
{
    float y[VW];

    if (a == b)
        return 1.0f;
    v_store(y, v_exp2(v_sub(v_set1(a), v_set1(b))));
    return y[0];
}

/* Gives entries outside [lo, hi) weight 0. */
static void mask(float *s, int n, int lo, int hi)
{
    for (int j = 0; j < lo && j < n; j++)
        s[j] = -INFINITY;
    for (int j = hi > 0 ? hi : 0; j < n; j++)
        s[j] = -INFINITY;
}

VEC_INLINE float row_max(const float *s, int n)
{
    vf top = v_set1(-INFINITY);

    UNROLL
    for (int j = 0; j < n; j += VW)
        top = v_max(top, v_load(s + j));
    return v_hmax(top);
}

/* s[n] -> 2^(s - max); returns their sum */
VEC_INLINE float weigh(float *s, int n, float max)
{
    const vf base = v_set1(max > -INFINITY ? max : 0.0f);
    vf all = v_set1(0.0f);

    UNROLL
    for (int j = 0; j < n; j += VW) {
        const vf p = v_exp2(v_sub(v_load(s + j), base));
        v_store(s + j, p);
        all = v_add(all, p);
    }
    return v_hsum(all);
}

/* Each step runs over all rows before the next, so that the latencies of rows overlap. Scalars that
 * were stored one by one are loaded one by one: a vector load would wait for all of the stores. */
VEC_INLINE void online_softmax_n(const struct kern_logits *x, int n)
{
    float max[SUB_TILES * MAX_TILE];

    for (int r = 0; r < x->rows; r++) {
        float *s = x->s + r * KEY_BLOCK, top;
        for (int j = 0; x->cap > 0.0f && j < n; j += VW)
            v_store(s + j, capped(v_load(s + j), x->cap));
        mask(s, n, x->lo[r] - x->from, x->seen[r]);
        top = row_max(s, n);
        max[r] = top > x->m[r] ? top : x->m[r];
    }
    for (int r = 0; r < x->rows; r++)
        x->sum[r] = weigh(x->s + r * KEY_BLOCK, n, max[r]);
    for (int r = 0; r < x->rows; r++) {
        x->factor[r] = ratio(x->m[r], max[r]);
        x->l[r] = x->l[r] * x->factor[r] + x->sum[r];
        x->m[r] = max[r];
    }
}

/* For a whole block n is a compile-time constant. */
static void online_softmax(const struct kern_logits *x)
{
    if (x->n == KEY_BLOCK)
        online_softmax_n(x, KEY_BLOCK);
    else
        online_softmax_n(x, x->n);
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

VEC_INLINE vf score_of(vf s, float cap, vf lse2, vf w, int raw)
{
    if (cap > 0.0f)
        s = capped(s, cap);
    if (raw > 1)
        s = v_max(s, v_set1(0.0f));
    return raw ? v_mul(s, w) : v_mul(v_exp2(v_sub(s, lse2)), w);
}

/* An entry adds up to 2^126; with an lse over these entries, at most 1 */
static void score(const float *s, int lo, int hi, float cap, float lse2, float w, int raw,
                  float *out)
{
    const vf lv = v_set1(lse2), wv = v_set1(w);
    int j = lo;

    for (; j + VW <= hi; j += VW)
        v_store(out + j, v_add(v_load(out + j), score_of(v_load(s + j), cap, lv, wv, raw)));
    if (j < hi) {
        const int k = hi - j;
        const vf x = score_of(v_load_n(s + j, k), cap, lv, wv, raw);
        v_store_n(out + j, v_add(v_load_n(out + j, k), x), k);
    }
}

static void square(float *x, int lo, int hi, float *out, float *squares)
{
    for (int j = lo; j < hi; j += VW) {
        const int k = hi - j < VW ? hi - j : VW;
        const vf y = v_load_n(x + j, k);
        v_store_n(out + j, v_add(v_load_n(out + j, k), y), k);
        v_store_n(squares + j, v_fma(y, y, v_load_n(squares + j, k)), k);
        v_store_n(x + j, v_set1(0.0f), k);
    }
}

static void raise_top(const float *s, int n, float cap, float lse2, float *top)
{
    const vf lv = v_set1(lse2);

    for (int j = 0; j < n; j += VW) {
        const int k = n - j < VW ? n - j : VW;
        vf x = v_load_n(s + j, k);
        if (cap > 0.0f)
            x = capped(x, cap);
        v_store_n(top + j, v_max(v_load_n(top + j, k), v_sub(x, lv)), k);
    }
}

static void soft(const float *s, int n, float lse, float w, float *out)
{
    const vf lv = v_set1(lse), wv = v_set1(w);

    for (int j = 0; j < n; j += VW) {
        const int k = n - j < VW ? n - j : VW;
        const vf p = v_mul(v_exp(v_sub(v_load_n(s + j, k), lv)), wv);
        v_store_n(out + j, v_add(v_load_n(out + j, k), p), k);
    }
}

static float largest(const float *s, int n)
{
    vf top = v_set1(-INFINITY);
    float max;
    int j = 0;

    for (; j + VW <= n; j += VW)
        top = v_max(top, v_load(s + j));
    max = v_hmax(top);
    for (; j < n; j++)
        max = s[j] > max ? s[j] : max;
    return max;
}

static float lse(const float *s, int n)
{
    const float max = largest(s, n);
    const vf base = v_set1(max > -INFINITY ? max : 0.0f);
    vf sum = v_set1(0.0f);
    float last[VW] = { 0 };
    int j = 0;

    for (; j + VW <= n; j += VW)
        sum = v_add(sum, v_exp(v_sub(v_load(s + j), base)));
    if (j < n) {
        v_store_n(last, v_exp(v_sub(v_load_n(s + j, n - j), base)), n - j);
        sum = v_add(sum, v_load(last));
    }
    return max > -INFINITY ? max + logf(v_hsum(sum)) : max;
}

static const struct kern_qk qk_f32 = { f32_bytes, f32_bytes, pack_q, pack_k, mul_f32, direct_f32 };

const struct kern_attn VEC_NAME(cb_attn_) = {
    .mr = MR,
    .nk = NK,
    .vw = VW,
    .qk = { &qk_f32, &qk_f32, &qk_f32, &qk_f32 },
    .pack_v = pack_v,
    .online_softmax = online_softmax,
    .pv = pv,
    .fold = fold,
    .score = score,
    .square = square,
    .raise = raise_top,
    .soft = soft,
    .largest = largest,
    .lse = lse,
};
