/* SPDX-License-Identifier: MIT */
/* store.c - one layer's keys and values in reserved address space. */
#include "store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
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

size_t cb_store_list_bytes(const struct store *s)
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
    s->hole = cb_calloc((size_t)n_kv, sizeof *s->hole);
    s->mixed = cb_calloc((size_t)n_kv, sizeof *s->mixed);
    if (!s->n || !s->rows || !s->hole || !s->mixed || !s->gap_lo || !s->gap_hi)
        return CB_ENOMEM;
    for (int h = 0; h < n_kv; h++)
        s->hole[h] = -1;
    TRY(cb_store_reserve(s->head_k * (size_t)n_kv, &s->k));
    TRY(cb_store_reserve(s->head_v * (size_t)n_kv, &s->v));
    return n_col ? cb_store_reserve(col_bytes(s), &s->col) : CB_OK;
}

void cb_store_close(struct store *s)
{
    cb_kivi_close(s);
    cb_store_release(s->k, s->head_k * (size_t)s->n_kv);
    cb_store_release(s->v, s->head_v * (size_t)s->n_kv);
    cb_store_release(s->pos, cb_store_list_bytes(s));
    cb_store_release(s->row, cb_store_list_bytes(s));
    cb_store_release(s->col, col_bytes(s));
    cb_store_prepack_close(s);
    free(s->n);
    free(s->rows);
    free(s->hole);
    free(s->mixed);
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

void cb_store_give_back(uint8_t *from, uint8_t *to)
{
    const size_t p = page_size();
    uint8_t *a = from + (p - (uintptr_t)from % p) % p, *b = to - (uintptr_t)to % p;
    if (a < b)
        madvise(a, (size_t)(b - a), MADV_DONTNEED);
}

/* What of [from, to) fills huge pages becomes such: only then do they cost no memory that is not
 * used. Linux 6.1 and later do so when asked; elsewhere small pages do as well. */
static void collapse(uint8_t *from, uint8_t *to)
{
    uint8_t *a = from + (HUGE_PAGE - (uintptr_t)from % HUGE_PAGE) % HUGE_PAGE;
    uint8_t *b = to - (uintptr_t)to % HUGE_PAGE;

    if (a < b)
        madvise(a, (size_t)(b - a), MADV_COLLAPSE);
}

void cb_store_huge_pages(struct store *s)
{
    for (int h = 0; h < s->n_kv && !s->kivi && !s->small_pages; h++) {
        if (s->gap_hi[h] > s->gap_lo[h]) /* a page with nothing in it would come back */
            continue;
        collapse(row_k(s, h, 0), row_k(s, h, s->rows[h]));
        collapse(row_v(s, h, 0), row_v(s, h, s->rows[h]));
    }
}

/* Pages of the gap's keys that did not go before; slots are rows. */
void cb_store_give_back_gap(struct store *s, int kv, int had_hi)
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
    cb_store_give_back_gap(s, kv, had);
}

struct kv_run cb_store_run(const struct store *s, int kv, int from, int to)
{
    struct kv_run run = { .n = to - from };

    assert(s->hole[kv] < 0);
    if (cb_kivi_any(s)) {
        run.k = row_k(s, kv, 0);
        run.v = row_v(s, kv, 0);
        run.kivi = &s->kivi->head[kv];
        run.first = from;
    } else if (s->mixed[kv]) {
        run.k = row_k(s, kv, 0);
        run.v = row_v(s, kv, 0);
        *(s->any_order && from == 0 && to == s->n[kv] ? &run.order : &run.idx) =
            s->row + cb_store_at(s, kv, from);
    } else {
        run.k = row_k(s, kv, from);
        run.v = row_v(s, kv, from);
    }
    if (s->prepacked) {
        assert(from == 0 && to >= s->prepacked && !run.idx);
        run.prepacked = s->prepacked;
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
    return s->pos ? s->pos[cb_store_at(s, kv, slot)] : slot;
}

void *cb_store_row(const struct store *s, int kv, int v, int row)
{
    return v ? row_v(s, kv, row) : row_k(s, kv, row);
}

uint64_t cb_store_run_bytes(const struct store *s, const struct kv_run *run)
{
    return run->kivi
               ? cb_kivi_run_bytes(s, run)
               : (uint64_t)run->n * (s->row_k + s->row_v) + cb_store_step_bytes(s, run->prepacked);
}

uint64_t cb_store_value_bytes(const struct store *s, const struct kv_run *run)
{
    return run->kivi ? cb_kivi_value_bytes(s, run) : (uint64_t)run->n * s->row_v;
}

uint64_t cb_store_bytes_of(const struct store *s, int kv, int n)
{
    return s->kivi ? cb_kivi_bytes_of(s, kv, n)
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
               cb_store_step_bytes(s, s->prepacked);
    return sum;
}
