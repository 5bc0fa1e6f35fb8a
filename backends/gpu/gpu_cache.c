/* SPDX-License-Identifier: MIT */
/* gpu_cache.c - rows of the bank that lists have chosen, in places on the device. Kernels find a
 * list's rows there, and fetch the others from the host's memory, where they push out those whose
 * last list is the oldest (cache.cl). The host sees lists but no rows: it neither looks for them
 * nor packs them. The bank's pages have to be pinned for that, which takes as long as packing a
 * part of them, so lists of gpu_chosen.c have brought that part before. */
#include "gpu_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "gpu_lists.h"
#include "gpu_lookup.h"
#include "gpu_map.h"
#include "gpu_share.h"

enum {
    SHARE = 4,        /* of the working set for all of them */
    LEAST = 64 << 10, /* bytes of a head's keys: fewer are not worth their pages */
    PART = 4,         /* of its rows that lists have brought: then it is worth them */
    SPARE = 64,       /* places beyond a list */
};

struct gpu_caches {
    struct gpu_cache *list;
    size_t held; /* bytes of the device's memory */
    uint64_t turn;
};

static struct gpu_program *program(struct gpu *g)
{
    return cb_gpu_program(g, GPU_SELECT, (struct gpu_options){ 0 });
}

/* ---- memory ---- */

static size_t pair_bytes(const struct gpu_area *k, const struct gpu_area *v)
{
    return k->row_bytes + (v == k ? 0 : v->row_bytes);
}

static void free_cache(struct gpu *g, struct gpu_cache *c)
{
    struct gpu_cache **at = &g->caches->list;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->k->cache = c->v->cache = NULL;
    cb_gpu_free(g, c->on);
    g->caches->held -= c->bytes;
    g->traffic.kv_bytes -= c->bytes;
    free(c);
}

/* Kernels bring none of these rows until lists have brought a part of them again. */
static void give_up(struct gpu *g, struct gpu_area *k, struct gpu_area *v)
{
    if (k->cache)
        free_cache(g, k->cache);
    k->brought = 0;
    cb_gpu_unmap(g, k);
    cb_gpu_unmap(g, v);
}

void cb_gpu_cache_leave(struct gpu *g, const void *rows)
{
    struct gpu_area *a = cb_gpu_area(g, rows);

    if (a && a->cache)
        give_up(g, a->cache->k, a->cache->v);
}

void cb_gpu_cache_close(struct gpu *g)
{
    while (g->caches && g->caches->list)
        give_up(g, g->caches->list->k, g->caches->list->v);
    free(g->caches);
    g->caches = NULL;
    cb_gpu_free(g, (void *)(uintptr_t)g->came.on);
    g->driver->free_host(g, g->came.host);
    g->came = (struct gpu_came){ 0 };
}

static int open_all(struct gpu *g)
{
    struct gpu_came *came = &g->came;

    if (!g->caches)
        g->caches = cb_calloc(1, sizeof *g->caches);
    if (!came->host)
        came->host = g->driver->alloc_host(g, sizeof came->had);
    if (!g->caches || !came->host || came->on)
        return g->caches && came->on;
    came->on = cb_gpu_alloc(g, sizeof came->had);
    memset(came->host, 0, sizeof came->had);
    if (came->on)
        cb_gpu_send(g, (void *)(uintptr_t)came->on, came->host, sizeof came->had);
    return came->on != NULL;
}

/* Places for a list of n: twice as many, or an equal share of the room for all heads */
static int places_for(const struct gpu *g, const struct gpu_area *k, const struct gpu_area *v,
                      int n, int rows)
{
    const uint64_t heads = (uint64_t)cb_gpu_areas(g) / 2 + 1, has = g->caches->held;
    const uint64_t room = cb_gpu_spare(g) + has, all = g->traffic.limit_bytes / SHARE;
    const uint64_t share = (room < all ? room : all) / heads / pair_bytes(k, v);
    const int most = share < 2 * (uint64_t)n ? (int)share : 2 * n;

    return min_int(rows, max_int(n + max_int(SPARE, n / 8), most));
}

static void clear(struct gpu *g, const struct gpu_cache *c)
{
    const int n = max_int(c->rows, c->cap);
    const struct gpu_arg arg[] = { GPU_P(c->place_of), GPU_I(c->rows), GPU_P(c->row_of),
                                   GPU_P(c->turn_of),  GPU_I(c->cap),  GPU_L(n) };

    cb_gpu_run_each(g, program(g), "clear_places", n, arg, 6);
}

/* Room for lists of n of the first `end` rows; NULL: there is none. */
static struct gpu_cache *make(struct gpu *g, struct gpu_area *k, struct gpu_area *v, int n, int end)
{
    struct gpu_cache *c = cb_calloc(1, sizeof *c);
    size_t rows_bytes;

    if (!c)
        return NULL;
    *c = (struct gpu_cache){ .k = k, .v = v, .fresh = -1, .late = 1 };
    c->rows = min_int((int)k->n_row, end + end / 16 + SPARE);
    c->cap = places_for(g, k, v, n, c->rows);
    rows_bytes = cb_gpu_aligned((size_t)c->cap * pair_bytes(k, v));
    c->bytes = cb_gpu_aligned(rows_bytes + (size_t)(c->rows + 2 * c->cap) * sizeof(int32_t));
    if (g->caches->held + c->bytes <= g->traffic.limit_bytes / SHARE && c->bytes <= cb_gpu_spare(g))
        c->on = cb_gpu_alloc(g, c->bytes);
    if (!c->on) {
        free(c);
        return NULL;
    }
    c->place_of = (int32_t *)(void *)(c->on + rows_bytes);
    c->row_of = c->place_of + c->rows;
    c->turn_of = c->row_of + c->cap;
    clear(g, c);
    c->next = g->caches->list;
    g->caches->list = k->cache = v->cache = c;
    g->caches->held += c->bytes;
    g->traffic.kv_bytes += c->bytes;
    return c;
}

