/* SPDX-License-Identifier: MIT */
/* siphash.h - SipHash-1-3 (Aumasson and Bernstein 2012), for tables of keys that a file or a user
 * chooses: without the secret key nobody can make keys collide. */
#ifndef SIPHASH_H
#define SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t k[2];
};

struct hash_key cb_hash_key(void); /* a new random one */
uint64_t cb_siphash(const struct hash_key *key, const void *bytes, size_t n);
uint64_t cb_siphash_word(const struct hash_key *key, uint64_t word); /* of its eight bytes */

#endif
