/* SPDX-License-Identifier: MIT */
/* codes.cl - what an item of a warp has of a block of quantised weights, as codes and as halves; a
 * part of matmul.cl, for devices where a warp multiplies small matrices of halves at once. */

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
