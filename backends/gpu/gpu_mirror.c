/* SPDX-License-Identifier: MIT */
/* gpu_mirror.c - copies of the bank's rows on the device. Pages of one size lie in slabs, which are
 * allocated as they are needed and the limit allows; then the page that was read longest ago gives
 * way. */
#include "gpu_mirror.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"

enum { LEAST_SLAB = 16, MOST_SLAB = 256 }; /* pages of the smallest slab; slabs */

struct gpu_page {
    uint8_t *at;
    struct gpu_area *area; /* NULL: free */
    int index;             /* in the area */
    int n;                 /* rows that are as the host has them */
    struct gpu_read last;  /* its layer may be the one that it was brought for */
    struct gpu_page *newer, *older;
};

struct gpu_mirror {
    struct gpu_area **area; /* in ascending order of address */
    int n_area;
    int slab_pages;                   /* a 64th of the working set */
    struct gpu_page *slab[MOST_SLAB]; /* [slab_pages] each */
    void *piece[MOST_SLAB + 1];       /* their memory; ends with NULL */
    int n_slab;
    int full;                    /* 1: a slab was refused */
    const struct gpu_area *turn; /* of cb_gpu_mirror_turn(), in feed turn_feed */
    uint64_t turn_feed;
    struct gpu_page *newest, *oldest;
    uint64_t op;
    uint64_t layer, layer_feed; /* layers that have begun; the feed of the last one that did */
    int brought;                /* 1: pages may be on their way, ahead of need */
};

/* ---- the order of use ---- */

static void unlink_page(struct gpu_mirror *m, struct gpu_page *p)
{
    *(p->newer ? &p->newer->older : &m->newest) = p->older;
    *(p->older ? &p->older->newer : &m->oldest) = p->newer;
    p->newer = p->older = NULL;
}

static void link_newest(struct gpu_mirror *m, struct gpu_page *p)
{
    p->older = m->newest;
    *(m->newest ? &m->newest->newer : &m->oldest) = p;
    m->newest = p;
}

static void link_oldest(struct gpu_mirror *m, struct gpu_page *p)
{
    p->newer = m->oldest;
    *(m->oldest ? &m->oldest->older : &m->newest) = p;
    m->oldest = p;
}

static struct gpu_read now(const struct gpu *g)
{
    return (struct gpu_read){ g->feed, g->mirror->op, g->mirror->layer };
}

static void touch(struct gpu *g, struct gpu_page *p)
{
    unlink_page(g->mirror, p);
    link_newest(g->mirror, p);
    p->last = now(g);
}

/* A page hears of the reading of its area as a whole. 1: it was younger than it knew. */
static int hear(struct gpu_mirror *m, struct gpu_page *p)
{
    const struct gpu_again *again = p->area ? &p->area->again : NULL;
    uint64_t layer = p->last.layer;

    if (!again || p->index < again->lo || p->index >= again->hi || again->last.op <= p->last.op)
        return 0;
    layer = layer > again->last.layer ? layer : again->last.layer;
    p->last = again->last;
    p->last.layer = layer;
    unlink_page(m, p);
    link_newest(m, p);
    return 1;
}

/* The page that was read longest ago */
static struct gpu_page *oldest(struct gpu_mirror *m)
{
    while (m->oldest && hear(m, m->oldest))
        ;
    return m->oldest;
}

/* Only pages lo..hi-1 are read again as a whole; the others hear of the last time. */
static void set_again(struct gpu_mirror *m, struct gpu_area *a, int lo, int hi)
{
    struct gpu_again *again = &a->again;

    for (int i = again->lo; i < lo && i < again->hi; i++)
        hear(m, a->page[i]);
    for (int i = hi > again->lo ? hi : again->lo; i < again->hi; i++)
        hear(m, a->page[i]);
    again->lo = lo;
    again->hi = hi;
}

