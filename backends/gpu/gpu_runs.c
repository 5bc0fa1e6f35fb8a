/* SPDX-License-Identifier: MIT */
/* gpu_runs.c - where the entries of an attention call lie on the device: rows of the bank in pages
 * of the mirror, chosen rows that are not all mirrored in places of their own (gpu_chosen.c) or as
 * a packed copy, rows from elsewhere as a copy. */
#include "gpu_runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/kivi.h"
#include "gpu_cache.h"
#include "gpu_lists.h"
#include "gpu_lookup.h"

/* As struct rows and struct run in attention.cl */
struct gpu_rows {
    uint64_t base;
    int32_t pages, shift, skew, bytes;
};
struct gpu_run {
    struct gpu_rows rows[4];
    uint64_t idx, map_k, map_v, logit;
    int32_t n, given, first, n_k, n_v, bits_k, bits_v, lo_k, lo_v, group_k, group_v, pad;
};

enum { KEYS, VALUES, KIVI_KEYS, KIVI_VALUES, N_KIND };

/* Rows lo..hi-1 of one kind that a run reads, counted from the address that the run names */
struct gpu_kind {
    const uint8_t *rows;
    size_t bytes;
    int lo, hi;
    struct gpu_area *area; /* NULL: base is where row 0 lies on the device */
    int at;                /* row 0's number in the area */
    int page0, n_page;     /* the first page, how many */
    int known;             /* of them, from the first on, need not be looked for */
    const uint64_t *page;  /* [n_page] on the device, 0: missing */
    uint64_t base;
};

static struct gpu_kind *kind_of(const struct gpu_runs *r, int h, int k)
{
    return r->kind + h * N_KIND + k;
}

/* The first entry that some query reads */
static int first_entry(const struct attn *a, const struct kv_run *run)
{
    const int hi = a->causal ? run->n - a->n_tok + 1 : run->n;
    return !run->idx && a->window > 0 && hi > a->window ? hi - a->window : 0;
}

/* ---- what is needed ---- */

static void widen(struct gpu_kind *k, int row)
{
    const int none = k->hi <= k->lo;

    k->lo = none || row < k->lo ? row : k->lo;
    k->hi = none || row >= k->hi ? row + 1 : k->hi;
}

/* Rows of keys (v = 0) or values for slots lo..hi-1, or for the list's */
static void need(struct gpu_kind *plain, struct gpu_kind *quant, const struct kv_run *run, int v,
                 int from)
{
    const struct kv_kivi *q = run->kivi;
    if (!run->idx && !(q && (v ? q->n_v : q->n_k))) {
        plain->lo = from + run->first;
        plain->hi = run->n + run->first;
        return;
    }
    for (int j = from; j < run->n; j++) {
        const int slot = (run->idx ? run->idx[j] : j) + run->first;
        const int row = q ? cb_kivi_row_of(q, v, slot) : -1;
        if (row >= 0)
            widen(quant, v ? row : row / cb_kivi_group(q, 0));
        else
            widen(plain, slot);
    }
}

/* own: its rows are in places of their own. */
static void needs(struct gpu_kind k[N_KIND], const struct attn *a, const struct kv_run *run,
                  int own)
{
    const struct kv_kivi *q = run->kivi;
    const int from = first_entry(a, run);

    k[KEYS].rows = run->k;
    k[KEYS].bytes = cb_kv_row_bytes(a->type_k, a->hd);
    k[VALUES].rows = run->v;
    k[VALUES].bytes = cb_kv_row_bytes(a->type_v, a->hd);
    if (q) {
        k[KIVI_KEYS].rows = q->k;
        k[KIVI_KEYS].bytes = (size_t)a->hd * cb_kivi_group_bytes(q->bits_k, cb_kivi_group(q, 0));
        k[KIVI_VALUES].rows = q->v;
        k[KIVI_VALUES].bytes = (size_t)(a->hd / cb_kivi_group(q, 1)) *
                               cb_kivi_group_bytes(q->bits_v, cb_kivi_group(q, 1));
    }
    if (!run->given && !own)
        need(&k[KEYS], &k[KIVI_KEYS], run, 0, from);
    if (!own)
        need(&k[VALUES], &k[KIVI_VALUES], run, 1, from);
}

/* ---- copies ---- */

