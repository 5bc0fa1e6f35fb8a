/* SPDX-License-Identifier: MIT */
/* score.c - attention score per entry, a second pass over the queries. An item is KEY_SPLIT entries
 * of one KV head, packed once. All queries pass in order, so every sum has one order. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "attn_tile.h"
#include "base/ints.h"
#include "cpu/kern.h"
#include "kivi_block.h"

struct job {
    struct par *par;
    const struct kern_vec *vec;
    const struct kern_attn *k;
    const struct score *sc;
    int n_split, tile_tok, per;
};

enum { PEAK_TOK = 128 }; /* queries whose largest scores are in work at a time */

size_t cb_cpu_score_scratch(const struct kern_attn *k, int rows, int hd)
{
    const size_t f = sizeof(float);
    return cb_tile_bytes(k, rows, hd) + (size_t)KEY_SPLIT * cb_packed_key_bytes(k, hd) +
           (size_t)((SUB_TILES * k->mr + 1) * KEY_BLOCK) * f + (size_t)(PEAK_TOK * KEY_SPLIT) * f;
}

/* Packs the entries of [begin, end) that are not prepacked. Returns the bytes of KEY_BLOCK packed
 * keys. */
static size_t pack(const struct job *job, const struct kv_run *run, int begin, int end, char *kp)
{
    const struct attn *a = &job->sc->a;
    const struct kern_qk *qk = cb_qk_of(job->k, a);
    const size_t step = (size_t)KEY_BLOCK * qk->k_bytes(a->hd);
    struct block b;

    b.run = NULL;
    for (int from = begin; from < end; from += KEY_BLOCK, kp += step) {
        cb_block_open(&b, a, run, from, end);
        if (run->kivi)
            cb_kivi_pack_keys(job->vec, a, run, from, b.n, kp);
        else if (!b.prepacked)
            qk->pack_k(&b.k, a->hd, kp);
    }
    return step;
}

/* Logits of rows [r, r + m) of the tile against the block at `from`, prepacked or packed */
static void logits(const struct tile *t, int r, int m, const void *kp, int from, int n, float *s)
{
    if (from < t->run->prepacked)
        cb_prepacked_logits(t, from, r, m, cb_codes_at(t, 0, from + KEY_BLOCK), s);
    else
        cb_tile_logits(t, r, m, kp, n, s);
}

/* The row that the scores of head h of query tok are added to */
static float *row_of(const struct job *job, int tok, int h)
{
    return job->sc->out + (size_t)tok * job->sc->tok_stride +
           (int64_t)(h / job->per) * job->sc->out_stride;
}

/* Adds what rows [r, r + m) of the tile, heads of queries, have above 0 in logits s to their
 * queries' rows. */
static void take_rectified(const struct job *job, const struct tile *t, int r, int m, int from,
                           int n, const float *s)
{
    const struct score *sc = job->sc;
    const float ln2 = 0.69314718f;

    for (int i = 0; i < m; i++) {
        const int64_t tok = t->tok + (r + i) / t->group;
        const float w = sc->weight ? sc->weight[tok * sc->a.q_stride + (r + i) % t->group] : 1.0f;
        t->k->score(s + i * KEY_BLOCK, max_int(t->row_lo[r + i] - from, 0),
                    min_int(t->row_hi[r + i] - from, n), t->cap, 0, w * ln2, 2,
                    sc->out + tok * sc->out_stride + from);
    }
}

/* Raises the pieces of one query and head, out, to logits s[lo..hi-1] of the block at `from`. */
static void take_pieces(const struct job *job, const struct tile *t, int from, int lo, int hi,
                        const float *s, float *out)
{
    const int piece = job->sc->piece;

    for (int j = lo, end; j < hi; j = end) {
        float *y = out + cb_score_piece(piece, from + j), top;
        end = min_int(hi, ((from + j) / piece + 1) * piece - from);
        top = t->k->largest(s + j, end - j) * 0.69314718f;
        *y = top > *y ? top : *y;
    }
}

/* Takes the scores of rows [r, r + m) of the tile, from the block's logits s, to out; or to
 * one[KEY_BLOCK] until all heads of a query are there. The next rows may be the same query's. */
