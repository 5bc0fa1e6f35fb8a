/* SPDX-License-Identifier: MIT */
/* gpu_stream.c - weights that the host has, copied for a prompt one layer ahead. There are two
 * buffers: while a layer multiplies by the weights of one, those of the next layer go into the
 * other, one behind each product, in the second queue. All chunks of a layer find them. */
#include "gpu_stream.h"

#include <stdlib.h>

#include "base/err.h"

enum {
    ALIGN = 128,
    SHARE = 3,     /* each has at most a third of what resident weights leave */
    OPERANDS = 16, /* and leaves a sixteenth of the working set to operands */
};

enum state { NAMED, SENT, MET };

struct item {
    const struct weight *w;
    size_t at;
    enum state state;
};

struct half {
    uint8_t *on;
    size_t bytes;
    struct item *item; /* [n] */
    int n;
};

struct gpu_stream {
    struct half half[2];
    int last; /* the one that was named last */
};

/* Bytes of the buffer for these weights; 0: two such do not fit. */
static size_t buffer_bytes(const struct gpu *g, const struct weight *const *w, int n)
{
    const uint64_t left = g->traffic.limit_bytes - g->traffic.weights_bytes;
    size_t bytes = 0;

    for (int i = 0; i < n; i++)
        bytes += (cb_gpu_weight_bytes(w[i]) + ALIGN - 1) / ALIGN * ALIGN;
    return bytes <= left / SHARE && bytes <= g->most_block ? bytes : 0;
}

static void empty(struct half *h)
{
    free(h->item);
    h->item = NULL;
    h->n = 0;
}

void cb_gpu_stream_close(struct gpu *g)
{
    for (int i = 0; g->stream && i < 2; i++) {
        empty(&g->stream->half[i]);
        cb_gpu_free(g, g->stream->half[i].on);
    }
    free(g->stream);
    g->stream = NULL;
}

/* 0: there is no room. Mirrored pages give way, operands keep some. */
static int make_room(struct gpu *g, struct half *h, size_t bytes)
{
    const uint64_t keep = g->traffic.limit_bytes / OPERANDS;

    if (h->bytes >= bytes)
        return 1;
    if (cb_gpu_room(g) + g->traffic.kv_bytes + h->bytes < bytes + keep)
        return 0;
    cb_gpu_free(g, h->on);
    h->on = cb_gpu_alloc(g, bytes);
    h->bytes = h->on ? bytes : 0;
    return h->on != NULL;
}

/* Names the weights of the next layer; those named two calls before are given up. */
static void name(struct gpu *g, const struct weight *const *w, int n)
{
    const size_t bytes = buffer_bytes(g, w, n);
    struct half *h;
    size_t at = 0;

    if (!g->stream && !(g->stream = cb_calloc(1, sizeof *g->stream)))
        return;
    g->stream->last ^= 1;
    h = &g->stream->half[g->stream->last];
    empty(h);
    if (!bytes || !make_room(g, h, bytes) || !(h->item = cb_calloc((size_t)n, sizeof *h->item)))
        return;
    for (int i = 0; i < n; i++) {
        h->item[h->n++] = (struct item){ w[i], at, NAMED };
        at += (cb_gpu_weight_bytes(w[i]) + ALIGN - 1) / ALIGN * ALIGN;
    }
    cb_gpu_ahead_after(g); /* what is queued reads what the buffer has now */
}

static void send(struct gpu *g, struct half *h, struct item *x)
{
    x->state = SENT;
    g->traffic.weights_in_bytes += cb_gpu_weight_bytes(x->w);
    cb_gpu_send_ahead(g, h->on + x->at, x->w->raw, cb_gpu_weight_bytes(x->w));
}

void cb_gpu_stream_next(struct gpu *g)
{
    struct half *h = g->stream ? &g->stream->half[g->stream->last] : NULL;

    for (int i = 0; h && i < h->n; i++)
        if (h->item[i].state == NAMED) {
            send(g, h, &h->item[i]);
            return;
        }
}

/* What is queued from here on finds all that was sent. */
static void meet(struct gpu *g)
{
    cb_gpu_meet_ahead(g);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < g->stream->half[i].n; j++)
            if (g->stream->half[i].item[j].state == SENT)
                g->stream->half[i].item[j].state = MET;
}

const void *cb_gpu_stream_find(struct gpu *g, const struct weight *w)
{
    for (int i = 0; g->stream && i < 2; i++) {
        struct half *h = &g->stream->half[i];
        for (int j = 0; j < h->n; j++) {
            if (h->item[j].w != w)
                continue;
            if (h->item[j].state == NAMED)
                send(g, h, &h->item[j]);
            if (h->item[j].state == SENT)
                meet(g);
            return h->on + h->item[j].at;
        }
    }
    return NULL;
}

/* ---- for the engine ---- */

/* Those of w[n] that are copied in for many tokens -> away; their number */
static int away(const struct weight *const *w, int n, const struct weight **away)
{
    int n_away = 0;

    for (int i = 0; i < n; i++) {
        const struct gpu_weight *cw = w[i]->packed;
        if (cw && !cw->on && cw->program)
            away[n_away++] = w[i];
    }
    return n_away;
}

void cb_gpu_weights_ahead(struct device *d, const struct weight *const *w, int n, int n_tok)
{
    const struct weight **those = cb_calloc((size_t)n + 1, sizeof *those);
    const int n_away = those ? away(w, n, those) : 0;

    if (!n) /* the memory is given back */
        cb_gpu_stream_close(cb_gpu_of(d));
    else if (n_away && n_tok >= STREAM_TOKENS)
        name(cb_gpu_of(d), those, n_away);
    free(those);
}

size_t cb_gpu_weights_room(const struct device *d, const struct weight *const *w, int n)
{
    const struct weight **those = cb_calloc((size_t)n + 1, sizeof *those);
    const size_t bytes = those ? buffer_bytes(cb_gpu_of(d), those, away(w, n, those)) : 0;

    free(those);
    return bytes;
}
