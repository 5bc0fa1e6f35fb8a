/* SPDX-License-Identifier: MIT */
/* attn.c - attention of the CPU device. The entries are cut at fixed slots into splits of
 * KEY_SPLIT. Each split is summed with an online softmax (Milakov and Gimelshein 2018) over its
 * blocks, and the splits are joined from left to right. With few queries the threads share the
 * splits (flash decoding), with many the tiles of queries. Both ways do the same arithmetic, so the
 * result depends neither on the number of threads nor on the chunks of a prompt. */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "attn_tile.h"
#include "base/ints.h"
#include "cpu/kern.h"
#include "kivi_block.h"

enum {
    SPLIT_TOK = 8,           /* most queries for sharing out splits */
    SPLIT_ROWS = 64,         /* most rows for that, unless there is one query only */
    ITEMS = 4,               /* items of splits a thread, at least */
    PIECE_BYTES = 256 << 10, /* of keys and values that several calls read */
    PACK_ROWS = 24, /* from this many rows on, unpacking the values once for all rows pays */
};

struct sums {
    float *o, *m, *l; /* [rows][hd_pad], [rows], [rows] */
};

/* A thread's work space beside its tile. */
struct work {
    const struct kern_vec *k;
    struct sums split, all;
    float *factor, *sum; /* [rows] as in kern_soft */
    int *seen;           /* [rows] */
    int *any;            /* [units of the tile] 1: the unit has read some of the split */
    float *s;            /* [SUB_TILES * mr][KEY_BLOCK] */
    float *v;            /* [KEY_BLOCK][hd_pad] */
    void *kp;            /* a packed block of keys */
};

/* A call whose splits the threads share */
struct shared_call {
    const struct attn *a;
    int n_split;
    char *part;       /* [n_kv][n_split] sums of the splits */
    atomic_int *left; /* [n_kv] unfinished splits */
};

/* Calls that read the same memory, or one call: KV head after KV head, in n_piece pieces */
struct family {
    int call, n_call;
    int n_split, n_piece;
};

struct job {
    struct par *par;
    const struct kern_vec *vec;
    const struct kern_attn *k;
    const struct attn *a;               /* many queries: the call, in tiles of tile_tok queries */
    int tile_tok, n_tile, first;        /* the first tile lacks its first `first` queries */
    struct shared_call call[SPLIT_TOK]; /* few queries: calls, in families */
    struct family family[SPLIT_TOK];
    int n_family;
};

static size_t sums_bytes(int rows, int hd_pad)
{
    return ((size_t)rows * (size_t)(hd_pad + 2) * sizeof(float) + 63) & ~(size_t)63;
}

static struct sums sums_at(void *mem, int rows, int hd_pad)
{
    float *f = mem;
    return (struct sums){ f, f + (size_t)rows * (size_t)hd_pad,
                          f + (size_t)rows * (size_t)(hd_pad + 1) };
}

static void sums_clear(struct sums *s, int rows, int hd_pad)
{
    memset(s->o, 0, (size_t)rows * (size_t)hd_pad * sizeof *s->o);
    for (int r = 0; r < rows; r++) {
        s->m[r] = -INFINITY;
        s->l[r] = 0.0f;
    }
}

static size_t work_bytes(const struct kern_attn *k, int rows, int hd)
{
    const int pad = cb_hd_pad(k, hd);
    const size_t f = sizeof(float);

    return cb_tile_bytes(k, rows, hd) + 2 * sums_bytes(rows, pad) + 4 * (size_t)rows * f + 256 +
           (size_t)(SUB_TILES * k->mr * KEY_BLOCK) * f + (size_t)(KEY_BLOCK * pad) * f +
           (size_t)KEY_BLOCK * cb_packed_key_bytes(k, hd) + 64;
}