static void take_rows(const struct job *job, const struct tile *t, int r, int m, int from, int n,
                      const float *s, float *one)
{
    const struct score *sc = job->sc;
    const float ln2 = 0.69314718f, log2e = 1.44269504f;

    for (int i = 0; i < m; i++) {
        const int tok = t->tok + (r + i) / t->group, h = t->kv * t->group + (r + i) % t->group;
        const int lo = max_int(t->row_lo[r + i] - from, 0),
                  hi = min_int(t->row_hi[r + i] - from, n);
        const float w = sc->weight ? sc->weight[tok] : 1.0f;
        const float lse = sc->logit ? 0.0f : sc->a.lse[(int64_t)tok * sc->a.n_head + h];
        const float *x = s + i * KEY_BLOCK;
        float *out = row_of(job, tok, h) + from;
        if (sc->piece) {
            take_pieces(job, t, from, lo, hi, x, row_of(job, tok, h));
        } else if (sc->squares) {
            t->k->score(x, lo, hi, t->cap, lse * log2e, w, 0, one);
            if ((r + i) % t->group == t->group - 1)
                t->k->square(one, lo, hi, out, sc->squares + (out - sc->out));
        } else if (sc->most)
            t->k->raise(x + lo, hi - lo, t->cap, lse * log2e, out + lo);
        else
            t->k->score(x, lo, hi, t->cap, lse * log2e, sc->logit ? w * ln2 : w, sc->logit, out);
    }
}

static void score_block(const struct job *job, const struct tile *t, const void *kp, int from,
                        int n, float *s, float *one)
{
    const int step = SUB_TILES * t->mr;

    for (int r = 0; r < t->rows; r += step) {
        const int m = t->rows - r < step ? t->rows - r : step;
        if (t->row_hi[r + m - 1] <= from || t->row_lo[r] >= from + n)
            continue;
        logits(t, r, m, kp, from, n, s);
        if (job->sc->rectified)
            take_rectified(job, t, r, m, from, n, s);
        else
            take_rows(job, t, r, m, from, n, s, one);
    }
}

static void score_item(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct attn *a = &job->sc->a;
    const int kv = i / job->n_split, begin = i % job->n_split * KEY_SPLIT;
    const struct kv_run *run = &a->run[kv];
    const int end = begin + KEY_SPLIT < run->n ? begin + KEY_SPLIT : run->n;
    char *mem = cb_par_scratch(job->par, thread), *kp, *rest;
    float *s, *one;
    size_t step;

    if (begin >= end)
        return;
    kp = cb_take(&mem, (size_t)KEY_SPLIT * cb_qk_of(job->k, a)->k_bytes(a->hd));
    s = cb_take(&mem, (size_t)(SUB_TILES * job->k->mr * KEY_BLOCK) * sizeof *s);
    one = cb_take(&mem, KEY_BLOCK * sizeof *one);
    memset(one, 0, KEY_BLOCK * sizeof *one);
    step = pack(job, run, begin, end, kp);
    for (int tok = 0; tok < a->n_tok; tok += job->tile_tok) {
        const int left = a->n_tok - tok;
        struct tile t;
        rest = mem;
        cb_tile_open(&t, job->k, a, kv, tok, left < job->tile_tok ? left : job->tile_tok, 0, &rest);
        if (t.hi <= begin || t.lo >= end)
            continue;
        for (int from = begin; from < end; from += KEY_BLOCK)
            score_block(job, &t, kp + (size_t)((from - begin) / KEY_BLOCK) * step, from,
                        end - from < KEY_BLOCK ? end - from : KEY_BLOCK, s, one);
    }
}

/* ---- the largest of all heads ---- */

/* Raises top[query] to the block's logits s of rows [r, r + m) of the tile, less the row's
 * log-sum-exp, in base 2 */
static void raise_rows(const struct job *job, const struct tile *t, int r, int m, int n,
                       const float *s, float *top)
{
    const struct score *sc = job->sc;
    const float log2e = 1.44269504f;

    for (int i = 0; i < m; i++) {
        const int at = (r + i) / t->group, h = t->kv * t->group + (r + i) % t->group;
        const float lse2 = sc->a.lse[(int64_t)(t->tok + at) * sc->a.n_head + h] * log2e;
        t->k->raise(s + i * KEY_BLOCK, n, t->cap, lse2, top + at * KEY_SPLIT);
    }
}