/* ---- which runs ---- */

static int is_worth_it(const struct gpu_area *k, int end)
{
    return k->cache || (k->row_bytes * (size_t)end >= LEAST && k->brought >= (uint64_t)end / PART &&
                        !k->map.failed);
}

/* The cache of a run's rows, which has room for its list, if the run is to have one */
static struct gpu_cache *cache_for(struct gpu *g, const struct kv_run *run)
{
    struct gpu_area *k, *v;
    int first, end;

    if (!cb_gpu_run_areas(g, run, &k, &v, &first) ||
        (k->cache && k->cache->turn == g->caches->turn))
        return NULL;
    end = first + cb_gpu_list_end(g, run);
    if (!is_worth_it(k, end) ||
        (cb_gpu_mirror_has_all(g, k, end) && cb_gpu_mirror_has_all(g, v, end)))
        return NULL;
    if (k->cache && (k->cache->v != v || k->cache->cap < run->n || k->cache->rows < end))
        free_cache(g, k->cache);
    if (cb_gpu_map_is_cold(k, end) || cb_gpu_map_is_cold(v, end)) {
        give_up(g, k, v);
        return NULL;
    }
    if (cb_gpu_map(g, k, end) && cb_gpu_map(g, v, end) &&
        (k->cache || make(g, k, v, run->n, end))) {
        cb_gpu_chosen_unwatch(g, k->rows);
        k->cache->turn = g->caches->turn;
        k->cache->run = run, k->cache->first = first;
        return k->cache;
    }
    k->map.failed = 1;
    give_up(g, k, v);
    return NULL;
}

static int ascends(const struct kv_run *run)
{
    for (int j = 1; j < run->n; j++)
        if (run->idx[j] <= run->idx[j - 1])
            return 0;
    return 1;
}

/* ---- lists ---- */

static int is_late(const struct gpu *g, struct gpu_cache *c)
{
    const int late = c->late && (c->k->stored == g->emptied || c->v->stored == g->emptied);

    c->late = 0; /* they are waited for */
    return late;
}

/* May kernels bring the rows of these runs? Query heads with lists of their own share a table. */
static int may_bring(const struct gpu *g, const struct kv_run *run, int n)
{
    int may = g->driver->map && !g->stream_kv;

    for (int i = 1; i < n; i++)
        may = may && run[i].k != run[i - 1].k;
    return may;
}

void cb_gpu_cache_bring(struct gpu *g, const struct kv_run *run, int n)
{
    struct gpu_cache **of;
    int n_of = 0, n_found = 0, late = 0, may;

    if (g->status || !run->idx)
        return;
    may = may_bring(g, run, n) && open_all(g);
    of = may || g->found.to ? cb_calloc((size_t)n, sizeof *of) : NULL;
    if (!of)
        return;
    if (may)
        g->caches->turn++;
    for (int i = 0; i < n; i++) {
        const int is_found = cb_gpu_found_list(g, &run[i]) != NULL;
        struct gpu_cache *c = may && (is_found || ascends(&run[i])) ? cache_for(g, &run[i]) : NULL;
        n_found += is_found && (c || cb_gpu_is_mirrored(g, &run[i]));
        if (!c)
            continue;
        of[n_of++] = c;
        late |= is_late(g, c);
    }
    /* all lists are read: one by each KV head, or the only one by all */
    g->found.used =
        n_found == n && (g->found.sent || g->found.n_list == 1 || n_found == g->found.n_list);
    if (g->found.to && !g->found.used)
        cb_gpu_found_home(g);
    else if (late)
        cb_gpu_finish(g);
    if (n_of)
        cb_gpu_lookup(g, of, n_of);
    free(of);
}

struct gpu_places cb_gpu_cache_find(const struct gpu *g, const struct kv_run *run)
{
    const struct gpu_area *k = g->caches && run->idx ? cb_gpu_area(g, run->k) : NULL;
    const struct gpu_cache *c = k ? k->cache : NULL;

    if (!c || c->turn != g->caches->turn || c->run != run || g->status)
        return (struct gpu_places){ 0 };
    return (struct gpu_places){ .on = c->place,
                                .k = c->on,
                                .v =
                                    c->v == c->k ? c->on : c->on + (size_t)c->cap * c->k->row_bytes,
                                .piece = c->on };
}

/* ---- what is stored ---- */

static void forget(struct gpu *g, const struct gpu_cache *c, int first, int n)
{
    const int rows = min_int(n, c->rows - first);
    const struct gpu_arg arg[] = { GPU_P(c->place_of), GPU_P(c->row_of), GPU_P(c->turn_of),
                                   GPU_I(first), GPU_L(rows) };

    if (rows > 0)
        cb_gpu_run_each(g, program(g), "forget_places", rows, arg, 5);
}

void cb_gpu_cache_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first, int n)
{
    struct gpu_cache *c = a->cache;
    const int v = c && a != c->k;

    if (!c)
        return;
    if (n == 1 && (c->fresh < 0 || c->fresh == first)) {
        c->fresh = first;
        c->new[v] = coded;
        c->new_at[v] = g->emptied;
        return;
    }
    if (c->fresh >= 0)
        forget(g, c, c->fresh, 1);
    forget(g, c, first, n);
    c->fresh = -1;
    c->late = 1;
}
