/* SPDX-License-Identifier: MIT */
/* store.c - one layer's keys and values in reserved address space. */
#include "store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t page_up(size_t n)
{
    const size_t p = page_size();
    return (n + p - 1) / p * p;
}

/* Pages come zeroed, when they are first touched. */
static int reserve(size_t bytes, void *out)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return cb_fail(CB_ENOMEM, "context bank: cannot reserve %zu bytes: %s", bytes,
                       strerror(errno));
    memcpy(out, &p, sizeof p);
    return CB_OK;
}

static size_t pos_bytes(const struct store *s)
{
    return page_up((size_t)s->n_kv * (size_t)s->cap * sizeof *s->pos);
}

static size_t col_bytes(const struct store *s)
{
    return page_up((size_t)s->n_kv * (size_t)s->n_col * (size_t)s->cap * sizeof *s->col);
}

int cb_store_open(struct store *s, int n_kv, int hd, int cap, enum kv_type type_k,
                  enum kv_type type_v, int n_col)
{
    *s = (struct store){ .n_kv = n_kv,
                         .hd = hd,
                         .cap = cap,
                         .type_k = type_k,
                         .type_v = type_v,
                         .row_k = cb_kv_row_bytes(type_k, hd),
                         .row_v = cb_kv_row_bytes(type_v, hd),
                         .n_col = n_col };
    s->head_k = page_up(s->row_k * (size_t)cap);
    s->head_v = page_up(s->row_v * (size_t)cap);
    s->n = cb_calloc((size_t)n_kv, sizeof *s->n);
    if (!s->n)
        return CB_ENOMEM;
    TRY(reserve(s->head_k * (size_t)n_kv, &s->k));
    TRY(reserve(s->head_v * (size_t)n_kv, &s->v));
    return n_col ? reserve(col_bytes(s), &s->col) : CB_OK;
}

void cb_store_close(struct store *s)
{
    if (s->k)
        munmap(s->k, s->head_k * (size_t)s->n_kv);
    if (s->v)
        munmap(s->v, s->head_v * (size_t)s->n_kv);
    if (s->pos)
        munmap(s->pos, pos_bytes(s));
    if (s->col)
        munmap(s->col, col_bytes(s));
    free(s->n);
    *s = (struct store){ 0 };
}

static uint8_t *row_k(const struct store *s, int kv, int slot)
{
    return s->k + s->head_k * (size_t)kv + s->row_k * (size_t)slot;
}

static uint8_t *row_v(const struct store *s, int kv, int slot)
{
    return s->v + s->head_v * (size_t)kv + s->row_v * (size_t)slot;
}

static float *column(const struct store *s, int kv, int c)
{
    return s->col + ((size_t)kv * (size_t)s->n_col + (size_t)c) * (size_t)s->cap;
}

int cb_store_append(struct store *s, struct device *d, const float *k, const float *v, int stride,
                    int n, int pos0)
{
    for (int h = 0; h < s->n_kv; h++) {
        const int at = s->n[h];
        d->ops->kv_encode(d, s->type_k, k + (size_t)h * (size_t)s->hd, n, stride, s->hd,
                          row_k(s, h, at));
        d->ops->kv_encode(d, s->type_v, v + (size_t)h * (size_t)s->hd, n, stride, s->hd,
                          row_v(s, h, at));
        for (int i = 0; s->pos && i < n; i++)
            s->pos[(size_t)h * (size_t)s->cap + (size_t)(at + i)] = pos0 + i;
        for (int c = 0; c < s->n_col; c++)
            memset(column(s, h, c) + at, 0, (size_t)n * sizeof(float));
        s->n[h] = at + n;
    }
    return CB_OK;
}

/* Positions stop being slot numbers once a token has been dropped. */
static int need_pos(struct store *s)
{
    if (s->pos)
        return CB_OK;
    TRY(reserve(pos_bytes(s), &s->pos));
    for (int h = 0; h < s->n_kv; h++)
        for (int i = 0; i < s->n[h]; i++)
            s->pos[(size_t)h * (size_t)s->cap + (size_t)i] = i;
    return CB_OK;
}

