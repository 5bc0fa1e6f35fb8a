/* SPDX-License-Identifier: MIT */
/* gpu_chosen.c - rows of the bank that a list has chosen, on the device from one token to the next.
 * The next list brings what the last one did not have: the host packs these rows of all runs, one
 * copy takes them over beside what the device does, and a kernel puts each in its place. */
#include "gpu_chosen.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "gpu_share.h"

enum { SHARE = 8, PACK_SHARE = 16, LEAST_PACK = 64 << 10, SPARE = 64, PIECE = 256 };

/* The rows of one KV head */
struct gpu_chosen {
    struct gpu_area *k, *v; /* the same where a row is both */
    uint8_t *on;            /* [cap] keys, [cap] values unless they are the same */
    int cap, n;
    int32_t *row;   /* [cap] the n rows that are there, ascending */
    int32_t *place; /* [cap] theirs; then those that are free */
    int32_t *row2, *place2, *spare;
    int lacks;     /* what is missing of the last row: 1 the key, 2 the value */
    uint64_t turn; /* p->turn when its list was last replaced */
    struct gpu_chosen *next;
};

/* A row that is to be copied */
struct job {
    const uint8_t *from;
    uint64_t to;
};

struct jobs {
    struct job *job;
    int n, cap, done;
    size_t bytes; /* of a row */
};

struct gpu_pack {
    uint8_t *host, *on;
    size_t bytes;
    struct jobs of[2]; /* keys, values */
    int sent[2];       /* rows that are on their way and not yet in their places */
    uint64_t used;     /* g->emptied when the buffer was last used */
    uint64_t turn;     /* calls of cb_gpu_chosen_bring() */
    struct gpu_chosen *list;
    size_t held; /* bytes of the device's memory that the list has */
};

static void put_in_places(struct gpu *g);

/* ---- memory ---- */

static struct gpu_pack *pack_of(struct gpu *g)
{
    if (!g->pack && (g->pack = cb_calloc(1, sizeof *g->pack)))
        g->pack->used = UINT64_MAX;
    return g->pack;
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
    g->pack->held += more - less;
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
    struct gpu_chosen **at = &g->pack->list;

    if (!c)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->k->chosen = c->v->chosen = NULL;
    note_held(g, 0, (size_t)c->cap * pair_bytes(c->k, c->v));
    cb_gpu_free(g, c->on);
    free_lists(c);
    free(c);
}

