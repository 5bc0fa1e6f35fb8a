/* SPDX-License-Identifier: MIT */
/* gpu_share.c - how weights, work space and operands share the working set. An eighth of it is left
 * to operands. Weights on the device give way to work space, those that were loaded last first:
 * then the CPU has them. */
#include "gpu_share.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/err.h"
#include "gpu_mirror.h"

/* Weights give way to rows of a prompt: those of two layers, where they take a quarter at most, or
 * of one, where they take half at most */
enum { TWO_LAYERS = 4, ONE_LAYER = 2 };

/* ---- what there is ---- */

uint64_t cb_gpu_spare(const struct gpu *g)
{
    const uint64_t room = cb_gpu_room(g) + (g->locked ? 0 : cb_gpu_mirror_bytes(g));
    const uint64_t keep = cb_gpu_operands_left(g);

    return room > keep ? room - keep : 0;
}

/* ---- weights on the device ---- */

static int note(struct gpu *g, struct gpu_weight *w)
{
    TRY(cb_grow_by_one(&g->weight, g->n_weight, sizeof *g->weight));
    g->weight[g->n_weight++] = w;
    return CB_OK;
}

static void forget(struct gpu *g, const struct gpu_weight *w)
{
    int i = g->n_weight - 1;

    while (i >= 0 && g->weight[i] != w)
        i--;
    if (i < 0)
        return;
    g->n_weight--;
    memmove(g->weight + i, g->weight + i + 1, (size_t)(g->n_weight - i) * sizeof *g->weight);
}

int cb_gpu_weight_load(struct gpu *g, struct gpu_weight *w)
{
    const size_t bytes = cb_gpu_weight_bytes(&w->host);

    TRY(note(g, w));
    w->on = cb_gpu_alloc(g, bytes);
    if (!w->on)
        return CB_ENOMEM;
    g->traffic.weights_bytes += bytes;
    cb_gpu_send(g, w->on, w->host.raw, bytes);
    return CB_OK;
}

/* Whole pages of what the host has are pinned before they are first copied for a prompt, up to a
 * quarter of the machine's memory. Other weights begin and end in the same pages as this one. */
static void pin(struct gpu *g, struct gpu_weight *w)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)w->host.raw;
    const uintptr_t first = (from + page - 1) / page * page;
    const uintptr_t end = (from + cb_gpu_weight_bytes(&w->host)) / page * page;
    const uint64_t most = (uint64_t)sysconf(_SC_PHYS_PAGES) / 4 * page;

    if (w->pinned || w->pin_failed || !g->driver->pin || end <= first ||
        g->pinned_bytes + (end - first) > most)
        return;
    w->pin_failed = g->driver->pin(g, (const void *)first, end - first) != 0;
    if (w->pin_failed)
        return;
    w->pinned = (const uint8_t *)first;
    w->pinned_bytes = end - first;
    g->pinned_bytes += w->pinned_bytes;
}

static void unpin(struct gpu *g, struct gpu_weight *w)
{
    if (!w->pinned)
        return;
    cb_gpu_meet_ahead(g);
    cb_gpu_finish(g);
    g->driver->unpin(g, w->pinned);
    g->pinned_bytes -= w->pinned_bytes;
    w->pinned = NULL;
    w->pinned_bytes = 0;
}

void cb_gpu_weight_send(struct gpu *g, struct gpu_weight *w, void *to, int ahead)
{
    const uint8_t *from = w->host.raw;
    const size_t bytes = cb_gpu_weight_bytes(&w->host);
    size_t cut[4] = { 0, 0, 0, bytes };

    pin(g, w);
    if (w->pinned) {
        cut[1] = (size_t)(w->pinned - from);
        cut[2] = cut[1] + w->pinned_bytes;
    }
    g->traffic.weights_in_bytes += bytes;
    for (int i = 0; i < 3; i++)
        (ahead ? cb_gpu_send_ahead : cb_gpu_send)(g, (uint8_t *)to + cut[i], from + cut[i],
                                                  cut[i + 1] - cut[i]);
}

void cb_gpu_weight_unload(struct gpu *g, struct gpu_weight *w)
{
    forget(g, w);
    unpin(g, w);
    if (!w->on)
        return;
    cb_gpu_free(g, w->on);
    w->on = NULL;
    g->traffic.weights_bytes -= cb_gpu_weight_bytes(&w->host);
}

void cb_gpu_weights_say(struct gpu *g)
{
    cb_gpu_say(g, NOTE_WEIGHTS,
               "not all weights fit into the working set; the CPU multiplies the others");
}

static int to_host(struct gpu *g, struct gpu_weight *w)
{
    TRY(g->host.ops->load(&g->host, &w->host));
    cb_gpu_weight_unload(g, w);
    cb_gpu_weights_say(g);
    return CB_OK;
}

static int is_multiplied(const struct gpu *g, const struct gpu_weight *w)
{
    int is = 0;

    for (int i = 0; i < GPU_AT_ONCE; i++)
        is |= g->multiplied[i] == w;
    return is;
}

/* The last one that the op does not multiply by goes to the CPU. 0: there is none, or the CPU has
 * no memory for it. */
static int last_goes(struct gpu *g)
{
    int i = g->n_weight - 1;

    while (i >= 0 && is_multiplied(g, g->weight[i]))
        i--;
    return i >= 0 && !to_host(g, g->weight[i]);
}

void cb_gpu_share_keep(struct gpu *g, int n_stay)
{
    while (g->n_weight > n_stay && last_goes(g))
        continue;
}

