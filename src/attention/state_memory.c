/* SPDX-License-Identifier: MIT */
/* state_memory.c - memory that is freed with a state: a list before its first byte. */
#include "state_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "device/device.h"

enum { HEAD = 64 }; /* bytes before a state: it is as aligned as they are */

struct owned {
    void *p;
    struct device *d; /* whose memory it is; NULL: the host's */
};

struct state_head {
    struct owned *list; /* [n] */
    size_t n, bytes;
    int failed;
};

_Static_assert(sizeof(struct state_head) <= HEAD, "the list fits before a state");

static struct state_head *head_of(const void *state)
{
    return (struct state_head *)((uintptr_t)state - HEAD);
}

static void free_one(const struct owned *o)
{
    if (o->d)
        cb_device_free(o->d, o->p);
    else
        free(o->p);
}

static void *own(void *state, void *p, struct device *d, size_t bytes)
{
    struct state_head *h = head_of(state);
    const struct owned o = { p, d };

    if (p && cb_grow_by_one(&h->list, h->n, sizeof *h->list)) {
        free_one(&o);
        p = NULL;
    }
    if (p)
        h->list[h->n++] = o;
    h->failed |= !p;
    h->bytes += bytes;
    return p;
}

void *cb_state_new(size_t size)
{
    char *p = cb_alloc_aligned(1, HEAD + size);

    if (!p)
        return NULL;
    memset(p, 0, HEAD + size);
    return p + HEAD;
}

void cb_state_free(void *state)
{
    struct state_head *h;

    if (!state)
        return;
    h = head_of(state);
    for (size_t i = 0; i < h->n; i++)
        free_one(&h->list[i]);
    free(h->list);
    free(h);
}

void *cb_state_alloc(void *state, size_t n, size_t size)
{
    return own(state, cb_alloc_aligned(n, size), NULL, n * size);
}

void *cb_state_calloc(void *state, size_t n, size_t size)
{
    return own(state, cb_calloc(n, size), NULL, n * size);
}

void *cb_state_device(void *state, struct device *d, size_t n, size_t size)
{
    return own(state, cb_device_alloc(d, n, size), d, n * size);
}

int cb_state_status(const void *state)
{
    return head_of(state)->failed ? CB_ENOMEM : CB_OK;
}

size_t cb_state_bytes(const void *state)
{
    return head_of(state)->bytes;
}
