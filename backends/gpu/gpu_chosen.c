/* SPDX-License-Identifier: MIT */
/* gpu_chosen.c - rows of the bank that a list has chosen, on the device from one token to the next.
 * The next list brings what the last one did not have, of all runs in one copy (gpu_pack.c). */
#include "gpu_chosen.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"
#include "gpu_lists.h"
#include "gpu_pack.h"
#include "gpu_share.h"

enum { SHARE = 8, SPARE = 64 };

/* The rows of one KV head */
struct gpu_chosen {
    struct gpu_area *k, *v; /* the same where a row is both */
    uint8_t *on;            /* [cap] keys, [cap] values unless they are the same */
    int cap, n;
    int32_t *row;   /* [cap] the n rows that are there, ascending */
    int32_t *place; /* [cap] theirs; then those that are free */
    int32_t *row2, *place2, *spare;
    int lacks;     /* what is missing of the last row: 1 the key, 2 the value */
    uint64_t turn; /* that of all when its list was last replaced */
    struct gpu_chosen *next;
};

struct gpu_chosen_all {
    uint64_t turn; /* calls of cb_gpu_chosen_bring() */
    struct gpu_chosen *list;
    size_t held; /* bytes of the device's memory that the list has */
};

/* ---- memory ---- */

static int open_all(struct gpu *g)
{
    TRY(cb_gpu_pack_open(g));
    if (!g->chosen)
        g->chosen = cb_calloc(1, sizeof *g->chosen);
    return g->chosen ? CB_OK : CB_ENOMEM;
}

static size_t pair_bytes(const struct gpu_area *k, const struct gpu_area *v)
{
    return k->row_bytes + (v == k ? 0 : v->row_bytes);
}

static uint8_t *keys_at(const struct gpu_chosen *c, int place)
{
    return c->on + (size_t)place * c->k->row_bytes;
}

static uint8_t *values_at(const struct gpu_chosen *c, int place)
{
    return c->v == c->k ? keys_at(c, place) : keys_at(c, c->cap) + (size_t)place * c->v->row_bytes;
}

static void note_held(struct gpu *g, size_t more, size_t less)
{
    g->chosen->held += more - less;
    g->traffic.kv_bytes += more - less;
}

static void free_lists(struct gpu_chosen *c)
{
    free(c->row);
    free(c->place);
    free(c->row2);
    free(c->place2);
    free(c->spare);
}

static void free_chosen(struct gpu *g, struct gpu_chosen *c)
{
    struct gpu_chosen **at = &g->chosen->list;

    if (!c)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->k->chosen = c->v->chosen = NULL;
    note_held(g, 0, (size_t)c->cap * pair_bytes(c->k, c->v));
    cb_gpu_pack_leave(g, c->on);
    cb_gpu_free(g, c->on);
    free_lists(c);
    free(c);
}

void cb_gpu_chosen_unwatch(struct gpu *g, const void *rows)
{
    struct gpu_area *a = cb_gpu_area(g, rows);

    if (a && a->rows == rows && a->chosen) {
        cb_gpu_pack_place(g);
        free_chosen(g, a->chosen);
    }
}

static int open_lists(struct gpu_chosen *c)
{
    int32_t **const list[] = { &c->row, &c->place, &c->row2, &c->place2, &c->spare };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!(*list[i] = cb_calloc((size_t)c->cap, sizeof **list[i])))
            return CB_ENOMEM;
    for (int i = 0; i < c->cap; i++)
        c->place[i] = i;
    return CB_OK;
}

/* What a smaller one holds */
static void take_over(struct gpu *g, struct gpu_chosen *c, const struct gpu_chosen *old)
{
    cb_gpu_move(g, c->on, old->on, (size_t)old->cap * c->k->row_bytes);
    if (c->v != c->k)
        cb_gpu_move(g, values_at(c, 0), values_at(old, 0), (size_t)old->cap * c->v->row_bytes);
    memcpy(c->row, old->row, (size_t)old->n * sizeof *c->row);
    memcpy(c->place, old->place, (size_t)old->cap * sizeof *c->place);
    c->n = old->n;
    c->lacks = old->lacks;
}

/* All of them have a share of the working set. NULL: there is no room. */
static struct gpu_chosen *make(struct gpu *g, struct gpu_area *k, struct gpu_area *v, int n)
{
    struct gpu_chosen *old = k->chosen, *c = cb_calloc(1, sizeof *c);
    const int cap = n + max_int(SPARE, n / 8);
    const size_t bytes = (size_t)cap * pair_bytes(k, v);
    const size_t had = old ? (size_t)old->cap * pair_bytes(k, v) : 0;

