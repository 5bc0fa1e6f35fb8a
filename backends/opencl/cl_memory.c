/* SPDX-License-Identifier: MIT */
/* cl_memory.c - memory of an OpenCL device: pieces of it, copies, and operands of ops that lie in
 * the host's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cl.h"

enum { ALIGN = 128, FIRST_STAGE = 256 << 10, DIRECT = 1 << 20 };

/* ---- failures ---- */

static int is_memory(cl_int status)
{
    return status == CL_MEM_OBJECT_ALLOCATION_FAILURE || status == CL_OUT_OF_RESOURCES ||
           status == CL_OUT_OF_HOST_MEMORY;
}

void cb_cl_fail(struct cl *c, const char *what, cl_int status)
{
    if (c->status)
        return;
    c->status = is_memory(status) ? CB_ENOMEM : CB_EIO;
    snprintf(c->error, sizeof c->error, "device %s: %s: %s (OpenCL status %d)", c->name, what,
             is_memory(status) ? "out of memory" : "failed", (int)status);
}

void cb_cl_say(struct cl *c, int bit, const char *text)
{
    char line[256];

    if (c->said >> bit & 1 || !c->log)
        return;
    c->said |= 1u << bit;
    snprintf(line, sizeof line, "device %s: %s", c->name, text);
    c->log(c->log_arg, CB_LOG_NOTE, line);
}

/* ---- pieces of memory ---- */

/* The first block that ends behind p */
static int block_at(const struct cl *c, const void *p)
{
    int lo = 0, hi = c->n_block;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (c->block[mid].p + c->block[mid].bytes <= (const uint8_t *)p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int cb_cl_is_on(const struct cl *c, const void *p)
{
    const int i = block_at(c, p);
    return i < c->n_block && c->block[i].p <= (const uint8_t *)p;
}

size_t cb_cl_room(const struct cl *c)
{
    const uint64_t used = c->traffic.used_bytes, limit = c->traffic.limit_bytes;
    return used < limit ? (size_t)(limit - used) : 0;
}

static int note_block(struct cl *c, uint8_t *p, size_t bytes)
{
    const int at = block_at(c, p);

    if (c->n_block == c->cap_block) {
        const int cap = c->cap_block ? 2 * c->cap_block : 64;
        struct cl_block *b = cb_realloc(c->block, (size_t)cap, sizeof *b);
        if (!b)
            return CB_ENOMEM;
        c->block = b;
        c->cap_block = cap;
    }
    memmove(c->block + at + 1, c->block + at, (size_t)(c->n_block - at) * sizeof *c->block);
    c->block[at] = (struct cl_block){ p, bytes };
    c->n_block++;
    c->traffic.used_bytes += bytes;
    if (c->traffic.used_bytes > c->traffic.peak_bytes)
        c->traffic.peak_bytes = c->traffic.used_bytes;
    return CB_OK;
}

/* The mirror gives way to what must be there. */
void *cb_cl_alloc(struct cl *c, size_t bytes)
{
    uint8_t *p = NULL;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (bytes > cb_cl_room(c) && c->give_way && !c->locked)
        c->give_way(c, bytes);
    if (bytes <= cb_cl_room(c) && bytes <= c->most_block)
        p = clSVMAlloc(c->context, CL_MEM_READ_WRITE, bytes ? bytes : ALIGN, ALIGN);
    if (p && note_block(c, p, bytes)) {
        clSVMFree(c->context, p);
        return NULL;
    }
    if (!p)
        cb_fail(CB_ENOMEM, "device %s: out of memory: %zu bytes, beside %llu of %llu in use",
                c->name, bytes, (unsigned long long)c->traffic.used_bytes,
                (unsigned long long)c->traffic.limit_bytes);
    return p;
}

void cb_cl_free(struct cl *c, void *p)
{
    const int at = block_at(c, p);

    if (!p || at == c->n_block || c->block[at].p != p)
        return;
    clFinish(c->queue);
    clSVMFree(c->context, p);
    c->traffic.used_bytes -= c->block[at].bytes;
    c->n_block--;
    memmove(c->block + at, c->block + at + 1, (size_t)(c->n_block - at) * sizeof *c->block);
}

/* ---- copies ---- */

static void enqueue(struct cl *c, void *to, const void *from, size_t bytes)
{
    cl_int err;

    if (c->status || !bytes)
        return;
    err = clEnqueueSVMMemcpy(c->queue, CL_FALSE, to, from, bytes, 0, NULL, NULL);
    if (err)
        cb_cl_fail(c, "copy", err);
}

void cb_cl_send(struct cl *c, void *to, const void *from, size_t bytes)
{
    c->traffic.in_bytes += bytes;
    enqueue(c, to, from, bytes);
}

void cb_cl_fetch(struct cl *c, void *to, const void *from, size_t bytes)
{
    c->traffic.out_bytes += bytes;
    enqueue(c, to, from, bytes);
}

void cb_cl_move(struct cl *c, void *to, const void *from, size_t bytes)
{
    enqueue(c, to, from, bytes);
}

void cb_cl_finish(struct cl *c)
{
    const cl_int err = clFinish(c->queue);

    if (err)
        cb_cl_fail(c, "wait", err);
}

/* ---- operands ---- */

static void free_stage(struct cl *c, struct cl_stage *s)
{
    for (struct cl_stage *next; s; s = next) {
        next = s->next;
        cb_cl_free(c, s->on);
        free(s->host);
        free(s);
    }
}

static struct cl_stage *new_stage(struct cl *c, size_t bytes)
{
    struct cl_stage *s = cb_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->bytes = bytes;
    s->host = cb_alloc_aligned(bytes, 1);
    s->on = s->host ? cb_cl_alloc(c, bytes) : NULL;
    if (!s->on) {
        free(s->host);
        free(s);
        return NULL;
    }
    return s;
}

/* Room for `bytes` -> its place on the device, and *host beside it */
static uint8_t *take(struct cl *c, size_t bytes, uint8_t **host)
{
    struct cl_stage *s = c->stage;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!s || s->used + bytes > s->bytes) {
        size_t want = s ? 2 * s->bytes : FIRST_STAGE;
        want = want < bytes ? bytes : want;
        want = want > cb_cl_room(c) && bytes < want ? bytes : want;
        s = new_stage(c, want);
        if (!s) {
            if (!c->status) {
                c->status = CB_ENOMEM;
                snprintf(c->error, sizeof c->error, "%s", cb_error());
            }
            return NULL;
        }
        s->next = c->stage;
        c->stage = s;
    }
    s->used += bytes;
    *host = s->host + s->used - bytes;
    return s->on + s->used - bytes;
}

/* Copies in queue order take the place of what was in the stage before, so a bigger piece need not
 * wait for the smaller one to go. */
int cb_cl_stage_fits(const struct cl *c, size_t bytes)
{
    const struct cl_stage *s = c->stage;

    return (s && s->used + bytes + ALIGN <= s->bytes) || bytes + ALIGN <= cb_cl_room(c);
}

void *cb_cl_room_for(struct cl *c, size_t bytes)
{
    uint8_t *host;
    return c->status ? NULL : take(c, bytes, &host);
}

void cb_cl_stage_reserve(struct cl *c, size_t bytes)
{
    uint8_t *host;

    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!c->status && take(c, bytes, &host))
        c->stage->used -= bytes;
}