void cb_gpu_chosen_unwatch(struct gpu *g, const void *rows)
{
    struct gpu_area *a = cb_gpu_area(g, rows);

    if (a && a->rows == rows && a->chosen) {
        put_in_places(g);
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

    put_in_places(g);
    if (!c)
        return NULL;
    *c = (struct gpu_chosen){ .k = k, .v = v, .cap = cap };
    if (g->pack->held - had + bytes <= g->traffic.limit_bytes / SHARE && bytes <= cb_gpu_spare(g) &&
        !open_lists(c))
        c->on = cb_gpu_alloc(g, bytes);
    if (!c->on) {
        free_lists(c);
        free(c);
        return NULL;
    }
    if (old)
        take_over(g, c, old);
    free_chosen(g, old);
    note_held(g, bytes, 0);
    c->next = g->pack->list;
    g->pack->list = k->chosen = v->chosen = c;
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
    for (struct gpu_chosen *c = g->pack ? g->pack->list : NULL; c; c = c->next)
        c->n = c->lacks = 0;
    for (int v = 0; g->pack && v < 2; v++)
        g->pack->of[v].n = g->pack->sent[v] = 0;
}

void cb_gpu_chosen_close(struct gpu *g)
{
    struct gpu_pack *p = g->pack;

    if (!p)
        return;
    put_in_places(g);
    while (p->list)
        free_chosen(g, p->list);
    cb_gpu_free(g, p->on);
    g->driver->free_host(g, p->host);
    free(p->of[0].job);
    free(p->of[1].job);
    free(p);
    g->pack = NULL;
}

/* ---- one copy ---- */

static int add_job(struct gpu *g, int v, const uint8_t *from, const uint8_t *to)
{
    struct jobs *j = &g->pack->of[v];

    if (j->n == j->cap) {
        const int cap = j->cap ? 2 * j->cap : 256;
        struct job *more = cb_realloc(j->job, (size_t)cap, sizeof *more);
        if (!more)
            return CB_ENOMEM;
        j->job = more;
        j->cap = cap;
    }
    j->job[j->n++] = (struct job){ from, (uintptr_t)to };
    return CB_OK;
}

/* The buffer begins with the addresses of the keys and of the values. */
static size_t rows_at(const int n[2], const size_t bytes[2], int v)
{
    const size_t tables = (size_t)(n[0] + n[1]) * sizeof(uint64_t);
    return tables + (v ? (size_t)n[0] * bytes[0] : 0);
}

/* The rows on their way go to their places, in the order of the queue. */
static void put_in_places(struct gpu *g)
{
    enum { ITEMS = 64 };
    struct gpu_pack *p = g->pack;
    const size_t bytes[2] = { p->of[0].bytes, p->of[1].bytes };
    struct gpu_program *program;
    size_t n_deep = 0;
    void **deep;

    if (!p->sent[0] && !p->sent[1])
        return;
    cb_gpu_meet_ahead(g);
    for (const struct gpu_chosen *c = p->list; c; c = c->next)
        n_deep++;
    program = cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 });
    deep = cb_calloc(n_deep + 1, sizeof *deep);
    if (!deep || !program) {
        cb_gpu_fail_memory(g, "gather");
        free(deep);
        return;
    }
    for (const struct gpu_chosen *c = p->list; c; c = c->next)
        deep[--n_deep] = c->on;
    for (int v = 0; v < 2; v++) {
        const int64_t all = (int64_t)p->sent[v] * (int64_t)(bytes[v] / 2);
        const size_t groups[3] = { (size_t)((all + ITEMS - 1) / ITEMS), 1, 1 };
        const struct gpu_arg arg[] = { GPU_P(p->on + rows_at(p->sent, bytes, v)),
                                       GPU_P(p->on + (v ? (size_t)p->sent[0] * 8 : 0)),
                                       GPU_I((int)(bytes[v] / 2)), GPU_L(all) };
        if (all)
            cb_gpu_run(g, program, "scatter", groups, ITEMS, arg, 4, deep);
    }
    p->sent[0] = p->sent[1] = 0;
    p->used = g->emptied;
    free(deep);
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

    put_in_places(g);
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

    put_in_places(g);
    cb_gpu_free(g, p->on);
    g->driver->free_host(g, p->host);
    p->host = g->driver->alloc_host(g, bytes);
    p->on = !p->host             ? NULL
            : bytes > LEAST_PACK ? cb_gpu_alloc(g, bytes)
                                 : cb_gpu_alloc_work(g, bytes);
    p->bytes = p->on ? bytes : 0;
    return p->on ? CB_OK : CB_ENOMEM;
}

/* A buffer that holds all of it, if that is no more than a share of the working set and there is
 * room; else it holds a part. */
static int size_buffer(struct gpu *g, size_t want)
{
    const size_t share = (size_t)(g->traffic.limit_bytes / PACK_SHARE);
    const size_t most = share > LEAST_PACK ? share : LEAST_PACK;

    want = want < LEAST_PACK ? LEAST_PACK : want < most ? want : most;
    return g->pack->bytes >= want || !new_buffer(g, want) ? CB_OK : new_buffer(g, LEAST_PACK);
}

