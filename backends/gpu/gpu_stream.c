/* SPDX-License-Identifier: MIT */
/* gpu_stream.c - weights that the host has, copied for a prompt one layer ahead. There are two
 * buffers (gpu_share.c says of which size): while a layer multiplies by the weights of one, those
 * of the next layer go into the other, one after each product, in the second queue. A single buffer
 * is the layer's that multiplies: its weights come one product ahead. All chunks of a layer find
 * them. */
#include "gpu_stream.h"

#include <assert.h>
#include <stdlib.h>

#include "base/err.h"

enum state { NAMED, SENT, MET };

struct item {
    const struct weight *w;
    size_t at;
    enum state state;
};

struct half {
    uint8_t *on;       /* [bytes of the stream]; NULL: the other one has the only buffer */
    struct item *item; /* [n] */
    int n;
};

struct gpu_stream {
    struct half half[2];
    size_t bytes; /* of each */
    int last;     /* the one that was named last */
};

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

static int open_halves(struct gpu *g, size_t bytes, int n)
{
    if (!(g->stream = cb_calloc(1, sizeof *g->stream)))
        return CB_ENOMEM;
    g->stream->bytes = bytes;
    cb_gpu_make_room(g, (size_t)n * cb_gpu_aligned(bytes), GPU_WORK);
    for (int i = 0; i < n; i++)
        if (!(g->stream->half[i].on = cb_gpu_alloc(g, bytes)))
            return CB_ENOMEM;
    return CB_OK;
}

/* Names the weights of the next layer; those named two calls before are given up. */
static void name(struct gpu *g, const struct weight *const *w, int n)
{
    struct gpu_stream *s = g->stream;
    struct half *h = &s->half[s->last ^= 1];
    size_t at = 0;

    empty(h);
    if (!(h->item = cb_calloc((size_t)n, sizeof *h->item)))
        return;
    for (int i = 0; i < n; i++) {
        const size_t bytes = cb_gpu_weight_block(w[i]);
        if (at + bytes > s->bytes) /* it has left the device since */
            continue;
        h->item[h->n++] = (struct item){ w[i], at, NAMED };
        at += bytes;
    }
    cb_gpu_ahead_after(g); /* what is queued reads what the buffer has now */
}

static void send(struct gpu *g, struct half *h, struct item *x)
{
    x->state = SENT;
    cb_gpu_weight_send(g, x->w->packed, h->on + x->at, 1);
}

/* The only buffer goes to the layer that multiplies now; what the other one had there is given
 * up. */
static void take_buffer(struct gpu *g, struct half *h)
{
    struct half *from = &g->stream->half[h == g->stream->half];

    h->on = from->on;
    from->on = NULL;
    for (int i = 0; i < from->n; i++)
        from->item[i].state = NAMED;
    cb_gpu_ahead_after(g); /* what is queued reads what the buffer has now */
}

void cb_gpu_stream_next(struct gpu *g)
{
    struct half *h = g->stream ? &g->stream->half[g->stream->last] : NULL;

    if (h && !h->on)
        h = &g->stream->half[!g->stream->last];
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
            if (!h->on)
                take_buffer(g, h);
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

void cb_gpu_weights_ahead(struct device *d, const struct weight *const *w, int n)
{
    const struct weight **those;
    int n_away;

    if (!cb_gpu_of(d)->stream || !(those = cb_calloc((size_t)n + 1, sizeof *those)))
        return;
    n_away = away(w, n, those);
    if (n_away)
        name(cb_gpu_of(d), those, n_away);
    free(those);
}

void cb_gpu_weights_share(struct device *d, const struct layer_weights *layer, int n_layer,
                          int n_tok, uint64_t rows)
{
    struct gpu *g = cb_gpu_of(d);
    struct gpu_share s;

    assert(cb_device_is_mine(d));
    cb_gpu_stream_close(g);
    if (!n_layer || g->status || cb_gpu_share_plan(g, layer, n_layer, n_tok, rows, 0, &s))
        return;
    cb_gpu_share_keep(g, s.n_stay);
    if (s.n_buffer && open_halves(g, s.buffer, s.n_buffer))
        cb_gpu_stream_close(g); /* each product brings its own */
}

int cb_gpu_weights_plan(struct device *d, const struct layer_weights *layer, int n_layer, int n_tok,
                        uint64_t rows, uint64_t more, uint64_t *weights, uint64_t *ahead)
{
    struct gpu_share s;

    assert(cb_device_is_mine(d));
    TRY(cb_gpu_share_plan(cb_gpu_of(d), layer, n_layer, n_tok, rows, more, &s));
    *weights = s.weights;
    *ahead = (uint64_t)s.n_buffer * s.buffer;
    return CB_OK;
}
