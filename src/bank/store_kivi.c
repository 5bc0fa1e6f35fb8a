/* SPDX-License-Identifier: MIT */
/* store_kivi.c - a store whose oldest keys and values are quantised to 2 or 4 bits (KIVI, Liu et
 * al. 2024, section 3.2): keys by channel in groups of 32 tokens, values by token. The newest
 * tokens stay f16 rows in the rows of their slots: the newest 0 to residual - 1 keys, and the
 * newest `residual` values.
 *
 * When slots are dropped, quantised rows stay where they are, and a map says which row each slot
 * has. They are packed again, without dropped rows, only when most rows are dropped ones. */

#include "store_kivi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/kivi.h"

#include "pages.h"

/* ---- sizes ---- */

static size_t group_bytes(const struct store *s)
{
    return (size_t)s->hd * cb_kivi_block_bytes(s->kivi->form_k.bits);
}

static size_t value_bytes(const struct store *s)
{
    return (size_t)(s->hd / KIVI_GROUP) * cb_kivi_block_bytes(s->kivi->form_v.bits);
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
    return 2 * s->cap + rows_at_once(s->kivi);
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
        q->head_k = cb_pages_up(rows / KIVI_GROUP * group_bytes(s));
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
                         (size_t)cb_kivi_most_rows(s) / KIVI_GROUP));
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
        for (int i = 0; i < (v ? q->n_v : q->n_k); i++)
            map[i] = i;
        if (v)
            q->row_v = map;
        else
            q->row_k = map;
    }
    return CB_OK;
}

/* x[KIVI_GROUP][hd] -> a group of keys */
static void encode_keys(const struct store *s, const float *x, uint8_t *group)
{
    const size_t block = cb_kivi_block_bytes(s->kivi->form_k.bits);

    for (int c = 0; c < s->hd; c++)
        cb_kivi_encode(s->kivi->form_k.bits, x + c, s->hd, group + (size_t)c * block);
    cb_store_wrote(s, group, group_bytes(s));
}

static void encode_value(const struct store *s, const float *x, uint8_t *row)
{
    const size_t block = cb_kivi_block_bytes(s->kivi->form_v.bits);

    for (int i = 0; i < s->hd / KIVI_GROUP; i++)
        cb_kivi_encode(s->kivi->form_v.bits, x + i * KIVI_GROUP, 1, row + (size_t)i * block);
    cb_store_wrote(s, row, value_bytes(s));
}

void cb_kivi_set(struct store *s, int kv, int v, int slot, const float *x)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    const int32_t *map = map_of(s, kv, v);
    const int row = map ? map[slot] : slot, g = row / KIVI_GROUP;
    struct kv_kivi plain = *q;
    float group[KIVI_GROUP * CB_KIVI_MAX_HD];

    if (v) {
        encode_value(s, x, value_row(s, kv, row));
        return;
    }
    plain.row_k = NULL;
    for (int i = 0; i < KIVI_GROUP; i++)
        cb_kivi_row(&plain, 0, g * KIVI_GROUP + i, s->hd, group + i * s->hd);
    memcpy(group + row % KIVI_GROUP * s->hd, x, (size_t)s->hd * sizeof *x);
    encode_keys(s, group, key_group(s, kv, g));
}

/* ---- quantising ---- */

/* Removes rows of dropped keys. Live keys move down, never over keys still to be read; the last
 * keys, which fill no group, become f16 rows again. */
static void pack_keys(struct store *s, struct device *d, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    int32_t *map = map_of(s, kv, 0);
    const int whole = q->n_k / KIVI_GROUP * KIVI_GROUP;
    float group[KIVI_GROUP * CB_KIVI_MAX_HD];

    for (int i = q->n_k - 1; i >= whole; i--) {
        cb_kivi_row(q, 0, i, s->hd, group);
        d->ops->kv_encode(d, s->type_k, group, 1, s->hd, s->hd, cb_store_row(s, kv, 0, i));
    }
    for (int g = 0; g < whole / KIVI_GROUP; g++) {
        for (int i = 0; i < KIVI_GROUP; i++)
            cb_kivi_row(q, 0, g * KIVI_GROUP + i, s->hd, group + i * s->hd);
        encode_keys(s, group, key_group(s, kv, g));
    }
    for (int i = 0; map && i < whole; i++)
        map[i] = i;
    cb_pages_give_back(key_group(s, kv, whole / KIVI_GROUP),
                       key_group(s, kv, s->kivi->rows_k[kv] / KIVI_GROUP));
    q->n_k = s->kivi->rows_k[kv] = whole;
}

