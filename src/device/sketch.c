/* SPDX-License-Identifier: MIT */
/* sketch.c - keys on 2 or 4 bits, and what scores made of them have in common on all devices. */
#include "sketch.h"

#include <math.h>
#include <string.h>

/* ---- a block ---- */

void cb_sketch_widen(const float *x, int hd, int first, float *min, float *max)
{
    for (int c = 0; c < hd; c++) {
        min[c] = first || x[c] < min[c] ? x[c] : min[c];
        max[c] = first || x[c] > max[c] ? x[c] : max[c];
    }
}

void cb_sketch_head(int bits, int hd, float *min, float *max, void *block)
{
    const int n = cb_sketch_pad(hd), top = (1 << bits) - 1;
    uint16_t *step = block, *low = step + n;

    memset(block, 0, cb_sketch_bytes(bits, hd));
    for (int c = 0; c < hd; c++) {
        float s;
        step[c] = cb_f32_to_f16((max[c] - min[c]) / (float)top);
        low[c] = cb_f32_to_f16(min[c]);
        s = cb_f16_to_f32(step[c]);
        min[c] = cb_f16_to_f32(low[c]);
        max[c] = s > 0 ? 1 / s : 0;
    }
}

void cb_sketch_steps(int hd, const void *block, float *step, float *min)
{
    const int n = cb_sketch_pad(hd);
    const uint16_t *x = block;

    for (int c = 0; c < n; c++) {
        step[c] = cb_f16_to_f32(x[c]);
        min[c] = cb_f16_to_f32(x[n + c]);
    }
}

void cb_sketch_put(int bits, int hd, const float *x, int token, const float *min, const float *inv,
                   void *block)
{
    const float top = (float)((1 << bits) - 1);
    const int n = cb_sketch_pad(hd), wide = 32 / bits;
    uint8_t code[SKETCH_MAX_HD + 16] = { 0 }, *at = (uint8_t *)block + (size_t)n * 4;
    int shift;

    for (int c = 0; c < hd; c++) {
        const float y = (x[c] - min[c]) * inv[c], low = y > 0 ? y : 0;
        code[c] = (uint8_t)(int)((low < top ? low : top) + 0.5f);
    }
    at += cb_sketch_at(bits, hd, token, 0, &shift);
    for (int c = 0; c < n; c += wide, at += 128)
        for (int i = 0; i < wide; i++)
            at[i % 4] = (uint8_t)(at[i % 4] | code[c + i] << i / 4 * bits);
}

/* ---- a page's bounds ---- */

/* The largest half that is at most x, within the range of halves */
static uint16_t half_below(float x)
{
    const float most = 65504, y = x < -most ? -most : x > most ? most : x;
    const uint16_t h = cb_f32_to_f16(y);

    if (!(cb_f16_to_f32(h) > y))
        return h;
    return (uint16_t)(h & 0x8000 ? h + 1 : h ? h - 1 : 0x8001);
}

void cb_bounds_put(int hd, const float *min, const float *max, void *bounds)
{
    uint16_t *x = bounds;

    for (int c = 0; c < hd; c++) {
        x[c] = half_below(min[c]);
        x[hd + c] = (uint16_t)(half_below(-max[c]) ^ 0x8000);
    }
}

/* ---- scores ---- */

void cb_sketch_query(const float *q, int hd, float scale, float *y)
{
    const float unit = cb_sketch_scale(scale);

    memset(y, 0, (size_t)cb_sketch_pad(hd) * sizeof *y);
    for (int c = 0; c < hd; c++)
        y[c] = q[c] * unit;
}

void cb_sketch_all_strips(int hd, struct sketch_strips *s)
{
    s->n = s->n_all = cb_sketch_pad(hd) / SKETCH_STRIP;
    for (int i = 0; i < s->n; i++)
        s->at[i] = (uint8_t)i;
}

/* Half of the strips: those in which the logits of some query heads, q[heads][hd padded], differ
 * most between keys, by the sum of |query * step| with the steps of a block */
static void halve_strips(int hd, const float *q, int heads, const void *block,
                         struct sketch_strips *s)
{
    const int pad = cb_sketch_pad(hd), keep = cb_sketch_half(hd);
    const uint16_t *half_step = block;
    float step[SKETCH_MAX_HD], sum[SKETCH_MAX_HD / SKETCH_STRIP] = { 0 };
    char out[SKETCH_MAX_HD / SKETCH_STRIP] = { 0 };

    cb_sketch_all_strips(hd, s);
    for (int c = 0; c < pad; c++)
        step[c] = cb_f16_to_f32(half_step[c]);
    for (int h = 0; h < heads; h++)
        for (int c = 0; c < pad; c++)
            sum[c / SKETCH_STRIP] += fabsf(q[h * pad + c] * step[c]);
    for (int n = s->n_all; n > keep; n--) { /* the least one goes; a NaN is the least */
        int least = -1;
        for (int i = 0; i < s->n_all; i++)
            if (!out[i] && (least < 0 || !(sum[i] >= sum[least])))
                least = i;
        out[least] = 1;
    }
    s->n = 0;
    for (int i = 0, behind = keep; i < s->n_all; i++)
        s->at[out[i] ? behind++ : s->n++] = (uint8_t)i;
}

const uint16_t cb_sketch_weight[32] = { 32767, 32065, 31378, 30705, 30047, 29404, 28774, 28157,
                                        27554, 26963, 26385, 25820, 25267, 24725, 24196, 23677,
                                        23170, 22673, 22187, 21712, 21247, 20791, 20346, 19910,
                                        19483, 19066, 18657, 18258, 17866, 17483, 17109, 16742 };

