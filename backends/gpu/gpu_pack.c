/* SPDX-License-Identifier: MIT */
/* gpu_pack.c - rows of the bank that go to the device in one copy: the host packs them, the second
 * queue takes them over beside what the device does, and a kernel puts each in its place. */
#include "gpu_pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"

enum { SHARE = 16, LEAST = 64 << 10, PIECE = 256 };

/* A row that is to be copied */
struct job {
    const uint8_t *from;
    uint64_t to;
};

struct jobs {
    struct job *job;
    int n, done;
    size_t cap;
    size_t bytes; /* of a row */
};

struct gpu_pack {
    uint8_t *host, *on;
    size_t bytes;
    struct jobs of[2]; /* keys, values */
    int sent[2];       /* rows that are on their way and not yet in their places */
    uint64_t used;     /* g->emptied when the buffer was last used */
    void **piece;      /* [n_piece] that have places; ends with NULL */
    int n_piece;
    size_t cap_piece;
};

int cb_gpu_pack_open(struct gpu *g)
{
    if (!g->pack && (g->pack = cb_calloc(1, sizeof *g->pack)))
        g->pack->used = UINT64_MAX;
    return g->pack ? CB_OK : CB_ENOMEM;
}

void cb_gpu_pack_close(struct gpu *g)
{
    struct gpu_pack *p = g->pack;

    if (!p)
        return;
    cb_gpu_free(g, p->on);
    g->driver->free_host(g, p->host);
    free(p->of[0].job);
    free(p->of[1].job);
    free(p->piece);
    free(p);
    g->pack = NULL;
}

void cb_gpu_pack_drop(struct gpu *g)
{
    for (int v = 0; g->pack && v < 2; v++)
        g->pack->of[v].n = g->pack->sent[v] = 0;
}

int cb_gpu_pack_reach(struct gpu *g, void *piece)
{
    struct gpu_pack *p = g->pack;

    TRY(cb_grow(&p->piece, &p->cap_piece, (size_t)p->n_piece + 2, sizeof *p->piece));
    p->piece[p->n_piece++] = piece;
    p->piece[p->n_piece] = NULL;
    return CB_OK;
}

void cb_gpu_pack_leave(struct gpu *g, const void *piece)
{
    struct gpu_pack *p = g->pack;
    int i = 0;

    while (i < p->n_piece && p->piece[i] != piece)
        i++;
    if (i == p->n_piece)
        return;
    p->piece[i] = p->piece[--p->n_piece];
    p->piece[p->n_piece] = NULL;
}

int cb_gpu_pack_widths(struct gpu *g, size_t key, size_t value)
{
    struct gpu_pack *p = g->pack;

    if (!p->of[0].n) {
        cb_gpu_pack_place(g);
        p->of[0].bytes = key;
        p->of[1].bytes = value;
    }
    return p->of[0].bytes == key && p->of[1].bytes == value;
}

int cb_gpu_pack_count(const struct gpu *g)
{
    return g->pack->of[0].n;
}

int cb_gpu_pack_add(struct gpu *g, int v, const uint8_t *from, const uint8_t *to)
{
    struct jobs *j = &g->pack->of[v];

    TRY(cb_grow(&j->job, &j->cap, (size_t)j->n + 1, sizeof *j->job));
    j->job[j->n++] = (struct job){ from, (uintptr_t)to };
    return CB_OK;
}

/* The buffer begins with the addresses of the keys and of the values. */
static size_t rows_at(const int n[2], const size_t bytes[2], int v)
{
    const size_t tables = (size_t)(n[0] + n[1]) * sizeof(uint64_t);
    return tables + (v ? (size_t)n[0] * bytes[0] : 0);
}

void cb_gpu_pack_place(struct gpu *g)
{
    enum { ITEMS = 64 };
    struct gpu_pack *p = g->pack;
    struct gpu_program *program;
    size_t bytes[2];

    if (!p || (!p->sent[0] && !p->sent[1]))
        return;
    bytes[0] = p->of[0].bytes, bytes[1] = p->of[1].bytes;
    cb_gpu_meet_ahead(g);
    program = cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 });
    if (!program) {
        cb_gpu_fail_memory(g, "gather");
        return;
    }
    for (int v = 0; v < 2; v++) {
        const int64_t all = (int64_t)p->sent[v] * (int64_t)(bytes[v] / 2);
        const size_t groups[3] = { (size_t)((all + ITEMS - 1) / ITEMS), 1, 1 };
        const struct gpu_arg arg[] = { GPU_P(p->on + rows_at(p->sent, bytes, v)),
                                       GPU_P(p->on + (v ? (size_t)p->sent[0] * 8 : 0)),
                                       GPU_I((int)(bytes[v] / 2)), GPU_L(all) };
        if (all)
            cb_gpu_run(g, program, "scatter", groups, ITEMS, arg, 4, p->piece);
    }
    p->sent[0] = p->sent[1] = 0;
    p->used = g->emptied;
}

