/* SPDX-License-Identifier: MIT */
/* gpu_lookup.c - what the device is told of lists whose rows it finds and brings: those that the
 * host has, and where those are that a search has found. */
#include "gpu_lookup.h"

#include <string.h>

#include "gpu_lists.h"

enum { GROUPS = 64, ITEMS = 256 }; /* that bring a head's rows; of a group, in cache.cl */

/* As in cache.cl */
struct lookup {
    uint64_t list, place_of, row_of, turn_of, place, missing;
    uint64_t k_host, v_host, k_on, v_on, k_new, v_new;
    int32_t first, n, cap, turn, fresh, n_missing, k_bytes, v_bytes;
};

/* What one copy brings to the device: lookups, then their lists */
struct call {
    struct lookup *of, *on;
    int n;
    int32_t *list, *list_on;
    int used;
    const struct kv_run *last; /* the run whose list was copied last */
};

/* Where the key or value of the fresh row is; 0: the host has it */
static uint64_t new_row(const struct gpu *g, const struct gpu_cache *c, int v)
{
    return c->fresh >= 0 && c->new_at[v] == g->emptied ? (uintptr_t)c->new[v] : 0;
}

/* A run's list on the device: where a search has left it, or in the call's copy */
static const int32_t *list_on(struct gpu *g, struct call *x, const struct kv_run *run)
{
    const int32_t *found = cb_gpu_found_list(g, run);

    if (found)
        return found;
    if (!x->last || x->last->idx != run->idx || x->last->n != run->n) {
        memcpy(x->list + x->used, run->idx, (size_t)run->n * sizeof *run->idx);
        x->used += run->n;
        x->last = run;
    }
    return x->list_on + x->used - run->n;
}

static void describe(struct gpu *g, struct call *x, struct gpu_cache *c)
{
    const struct kv_run *run = c->run;
    struct lookup *l = &x->of[x->n++];
    int32_t *place = cb_gpu_scratch(g, (size_t)run->n * sizeof *place);
    int32_t *missing = cb_gpu_scratch(g, (size_t)(run->n + 1) * 2 * sizeof *missing);
    const size_t keys = (size_t)c->cap * c->k->row_bytes;

    *l = (struct lookup){ .list = (uintptr_t)list_on(g, x, run),
                          .place_of = (uintptr_t)c->place_of,
                          .row_of = (uintptr_t)c->row_of,
                          .turn_of = (uintptr_t)c->turn_of,
                          .place = (uintptr_t)place,
                          .missing = (uintptr_t)missing,
                          .k_host = (uintptr_t)c->k->rows,
                          .v_host = (uintptr_t)c->v->rows,
                          .k_on = (uintptr_t)c->on,
                          .v_on = (uintptr_t)c->on + keys,
                          .k_new = new_row(g, c, 0),
                          .v_new = new_row(g, c, 1),
                          .first = c->first,
                          .n = run->n,
                          .cap = c->cap,
                          .turn = (int32_t)c->turn,
                          .fresh = c->fresh < c->rows ? c->fresh : -1,
                          .k_bytes = (int32_t)c->k->row_bytes,
                          .v_bytes = c->v == c->k ? 0 : (int32_t)c->v->row_bytes };
    c->place = place;
    c->fresh = -1;
}

static void launch(struct gpu *g, const struct call *x)
{
    const size_t lists[3] = { (size_t)x->n, 1, 1 }, rows[3] = { GROUPS, (size_t)x->n, 1 };
    const struct gpu_arg find[] = { GPU_P(x->on), GPU_P(g->came.on) };
    const struct gpu_arg bring[] = { GPU_P(x->on), GPU_I(GROUPS * ITEMS) };

    cb_gpu_run(g, cb_gpu_program(g, GPU_SELECT, (struct gpu_options){ 0 }), "find_places", lists,
               ITEMS, find, 2, NULL);
    cb_gpu_run(g, cb_gpu_program(g, GPU_SELECT, (struct gpu_options){ 0 }), "bring_rows", rows,
               ITEMS, bring, 2, NULL);
    g->came.due = 1;
    g->traffic.gathers++;
}

void cb_gpu_lookup(struct gpu *g, struct gpu_cache *const *c, int n)
{
    struct call x = { 0 };
    size_t entries = 0;
    void *host;

    for (int i = 0; i < n; i++)
        entries += cb_gpu_found_list(g, c[i]->run) ? 0 : (size_t)c[i]->run->n;
    x.on = cb_gpu_room_beside(g, (size_t)n * sizeof *x.on + entries * sizeof *x.list, &host);
    if (!x.on)
        return;
    x.of = host;
    x.list = (int32_t *)(void *)(x.of + n);
    x.list_on = (int32_t *)(void *)(x.on + n);
    for (int i = 0; i < n; i++)
        describe(g, &x, c[i]);
    cb_gpu_send(g, x.on, x.of, (size_t)n * sizeof *x.on + (size_t)x.used * sizeof *x.list);
    launch(g, &x);
}