/* Rows of a list, packed. */
static void gather(struct gpu *g, struct gpu_kind *k, const int32_t *idx, int n)
{
    uint8_t *packed = malloc((size_t)n * k->bytes + 1);
    const double start = cb_now_s();

    if (!packed) {
        cb_gpu_fail_memory(g, "gather");
        return;
    }
    for (int j = 0; j < n; j++)
        memcpy(packed + (size_t)j * k->bytes, k->rows + (size_t)idx[j] * k->bytes, k->bytes);
    g->traffic.gather_s += cb_now_s() - start;
    g->traffic.gathers++;
    g->traffic.kv_in_bytes += (size_t)n * k->bytes;
    k->base = (uintptr_t)cb_gpu_in(g, packed, (size_t)n * k->bytes);
    k->lo = k->hi = 0; /* nothing is left to find */
    k->area = NULL;
    free(packed);
}

static int all_mirrored(const struct gpu_kind *k, const int32_t *idx, int n)
{
    for (int j = 0; j < n; j++)
        if (!cb_gpu_mirror_has(k->area, k->at + idx[j]))
            return 0;
    return 1;
}

/* Rows that are not the bank's are copied whole. */
static void place(struct gpu *g, struct gpu_kind *k)
{
    if (k->hi <= k->lo)
        return;
    k->area = cb_gpu_is_on(g, k->rows) ? NULL : cb_gpu_area(g, k->rows);
    if (k->area && k->area->row_bytes == k->bytes) {
        k->at = (int)((size_t)(k->rows - k->area->rows) / k->bytes);
        k->page0 = (k->at + k->lo) >> k->area->shift;
        k->n_page = ((k->at + k->hi - 1) >> k->area->shift) - k->page0 + 1;
        return;
    }
    k->area = NULL;
    if (cb_gpu_is_on(g, k->rows)) {
        k->base = (uintptr_t)k->rows;
        return;
    }
    g->traffic.kv_in_bytes += (size_t)(k->hi - k->lo) * k->bytes;
    k->base = (uintptr_t)cb_gpu_in(g, k->rows + (size_t)k->lo * k->bytes,
                                   (size_t)(k->hi - k->lo) * k->bytes) -
              (uint64_t)k->lo * k->bytes;
}

/* A list on the device; heads often have the same one. */
static uint64_t list_on(struct gpu *g, struct gpu_runs *r, const int32_t *list, int n)
{
    const size_t bytes = (size_t)n * sizeof *list;

    if (!list || n < 1)
        return 0;
    if (!r->list_on || r->n_list != n || memcmp(r->list, list, bytes)) {
        r->list = list;
        r->n_list = n;
        r->list_on = (uintptr_t)cb_gpu_in(g, list, bytes);
    }
    return r->list_on;
}

/* `list` says which of its rows a run has; NULL: they lie in order, or as on_device
 * says. */
static void describe(struct gpu *g, struct gpu_runs *r, int h, const int32_t *list,
                     const int32_t *on_device)
{
    const struct kv_run *run = &r->a->run[h];
    const struct kv_kivi *q = run->kivi;
    struct gpu_run *on = &r->run[h];

    *on = (struct gpu_run){ .n = run->n,
                            .given = run->given,
                            .first = list == run->idx ? run->first : 0 };
    on->idx = on_device ? (uintptr_t)on_device : list_on(g, r, list, run->n);
    if (!q)
        return;
    on->n_k = q->bits_k ? q->n_k : 0;
    on->n_v = q->bits_v ? q->n_v : 0;
    on->bits_k = q->bits_k;
    on->bits_v = q->bits_v;
    on->lo_k = q->lo_k;
    on->lo_v = q->lo_v;
    on->group_k = cb_kivi_group(q, 0);
    on->group_v = cb_kivi_group(q, 1);
    on->map_k = (uintptr_t)cb_gpu_in(g, q->row_k, (size_t)q->n_k * sizeof *q->row_k);
    on->map_v = (uintptr_t)cb_gpu_in(g, q->row_v, (size_t)q->n_v * sizeof *q->row_v);
}

/* Chosen rows that are not all mirrored, as a copy -> 1: in the order of the list */
static int packed(struct gpu *g, struct gpu_kind *k, const struct kv_run *run)
{
    int all = 1;

    for (int v = KEYS; v <= VALUES; v++)
        all &= !k[v].area || all_mirrored(&k[v], run->idx, run->n);
    if (all)
        return 0;
    cb_gpu_finish(g); /* rows that were stored last must be there */
    g->traffic.gathered_rows += (uint64_t)run->n;
    for (int v = KEYS; v <= VALUES; v++)
        if (k[v].hi > k[v].lo)
            gather(g, &k[v], run->idx, run->n);
    return 1;
}