static void work_open(struct work *w, const struct tile *t, char **mem)
{
    const size_t f = sizeof(float);

    w->split = sums_at(cb_take(mem, sums_bytes(t->rows, t->hd_pad)), t->rows, t->hd_pad);
    w->all = sums_at(cb_take(mem, sums_bytes(t->rows, t->hd_pad)), t->rows, t->hd_pad);
    w->factor = cb_take(mem, (size_t)t->rows * f);
    w->sum = cb_take(mem, (size_t)t->rows * f);
    w->seen = cb_take(mem, (size_t)t->rows * sizeof *w->seen);
    w->any = cb_take(mem, (size_t)(t->rows / t->unit) * sizeof *w->any);
    w->s = cb_take(mem, (size_t)(SUB_TILES * t->k->mr * KEY_BLOCK) * f);
    w->v = cb_take(mem, (size_t)(KEY_BLOCK * t->hd_pad) * f);
    w->kp = cb_take(mem, (size_t)KEY_BLOCK * t->qk->k_bytes(t->a->hd));
}

/* The only query's logits in the run. They are natural (not base 2), with the cap applied. */
static float *logit_row(const struct tile *t, const struct block *b, int r)
{
    return t->run->logit + (size_t)r * (size_t)t->a->logit_stride + b->from;
}

static void take_logits(const struct tile *t, const struct block *b, int r, int m, int n, float *s)
{
    for (int i = 0; i < m; i++) {
        const float *x = logit_row(t, b, r + i);
        for (int j = 0; j < n; j++)
            s[i * KEY_BLOCK + j] = x[j] * 1.44269504f;
        for (int j = n; j < KEY_BLOCK; j++)
            s[i * KEY_BLOCK + j] = 0;
    }
}

static void leave_logits(const struct tile *t, const struct block *b, int r, int m, int n,
                         const float *s)
{
    for (int i = 0; i < m; i++, s += KEY_BLOCK) {
        float *restrict y = logit_row(t, b, r + i);
        for (int j = 0; j < n; j++)
            y[j] = s[j] * 0.69314718f;
        for (int j = 0; t->cap > 0 && j < n; j++)
            y[j] = t->a->softcap * tanhf(s[j]);
    }
}

/* Adds rows r..r+m-1 of the tile, whose weights online_softmax() has computed, times a block's
 * values */
static void add_values(const struct tile *t, const struct work *w, const struct block *b, int r,
                       int m, int n, const struct kern_rows *v)
{
    const struct kern_soft soft = { w->s, w->sum, w->factor, w->seen, m, t->mr };
    struct kern_rows seen = *v;
    float *o = w->split.o + (size_t)r * (size_t)t->hd_pad;

    seen.n = n;
    if (b->prepacked)
        t->k->prepack[t->a->type_v]->pv(
            &soft, cb_codes_at(t, 1, b->from), cb_steps_at(t->run->step_v, b->from),
            r ? NULL : cb_codes_at(t, t->run->given, b->from + KEY_BLOCK), t->hd_pad, o);
    else if (cb_kivi_has_pv(w->k, t, b->from, b->n))
        cb_kivi_pv(w->k, t, b->from, &soft, o);
    else if (cb_integer_values(t->k, t->a, t->a->type_v))
        t->k->pv_i16(&soft, t->a->type_v, w->v, n, t->hd_pad, o);
    else
        t->k->pv(&soft, &seen, t->hd_pad, o);
}

/* Attends rows [r, r + m) of the tile to a block. The keys are packed unless the tile is a single
 * register tile. */
static void attend_rows(const struct tile *t, const struct work *w, const struct block *b, int r,
                        int m, const struct kern_rows *v)
{
    const int last = t->row_hi[r + m - 1] - b->from, n = last < b->n ? last : b->n;
    const int whole = b->prepacked ? KEY_BLOCK : (n + t->k->nk - 1) / t->k->nk * t->k->nk;

    if (n <= 0 || t->row_lo[r] >= b->from + n)
        return;
    if (t->run->given)
        take_logits(t, b, r, m, n, w->s);
    else if (b->prepacked)
        cb_prepacked_logits(t, b->from, r, m, cb_codes_at(t, 1, b->from), w->s);
    else if (cb_kivi_has_logits(w->k, t))
        cb_kivi_logits(w->k, t, r, m, b->from, n, w->kp, w->s);
    else if (t->rows <= t->mr && !t->run->kivi)
        t->qk->direct(t->qp, m, &b->k, t->a->hd, w->s);
    else
        cb_tile_logits(t, r, m, w->kp, n, w->s);
    if (t->run->logit && !t->run->given)
        leave_logits(t, b, r, m, n, w->s);
    for (int i = 0; i < m; i++)
        w->seen[i] = min_int(t->row_hi[r + i] - b->from, n);
    t->k->online_softmax(&(const struct kern_logits){ .s = w->s,
                                                      .rows = m,
                                                      .n = whole,
                                                      .lo = t->row_lo + r,
                                                      .seen = w->seen,
                                                      .from = b->from,
                                                      .cap = t->run->given ? 0 : t->cap,
                                                      .m = w->split.m + r,
                                                      .l = w->split.l + r,
                                                      .sum = w->sum,
                                                      .factor = w->factor });
    add_values(t, w, b, r, m, n, v);
}

