/* SPDX-License-Identifier: MIT */
/* matmul.cl - y = W x for one element type of W (TYPE, as enum dtype), which lies as in the file.
 * 32 elements of a row are unpacked at a time. A token's sums have one order in few_1 and few_8,
 * which multiply decoded tokens, so that its result does not depend on the tokens beside it. The
 * same holds in tile, which multiplies chunks of prompts, and in gemm.cl, which multiplies what
 * unpack_rows made. */

#define F32 0
#define F16 1
#define BF16 2
#define Q4_0 3
#define Q4_1 4
#define Q5_0 5
#define Q5_1 6
#define Q8_0 7
#define Q4_K 8
#define Q5_K 9
#define Q6_K 10

/* Elements after the end of a row count as 0. */
FUNCTION void unpack_float(WITH_OPTIONS bytes_t row, int n_in, int b, float *w)
{
    for (int i = 0; i < 32; i++) {
        const int c = b * 32 + i;
        w[i] = c >= n_in      ? 0.0f
               : TYPE == F32  ? load_f32(row + 4 * c)
               : TYPE == F16  ? load_f16(row + 2 * c)
                              : load_bf16(row + 2 * c);
    }
}

/* f16 step, [f16 minimum], [u32 fifth bits], 16 bytes of nibbles: low = elements 0..15 */
FUNCTION void unpack_45(WITH_OPTIONS bytes_t row, int b, float *w)
{
    const int has_min = TYPE == Q4_1 ? 1 : TYPE == Q5_1, has_fifth = TYPE >= Q5_0;
    bytes_t p = row + b * (18 + 2 * has_min + 4 * has_fifth), fifth = p + 2 + 2 * has_min;
    bytes_t at = fifth + 4 * has_fifth;
    const float d = load_f16(p), m = has_min ? load_f16(p + 2) : 0.0f;
    const int off = has_min ? 0 : has_fifth ? 16 : 8;
    uint high = 0;

    if (has_fifth)
        high = (uint)fifth[0] | (uint)fifth[1] << 8 | (uint)fifth[2] << 16 | (uint)fifth[3] << 24;
    for (int i = 0; i < 16; i++) {
        const int lo = (at[i] & 15) | (int)(high >> i & 1) << 4;
        const int hi = at[i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        w[i] = (float)(lo - off) * d + m;
        w[i + 16] = (float)(hi - off) * d + m;
    }
}

FUNCTION void unpack_q8_0(bytes_t row, int b, float *w)
{
    bytes_t p = row + b * 34;
    const float d = load_f16(p);

    for (int i = 0; i < 32; i++)
        w[i] = (float)(signed char)p[2 + i] * d;
}

/* f16 step and step of minima, 12 bytes of 6-bit scales and minima, [32 bytes of fifth bits], 128
 * bytes of nibbles; 32 bytes of them hold 64 elements */
FUNCTION void unpack_45_k(WITH_OPTIONS bytes_t row, int b, float *w)
{
    bytes_t p = row + b / 8 * (TYPE == Q5_K ? 176 : 144), s = p + 4, high = p + 16;
    const int j = b % 8;
    bytes_t q = p + (TYPE == Q5_K ? 48 : 16) + 32 * (j / 2);
    const int scale = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int least = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
    const float d = load_f16(p) * (float)scale, m = load_f16(p + 2) * (float)least;

    for (int i = 0; i < 32; i++) {
        int v = j & 1 ? q[i] >> 4 : q[i] & 15;
        if (TYPE == Q5_K)
            v |= (high[i] >> j & 1) << 4;
        w[i] = d * (float)v - m;
    }
}

/* 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 step */
FUNCTION void unpack_q6_k(bytes_t row, int b, float *w)
{
    bytes_t p = row + b / 8 * 210;
    const int c = b % 8;
    bytes_t lo = p + 64 * (c / 4) + 32 * (c & 1), hi = p + 128 + 32 * (c / 4);
    const float d = load_f16(p + 208);
    const float d0 = d * (float)(signed char)p[192 + 2 * c];
    const float d1 = d * (float)(signed char)p[193 + 2 * c];

    for (int i = 0; i < 32; i++) {
        const int v = (c & 2 ? lo[i] >> 4 : lo[i] & 15) | (hi[i] >> 2 * (c & 3) & 3) << 4;
        w[i] = (i < 16 ? d0 : d1) * (float)(v - 32);
    }
}

/* Elements 32 b .. 32 b + 31 of a row */
FUNCTION void unpack(WITH_OPTIONS bytes_t row, int n_in, int b, float *w)
{
    if (TYPE <= BF16)
        unpack_float(OPTIONS row, n_in, b, w);
    else if (TYPE <= Q5_1)
        unpack_45(OPTIONS row, b, w);
    else if (TYPE == Q8_0)
        unpack_q8_0(row, b, w);
    else if (TYPE <= Q5_K)
        unpack_45_k(OPTIONS row, b, w);
    else
        unpack_q6_k(row, b, w);
}

/* One 32-element piece of x; elements after the end count as 0. */
FUNCTION float dot32(const float *w, GLOBAL const float *x, int n)
{
    float sum = 0.0f;

    if (n >= 32)
        for (int i = 0; i < 32; i++)
            sum += w[i] * x[i];
    else
        for (int i = 0; i < n; i++)
            sum += w[i] * x[i];
    return sum;
}

FUNCTION void store(GLOBAL float *y, GLOBAL const float *bias, int o, int add, float sum)
{
    if (bias)
        sum += bias[o];
    *y = add ? *y + sum : sum;
}

#define FEW_ITEMS 32

/* The sum of what a group's sub-groups have, which goes on with their trees: its bits do not depend
 * on the size of sub-groups, which a compiler chooses for each kernel. */
FUNCTION float tree_sum(IN_LOCAL float *of)
{
    for (int n = SUBGROUPS(FEW_ITEMS) / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            of[i] = of[2 * i] + of[2 * i + 1];
    return of[0];
}

/* A group computes one row's product with up to T tokens from tokens T * GROUP(1) on. */
#define FEW(name, T)                                                                               \
    KERNEL void name(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, GLOBAL const float *x, \
                     int n_tok, GLOBAL const float *bias, GLOBAL float *y, int y_stride, int add)  \
    {                                                                                              \
        LOCAL float part[T][FEW_ITEMS];                                                            \
        const int o = GROUP(0), first = GROUP(1) * T, item = ITEM();                               \
        bytes_t row = weight + (long)o * row_bytes;                                                \
        float sum[T], w[32];                                                                       \
        for (int t = 0; t < T; t++)                                                                \
            sum[t] = 0.0f;                                                                         \
        for (int b = item; b * 32 < n_in; b += FEW_ITEMS) {                                        \
            unpack(OPTIONS row, n_in, b, w);                                                       \
            for (int t = 0; t < T; t++) {                                                          \
                const int tok = first + t < n_tok ? first + t : n_tok - 1;                         \
                sum[t] += dot32(w, x + (long)tok * n_in + b * 32, n_in - b * 32);                  \
            }                                                                                      \
        }                                                                                          \
        for (int t = 0; t < T; t++)                                                                \
            part[t][SUBGROUP()] = subgroup_sum(sum[t]);                                            \
        BARRIER();                                                                                 \
        if (item < T && first + item < n_tok)                                                      \
            store(y + (long)(first + item) * y_stride + o, bias, o, add, tree_sum(part[item]));    \
    }

FEW(few_1, 1)
FEW(few_8, 8)

/* ---- prompts ---- */

/* Four elements of a row of x; those after its end count as 0. */
FUNCTION float4 four_of(GLOBAL const float *row, int n_in, int i)
{
    if (i + 4 <= n_in)
        return FOUR(row[i], row[i + 1], row[i + 2], row[i + 3]);
    return FOUR(i < n_in ? row[i] : 0.0f, i + 1 < n_in ? row[i + 1] : 0.0f,
                i + 2 < n_in ? row[i + 2] : 0.0f, 0.0f);
}

/* One element of eight tokens */
#define ACROSS(v, e) EIGHT(v[0].e, v[1].e, v[2].e, v[3].e, v[4].e, v[5].e, v[6].e, v[7].e)

/* A group computes TILE rows' products with TILE tokens, 32 elements at a time; an item those of
 * eight rows, SIDE apart, with eight tokens in a row. In LOCAL memory rows are TILE_STEP floats
 * apart, and what eight tokens have is TILE_TURN eights apart, so that items side by side meet all
 * banks. Groups side by side have the same rows, which then come from memory once. */
#define TILE 64
#define SIDE 8
#define TILE_STEP 36
#define TILE_TURN 33
KERNEL OF_EIGHTS void tile(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, int n_out,
                           GLOBAL const float *x, int n_tok, GLOBAL const float *bias,
                           GLOBAL float *y, int y_stride, int add)
{
    LOCAL ALIGNED_16 float w_[TILE * TILE_STEP];
    LOCAL eight_t x_[SIDE * TILE_TURN];
    const int row0 = GROUP(1) * TILE, item = ITEM(), r = item % SIDE, c = item / SIDE;
    const int row = row0 + item < n_out ? row0 + item : n_out - 1;
    const int tok0 = GROUP(0) * TILE + c * 8, n = n_tok - tok0;
    eight_t sum[8];
    float4 four[8];
    float w[32];

    UNROLL for (int i = 0; i < 8; i++)
        sum[i] = EIGHT(0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f);
    for (int b = 0; b * 32 < n_in; b++) {
        unpack(OPTIONS weight + (long)row * row_bytes, n_in, b, w);
        for (int k = 0; k < 32; k++)
            w_[item * TILE_STEP + k] = w[k];
        UNROLL for (int i = 0; i < 8; i++)
            four[i] = four_of(x + (long)(i < n ? tok0 + i : n_tok - 1) * n_in, n_in,
                              b * 32 + r * 4);
        x_[c * TILE_TURN + r * 4] = ACROSS(four, x);
        x_[c * TILE_TURN + r * 4 + 1] = ACROSS(four, y);
        x_[c * TILE_TURN + r * 4 + 2] = ACROSS(four, z);
        x_[c * TILE_TURN + r * 4 + 3] = ACROSS(four, w);
        BARRIER();
        for (int k = 0; n > 0 && k < 32; k++) {
            const eight_t xk = x_[c * TILE_TURN + k];
            UNROLL for (int i = 0; i < 8; i++)
                sum[i] += w_[(r + SIDE * i) * TILE_STEP + k] * xk;
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < 8; i++) {
        const int o = row0 + r + SIDE * i;
        float to[8];
        store_eight(to, sum[i]);
        for (int t = 0; t < 8; t++)
            if (o < n_out && t < n)
                store(y + (long)(tok0 + t) * y_stride + o, bias, o, add, to[t]);
    }
}

#ifdef HAS_MMA
/* ---- where a warp multiplies small matrices of halves at once ---- */

/* By what a row is divided before it becomes halves. All `items` of the group find it together. */
FUNCTION float row_step(GLOBAL const float *row, int n_in, IN_LOCAL float *most_, int items)
{
    float most = 0.0f;

    for (int i = ITEM(); i < n_in; i += ITEMS())
        most = fmax(most, fabs(row[i]));
    return half_step(group_max(most, most_, items));
}

/* A row of x (GROUP(0)) as halves [n_in rounded up to 32], two a word: x / scale[row], a power of
 * two. */
KERNEL void halves(WITH_OPTIONS GLOBAL const float *x, int n_in, GLOBAL uint *to,
                   GLOBAL float *scale)
{
    LOCAL float most_[256];
    const int item = ITEM(), items = ITEMS(), n_word = (n_in + 31) / 32 * 16;
    GLOBAL const float *row = x + (long)GROUP(0) * n_in;
    const float step = row_step(row, n_in, most_, 256), factor = 1.0f / step;

    if (item == 0)
        scale[GROUP(0)] = step;
    for (int i = item; i < n_word; i += items) {
        const float lo = 2 * i < n_in ? row[2 * i] * factor : 0.0f;
        const float hi = 2 * i + 1 < n_in ? row[2 * i + 1] * factor : 0.0f;
        to[(long)GROUP(0) * n_word + i] = pack_f16(lo, hi);
    }
}

/* ---- decoded tokens, where a warp multiplies small matrices of halves at once ----
 *
 * A warp multiplies 16 rows by 8 tokens. Codes of weights are halves without loss, a token's number
 * is the sum of two halves, and sums are floats: so this kernel has the digits that few_1 has.
 * Some warps share the columns of a group's rows; they copy the rows' bytes 16 at a time to LOCAL
 * memory, and the next ones are on their way while they multiply. How columns are shared out
 * depends on the weight alone, and a token's sums on no other token. */

#define CODE_ROWS 16

/* What an item has of 32 elements of a row: two words of four codes without sign, of
 * which code_off() is taken, their steps, and what is added. Where codes are nibbles of one word
 * (are_nibbles()), that word is `lo`. */
struct codes {
    uint lo, hi;
    float d_lo, d_hi, m;
};

/* Blocks of all these types begin at even addresses, those of some at multiples of four. */
FUNCTION uint word_at(int type, IN_LOCAL const uchar *p)
{
    if (type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K)
        return *(IN_LOCAL const uint *)p;
    return (uint)((IN_LOCAL const ushort *)p)[0] | (uint)((IN_LOCAL const ushort *)p)[1] << 16;
}

FUNCTION float half_at(IN_LOCAL const uchar *p)
{
    return low_half(*(IN_LOCAL const ushort *)p);
}

/* Four bits, each the lowest of a byte */
FUNCTION uint bits_apart(uint four)
{
    return (four & 15u) * 0x00204081u & 0x01010101u;
}

FUNCTION int are_nibbles(int type)
{
    return type == Q4_0 || type == Q4_1;
}

FUNCTION int code_bytes(int type) /* of 32 elements; of 256 where these have common steps */
{
    return type == Q4_0   ? 18
           : type == Q4_1 ? 20
           : type == Q5_0 ? 22
           : type == Q5_1 ? 24
           : type == Q8_0 ? 34
           : type == Q4_K ? 144
           : type == Q5_K ? 176
                          : 210;
}

/* What is taken from a code before it is multiplied. Where a minimum could do without, sums stay
 * small and keep their digits. */
FUNCTION uint code_off(int type)
{
    return type == Q8_0                                     ? 128u
           : type == Q6_K                                   ? 32u
           : type == Q5_0 || type == Q5_1 || type == Q5_K ? 16u
                                                            : 8u;
}

FUNCTION struct codes codes_45(int type, IN_LOCAL const uchar *at, int p)
{
    const int has_min = type == Q4_1 || type == Q5_1, has_fifth = type >= Q5_0;
    IN_LOCAL const uchar *fifth = at + 2 + 2 * has_min;
    const uint nibbles = word_at(type, fifth + 4 * has_fifth + 4 * p);
    struct codes c;

    c.lo = nibbles;
    c.hi = 0;
    if (has_fifth) {
        c.lo = nibbles & 0x0f0f0f0fu;
        c.hi = nibbles >> 4 & 0x0f0f0f0fu;
        const uint bits = word_at(type, fifth) >> 4 * p;
        c.lo |= bits_apart(bits) << 4;
        c.hi |= bits_apart(bits >> 16) << 4;
    }
    c.d_lo = c.d_hi = half_at(at);
    c.m = has_min ? half_at(at + 2) + (float)code_off(type) * c.d_lo : 0.0f;
    return c;
}

FUNCTION struct codes codes_8(IN_LOCAL const uchar *at, int p)
{
    struct codes c;

    c.lo = word_at(Q8_0, at + 2 + 4 * p) ^ 0x80808080u;
    c.hi = word_at(Q8_0, at + 18 + 4 * p) ^ 0x80808080u;
    c.d_lo = c.d_hi = half_at(at);
    c.m = 0.0f;
    return c;
}

/* Steps of a row's 256 elements: f16 step and step of minima with eight 6-bit numbers each, which
 * lie in two words, or (Q6_K) the f16 step */
struct steps {
    uint scale[2], least[2];
    float d, m;
};

FUNCTION struct steps steps_of(int type, IN_LOCAL const uchar *at)
{
    struct steps s;
    uint a, b, c;

    if (type == Q6_K) {
        s.d = half_at(at + 208);
        return s;
    }
    a = word_at(type, at + 4);
    b = word_at(type, at + 8);
    c = word_at(type, at + 12);
    s.scale[0] = a & 0x3f3f3f3fu;
    s.least[0] = b & 0x3f3f3f3fu;
    s.scale[1] = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
    s.least[1] = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
    s.d = half_at(at);
    s.m = -half_at(at + 2);
    return s;
}

/* Number j of 32 elements of the 256 that begin at `at` */
FUNCTION struct codes codes_45_k(int type, IN_LOCAL const uchar *at, const struct steps *s, int j,
                                 int p)
{
    IN_LOCAL const uchar *high = at + 16 + 4 * p;
    IN_LOCAL const uchar *q = high + (type == Q5_K ? 32 : 0) + 32 * (j / 2);
    struct codes c;

    c.lo = word_at(type, q) >> 4 * (j & 1) & 0x0f0f0f0fu;
    c.hi = word_at(type, q + 16) >> 4 * (j & 1) & 0x0f0f0f0fu;
    if (type == Q5_K) {
        c.lo |= (word_at(type, high) >> j & 0x01010101u) << 4;
        c.hi |= (word_at(type, high + 16) >> j & 0x01010101u) << 4;
    }
    c.d_lo = c.d_hi = s->d * (float)(s->scale[j / 4] >> 8 * (j % 4) & 255u);
    c.m = s->m * (float)(s->least[j / 4] >> 8 * (j % 4) & 255u) +
          (float)code_off(type) * c.d_lo;
    return c;
}

FUNCTION struct codes codes_6_k(IN_LOCAL const uchar *at, const struct steps *s, int j, int p)
{
    IN_LOCAL const uchar *low = at + 64 * (j / 4) + 32 * (j & 1) + 4 * p;
    IN_LOCAL const uchar *high = at + 128 + 32 * (j / 4) + 4 * p;
    const int nibble = j & 2 ? 4 : 0, pair = 2 * (j & 3);
    const int scales = ((IN_LOCAL const short *)(at + 192))[j];
    struct codes c;

    c.lo = (word_at(Q6_K, low) >> nibble & 0x0f0f0f0fu) |
           (word_at(Q6_K, high) >> pair & 0x03030303u) << 4;
    c.hi = (word_at(Q6_K, low + 16) >> nibble & 0x0f0f0f0fu) |
           (word_at(Q6_K, high + 16) >> pair & 0x03030303u) << 4;
    c.d_lo = s->d * (float)(signed char)scales;
    c.d_hi = s->d * (float)(scales >> 8);
    c.m = 0.0f;
    return c;
}

/* Four codes as two words of halves. 0x6400 is 1024, whose last bit is 1. */
FUNCTION void halves_of(uint codes, uint off, uint *to)
{
    const uint base = 0x64006400u + off * 0x00010001u;

    to[0] = sub_halves(bits_with(codes, 0x00ff00ffu, 0x64006400u), base);
    to[1] = sub_halves(bits_with(codes >> 8, 0x00ff00ffu, 0x64006400u), base);
}

/* The same of eight nibbles: the low ones, then the high ones. 1024 + 16 n becomes n by a
 * multiplication, with no digit lost. */
FUNCTION void halves_of_nibbles(uint nibbles, uint off, uint *lo, uint *hi)
{
    const uint base = 0x64006400u + off * 0x00010001u;
    const uint sixteenth = 0x2c002c00u, less = 0xd400d400u + off * 0x00100010u; /* -64 - off */

    for (int i = 0; i < 2; i++) {
        const uint two = nibbles >> 8 * i;
        lo[i] = sub_halves(bits_with(two, 0x000f000fu, 0x64006400u), base);
        hi[i] = mul_add_halves(bits_with(two, 0x00f000f0u, 0x64006400u), sixteenth, less);
    }
}

/* All eight codes of an item */
FUNCTION void halves_of_codes(int type, const struct codes *c, uint *lo, uint *hi)
{
    if (are_nibbles(type)) {
        halves_of_nibbles(c->lo, code_off(type), lo, hi);
    } else {
        halves_of(c->lo, code_off(type), lo);
        halves_of(c->hi, code_off(type), hi);
    }
}

/* An item's share of 32 elements of a row, as halves in their order: four of either half. Steps
 * that are halves are multiplied as such, which rounds once, as it does from floats. */
FUNCTION void share_of(int type, bytes_t row, int b, int p, uint *to)
{
    const int one_step = type == Q4_0 || type == Q5_0 || type == Q8_0;
    bytes_t at = row + (long)(type >= Q4_K ? b / 8 : b) * code_bytes(type);
    struct codes c;
    struct steps s;
    uint codes[2][2];

    if (type >= Q4_K) {
        s = steps_of(type, at);
        c = type == Q6_K ? codes_6_k(at, &s, b % 8, p) : codes_45_k(type, at, &s, b % 8, p);
    } else {
        c = type == Q8_0 ? codes_8(at, p) : codes_45(type, at, p);
    }
    halves_of_codes(type, &c, codes[0], codes[1]);
    for (int half = 0; half < 2; half++) {
        const float d = half ? c.d_hi : c.d_lo;
        uint *of = codes[half];
        if (one_step) {
            const uint step = *(GLOBAL const ushort *)at * 0x00010001u;
            of[0] = mul_halves(of[0], step);
            of[1] = mul_halves(of[1], step);
            to[2 * half] = (of[0] & 0xffffu) | of[1] << 16;
            to[2 * half + 1] = of[0] >> 16 | (of[1] & 0xffff0000u);
        } else {
            to[2 * half] = pack_f16(low_half(of[0]) * d + c.m, low_half(of[1]) * d + c.m);
            to[2 * half + 1] = pack_f16(high_half(of[0]) * d + c.m, high_half(of[1]) * d + c.m);
        }
    }
}

/* The same of a row of F16 or BF16; elements after its end count as 0. */
FUNCTION void float_share_of(int type, bytes_t row, int n_in, int b, int p, uint *to)
{
    for (int i = 0; i < 4; i++) {
        float of[2];
        for (int k = 0; k < 2; k++) {
            const int c = b * 32 + i / 2 * 16 + 4 * p + i % 2 * 2 + k;
            of[k] = c >= n_in ? 0.0f : type == F16 ? half_at(row + 2 * c) : load_bf16(row + 2 * c);
        }
        to[i] = pack_f16(of[0], of[1]);
    }
}

#define SHARE_OF(t)                                                                                \
    case t:                                                                                        \
        share_of(t, row, i / 4, i % 4, share);                                                     \
        break

/* Row GROUP(0) of a weight as halves [n_in rounded up to 32], two a word, for gemm.cl */
KERNEL void unpack_rows(WITH_OPTIONS bytes_t weight, long row_bytes, int n_in, GLOBAL uint *to)
{
    const int n_block = (n_in + 31) / 32;
    bytes_t row = weight + (long)GROUP(0) * row_bytes;

    to += (long)GROUP(0) * n_block * 16;
    for (int i = ITEM(); i < 4 * n_block; i += ITEMS()) {
        uint share[4];
        switch (TYPE) {
            SHARE_OF(Q4_0);
            SHARE_OF(Q4_1);
            SHARE_OF(Q5_0);
            SHARE_OF(Q5_1);
            SHARE_OF(Q8_0);
            SHARE_OF(Q4_K);
            SHARE_OF(Q5_K);
            SHARE_OF(Q6_K);
        default:
            float_share_of(TYPE, row, n_in, i / 4, i % 4, share);
        }
        store_two(to + i / 4 * 16 + i % 4 * 2, share[0], share[1]);
        store_two(to + i / 4 * 16 + i % 4 * 2 + 8, share[2], share[3]);
    }
}

/* What the items of a warp have of rows q and q + 8 as halves, for both halves of 32 elements */
FUNCTION void matrix_of(int type, const struct codes *c, uint (*a)[4])
{
    for (int row = 0; row < 2; row++) {
        uint lo[2], hi[2];
        halves_of_codes(type, &c[row], lo, hi);
        a[0][row] = lo[0];
        a[0][2 + row] = lo[1];
        a[1][row] = hi[0];
        a[1][2 + row] = hi[1];
    }
}

/* The rows' products with 32 elements of eight tokens, x[2][4] of an item, added to sum[4]; not
 * `valid`: they have no part in it. */
FUNCTION void add_products(int type, const struct codes *c, uint (*a)[4], const uint *x, int valid,
                           float *sum)
{
    float lo[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, hi[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    mma(lo, a[0], x);
    mma(lo, a[0], x + 4);
    mma(type == Q6_K ? hi : lo, a[1], x + 2);
    mma(type == Q6_K ? hi : lo, a[1], x + 6);
    for (int i = 0; valid && i < 4; i++)
        sum[i] += c[i / 2].d_lo * lo[i];
    if (type == Q6_K)
        for (int i = 0; valid && i < 4; i++)
            sum[i] += c[i / 2].d_hi * hi[i];
    if (type == Q4_1 || type == Q5_1 || type == Q4_K || type == Q5_K) { /* minimum times x's sum */
        const uint one[4] = { 0x3c003c00u, 0x3c003c00u, 0x3c003c00u, 0x3c003c00u };
        for (int i = 0; i < 8; i += 2)
            mma(hi, one, x + i);
        for (int i = 0; valid && i < 4; i++)
            sum[i] += c[i / 2].m * hi[i];
    }
}

#define MOST_T 4 /* eights of tokens */
#define X_AHEAD 2

/* The tokens' numbers. Of each eight an item brings one token's, which lie from `at` on: its share
 * of a block of 32 elements after the other. */
struct few_x {
    GLOBAL const uint *at[MOST_T];
    /* Of a single eight, the next blocks; a token that there is not has zeros. */
    int has;
    uint next[X_AHEAD][8];
};

FUNCTION void load_block(GLOBAL const uint *at, uint *to)
{
    load_four(to, at);
    load_four(to + 4, at + 16);
}

/* Adds the block whose number ends in b, of 32 elements of rows q and q + 8 of a warp and of all
 * tokens, to sum[T][4]. Tokens' numbers may be read beyond the last block (split.cl). */
FUNCTION void add_block(int type, int T, const struct codes *c, int b, int valid, struct few_x *x,
                        float (*sum)[4])
{
    uint a[2][4], both[8];

    matrix_of(type, c, a);
    if (T == 1) {
        add_products(type, c, a, x->next[b % X_AHEAD], valid, sum[0]);
        if (x->has)
            load_block(x->at[0] + (b + X_AHEAD) * SPLIT_WORDS, x->next[b % X_AHEAD]);
        return;
    }
    UNROLL for (int t = 0; t < T; t++) {
        load_block(x->at[t] + b * SPLIT_WORDS, both);
        add_products(type, c, a, both, valid, sum[t]);
    }
}

/* The same for n blocks, which lie at row[2] in LOCAL memory and of which n_valid are there */
FUNCTION void add_blocks(int type, int T, IN_LOCAL const uchar *const *row, int n, int n_valid,
                         struct few_x *x, float (*sum)[4])
{
    const int p = ITEM() % 4, step = type >= Q4_K ? 8 : 4;
    struct codes c[2];

    for (int from = 0; from < n; from += step) {
        struct steps s[2];
        if (type >= Q4_K)
            for (int i = 0; i < 2; i++)
                s[i] = steps_of(type, row[i]);
        UNROLL for (int b = 0; b < step; b++) {
            for (int i = 0; i < 2; i++)
                c[i] = type == Q6_K   ? codes_6_k(row[i], &s[i], b, p)
                       : type >= Q4_K ? codes_45_k(type, row[i], &s[i], b, p)
                       : type == Q8_0 ? codes_8(row[i] + (from + b) * code_bytes(type), p)
                                      : codes_45(type, row[i] + (from + b) * code_bytes(type), p);
            add_block(type, T, c, b, from + b < n_valid, x, sum);
        }
        UNROLL for (int t = 0; t < T; t++)
            x->at[t] += step * SPLIT_WORDS;
    }
}

/* The products of a group: CODE_ROWS rows from row o0 on of one weight, T times eight tokens */
struct few_group {
    bytes_t weight;
    GLOBAL const float *bias;
    GLOBAL float *y;
    int n_out, o0;
};

/* Up to three weights of one type and as many columns are multiplied at once: which has the rows of
 * tile GROUP(1)? */
FUNCTION struct few_group few_group_of(bytes_t w0, bytes_t w1, bytes_t w2, int n0, int n1, int n2,
                                       GLOBAL const float *b0, GLOBAL const float *b1,
                                       GLOBAL const float *b2, GLOBAL float *y0, GLOBAL float *y1,
                                       GLOBAL float *y2)
{
    const int t0 = (n0 + CODE_ROWS - 1) / CODE_ROWS, t1 = (n1 + CODE_ROWS - 1) / CODE_ROWS;
    const int tile = GROUP(1), i = tile < t0 ? 0 : tile < t0 + t1 ? 1 : 2;
    struct few_group g;

    g.weight = i == 0 ? w0 : i == 1 ? w1 : w2;
    g.bias = i == 0 ? b0 : i == 1 ? b1 : b2;
    g.y = i == 0 ? y0 : i == 1 ? y1 : y2;
    g.n_out = i == 0 ? n0 : i == 1 ? n1 : n2;
    g.o0 = (tile - (i > 0 ? t0 : 0) - (i > 1 ? t1 : 0)) * CODE_ROWS;
    return g;
}

/* The number of a row whose products are wanted; one that there is not is the last. */
FUNCTION long code_row(const struct few_group *g, int r)
{
    return g->o0 + r < g->n_out ? g->o0 + r : g->n_out - 1;
}

/* The type of a weight's codes, and how a group brings them */
struct few_form {
    int type, warps;
    int pitch;  /* bytes from one row in LOCAL memory to the next, 16 times something odd: the rows
                   of a warp meet all banks */
    int stages; /* steps of blocks that have room there: 2 or 3 */
};

/* What a warp still has to copy. Items side by side bring 16 bytes each of one row, so that their
 * addresses share lines. An item has number piece / 16 of a row's in a step, of every
 * rows_at_once()th row. */
struct few_copies {
    bytes_t from; /* `piece` bytes after those of the item's first row that are to come next */
    int apart;    /* bytes from an item's row to its next */
    int n_row;    /* how many rows there are, from the item's first on */
    int even;     /* 1: there are all rows, and an item's have addresses with the same last bits */
    int piece;
    int left, bytes; /* of each row, still to come and of a step */
    int stage;       /* words of a step; step number n goes to `to` + n % stages * stage */
    IN_LOCAL uint *to, *end;
};

/* Rows whose pieces the 32 items bring at once */
FUNCTION int rows_at_once(const struct few_form f)
{
    return f.pitch > 128 ? 2 : 4;
}

/* The 16 bytes at or below an address, if they have bytes of a step that ends so many after it */
FUNCTION void copy_piece(IN_LOCAL uint *to, bytes_t at, int end)
{
    if (-end < (int)((ulong)at & 15u))
        COPY_16(to, (bytes_t)((ulong)at & ~(ulong)15u));
}

/* The next step */
FUNCTION void copy_step(const struct few_form f, struct few_copies *c)
{
    const int rows = rows_at_once(f), here = c->left < c->bytes ? c->left : c->bytes;
    const int end = c->left > 0 ? here - c->piece : -16; /* less than any skew */

    if (c->even) {
        if (-end < (int)((ulong)c->from & 15u))
            UNROLL for (int i = 0; i < CODE_ROWS / rows; i++)
                COPY_16(c->to + i * rows * (f.pitch / 4),
                        (bytes_t)((ulong)c->from & ~(ulong)15u) + i * c->apart);
    } else {
        NO_UNROLL for (int i = 0; i * rows < CODE_ROWS; i++)
            if (i * rows < c->n_row)
                copy_piece(c->to + i * rows * (f.pitch / 4), c->from + i * c->apart, end);
    }
    COPIES_END();
    c->from += c->bytes;
    c->left -= c->bytes;
    c->to = c->to + c->stage == c->end ? c->end - f.stages * c->stage : c->to + c->stage;
}

/* A warp's sums over its columns, step blocks at a time, of which the next ones are under way */
FUNCTION void warp_sums(const struct few_form f, int T, const struct few_group *g, long row_bytes,
                        int n_block, int step, struct few_x *x, IN_LOCAL uint *s_, float (*sum)[4])
{
    const int lane = ITEM() % 32, warp = ITEM() / 32, stage = CODE_ROWS * f.pitch / 4;
    const int n_step = (n_block + step - 1) / step, per = (n_step + f.warps - 1) / f.warps;
    const int bytes = (f.type >= Q4_K ? step / 8 : step) * code_bytes(f.type);
    IN_LOCAL uint *mine = s_ + warp * f.stages * stage;
    const int rows = rows_at_once(f), r = lane * rows / 32, piece = lane % (32 / rows);
    IN_LOCAL uint *to = mine + r * (f.pitch / 4) + piece * 4;
    struct few_copies c = { g->weight + (g->o0 + r) * row_bytes + warp * per * bytes + piece * 16,
                            rows * (int)row_bytes,
                            g->n_out - g->o0 - r,
                            g->n_out - g->o0 >= CODE_ROWS && rows * (int)row_bytes % 16 == 0,
                            piece * 16,
                            (int)row_bytes - warp * per * bytes,
                            bytes,
                            stage,
                            to,
                            to + f.stages * stage };
    int n_valid = n_block - warp * per * step, skew[2];
    IN_LOCAL const uchar *now = (IN_LOCAL const uchar *)mine + lane / 4 * f.pitch;

    for (int i = 0; i < 2; i++)
        skew[i] = (int)((ulong)(g->weight + code_row(g, lane / 4 + 8 * i) * row_bytes)) +
                  warp * per * bytes;
    UNROLL for (int t = 0; t < T; t++)
        x->at[t] += warp * per * step * SPLIT_WORDS;
    UNROLL for (int b = 0; T == 1 && b < X_AHEAD; b++)
        if (x->has)
            load_block(x->at[0] + b * SPLIT_WORDS, x->next[b]);
    UNROLL for (int k = 0; k < f.stages - 1; k++)
        copy_step(f, &c);
    for (int k = 0; k < per; k++) {
        IN_LOCAL const uchar *const row[2] = { now + (skew[0] & 15),
                                               now + 8 * f.pitch + (skew[1] & 15) };
        if (f.stages == 2)
            COPIES_WAIT(0);
        else
            COPIES_WAIT(1);
        WARP_BARRIER(); /* all have what they wait for, and have read what is to be written over */
        copy_step(f, &c);
        add_blocks(f.type, T, row, step, n_valid, x, sum);
        n_valid -= step;
        skew[0] += bytes;
        skew[1] += bytes;
        now += 4 * stage;
        if (now >= (IN_LOCAL const uchar *)(mine + f.stages * stage))
            now -= 4 * f.stages * stage;
    }
    COPIES_WAIT(0); /* the memory may be used for something else */
}

/* Blocks of a step; of most types the compiler knows it. */
FUNCTION int step_of(int type, int step)
{
    return type >= Q4_K ? 8 : type >= Q5_0 ? 4 : step;
}

FUNCTION void few_codes(const struct few_form f, int T, const struct few_group *g, long row_bytes,
                        int n_in, int step, GLOBAL const uint *split, GLOBAL const float *scale,
                        int n_tok, int y_stride, int add, IN_LOCAL uint *s_)
{
    const int item = ITEM(), warp = item / 32, q = item % 32 / 4, p = item % 4;
    const int tok0 = GROUP(0) * T * 8;
    IN_LOCAL float *part = (IN_LOCAL float *)s_; /* [warp][token][row] */
    struct few_x x;
    float sum[MOST_T][4];

    x.has = tok0 + q < n_tok;
    UNROLL for (int i = 0; i < 8 * X_AHEAD; i++)
        x.next[i / 8][i % 8] = 0u;
    UNROLL for (int t = 0; t < T; t++) {
        const int tok = tok0 + t * 8 + q < n_tok ? tok0 + t * 8 + q : n_tok - 1;
        x.at[t] = split + (long)tok * n_in + 4 * p;
        sum[t][0] = sum[t][1] = sum[t][2] = sum[t][3] = 0.0f;
    }
    warp_sums(f, T, g, row_bytes, n_in / 32, step_of(f.type, step), &x, s_, sum);
    BARRIER();
    UNROLL for (int t = 0; t < T; t++)
        UNROLL for (int i = 0; i < 4; i++)
            part[(warp * T * 8 + t * 8 + 2 * p + i % 2) * CODE_ROWS + q + i / 2 * 8] = sum[t][i];
    BARRIER();
    for (int i = item; i < CODE_ROWS * 8 * T; i += f.warps * 32) {
        const int o = g->o0 + i % CODE_ROWS, tok = tok0 + i / CODE_ROWS;
        float all = 0.0f;
        for (int w = 0; w < f.warps; w++)
            all += part[w * T * 8 * CODE_ROWS + i];
        if (o < g->n_out && tok < n_tok)
            store(g->y + (long)tok * y_stride + o, g->bias, o, add, all * scale[tok]);
    }
}

/* For up to T times eight tokens. A step of a row has not more than pitch - 15 bytes. */
#define FEW_CODES(name, type, warps, pitch, stages, T, least_groups)                               \
    KERNEL_OF((warps) * 32, least_groups)                                                          \
    void name(WITH_OPTIONS bytes_t w0, bytes_t w1, bytes_t w2, int n0, int n1, int n2,             \
              long row_bytes, int n_in, int step, GLOBAL const uint *x, GLOBAL const float *scale, \
              int n_tok, GLOBAL const float *b0, GLOBAL const float *b1, GLOBAL const float *b2,   \
              GLOBAL float *y0, GLOBAL float *y1, GLOBAL float *y2, int y_stride, int add)         \
    {                                                                                              \
        LOCAL ALIGNED_16 uint s_[(warps) * (stages) * CODE_ROWS * (pitch) / 4];                    \
        const struct few_group g = few_group_of(w0, w1, w2, n0, n1, n2, b0, b1, b2, y0, y1, y2);   \
        const struct few_form f = { type, warps, pitch, stages };                                  \
        few_codes(f, T, &g, row_bytes, n_in, step, x, scale, n_tok, y_stride, add, s_);            \
    }

/* 8 or 32 tokens at a time; the multiprocessor has room for so many groups of the first */
#define CODES(of, type, warps, pitch, stages, groups)                                              \
    FEW_CODES(codes_8_tok_##of, type, warps, pitch, stages, 1, groups)                             \
    FEW_CODES(codes_32_tok_##of, type, warps, pitch, stages, 4, 16 / (warps))

CODES(q4_0, Q4_0, 8, 176, 2, 3)
CODES(q4_1, Q4_1, 8, 176, 2, 3)
CODES(q5_0, Q5_0, 8, 112, 3, 3)
CODES(q5_1, Q5_1, 8, 112, 3, 3)
CODES(q8_0, Q8_0, 8, 176, 2, 3)
CODES(q4_k, Q4_K, 4, 176, 2, 5)
CODES(q5_k, Q5_K, 4, 176, 2, 5)
CODES(q6_k, Q6_K, 4, 240, 2, 6)
#endif