static void open_head(struct gpu *g, struct gpu_runs *r, int h)
{
    const struct kv_run *run = &r->a->run[h];
    const struct gpu_places cached = cb_gpu_cache_find(g, run);
    const int32_t *found = cached.k ? NULL : cb_gpu_found_list(g, run);
    const struct gpu_places own = cached.k || found ? cached : cb_gpu_chosen_find(g, run);
    const int32_t *list = own.k ? own.at : run->idx;
    struct kv_run whole = *run;
    struct gpu_kind *k = kind_of(r, h, 0);

    if (found) { /* all rows up to the last one are mirrored */
        whole.n = cb_gpu_list_end(g, run);
        whole.idx = NULL;
    }
    if (run->n > 0)
        needs(k, r->a, &whole, own.k != NULL);
    for (int v = KEYS; own.k && v <= VALUES; v++) {
        k[v].base = (uintptr_t)(v ? own.v : own.k);
        r->own[r->n_own] = own.piece;
    }
    r->n_own += own.k != NULL;
    for (int i = 0; i < N_KIND; i++)
        place(g, &k[i]);
    if (!own.k && whole.idx && !run->kivi && packed(g, k, run))
        list = NULL;
    describe(g, r, h, list, found ? found : own.on);
    for (int i = 0; i < N_KIND; i++)
        k[i].page = k[i].area ? k[i].area->at + k[i].page0 : NULL;
}

static size_t table_bytes(const struct gpu_runs *r)
{
    size_t bytes = (size_t)r->a->n_kv * sizeof *r->run + 4096;

    for (int i = 0; i < r->a->n_kv * N_KIND; i++)
        if (r->kind[i].area)
            bytes += (size_t)r->kind[i].n_page * sizeof(uint64_t) + 128;
    return bytes;
}

int cb_gpu_runs_open(struct gpu *g, struct gpu_runs *r, const struct attn *a)
{
    const size_t n = (size_t)a->n_kv, rows = (size_t)a->n_tok * (size_t)a->n_head;

    *r = (struct gpu_runs){ .a = a };
    r->run = cb_calloc(n, sizeof *r->run);
    r->kind = cb_calloc(n * N_KIND, sizeof *r->kind);
    r->logit = cb_calloc(n, sizeof *r->logit);
    r->own = cb_calloc(n + 1, sizeof *r->own);
    r->gap_at = cb_calloc(n + 1, sizeof *r->gap_at);
    if (!r->run || !r->kind || !r->logit || !r->own || !r->gap_at) {
        cb_gpu_fail_memory(g, "attention");
        cb_gpu_runs_close(g, r);
        return 0;
    }
    if (a->n_kv)
        cb_gpu_mirror_turn(g, cb_gpu_area(g, a->run->v));
    for (int h = 0; h < a->n_kv; h++)
        cb_gpu_list_home(g, &a->run[h]);
    if (a->n_tok == 1)
        cb_gpu_cache_bring(g, a->run, a->n_kv);
    if (g->found.to && !g->found.used && !g->found.sent)
        cb_gpu_found_home(g);
    if (a->n_tok == 1 && !(a->n_kv && cb_gpu_found_list(g, a->run)))
        cb_gpu_chosen_bring(g, a->run, a->n_kv);
    for (int h = 0; h < a->n_kv; h++)
        open_head(g, r, h);
    cb_gpu_stage_reserve(g, table_bytes(r) + rows * (size_t)(a->hd + 1) * sizeof(float));
    return 1;
}

void cb_gpu_runs_close(struct gpu *g, struct gpu_runs *r)
{
    free(r->run);
    free(r->kind);
    free(r->logit);
    free(r->own);
    free(r->gap);
    free(r->gap_at);
    free(r->deep);
    g->locked = 0;
}

/* ---- pages ---- */

/* How kind j may push pages out: rows that are chosen for a token do not. */
static enum gpu_need need_of(const struct gpu_runs *r, int j, enum gpu_need need)
{
    const struct kv_run *run = &r->a->run[j / N_KIND];
    return need == GPU_MAY && run->idx && !run->kivi ? GPU_CHOSEN : need;
}

