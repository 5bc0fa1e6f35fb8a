/* SPDX-License-Identifier: MIT */
/* store_pair.c - a merged slot's row in the later layer is the shared direction at the later
 * layer's length, so the later store is one like any other. The earlier store has the ratio of both
 * lengths in a column (0 for keys, 1 for values), or -1 where the slot is retained. Rows of
 * retained slots lie in front, in order; rows of slots that are not merged yet lie at their
 * numbers.
 */
#include "store_pair.h"

#include <math.h>
#include <string.h>

#include "base/ints.h"
#include "pages.h"
#include "store_rows.h"

enum {
    SOME = 16,   /* rows that are decoded together, on a thread's stack */
    PIECE = 1024 /* rows that a thread restores at a time */
};

/* A device with memory of its own stores rows for one thread at a time. */
static void for_each(struct device *d, int n, par_fn fn, void *ctx)
{
    if (!d->ops->memory)
        cb_par_for(d->par, n, fn, ctx);
    for (int i = 0; d->ops->memory && i < n; i++)
        fn(ctx, i, 0);
}

/* ---- merging ---- */

/* Slots from..to-1 of one head's keys or values */
struct merging {
    struct store *s;
    struct device *d;
    double t;
    int kv, v, from, to;
    float *ratio; /* the column, from slot `from` on */
    float *angle; /* [to - from] */
};

struct products {
    double xx, yy, xy;
};

static struct products products_of(const float *x, const float *y, int n)
{
    struct products p = { 0 };

    for (int i = 0; i < n; i++) {
        p.xx += (double)x[i] * (double)x[i];
        p.yy += (double)y[i] * (double)y[i];
        p.xy += (double)x[i] * (double)y[i];
    }
    return p;
}

/* A vector of length 0 has no direction: nothing is farther from another vector. */
static double angle_of(const struct products *p)
{
    if (!(p->xx > 0) || !(p->yy > 0))
        return p->xx > 0 || p->yy > 0 ? acos(-1) : 0;
    return acos(fmin(1, fmax(-1, p->xy / sqrt(p->xx * p->yy))));
}

/* n rows of both layers, those of the merged slots from `first` on; x, y: [n][hd] */
struct some {
    int first, n;
    float x[SOME * KV_MAX_HD], y[SOME * KV_MAX_HD];
};

/* Reads the i-th SOME slots. */
static void read_some(const struct merging *m, int i, struct some *r)
{
    r->first = i * SOME;
    r->n = min_int(SOME, m->to - m->from - r->first);
    cb_store_get_range(m->s, m->d, m->kv, m->v, m->from + r->first, r->n, r->x);
    cb_store_get_range(m->s->later, m->d, m->kv, m->v, m->from + r->first, r->n, r->y);
}

static void measure_some(void *ctx, int i, int thread)
{
    const struct merging *m = ctx;
    const int hd = m->s->hd;
    struct some r;

    (void)thread;
    read_some(m, i, &r);
    for (int j = 0; j < r.n; j++) {
        const struct products p = products_of(r.x + j * hd, r.y + j * hd, hd);
        m->angle[r.first + j] = (float)angle_of(&p);
    }
}

/* The direction between x and y (SLERP), at the length of y -> y; returns the length of x in terms
 * of y's. Where the great circle is not defined, the weights are those of a straight line. Beside a
 * vector of length 0 nothing is shared: y stays, and x becomes 0. */
static double merge(const float *x, float *y, int n, double t)
{
    const struct products p = products_of(x, y, n);
    const double angle = angle_of(&p), s = sin(angle), nx = sqrt(p.xx), ny = sqrt(p.yy);
    const double a = s < 1e-6 ? 1 - t : sin((1 - t) * angle) / s;
    const double b = s < 1e-6 ? t : sin(t * angle) / s;
    double len = 0;

    if (!(nx > 0) || !(ny > 0))
        return 0;
    for (int i = 0; i < n; i++) {
        const double e = a * (double)x[i] / nx + b * (double)y[i] / ny;
        len += e * e;
    }
    len = sqrt(len);
    for (int i = 0; len > 0 && i < n; i++)
        y[i] = (float)(ny * (a * (double)x[i] / nx + b * (double)y[i] / ny) / len);
    return nx / ny;
}

static void merge_some(void *ctx, int i, int thread)
{
    const struct merging *m = ctx;
    const int hd = m->s->hd;
    struct some r;

    (void)thread;
    read_some(m, i, &r);
    for (int j = 0; j < r.n; j++) {
        float *ratio = &m->ratio[r.first + j], *y = r.y + j * hd;
        if (*ratio < 0)
            continue;
        *ratio = (float)merge(r.x + j * hd, y, hd, m->t);
        cb_store_set(m->s->later, m->d, m->kv, m->v, m->from + r.first + j, y);
    }
}

