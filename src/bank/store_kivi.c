/* SPDX-License-Identifier: MIT */
/* store_kivi.c - a store whose oldest keys and values are quantised to 2 or 4 bits (KIVI, Liu et
 * al. 2024, section 3.2): keys by channel in groups of tokens, values by token. The newest tokens
 * stay f16 rows in the rows of their slots: the newest 0 to residual - 1 keys, and the newest
 * `residual` values. The first tokens may stay f16 as well.
 *
 * When slots are dropped, quantised rows stay where they are, and a map says which row each slot
 * has. They are packed again, without dropped rows, only when most rows are dropped ones. */

#include "store_kivi.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/planes.h"
#include "pages.h"

/* ---- sizes ---- */

/* Of keys: a group of tokens, all channels; or a row of the second plane */
static size_t group_bytes(const struct store *s)
{
    const struct kivi_form *f = &s->kivi->form_k;

    return cb_kivi_planes(s) ? cb_planes_row_bytes(s->sketch_bits, s->hd)
                             : (size_t)s->hd * cb_kivi_group_bytes(f->bits, f->group);
}

static size_t value_bytes(const struct store *s)
{
    const struct kivi_form *f = &s->kivi->form_v;
    return (size_t)(s->hd / f->group) * cb_kivi_group_bytes(f->bits, f->group);
}

static uint8_t *key_group(const struct store *s, int kv, int g)
{
    return s->kivi->k + s->kivi->head_k * (size_t)kv + group_bytes(s) * (size_t)g;
}

static uint8_t *value_row(const struct store *s, int kv, int row)
{
    return s->kivi->v + s->kivi->head_v * (size_t)kv + value_bytes(s) * (size_t)row;
}

static int rows_at_once(const struct kivi_store *q)
{
    return 4 * (q->form_k.residual + q->form_v.residual);
}

/* 2 * cap before rows are packed, and the rows added at once */
int cb_kivi_most_rows(const struct store *s)
{
    return (2 * s->cap + rows_at_once(s->kivi)) / KIVI_MAX_GROUP * KIVI_MAX_GROUP;
}

static size_t map_bytes(const struct store *s)
{
    return cb_pages_up((size_t)s->n_kv * (size_t)s->cap * sizeof(int32_t));
}

/* ---- open ---- */

static int open_memory(struct store *s)
{
    struct kivi_store *q = s->kivi;
    const size_t n_kv = (size_t)s->n_kv, rows = (size_t)cb_kivi_most_rows(s);

    if (q->form_k.bits) {
        q->head_k = cb_pages_up(rows / (size_t)q->form_k.group * group_bytes(s));
        TRY(cb_pages_reserve(q->head_k * n_kv, &q->k));
    }
    if (q->form_v.bits) {
        q->head_v = cb_pages_up(rows * value_bytes(s));
        TRY(cb_pages_reserve(q->head_v * n_kv, &q->v));
    }
    return CB_OK;
}

int cb_kivi_open(struct store *s, struct kivi_form k, struct kivi_form v)
{
    struct kivi_store *q = s->kivi = cb_calloc(1, sizeof *q);

    if (!q)
        return CB_ENOMEM;
    q->form_k = k;
    q->form_v = v;
    q->form_k.group = k.group ? k.group : KIVI_GROUP;
    q->form_v.group = v.group ? v.group : KIVI_GROUP;
    q->head = cb_calloc((size_t)s->n_kv, sizeof *q->head);
    q->rows_k = cb_calloc((size_t)s->n_kv, sizeof *q->rows_k);
    q->rows_v = cb_calloc((size_t)s->n_kv, sizeof *q->rows_v);
    if (!q->head || !q->rows_k || !q->rows_v)
        return CB_ENOMEM;
    if (s->cap > (INT_MAX - rows_at_once(q)) / 2) /* rows are numbered by int */
        return cb_fail(CB_EARG, "context of %d tokens: kivi holds up to %d", s->cap,
                       (INT_MAX - rows_at_once(q)) / 2);
    TRY(open_memory(s));
    for (int h = 0; h < s->n_kv; h++)
        q->head[h] = (struct kv_kivi){ .bits_k = k.bits,
                                       .bits_v = v.bits,
                                       .group_k = q->form_k.group,
                                       .group_v = q->form_v.group,
                                       .plane_bits = s->sketch_bits,
                                       .lo_k = k.first,
                                       .lo_v = v.first,
                                       .k = q->k ? q->k + q->head_k * (size_t)h : NULL,
                                       .v = q->v ? q->v + q->head_v * (size_t)h : NULL };
    return CB_OK;
}

