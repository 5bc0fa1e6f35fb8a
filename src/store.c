/* SPDX-License-Identifier: MIT */
/* store.c - one layer's keys and values in reserved address space. */
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"
#include "kivi.h"
#include "store_kivi.h"

#if defined(__linux__) && !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE 25 /* headers may be older than the kernel */
#elif !defined(MADV_COLLAPSE)
#define MADV_COLLAPSE MADV_NORMAL
#endif

enum { HUGE_PAGE = 2 << 20 };

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

size_t cb_store_page_up(size_t n)
{
    const size_t p = page_size();
    return (n + p - 1) / p * p;
}

/* Large parts begin where a huge page may. */
int cb_store_reserve(size_t bytes, void *out)
{
    const size_t spare = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t skip;

    if (p == MAP_FAILED)
        return cb_fail(CB_ENOMEM, "context bank: cannot reserve %zu bytes: %s", bytes,
                       strerror(errno));
    skip = spare ? (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE : 0;
    if (skip)
        munmap(p, skip);
    p += skip;
    if (spare - skip)
        munmap(p + bytes, spare - skip);
    memcpy(out, &p, sizeof p);
    return CB_OK;
}

void cb_store_release(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

static size_t pos_bytes(const struct store *s)
{
    return cb_store_page_up((size_t)s->n_kv * (size_t)s->cap * sizeof *s->pos);
}

static size_t col_bytes(const struct store *s)
{
    return cb_store_page_up((size_t)s->n_kv * (size_t)s->n_col * (size_t)s->cap * sizeof *s->col);
}

/* Bytes from one KV head's rows to the next one's */
static size_t head_bytes(size_t bytes)
{
    return bytes >= HUGE_PAGE ? (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE
                              : cb_store_page_up(bytes);
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
    s->head_k = head_bytes(s->row_k * (size_t)cap);
    s->head_v = head_bytes(s->row_v * (size_t)cap);
    s->n = cb_calloc((size_t)n_kv, sizeof *s->n);
    s->rows = cb_calloc((size_t)n_kv, sizeof *s->rows);
    s->gap_lo = cb_calloc((size_t)n_kv, sizeof *s->gap_lo);
    s->gap_hi = cb_calloc((size_t)n_kv, sizeof *s->gap_hi);
    if (!s->n || !s->rows || !s->gap_lo || !s->gap_hi)
        return CB_ENOMEM;
    TRY(cb_store_reserve(s->head_k * (size_t)n_kv, &s->k));
    TRY(cb_store_reserve(s->head_v * (size_t)n_kv, &s->v));
    return n_col ? cb_store_reserve(col_bytes(s), &s->col) : CB_OK;
}

void cb_store_close(struct store *s)
{
    cb_kivi_close(s);
    cb_store_release(s->k, s->head_k * (size_t)s->n_kv);
    cb_store_release(s->v, s->head_v * (size_t)s->n_kv);
    cb_store_release(s->pos, pos_bytes(s));
    cb_store_release(s->row, pos_bytes(s));
    cb_store_release(s->col, col_bytes(s));
    cb_store_seal_close(s);
    free(s->n);
    free(s->rows);
    free(s->gap_lo);
    free(s->gap_hi);
    *s = (struct store){ 0 };
}

static uint8_t *row_k(const struct store *s, int kv, int row)
{
    return s->k + s->head_k * (size_t)kv + s->row_k * (size_t)row;
}

static uint8_t *row_v(const struct store *s, int kv, int row)
{
    return s->v + s->head_v * (size_t)kv + s->row_v * (size_t)row;
}

static size_t at(const struct store *s, int kv, int slot)
{
    return (size_t)kv * (size_t)s->cap + (size_t)slot;
}

static int row_of(const struct store *s, int kv, int slot)
{
    return s->rows[kv] == s->n[kv] ? slot : s->row[at(s, kv, slot)];
}

static float *column(const struct store *s, int kv, int c)
{
    return s->col + ((size_t)kv * (size_t)s->n_col + (size_t)c) * (size_t)s->cap;
}

static int max_rows(const struct store *s)
{
    int m = 0;
    for (int h = 0; h < s->n_kv; h++)
        m = s->rows[h] > m ? s->rows[h] : m;
    return m;
}

int cb_store_append(struct store *s, struct device *d, const float *k, const float *v, int stride,
                    int n, int pos0)
{
    if (s->row && max_rows(s) + n > s->cap)
        cb_store_pack(s);
    cb_store_touch(s, d->par, s->rows, n);
    for (int h = 0; h < s->n_kv; h++) {
        const int slot = s->n[h], row = s->rows[h];
        d->ops->kv_encode(d, s->type_k, k + (size_t)h * (size_t)s->hd, n, stride, s->hd,
                          row_k(s, h, row));
        d->ops->kv_encode(d, s->type_v, v + (size_t)h * (size_t)s->hd, n, stride, s->hd,
                          row_v(s, h, row));
        for (int i = 0; s->pos && i < n; i++)
            s->pos[at(s, h, slot + i)] = pos0 + i;
        for (int i = 0; row > slot && i < n; i++)
            s->row[at(s, h, slot + i)] = row + i;
        for (int c = 0; c < s->n_col; c++)
            memset(column(s, h, c) + slot, 0, (size_t)n * sizeof(float));
        s->n[h] += n;
        s->rows[h] += n;
    }
    return CB_OK;
}

/* Positions stop being slot numbers once a token has been dropped. */
static int need_pos(struct store *s)
{
    if (s->pos)
        return CB_OK;
    TRY(cb_store_reserve(pos_bytes(s), &s->pos));
    for (int h = 0; h < s->n_kv; h++)
        for (int i = 0; i < s->n[h]; i++)
            s->pos[at(s, h, i)] = i;
    return CB_OK;
}

void cb_store_give_back(uint8_t *from, uint8_t *to)
{
    const size_t p = page_size();
    uint8_t *a = from + (p - (uintptr_t)from % p) % p, *b = to - (uintptr_t)to % p;
    if (a < b)
        madvise(a, (size_t)(b - a), MADV_DONTNEED);
}

/* What of [from, to) fills huge pages becomes such: only then do they cost no memory that is not used.
 * Linux 6.1 and later do so when asked; elsewhere small pages do as well. */
static void collapse(uint8_t *from, uint8_t *to)
{
    uint8_t *a = from + (HUGE_PAGE - (uintptr_t)from % HUGE_PAGE) % HUGE_PAGE;
    uint8_t *b = to - (uintptr_t)to % HUGE_PAGE;

    if (a < b)
        madvise(a, (size_t)(b - a), MADV_COLLAPSE);
}

int cb_store_off(const char *name)
{
    const char *v = getenv(name);
    return v && !strcmp(v, "0");
}

void cb_store_huge_pages(struct store *s)
{
    const int off = cb_store_off("CTXBANK_HUGE_PAGES");

    for (int h = 0; h < s->n_kv && !s->kivi && !off; h++) {
        if (s->gap_hi[h] > s->gap_lo[h]) /* a page with nothing in it would come back */
            continue;
        collapse(row_k(s, h, 0), row_k(s, h, s->rows[h]));
        collapse(row_v(s, h, 0), row_v(s, h, s->rows[h]));
    }
}

static void shrink(struct store *s, int kv, int n_row)
{
    cb_store_give_back(row_k(s, kv, n_row), row_k(s, kv, s->rows[kv]));
    cb_store_give_back(row_v(s, kv, n_row), row_v(s, kv, s->rows[kv]));
    s->rows[kv] = n_row;
}

/* Rows from[n] (ascending) of one head move to rows 0.., neighbours together. */
static void move_rows(struct store *s, int kv, const int32_t *from, int n)
{
    for (int i = 0, run; i < n; i += run) {
        for (run = 1; i + run < n && from[i + run] == from[i] + run;)
            run++;
        if (from[i] == i)
            continue;
        memmove(row_k(s, kv, i), row_k(s, kv, from[i]), s->row_k * (size_t)run);
        memmove(row_v(s, kv, i), row_v(s, kv, from[i]), s->row_v * (size_t)run);
    }
}

static void pack_head(struct store *s, int kv)
{
    if (s->rows[kv] == s->n[kv])
        return;
    move_rows(s, kv, s->row + at(s, kv, 0), s->n[kv]);
    shrink(s, kv, s->n[kv]);
}

void cb_store_pack(struct store *s)
{
    for (int h = 0; h < s->n_kv; h++)
        pack_head(s, h);
}

/* What is kept beside keys and values moves at once: it is small. */
static void move_columns(struct store *s, int kv, const int *keep, int n)
{
    int i = 0;

    while (i < n && keep[i] == i)
        i++;
    for (int j = i; j < n; j++)
        s->pos[at(s, kv, j)] = s->pos[at(s, kv, keep[j])];
    for (int c = 0; c < s->n_col; c++)
        for (int j = i; j < n; j++)
            column(s, kv, c)[j] = column(s, kv, c)[keep[j]];
}

/* Pages of the gap's keys that did not go before; slots are rows. */
static void give_back_gap(struct store *s, int kv, int had_hi)
{
    const size_t page = page_size();
    uint8_t *from = row_k(s, kv, s->gap_lo[kv]), *had = row_k(s, kv, had_hi);

    had -= (uintptr_t)had % page;
    cb_store_give_back(had > from ? had : from, row_k(s, kv, s->gap_hi[kv]));
}

void cb_store_drop_keys(struct store *s, int kv, int lo, int hi)
{
    const int had = s->gap_hi[kv];

    if (hi <= lo || (had > 0 && hi <= had))
        return;
    s->gap_lo[kv] = lo;
    s->gap_hi[kv] = hi;
    give_back_gap(s, kv, had);
}

/* Before slots move: of those that stay, these have no keys. */
static void move_gap(struct store *s, int kv, const int *keep, int n)
{
    int lo = 0, hi = 0;

    for (int i = 0; i < n; i++) {
        lo += keep[i] < s->gap_lo[kv];
        hi += keep[i] < s->gap_hi[kv];
    }
    s->gap_lo[kv] = lo;
    s->gap_hi[kv] = hi;
}

/* May rows stay where they are when n slots do? */
static int is_lazy(const struct store *s, int kv, int n)
{
    return !s->kivi && s->rows[kv] - n <= n / CB_STORE_HOLES;
}

int cb_store_drop(struct store *s, int kv, int slot)
{
    const int n = s->n[kv] - 1;
    const size_t more = (size_t)(n - slot), to = at(s, kv, slot);

    if (s->rows[kv] == s->n[kv] || !is_lazy(s, kv, n)) /* there is no list yet, or no longer */
        return 0;
    assert(!s->sealed && s->pos && s->row);
    memmove(s->row + to, s->row + to + 1, more * sizeof *s->row);
    memmove(s->pos + to, s->pos + to + 1, more * sizeof *s->pos);
    for (int c = 0; c < s->n_col; c++)
        memmove(column(s, kv, c) + slot, column(s, kv, c) + slot + 1, more * sizeof *s->col);
    s->gap_lo[kv] -= slot < s->gap_lo[kv];
    s->gap_hi[kv] -= slot < s->gap_hi[kv];
    s->n[kv] = n;
    return 1;
}

int cb_store_keep(struct store *s, int kv, const int *keep, int n)
{
    const int lazy = is_lazy(s, kv, n);

    if (n == s->n[kv]) /* ascending and distinct: all of them */
        return CB_OK;
    cb_store_unseal(s, 0, s->sealed);
    TRY(need_pos(s));
    if (lazy && !s->row)
        TRY(cb_store_reserve(pos_bytes(s), &s->row));
    for (int i = 0; s->row && i < n; i++)
        s->row[at(s, kv, i)] = row_of(s, kv, keep[i]);
    move_columns(s, kv, keep, n);
    move_gap(s, kv, keep, n);
    if (s->kivi) {
        TRY(cb_kivi_keep(s, kv, keep, n));
        shrink(s, kv, n);
    } else if (!lazy) {
        move_rows(s, kv, s->row ? s->row + at(s, kv, 0) : keep, n);
        shrink(s, kv, n);
        give_back_gap(s, kv, 0);
    }
    s->n[kv] = n;
    return CB_OK;
}

void cb_store_cut(struct store *s, int n)
{
    cb_store_unseal(s, n, n);
    for (int h = 0; h < s->n_kv; h++)
        if (s->n[h] > n) {
            const int n_row = n ? row_of(s, h, n - 1) + 1 : 0;
            s->n[h] = n;
            if (s->kivi)
                cb_kivi_cut(s, h, n);
            s->gap_hi[h] = n < s->gap_hi[h] ? n : s->gap_hi[h];
            s->gap_lo[h] = n < s->gap_lo[h] ? n : s->gap_lo[h];
            shrink(s, h, n_row);
        }
    if (n == 0 && s->pos) { /* slots are positions again */
        munmap(s->pos, pos_bytes(s));
        s->pos = NULL;
    }
    if (n == 0 && s->row) {
        munmap(s->row, pos_bytes(s));
        s->row = NULL;
    }
}

void cb_store_get_many(const struct store *s, struct device *d, int kv, int v, const int *slot,
                       int n, float *x)
{
    int32_t row[CB_STORE_MANY];

    assert(n <= CB_STORE_MANY);
    for (int i = 0; i < n; i++) {
        row[i] = row_of(s, kv, slot[i]);
        if (s->kivi)
            cb_store_get(s, d, kv, v, slot[i], x + (size_t)i * (size_t)s->hd);
        assert(slot[i] >= s->sealed);
    }
    if (!s->kivi)
        d->ops->kv_decode(d, v ? s->type_v : s->type_k, v ? row_v(s, kv, 0) : row_k(s, kv, 0), row,
                          n, s->hd, x);
}

void cb_store_get(const struct store *s, struct device *d, int kv, int v, int slot, float *x)
{
    const int row = row_of(s, kv, slot);
    assert(slot >= s->sealed);
    if (cb_kivi_has(s, kv, v, slot)) {
        cb_kivi_row(&s->kivi->head[kv], v, slot, s->hd, x);
        return;
    }
    d->ops->kv_decode(d, v ? s->type_v : s->type_k, v ? row_v(s, kv, row) : row_k(s, kv, row), NULL,
                      1, s->hd, x);
}

void cb_store_set(struct store *s, struct device *d, int kv, int v, int slot, const float *x)
{
    const int row = row_of(s, kv, slot);
    assert(slot >= s->sealed);
    if (cb_kivi_has(s, kv, v, slot)) {
        cb_kivi_set(s, kv, v, slot, x);
        return;
    }
    d->ops->kv_encode(d, v ? s->type_v : s->type_k, x, 1, s->hd, s->hd,
                      v ? row_v(s, kv, row) : row_k(s, kv, row));
}

struct kv_run cb_store_run(const struct store *s, int kv, int from, int to)
{
    struct kv_run run = { .n = to - from };

    if (cb_kivi_any(s)) {
        run.k = row_k(s, kv, 0);
        run.v = row_v(s, kv, 0);
        run.kivi = &s->kivi->head[kv];
        run.first = from;
    } else if (s->rows[kv] != s->n[kv]) {
        run.k = row_k(s, kv, 0);
        run.v = row_v(s, kv, 0);
        run.idx = s->row + at(s, kv, from);
    } else {
        run.k = row_k(s, kv, from);
        run.v = row_v(s, kv, from);
    }
    if (s->sealed) {
        assert(from == 0 && to >= s->sealed);
        run.sealed = s->sealed;
        run.step_k = cb_store_steps(s, kv, 0, 0);
        run.step_v = cb_store_steps(s, kv, 1, 0);
    }
    return run;
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
    return s->pos ? s->pos[at(s, kv, slot)] : slot;
}

void *cb_store_row(const struct store *s, int kv, int v, int slot)
{
    return v ? row_v(s, kv, slot) : row_k(s, kv, slot);
}

uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run)
{
    return run->kivi
               ? cb_kivi_run_bytes(s, run)
               : (uint64_t)run->n * (s->row_k + s->row_v) + cb_store_step_bytes(s, run->sealed);
}

uint64_t cb_store_bytes_of(const struct store *s, int n)
{
    return s->kivi ? cb_kivi_bytes_of(s, n)
                   : (uint64_t)n * (s->row_k + s->row_v) + cb_store_step_bytes(s, n);
}

uint64_t cb_store_bytes(const struct store *s)
{
    const size_t beside = (s->pos ? sizeof *s->pos : 0) + (s->row ? sizeof *s->row : 0) +
                          (size_t)s->n_col * sizeof(float);
    uint64_t sum = 0;
    for (int h = 0; h < s->n_kv; h++)
        sum += (s->kivi ? cb_kivi_bytes(s, h) : (uint64_t)s->rows[h] * (s->row_k + s->row_v)) +
               (uint64_t)s->n[h] * beside - (uint64_t)(s->gap_hi[h] - s->gap_lo[h]) * s->row_k +
               cb_store_step_bytes(s, s->sealed);
    return sum;
}