static void pack_keys(const struct tile *t, const struct work *w, const struct block *b)
{
    if (b->prepacked || t->run->given || cb_kivi_has_logits(w->k, t))
        return;
    if (t->run->kivi)
        cb_kivi_pack_keys(w->k, t->a, t->run, b->from, b->n, w->kp);
    else if (t->rows > t->mr)
        t->qk->pack_k(&b->k, t->a->hd, w->kp);
}

/* The block's values in the form that the product reads: integers, f32 rows, or the stored rows.
 * row[KEY_BLOCK] is work space. */
static struct kern_rows pack_values(const struct tile *t, const struct work *w,
                                    const struct block *b, const char **row)
{
    const int integers = cb_integer_values(t->k, t->a, b->v.t);

    if (b->prepacked || cb_kivi_has_pv(w->k, t, b->from, b->n))
        return b->v;
    if (t->run->kivi && t->run->kivi->bits_v)
        cb_kivi_pack_values(w->k, t->a, t->run, b->from, b->n, t->hd_pad, w->v);
    else if (integers)
        t->k->pack_v_i16(&b->v, t->a->hd, 0, w->v);
    else if (t->rows >= PACK_ROWS || t->hd_pad != t->a->hd || b->v.t == KV_Q8_0)
        t->k->pack_v(&b->v, t->a->hd, t->hd_pad, w->v);
    else
        return b->v;
    for (int j = 0; !integers && j < b->n; j++)
        row[j] = (const char *)(w->v + j * t->hd_pad);
    return (struct kern_rows){ .t = KV_F32, .n = b->n, .row = row };
}

/* Does unit u of the tile read the block at `from`? */
static int unit_reads(const struct tile *t, int u, int from)
{
    return !t->reads || t->reads[(size_t)u * (size_t)t->n_col + (size_t)(from / KEY_BLOCK)];
}

static int tile_reads(const struct tile *t, int from)
{
    const int n = t->rows / t->unit;

    for (int u = 0; u < n; u++)
        if (unit_reads(t, u, from))
            return 1;
    return 0;
}

/* Rows r.. of sums s */
static struct sums sums_from(const struct sums *s, int r, int hd_pad)
{
    return (struct sums){ s->o + (size_t)r * (size_t)hd_pad, s->m + r, s->l + r };
}

/* The keys and values are packed once for all units that read them. */
static void attend_block(const struct tile *t, const struct work *w, const struct block *b)
{
    const int step = SUB_TILES * t->mr;
    const char *packed[KEY_BLOCK];
    struct kern_rows v;

    pack_keys(t, w, b);
    v = pack_values(t, w, b, packed);
    for (int from = 0, u = 0; from < t->rows; from += t->unit, u++) {
        const int end = from + t->unit;
        struct sums of_unit;
        if (!unit_reads(t, u, b->from))
            continue;
        of_unit = sums_from(&w->split, from, t->hd_pad);
        if (!w->any[u]++)
            sums_clear(&of_unit, t->unit, t->hd_pad);
        for (int r = from; r < end; r += step)
            attend_rows(t, w, b, r, min_int(end - r, step), &v);
    }
}