static void pack_rows(void *ctx, int i, int thread)
{
    const struct gpu_pack *p = ctx;
    const int v = i >= (p->sent[0] + PIECE - 1) / PIECE;
    const int piece = v ? i - (p->sent[0] + PIECE - 1) / PIECE : i;
    const size_t bytes[2] = { p->of[0].bytes, p->of[1].bytes };
    const struct jobs *j = &p->of[v];
    uint64_t *to = (uint64_t *)(void *)p->host + (v ? p->sent[0] : 0);
    uint8_t *rows = p->host + rows_at(p->sent, bytes, v);

    (void)thread;
    for (int r = piece * PIECE; r < min_int(p->sent[v], (piece + 1) * PIECE); r++) {
        to[r] = j->job[j->done + r].to;
        memcpy(rows + (size_t)r * j->bytes, j->job[j->done + r].from, j->bytes);
    }
}

/* As many rows as the buffer holds */
static void send_piece(struct gpu *g)
{
    struct gpu_pack *p = g->pack;
    const size_t bytes[2] = { p->of[0].bytes, p->of[1].bytes };
    const double start = cb_now_s();
    size_t room = p->bytes;
    int pieces = 0;

    cb_gpu_pack_place(g);
    if (p->used == g->emptied)
        cb_gpu_finish(g); /* the buffer is still read */
    for (int v = 0; v < 2; v++) {
        const size_t left = (size_t)(p->of[v].n - p->of[v].done), each = bytes[v] + 8;
        const size_t most = left ? room / each : 0;
        p->sent[v] = (int)(left < most ? left : most);
        room -= (size_t)p->sent[v] * each;
        pieces += (p->sent[v] + PIECE - 1) / PIECE;
    }
    cb_par_for(g->host.par, pieces, pack_rows, p);
    g->traffic.gather_s += cb_now_s() - start;
    for (int v = 0; v < 2; v++) {
        p->of[v].done += p->sent[v];
        g->traffic.kv_in_bytes += (size_t)p->sent[v] * bytes[v];
    }
    g->traffic.gathers++;
    g->traffic.gathered_rows += (uint64_t)p->sent[0];
    cb_gpu_send_ahead(g, p->on, p->host,
                      rows_at(p->sent, bytes, 1) + (size_t)p->sent[1] * bytes[1]);
}

static int new_buffer(struct gpu *g, size_t bytes)
{
    struct gpu_pack *p = g->pack;

    cb_gpu_pack_place(g);
    cb_gpu_free(g, p->on);
    g->driver->free_host(g, p->host);
    p->host = g->driver->alloc_host(g, bytes);
    p->on = !p->host ? NULL : bytes > LEAST ? cb_gpu_alloc(g, bytes) : cb_gpu_alloc_work(g, bytes);
    p->bytes = p->on ? bytes : 0;
    return p->on ? CB_OK : CB_ENOMEM;
}

/* A buffer that holds all of it, if that is no more than a share of the working set and there is
 * room; else it holds a part. */
static int size_buffer(struct gpu *g, size_t want)
{
    const size_t share = (size_t)(g->traffic.limit_bytes / SHARE);
    const size_t most = share > LEAST ? share : LEAST;

    want = want < LEAST ? LEAST : want < most ? want : most;
    return g->pack->bytes >= want || !new_buffer(g, want) ? CB_OK : new_buffer(g, LEAST);
}

void cb_gpu_pack_send(struct gpu *g)
{
    struct gpu_pack *p = g->pack;
    size_t want = 0;

    for (int v = 0; v < 2; v++)
        want += (size_t)p->of[v].n * (p->of[v].bytes + 8);
    if (want && size_buffer(g, want))
        cb_gpu_fail_memory(g, "gather");
    while (!g->status && (p->of[0].done < p->of[0].n || p->of[1].done < p->of[1].n))
        send_piece(g);
    for (int v = 0; v < 2; v++)
        p->of[v].n = p->of[v].done = 0;
}
