/* SPDX-License-Identifier: MIT */
/* vector.cl - norms, rotation, gates, sums and joins of rows, stored forms of keys and values. */

#define NORM_ITEMS 256

/* Row GROUP(1) of token GROUP(0) */
KERNEL void rmsnorm(GLOBAL const float *x, GLOBAL const float *w, float eps, int n, int x_stride,
                    GLOBAL float *y, int y_stride)
{
    LOCAL float part[NORM_ITEMS];
    GLOBAL const float *from = x + (long)GROUP(0) * x_stride + (long)GROUP(1) * n;
    GLOBAL float *to = y + (long)GROUP(0) * y_stride + (long)GROUP(1) * n;
    const int item = ITEM();
    float sum = 0.0f, r;

    for (int i = item; i < n; i += NORM_ITEMS)
        sum += from[i] * from[i];
    r = 1.0f / sqrt(group_sum(sum, part, NORM_ITEMS) / (float)n + eps);
    for (int i = item; i < n; i += NORM_ITEMS)
        to[i] = from[i] * r * w[i];
}

/* The same with the mean taken off and a bias, which may be NULL */
KERNEL void layernorm(GLOBAL const float *x, GLOBAL const float *w, GLOBAL const float *b,
                      float eps, int n, int x_stride, GLOBAL float *y, int y_stride)
{
    LOCAL float part[2][NORM_ITEMS];
    GLOBAL const float *from = x + (long)GROUP(0) * x_stride + (long)GROUP(1) * n;
    GLOBAL float *to = y + (long)GROUP(0) * y_stride + (long)GROUP(1) * n;
    const int item = ITEM();
    float sum = 0.0f, mean, r;

    for (int i = item; i < n; i += NORM_ITEMS)
        sum += from[i];
    mean = group_sum(sum, part[0], NORM_ITEMS) / (float)n;
    sum = 0.0f;
    for (int i = item; i < n; i += NORM_ITEMS)
        sum += (from[i] - mean) * (from[i] - mean);
    r = 1.0f / sqrt(group_sum(sum, part[1], NORM_ITEMS) / (float)n + eps);
    for (int i = item; i < n; i += NORM_ITEMS)
        to[i] = (from[i] - mean) * r * w[i] + (b ? b[i] : 0.0f);
}

/* One pair of numbers of a head; half_turn: the pair is half of n_rot apart */
KERNEL void rope(GLOBAL float *x, int n_head, int hd, int stride, int n_rot, int half_turn,
                 GLOBAL const float *cs, long n)
{
    const long i = THREAD();
    const int half_rot = n_rot / 2;
    const int pair = (int)(i % half_rot), head = (int)(i / half_rot % n_head);
    const long tok = i / half_rot / n_head;
    GLOBAL float *v = x + tok * stride + (long)head * hd;
    const int a = half_turn ? pair : 2 * pair, b = half_turn ? pair + half_rot : 2 * pair + 1;
    float c, s, p, q;

    if (i >= n)
        return;
    c = cs[2 * (tok * half_rot + pair)];
    s = cs[2 * (tok * half_rot + pair) + 1];
    p = v[a];
    q = v[b];
    v[a] = p * c - q * s;
    v[b] = p * s + q * c;
}

/* act as enum act_kind */
FUNCTION float gated(int act, float g, float u)
{
    if (act == 0) {
        g = g / (1.0f + exp(-g));
    } else if (act == 1) { /* (1 + tanh(x)) / 2 is 1 / (1 + e^-2x) */
        g = g / (1.0f + exp(-2.0f * 0.79788456080286535588f * (g + 0.044715f * g * g * g)));
    } else if (act == 2) { /* (1 + erf(x)) / 2 is erfc(-x) / 2 */
        g = 0.5f * g * erfc(-0.70710678118654752440f * g);
    } else if (act == 4) {
        g = 1.0f / (1.0f + exp(-g));
    } else if (act == 5) {
        g = fmax(g, 0.0f);
        g = g * g;
    } else {
        g = fmin(g, 7.0f);
        g = g / (1.0f + exp(-1.702f * g));
        u = fmax(fmin(u, 7.0f), -7.0f) + 1.0f;
    }
    return g * u;
}

/* up NULL: act(gate) */
KERNEL void glu(GLOBAL float *gate, GLOBAL const float *up, int act, long n)
{
    const long i = THREAD();

    if (i < n)
        gate[i] = gated(act, gate[i], up ? up[i] : 1.0f);
}

KERNEL void add(GLOBAL float *y, GLOBAL const float *x, float a, long n)
{
    const long i = THREAD();

    if (i < n)
        y[i] += a * x[i];
}

