/* SPDX-License-Identifier: MIT */
/* attention.cl - attention and scores over stored rows, for one pair of KV types and one head
 * dimension: TYPE, TYPE_V (as enum kv_type), HD, KIVI (1: runs may have quantised slots). Rows
 * lie in a piece, or in pages of a table; an entry whose page is missing is left out. Where HD is
 * no constant, MAX_HD is one that it does not exceed. */

#ifndef MAX_HD
#define MAX_HD HD
#endif

#define NQ 8 /* queries a group, all of one KV head */
#define NB 64 /* entries at a time, one an item */
#define NC ((MAX_HD + NB - 1) / NB) /* channels an item */

/* Rows of one kind, as struct gpu_rows in gpu_runs.c */
struct rows {
    ulong base; /* of row 0; of the page table where pages is 1 */
    int pages, shift, skew; /* page of row r: (r + skew) >> shift */
    int bytes;
};

struct run {
    struct rows k, v, kivi_k, kivi_v;
    ulong idx, map_k, map_v; /* int lists, or 0 */
    ulong logit; /* [group][logit_stride], or 0 */
    int n, given, first;
    int n_k, n_v, bits_k, bits_v;
    int lo_k, lo_v, group_k, group_v;
    int pad;
};

FUNCTION bytes_t row_at(struct rows r, int row)
{
    bytes_t page;

    if (!r.pages)
        return (bytes_t)r.base + (long)row * r.bytes;
    row += r.skew;
    page = (bytes_t)((GLOBAL const ulong *)r.base)[row >> r.shift];
    return page ? page + (long)(row & ((1 << r.shift) - 1)) * r.bytes : page;
}

/* Number i of a group */
FUNCTION float kivi_code(int bits, bytes_t at, int i)
{
    const int n = 4 * bits, j = i % 32;
    const int code = at[4 + i / 32 * n + j % n] >> (j / n * bits) & ((1 << bits) - 1);

    return load_f16(at + 2) + (float)code * load_f16(at);
}

FUNCTION int kivi_bytes(int bits, int group)
{
    return 4 + group / 8 * bits;
}

/* Where the key or value of an entry lies; quant: -1 for a stored row, else its number in the
 * group of quantised keys (0 for values) */
struct place {
    bytes_t at;
    int quant;
};

FUNCTION struct place key_of(WITH_OPTIONS GLOBAL const struct run *run, int slot)
{
    struct place p;

    p.quant = -1;
    if (KIVI && slot >= run->lo_k && slot < run->n_k) {
        const int row = run->map_k ? ((GLOBAL const int *)run->map_k)[slot] : slot - run->lo_k;
        p.quant = row % run->group_k;
        p.at = row_at(run->kivi_k, row / run->group_k);
        return p;
    }
    p.at = row_at(run->k, slot);
    return p;
}

FUNCTION struct place value_of(WITH_OPTIONS GLOBAL const struct run *run, int slot)
{
    struct place p;

    p.quant = -1;
    if (KIVI && slot >= run->lo_v && slot < run->n_v) {
        p.quant = 0;
        p.at = row_at(run->kivi_v,
                      run->map_v ? ((GLOBAL const int *)run->map_v)[slot] : slot - run->lo_v);
        return p;
    }
    p.at = row_at(run->v, slot);
    return p;
}

FUNCTION float key_number(WITH_OPTIONS GLOBAL const struct run *run, struct place p, int c)
{
    if (KIVI && p.quant >= 0)
        return kivi_code(run->bits_k, p.at + c * kivi_bytes(run->bits_k, run->group_k), p.quant);
    return stored(TYPE, p.at, c);
}

FUNCTION float value_number(WITH_OPTIONS GLOBAL const struct run *run, struct place p, int c)
{
    if (KIVI && p.quant >= 0)
        return kivi_code(run->bits_v,
                         p.at + c / run->group_v * kivi_bytes(run->bits_v, run->group_v),
                         c % run->group_v);
    return stored(TYPE_V, p.at, c);
}

FUNCTION int slot_of(GLOBAL const struct run *run, int j)
{
    return (run->idx ? ((GLOBAL const int *)run->idx)[j] : j) + run->first;
}