/* Rows of retained slots move to the front, the others' pages are freed. */
static void gather(const struct merging *m)
{
    struct store *s = m->s;
    int *n = cb_store_retained(s, m->kv, m->v);
    const size_t row = m->v ? s->row_v : s->row_k;

    for (int i = m->from; i < m->to; i++) {
        if (!(m->ratio[i - m->from] < 0))
            continue;
        if (*n != i)
            memmove(cb_store_row(s, m->kv, m->v, *n), cb_store_row(s, m->kv, m->v, i), row);
        ++*n;
    }
    cb_store_wrote(s, cb_store_row(s, m->kv, m->v, 0), row * (size_t)*n);
    cb_pages_give_back(cb_store_row(s, m->kv, m->v, *n), cb_store_row(s, m->kv, m->v, m->to));
}

static void merge_side(struct merging *m, int retain, struct pair_work *w)
{
    const int n = m->to - m->from, have = *cb_store_retained(m->s, m->kv, m->v);
    const int more = max_int(0, min_int(retain - have, n));

    for_each(m->d, (n + SOME - 1) / SOME, measure_some, m);
    cb_topk_heap(m->angle, NULL, n, more, w->first);
    for (int i = 0; i < more; i++)
        m->ratio[w->first[i].i] = -1;
    for_each(m->d, (n + SOME - 1) / SOME, merge_some, m);
    gather(m);
}

void cb_store_pair_merge(struct store *earlier, struct device *d, int to, double t, int retain,
                         struct pair_work *w)
{
    const int from = earlier->merged;

    for (int i = 0; from < to && i < earlier->n_kv * cb_store_sides(earlier); i++) {
        const int kv = i / cb_store_sides(earlier), v = i % cb_store_sides(earlier);
        struct merging m = { earlier, d, t, kv, v, from, to, cb_store_col(earlier, kv, v) + from,
                             w->angle };
        merge_side(&m, retain, w);
    }
    earlier->merged = max_int(from, to);
}

/* ---- reading ---- */

struct restoring {
    const struct store *s;
    struct device *d;
    int n, n_piece;
    uint8_t *to[2]; /* rows of keys, of values */
};

/* Slots from..from+n-1 of one head, n <= SOME -> rows at `to`. *row: the first one's number among
 * retained slots */
static void restore_some(const struct restoring *r, int kv, int v, int from, int n, int *row,
                         uint8_t *to)
{
    const struct store *s = r->s;
    const enum kv_type type = v ? s->type_v : s->type_k;
    const size_t bytes = v ? s->row_v : s->row_k;
    const float *ratio = cb_store_col(s, kv, v) + from;
    float x[SOME * KV_MAX_HD];

    r->d->ops->kv_decode(r->d, type, cb_store_row(s->later, kv, v, from), NULL, n, s->hd, x);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < s->hd; i++)
            x[j * s->hd + i] *= ratio[j];
    r->d->ops->kv_encode(r->d, type, x, n, s->hd, s->hd, to);
    for (int j = 0; j < n; j++)
        if (ratio[j] < 0)
            memcpy(to + bytes * (size_t)j, cb_store_row(s, kv, v, (*row)++), bytes);
}

static int retained_before(const float *ratio, int n)
{
    int sum = 0;

    for (int i = 0; i < n; i++)
        sum += ratio[i] < 0;
    return sum;
}

static void restore_piece(void *ctx, int item, int thread)
{
    const struct restoring *r = ctx;
    const struct store *s = r->s;
    const int side = item / r->n_piece, from = item % r->n_piece * PIECE;
    const int kv = side / cb_store_sides(s), v = side % cb_store_sides(s);
    const int end = min_int(from + PIECE, r->n), merged = min_int(end, s->merged);
    const size_t bytes = v ? s->row_v : s->row_k;
    uint8_t *to = r->to[v] + (v ? s->head_v : s->head_k) * (size_t)kv;
    int row = retained_before(cb_store_col(s, kv, v), min_int(from, s->merged)), i = from;

    (void)thread;
    for (; i < merged; i += min_int(SOME, merged - i))
        restore_some(r, kv, v, i, min_int(SOME, merged - i), &row, to + bytes * (size_t)i);
    if (i < end)
        memcpy(to + bytes * (size_t)i, cb_store_row(s, kv, v, i), bytes * (size_t)(end - i));
}

void cb_store_pair_restore(const struct store *earlier, struct device *d, int n, uint8_t *k,
                           uint8_t *v)
{
    struct restoring r = { earlier, d, n, (n + PIECE - 1) / PIECE, { k, v } };

    for_each(d, earlier->n_kv * cb_store_sides(earlier) * r.n_piece, restore_piece, &r);
}

/* ---- sizes ---- */

uint64_t cb_store_pair_saved(const struct store *s, int merged, int retained)
{
    return (uint64_t)(merged - retained) * cb_store_slot_bytes(s);
}

int cb_store_pair_fits(const struct store *s, int kv)
{
    int fits = 1;

    for (int v = 0; s->later && v < cb_store_sides(s); v++)
        fits &= retained_before(cb_store_col(s, kv, v), s->merged) == *cb_store_retained(s, kv, v);
    return fits;
}