/* Queries tok..tok+n_tok-1 against entries [begin, end) of one KV head -> top[n_tok][KEY_SPLIT] */
static void raise_head(const struct job *job, int kv, int tok, int n_tok, int begin, int end,
                       float *top, char *mem)
{
    const struct attn *a = &job->sc->a;
    char *kp = cb_take(&mem, (size_t)KEY_SPLIT * cb_qk_of(job->k, a)->k_bytes(a->hd));
    float *s = cb_take(&mem, (size_t)(SUB_TILES * job->k->mr * KEY_BLOCK) * sizeof *s);
    const size_t bytes = pack(job, &a->run[kv], begin, end, kp);

    for (int i = 0; i < n_tok; i += job->tile_tok) {
        char *rest = mem;
        struct tile t;
        int step;
        cb_tile_open(&t, job->k, a, kv, tok + i,
                     n_tok - i < job->tile_tok ? n_tok - i : job->tile_tok, 0, &rest);
        step = SUB_TILES * t.mr;
        for (int from = begin; from < end; from += KEY_BLOCK)
            for (int r = 0; r < t.rows; r += step) {
                const int m = t.rows - r < step ? t.rows - r : step;
                const int n = end - from < KEY_BLOCK ? end - from : KEY_BLOCK;
                logits(&t, r, m, kp + (size_t)((from - begin) / KEY_BLOCK) * bytes, from, n, s);
                raise_rows(job, &t, r, m, n, s, top + i * KEY_SPLIT + from - begin);
            }
    }
}

static void peak_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const struct score *sc = job->sc;
    const struct attn *a = &sc->a;
    const int begin = item * KEY_SPLIT;
    const int end = begin + KEY_SPLIT < a->run->n ? begin + KEY_SPLIT : a->run->n;
    char *mem = cb_par_scratch(job->par, thread);
    float *top = cb_take(&mem, (size_t)(PEAK_TOK * KEY_SPLIT) * sizeof *top);

    for (int tok = 0; tok < a->n_tok; tok += PEAK_TOK) {
        const int n = a->n_tok - tok < PEAK_TOK ? a->n_tok - tok : PEAK_TOK;
        for (int i = 0; i < n * KEY_SPLIT; i++)
            top[i] = -INFINITY;
        for (int kv = 0; kv < a->n_kv; kv++)
            raise_head(job, kv, tok, n, begin, end, top, mem);
        for (int i = 0; i < n; i++)
            job->k->score(top + i * KEY_SPLIT, 0, end - begin, 0.0f, 0.0f,
                          sc->weight ? sc->weight[tok + i] : 1.0f, 0, sc->out + begin);
    }
}

/* Adds one head's scores of entries from.. from its given logits; there is one query */
static void take_given(const struct job *job, int h, int from)
{
    const struct score *sc = job->sc;
    const int group = sc->a.n_head / sc->a.n_kv;
    const struct kv_run *run = &sc->a.run[h / group];
    const float *logit = run->logit + (int64_t)(h % group) * sc->a.logit_stride;
    const int n = min_int(run->n - from, KEY_SPLIT);
    float in_order[KEY_SPLIT];

    for (int j = 0; run->order && j < n; j++)
        in_order[j] = logit[run->order[from + j]];
    if (n > 0)
        job->k->soft(run->order ? in_order : logit + from, n, sc->a.lse[h],
                     sc->weight ? sc->weight[0] : 1.0f, row_of(job, 0, h) + from);
}

/* KEY_SPLIT entries, all query heads that share a row of out */
static void given_item(void *ctx, int item, int thread)
{
    const struct job *job = ctx;
    const int first = item / job->n_split * job->per;

    (void)thread;
    for (int h = first; h < first + job->per; h++)
        take_given(job, h, item % job->n_split * KEY_SPLIT);
}

void cb_cpu_score(struct device *d, const struct score *sc)
{
    const struct attn *a = &sc->a;
    struct job job = { .par = d->par, .vec = cb_cpu_vec(d), .k = cb_cpu_vec(d)->attn, .sc = sc };
    const int group = a->n_head / a->n_kv, rows = cb_tile_rows(a->hd);
    int n = 0;

    assert(a->n_head % a->n_kv == 0);
    for (int i = 0; i < a->n_kv; i++)
        n = a->run[i].n > n ? a->run[i].n : n;
    job.n_split = (n + KEY_SPLIT - 1) / KEY_SPLIT;
    job.tile_tok = rows > group ? rows / group : 1;
    job.per = sc->per ? sc->per : 1;
    assert(a->run->given || group % job.per == 0);
    assert(!sc->rectified || (sc->logit && a->n_kv == 1 && !sc->per));
    assert(!sc->piece || (sc->tok_stride && sc->logit && !sc->weight && a->softcap == 0));
    assert(!sc->squares || (job.per == group && !a->run->given && !sc->peak && !sc->most));
    if (a->run->given)
        cb_par_for(d->par, a->n_head / job.per * job.n_split, given_item, &job);
    else if (sc->peak)
        cb_par_for(d->par, job.n_split, peak_item, &job);
    else
        cb_par_for(d->par, a->n_kv * job.n_split, score_item, &job);
}