KERNEL void scale(GLOBAL float *x, float a, float cap, long n)
{
    const long i = THREAD();

    if (i < n)
        x[i] = cap > 0.0f ? cap * tanh(a * x[i] / cap) : a * x[i];
}

#define JOIN_SLICES 8 /* of the parts, each of which 32 items share */
#define JOIN_LANES 32
#define JOIN_EACH 4  /* channels of an item at a time, JOIN_LANES apart */
#define JOIN_AHEAD 4 /* parts of an item whose loads do not wait for each other */

/* How much of a part counts whose log-sum-exp is lse, beside the largest */
FUNCTION float part_weight(float lse, float most)
{
    return most > -INFINITY ? exp(lse - most) : 0.0f;
}

/* Joins row GROUP(0) of n_part parts, at strides in floats -> the first part's row. A slice adds up
 * every eighth part, by what is the largest so far. */
KERNEL void join(GLOBAL float *out, GLOBAL float *lse, GLOBAL const float *out2,
                 GLOBAL const float *lse2, int n_part, long out_stride, long lse_stride, int hd)
{
    LOCAL float most_[JOIN_SLICES], sum_[JOIN_SLICES], x_[JOIN_SLICES][JOIN_LANES * JOIN_EACH];
    const long r = GROUP(0);
    const int item = ITEM(), lane = item % JOIN_LANES, slice = item / JOIN_LANES;
    float all = 0.0f, most = -INFINITY;

    for (int c0 = 0; c0 < hd; c0 += JOIN_LANES * JOIN_EACH) {
        float m = -INFINITY, sum = 0.0f, x[JOIN_EACH] = { 0.0f, 0.0f, 0.0f, 0.0f };
        for (int p0 = slice; p0 <= n_part; p0 += JOIN_SLICES * JOIN_AHEAD) {
            float l[JOIN_AHEAD], y[JOIN_AHEAD][JOIN_EACH], more = m, shrink;
            UNROLL for (int k = 0; k < JOIN_AHEAD; k++) {
                const int there = p0 + k * JOIN_SLICES <= n_part;
                const int p = there ? p0 + k * JOIN_SLICES : p0;
                GLOBAL const float *from = (p ? out2 + (p - 1) * out_stride : out) + r * hd;
                const float of = *(p ? lse2 + (p - 1) * lse_stride + r : lse + r);
                l[k] = there ? of : -INFINITY;
                UNROLL for (int i = 0; i < JOIN_EACH; i++) {
                    const int c = c0 + i * JOIN_LANES + lane;
                    y[k][i] = from[c < hd ? c : hd - 1];
                }
            }
            UNROLL for (int k = 0; k < JOIN_AHEAD; k++)
                more = fmax(more, l[k]);
            shrink = part_weight(m, more);
            m = more;
            sum *= shrink;
            UNROLL for (int i = 0; i < JOIN_EACH; i++)
                x[i] *= shrink;
            UNROLL for (int k = 0; k < JOIN_AHEAD; k++) {
                const float w = part_weight(l[k], m);
                sum += w;
                UNROLL for (int i = 0; i < JOIN_EACH; i++)
                    x[i] += w * y[k][i];
            }
        }
        for (int i = 0; i < JOIN_EACH; i++)
            x_[slice][i * JOIN_LANES + lane] = x[i];
        if (lane == 0) {
            most_[slice] = m;
            sum_[slice] = sum;
        }
        BARRIER();
        if (item < JOIN_LANES * JOIN_EACH) {
            float y = 0.0f;
            all = 0.0f;
            for (int i = 0; i < JOIN_SLICES; i++)
                most = fmax(most, most_[i]);
            for (int i = 0; i < JOIN_SLICES; i++) {
                const float w = part_weight(most_[i], most);
                all += w * sum_[i];
                y += w * x_[i][item];
            }
            if (all > 0.0f && c0 + item < hd) /* else no part counts, and the row stays */
                out[r * hd + c0 + item] = y / all;
        }
        BARRIER();
    }
    if (item == 0)
        lse[r] = all > 0.0f ? most + log(all) : -INFINITY;
}

#define SINK_ITEMS 32

/* Row GROUP(0) gets one more entry of value 0, with its head's logit. */
KERNEL void sink(GLOBAL float *out, GLOBAL float *lse, GLOBAL const float *sink_, int n_head,
                 int hd)
{
    const long r = GROUP(0);
    const int item = ITEM();
    const float x = sink_[r % n_head], old = lse[r], m = fmax(old, x);
    const float all = m + log(exp(old - m) + exp(x - m)), keep = exp(old - all);

    for (int c = item; c < hd; c += SINK_ITEMS)
        out[r * hd + c] *= keep;
    BARRIER();
    if (item == 0)
        lse[r] = all;
}

