/* SPDX-License-Identifier: MIT */
/* state_memory.c - memory that is freed with a state: a list before its first byte. */
#include "state_memory.h"

#include <stdlib.h>
#include <string.h>

#include "bank/pages.h"
#include "base/array.h"
#include "base/err.h"
#include "device/device.h"

enum { HEAD = 64 }; /* bytes before a state: it is as aligned as they are */

struct owned {
    void *p;
    struct device *d; /* whose memory it is; NULL: the host's */
    size_t bytes;
    int pages; /* 1: reserved address space */
};

struct state_head {
    struct owned *list;           /* [n] */
    size_t n, bytes, slots_bytes; /* in all; those of slots */
    int n_ctx;
    int failed;
};

_Static_assert(sizeof(struct state_head) <= HEAD, "the list fits before a state");

static struct state_head *head_of(const void *state)
{
    return (struct state_head *)((uintptr_t)state - HEAD);
}

static void free_one(const struct owned *o)
{
    if (o->pages)
        cb_pages_release(o->p, o->bytes);
    else if (o->d)
        cb_device_free(o->d, o->p);
    else
        free(o->p);
}

static void *own(void *state, struct owned o)
{
    struct state_head *h = head_of(state);

    if (o.p && cb_grow_by_one(&h->list, h->n, sizeof *h->list)) {
        free_one(&o);
        o.p = NULL;
    }
    if (o.p)
        h->list[h->n++] = o;
    h->failed |= !o.p;
    h->bytes += o.p ? o.bytes : 0;
    return o.p;
}

void *cb_state_new(size_t size)
{
    char *p = cb_alloc_aligned(1, HEAD + size);

    if (!p)
        return NULL;
    memset(p, 0, HEAD + size);
    head_of(p + HEAD)->bytes = size;
    return p + HEAD;
}

int cb_state_open(size_t size, int (*open)(struct attention *a, void *state), struct attention *a,
                  void **state)
{
    if (!size)
        return CB_OK;
    if (!(*state = cb_state_new(size)))
        return CB_ENOMEM;
    TRY(open(a, *state));
    return cb_state_status(*state);
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
    return own(state, (struct owned){ cb_alloc_aligned(n, size), .bytes = n * size });
}

void *cb_state_slots(void *state, size_t n_row, int n_ctx, size_t size)
{
    struct state_head *h = head_of(state);

    h->n_ctx = n_ctx;
    h->slots_bytes += n_row * (size_t)n_ctx * size;
    return cb_state_alloc(state, n_row * (size_t)n_ctx, size);
}

void *cb_state_calloc(void *state, size_t n, size_t size)
{
    return own(state, (struct owned){ cb_calloc(n, size), .bytes = n * size });
}

void *cb_state_device(void *state, struct device *d, size_t n, size_t size)
{
    return own(state, (struct owned){ cb_device_alloc(d, n, size), d, n * size, 0 });
}

void *cb_state_pages(void *state, size_t bytes)
{
    void *p;

    return own(state, (struct owned){ cb_pages_reserve(bytes, &p) ? NULL : p, NULL, bytes, 1 });
}

/* The entry of p, which is one of the state's */
static struct owned *entry_of(struct state_head *h, const void *p)
{
    struct owned *o = h->list;

    while (o->p != p)
        o++;
    return o;
}

void *cb_state_realloc(void *state, void *p, size_t n, size_t size)
{
    struct state_head *h = head_of(state);
    void *to = p ? cb_realloc(p, n, size) : cb_state_alloc(state, n, size);
    struct owned *o;

    if (!p || !to)
        return to;
    o = entry_of(h, p);
    h->bytes += n * size - o->bytes;
    *o = (struct owned){ to, .bytes = n * size };
    return to;
}

int cb_state_fit(void *state, void *p, size_t *cap, size_t n, size_t size)
{
    void *at, *to;

    if (n <= *cap)
        return CB_OK;
    memcpy(&at, p, sizeof at);
    if (!(to = cb_state_realloc(state, at, n, size)))
        return CB_ENOMEM;
    memcpy(p, &to, sizeof to);
    *cap = n;
    return CB_OK;
}

void cb_state_drop(void *state, void *p)
{
    struct state_head *h = head_of(state);
    struct owned *o;

    if (!p)
        return;
    o = entry_of(h, p);
    h->bytes -= o->bytes;
    free_one(o);
    *o = h->list[--h->n];
}

int cb_state_status(const void *state)
{
    return head_of(state)->failed ? CB_ENOMEM : CB_OK;
}

size_t cb_state_bytes(const void *state)
{
    return state ? head_of(state)->bytes : 0;
}

size_t cb_state_work(const void *state, int n_most)
{
    const struct state_head *h = state ? head_of(state) : NULL;

    return !h ? 0
           : !h->n_ctx
               ? h->bytes
               : h->bytes - h->slots_bytes + h->slots_bytes / (size_t)h->n_ctx * (size_t)n_most;
}