/* 2^(31 + (i + 0.5) / 32) times the square of 32767 / 32768, since a weight of 1 is 32767 */
const uint32_t cb_sketch_log[32] = {
    2170735715u, 2218268638u, 2266842396u, 2316479781u, 2367204083u, 2419039102u, 2472009161u,
    2526139113u, 2581454357u, 2637980847u, 2695745105u, 2754774237u, 2815095938u, 2876738512u,
    2939730883u, 3004102607u, 3069883888u, 3137105592u, 3205799260u, 3275997122u, 3347732118u,
    3421037906u, 3495948882u, 3572500194u, 3650727762u, 3730668291u, 3812359289u, 3895839087u,
    3981146854u, 4068322619u, 4157407284u, 4248442649u
};

int16_t cb_sketch_lse(const int16_t *top, const uint32_t *sum, int n, int stride)
{
    uint64_t all = 0;
    int lse = INT16_MIN, i = 0;

    for (int p = 0; p < n; p++)
        lse = top[p * stride] > lse ? top[p * stride] : lse;
    for (int p = 0; p < n; p++) {
        const int below = lse - top[p * stride], down = below / 32;
        const uint64_t x = (uint64_t)sum[p * stride] * cb_sketch_weight[below % 32];
        all += x >> (down < 63 ? down : 63);
    }
    for (lse += SKETCH_UNIT; all >> 32; all >>= 1)
        lse += SKETCH_UNIT;
    for (; all && !(all >> 31); all <<= 1)
        lse -= SKETCH_UNIT;
    while (i < 32 && all >= cb_sketch_log[i])
        i++;
    lse += i;
    return (int16_t)(lse > INT16_MAX ? INT16_MAX : lse);
}

void cb_sketch_shares(const int16_t *top, const uint32_t *sum, int n, float *out)
{
    int max = INT16_MIN;
    float all = 0;

    for (int b = 0; b < n; b++)
        max = top[b] > max ? top[b] : max;
    for (int b = 0; b < n; b++)
        all += (float)sum[b] * exp2f((float)(top[b] - max) / SKETCH_UNIT);
    for (int b = 0; b < n; b++)
        out[b] += (float)sum[b] * exp2f((float)(top[b] - max) / SKETCH_UNIT) / all;
}

/* The weight of n tokens in a bucket, in units of which SKETCH_ONE << 24 are 1: at most 2^63 in
 * all, for 2^24 tokens */
static uint64_t weight_of(int bucket, uint32_t n)
{
    return n * ((uint64_t)cb_sketch_weight[bucket % 32] << 24 >> bucket / 32);
}

uint64_t cb_sketch_rest(float miss)
{
    return (uint64_t)((double)miss * (double)((uint64_t)SKETCH_ONE << 24));
}

/* Buckets down from the top until k tokens are in them, or the rest weighs at most `miss` */
int cb_sketch_limit(const uint32_t *count, int n_bucket, int k, float miss, int *limit,
                    int *n_equal)
{
    const uint64_t may_rest = cb_sketch_rest(miss);
    uint64_t rest = miss > 0 ? 0 : UINT64_MAX;
    int n = 0, b = 0;

    for (int i = 0; miss > 0 && i < n_bucket; i++)
        rest += weight_of(i, count[i]);
    for (; b < n_bucket && rest > may_rest && n + (int64_t)count[b] <= k; b++) {
        n += (int)count[b];
        rest -= miss > 0 ? weight_of(b, count[b]) : 0;
    }
    *limit = b;
    *n_equal = b < n_bucket && rest > may_rest ? k - n : 0;
    return n + *n_equal;
}

/* ---- work space ---- */

/* The next `bytes` of the work space; NULL where there is none and only its size is asked for */
static void *cut(void *mem, size_t *used, size_t bytes)
{
    void *p = mem ? (char *)mem + *used : NULL;
    *used += (bytes + 63) & ~(size_t)63;
    return p;
}

size_t cb_sketch_work(void *mem, int n_head, int n_kv, int hd, int n_block, int n_item,
                      struct sketch_work *w)
{
    const size_t piece = (size_t)cb_sketch_pieces(n_block), heads = (size_t)n_head,
                 kv = (size_t)n_kv;
    size_t used = 0;

    w->lse = cut(mem, &used, heads * sizeof *w->lse);
    w->strips = cut(mem, &used, kv * sizeof *w->strips);
    w->query = cut(mem, &used, heads * (size_t)cb_sketch_pad(hd) * sizeof *w->query);
    w->top = cut(mem, &used, heads * piece * sizeof *w->top);
    w->sum = cut(mem, &used, heads * piece * sizeof *w->sum);
    w->rank = cut(mem, &used, kv * piece * SKETCH_PIECE * sizeof *w->rank);
    w->score = cut(mem, &used, heads * piece * SKETCH_PIECE * sizeof *w->score);
    w->own = cut(mem, &used, kv * (size_t)(2 + n_item) * sizeof(int));
    w->count = cut(mem, &used, kv * (size_t)n_item * SKETCH_BUCKETS * sizeof *w->count);
    return used;
}

void cb_sketch_queries(const struct sketch_topk *s, const struct sketch_work *w)
{
    const int group = s->n_head / s->n_kv, pad = cb_sketch_pad(s->hd);
    const size_t middle = (size_t)(s->n_block / 2) * cb_sketch_bytes(s->bits, s->hd);

    for (int h = 0; h < s->n_head; h++)
        cb_sketch_query(s->q + (size_t)h * (size_t)s->hd, s->hd, s->scale, w->query + h * pad);
    for (int kv = 0; kv < s->n_kv; kv++)
        if (s->half)
            halve_strips(s->hd, w->query + kv * group * pad, group,
                         s->sketch + (size_t)kv * s->head_bytes + middle, &w->strips[kv]);
        else
            cb_sketch_all_strips(s->hd, &w->strips[kv]);
}
