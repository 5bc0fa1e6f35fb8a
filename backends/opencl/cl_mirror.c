/* SPDX-License-Identifier: MIT */
/* cl_mirror.c - copies of the bank's rows on the device. Pages of one size lie in slabs, which are
 * allocated as they are needed and the limit allows; then the page that was read longest ago gives
 * way. */
#include "cl_mirror.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum { LEAST_SLAB = 16, MOST_SLAB = 256 }; /* pages of the smallest slab; slabs */

struct cl_page {
    uint8_t *at;
    struct cl_area *area; /* NULL: free */
    int index;            /* in the area */
    int n;                /* rows that are as the host has them */
    uint64_t feed, op;    /* that used it last */
    struct cl_page *newer, *older;
};

struct cl_mirror {
    struct cl_area **area; /* in ascending order of address */
    int n_area, cap_area;
    int slab_pages;                  /* a 64th of the working set */
    struct cl_page *slab[MOST_SLAB]; /* [slab_pages] each */
    void *piece[MOST_SLAB + 1];      /* their memory; ends with NULL */
    int n_slab;
    int full; /* 1: a slab was refused */
    struct cl_page *newest, *oldest;
    uint64_t op;
};

/* ---- the order of use ---- */

static void unlink_page(struct cl_mirror *m, struct cl_page *p)
{
    *(p->newer ? &p->newer->older : &m->newest) = p->older;
    *(p->older ? &p->older->newer : &m->oldest) = p->newer;
    p->newer = p->older = NULL;
}

static void link_newest(struct cl_mirror *m, struct cl_page *p)
{
    p->older = m->newest;
    *(m->newest ? &m->newest->newer : &m->oldest) = p;
    m->newest = p;
}

static void link_oldest(struct cl_mirror *m, struct cl_page *p)
{
    p->newer = m->oldest;
    *(m->oldest ? &m->oldest->older : &m->newest) = p;
    m->oldest = p;
}

static void touch(struct cl *c, struct cl_page *p)
{
    unlink_page(c->mirror, p);
    link_newest(c->mirror, p);
    p->feed = c->feed;
    p->op = c->mirror->op;
}

/* A page whose rows nobody wants: it gives way first. */
static void drop(struct cl_mirror *m, struct cl_page *p)
{
    if (!p->area)
        return;
    p->area->page[p->index] = NULL;
    p->area = NULL;
    unlink_page(m, p);
    link_oldest(m, p);
}

/* ---- slabs ---- */

static int add_slab(struct cl *c)
{
    struct cl_mirror *m = c->mirror;
    const size_t bytes = (size_t)m->slab_pages * CL_PAGE;
    /* an eighth stays for operands */
    const size_t spare = (size_t)(c->traffic.limit_bytes / 8);
    struct cl_page *slab;
    uint8_t *at;

    if (m->full || m->n_slab == MOST_SLAB || cb_cl_room(c) < bytes + spare)
        return 0;
    slab = cb_calloc((size_t)m->slab_pages, sizeof *slab);
    at = slab ? cb_cl_alloc(c, bytes) : NULL;
    if (!at) {
        free(slab);
        m->full = 1;
        return 0;
    }
    c->traffic.kv_bytes += bytes;
    m->slab[m->n_slab] = slab;
    m->piece[m->n_slab++] = at;
    m->piece[m->n_slab] = NULL;
    for (int i = 0; i < c->mirror->slab_pages; i++) {
        slab[i].at = at + (size_t)i * CL_PAGE;
        link_oldest(m, &slab[i]);
    }
    return 1;
}

static void drop_slab(struct cl *c)
{
    struct cl_mirror *m = c->mirror;
    struct cl_page *slab = m->slab[m->n_slab - 1];

    for (int i = 0; i < c->mirror->slab_pages; i++) {
        drop(m, &slab[i]);
        unlink_page(m, &slab[i]);
    }
    cb_cl_free(c, m->piece[--m->n_slab]);
    c->traffic.kv_bytes -= (uint64_t)m->slab_pages * CL_PAGE;
    m->piece[m->n_slab] = NULL;
    free(slab);
}

static void give_way(struct cl *c, size_t bytes)
{
    while (c->mirror->n_slab && bytes > cb_cl_room(c))
        drop_slab(c);
}

int cb_cl_mirror_open(struct cl *c)
{
    const uint64_t share = c->traffic.limit_bytes / 64 / CL_PAGE;

    c->mirror = cb_calloc(1, sizeof *c->mirror);
    if (!c->mirror)
        return CB_ENOMEM;
    c->mirror->slab_pages = share > LEAST_SLAB ? (int)share : LEAST_SLAB;
    c->give_way = give_way;
    return CB_OK;
}

void cb_cl_mirror_drop(struct cl *c)
{
    for (int s = 0; s < c->mirror->n_slab; s++)
        for (int i = 0; i < c->mirror->slab_pages; i++)
            drop(c->mirror, &c->mirror->slab[s][i]);
}

void *const *cb_cl_mirror_pieces(const struct cl *c)
{
    return c->mirror->piece;
}

/* ---- areas ---- */