/* Entries [lo, hi) that query tok reads */
FUNCTION int hi_of(int n, int n_tok, int causal, int tok)
{
    return causal ? n - n_tok + 1 + tok : n;
}

FUNCTION int lo_of(int hi, int window)
{
    return window > 0 && hi > window ? hi - window : 0;
}

/* Logits of one key and NQ queries */
FUNCTION void logits(WITH_OPTIONS GLOBAL const struct run *run, struct place k,
                     IN_LOCAL const float *q, float scale, float softcap, float *s)
{
    for (int i = 0; i < NQ; i++)
        s[i] = 0.0f;
    for (int c = 0; c < HD; c++) {
        const float x = key_number(OPTIONS run, k, c);
        for (int i = 0; i < NQ; i++)
            s[i] += q[i * HD + c] * x;
    }
    for (int i = 0; i < NQ; i++) {
        s[i] *= scale;
        if (softcap > 0.0f)
            s[i] = softcap * tanh(s[i] / softcap);
    }
}

/* Group (block of queries, split, KV head). A KV head's queries are numbered token by token, its
 * query heads within. out[split][n_tok][n_head][HD], lse[split][n_tok][n_head] */
KERNEL void attend(WITH_OPTIONS GLOBAL const struct run *runs, GLOBAL const float *q, int q_stride,
                   int n_tok, int n_head, int group, float scale, float softcap, int causal,
                   int window, int per, int logit_stride, GLOBAL float *out, GLOBAL float *lse)
{
    LOCAL float q_[NQ * MAX_HD], s_[NQ][NB], of_[NQ][NB], max_[NQ], sum_[NQ], shrink_[NQ];
    LOCAL struct place v_[NB];
    const int split = GROUP(1), kv = GROUP(2), first = GROUP(0) * NQ, item = ITEM();
    GLOBAL const struct run *run = runs + kv;
    const int n_query = n_tok * group, n = run->n;
    const int last = first + NQ - 1 < n_query ? first + NQ - 1 : n_query - 1;
    const int hi = hi_of(n, n_tok, causal, last / group);
    const int lo = lo_of(hi_of(n, n_tok, causal, first / group), window);
    const int from = lo / NB * NB > split * per ? lo / NB * NB : split * per;
    const int to = hi < (split + 1) * per ? hi : (split + 1) * per;
    float acc[NC][NQ], sum[NQ];

    for (int i = 0; i < NQ; i++)
        sum[i] = 0.0f;
    for (int c = 0; c < NC; c++)
        for (int i = 0; i < NQ; i++)
            acc[c][i] = 0.0f;
    for (int i = item; i < NQ * HD; i += NB) {
        const int query = first + i / HD < n_query ? first + i / HD : n_query - 1;
        q_[i] = q[(long)(query / group) * q_stride + (long)(kv * group + query % group) * HD +
                  i % HD];
    }
    if (item < NQ)
        max_[item] = -INFINITY;
    BARRIER();
    for (int base = from; base < to; base += NB) {
        const int j = base + item;
        float s[NQ];
        struct place k, v;
        v.at = 0;
        v.quant = -1;
        for (int i = 0; i < NQ; i++)
            s[i] = -INFINITY;
        if (j >= lo && j < to) {
            const int slot = slot_of(run, j);
            v = value_of(OPTIONS run, slot);
            k.at = v.at;
            if (!run->given) {
                k = key_of(OPTIONS run, slot);
                if (!k.at)
                    v.at = 0;
            }
            if (v.at && !run->given)
                logits(OPTIONS run, k, q_, scale, softcap, s);
            for (int i = 0; v.at && i < NQ && first + i < n_query; i++) {
                const int query = first + i, end = hi_of(n, n_tok, causal, query / group);
                GLOBAL float *logit = (GLOBAL float *)run->logit + (long)(query % group) *
                                      logit_stride + j;
                const int seen = j < end && j >= lo_of(end, window);
                if (run->given)
                    s[i] = *logit;
                else if (run->logit && seen)
                    *logit = s[i];
                if (!seen)
                    s[i] = -INFINITY;
            }
        }
        for (int i = 0; i < NQ; i++)
            of_[i][SUBGROUP()] = subgroup_max(s[i]);
        BARRIER();
        if (item < NQ) {
            float max = max_[item];
            for (int i = 0; i < SUBGROUPS(NB); i++)
                max = fmax(max, of_[item][i]);
            shrink_[item] = max > -INFINITY ? exp(max_[item] - max) : 1.0f;
            max_[item] = max;
        }
        v_[item] = v; /* all have added the last block's values */
        BARRIER();
        for (int i = 0; i < NQ; i++) {
            const float p = s[i] > -INFINITY ? exp(s[i] - max_[i]) : 0.0f;
            s_[i][item] = p;
            sum[i] = sum[i] * shrink_[i] + p;
        }
        BARRIER();
        for (int cc = 0; cc < NC; cc++) {
            const int c = item + cc * NB;
            for (int i = 0; i < NQ; i++)
                acc[cc][i] *= shrink_[i];
            for (int e = 0; c < HD && e < NB; e++) {
                if (v_[e].at) {
                    const float x = value_number(OPTIONS run, v_[e], c);
                    for (int i = 0; i < NQ; i++)
                        acc[cc][i] += s_[i][e] * x;
                }
            }
        }
    }
    for (int i = 0; i < NQ; i++)
        of_[i][SUBGROUP()] = subgroup_sum(sum[i]);
    BARRIER();
    if (item < NQ) {
        sum_[item] = 0.0f;
        for (int i = 0; i < SUBGROUPS(NB); i++)
            sum_[item] += of_[item][i];
    }
    BARRIER();
    for (int i = 0; i < NQ && first + i < n_query; i++) {
        const int query = first + i;
        const long row = ((long)split * n_tok + query / group) * n_head + kv * group +
                         query % group;
        for (int cc = 0; cc < NC; cc++)
            if (item + cc * NB < HD)
                out[row * HD + item + cc * NB] = sum_[i] > 0.0f ? acc[cc][i] / sum_[i] : 0.0f;
        if (item == 0)
            lse[row] = sum_[i] > 0.0f ? max_[i] + log(sum_[i]) : -INFINITY;
    }
}