void cb_gpu_make_room(struct gpu *g, size_t bytes, enum gpu_use use)
{
    const size_t left = use == GPU_COPIES ? 0 : (size_t)cb_gpu_operands_left(g);
    const size_t own = use == GPU_OPERANDS ? bytes : 0;
    const size_t want = bytes + (left > own ? left - own : 0);

    if (cb_gpu_room(g) < want)
        cb_gpu_slab_free(g);
    if (cb_gpu_room(g) < want && !g->locked)
        cb_gpu_mirror_give_way(g, want);
    while (use != GPU_COPIES && cb_gpu_room(g) < want && last_goes(g))
        continue;
}

/* ---- a prompt ---- */

/* Bytes that the weights of each layer, which stay with the CPU, take when they are copied in; the
 * layer of each weight on the device is noted. */
static uint64_t *away(const struct layer_weights *layer, int n_layer)
{
    uint64_t *bytes = cb_calloc((size_t)n_layer + 1, sizeof *bytes);

    for (int l = 0; bytes && l < n_layer; l++)
        for (int i = 0; i < layer[l].n; i++) {
            struct gpu_weight *w = layer[l].w[i]->packed;
            if (!w || !w->program)
                continue;
            w->layer = l;
            bytes[l] += w->on ? 0 : cb_gpu_weight_block(&w->host);
        }
    return bytes;
}

static uint64_t largest(const uint64_t *bytes, int n)
{
    uint64_t most = 0;

    for (int i = 0; i < n; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return most;
}

/* The last weight that stays no longer does. */
static void let_go(const struct gpu *g, struct gpu_share *s, uint64_t *used, uint64_t *of_layer,
                   uint64_t *most)
{
    const struct gpu_weight *w = g->weight[--s->n_stay];
    const uint64_t bytes = cb_gpu_weight_block(&w->host);

    s->weights -= cb_gpu_weight_bytes(&w->host);
    *used -= bytes;
    if (w->layer < 0)
        return;
    of_layer[w->layer] += bytes;
    *most = of_layer[w->layer] > *most ? of_layer[w->layer] : *most;
}

/* Lets weights go until what stays, and n_buffer buffers for the others, fit into `room`. 0: they
 * never do */
static int fit(const struct gpu *g, int n_buffer, uint64_t room, uint64_t *of_layer, int n_layer,
               struct gpu_share *s)
{
    const uint64_t n = (uint64_t)n_buffer;
    uint64_t most = largest(of_layer, n_layer), used = 0;

    *s = (struct gpu_share){ .weights = g->traffic.weights_bytes, .n_stay = g->n_weight };
    for (int i = 0; i < g->n_weight; i++)
        used += cb_gpu_weight_block(&g->weight[i]->host);
    while (used + n * most > room && s->n_stay)
        let_go(g, s, &used, of_layer, &most);
    s->buffer = n ? (size_t)most : 0;
    s->n_buffer = most ? n_buffer : 0;
    return used + n * most <= room && s->buffer <= g->most_block;
}

/* What the rows of two layers take, or else of one, which then do not come ahead of need; 0: the
 * CPU attends to a part of them. */
static uint64_t rows_room(const struct gpu *g, uint64_t rows, int n_layer)
{
    const uint64_t takes = cb_gpu_mirror_takes(g, n_layer == 2 ? rows : rows / 2);
    const int part = n_layer == 2 ? TWO_LAYERS : ONE_LAYER;

    return n_layer && takes <= g->traffic.limit_bytes / (uint64_t)part ? takes : 0;
}

/* What a prompt would like to have, the best first. The CPU takes as long for a chunk of 512 tokens
 * that reads a byte of rows as 50 to 100 bytes of weights take to be copied, so rows come first.
 * With two buffers a layer's weights come while the layer before computes; with one they come once
 * for all chunks as well; with none once for each. */
static const struct wish {
    int n_layer, n_buffer; /* whose rows stay */
} wishes[] = { { 2, 2 }, { 1, 2 }, { 2, 1 }, { 1, 1 }, { 2, 0 },
               { 1, 0 }, { 0, 2 }, { 0, 1 }, { 0, 0 } };

enum { N_WISH = sizeof wishes / sizeof *wishes };

int cb_gpu_share_plan(struct gpu *g, const struct layer_weights *layer, int n_layer, int n_tok,
                      uint64_t rows, uint64_t more, struct gpu_share *out)
{
    const uint64_t limit = g->traffic.limit_bytes;
    const int most_buffers = n_tok >= STREAM_TOKENS ? 2 : 0;
    uint64_t beside = g->traffic.used_bytes - cb_gpu_mirror_bytes(g) + cb_gpu_operands_left(g) +
                      cb_gpu_aligned(more);
    int fits = 0;

    for (int i = 0; i < g->n_weight; i++) {
        beside -= cb_gpu_weight_block(&g->weight[i]->host);
        g->weight[i]->layer = -1;
    }
    for (int i = 0; !fits && i < N_WISH; i++) {
        const uint64_t own = rows_room(g, rows, wishes[i].n_layer), taken = beside + own;
        uint64_t *of_layer;
        if (wishes[i].n_buffer > most_buffers || (rows && wishes[i].n_layer && !own))
            continue;
        if (!(of_layer = away(layer, n_layer)))
            return CB_ENOMEM;
        fits =
            fit(g, wishes[i].n_buffer, limit > taken ? limit - taken : 0, of_layer, n_layer, out);
        free(of_layer);
    }
    return CB_OK;
}