/* The first area that ends behind p */
static int area_at(const struct cl_mirror *m, const void *p)
{
    int lo = 0, hi = m->n_area;

    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        const struct cl_area *a = m->area[mid];
        if (a->rows + a->row_bytes * a->n_row <= (const uint8_t *)p)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct cl_area *cb_cl_area(const struct cl *c, const void *p)
{
    const struct cl_mirror *m = c->mirror;
    const int i = area_at(m, p);

    return i < m->n_area && m->area[i]->rows <= (const uint8_t *)p ? m->area[i] : NULL;
}

static void free_area(struct cl_area *a)
{
    free(a->page);
    free(a);
}

int cb_cl_watch(struct cl *c, const void *rows, size_t row_bytes, size_t n_row)
{
    struct cl_mirror *m = c->mirror;
    const int at = area_at(m, rows);
    struct cl_area *a;

    if (row_bytes > CL_PAGE) /* it is copied at each use */
        return CB_OK;
    if (m->n_area == m->cap_area) {
        const int cap = m->cap_area ? 2 * m->cap_area : 64;
        struct cl_area **p = cb_realloc(m->area, (size_t)cap, sizeof *p);
        if (!p)
            return CB_ENOMEM;
        m->area = p;
        m->cap_area = cap;
    }
    a = cb_calloc(1, sizeof *a);
    if (!a)
        return CB_ENOMEM;
    *a = (struct cl_area){ .rows = rows, .row_bytes = row_bytes, .n_row = n_row };
    while ((row_bytes << (a->shift + 1)) <= CL_PAGE)
        a->shift++;
    a->n_page = (int)((n_row + ((size_t)1 << a->shift) - 1) >> a->shift);
    a->page = cb_calloc((size_t)a->n_page + 1, sizeof *a->page);
    if (!a->page) {
        free_area(a);
        return CB_ENOMEM;
    }
    memmove(m->area + at + 1, m->area + at, (size_t)(m->n_area - at) * sizeof *m->area);
    m->area[at] = a;
    m->n_area++;
    return CB_OK;
}

void cb_cl_unwatch(struct cl *c, const void *rows)
{
    struct cl_mirror *m = c->mirror;
    const int at = area_at(m, rows);
    struct cl_area *a = at < m->n_area ? m->area[at] : NULL;

    if (!a || a->rows != rows)
        return;
    for (int i = 0; i < a->n_page; i++)
        if (a->page[i])
            drop(m, a->page[i]);
    clFinish(c->queue); /* a copy from there may be on its way */
    free_area(a);
    m->n_area--;
    memmove(m->area + at, m->area + at + 1, (size_t)(m->n_area - at) * sizeof *m->area);
}

void cb_cl_wrote(struct cl *c, const void *from, size_t bytes)
{
    struct cl_area *a = cb_cl_area(c, from);
    int first, last;

    if (!a || !bytes)
        return;
    first = (int)((size_t)((const uint8_t *)from - a->rows) / a->row_bytes);
    last = (int)((size_t)((const uint8_t *)from + bytes - 1 - a->rows) / a->row_bytes);
    for (int i = first >> a->shift; i <= last >> a->shift && i < a->n_page; i++) {
        const int rows = first - (i << a->shift);
        if (a->page[i] && a->page[i]->n > (rows > 0 ? rows : 0))
            a->page[i]->n = rows > 0 ? rows : 0;
    }
}

void cb_cl_mirror_close(struct cl *c)
{
    struct cl_mirror *m = c->mirror;

    if (!m)
        return;
    while (m->n_slab)
        drop_slab(c);
    for (int i = 0; i < m->n_area; i++)
        free_area(m->area[i]);
    free(m->area);
    free(m);
    c->mirror = NULL;
}

/* ---- pages ---- */

void cb_cl_mirror_begin(struct cl *c)
{
    c->mirror->op++;
}

static int may_go(const struct cl *c, const struct cl_page *p, enum cl_need need)
{
    if (!p->area)
        return 1;
    return need == CL_MUST ? p->op != c->mirror->op : p->feed + 1 < c->feed;
}

static struct cl_page *place(struct cl *c, struct cl_area *a, int index, enum cl_need need)
{
    struct cl_mirror *m = c->mirror;
    struct cl_page *p = m->oldest;

    if ((!p || p->area) && add_slab(c))
        p = m->oldest;
    if (!p || !may_go(c, p, need))
        return NULL;
    drop(m, p);
    p->area = a;
    p->index = index;
    p->n = 0;
    a->page[index] = p;
    touch(c, p);
    return p;
}

uint8_t *cb_cl_mirror_page(struct cl *c, struct cl_area *a, int index, int end, enum cl_need need)
{
    const int first = index << a->shift;
    const int n = end - first < 1 << a->shift ? end - first : 1 << a->shift;
    struct cl_page *p = a->page[index];

    if (!p)
        p = place(c, a, index, need);
    if (!p)
        return NULL;
    touch(c, p);
    if (p->n < n) {
        cb_cl_send(c, p->at + a->row_bytes * (size_t)p->n,
                   a->rows + a->row_bytes * (size_t)(first + p->n),
                   a->row_bytes * (size_t)(n - p->n));
        p->n = n;
    }
    return p->at;
}

int cb_cl_mirror_has(const struct cl_area *a, int row)
{
    const struct cl_page *p = a->page[row >> a->shift];
    return p && row - (p->index << a->shift) < p->n;
}

void cb_cl_mirror_stored(struct cl *c, struct cl_area *a, const uint8_t *coded, int first, int n,
                         enum cl_need need)
{
    for (int row = first, m; row < first + n; row += m, coded += a->row_bytes * (size_t)m) {
        const int index = row >> a->shift, in = row - (index << a->shift);
        struct cl_page *p = a->page[index];
        const int left = (1 << a->shift) - in;
        m = first + n - row < left ? first + n - row : left;
        if (!p && !in && need == CL_MUST)
            p = place(c, a, index, need);
        if (!p)
            continue;
        if (p->n < in) /* rows before are missing */
            continue;
        cb_cl_move(c, p->at + a->row_bytes * (size_t)in, coded, a->row_bytes * (size_t)m);
        p->n = p->n > in + m ? p->n : in + m;
    }
}
