/* SPDX-License-Identifier: MIT */
/* gpu_memory.c - memory of an accelerator: pieces of it, copies, and operands of ops that lie in
 * the host's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "gpu.h"

/* Bytes of the first stage, a 64th of the working set within these limits: the larger it is, the
 * fewer ops wait until the queue is empty. */
enum { LEAST_STAGE = 256 << 10, MOST_STAGE = 32 << 20, DIRECT = 1 << 20 };
enum { MANY_HOME = 64 }; /* pieces of rows that all threads bring to the bank */

/* ---- failures ---- */

static void remember(struct gpu *g, int is_memory, const char *what, const char *more)
{
    if (g->status)
        return;
    g->status = is_memory ? CB_ENOMEM : CB_EIO;
    snprintf(g->error, sizeof g->error, "device %s: %s: %s%s", g->name, what,
             is_memory ? "out of memory" : "failed", more);
}

void cb_gpu_fail(struct gpu *g, const char *what, int status)
{
    char why[128], more[136];

    g->driver->explain(g, status, why, sizeof why);
    snprintf(more, sizeof more, " (%s)", why);
    remember(g, g->driver->is_memory(status), what, more);
}

void cb_gpu_fail_memory(struct gpu *g, const char *what)
{
    remember(g, 1, what, "");
}

void cb_gpu_say(struct gpu *g, enum gpu_note note, const char *text)
{
    char line[256];

    if (g->said >> note & 1 || !g->log)
        return;
    g->said |= 1u << note;
    snprintf(line, sizeof line, "device %s: %s", g->name, text);
    g->log(g->log_arg, CB_LOG_NOTE, line);
}

/* ---- pieces of memory ---- */