/* A page is gone, or no longer full. */
static void not_full(struct gpu_mirror *m, struct gpu_area *a, int index)
{
    struct gpu_again *again = &a->again;

    if (index < again->full_lo || index >= again->full_hi)
        return;
    if (index < again->hi)
        set_again(m, a, again->lo, index > again->lo ? index : again->lo);
    again->full_hi = index;
}

/* A page whose rows nobody wants: it gives way first. */
static void drop(struct gpu_mirror *m, struct gpu_page *p)
{
    if (!p->area)
        return;
    not_full(m, p->area, p->index);
    p->area->page[p->index] = NULL;
    p->area->at[p->index] = 0;
    p->area = NULL;
    unlink_page(m, p);
    link_oldest(m, p);
}

/* ---- slabs ---- */

static int add_slab(struct gpu *g)
{
    struct gpu_mirror *m = g->mirror;
    const size_t bytes = (size_t)m->slab_pages * GPU_PAGE;
    struct gpu_page *slab;
    uint8_t *at;

    if (m->full || m->n_slab == MOST_SLAB || cb_gpu_room(g) < bytes + cb_gpu_operands_left(g))
        return 0;
    slab = cb_calloc((size_t)m->slab_pages, sizeof *slab);
    at = slab ? cb_gpu_alloc(g, bytes) : NULL;
    if (!at) {
        free(slab);
        m->full = 1;
        return 0;
    }
    g->traffic.kv_bytes += bytes;
    m->slab[m->n_slab] = slab;
    m->piece[m->n_slab++] = at;
    m->piece[m->n_slab] = NULL;
    for (int i = 0; i < g->mirror->slab_pages; i++) {
        slab[i].at = at + (size_t)i * GPU_PAGE;
        link_oldest(m, &slab[i]);
    }
    return 1;
}

static void drop_slab(struct gpu *g)
{
    struct gpu_mirror *m = g->mirror;
    struct gpu_page *slab = m->slab[m->n_slab - 1];

    for (int i = 0; i < g->mirror->slab_pages; i++) {
        drop(m, &slab[i]);
        unlink_page(m, &slab[i]);
    }
    cb_gpu_free(g, m->piece[--m->n_slab]);
    g->traffic.kv_bytes -= (uint64_t)m->slab_pages * GPU_PAGE;
    m->piece[m->n_slab] = NULL;
    free(slab);
}

void cb_gpu_mirror_give_way(struct gpu *g, size_t bytes)
{
    while (g->mirror && g->mirror->n_slab && bytes > cb_gpu_room(g))
        drop_slab(g);
}

uint64_t cb_gpu_mirror_bytes(const struct gpu *g)
{
    const struct gpu_mirror *m = g->mirror;
    return m ? (uint64_t)m->n_slab * (uint64_t)m->slab_pages * GPU_PAGE : 0;
}

int cb_gpu_mirror_open(struct gpu *g)
{
    const uint64_t share = g->traffic.limit_bytes / 64 / GPU_PAGE;

    g->mirror = cb_calloc(1, sizeof *g->mirror);
    if (!g->mirror)
        return CB_ENOMEM;
    g->mirror->slab_pages = share > LEAST_SLAB ? (int)share : LEAST_SLAB;
    return CB_OK;
}

/* Pages that no layer from this one on has used */
static void drop_before(struct gpu_mirror *m, uint64_t layer)
{
    for (int s = 0; s < m->n_slab; s++)
        for (int i = 0; i < m->slab_pages; i++) {
            struct gpu_page *p = &m->slab[s][i];
            hear(m, p);
            if (p->last.layer < layer)
                drop(m, p);
        }
}

void cb_gpu_mirror_drop(struct gpu *g)
{
    drop_before(g->mirror, UINT64_MAX);
}

void *const *cb_gpu_mirror_pieces(const struct gpu *g)
{
    return g->mirror->piece;
}

uint64_t cb_gpu_mirror_takes(const struct gpu *g, uint64_t rows)
{
    const uint64_t slab = (uint64_t)g->mirror->slab_pages * GPU_PAGE;
    return rows ? (rows / 4 * 5 / slab + 2) * slab : 0;
}