/* Attends to split sp of the tile's run -> w->split of the units that read any of it, w->any */
static void attend_split(const struct tile *t, struct work *w, int sp)
{
    const int begin = sp * KEY_SPLIT, end = begin + KEY_SPLIT < t->hi ? begin + KEY_SPLIT : t->hi;
    struct block b;

    memset(w->any, 0, (size_t)(t->rows / t->unit) * sizeof *w->any);
    if (begin + KEY_SPLIT <= t->lo || begin >= end)
        return;
    b.run = NULL;
    for (int from = begin; from < end; from += KEY_BLOCK) {
        if (from + KEY_BLOCK <= t->lo || !tile_reads(t, from))
            continue;
        cb_block_open(&b, t->a, t->run, from, end);
        attend_block(t, w, &b);
    }
}

static void fold(const struct tile *t, int rows, struct sums all, struct sums s)
{
    t->k->fold(rows, t->hd_pad, all.o, all.m, all.l, s.o, s.m, s.l);
}

static void fold_units(const struct tile *t, const struct work *w)
{
    for (int r = 0, u = 0; r < t->rows; r += t->unit, u++)
        if (w->any[u])
            fold(t, t->unit, sums_from(&w->all, r, t->hd_pad), sums_from(&w->split, r, t->hd_pad));
}

static void finish(const struct tile *t, const struct sums *s)
{
    const struct attn *a = t->a;

    for (int r = 0; r < t->rows; r++) {
        const size_t at = (size_t)(t->tok + r / t->group) * (size_t)a->n_head +
                          (size_t)(t->kv * t->group + r % t->group);
        const float inv = s->l[r] > 0.0f ? 1.0f / s->l[r] : 0.0f;
        const float *o = s->o + (size_t)r * (size_t)t->hd_pad;
        float *out = a->out + at * (size_t)a->hd;
        for (int c = 0; c < a->hd; c++)
            out[c] = o[c] * inv;
        if (a->lse)
            a->lse[at] = s->l[r] > 0.0f ? (s->m[r] + log2f(s->l[r])) * 0.69314718f : -INFINITY;
    }
}

/* What the tile's units read; where they have one row of blocks, there is one unit. */
static void open_reads(struct tile *t)
{
    const struct attn_blocks *b = t->a->blocks;

    if (!b)
        return;
    t->n_col = b->n_col;
    t->reads =
        b->reads + ((size_t)t->kv * (size_t)b->n_row + (size_t)cb_attn_blocks_row(b, t->tok)) *
                       (size_t)b->n_col;
}

/* Many queries: an item is a tile of queries. The last tiles read most, so they come first. */
static void tile_item(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const int n_kv = job->a->n_kv, by_head = cb_par_nodes(job->par) > 1; /* its keys are there */
    const int kv = by_head ? i / job->n_tile : i % n_kv;
    const int tile = job->n_tile - 1 - (by_head ? i % job->n_tile : i / n_kv);
    const int tok = max_int(0, tile * job->tile_tok - job->first);
    const int end = min_int(job->a->n_tok, (tile + 1) * job->tile_tok - job->first);
    char *mem = cb_par_scratch(job->par, thread);
    struct tile t;
    struct work w;

    cb_tile_open(&t, job->k, job->a, kv, tok, end - tok, job->a->blocks && job->a->blocks->each,
                 &mem);
    open_reads(&t);
    work_open(&w, &t, &mem);
    w.k = job->vec;
    sums_clear(&w.all, t.rows, t.hd_pad);
    for (int sp = 0; sp * KEY_SPLIT < t.hi; sp++) {
        attend_split(&t, &w, sp);
        fold_units(&t, &w);
    }
    finish(&t, &w.all);
}

/* The sums of a KV head's split sp. */
static struct sums part_of(const struct shared_call *c, const struct tile *t, int sp)
{
    const size_t bytes = sums_bytes(t->rows, t->hd_pad);
    return sums_at(c->part + (size_t)(t->kv * c->n_split + sp) * bytes, t->rows, t->hd_pad);
}

static void join_parts(const struct shared_call *c, const struct tile *t, struct work *w)
{
    sums_clear(&w->all, t->rows, t->hd_pad);
    for (int sp = t->lo / KEY_SPLIT; sp * KEY_SPLIT < t->hi; sp++) {
        fold(t, t->rows, w->all, part_of(c, t, sp));
    }
    finish(t, &w->all);
}

