/* SPDX-License-Identifier: MIT */
/* siphash.c - SipHash-1-3: one round for each word of eight bytes, three at the end. */
#include "siphash.h"

#include <string.h>

#include "clock.h"
#include "random.h"

struct hash_key cb_hash_key(void)
{
    struct hash_key key;

    if (cb_random(&key, sizeof key)) { /* collisions cost time alone: better than no table */
        const double now = cb_now_s();
        memcpy(&key.k[0], &now, sizeof now);
        key.k[1] = (uint64_t)(uintptr_t)&key;
    }
    return key;
}

static inline uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static inline void round_of(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turn(v[1], 13) ^ v[0];
    v[3] = turn(v[3], 16) ^ v[2];
    v[0] = turn(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turn(v[1], 17) ^ v[2];
    v[3] = turn(v[3], 21) ^ v[0];
    v[2] = turn(v[2], 32);
}

static inline void absorb_word(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    round_of(v);
    v[0] ^= word;
}

static inline void begin(const struct hash_key *key, uint64_t v[4])
{
    v[0] = key->k[0] ^ 0x736f6d6570736575u;
    v[1] = key->k[1] ^ 0x646f72616e646f6du;
    v[2] = key->k[0] ^ 0x6c7967656e657261u;
    v[3] = key->k[1] ^ 0x7465646279746573u;
}

/* last: the length in bytes, modulo 256, above the bytes that fill no word */
static inline uint64_t end(uint64_t v[4], uint64_t last)
{
    absorb_word(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        round_of(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* n < 8 bytes as the low bytes of a word; cheaper than a call of memcpy() */
static inline uint64_t rest(const unsigned char *p, size_t n)
{
    uint32_t low, high;

    if (n >= 4) { /* two loads that overlap agree where they do */
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        return low | (uint64_t)high << 8 * (n - 4);
    }
    return n ? p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1) : 0;
}

uint64_t cb_siphash(const struct hash_key *key, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    const uint64_t length = (uint64_t)n << 56;
    uint64_t v[4], word;

    begin(key, v);
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        absorb_word(v, word);
    }
    return end(v, length | rest(p, n));
}

uint64_t cb_siphash_word(const struct hash_key *key, uint64_t word)
{
    uint64_t v[4];

    begin(key, v);
    absorb_word(v, word);
    return end(v, (uint64_t)sizeof word << 56);
}