/* The first block that ends after p */
static int block_at(const struct gpu *g, const void *p)
{
    int lo = 0, hi = g->n_block;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (g->block[mid].p + g->block[mid].bytes <= (const uint8_t *)p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int cb_gpu_is_on(const struct gpu *g, const void *p)
{
    const int i = block_at(g, p);
    return i < g->n_block && g->block[i].p <= (const uint8_t *)p;
}

size_t cb_gpu_room(const struct gpu *g)
{
    const uint64_t used = g->traffic.used_bytes, limit = g->traffic.limit_bytes;
    return used < limit ? (size_t)(limit - used) : 0;
}

static int note_block(struct gpu *g, uint8_t *p, size_t bytes)
{
    const int at = block_at(g, p);

    TRY(cb_grow_by_one(&g->block, g->n_block, sizeof *g->block));
    memmove(g->block + at + 1, g->block + at, (size_t)(g->n_block - at) * sizeof *g->block);
    g->block[at] = (struct gpu_block){ p, bytes };
    g->n_block++;
    g->traffic.used_bytes += bytes;
    if (g->traffic.used_bytes > g->traffic.peak_bytes)
        g->traffic.peak_bytes = g->traffic.used_bytes;
    return CB_OK;
}

static void *refuse(const struct gpu *g, size_t bytes, int status)
{
    char why[128];

    if (status && !g->driver->is_memory(status)) {
        g->driver->explain(g, status, why, sizeof why);
        cb_fail(CB_EIO, "device %s: memory: failed (%s)", g->name, why);
    } else {
        cb_fail(CB_ENOMEM, "device %s: out of memory: %zu bytes, beside %llu of %llu in use",
                g->name, bytes, (unsigned long long)g->traffic.used_bytes,
                (unsigned long long)g->traffic.limit_bytes);
    }
    return NULL;
}

size_t cb_gpu_stage_bytes(const struct gpu *g)
{
    size_t bytes = g->slab.bytes;

    for (const struct gpu_stage *s = g->stage; s; s = s->next)
        bytes += s->bytes;
    return bytes;
}

uint64_t cb_gpu_operands_left(const struct gpu *g)
{
    const uint64_t share = cb_gpu_operand_share(g), has = cb_gpu_stage_bytes(g);

    return has < share ? share - has : 0;
}

static void *alloc(struct gpu *g, size_t bytes, enum gpu_use use)
{
    void *p = NULL;
    int status;

    bytes = cb_gpu_aligned(bytes ? bytes : 1); /* an address of its own even for nothing */
    if (g->make_room)
        g->make_room(g, bytes, use);
    if (bytes > cb_gpu_room(g) || bytes > g->most_block)
        return refuse(g, bytes, 0);
    status = g->driver->alloc(g, bytes, &p);
    if (status)
        return refuse(g, bytes, status);
    if (note_block(g, p, bytes)) {
        g->driver->free(g, p);
        return NULL;
    }
    return p;
}

void *cb_gpu_alloc(struct gpu *g, size_t bytes)
{
    return alloc(g, bytes, GPU_COPIES);
}

void *cb_gpu_alloc_work(struct gpu *g, size_t bytes)
{
    return alloc(g, bytes, GPU_WORK);
}

/* What was asked for before any other command comes before it. */
static void store_new_rows(struct gpu *g)
{
    if (g->new_rows.n)
        g->store_new_rows(g);
}

void cb_gpu_free(struct gpu *g, void *p)
{
    const int at = block_at(g, p);

    if (!p || at == g->n_block || g->block[at].p != p)
        return;
    store_new_rows(g);
    cb_gpu_meet_ahead(g);
    g->driver->finish(g);
    g->driver->free(g, p);
    g->traffic.used_bytes -= g->block[at].bytes;
    g->n_block--;
    memmove(g->block + at, g->block + at + 1, (size_t)(g->n_block - at) * sizeof *g->block);
}

/* ---- copies ---- */

void cb_gpu_rewritten(struct gpu *g, const void *p, size_t bytes)
{
    const struct gpu_split *s = &g->split;
    const uint8_t *from = (const uint8_t *)s->x;

    if (from && (const uint8_t *)p < from + (size_t)s->n * (size_t)s->n_tok * sizeof(float) &&
        from < (const uint8_t *)p + bytes)
        g->split.x = NULL;
}

typedef int (*copy_fn)(struct gpu *g, void *to, const void *from, size_t bytes);

/* In one copy, unless the host's memory is pinned in pieces */
static void copy_pieces(struct gpu *g, copy_fn copy, void *to, const void *from, size_t bytes)
{
    int err = 0;

    for (size_t n; bytes && !err; bytes -= n) {
        n = g->copied_at_once ? g->copied_at_once(g, from, bytes) : bytes;
        n = g->copied_at_once ? g->copied_at_once(g, to, n) : n;
        err = copy(g, to, from, n);
        to = (uint8_t *)to + n;
        from = (const uint8_t *)from + n;
    }
    if (err)
        cb_gpu_fail(g, "copy", err);
}

static void copy_now(struct gpu *g, void *to, const void *from, size_t bytes)
{
    if (g->status || !bytes)
        return;
    cb_gpu_rewritten(g, to, bytes);
    copy_pieces(g, g->driver->copy, to, from, bytes);
}

static void enqueue(struct gpu *g, void *to, const void *from, size_t bytes)
{
    store_new_rows(g);
    copy_now(g, to, from, bytes);
}

static int overlap(const uint8_t *a, const uint8_t *a_end, const void *b, size_t bytes)
{
    const uint8_t *from = b;
    return a < from + bytes && from < a_end;
}

int cb_gpu_is_on_its_way(const struct gpu *g, const void *p, size_t bytes)
{
    const struct gpu_home *h = g->home;
    int i = 0;

    if (!g->n_home || !overlap(g->home_lo, g->home_hi, p, bytes))
        return 0;
    while (i < g->n_home && !overlap(h[i].to, h[i].to + h[i].bytes, p, bytes))
        i++;
    return i < g->n_home;
}

void cb_gpu_settle(struct gpu *g, const void *p, size_t bytes)
{
    if (cb_gpu_is_on_its_way(g, p, bytes))
        cb_gpu_finish(g);
}

void cb_gpu_send(struct gpu *g, void *to, const void *from, size_t bytes)
{
    cb_gpu_settle(g, from, bytes);
    g->traffic.in_bytes += bytes;
    enqueue(g, to, from, bytes);
}

void cb_gpu_fetch(struct gpu *g, void *to, const void *from, size_t bytes)
{
    g->traffic.out_bytes += bytes;
    enqueue(g, to, from, bytes);
}

/* 1: whole rows of the last call that left new ones, which go there too when they are stored */
static int goes_with_new_rows(const struct gpu *g, void *to, const void *from, size_t bytes)
{
    const struct gpu_new_rows *r = &g->new_rows;
    uint64_t(*row)[4] = r->n ? r->host + r->last : NULL;
    const size_t n = r->n ? bytes / r->row : 0, has = (size_t)(r->n - r->last);
    const size_t first = row ? ((uintptr_t)from - row[0][1]) / r->row : 0;
    int full = 0;

    if (!row || (uintptr_t)from < row[0][1] || first >= has || n > has - first)
        return 0;
    for (size_t i = first; i < first + n; i++)
        full |= row[i][3] != 0;
    for (size_t i = 0; !full && i < n; i++)
        row[first + i][row[first + i][2] ? 3 : 2] = (uintptr_t)to + i * r->row;
    return !full;
}

void cb_gpu_move(struct gpu *g, void *to, const void *from, size_t bytes)
{
    if (!goes_with_new_rows(g, to, from, bytes))
        enqueue(g, to, from, bytes);
}

/* The host's memory beside a place in the stage */
static uint8_t *beside(const struct gpu *g, const uint8_t *on)
{
    for (const struct gpu_stage *s = g->stage; s; s = s->next)
        if (on >= s->on && on < s->on + s->bytes)
            return s->host + (on - s->on);
    return NULL;
}

static int note_home(struct gpu *g, uint8_t *to, const uint8_t *from, size_t bytes)
{
    TRY(cb_grow(&g->home, &g->cap_home, (size_t)g->n_home + 1, sizeof *g->home));
    g->home_lo = g->n_home && g->home_lo < to ? g->home_lo : to;
    g->home_hi = g->n_home && g->home_hi > to + bytes ? g->home_hi : to + bytes;
    g->home[g->n_home++] = (struct gpu_home){ to, from, bytes };
    return CB_OK;
}

/* Rows that lie side by side in the stage are copied at once. They stay there until the queue has
 * been waited for. */
static void fetch_now(struct gpu *g)
{
    const struct gpu_home f = g->fetch;

    g->fetch = (struct gpu_home){ 0 };
    if (!f.bytes)
        return;
    for (int i = 0; i < g->new_rows.n; i++)
        if (g->new_rows.host[i][1] - (uintptr_t)f.from < f.bytes)
            store_new_rows(g);
    copy_now(g, f.to, f.from, f.bytes);
    if (g->status)
        g->n_home = g->fetch_home; /* they are not on their way */
}

void cb_gpu_fetch_rows(struct gpu *g, void *to, const void *from, size_t bytes)
{
    uint8_t *host = g->status ? NULL : beside(g, from);
    struct gpu_home *f = &g->fetch;
    const size_t gap = host && f->bytes ? (size_t)(host - (f->to + f->bytes)) : SIZE_MAX;

    if (!host || note_home(g, to, host, bytes)) {
        cb_gpu_fetch(g, to, from, bytes);
        return;
    }
    g->traffic.out_bytes += bytes;
    if (gap < GPU_ALIGN && f->from + f->bytes + gap == (const uint8_t *)from) {
        f->bytes += gap + bytes;
        return;
    }
    fetch_now(g);
    if (g->status)
        return;
    *f = (struct gpu_home){ host, from, bytes };
    g->fetch_home = g->n_home - 1;
}

void cb_gpu_send_ahead(struct gpu *g, void *to, const void *from, size_t bytes)
{
    if (g->status || !bytes)
        return;
    cb_gpu_settle(g, from, bytes);
    g->traffic.in_bytes += bytes;
    g->ahead = 1;
    copy_pieces(g, g->driver->copy_ahead, to, from, bytes);
}

void cb_gpu_ahead_after(struct gpu *g)
{
    store_new_rows(g);
    const int err = g->status ? 0 : g->driver->ahead_after(g);

    g->ahead = 1; /* that queue has a command, also if nothing is sent */
    if (err)
        cb_gpu_fail(g, "copy", err);
}

void cb_gpu_meet_ahead(struct gpu *g)
{
    const int err = g->ahead ? g->driver->after_ahead(g) : 0;

    g->ahead = 0;
    if (err)
        cb_gpu_fail(g, "copy", err);
}

static void bring_home(void *ctx, int i, int thread)
{
    const struct gpu_home *h = (const struct gpu_home *)ctx + i;

    (void)thread;
    memcpy(h->to, h->from, h->bytes);
}

/* par NULL: the calling thread alone brings rows home. */
static void finish(struct gpu *g, struct par *par)
{
    int err;

    pthread_mutex_lock(&g->wait);
    store_new_rows(g);
    fetch_now(g);
    err = g->driver->finish(g);
    g->emptied++;
    g->traffic.waits++;
    if (err)
        cb_gpu_fail(g, "wait", err);
    if (par && !err)
        cb_par_for(par, g->n_home, bring_home, g->home);
    for (int i = 0; !par && i < g->n_home && !err; i++)
        bring_home(g->home, i, 0);
    g->n_home = 0;
    pthread_mutex_unlock(&g->wait);
}

void cb_gpu_finish(struct gpu *g)
{
    finish(g, NULL);
}

void cb_gpu_found_home(struct gpu *g)
{
    const struct gpu_found f = g->found;
    const size_t step = (size_t)f.n + 1, bytes = (size_t)f.n_list * step * sizeof *f.to;
    int32_t *list = f.to && !f.sent ? cb_calloc(bytes, 1) : NULL;

    g->found.to = NULL;
    if (list)
        cb_gpu_fetch(g, list, f.on, bytes);
    else if (f.to && !f.sent)
        cb_gpu_fail_memory(g, "search");
    cb_gpu_finish(g);
    for (int h = 0; list && h < f.n_list; h++)
        memcpy(f.to + (ptrdiff_t)h * f.stride, list + (size_t)h * step + 1,
               (size_t)f.n * sizeof *list);
    free(list);
}

void cb_gpu_logits_home(struct gpu *g)
{
    const struct gpu_logits x = g->logits;

    g->logits.to = NULL;
    for (int h = 0; x.to && h < x.n_head; h++)
        cb_gpu_fetch(g, x.to + (ptrdiff_t)h * x.to_stride, x.on + (ptrdiff_t)h * x.stride,
                     (size_t)x.n * sizeof *x.to);
}

/* ---- operands ---- */

static void free_stage(struct gpu *g, struct gpu_stage *s)
{
    for (struct gpu_stage *next; s; s = next) {
        next = s->next;
        cb_gpu_free(g, s->on);
        g->driver->free_host(g, s->host);
        free(s);
    }
}

static struct gpu_stage *new_stage(struct gpu *g, size_t bytes)
{
    struct gpu_stage *s = cb_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->bytes = bytes = cb_gpu_aligned(bytes);
    s->host = g->driver->alloc_host(g, bytes);
    s->on = s->host ? alloc(g, bytes, GPU_OPERANDS) : NULL;
    if (!s->on) {
        if (!s->host)
            cb_fail(CB_ENOMEM, "device %s: out of host memory", g->name);
        g->driver->free_host(g, s->host);
        free(s);
        return NULL;
    }
    return s;
}

static void *no_memory(struct gpu *g)
{
    if (g->status)
        return NULL;
    g->status = CB_ENOMEM;
    snprintf(g->error, sizeof g->error, "%s", cb_error());
    return NULL;
}

static size_t first_stage(const struct gpu *g)
{
    const uint64_t part = g->traffic.limit_bytes / 64;
    return (size_t)(part < LEAST_STAGE ? LEAST_STAGE : part > MOST_STAGE ? MOST_STAGE : part);
}

/* A stage with room for `bytes`; NULL: no memory */
static struct gpu_stage *stage_for(struct gpu *g, size_t bytes)
{
    struct gpu_stage *s = g->stage;

    if (!s || bytes > cb_gpu_stage_room(g)) {
        const size_t share = (size_t)cb_gpu_operand_share(g);
        size_t want = s ? 2 * s->bytes : first_stage(g);
        want = want > share ? share : want;
        want = want < bytes ? bytes : want;
        want = want > cb_gpu_room(g) && bytes < want ? bytes : want;
        s = new_stage(g, want);
        if (!s)
            return no_memory(g);
        s->next = g->stage;
        g->stage = s;
    }
    return s;
}

/* Room for `bytes` -> its place on the device, and *host beside it */
static uint8_t *stage_piece(struct gpu *g, size_t bytes, uint8_t **host)
{
    struct gpu_stage *s;

    bytes = cb_gpu_aligned(bytes);
    s = stage_for(g, bytes);
    if (!s)
        return NULL;
    s->used += bytes;
    *host = s->host + s->used - bytes;
    return s->on + s->used - bytes;
}

void *cb_gpu_scratch(struct gpu *g, size_t bytes)
{
    struct gpu_stage *s;

    bytes = cb_gpu_aligned(bytes);
    s = g->status ? NULL : stage_for(g, bytes);
    if (!s)
        return NULL;
    s->scratch += bytes;
    return s->on + s->bytes - s->scratch;
}

/* Copies in queue order take the place of what was in the stage before, so a bigger piece need not
 * wait for the smaller one to go. */
int cb_gpu_stage_fits(const struct gpu *g, size_t bytes)
{
    return bytes + GPU_ALIGN <= cb_gpu_stage_room(g) ||
           bytes + GPU_ALIGN <= cb_gpu_room(g) + g->slab.bytes;
}

void *cb_gpu_room_for(struct gpu *g, size_t bytes)
{
    uint8_t *host;
    return g->status ? NULL : stage_piece(g, bytes, &host);
}

void cb_gpu_slab_free(struct gpu *g)
{
    cb_gpu_free(g, g->slab.p);
    g->slab = (struct gpu_block){ 0 };
}

void *cb_gpu_slab(struct gpu *g, size_t bytes)
{
    if (g->status || bytes <= g->slab.bytes)
        return g->slab.p;
    cb_gpu_slab_free(g);
    g->slab.p = alloc(g, bytes, GPU_OPERANDS);
    g->slab.bytes = g->slab.p ? cb_gpu_aligned(bytes) : 0;
    return g->slab.p ? g->slab.p : no_memory(g);
}

void *cb_gpu_room_beside(struct gpu *g, size_t bytes, void **host)
{
    uint8_t *at = NULL, *on = g->status ? NULL : stage_piece(g, bytes, &at);

    *host = at;
    return on;
}

void cb_gpu_stage_reserve(struct gpu *g, size_t bytes)
{
    uint8_t *host;

    bytes = cb_gpu_aligned(bytes);
    if (!g->status && stage_piece(g, bytes, &host))
        g->stage->used -= bytes;
}

void *cb_gpu_in(struct gpu *g, const void *p, size_t bytes)
{
    uint8_t *host, *on;

    if (!p || g->status)
        return NULL;
    if (cb_gpu_is_on(g, p))
        return (void *)(uintptr_t)p;
    cb_gpu_settle(g, p, bytes);
    on = stage_piece(g, bytes, &host);
    if (!on)
        return NULL;
    if (bytes >= DIRECT) {
        cb_gpu_send(g, on, p, bytes);
        cb_gpu_finish(g); /* the caller's memory may change */
    } else {
        memcpy(host, p, bytes);
        cb_gpu_send(g, on, host, bytes);
    }
    return on;
}

void cb_gpu_back(struct gpu *g, void *to, size_t to_stride, const void *from, size_t from_stride,
                 size_t bytes, int n)
{
    if (g->n_back < GPU_MOST_BACK)
        g->back[g->n_back++] = (struct gpu_back){ to, from, bytes, to_stride, from_stride, n };
    else
        cb_gpu_fail_memory(g, "results");
}

void *cb_gpu_out(struct gpu *g, void *p, size_t bytes)
{
    void *on;

    cb_gpu_rewritten(g, p, bytes);
    if (!p || g->status || cb_gpu_is_on(g, p))
        return p;
    on = cb_gpu_room_for(g, bytes);
    if (on)
        cb_gpu_back(g, p, bytes, on, bytes, bytes, 1);
    return on;
}

void *cb_gpu_inout(struct gpu *g, void *p, size_t bytes)
{
    void *on;

    cb_gpu_rewritten(g, p, bytes);
    if (!p || g->status || cb_gpu_is_on(g, p))
        return p;
    on = cb_gpu_in(g, p, bytes);
    if (on)
        cb_gpu_back(g, p, bytes, on, bytes, bytes, 1);
    return on;
}

void cb_gpu_empty_stage(struct gpu *g)
{
    g->split.x = NULL; /* what is known lies there */
    g->found.to = NULL;
    g->logits.to = NULL;
    if (!g->stage)
        return;
    free_stage(g, g->stage->next);
    g->stage->next = NULL;
    g->stage->used = g->stage->scratch = 0;
}

void cb_gpu_done(struct gpu *g)
{
    const int n = g->n_back;

    g->n_back = 0;
    for (int i = 0; i < n; i++) {
        const struct gpu_back *b = &g->back[i];
        for (int r = 0; r < b->n; r++)
            cb_gpu_fetch(g, (char *)b->to + (size_t)r * b->to_stride,
                         b->from + (size_t)r * b->from_stride, b->bytes);
    }
    if (n || g->owes || cb_gpu_stage_ends(g)) {
        cb_gpu_logits_home(g);
        if (g->found.to) /* its place is about to go */
            cb_gpu_found_home(g);
        else
            finish(g, g->n_home > MANY_HOME ? g->host.par : NULL); /* the engine's thread */
        cb_gpu_empty_stage(g);
    }
    if (g->stage)
        g->stage->scratch = 0;
    g->owes = 0;
}

void cb_gpu_free_all(struct gpu *g)
{
    free_stage(g, g->stage);
    g->stage = NULL;
    cb_gpu_slab_free(g);
    while (g->n_block)
        cb_gpu_free(g, g->block[0].p);
    free(g->home);
    free(g->block);
    g->block = NULL;
}

/* ---- operands of ops that the CPU does ---- */

void *cb_gpu_to_host(struct gpu *g, const void *p, size_t bytes)
{
    void *host;

    if (p && !cb_gpu_is_on(g, p))
        cb_gpu_finish(g);
    host = cb_gpu_host_for(g, (void *)(uintptr_t)p, bytes);
    if (host && host != p) {
        cb_gpu_fetch(g, host, p, bytes);
        cb_gpu_finish(g);
    }
    return host;
}

void *cb_gpu_host_for(struct gpu *g, void *p, size_t bytes)
{
    void *host = p && cb_gpu_is_on(g, p) ? cb_alloc_aligned(bytes, 1) : p;

    if (p && !host)
        cb_gpu_fail_memory(g, "copy");
    return host;
}

void cb_gpu_from_host(struct gpu *g, void *p, void *host, size_t bytes)
{
    void *beside = NULL;

    if (p == host)
        return;
    if (host && bytes && bytes < DIRECT && bytes + GPU_ALIGN <= cb_gpu_stage_room(g) &&
        cb_gpu_room_beside(g, bytes, &beside)) {
        memcpy(beside, host, bytes); /* nobody needs to wait for the copy */
        cb_gpu_send(g, p, beside, bytes);
    } else if (host && bytes) {
        cb_gpu_send(g, p, host, bytes);
        cb_gpu_finish(g);
    }
    free(host);
}