/* The i-th page from the end of each kind of each run: all runs get their newest pages first. */
static int find_pages(struct gpu *g, struct gpu_runs *r, int i, enum gpu_need need)
{
    int any = 0;

    for (int j = 0; j < r->a->n_kv * N_KIND; j++) {
        struct gpu_kind *k = &r->kind[j];
        const int at = k->n_page - 1 - i;
        if (!k->page || at < k->known)
            continue;
        any = 1;
        r->missing |=
            !cb_gpu_mirror_page(g, k->area, k->page0 + at, k->at + k->hi, need_of(r, j, need));
    }
    return any;
}

/* Where each kind's pages lie; those that each decoded token reads are known from the last one. */
static void find_all_pages(struct gpu *g, struct gpu_runs *r, enum gpu_need need)
{
    const int n = r->a->n_kv * N_KIND;

    cb_gpu_mirror_begin(g);
    for (int j = 0; j < n; j++) {
        struct gpu_kind *k = &r->kind[j];
        if (k->page && need_of(r, j, need) == GPU_MAY)
            k->known = cb_gpu_mirror_again(g, k->area, k->page0, k->n_page);
        g->locked |= k->known > 0;
    }
    for (int i = 0; find_pages(g, r, i, need); i++)
        g->locked = 1;
    for (int j = 0; j < n && !r->missing; j++) {
        const struct gpu_kind *k = &r->kind[j];
        if (k->page && need_of(r, j, need) == GPU_MAY)
            cb_gpu_mirror_found(g, k->area, k->page0, k->n_page);
    }
}

static int has_row(const struct gpu_kind *k, int row)
{
    return !k->page || k->page[((k->at + row) >> k->area->shift) - k->page0];
}

static int has_entry(const struct gpu_runs *r, int h, int j)
{
    const struct kv_run *run = &r->a->run[h];
    const struct kv_kivi *q = run->kivi;
    const int slot = j + run->first;

    for (int v = 0; v < 2; v++) {
        const int row = q && (v ? q->bits_v : q->bits_k) ? cb_kivi_row_of(q, v, slot) : -1;
        if (!v && run->given)
            continue;
        if (row < 0 ? !has_row(kind_of(r, h, v), slot)
                    : !has_row(kind_of(r, h, v ? KIVI_VALUES : KIVI_KEYS),
                               v ? row : row / cb_kivi_group(q, 0)))
            return 0;
    }
    return 1;
}

/* The missing pieces of a run, in order; their number. gap NULL: counts. */
static int gaps(const struct gpu_runs *r, int h, int (*gap)[2], int64_t *entries)
{
    const struct kv_run *run = &r->a->run[h];
    int n = 0, in = 0;

    for (int j = first_entry(r->a, run); j < run->n; j++) {
        const int is = !has_entry(r, h, j);
        if (is && !in++ && ++n && gap)
            gap[n - 1][0] = j;
        if (is && gap)
            gap[n - 1][1] = j + 1;
        in = is ? in : 0;
        *entries += is;
    }
    return n;
}

/* May the CPU attend to the missing entries without masks, and is anything left for the device? */
static int may_split(const struct gpu_runs *r, int64_t missing, int64_t all)
{
    const struct attn *a = r->a;

    if (missing == all || (a->window > 0 && a->n_tok > 1))
        return 0;
    for (int h = 0; h < a->n_kv; h++) {
        const int n = r->gap_at[h + 1];
        if (n == r->gap_at[h])
            continue;
        if (a->run[h].idx || (a->causal && r->gap[n - 1][1] > a->run[h].n - a->n_tok + 1))
            return 0;
    }
    return 1;
}

static int find_gaps(struct gpu *g, struct gpu_runs *r)
{
    int64_t missing = 0, all = 0, unused = 0;

    for (int h = 0; h < r->a->n_kv; h++) {
        const struct kv_run *run = &r->a->run[h];
        all += run->n - first_entry(r->a, run);
        r->gap_at[h + 1] =
            r->gap_at[h] + (r->missing && !run->idx ? gaps(r, h, NULL, &missing) : 0);
        if (r->missing && run->idx)
            return 0;
    }
    g->traffic.hit_rows += (uint64_t)(all - missing);
    if (!r->missing)
        return 1;
    r->gap = cb_calloc((size_t)r->gap_at[r->a->n_kv] + 1, sizeof *r->gap);
    for (int h = 0; r->gap && h < r->a->n_kv; h++)
        gaps(r, h, r->gap + r->gap_at[h], &unused);
    if (r->gap && may_split(r, missing, all))
        return 1;
    g->traffic.hit_rows -= (uint64_t)(all - missing);
    return 0;
}