/* ---- stored forms: to nearest, ties to even, with the bits of src/gguf/half.c ---- */

FUNCTION uint f16_bits(float f)
{
    const uint u = AS_UINT(f), sign = u >> 16 & 0x8000u;
    uint mag = u & 0x7fffffffu;

    if (mag > 0x7f800000u)
        return sign | 0x7e00u | (mag >> 13 & 0x1ffu);
    if (mag >= 0x477ff000u)
        return sign | 0x7c00u;
    if (mag < 0x38800000u)
        return sign | (AS_UINT(AS_FLOAT(mag) + 0.5f) - 0x3f000000u);
    mag -= 112u << 23;
    return sign | (mag + 0xfffu + (mag >> 13 & 1u)) >> 13;
}

FUNCTION uint bf16_bits(float f)
{
    const uint u = AS_UINT(f);

    return (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x40u)
                                           : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

FUNCTION void put16(GLOBAL uchar *p, uint v)
{
    p[0] = (uchar)(v & 255u);
    p[1] = (uchar)(v >> 8);
}

FUNCTION void encode_q8_0(GLOBAL const float *x, GLOBAL uchar *p)
{
    float most = 0.0f, d, inv;

    for (int i = 0; i < 32; i++)
        most = fmax(most, fabs(x[i]));
    d = most / 127.0f;
    inv = d > 0.0f ? 1.0f / d : 0.0f;
    put16(p, f16_bits(d));
    for (int i = 0; i < 32; i++)
        p[2 + i] = (uchar)(signed char)rint(x[i] * inv);
}

/* Number i of a row, or, of q8_0, block i of 32; from: that number's place */
FUNCTION void encode_one(int type, GLOBAL const float *from, GLOBAL uchar *row, long i)
{
    if (type == 0)
        ((GLOBAL float *)row)[i] = *from;
    else if (type == 1)
        put16(row + 2 * i, f16_bits(*from));
    else if (type == 2)
        put16(row + 2 * i, bf16_bits(*from));
    else
        encode_q8_0(from, row + 34 * i);
}

/* One number of row i / hd, or one block of 32 of q8_0; type as enum kv_type */
KERNEL void encode(int type, GLOBAL const float *x, int stride, int hd, GLOBAL uchar *rows, long n)
{
    const long i = THREAD();
    const int a_row = type == 3 ? hd / 32 : hd;
    const long row = i / a_row, c = i % a_row;
    GLOBAL const float *from = x + row * stride + (type == 3 ? 32 * c : c);

    if (i < n)
        encode_one(type, from, rows, i);
}

/* The same for rows at addresses of their own: table[row] has that of its numbers, and up to three
 * to which it goes, or 0 */
KERNEL void encode_rows(int type, int hd, GLOBAL const ulong *table, long n)
{
    const long i = THREAD();
    const int a_row = type == 3 ? hd / 32 : hd;
    GLOBAL const ulong *at = table + i / a_row * 4;
    const int c = (int)(i % a_row);

    if (i >= n)
        return;
    for (int k = 1; k < 4; k++)
        if (at[k])
            encode_one(type, (GLOBAL const float *)at[0] + (type == 3 ? 32 * c : c),
                       (GLOBAL uchar *)at[k], c);
}

/* One number */
KERNEL void decode(int type, bytes_t rows, GLOBAL const int *idx, int hd, GLOBAL float *y, long n)
{
    const int bytes = type == 3 ? 34 * (hd / 32) : type == 0 ? 4 * hd : 2 * hd;
    const long i = THREAD(), j = i / hd;

    if (i < n)
        y[i] = stored(type, rows + (idx ? idx[j] : j) * bytes, (int)(i % hd));
}

/* The largest half that is at most x, within the range of halves, as device/sketch.c finds it */
FUNCTION uint half_below(float x)
{
    const float most = 65504.0f, y = x < -most ? -most : x > most ? most : x;
    const uint u = AS_UINT(y), mag = u & 0x7fffffffu;
    const float steps = AS_FLOAT(mag) * 16777216.0f; /* of the smallest halves */
    const int is_small = mag < 0x38800000u;
    const uint down = is_small ? (uint)steps : (mag - (112u << 23)) >> 13;
    const int is_half = is_small ? (float)down == steps : (mag & 0x1fffu) == 0u;

    return u >> 31 ? 0x8000u | (is_half ? down : down + 1u) : down;
}

/* The bounds of a page's keys, min[hd] and max[hd], one channel an item; row[pages][page]: where
 * they are */
KERNEL void draw_bounds(int type, int hd, int page, GLOBAL const ulong *row, GLOBAL uchar *bounds,
                        long n)
{
    const long i = THREAD(), p = i / hd;
    const int c = (int)(i % hd);
    GLOBAL uchar *to = bounds + p * 4 * hd + 2 * c;
    float min = INFINITY, max = -INFINITY;

    if (i >= n)
        return;
    for (int j = 0; j < page; j++) {
        const float x = stored(type, (bytes_t)row[p * page + j], c);
        min = x < min ? x : min;
        max = x > max ? x : max;
    }
    put16(to, half_below(min));
    put16(to + 2 * hd, half_below(-max) ^ 0x8000u);
}

/* The mean of n rows -> mean[hd] */
KERNEL void mean_rows(int type, int n, GLOBAL const ulong *row, GLOBAL float *mean, long hd)
{
    const long c = THREAD();
    float sum = 0.0f;

    if (c >= hd)
        return;
    for (int j = 0; j < n; j++)
        sum += stored(type, (bytes_t)row[j], (int)c);
    mean[c] = sum / (float)n;
}

/* Rows of `words` halves, packed -> the addresses to[] */
KERNEL void scatter(GLOBAL const ushort *packed, GLOBAL const ulong *to, int words, long n)
{
    const long i = THREAD();

    if (i < n)
        ((GLOBAL ushort *)to[i / words])[i % words] = packed[i];
}

#ifdef HAS_MMA
FUNCTION void glu_of_four(GLOBAL float *gate, GLOBAL const float *up, int act)
{
    uint g[4], u[4];

    load_four(g, (GLOBAL const uint *)gate);
    UNROLL for (int k = 0; k < 4; k++)
        u[k] = 0x3f800000u;
    if (up)
        load_four(u, (GLOBAL const uint *)up);
    UNROLL for (int k = 0; k < 4; k++)
        g[k] = AS_UINT(gated(act, AS_FLOAT(g[k]), AS_FLOAT(u[k])));
    store_four((GLOBAL uint *)gate, g[0], g[1], g[2], g[3]);
}

/* glu of rows at multiples of 16 bytes; an item has four numbers. */
KERNEL void glu_four(GLOBAL float *gate, GLOBAL const float *up, int act, long n)
{
    const long i = THREAD() * 4;

    if (i + 4 <= n && act == 0)
        glu_of_four(gate + i, up ? up + i : up, 0);
    else if (i + 4 <= n)
        glu_of_four(gate + i, up ? up + i : up, act);
    else
        for (long k = i; k < n; k++)
            gate[k] = gated(act, gate[k], up ? up[k] : 1.0f);
}

/* ---- rows that leave themselves as sums of two halves as well (split.cl); a token is a group's.
 * What an item keeps is not loaded again, and its loads do not wait for each other. ---- */

#define SPLIT_KEPT 2

/* glu of an item's shares, one number after the other: a short text */
FUNCTION void gate_shares(GLOBAL float *row, GLOBAL const float *up, int act, int n_share)
{
    NO_UNROLL for (int i = ITEM(); i < n_share; i += SPLIT_ITEMS)
        NO_UNROLL for (int k = 0; k < 8; k++) {
            const int at = share_at(i) + k / 4 * 16 + k % 4;
            row[at] = gated(act, row[at], up[at]);
        }
}

/* Shares i, i + SPLIT_ITEMS... of a row as they are, or (up not NULL) as glu of ACT_SILU makes
 * them, which they become in the row; those that there are not are 0. */
FUNCTION void keep_shares(GLOBAL float *row, GLOBAL const float *up, int i, int n_share,
                          float (*kept)[8])
{
    float u[SPLIT_KEPT][8];

    UNROLL for (int k = 0; k < SPLIT_KEPT; k++) {
        const int at = i + k * SPLIT_ITEMS;
        UNROLL for (int j = 0; j < 8; j++)
            kept[k][j] = 0.0f;
        if (at < n_share)
            load_share(row, at, kept[k]);
        if (up && at < n_share)
            load_share(up, at, u[k]);
    }
    UNROLL for (int k = 0; k < SPLIT_KEPT; k++)
        if (up && i + k * SPLIT_ITEMS < n_share) {
            UNROLL for (int j = 0; j < 8; j++)
                kept[k][j] = gated(0, kept[k][j], u[k][j]);
            store_share(row, i + k * SPLIT_ITEMS, kept[k]);
        }
}

/* x[][n]; up not NULL: glu before. Rounds of SPLIT_KEPT shares an item go forth, and back from the
 * last, which is kept. */
KERNEL_OF(SPLIT_ITEMS, 1)
void split(GLOBAL float *x, GLOBAL const float *up, int act, int n, GLOBAL uint *to,
           GLOBAL float *scale)
{
    enum { ROUND = SPLIT_KEPT * SPLIT_ITEMS };
    LOCAL float most_[SPLIT_ITEMS];
    const int item = ITEM(), n_share = n / 8;
    GLOBAL float *row = x + (long)GROUP(0) * n;
    float kept[SPLIT_KEPT][8], most = 0.0f, step;
    int i = item;

    to += (long)GROUP(0) * n;
    up = up ? up + (long)GROUP(0) * n : up;
    if (up && act != 0) {
        gate_shares(row, up, act, n_share);
        up = 0;
    }
    NO_UNROLL for (;; i += ROUND) {
        keep_shares(row, up, i, n_share, kept);
        UNROLL for (int k = 0; k < SPLIT_KEPT; k++)
            most = most_of_share(kept[k], most);
        if (i + ROUND >= n_share)
            break;
    }
    step = half_step(group_max(most, most_, SPLIT_ITEMS));
    if (item == 0)
        scale[GROUP(0)] = step;
    NO_UNROLL for (;;) {
        UNROLL for (int k = 0; k < SPLIT_KEPT; k++)
            if (i + k * SPLIT_ITEMS < n_share)
                split_share(kept[k], step, i + k * SPLIT_ITEMS, to);
        i -= ROUND;
        if (i < 0)
            break;
        UNROLL for (int k = 0; k < SPLIT_KEPT; k++)
            load_share(row, i + k * SPLIT_ITEMS, kept[k]); /* an item reads what it wrote */
    }
}

/* As rmsnorm, of one row a token; to NULL: the row alone. */
KERNEL_OF(NORM_ITEMS, 1)
void rmsnorm_split(GLOBAL const float *x, GLOBAL const float *w, float eps, int n, int x_stride,
                   GLOBAL float *y, int y_stride, GLOBAL uint *to, GLOBAL float *scale)
{
    enum { KEPT = 2 };
    LOCAL float part[NORM_ITEMS], most_[NORM_ITEMS];
    const int item = ITEM(), n_share = n / 8;
    GLOBAL const float *row = x + (long)GROUP(0) * x_stride;
    GLOBAL float *out = y + (long)GROUP(0) * y_stride;
    float kept[KEPT][8], weight[KEPT][8], v[8], u[8], sum = 0.0f, most = 0.0f, r, step;

    UNROLL for (int k = 0; k < KEPT; k++)
        if (item + k * NORM_ITEMS < n_share) {
            load_share(row, item + k * NORM_ITEMS, kept[k]);
            load_share(w, item + k * NORM_ITEMS, weight[k]);
        }
    UNROLL for (int k = 0; k < KEPT; k++)
        for (int j = 0; item + k * NORM_ITEMS < n_share && j < 8; j++)
            sum += kept[k][j] * kept[k][j];
    for (int i = item + KEPT * NORM_ITEMS; i < n_share; i += NORM_ITEMS) {
        load_share(row, i, v);
        for (int j = 0; j < 8; j++)
            sum += v[j] * v[j];
    }
    r = 1.0f / sqrt(group_sum(sum, part, NORM_ITEMS) / (float)n + eps);
    UNROLL for (int k = 0; k < KEPT; k++)
        if (item + k * NORM_ITEMS < n_share) {
            UNROLL for (int j = 0; j < 8; j++)
                kept[k][j] = kept[k][j] * r * weight[k][j];
            store_share(out, item + k * NORM_ITEMS, kept[k]);
            most = most_of_share(kept[k], most);
        }
    for (int i = item + KEPT * NORM_ITEMS; i < n_share; i += NORM_ITEMS) {
        load_share(row, i, v);
        load_share(w, i, u);
        UNROLL for (int j = 0; j < 8; j++)
            v[j] = v[j] * r * u[j];
        store_share(out, i, v);
        most = most_of_share(v, most);
    }
    if (!to)
        return;
    to += (long)GROUP(0) * n;
    step = half_step(group_max(most, most_, NORM_ITEMS));
    if (item == 0)
        scale[GROUP(0)] = step;
    UNROLL for (int k = 0; k < KEPT; k++)
        if (item + k * NORM_ITEMS < n_share)
            split_share(kept[k], step, item + k * NORM_ITEMS, to);
    for (int i = item + KEPT * NORM_ITEMS; i < n_share; i += NORM_ITEMS) {
        load_share(out, i, v); /* an item reads what it wrote */
        split_share(v, step, i, to);
    }
}
#endif
