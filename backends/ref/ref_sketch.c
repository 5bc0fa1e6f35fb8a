/* SPDX-License-Identifier: MIT */
/* ref_sketch.c - sketches of keys, the slots that score highest by them, and pages' bounds. This is
 * the definition of the op sketch_topk: devices give the same slots.
 *
 * For a query head and a block, w[c] = query[c] * step[c] is rounded to a byte by its largest
 * magnitude. A token's logit is base + mult * (sum of w[c] * code[c]), where base = sum of
 * query[c] * minimum[c]: fused, in 16 lanes, which are then added as a tree. Where half of the
 * channels is left out, the sum of w[c] * code[c] is that of the others, which come first in base
 * as well; the minimum of one that is left out is the middle of its range. Logits are 16 bits wide,
 * in units of 1 / SKETCH_UNIT of a power of 2. */
#include "ref_sketch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/prompt_blocks.h"
#include "device/sketch.h"
#include "ref_rows.h"

void cb_ref_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch)
{
    float x[SKETCH_MAX_HD], min[SKETCH_MAX_HD], max[SKETCH_MAX_HD];
    char *block = sketch;

    (void)d;
    for (int b = 0; b < n_block; b++, block += cb_sketch_bytes(bits, hd), n_out = 0) {
        const int from = b * SKETCH_BLOCK;
        for (int j = n_out; j < SKETCH_BLOCK; j++) {
            cb_ref_kv_row(t, rows, from + j, hd, x);
            cb_sketch_widen(x, hd, j == n_out, min, max);
        }
        cb_sketch_head(bits, hd, min, max, block);
        for (int j = 0; j < SKETCH_BLOCK; j++) {
            cb_ref_kv_row(t, rows, from + j, hd, x);
            cb_sketch_put(bits, hd, x, j, min, max, block);
        }
    }
}

/* ---- scores ---- */

/* A query head in a block */
struct form {
    int w[SKETCH_MAX_HD]; /* [hd padded] -127..127 */
    int mult, base;       /* mult: in 1 / 32768 */
};

static int whole(float x, int most)
{
    if (!(x > (float)-most - 1))
        return -most - 1;
    return x < (float)most ? (int)lrintf(x) : most;
}