static void drop_maps(struct store *s)
{
    for (int v = 0; v < 2; v++) {
        cb_pages_release(s->kivi->map[v], map_bytes(s));
        s->kivi->map[v] = NULL;
    }
    for (int h = 0; h < s->n_kv; h++)
        s->kivi->head[h].row_k = s->kivi->head[h].row_v = NULL;
}

/* A key group is a row of the mirror. */
int cb_kivi_mirror(struct store *s, struct device *d)
{
    const struct device_memory *m = d->ops->memory;

    for (int h = 0; h < s->n_kv; h++) {
        if (s->kivi->k)
            TRY(m->watch(d, key_group(s, h, 0), group_bytes(s),
                         (size_t)(cb_kivi_most_rows(s) / s->kivi->form_k.group)));
        if (s->kivi->v)
            TRY(m->watch(d, value_row(s, h, 0), value_bytes(s), (size_t)cb_kivi_most_rows(s)));
    }
    return CB_OK;
}

static void end_mirror(struct store *s)
{
    for (int h = 0; s->mirror && s->kivi->head && h < s->n_kv; h++) {
        s->mirror->ops->memory->unwatch(s->mirror, s->kivi->head[h].k);
        s->mirror->ops->memory->unwatch(s->mirror, s->kivi->head[h].v);
    }
}

void cb_kivi_close(struct store *s)
{
    struct kivi_store *q = s->kivi;

    if (!q)
        return;
    end_mirror(s);
    if (q->head)
        drop_maps(s);
    cb_pages_release(q->k, q->head_k * (size_t)s->n_kv);
    cb_pages_release(q->v, q->head_v * (size_t)s->n_kv);
    free(q->head);
    free(q->rows_k);
    free(q->rows_v);
    free(q);
    s->kivi = NULL;
}

/* ---- rows ---- */

static int32_t *map_of(const struct store *s, int kv, int v)
{
    return s->kivi->map[v] ? s->kivi->map[v] + (size_t)kv * (size_t)s->cap : NULL;
}

int cb_kivi_need_map(struct store *s, int v)
{
    if (s->kivi->map[v])
        return CB_OK;
    TRY(cb_pages_reserve(map_bytes(s), &s->kivi->map[v]));
    for (int h = 0; h < s->n_kv; h++) {
        struct kv_kivi *q = &s->kivi->head[h];
        int32_t *map = map_of(s, h, v);
        for (int i = v ? q->lo_v : q->lo_k; i < (v ? q->n_v : q->n_k); i++)
            map[i] = cb_kivi_row_of(q, v, i);
        if (v)
            q->row_v = map;
        else
            q->row_k = map;
    }
    return CB_OK;
}

/* x[group][hd] -> a group of keys */
static void encode_keys(const struct store *s, const float *x, uint8_t *group)
{
    const struct kivi_form *f = &s->kivi->form_k;
    const size_t bytes = cb_kivi_group_bytes(f->bits, f->group);

    for (int c = 0; c < s->hd; c++)
        cb_kivi_encode(f->bits, f->group, x + c, s->hd, group + (size_t)c * bytes);
    cb_store_wrote(s, group, group_bytes(s));
}

static void encode_value(const struct store *s, const float *x, uint8_t *row)
{
    const struct kivi_form *f = &s->kivi->form_v;
    const size_t bytes = cb_kivi_group_bytes(f->bits, f->group);

    for (int i = 0; i < s->hd / f->group; i++)
        cb_kivi_encode(f->bits, f->group, x + i * f->group, 1, row + (size_t)i * bytes);
    cb_store_wrote(s, row, value_bytes(s));
}

void cb_kivi_read(const struct store *s, int kv, int v, int slot, float *x)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    cb_kivi_get(q, v, cb_kivi_row_of(q, v, slot), s->hd, x);
}

void cb_kivi_set(struct store *s, int kv, int v, int slot, const float *x)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    const int row = cb_kivi_row_of(q, v, slot), n = s->kivi->form_k.group, g = row / n;
    float group[KIVI_MAX_GROUP * CB_KIVI_MAX_HD];

    assert(v || !cb_kivi_planes(s)); /* nothing that merges or turns keys searches sketches */
    if (v) {
        encode_value(s, x, value_row(s, kv, row));
        return;
    }
    for (int i = 0; i < n; i++)
        cb_kivi_get(q, 0, g * n + i, s->hd, group + i * s->hd);
    memcpy(group + row % n * s->hd, x, (size_t)s->hd * sizeof *x);
    encode_keys(s, group, key_group(s, kv, g));
}