static void pack_values(struct store *s, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    int32_t *map = map_of(s, kv, 1);

    for (int i = 0; map && i < q->n_v; i++) {
        if (map[i] != i)
            memmove(value_row(s, kv, i), value_row(s, kv, map[i]), value_bytes(s));
        map[i] = i;
    }
    cb_store_wrote(s, value_row(s, kv, 0), value_bytes(s) * (size_t)q->n_v);
    cb_pages_give_back(value_row(s, kv, q->n_v), value_row(s, kv, s->kivi->rows_v[kv]));
    s->kivi->rows_v[kv] = q->n_v;
}

static int many_dropped(int rows, int n, int residual)
{
    return rows > 2 * n + 4 * residual;
}

/* Frees pages of f16 rows from `had`, where the last call ended, up to `end` */
static void give_back_rows(const struct store *s, int kv, int v, int had, int end)
{
    uint8_t *first = cb_store_row(s, kv, v, 0), *from = cb_store_row(s, kv, v, had);

    from -= (uintptr_t)from % cb_pages_up(1);
    cb_pages_give_back(from > first ? from : first, cb_store_row(s, kv, v, end));
}

static int advance_keys(struct store *s, struct device *d, int kv)
{
    struct kv_kivi *q = &s->kivi->head[kv];
    const int r = s->kivi->form_k.residual;
    float group[KIVI_GROUP * CB_KIVI_MAX_HD];
    int had, end;

    if (many_dropped(s->kivi->rows_k[kv], q->n_k, r))
        pack_keys(s, d, kv);
    had = q->n_k;
    end = q->n_k + (s->n[kv] - q->n_k) / r * r;
    if (q->n_k == end)
        return CB_OK;
    if (q->n_k != s->kivi->rows_k[kv])
        TRY(cb_kivi_need_map(s, 0));
    for (int from = q->n_k; from < end; from += KIVI_GROUP) {
        int32_t *map = map_of(s, kv, 0);
        const int row = s->kivi->rows_k[kv];
        d->ops->kv_decode(d, s->type_k, cb_store_row(s, kv, 0, from), NULL, KIVI_GROUP, s->hd,
                          group);
        encode_keys(s, group, key_group(s, kv, row / KIVI_GROUP));
        for (int i = 0; map && i < KIVI_GROUP; i++)
            map[from + i] = row + i;
        s->kivi->rows_k[kv] = row + KIVI_GROUP;
    }
    give_back_rows(s, kv, 0, had, end);
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
    had = q->n_v;
    if (q->n_v >= end)
        return CB_OK;
    if (q->n_v != s->kivi->rows_v[kv])
        TRY(cb_kivi_need_map(s, 1));
    for (; q->n_v < end; q->n_v++) {
        int32_t *map = map_of(s, kv, 1);
        d->ops->kv_decode(d, s->type_v, cb_store_row(s, kv, 1, q->n_v), NULL, 1, s->hd, row);
        encode_value(s, row, value_row(s, kv, s->kivi->rows_v[kv]));
        if (map)
            map[q->n_v] = s->kivi->rows_v[kv];
        s->kivi->rows_v[kv]++;
    }
    give_back_rows(s, kv, 1, had, end);
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
        if (s->kivi->head[h].bits_k)
            TRY(advance_keys(s, d, h));
        if (s->kivi->form_v.bits)
            TRY(advance_values(s, d, h));
    }
    return CB_OK;
}

/* ---- dropping ---- */

/* Slots below n_old are quantised: counts those that keep[n] keeps, and maps their new slots to
 * rows. */
static int keep_map(struct store *s, int kv, int v, const int *keep, int n, int n_old, int *n_new)
{
    int m = 0, moved = 0;

    while (m < n && keep[m] < n_old)
        m++;
    for (int i = 0; i < m && !moved; i++)
        moved = keep[i] != i;
    if (moved)
        TRY(cb_kivi_need_map(s, v)); /* map of the old slots */
    for (int i = 0; moved && i < m; i++)
        map_of(s, kv, v)[i] = map_of(s, kv, v)[keep[i]];
    *n_new = m;
    return CB_OK;
}