/* Attends to splits from..to-1 of a call's KV head. The thread that finishes the head's last split
 * joins them all. */
static void attend_piece(const struct job *job, const struct shared_call *c, int kv, int from,
                         int to, char *mem)
{
    struct tile t;
    struct work w;

    if (from >= to)
        return;
    cb_tile_open(&t, job->k, c->a, kv, 0, c->a->n_tok, 0, &mem);
    work_open(&w, &t, &mem);
    w.k = job->vec;
    for (int sp = from; sp < to; sp++) {
        w.split = part_of(c, &t, sp);
        attend_split(&t, &w, sp);
    }
    if (atomic_fetch_sub_explicit(&c->left[kv], to - from, memory_order_acq_rel) == to - from)
        join_parts(c, &t, &w);
}

/* Few queries: an item is some consecutive splits of a KV head, so that a thread itself reads what
 * it prefetches; and all calls of a family, the later of which find the splits in cache. */
static void split_item(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const int n_kv = job->call[0].a->n_kv;
    const struct family *f = job->family;
    int piece, from, to;

    for (; i >= n_kv * f->n_piece; f++)
        i -= n_kv * f->n_piece;
    piece = i % f->n_piece;
    from = piece * f->n_split / f->n_piece;
    to = (piece + 1) * f->n_split / f->n_piece;
    for (const struct shared_call *c = job->call + f->call, *end = c + f->n_call; c < end; c++)
        attend_piece(job, c, i / f->n_piece, from, min_int(to, c->n_split),
                     cb_par_scratch(job->par, thread));
}

static int few(const struct attn *a)
{
    if (a->blocks) /* the queries may be in two rows of blocks */
        return 0;
    return a->n_tok == 1 ||
           (a->n_tok <= SPLIT_TOK && a->n_tok * (a->n_head / a->n_kv) <= SPLIT_ROWS);
}

static void call_open(struct shared_call *c, const struct job *job, const struct attn *a,
                      char **mem)
{
    const int rows = a->n_tok * (a->n_head / a->n_kv);
    int n = 1;

    for (int i = 0; i < a->n_kv; i++)
        n = a->run[i].n > n ? a->run[i].n : n;
    c->a = a;
    c->n_split = (n + KEY_SPLIT - 1) / KEY_SPLIT;
    c->left = cb_take(mem, (size_t)a->n_kv * sizeof *c->left);
    for (int i = 0; i < a->n_kv; i++)
        atomic_init(&c->left[i], c->n_split);
    c->part =
        cb_take(mem, (size_t)(a->n_kv * c->n_split) * sums_bytes(rows, cb_hd_pad(job->k, a->hd)));
}

static int alike(const struct attn *a, const struct attn *b)
{
    return a->n_tok == b->n_tok && a->n_head == b->n_head && a->n_kv == b->n_kv && a->hd == b->hd;
}

/* Bytes of a split's keys and values, about */
static size_t split_bytes(const struct attn *a)
{
    return KEY_SPLIT * (cb_kv_row_bytes(a->type_k, a->hd) + cb_kv_row_bytes(a->type_v, a->hd));
}

/* Adds call i, the last one, to its family. */
static void join_family(struct job *job, int i)
{
    const struct shared_call *c = &job->call[i];
    struct family *f;

    if (!i || !c->a->family || c->a->family != c[-1].a->family)
        job->family[job->n_family++] = (struct family){ .call = i };
    f = &job->family[job->n_family - 1];
    f->n_call++;
    f->n_split = max_int(f->n_split, c->n_split);
}

/* Cuts the families' KV heads into pieces, at least as many as keep the threads busy. A piece that
 * several calls read stays in L2. Returns the number of items. */
static int cut_pieces(struct job *job, int n_call, int n_thread)
{
    const int n_kv = job->call[0].a->n_kv, n_head = n_call * n_kv;
    const int busy = (ITEMS * n_thread + n_head - 1) / n_head;
    int n_item = 0;

    for (struct family *f = job->family; f < job->family + job->n_family; f++) {
        const size_t bytes = (size_t)f->n_split * split_bytes(job->call[f->call].a);
        f->n_piece = f->n_call > 1 ? (int)(bytes / PIECE_BYTES) + 1 : 1;
        f->n_piece = min_int(max_int(f->n_piece, busy), f->n_split);
        n_item += n_kv * f->n_piece;
    }
    return n_item;
}