/* ---- quantising ---- */

/* Removes rows of dropped keys. Live keys move down, never over keys still to be read; the last
 * keys, which fill no group, become f16 rows again. */
static void pack_keys(struct store *s, struct device *d, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    int32_t *map = map_of(s, kv, 0);
    const int n = s->kivi->form_k.group, lo = q->lo_k;
    const int whole = cb_kivi_among(q, 0, 0, q->n_k) / n * n;
    float group[KIVI_MAX_GROUP * CB_KIVI_MAX_HD];

    for (int i = q->n_k - 1; i >= lo + whole; i--) {
        cb_kivi_read(s, kv, 0, i, group);
        d->ops->kv_encode(d, s->type_k, group, 1, s->hd, s->hd, cb_store_row(s, kv, 0, i));
    }
    for (int g = 0; g < whole / n; g++) {
        for (int i = 0; i < n; i++)
            cb_kivi_read(s, kv, 0, lo + g * n + i, group + i * s->hd);
        encode_keys(s, group, key_group(s, kv, g));
    }
    for (int i = 0; map && i < whole; i++)
        map[lo + i] = i;
    cb_pages_give_back(key_group(s, kv, whole / n), key_group(s, kv, s->kivi->rows_k[kv] / n));
    q->n_k = whole ? lo + whole : 0;
    s->kivi->rows_k[kv] = whole;
}

static void pack_values(struct store *s, int kv)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    const int n = cb_kivi_among(q, 1, 0, q->n_v);
    int32_t *map = map_of(s, kv, 1);

    for (int i = 0; map && i < n; i++) {
        if (map[q->lo_v + i] != i)
            memmove(value_row(s, kv, i), value_row(s, kv, map[q->lo_v + i]), value_bytes(s));
        map[q->lo_v + i] = i;
    }
    cb_store_wrote(s, value_row(s, kv, 0), value_bytes(s) * (size_t)n);
    cb_pages_give_back(value_row(s, kv, n), value_row(s, kv, s->kivi->rows_v[kv]));
    s->kivi->rows_v[kv] = n;
}

static int many_dropped(int rows, int n, int residual)
{
    return rows > 2 * n + 4 * residual;
}

void cb_kivi_give_back(const struct store *s, int kv, int v, int lo, int had, int end)
{
    uint8_t *first = cb_store_row(s, kv, v, lo), *from = cb_store_row(s, kv, v, had);

    from -= (uintptr_t)from % cb_pages_up(1);
    cb_store_give_back(s, from > first ? from : first, cb_store_row(s, kv, v, end));
}

/* The first slot that is not quantised yet, or stays so */
static int next_slot(int lo, int n)
{
    return n > lo ? n : lo;
}

static int advance_keys(struct store *s, struct device *d, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    const int r = s->kivi->form_k.residual, n = s->kivi->form_k.group, lo = q->lo_k;
    float group[KIVI_MAX_GROUP * CB_KIVI_MAX_HD];
    int had, end;

    if (many_dropped(s->kivi->rows_k[kv], q->n_k, r))
        pack_keys(s, d, kv);
    had = next_slot(lo, q->n_k);
    end = had + (s->n[kv] - had) / r * r;
    if (end <= had)
        return CB_OK;
    if (had - lo != s->kivi->rows_k[kv])
        TRY(cb_kivi_need_map(s, 0));
    for (int from = had; from < end; from += n) {
        int32_t *map = map_of(s, kv, 0);
        const int row = s->kivi->rows_k[kv];
        d->ops->kv_decode(d, s->type_k, cb_store_row(s, kv, 0, from), NULL, n, s->hd, group);
        encode_keys(s, group, key_group(s, kv, row / n));
        for (int i = 0; map && i < n; i++)
            map[from + i] = row + i;
        s->kivi->rows_k[kv] = row + n;
    }
    cb_kivi_give_back(s, kv, 0, lo, had, end);
    q->n_k = end;
    return CB_OK;
}