/* Whole pages of [from, to) go back to the system. */
static void give_back(uint8_t *from, uint8_t *to)
{
    const size_t p = page_size();
    uint8_t *a = from + (p - (uintptr_t)from % p) % p, *b = to - (uintptr_t)to % p;
    if (a < b)
        madvise(a, (size_t)(b - a), MADV_DONTNEED);
}

static void shrink(struct store *s, int kv, int n)
{
    give_back(row_k(s, kv, n), row_k(s, kv, s->n[kv]));
    give_back(row_v(s, kv, n), row_v(s, kv, s->n[kv]));
    s->n[kv] = n;
}

int cb_store_keep(struct store *s, int kv, const int *keep, int n)
{
    int i = 0;

    if (n == s->n[kv]) /* ascending and distinct: all of them */
        return CB_OK;
    TRY(need_pos(s));
    while (i < n && keep[i] == i)
        i++;
    while (i < n) { /* runs of neighbours move at once */
        int run = 1;
        while (i + run < n && keep[i + run] == keep[i] + run)
            run++;
        memmove(row_k(s, kv, i), row_k(s, kv, keep[i]), s->row_k * (size_t)run);
        memmove(row_v(s, kv, i), row_v(s, kv, keep[i]), s->row_v * (size_t)run);
        memmove(&s->pos[(size_t)kv * (size_t)s->cap + (size_t)i],
                &s->pos[(size_t)kv * (size_t)s->cap + (size_t)keep[i]],
                (size_t)run * sizeof *s->pos);
        for (int c = 0; c < s->n_col; c++)
            memmove(column(s, kv, c) + i, column(s, kv, c) + keep[i], (size_t)run * sizeof(float));
        i += run;
    }
    shrink(s, kv, n);
    return CB_OK;
}

void cb_store_cut(struct store *s, int n)
{
    for (int h = 0; h < s->n_kv; h++)
        if (s->n[h] > n)
            shrink(s, h, n);
    if (n == 0 && s->pos) { /* slots are positions again */
        munmap(s->pos, pos_bytes(s));
        s->pos = NULL;
    }
}

void cb_store_get(const struct store *s, struct device *d, int kv, int v, int slot, float *x)
{
    d->ops->kv_decode(d, v ? s->type_v : s->type_k, v ? row_v(s, kv, slot) : row_k(s, kv, slot),
                      NULL, 1, s->hd, x);
}

void cb_store_set(struct store *s, struct device *d, int kv, int v, int slot, const float *x)
{
    d->ops->kv_encode(d, v ? s->type_v : s->type_k, x, 1, s->hd, s->hd,
                      v ? row_v(s, kv, slot) : row_k(s, kv, slot));
}

struct kv_run cb_store_run(const struct store *s, int kv)
{
    return (struct kv_run){ .k = row_k(s, kv, 0), .v = row_v(s, kv, 0), .n = s->n[kv] };
}

int cb_store_max_len(const struct store *s)
{
    int m = 0;
    for (int h = 0; h < s->n_kv; h++)
        m = s->n[h] > m ? s->n[h] : m;
    return m;
}

int cb_store_min_len(const struct store *s)
{
    int m = s->n[0];
    for (int h = 1; h < s->n_kv; h++)
        m = s->n[h] < m ? s->n[h] : m;
    return m;
}

int32_t cb_store_pos(const struct store *s, int kv, int slot)
{
    return s->pos ? s->pos[(size_t)kv * (size_t)s->cap + (size_t)slot] : slot;
}

uint64_t cb_store_bytes(const struct store *s)
{
    const size_t slot =
        s->row_k + s->row_v + (s->pos ? sizeof *s->pos : 0) + (size_t)s->n_col * sizeof(float);
    uint64_t sum = 0;
    for (int h = 0; h < s->n_kv; h++)
        sum += (uint64_t)s->n[h] * slot;
    return sum;
}