/* ---- areas ---- */

/* The first area that ends after p */
static int area_at(const struct gpu_mirror *m, const void *p)
{
    int lo = 0, hi = m->n_area;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        const struct gpu_area *a = m->area[mid];
        if (a->rows + a->row_bytes * a->n_row <= (const uint8_t *)p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct gpu_area *cb_gpu_area(const struct gpu *g, const void *p)
{
    const struct gpu_mirror *m = g->mirror;
    const int i = area_at(m, p);

    return i < m->n_area && m->area[i]->rows <= (const uint8_t *)p ? m->area[i] : NULL;
}

int cb_gpu_areas(const struct gpu *g)
{
    return g->mirror->n_area;
}

static void free_area(struct gpu_area *a)
{
    free(a->page);
    free(a->at);
    free(a);
}

int cb_gpu_watch(struct gpu *g, const void *rows, size_t row_bytes, size_t n_row)
{
    struct gpu_mirror *m = g->mirror;
    const int at = area_at(m, rows);
    struct gpu_area *a;

    if (row_bytes > GPU_PAGE) /* it is copied at each use */
        return CB_OK;
    TRY(cb_grow_by_one(&m->area, m->n_area, sizeof *m->area));
    a = cb_calloc(1, sizeof *a);
    if (!a)
        return CB_ENOMEM;
    *a = (struct gpu_area){
        .rows = rows, .row_bytes = row_bytes, .n_row = n_row, .stored = UINT64_MAX
    };
    while ((row_bytes << (a->shift + 1)) <= GPU_PAGE)
        a->shift++;
    a->n_page = (int)((n_row + ((size_t)1 << a->shift) - 1) >> a->shift);
    a->page = cb_calloc((size_t)a->n_page + 1, sizeof *a->page);
    a->at = cb_calloc((size_t)a->n_page + 1, sizeof *a->at);
    if (!a->page || !a->at) {
        free_area(a);
        return CB_ENOMEM;
    }
    memmove(m->area + at + 1, m->area + at, (size_t)(m->n_area - at) * sizeof *m->area);
    m->area[at] = a;
    m->n_area++;
    return CB_OK;
}

void cb_gpu_unwatch(struct gpu *g, const void *rows)
{
    struct gpu_mirror *m = g->mirror;
    const int at = area_at(m, rows);
    struct gpu_area *a = at < m->n_area ? m->area[at] : NULL;

    if (!a || a->rows != rows)
        return;
    for (int i = 0; i < a->n_page; i++)
        if (a->page[i])
            drop(m, a->page[i]);
    cb_gpu_meet_ahead(g);
    cb_gpu_finish(g); /* a copy from there may be on its way */
    free_area(a);
    m->n_area--;
    memmove(m->area + at, m->area + at + 1, (size_t)(m->n_area - at) * sizeof *m->area);
}

void cb_gpu_wrote(struct gpu *g, const void *from, size_t bytes)
{
    struct gpu_area *a = cb_gpu_area(g, from);
    int first, last;

    if (!a || !bytes)
        return;
    first = (int)((size_t)((const uint8_t *)from - a->rows) / a->row_bytes);
    last = (int)((size_t)((const uint8_t *)from + bytes - 1 - a->rows) / a->row_bytes);
    for (int i = first >> a->shift; i <= last >> a->shift && i < a->n_page; i++) {
        const int rows = first - (i << a->shift);
        if (a->page[i] && a->page[i]->n > (rows > 0 ? rows : 0)) {
            a->page[i]->n = rows > 0 ? rows : 0;
            not_full(g->mirror, a, i);
        }
    }
}

void cb_gpu_mirror_close(struct gpu *g)
{
    struct gpu_mirror *m = g->mirror;

    if (!m)
        return;
    while (m->n_slab)
        drop_slab(g);
    for (int i = 0; i < m->n_area; i++)
        free_area(m->area[i]);
    free(m->area);
    free(m);
    g->mirror = NULL;
}

/* ---- pages ---- */

void cb_gpu_mirror_begin(struct gpu *g)
{
    struct gpu_mirror *m = g->mirror;

    m->op++;
    if (m->brought)
        cb_gpu_meet_ahead(g);
    m->brought = 0;
}

void cb_gpu_mirror_turn(struct gpu *g, const struct gpu_area *a)
{
    struct gpu_mirror *m = g->mirror;

    if (!g->stream_kv || (a == m->turn && g->feed == m->turn_feed))
        return;
    /* what was brought for this layer and the next one stays */
    drop_before(m, m->layer_feed == g->feed ? m->layer : UINT64_MAX);
    m->turn = a;
    m->turn_feed = g->feed;
}

static int may_go(const struct gpu *g, const struct gpu_page *p, enum gpu_need need)
{
    if (!p->area)
        return 1;
    if (need == GPU_CHOSEN)
        return 0;
    return need == GPU_MUST ? p->last.op != g->mirror->op : p->last.feed + 1 < g->feed;
}

static void take_page(struct gpu *g, struct gpu_page *p, struct gpu_area *a, int index)
{
    drop(g->mirror, p);
    p->area = a;
    p->index = index;
    p->n = 0;
    a->page[index] = p;
    a->at[index] = (uintptr_t)p->at;
    touch(g, p);
}

static struct gpu_page *place(struct gpu *g, struct gpu_area *a, int index, enum gpu_need need)
{
    struct gpu_mirror *m = g->mirror;
    struct gpu_page *p = oldest(m);

    if ((!p || p->area) && add_slab(g))
        p = m->oldest;
    if (!p || !may_go(g, p, need))
        return NULL;
    take_page(g, p, a, index);
    return p;
}

uint8_t *cb_gpu_mirror_page(struct gpu *g, struct gpu_area *a, int index, int end,
                            enum gpu_need need)
{
    const int first = index << a->shift;
    const int n = end - first < 1 << a->shift ? end - first : 1 << a->shift;
    struct gpu_page *p = a->page[index];

    if (!p)
        p = place(g, a, index, need);
    if (!p)
        return NULL;
    if (need == GPU_CHOSEN) {
        hear(g->mirror, p);
        p->last.op = g->mirror->op;
    } else {
        touch(g, p);
    }
    if (p->n < n) {
        g->traffic.kv_in_bytes += a->row_bytes * (size_t)(n - p->n);
        cb_gpu_send(g, p->at + a->row_bytes * (size_t)p->n,
                    a->rows + a->row_bytes * (size_t)(first + p->n),
                    a->row_bytes * (size_t)(n - p->n));
        p->n = n;
    }
    return p->at;
}

/* ---- pages that are read again ---- */

int cb_gpu_mirror_again(struct gpu *g, struct gpu_area *a, int page, int n)
{
    struct gpu_again *again = &a->again;
    const int hi = page + n - 1 < again->full_hi ? page + n - 1 : again->full_hi;

    if (page < again->full_lo || hi <= page)
        return 0;
    set_again(g->mirror, a, page, hi);
    again->last = now(g);
    return hi - page;
}

void cb_gpu_mirror_found(struct gpu *g, struct gpu_area *a, int page, int n)
{
    struct gpu_again *again = &a->again;
    const int hi = page + n - 1;

    if (page < again->full_lo || page > again->full_hi) { /* far from the others */
        set_again(g->mirror, a, page, page);
        again->full_lo = page;
        again->full_hi = hi;
    }
    again->full_hi = hi > again->full_hi ? hi : again->full_hi;
}

/* ---- ahead of need ---- */

void cb_gpu_mirror_next_layer(struct gpu *g)
{
    g->mirror->layer++;
    g->mirror->layer_feed = g->feed;
    if (g->stream_kv)
        drop_before(g->mirror, g->mirror->layer);
}

int cb_gpu_mirror_capacity(const struct gpu *g)
{
    const struct gpu_mirror *m = g->mirror;
    const size_t slab = (size_t)m->slab_pages * GPU_PAGE, keep = (size_t)cb_gpu_operands_left(g);
    const size_t room = cb_gpu_room(g), more = room > keep ? (room - keep) / slab : 0;
    const size_t most = (size_t)(MOST_SLAB - m->n_slab);

    return (m->n_slab + (m->full ? 0 : (int)(more < most ? more : most))) * m->slab_pages;
}

int cb_gpu_mirror_bring(struct gpu *g, struct gpu_area *a, int index, int end)
{
    const int first = index << a->shift;
    const int n = end - first < 1 << a->shift ? end - first : 1 << a->shift;
    struct gpu_mirror *m = g->mirror;
    struct gpu_page *p = a->page[index];
    size_t bytes;

    if (!p) {
        p = oldest(m);
        if ((!p || p->area) && add_slab(g))
            p = m->oldest;
        if (!p || (p->area && p->last.layer >= m->layer))
            return 0;
        take_page(g, p, a, index);
    }
    touch(g, p);
    p->last.layer = m->layer + 1;
    if (p->n >= n)
        return 1;
    bytes = a->row_bytes * (size_t)(n - p->n);
    g->traffic.kv_in_bytes += bytes;
    g->traffic.kv_ahead_bytes += bytes;
    cb_gpu_send_ahead(g, p->at + a->row_bytes * (size_t)p->n,
                      a->rows + a->row_bytes * (size_t)(first + p->n), bytes);
    p->n = n;
    m->brought = 1;
    return 1;
}

int cb_gpu_mirror_has(const struct gpu_area *a, int row)
{
    const struct gpu_page *p = a->page[row >> a->shift];
    return p && row - (p->index << a->shift) < p->n;
}

int cb_gpu_mirror_has_all(struct gpu *g, struct gpu_area *a, int end)
{
    const int n_page = ((end - 1) >> a->shift) + 1;
    int i = a->again.full_lo ? 0 : a->again.full_hi;

    while (i < n_page - 1 && cb_gpu_mirror_has(a, ((i + 1) << a->shift) - 1))
        i++;
    if (i < n_page - 1 || !cb_gpu_mirror_has(a, end - 1))
        return 0;
    cb_gpu_mirror_found(g, a, 0, n_page);
    return 1;
}

void cb_gpu_mirror_stored(struct gpu *g, struct gpu_area *a, const uint8_t *coded, int first, int n,
                          enum gpu_need need)
{
    if (g->stream_kv && need == GPU_MAY) { /* the next op copies the layer whole */
        cb_gpu_wrote(g, a->rows + a->row_bytes * (size_t)first, a->row_bytes * (size_t)n);
        return;
    }
    for (int row = first, m; row < first + n; row += m, coded += a->row_bytes * (size_t)m) {
        const int index = row >> a->shift, in = row - (index << a->shift);
        struct gpu_page *p = a->page[index];
        const int left = (1 << a->shift) - in;
        m = first + n - row < left ? first + n - row : left;
        if (!p && !in)
            p = place(g, a, index, need);
        if (!p)
            continue;
        if (p->n < in) /* rows before are missing */
            continue;
        cb_gpu_move(g, p->at + a->row_bytes * (size_t)in, coded, a->row_bytes * (size_t)m);
        p->n = p->n > in + m ? p->n : in + m;
    }
}

void cb_gpu_mirror_changes(struct gpu *g, struct gpu_area *a, int first, int n, int fresh)
{
    const int index = first >> a->shift, in = first - (index << a->shift);
    struct gpu_page *p = a->page[index];

    if (!p && fresh && !in && !g->stream_kv)
        p = place(g, a, index, GPU_MAY);
    if (p && fresh && p->n >= in && p->n < in + n)
        p->n = in + n;
    if (p && p->n < in + n) {
        p->n = p->n < in ? p->n : in;
        not_full(g->mirror, a, index);
    }
}