static int advance_values(struct store *s, struct device *d, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    const int r = s->kivi->form_v.residual, end = s->n[kv] - r;
    float row[CB_KIVI_MAX_HD];
    int had;

    if (many_dropped(s->kivi->rows_v[kv], q->n_v, r))
        pack_values(s, kv);
    had = next_slot(q->lo_v, q->n_v);
    if (had >= end)
        return CB_OK;
    if (had - q->lo_v != s->kivi->rows_v[kv])
        TRY(cb_kivi_need_map(s, 1));
    for (q->n_v = had; q->n_v < end; q->n_v++) {
        int32_t *map = map_of(s, kv, 1);
        d->ops->kv_decode(d, s->type_v, cb_store_row(s, kv, 1, q->n_v), NULL, 1, s->hd, row);
        encode_value(s, row, value_row(s, kv, s->kivi->rows_v[kv]));
        if (map)
            map[q->n_v] = s->kivi->rows_v[kv];
        s->kivi->rows_v[kv]++;
    }
    cb_kivi_give_back(s, kv, 1, q->lo_v, had, end);
    return CB_OK;
}

void cb_kivi_keys_stay(struct store *s, int kv)
{
    if (s->kivi)
        s->kivi->head[kv].bits_k = 0;
}

int cb_kivi_advance(struct store *s, struct device *d)
{
    for (int h = 0; h < s->n_kv; h++) {
        if (s->kivi->head[h].bits_k && !cb_kivi_planes(s))
            TRY(advance_keys(s, d, h));
        if (s->kivi->form_v.bits)
            TRY(advance_values(s, d, h));
    }
    return CB_OK;
}

/* ---- dropping ---- */

/* Of slots lo..n_old-1, which are quantised: counts those that keep[n] keeps, and maps their new
 * slots to rows. */
static int keep_map(struct store *s, int kv, int v, const int *keep, int n, int *lo, int *n_quant)
{
    int first = 0, m = 0, moved = 0;

    while (first < n && keep[first] < *lo)
        first++;
    while (m < n && keep[m] < *n_quant)
        m++;
    for (int i = 0; i < m && !moved; i++)
        moved = keep[i] != i;
    if (moved)
        TRY(cb_kivi_need_map(s, v)); /* map of the old slots */
    for (int i = first; moved && i < m; i++)
        map_of(s, kv, v)[i] = map_of(s, kv, v)[keep[i]];
    *lo = first;
    *n_quant = m > first ? m : 0;
    return CB_OK;
}

/* Moves the rows of kept slots that are not quantised */
static void keep_rows(struct store *s, int kv, int v, const int *keep, int n, int lo, int n_quant)
{
    const size_t bytes = v ? s->row_v : s->row_k;
    const int from = next_slot(lo, n_quant);

    for (int i = 0; i < n; i++)
        if ((i < lo || i >= from) && keep[i] != i)
            memmove(cb_store_row(s, kv, v, i), cb_store_row(s, kv, v, keep[i]), bytes);
    if (lo > 0)
        cb_store_wrote(s, cb_store_row(s, kv, v, 0), bytes * (size_t)lo);
    if (n > from)
        cb_store_wrote(s, cb_store_row(s, kv, v, from), bytes * (size_t)(n - from));
}

int cb_kivi_keep(struct store *s, int kv, const int *keep, int n)
{
    struct kv_kivi *q = &s->kivi->head[kv];

    TRY(keep_map(s, kv, 0, keep, n, &q->lo_k, &q->n_k));
    TRY(keep_map(s, kv, 1, keep, n, &q->lo_v, &q->n_v));
    keep_rows(s, kv, 0, keep, n, q->lo_k, q->n_k);
    keep_rows(s, kv, 1, keep, n, q->lo_v, q->n_v);
    return CB_OK;
}

void cb_kivi_cut(struct store *s, int kv, int n)
{
    struct kivi_store *q = s->kivi;
    struct kv_kivi *h = &q->head[kv];

    h->n_k = n <= h->lo_k ? 0 : n < h->n_k ? n : h->n_k;
    h->n_v = n <= h->lo_v ? 0 : n < h->n_v ? n : h->n_v;
    if (n)
        return;
    h->lo_k = q->form_k.first;
    h->lo_v = q->form_v.first;
    if (q->form_k.bits)
        cb_pages_give_back(key_group(s, kv, 0), key_group(s, kv, q->rows_k[kv] / q->form_k.group));
    if (q->form_v.bits)
        cb_pages_give_back(value_row(s, kv, 0), value_row(s, kv, q->rows_v[kv]));
    q->rows_k[kv] = q->rows_v[kv] = 0;
    for (int i = 0; i < s->n_kv; i++)
        if (i != kv && s->n[i])
            return; /* its slots still need their maps */
    drop_maps(s);
}