/* The work space holds the splits of SPLIT_TOK queries, so as many calls share a loop as have
 * these. Returns how many of the n calls were done. */
static int attend_splits(struct device *d, struct job *job, const struct attn *a, int n)
{
    const int rows = a->n_tok * (a->n_head / a->n_kv);
    char *mem = (char *)cb_par_scratch(d->par, 0) + work_bytes(job->k, rows, a->hd);
    int m = 0, n_tok = 0;

    mem = (char *)(((uintptr_t)mem + 63) & ~(uintptr_t)63);
    job->n_family = 0;
    for (; m < n && few(&a[m]) && alike(a, &a[m]) && n_tok + a[m].n_tok <= SPLIT_TOK; m++) {
        call_open(&job->call[m], job, &a[m], &mem);
        join_family(job, m);
        n_tok += a[m].n_tok;
    }
    cb_par_for(d->par, cut_pieces(job, m, cb_par_threads(d->par)), split_item, job);
    return m;
}

static void attend_tiles(struct device *d, struct job *job, const struct attn *a)
{
    job->a = a;
    job->tile_tok = cb_tile_tokens(d, a);
    if (a->blocks && !a->blocks->each) /* a tile is in one row of blocks */
        while (KEY_BLOCK % job->tile_tok)
            job->tile_tok = min_int(job->tile_tok - 1, KEY_BLOCK);
    job->first = a->blocks ? a->blocks->first % job->tile_tok : 0;
    job->n_tile = (job->first + a->n_tok + job->tile_tok - 1) / job->tile_tok;
    cb_par_for(d->par, a->n_kv * job->n_tile, tile_item, job);
}

void cb_cpu_attention(struct device *d, const struct attn *a, int n)
{
    struct job job = { .par = d->par, .vec = cb_cpu_vec(d), .k = cb_cpu_vec(d)->attn };

    for (int i = 0; i < n;) {
        assert(a[i].n_head % a[i].n_kv == 0);
        if (a[i].n_tok > 0 && few(&a[i])) {
            i += attend_splits(d, &job, a + i, n - i);
            continue;
        }
        if (a[i].n_tok > 0)
            attend_tiles(d, &job, &a[i]);
        i++;
    }
}

/* Rows of the largest tile, for any number of queries: even with chunks of one token, a window of
 * several queries is scored. */
static int most_rows(int n_head, int hd)
{
    return max_int(max_int(cb_tile_rows(hd), 96), n_head);
}

/* The scratch of the calling thread has its own work first, then the splits' sums, which all
 * threads write */
size_t cb_cpu_attn_shared(const struct device *d, int n_head, int hd, int n_ctx)
{
    const struct kern_attn *k = cb_cpu_vec(d)->attn;
    const int pad = cb_hd_pad(k, hd);
    const int rows_few = SPLIT_TOK * n_head, n_split = (n_ctx + KEY_SPLIT - 1) / KEY_SPLIT;

    return work_bytes(k, most_rows(n_head, hd), hd) + 64 +
           SPLIT_TOK * ((size_t)n_head * sizeof(atomic_int) + 2 * 64) +
           (size_t)(n_split > 0 ? n_split : 1) *
               (sums_bytes(rows_few, pad) + SPLIT_TOK * 64 * (size_t)n_head);
}

/* Bytes a thread */
size_t cb_cpu_attn_scratch(const struct device *d, int n_head, int hd)
{
    const struct kern_attn *k = cb_cpu_vec(d)->attn;
    const int rows = most_rows(n_head, hd);
    size_t bytes = work_bytes(k, rows, hd) + 64, other = cb_cpu_score_scratch(k, rows, hd);

    bytes = bytes > other ? bytes : other;
    other = cb_cpu_nearest_scratch(k, hd);
    return bytes > other ? bytes : other;
}