/* ---- descriptions ---- */

/* Descriptions and tables of pages, which one copy brings to the device */
struct tables {
    uint8_t *host, *on; /* NULL: no room */
    size_t used, bytes;
};

static struct tables open_tables(struct gpu *g, const struct gpu_runs *r)
{
    struct tables t = { .used = (size_t)r->a->n_kv * sizeof *r->run };
    void *host = NULL;

    t.bytes = t.used;
    for (int i = 0; i < r->a->n_kv * N_KIND; i++)
        t.bytes += r->kind[i].page ? (size_t)r->kind[i].n_page * sizeof *r->kind[i].page : 0;
    t.on = cb_gpu_room_beside(g, t.bytes, &host);
    t.host = host;
    return t;
}

static struct gpu_rows describe_rows(struct tables *t, const struct gpu_kind *k)
{
    struct gpu_rows on = { .base = k->base, .bytes = (int32_t)k->bytes };
    const size_t bytes = (size_t)k->n_page * sizeof *k->page;

    if (!k->page)
        return on;
    on.pages = 1;
    on.shift = k->area->shift;
    on.skew = k->at - (k->page0 << k->area->shift);
    on.base = (uintptr_t)(t->on + t->used);
    memcpy(t->host + t->used, k->page, bytes);
    t->used += bytes;
    return on;
}

/* Kernels reach rows through descriptions, so the driver is told which memory they lie in. */
static int list_deep(struct gpu *g, struct gpu_runs *r)
{
    void *const *slab = cb_gpu_mirror_pieces(g);
    size_t n = 0, n_stage = 0;

    while (slab[n])
        n++;
    for (const struct gpu_stage *s = g->stage; s; s = s->next)
        n_stage++;
    r->deep = cb_calloc(n + n_stage + (size_t)r->n_own + 1, sizeof *r->deep);
    if (!r->deep)
        return 0;
    memcpy(r->deep, slab, n * sizeof *slab);
    for (int i = 0; i < r->n_own; i++)
        r->deep[n++] = r->own[i];
    for (const struct gpu_stage *s = g->stage; s; s = s->next)
        r->deep[n++] = s->on;
    return 1;
}

static int find(struct gpu *g, struct gpu_runs *r)
{
    const enum gpu_need need = r->a->n_tok > 1 || g->stream_kv ? GPU_MUST : GPU_MAY;
    struct tables t;

    find_all_pages(g, r, need);
    if (!find_gaps(g, r))
        return 0;
    t = open_tables(g, r);
    if (!t.on)
        return 0;
    for (int h = 0; h < r->a->n_kv; h++) {
        for (int k = 0; k < N_KIND; k++)
            r->run[h].rows[k] = describe_rows(&t, kind_of(r, h, k));
        r->run[h].logit = (uintptr_t)r->logit[h];
    }
    memcpy(t.host, r->run, (size_t)r->a->n_kv * sizeof *r->run);
    cb_gpu_send(g, t.on, t.host, t.bytes);
    r->on = t.on;
    return list_deep(g, r);
}

int cb_gpu_runs_find(struct gpu *g, struct gpu_runs *r)
{
    const int is = find(g, r);

    if (!is && g->found.to) /* mirrored rows have given way, and the CPU reads the lists */
        cb_gpu_found_home(g);
    return is;
}

int cb_gpu_runs_missing(const struct gpu_runs *r, int h, int i, int *lo, int *hi)
{
    const int at = r->gap_at[h] + i;

    if (!r->missing || at >= r->gap_at[h + 1])
        return 0;
    *lo = r->gap[at][0];
    *hi = r->gap[at][1];
    return 1;
}

struct kv_run cb_gpu_run_part(const struct attn *a, int h, int lo, int hi)
{
    struct kv_run run = a->run[h];

    if (run.kivi) {
        run.first += lo;
    } else {
        run.k =
            run.k ? (const uint8_t *)run.k + (size_t)lo * cb_kv_row_bytes(a->type_k, a->hd) : NULL;
        run.v = (const uint8_t *)run.v + (size_t)lo * cb_kv_row_bytes(a->type_v, a->hd);
    }
    run.n = hi - lo;
    run.logit = run.logit ? run.logit + lo : NULL;
    return run;
}