    cb_gpu_pack_place(g);
    if (!c)
        return NULL;
    *c = (struct gpu_chosen){ .k = k, .v = v, .cap = cap };
    if (g->chosen->held - had + bytes <= g->traffic.limit_bytes / SHARE &&
        bytes <= cb_gpu_spare(g) && !open_lists(c))
        c->on = cb_gpu_alloc(g, bytes);
    if (!c->on || cb_gpu_pack_reach(g, c->on)) {
        cb_gpu_free(g, c->on);
        free_lists(c);
        free(c);
        return NULL;
    }
    if (old)
        take_over(g, c, old);
    free_chosen(g, old);
    note_held(g, bytes, 0);
    c->next = g->chosen->list;
    g->chosen->list = k->chosen = v->chosen = c;
    return c;
}

static struct gpu_chosen *with_room(struct gpu *g, struct gpu_area *k, struct gpu_area *v, int n)
{
    struct gpu_chosen *c = k->chosen;

    if (c && (c->k != k || c->v != v))
        return NULL;
    return c && c->cap >= n ? c : make(g, k, v, n);
}

void cb_gpu_chosen_drop(struct gpu *g)
{
    for (struct gpu_chosen *c = g->chosen ? g->chosen->list : NULL; c; c = c->next)
        c->n = c->lacks = 0;
    cb_gpu_pack_drop(g);
}

void cb_gpu_chosen_close(struct gpu *g)
{
    cb_gpu_pack_place(g);
    while (g->chosen && g->chosen->list)
        free_chosen(g, g->chosen->list);
    free(g->chosen);
    g->chosen = NULL;
    cb_gpu_pack_close(g);
}

/* ---- lists ---- */

/* Rows first..last-1 of the list are no longer there; their places are free. */
static void take_out(struct gpu_chosen *c, int first, int last)
{
    const size_t n = (size_t)(last - first), behind = (size_t)(c->n - last);

    if (!n)
        return;
    c->lacks = behind ? c->lacks : 0;
    memcpy(c->spare, c->place + first, n * sizeof *c->spare);
    memmove(c->row + first, c->row + last, behind * sizeof *c->row);
    memmove(c->place + first, c->place + last, behind * sizeof *c->place);
    memcpy(c->place + first + behind, c->spare, n * sizeof *c->place);
    c->n -= (int)n;
}

static void forget(struct gpu_chosen *c, int first, int last)
{
    int from = 0, to;

    while (from < c->n && c->row[from] < first)
        from++;
    for (to = from; to < c->n && c->row[to] <= last;)
        to++;
    take_out(c, from, to);
}

void cb_gpu_chosen_wrote(const struct gpu *g, const void *from, size_t bytes)
{
    const struct gpu_area *a = cb_gpu_area(g, from);
    const uint8_t *p = from;

    if (a && a->chosen && bytes)
        forget(a->chosen, (int)((size_t)(p - a->rows) / a->row_bytes),
               (int)((size_t)(p + bytes - 1 - a->rows) / a->row_bytes));
}

static void swap(int32_t **a, int32_t **b)
{
    int32_t *x = *a;
    *a = *b;
    *b = x;
}

/* Finds the places of the n rows idx[] + at, -1 for those that are not there, and the places that
 * are free then; their number. */
static int compare(struct gpu_chosen *c, const int32_t *idx, int n, int at)
{
    const int complete = c->n - (c->lacks ? 1 : 0);
    int n_spare = 0, i = 0;

    for (int j = 0; j < n; j++) {
        const int row = at + idx[j];
        while (i < c->n && c->row[i] < row)
            c->spare[n_spare++] = c->place[i++];
        c->row2[j] = row;
        c->place2[j] = i < complete && c->row[i] == row ? c->place[i++] : -1;
    }
    while (i < c->cap)
        c->spare[n_spare++] = c->place[i++];
    return n_spare;
}