void *cb_cl_in(struct cl *c, const void *p, size_t bytes)
{
    uint8_t *host, *on;

    if (!p || c->status)
        return NULL;
    if (cb_cl_is_on(c, p))
        return (void *)(uintptr_t)p;
    on = take(c, bytes, &host);
    if (!on)
        return NULL;
    if (bytes >= DIRECT) {
        cb_cl_send(c, on, p, bytes);
        cb_cl_finish(c); /* the caller's memory may change */
    } else {
        memcpy(host, p, bytes);
        cb_cl_send(c, on, host, bytes);
    }
    return on;
}

void cb_cl_back(struct cl *c, void *to, size_t to_stride, const void *from, size_t from_stride,
                size_t bytes, int n)
{
    if (c->n_back < CL_MOST_BACK)
        c->back[c->n_back++] = (struct cl_back){ to, from, bytes, to_stride, from_stride, n };
    else
        cb_cl_fail(c, "results", CL_OUT_OF_RESOURCES);
}

void *cb_cl_out(struct cl *c, void *p, size_t bytes)
{
    void *on;

    if (!p || c->status || cb_cl_is_on(c, p))
        return p;
    on = cb_cl_room_for(c, bytes);
    if (on)
        cb_cl_back(c, p, bytes, on, bytes, bytes, 1);
    return on;
}

void *cb_cl_inout(struct cl *c, void *p, size_t bytes)
{
    void *on;

    if (!p || c->status || cb_cl_is_on(c, p))
        return p;
    on = cb_cl_in(c, p, bytes);
    if (on)
        cb_cl_back(c, p, bytes, on, bytes, bytes, 1);
    return on;
}

void cb_cl_empty_stage(struct cl *c)
{
    if (!c->stage)
        return;
    free_stage(c, c->stage->next);
    c->stage->next = NULL;
    c->stage->used = 0;
}

void cb_cl_done(struct cl *c)
{
    const int n = c->n_back;

    c->n_back = 0;
    for (int i = 0; i < n; i++) {
        const struct cl_back *b = &c->back[i];
        for (int r = 0; r < b->n; r++)
            cb_cl_fetch(c, (char *)b->to + (size_t)r * b->to_stride,
                        b->from + (size_t)r * b->from_stride, b->bytes);
    }
    if (n || c->owes || (c->stage && (c->stage->next || c->stage->used > c->stage->bytes / 2))) {
        cb_cl_finish(c);
        cb_cl_empty_stage(c);
    }
    c->owes = 0;
}

void cb_cl_free_all(struct cl *c)
{
    free_stage(c, c->stage);
    c->stage = NULL;
    while (c->n_block)
        cb_cl_free(c, c->block[0].p);
    free(c->block);
    c->block = NULL;
}

/* ---- operands of ops that the CPU does ---- */

void *cb_cl_to_host(struct cl *c, const void *p, size_t bytes)
{
    void *host;

    if (!p || !cb_cl_is_on(c, p)) {
        cb_cl_finish(c);
        return (void *)(uintptr_t)p;
    }
    host = cb_alloc_aligned(bytes, 1);
    if (!host) {
        cb_cl_fail(c, "copy", CL_OUT_OF_HOST_MEMORY);
        return NULL;
    }
    cb_cl_fetch(c, host, p, bytes);
    cb_cl_finish(c);
    return host;
}

void cb_cl_from_host(struct cl *c, void *p, void *host, size_t bytes)
{
    if (p == host)
        return;
    if (host && bytes) {
        cb_cl_send(c, p, host, bytes);
        cb_cl_finish(c);
    }
    free(host);
}