/* Group (block of entries, KV head): adds each entry's scores to out[n_head / per][out_stride].
 * Every row is there. */
KERNEL void score(WITH_OPTIONS GLOBAL const struct run *runs, GLOBAL const float *q, int q_stride,
                  int n_tok, int n_head, int group, float scale, float softcap, int causal,
                  int window,
                  GLOBAL const float *lse, GLOBAL const float *weight, int logit, int per,
                  GLOBAL float *out, int out_stride)
{
    LOCAL float q_[NQ * MAX_HD];
    const int kv = GROUP(1), item = ITEM(), j = GROUP(0) * NB + item;
    GLOBAL const struct run *run = runs + kv;
    struct place k;

    k.at = 0;
    k.quant = -1;
    if (j < run->n && j >= lo_of(hi_of(run->n, n_tok, causal, 0), window))
        k = key_of(OPTIONS run, slot_of(run, j));
    for (int g = 0; g < group; g++) {
        const int h = kv * group + g;
        float sum = 0.0f;
        for (int first = 0; first < n_tok; first += NQ) {
            float s[NQ];
            for (int i = item; i < NQ * HD; i += NB) {
                const int tok = first + i / HD < n_tok ? first + i / HD : n_tok - 1;
                q_[i] = q[(long)tok * q_stride + (long)h * HD + i % HD];
            }
            BARRIER();
            if (k.at)
                logits(OPTIONS run, k, q_, scale, softcap, s);
            for (int i = 0; k.at && i < NQ && first + i < n_tok; i++) {
                const int end = hi_of(run->n, n_tok, causal, first + i);
                const float x = logit ? s[i] : exp(s[i] - lse[(long)(first + i) * n_head + h]);
                if (j < end && j >= lo_of(end, window))
                    sum += (weight ? weight[first + i] : 1.0f) * x;
            }
            BARRIER();
        }
        if (k.at)
            out[(long)(h / per) * out_stride + j] += sum;
    }
}

#if defined HAS_MMA && MAX_HD <= 256
#define WARPS 4 /* of a group */

/* ---- prompts ---- */

#include "prompt.cl"

#include "attend_few.cl"
#include "attend_few_q8.cl"
#endif