static void send_jobs(struct gpu *g)
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
        if (!err)
            err = add_job(g, 0, c->k->rows + row * c->k->row_bytes, keys_at(c, c->place2[j]));
        if (!err && c->v != c->k)
            err = add_job(g, 1, c->v->rows + row * c->v->row_bytes, values_at(c, c->place2[j]));
    }
    memcpy(c->place2 + n, c->spare, (size_t)n_spare * sizeof *c->spare);
    swap(&c->row, &c->row2);
    swap(&c->place, &c->place2);
    c->n = n;
    c->lacks = 0;
    return err;
}

/* ---- what attention asks for ---- */

/* The areas of a run with a list, and where its rows begin in them. 0: it has none. */
static int areas_of(const struct gpu *g, const struct kv_run *run, struct gpu_area **k,
                    struct gpu_area **v, int *at)
{
    if (!run->idx || run->kivi || run->given || run->n < 1)
        return 0;
    *k = cb_gpu_area(g, run->k);
    *v = cb_gpu_area(g, run->v);
    if (!*k || !*v)
        return 0;
    *at = (int)((size_t)((const uint8_t *)run->k - (*k)->rows) / (*k)->row_bytes);
    return (const uint8_t *)run->v == (*v)->rows + (size_t)*at * (*v)->row_bytes;
}

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

/* All rows of a copy have the widths of the first. */
static int same_widths(struct gpu *g, const struct gpu_area *k, const struct gpu_area *v)
{
    struct gpu_pack *p = g->pack;

    if (!p->of[0].n) {
        put_in_places(g);
        p->of[0].bytes = k->row_bytes;
        p->of[1].bytes = v->row_bytes;
    }
    return p->of[0].bytes == k->row_bytes && p->of[1].bytes == v->row_bytes;
}

/* Rows that the device has stored since the queue was empty may be on their way to the host. */
static int is_late(const struct gpu *g, const struct gpu_area *a)
{
    return a->stored == g->emptied;
}

void cb_gpu_chosen_bring(struct gpu *g, const struct kv_run *run, int n)
{
    struct gpu_pack *p = pack_of(g);
    int late = 0, err = p ? CB_OK : CB_ENOMEM;

    if (p)
        p->turn++;
    for (int i = 0; !err && i < n && !g->stream_kv; i++) {
        struct gpu_area *k, *v;
        struct gpu_chosen *c;
        int at, had;
        if (!areas_of(g, &run[i], &k, &v, &at) || !is_missing(&run[i], k, v, at))
            continue;
        if (k->chosen && k->chosen->turn == p->turn) /* another query head's list is there */
            continue;
        if (!same_widths(g, k, v) || !(c = with_room(g, k, v, run[i].n + 1)))
            continue;
        c->turn = p->turn;
        had = p->of[0].n;
        err = turn_over(g, c, run[i].idx, run[i].n, at);
        late |= p->of[0].n > had && (is_late(g, k) || is_late(g, v));
    }
    if (err)
        cb_gpu_fail_memory(g, "gather");
    if (late)
        cb_gpu_finish(g);
    if (p)
        send_jobs(g);
}

struct gpu_places cb_gpu_chosen_find(struct gpu *g, const struct kv_run *run)
{
    struct gpu_places none = { 0 };
    const struct gpu_chosen *c;
    struct gpu_area *k, *v;
    int at;

    if (!g->pack || !areas_of(g, run, &k, &v, &at))
        return none;
    c = k->chosen;
    if (!c || c->v != v || c->n != run->n || c->lacks)
        return none;
    for (int j = 0; j < c->n; j++)
        if (c->row[j] != at + run->idx[j])
            return none;
    put_in_places(g);
    return (struct gpu_places){ c->place, keys_at(c, 0), values_at(c, 0), c->on };
}

/* ---- what is stored ---- */

/* Makes room for a row behind all others. 0: there is none. */
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
    put_in_places(g);
    place = c->place[c->n - 1];
    cb_gpu_move(g, part == 1 ? keys_at(c, place) : values_at(c, place), coded, a->row_bytes);
    c->lacks &= ~part;
}
