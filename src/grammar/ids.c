/* SPDX-License-Identifier: MIT */
/* ids.c - a hash table of numbers of things. */
#include "ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void cb_ids_init(struct ids *t)
{
    *t = (struct ids){ .key = cb_hash_key() };
}

void cb_ids_free(struct ids *t)
{
    free(t->slot);
    t->slot = NULL;
    t->mask = 0;
}

void cb_ids_clear(struct ids *t)
{
    if (t->mask > 16 * (uint32_t)(t->n + 64)) /* a small one is cleared sooner next time */
        cb_ids_free(t);
    for (uint32_t i = 0; t->slot && i <= t->mask; i++)
        t->slot[i].id = -1;
    t->n = 0;
}

static int grow(struct ids *t)
{
    const uint32_t n = t->slot ? 2 * (t->mask + 1) : 64;
    struct ids_slot *slot = cb_calloc(n, sizeof *slot);

    if (!slot)
        return CB_ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        slot[i].id = -1;
    for (uint32_t i = 0; t->slot && i <= t->mask; i++) {
        uint32_t at = t->slot[i].hash & (n - 1);
        if (t->slot[i].id < 0)
            continue;
        while (slot[at].id >= 0)
            at = (at + 1) & (n - 1);
        slot[at] = t->slot[i];
    }
    free(t->slot);
    t->slot = slot;
    t->mask = n - 1;
    return CB_OK;
}

int32_t cb_ids_find(struct ids *t, uint64_t hash, ids_same_fn same, const void *ctx, int32_t fresh)
{
    const uint32_t h = (uint32_t)hash;
    uint32_t i;

    if (!t->slot || 2 * (uint32_t)t->n > t->mask)
        TRY(grow(t));
    for (i = h & t->mask; t->slot[i].id >= 0; i = (i + 1) & t->mask)
        if (t->slot[i].hash == h && same(ctx, t->slot[i].id))
            return t->slot[i].id;
    t->slot[i] = (struct ids_slot){ h, fresh };
    t->n++;
    return fresh;
}

int32_t cb_ids_look(const struct ids *t, uint64_t hash, ids_same_fn same, const void *ctx)
{
    const uint32_t h = (uint32_t)hash;

    if (!t->slot)
        return -1;
    for (uint32_t i = h & t->mask; t->slot[i].id >= 0; i = (i + 1) & t->mask)
        if (t->slot[i].hash == h && same(ctx, t->slot[i].id))
            return t->slot[i].id;
    return -1;
}