int cb_kivi_keep(struct store *s, int kv, const int *keep, int n)
{
    struct kv_kivi *q = &s->kivi->head[kv];

    TRY(keep_map(s, kv, 0, keep, n, q->n_k, &q->n_k));
    TRY(keep_map(s, kv, 1, keep, n, q->n_v, &q->n_v));
    for (int i = q->n_k; i < n; i++)
        memmove(cb_store_row(s, kv, 0, i), cb_store_row(s, kv, 0, keep[i]), s->row_k);
    cb_store_wrote(s, cb_store_row(s, kv, 0, q->n_k), s->row_k * (size_t)(n - q->n_k));
    for (int i = q->n_v; i < n; i++)
        memmove(cb_store_row(s, kv, 1, i), cb_store_row(s, kv, 1, keep[i]), s->row_v);
    cb_store_wrote(s, cb_store_row(s, kv, 1, q->n_v), s->row_v * (size_t)(n - q->n_v));
    return CB_OK;
}

void cb_kivi_cut(struct store *s, int kv, int n)
{
    struct kivi_store *q = s->kivi;

    q->head[kv].n_k = n < q->head[kv].n_k ? n : q->head[kv].n_k;
    q->head[kv].n_v = n < q->head[kv].n_v ? n : q->head[kv].n_v;
    if (n)
        return;
    if (q->form_k.bits)
        cb_pages_give_back(key_group(s, kv, 0), key_group(s, kv, q->rows_k[kv] / KIVI_GROUP));
    if (q->form_v.bits)
        cb_pages_give_back(value_row(s, kv, 0), value_row(s, kv, q->rows_v[kv]));
    q->rows_k[kv] = q->rows_v[kv] = 0;
    if (kv == s->n_kv - 1)
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
             : group_bytes(s) * (size_t)(q->rows_k[kv] / KIVI_GROUP);
}

int cb_kivi_any(const struct store *s)
{
    for (int h = 0; s->kivi && h < s->n_kv; h++)
        if (s->kivi->head[h].n_k || s->kivi->head[h].n_v)
            return 1;
    return 0;
}

/* ---- bytes ---- */

static uint64_t bytes_of(const struct store *s, int n, int n_k, int n_v, int rows_k, int rows_v)
{
    uint64_t b = (uint64_t)(n - n_k) * s->row_k + (uint64_t)(n - n_v) * s->row_v;

    if (s->kivi->form_k.bits)
        b += (uint64_t)(rows_k / KIVI_GROUP) * group_bytes(s);
    if (s->kivi->form_v.bits)
        b += (uint64_t)rows_v * value_bytes(s);
    return b;
}

uint64_t cb_kivi_bytes(const struct store *s, int kv)
{
    const struct kv_kivi *q = &s->kivi->head[kv];
    const int maps = (s->kivi->map[0] ? q->n_k : 0) + (s->kivi->map[1] ? q->n_v : 0);

    return bytes_of(s, s->n[kv], q->n_k, q->n_v, s->kivi->rows_k[kv], s->kivi->rows_v[kv]) +
           (uint64_t)maps * sizeof(int32_t);
}

uint64_t cb_kivi_bytes_of(const struct store *s, int kv, int n)
{
    const struct kivi_form k = s->kivi->form_k, v = s->kivi->form_v;
    const int n_k = s->kivi->head[kv].bits_k ? n - n % k.residual : 0;
    const int n_v = v.bits && n > v.residual ? n - v.residual : 0;

    return bytes_of(s, n, n_k, n_v, n_k, n_v);
}

uint64_t cb_kivi_old_bytes(const struct store *s, int n)
{
    const int n_k = s->kivi->form_k.bits ? n : 0, n_v = s->kivi->form_v.bits ? n : 0;
    return bytes_of(s, n, n_k, n_v, n_k, n_v);
}

uint64_t cb_kivi_run_bytes(const struct store *s, const struct kv_run *run)
{
    const struct kv_kivi *q = run->kivi;
    int n_k = 0, n_v = 0;

    for (int j = 0; j < run->n; j++) {
        const int slot = (run->idx ? run->idx[j] : j) + run->first;
        n_k += slot < q->n_k;
        n_v += slot < q->n_v;
        if (!run->idx) { /* a range */
            const int to = run->first + run->n;
            n_k = q->n_k < to ? q->n_k - run->first : run->n;
            n_v = q->n_v < to ? q->n_v - run->first : run->n;
            break;
        }
    }
    n_k = n_k > 0 ? n_k : 0;
    n_v = n_v > 0 ? n_v : 0;
    return bytes_of(s, run->n, n_k, n_v, n_k + KIVI_GROUP - 1, n_v);
}

uint64_t cb_kivi_value_bytes(const struct store *s, const struct kv_run *run)
{
    const int left = run->kivi->n_v - run->first, n_v = left < 0        ? 0
                                                        : left < run->n ? left
                                                                        : run->n;

    return (uint64_t)n_v * value_bytes(s) + (uint64_t)(run->n - n_v) * s->row_v;
}