static float tree(float *lane)
{
    for (int n = 8; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            lane[i] += lane[i + n];
    return lane[0];
}

static void open_form(struct form *f, int bits, const float *q, int hd,
                      const struct sketch_strips *strips, const void *block)
{
    const int n = cb_sketch_pad(hd);
    float step[SKETCH_MAX_HD], min[SKETCH_MAX_HD], lane[16] = { 0 }, top = 0, inv;

    cb_sketch_steps(hd, block, step, min);
    for (int i = 0; i < n; i++) {
        const int c = cb_sketch_channel(strips, i);
        if (i / SKETCH_STRIP >= strips->n) {
            min[c] = fmaf(step[c], cb_sketch_middle(bits), min[c]);
            step[c] = 0;
        }
        lane[c % 16] = fmaf(q[c], min[c], lane[c % 16]);
        step[c] *= q[c];
        top = fabsf(step[c]) > top ? fabsf(step[c]) : top;
    }
    inv = top > 0 ? 127 / top : 0;
    memset(f->w, 0, sizeof f->w);
    for (int i = 0; i < strips->n * SKETCH_STRIP; i++) {
        const int c = cb_sketch_channel(strips, i);
        f->w[c] = whole(step[c] * inv, 127);
    }
    f->mult = whole(top * cb_sketch_mult_unit(bits), INT16_MAX);
    f->base = whole(tree(lane), INT16_MAX);
}

static int clamp(int x)
{
    return x < INT16_MIN ? INT16_MIN : x > INT16_MAX ? INT16_MAX : x;
}

static int logit(const struct form *f, int bits, int hd, const uint8_t *block, int token)
{
    const uint8_t *code = block + (size_t)cb_sketch_pad(hd) * 4;
    int sum = 0;

    for (int c = 0; c < hd; c++) {
        int shift;
        const size_t at = cb_sketch_at(bits, hd, token, c, &shift);
        sum += f->w[c] * (code[at] >> shift & ((1 << bits) - 1));
    }
    sum = clamp(sum >> cb_sketch_shift(bits));
    return clamp(f->base + (int)(((int64_t)sum * f->mult + 0x4000) >> 15));
}

/* Scores of a KV head's query head -> score[n], where n is a multiple of SKETCH_BLOCK */
static void score_head(const struct sketch_topk *s, int head, const struct sketch_work *w,
                       int16_t *score)
{
    const int kv = head / (s->n_head / s->n_kv);
    const uint8_t *block = s->sketch + (size_t)kv * s->head_bytes;
    const float *q = w->query + head * cb_sketch_pad(s->hd);
    struct form f;

    for (int b = 0; b < s->n_block; b++, block += cb_sketch_bytes(s->bits, s->hd)) {
        open_form(&f, s->bits, q, s->hd, &w->strips[kv], block);
        for (int j = 0; j < SKETCH_BLOCK; j++)
            *score++ = (int16_t)logit(&f, s->bits, s->hd, block, j);
    }
}

/* The largest of scores from..to-1, and the sum of the weights below it */
static uint32_t weigh(const int16_t *score, int from, int to, int16_t *most)
{
    int top = INT16_MIN;
    uint32_t sum = 0;

    for (int j = from; j < to; j++)
        top = score[j] > top ? score[j] : top;
    for (int j = from; j < to; j++) {
        const int below = top - score[j];
        sum += below / 32 < 16 ? cb_sketch_weight[below % 32] >> below / 32 : 0;
    }
    *most = (int16_t)top;
    return sum;
}

/* The place of a KV head's piece among those of all */
static size_t piece_at(const struct sketch_topk *s, int kv, int piece)
{
    return (size_t)(kv * cb_sketch_pieces(s->n_block) + piece);
}

/* Query head i of a KV head -> its score, and the tops and sums of its pieces */
static void scan_head(const struct sketch_topk *s, int kv, int i, const struct sketch_work *w)
{
    const int group = s->n_head / s->n_kv, n = s->n_block * SKETCH_BLOCK;

    score_head(s, kv * group + i, w, w->score);
    for (int p = 0; p < cb_sketch_pieces(s->n_block); p++) {
        const int from = p * SKETCH_PIECE, to = from + SKETCH_PIECE < n ? from + SKETCH_PIECE : n;
        const size_t at = piece_at(s, kv, p) * (size_t)group + (size_t)i;
        w->sum[at] = weigh(w->score, from, to, &w->top[at]);
    }
}

/* The log of a head's sum of weights, over all pieces of all who choose */
static int16_t lse_of(const struct sketch_topk *s, int kv, int i, const struct sketch_work *w)
{
    const int group = s->n_head / s->n_kv;
    const size_t at = piece_at(s, kv, 0) * (size_t)group + (size_t)i;

    return s->step == SKETCH_CHOICE
               ? w->lse[kv * group + i]
               : cb_sketch_lse(w->top + at, w->sum + at, cb_sketch_pieces(s->n_block), group);
}

static void topk_of(const struct sketch_topk *s, int kv, const struct sketch_work *w)
{
    const int group = s->n_head / s->n_kv;
    int32_t *idx = s->idx + (size_t)kv * (size_t)s->idx_stride;
    uint16_t *of = w->rank + piece_at(s, kv, 0) * SKETCH_PIECE;
    int limit, n_equal, out = 0;

    for (int i = 0; i < group; i++) {
        int lse;
        scan_head(s, kv, i, w);
        lse = lse_of(s, kv, i, w);
        for (int j = 0; j < s->n_block * SKETCH_BLOCK; j++) {
            int rank = lse - w->score[j];
            rank = rank < 0 ? 0 : rank < SKETCH_BUCKETS ? rank : SKETCH_BUCKETS - 1;
            of[j] = (uint16_t)(i && of[j] < rank ? of[j] : rank);
        }
    }
    memset(w->count, 0, SKETCH_BUCKETS * sizeof *w->count);
    for (int j = s->lo; j < s->hi; j++)
        w->count[of[j]]++;
    s->n[kv] = cb_sketch_limit(w->count, SKETCH_BUCKETS, s->k, s->miss, &limit, &n_equal);
    for (int j = s->lo; j < s->hi; j++)
        if (of[j] < limit || (of[j] == limit && n_equal-- > 0))
            idx[out++] = j;
}

void cb_ref_sketch_topk(struct device *d, const struct sketch_topk *s)
{
    struct sketch_work w;

    (void)d;
    cb_sketch_work(s->work, s->n_head, s->n_kv, s->hd, s->n_block, 1, &w);
    cb_sketch_queries(s, &w);
    for (int kv = 0; kv < s->n_kv; kv++) {
        for (int i = 0; s->step == SKETCH_SCORES && i < s->n_head / s->n_kv; i++)
            scan_head(s, kv, i, &w);
        if (s->step != SKETCH_SCORES)
            topk_of(s, kv, &w);
    }
}

/* ---- blocks ---- */

/* Adds to out[n] the shares that n blocks have in one query's softmax. */
static void add_query(const struct block_mass *m, int head, const float *q, int n, float *out)
{
    const uint8_t *block = m->sketch + (size_t)(head / (m->n_head / m->n_kv)) * m->head_bytes;
    float query[SKETCH_MAX_HD];
    int16_t score[SKETCH_BLOCK], *top = calloc((size_t)n, sizeof *top);
    uint32_t *sum = calloc((size_t)n, sizeof *sum);
    struct sketch_strips strips;
    struct form f;

    assert(top && sum);
    cb_sketch_all_strips(m->hd, &strips);
    cb_sketch_query(q, m->hd, m->scale, query);
    for (int b = 0; b < n; b++, block += cb_sketch_bytes(m->bits, m->hd)) {
        open_form(&f, m->bits, query, m->hd, &strips, block);
        for (int j = 0; j < SKETCH_BLOCK; j++)
            score[j] = (int16_t)logit(&f, m->bits, m->hd, block, j);
        sum[b] = weigh(score, 0, SKETCH_BLOCK, &top[b]);
    }
    cb_sketch_shares(top, sum, n, out);
    free(top);
    free(sum);
}

static void mass_row(void *ctx, int item, int thread)
{
    const struct block_mass *m = ctx;
    const int head = item / m->n_row, own = m->first / SKETCH_BLOCK + item % m->n_row;
    const int begin = own * SKETCH_BLOCK - m->first;
    float *out = m->out + (size_t)item * (size_t)m->n_col;
    int i = begin + SKETCH_BLOCK - 1;

    (void)thread;
    memset(out, 0, (size_t)m->n_col * sizeof *out);
    for (i = i < m->n_tok ? i : m->n_tok - 1; own && i >= begin && i >= 0; i -= m->stride)
        add_query(m, head, m->q + (int64_t)i * m->q_stride + (int64_t)head * m->hd, own, out);
}

void cb_ref_sketch_mass(struct device *d, const struct block_mass *m)
{
    struct block_mass copy = *m;
    cb_par_for(d->par, m->n_head * m->n_row, mass_row, &copy);
}

/* ---- pages ---- */

void cb_ref_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds)
{
    float x[SKETCH_MAX_HD], min[SKETCH_MAX_HD], max[SKETCH_MAX_HD];

    (void)d;
    for (int p = 0; p < n_page; p++) {
        for (int j = 0; j < page; j++) {
            cb_ref_kv_row(t, rows, p * page + j, hd, x);
            cb_sketch_widen(x, hd, j == 0, min, max);
        }
        cb_bounds_put(hd, min, max, (char *)bounds + (size_t)p * cb_bounds_bytes(hd));
    }
}

static double bound(const float *q, const uint16_t *x, int hd)
{
    double sum = 0;

    for (int c = 0; c < hd; c++)
        sum += fmax((double)q[c] * (double)cb_f16_to_f32(x[c]),
                    (double)q[c] * (double)cb_f16_to_f32(x[hd + c]));
    return sum;
}

void cb_ref_page_scores(struct device *d, const struct page_scores *s)
{
    const int group = s->n_head / s->n_kv;

    (void)d;
    for (int i = 0; i < s->n_head / s->per * s->n_page; i++) {
        const int row = i / s->n_page, p = i % s->n_page, first = row * s->per;
        const void *page = s->bounds + (size_t)(first / group) * s->head_bytes +
                           (size_t)p * cb_bounds_bytes(s->hd);
        double best = -INFINITY, sum = 0;
        for (int h = first; h < first + s->per; h++) {
            const double x = bound(s->q + (size_t)h * (size_t)s->hd, page, s->hd);
            best = fmax(best, x);
            sum += x;
        }
        s->out[(size_t)row * (size_t)s->out_stride + (size_t)p] =
            (float)(s->mean ? sum / s->per : best);
    }
}