static int turn_over(struct gpu *g, struct gpu_chosen *c, const int32_t *idx, int n, int at)
{
    int n_spare = compare(c, idx, n, at), err = CB_OK;

    for (int j = 0; j < n; j++) {
        const size_t row = (size_t)c->row2[j];
        if (c->place2[j] >= 0)
            continue;
        c->place2[j] = c->spare[--n_spare];
        c->k->brought++;
        if (!err)
            err =
                cb_gpu_pack_add(g, 0, c->k->rows + row * c->k->row_bytes, keys_at(c, c->place2[j]));
        if (!err && c->v != c->k)
            err = cb_gpu_pack_add(g, 1, c->v->rows + row * c->v->row_bytes,
                                  values_at(c, c->place2[j]));
    }
    memcpy(c->place2 + n, c->spare, (size_t)n_spare * sizeof *c->spare);
    swap(&c->row, &c->row2);
    swap(&c->place, &c->place2);
    c->n = n;
    c->lacks = 0;
    return err;
}

/* ---- what attention asks for ---- */

/* Does the list ascend, and is some row of it not mirrored? */
static int is_missing(const struct kv_run *run, const struct gpu_area *k, const struct gpu_area *v,
                      int at)
{
    int here = 1;

    for (int j = 0; j < run->n; j++) {
        if (j && run->idx[j] <= run->idx[j - 1])
            return 0;
        here = here && cb_gpu_mirror_has(k, at + run->idx[j]) &&
               cb_gpu_mirror_has(v, at + run->idx[j]);
    }
    return !here;
}

/* Rows that the device has stored since the queue was empty may be on their way to the host. */
static int is_late(const struct gpu *g, const struct gpu_area *a)
{
    return a->stored == g->emptied;
}

void cb_gpu_chosen_bring(struct gpu *g, const struct kv_run *run, int n)
{
    int late = 0, err = open_all(g);

    if (!err)
        g->chosen->turn++;
    for (int i = 0; !err && i < n && !g->stream_kv; i++) {
        struct gpu_area *k, *v;
        struct gpu_chosen *c;
        int at, had;
        if (!cb_gpu_run_areas(g, &run[i], &k, &v, &at) || k->cache ||
            cb_gpu_list_stays(g, &run[i]) || !is_missing(&run[i], k, v, at))
            continue;
        if (k->chosen && k->chosen->turn == g->chosen->turn) /* another query head's list */
            continue;
        if (!cb_gpu_pack_widths(g, k->row_bytes, v->row_bytes) ||
            !(c = with_room(g, k, v, run[i].n + 1)))
            continue;
        c->turn = g->chosen->turn;
        had = cb_gpu_pack_count(g);
        err = turn_over(g, c, run[i].idx, run[i].n, at);
        late |= cb_gpu_pack_count(g) > had && (is_late(g, k) || is_late(g, v));
    }
    if (err)
        cb_gpu_fail_memory(g, "gather");
    if (late)
        cb_gpu_finish(g);
    if (g->pack)
        cb_gpu_pack_send(g);
}

struct gpu_places cb_gpu_chosen_find(struct gpu *g, const struct kv_run *run)
{
    struct gpu_places none = { 0 };
    const struct gpu_chosen *c;
    struct gpu_area *k, *v;
    int at;

    if (!g->chosen || !cb_gpu_run_areas(g, run, &k, &v, &at))
        return none;
    c = k->chosen;
    if (!c || c->v != v || c->n != run->n || c->lacks)
        return none;
    for (int j = 0; j < c->n; j++)
        if (c->row[j] != at + run->idx[j])
            return none;
    cb_gpu_pack_place(g);
    return (struct gpu_places){
        .at = c->place, .k = keys_at(c, 0), .v = values_at(c, 0), .piece = c->on
    };
}

/* ---- what is stored ---- */

/* Makes room for a row after all others. 0: there is none. */
static int append(struct gpu_chosen *c, int row)
{
    if (c->lacks)
        take_out(c, c->n - 1, c->n);
    if (c->n == c->cap || (c->n && c->row[c->n - 1] >= row))
        return 0;
    c->row[c->n++] = row;
    c->lacks = c->v == c->k ? 1 : 3;
    return 1;
}

void cb_gpu_chosen_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first, int n)
{
    struct gpu_chosen *c = a->chosen;
    const int part = c && a == c->k ? 1 : 2;
    int place;

    if (!c)
        return;
    if (n > 1 || !c->n || c->row[c->n - 1] != first || !(c->lacks & part)) {
        forget(c, first, first + n - 1);
        if (n > 1 || !c->n || !append(c, first))
            return;
    }
    cb_gpu_pack_place(g);
    place = c->place[c->n - 1];
    cb_gpu_move(g, part == 1 ? keys_at(c, place) : values_at(c, place), coded, a->row_bytes);
    c->lacks &= ~part;
}