void *cb_kivi_memory(const struct store *s, int kv, int v)
{
    const struct kivi_store *q = s->kivi;
    return v ? (q->v ? value_row(s, kv, 0) : NULL) : (q->k ? key_group(s, kv, 0) : NULL);
}

size_t cb_kivi_memory_bytes(const struct store *s, int kv, int v)
{
    const struct kivi_store *q = s->kivi;

    if (!cb_kivi_memory(s, kv, v))
        return 0;
    return v ? value_bytes(s) * (size_t)q->rows_v[kv]
             : group_bytes(s) * (size_t)(q->rows_k[kv] / q->form_k.group);
}

int cb_kivi_any(const struct store *s)
{
    for (int h = 0; s->kivi && h < s->n_kv; h++)
        if (s->kivi->head[h].n_k || s->kivi->head[h].n_v)
            return 1;
    return 0;
}

/* ---- bytes ---- */

/* n slots; of them are quantised: n_k keys, n_v values */
static uint64_t bytes_of(const struct store *s, int n, int n_k, int n_v, int rows_k, int rows_v)
{
    uint64_t b = (uint64_t)(n - n_k) * s->row_k + (uint64_t)(n - n_v) * s->row_v;

    if (s->kivi->form_k.bits)
        b += (uint64_t)(rows_k / s->kivi->form_k.group) * group_bytes(s);
    if (s->kivi->form_v.bits)
        b += (uint64_t)rows_v * value_bytes(s);
    return b;
}

uint64_t cb_kivi_bytes(const struct store *s, int kv)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    const int n_k = cb_kivi_among(q, 0, 0, q->n_k), n_v = cb_kivi_among(q, 1, 0, q->n_v);
    const int maps = (s->kivi->map[0] ? n_k : 0) + (s->kivi->map[1] ? n_v : 0);

    return bytes_of(s, s->n[kv], n_k, n_v, s->kivi->rows_k[kv], s->kivi->rows_v[kv]) +
           (uint64_t)maps * sizeof(int32_t);
}

uint64_t cb_kivi_bytes_of(const struct store *s, int kv, int first, int n)
{
    const struct kivi_form k = s->kivi->form_k, v = s->kivi->form_v;
    const int whole = cb_kivi_planes(s) ? n - n % SKETCH_BLOCK : n;
    const int old_k = whole > k.first ? whole - k.first : 0, old_v = n > v.first ? n - v.first : 0;
    const int left = cb_kivi_planes(s) ? 0 : old_k % k.residual;
    const int end_k = s->kivi->head[kv].bits_k ? old_k - left : 0;
    const int end_v = v.bits && old_v > v.residual ? old_v - v.residual : 0;
    const int n_k = end_k > first ? end_k - first : 0, n_v = end_v > first ? end_v - first : 0;

    return bytes_of(s, n - first, n_k, n_v, n_k + k.group - 1, n_v);
}

uint64_t cb_kivi_old_bytes(const struct store *s, int n)
{
    const int n_k = s->kivi->form_k.bits ? n : 0, n_v = s->kivi->form_v.bits ? n : 0;
    return bytes_of(s, n, n_k, n_v, n_k, n_v);
}

uint64_t cb_kivi_first_plane(const struct store *s, int n)
{
    return cb_kivi_planes(s) ? (uint64_t)n * cb_sketch_bytes(s->sketch_bits, s->hd) / SKETCH_BLOCK
                             : 0;
}

uint64_t cb_kivi_run_bytes(const struct store *s, const struct kv_run *run)
{
    const struct kv_kivi *q = run->kivi;
    const int to = run->first + run->n;
    int n_k = run->idx ? 0 : cb_kivi_among(q, 0, run->first, to);
    int n_v = run->idx ? 0 : cb_kivi_among(q, 1, run->first, to);

    for (int j = 0; run->idx && j < run->n; j++) {
        n_k += cb_kivi_row_of(q, 0, run->idx[j] + run->first) >= 0;
        n_v += cb_kivi_row_of(q, 1, run->idx[j] + run->first) >= 0;
    }
    return bytes_of(s, run->n, n_k, n_v, n_k + s->kivi->form_k.group - 1, n_v) +
           (run->idx ? 0 : cb_kivi_first_plane(s, n_k)); /* a search has read them */
}

uint64_t cb_kivi_value_bytes(const struct store *s, const struct kv_run *run)
{
    const int n_v = cb_kivi_among(run->kivi, 1, run->first, run->first + run->n);

    return (uint64_t)n_v * value_bytes(s) + (uint64_t)(run->n - n_v) * s->row_v;
}
