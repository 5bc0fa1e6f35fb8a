/* SPDX-License-Identifier: MIT */
/* ids.h - finds things that lie in an array of the caller's by their content. */
#ifndef IDS_H
#define IDS_H

#include <stdint.h>

#include "base/siphash.h"

struct ids_slot {
    uint32_t hash;
    int32_t id; /* -1 = free */
};

struct ids {
    struct ids_slot *slot; /* [mask + 1], open addressing; NULL before the first use */
    uint32_t mask;
    int n;
    struct hash_key key;
};

/* 1: the caller's thing `id` has the content that is looked for */
typedef int (*ids_same_fn)(const void *ctx, int32_t id);

void cb_ids_init(struct ids *t);
void cb_ids_clear(struct ids *t);
void cb_ids_free(struct ids *t);
/* The id of the thing with this hash and content; if there is none, `fresh` is its id from now on,
 * and returned. CB_ENOMEM */
int32_t cb_ids_find(struct ids *t, uint64_t hash, ids_same_fn same, const void *ctx, int32_t fresh);
/* The same without an entry for what is not there: -1 */
int32_t cb_ids_look(const struct ids *t, uint64_t hash, ids_same_fn same, const void *ctx);

#endif
