/* SPDX-License-Identifier: MIT */
/* gpu_constants.c - operands of the host's that most calls find as they were: weights of norms,
 * biases, a token's angles. The device keeps a copy of each; one that differs is copied again. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "gpu.h"

enum { LARGEST = 64 << 10, LEAST_LIMIT = 64 << 20, MOST = 16 << 20 }; /* bytes */
enum { MOST_CONSTANTS = 1024 };

struct gpu_constant {
    const void *p;     /* the host's, as the caller names it */
    size_t bytes, cap; /* that were copied last, 0: not known; that there is room for */
    uint8_t *on, *was; /* on the device; what was copied there */
};

/* Their place on the device, once: a 256th of the working set, none of a small one */
static uint8_t *place(struct gpu *g, size_t bytes)
{
    struct gpu_constants *c = &g->constants;
    const uint64_t part = g->traffic.limit_bytes / 256;
    uint8_t *at;

    if (!c->asked && g->traffic.limit_bytes >= LEAST_LIMIT) {
        c->bytes = part < MOST ? (size_t)part : MOST;
        if (cb_gpu_room(g) > c->bytes + cb_gpu_operand_share(g))
            c->on = cb_gpu_alloc(g, c->bytes);
    }
    c->asked = 1;
    bytes = cb_gpu_aligned(bytes);
    if (!c->on || c->used + bytes > c->bytes)
        return NULL;
    at = c->on + c->used;
    c->used += bytes;
    return at;
}

/* Where the last constant with such an address was found */
static int *hint_of(struct gpu_constants *c, const void *p)
{
    enum { HINTS = sizeof c->hint / sizeof *c->hint };
    return &c->hint[((uintptr_t)p / 64) % HINTS];
}

static struct gpu_constant *find(struct gpu *g, const void *p)
{
    struct gpu_constants *c = &g->constants;
    int *hint = hint_of(c, p);

    if (*hint < c->n && c->one[*hint].p == p)
        return &c->one[*hint];
    for (int i = 0; i < c->n; i++)
        if (c->one[i].p == p) {
            *hint = i;
            return &c->one[i];
        }
    return NULL;
}

static struct gpu_constant *add(struct gpu *g, const void *p, size_t bytes)
{
    struct gpu_constants *c = &g->constants;
    struct gpu_constant one = { .p = p, .cap = bytes };

    if (c->n == MOST_CONSTANTS || cb_grow_by_one(&c->one, c->n, sizeof *c->one))
        return NULL;
    one.was = malloc(bytes);
    one.on = one.was ? place(g, bytes) : NULL;
    if (!one.on) {
        free(one.was);
        return NULL;
    }
    *hint_of(c, p) = c->n;
    c->one[c->n] = one;
    return &c->one[c->n++];
}

void *cb_gpu_constant(struct gpu *g, const void *p, size_t bytes)
{
    struct gpu_constant *c;
    void *host;

    if (!p || g->status || bytes > LARGEST || cb_gpu_is_on(g, p))
        return cb_gpu_in(g, p, bytes);
    c = find(g, p);
    if (c && bytes <= c->bytes && !memcmp(c->was, p, bytes))
        return c->on;
    c = c ? c : add(g, p, bytes);
    if (!c || bytes > c->cap || !cb_gpu_room_beside(g, bytes, &host))
        return cb_gpu_in(g, p, bytes);
    memcpy(host, p, bytes); /* what was there may still be on its way */
    memcpy(c->was, p, bytes);
    c->bytes = bytes;
    cb_gpu_send(g, c->on, host, bytes);
    return c->on;
}

void cb_gpu_constants_forget(struct gpu *g)
{
    for (int i = 0; i < g->constants.n; i++)
        g->constants.one[i].bytes = 0;
}

void cb_gpu_constants_close(struct gpu *g)
{
    for (int i = 0; i < g->constants.n; i++)
        free(g->constants.one[i].was);
    free(g->constants.one);
    g->constants = (struct gpu_constants){ .asked = 1 };
}
