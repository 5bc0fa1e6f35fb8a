/* SPDX-License-Identifier: MIT */
/* splitmix.h - random numbers that a seed makes again (splitmix64; Steele, Lea, Flood 2014). */
#ifndef SPLITMIX_H
#define SPLITMIX_H

#include <stdint.h>

#define SPLITMIX_STEP 0x9e3779b97f4a7c15u

/* The next of the state's numbers */
static inline uint64_t cb_splitmix(uint64_t *state)
{
    uint64_t z = *state += SPLITMIX_STEP;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Number i of the seed's, i below 2^32: in any order */
static inline uint64_t cb_splitmix_at(uint64_t seed, uint64_t i)
{
    uint64_t state = ((seed << 32) + i) * SPLITMIX_STEP;

    return cb_splitmix(&state);
}

#endif
