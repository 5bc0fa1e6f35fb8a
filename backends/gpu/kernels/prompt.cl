/* SPDX-License-Identifier: MIT */
/* prompt.cl - attention of prompts, for attention.cl, which includes it where a warp multiplies
 * small matrices of halves at once. FlashAttention-2 (Dao 2023): a warp has 16 queries and all of
 * their sums in registers, and the next entries' keys and values arrive while it multiplies. */

#include "prompt_rows.cl"

#define PQ (WARPS * 16)       /* queries a group, all of one KV head; 16 a warp */
#define K_STEPS (MAX_HD / 16) /* of the products of queries and keys */
#define SUMS (PE < 32 ? 2 : 1) /* of a product, so that four or more are made in turn */
#define PLACES 4              /* blocks whose rows' places are kept */
#define PLACE_OF(base) ((base) / PE & (PLACES - 1))
#define LOG2_E 1.44269504f
#define LN_2 0.693147181f

/* 16 queries of a warp, of which an item has parts of two: number item % 32 / 4 and 8 more. Logits
 * and what is derived from them are times log2(e). */
struct sixteen {
    uint q[K_STEPS][4];    /* as the products want them */
    float step[2];         /* logits by products */
    int hi[2];             /* entries before these are read */
    float most[2], all[2]; /* the largest logit; the sum of the item's weights */
    /* number i of tile n is of query i / 2 and channel 8 n + item % 4 * 2 + i % 2 */
    float sum[2 * K_STEPS][4];
};

/* Query h of an item's two, as halves */
FUNCTION void load_query(WITH_OPTIONS GLOBAL const float *q, float scale, int h, struct sixteen *t)
{
    const int pair = ITEM() % 4 * 2;
    float x[K_STEPS][4], most = 0.0f, factor;

    UNROLL for (int k = 0; k < K_STEPS; k++)
        UNROLL for (int i = 0; i < 4; i++) {
            const int c = 16 * k + pair + i % 2 + i / 2 * 8;
            x[k][i] = c < HD ? q[c] * (scale * LOG2_E) : 0.0f;
            most = fmax(most, fabs(x[k][i]));
        }
    most = fmax(most, from_item(most, 1));
    most = fmax(most, from_item(most, 2));
    t->step[h] = half_step(most);
    factor = 1.0f / t->step[h];
    UNROLL for (int k = 0; k < K_STEPS; k++)
        UNROLL for (int i = 0; i < 2; i++)
            t->q[k][2 * i + h] = pack_f16(x[k][2 * i] * factor, x[k][2 * i + 1] * factor);
}

/* Where an item's row of the matrices begins that a warp loads from keys or values: matrix m has
 * entries m % 2 * 8.. and channels m / 2 * 8.. of 16 entries and channels. */
FUNCTION int begin_rows(void)
{
    return eight_at(ITEM() % 16, ITEM() % 32 / 16);
}

/* Products of the queries and a block's keys: number i of tile n is of query i / 2 and entry
 * 8 n + item % 4 * 2 + i % 2. */
FUNCTION void multiply_keys(const struct sixteen *t, IN_LOCAL const uint *tile, int at,
                            float s[PE / 8][4])
{
    float sum[SUMS][PE / 8][4]; /* of every SUMS-th step */

    UNROLL for (int m = 0; m < SUMS; m++)
        UNROLL for (int n = 0; n < PE / 8; n++)
            UNROLL for (int i = 0; i < 4; i++)
                sum[m][n][i] = 0.0f;
    UNROLL for (int k = 0; k < K_STEPS; k++)
        UNROLL for (int n = 0; n < PE / 16; n++) {
            uint b[4];
            load_matrices(b, tile + (at ^ 8 * k) + n * 16 * EIGHTS * 4);
            UNROLL for (int i = 0; i < 2; i++) {
                const uint keys[2] = { b[i], b[2 + i] };
                mma(sum[k % SUMS][2 * n + i], t->q[k], keys);
            }
        }
    UNROLL for (int n = 0; n < PE / 8; n++)
        UNROLL for (int i = 0; i < 4; i++) {
            s[n][i] = sum[0][n][i];
            UNROLL for (int m = 1; m < SUMS; m++)
                s[n][i] += sum[m][n][i];
        }
}

/* -INFINITY for entries that a query does not read */
FUNCTION void mask(const struct sixteen *t, int base, int window, float s[PE / 8][4])
{
    UNROLL for (int h = 0; h < 2; h++) {
        const int hi = t->hi[h] - base, lo = lo_of(t->hi[h], window) - base;
        UNROLL for (int n = 0; n < PE / 8; n++)
            UNROLL for (int i = 0; i < 2; i++) {
                const int e = n * 8 + ITEM() % 4 * 2 + i;
                s[n][2 * h + i] = e >= lo && e < hi ? s[n][2 * h + i] : -INFINITY;
            }
    }
}

/* -INFINITY for entries that are not there */
FUNCTION void mask_missing(IN_LOCAL const struct place *places, float s[PE / 8][4])
{
    UNROLL for (int n = 0; n < PE / 8; n++)
        UNROLL for (int i = 0; i < 2; i++) {
            const int e = n * 8 + ITEM() % 4 * 2 + i;
            if (!places[e].at || !places[PE + e].at)
                s[n][i] = s[n][2 + i] = -INFINITY;
        }
}

/* Products -> those of softcap tanh(logits / softcap) */
FUNCTION void cap_logits(const struct sixteen *t, float softcap, float s[PE / 8][4])
{
    UNROLL for (int h = 0; h < 2; h++) {
        const float by = quick_divide(2.0f * t->step[h], softcap);
        const float back = quick_divide(softcap * LOG2_E, t->step[h]);
        UNROLL for (int n = 0; n < PE / 8; n++)
            UNROLL for (int i = 2 * h; i < 2 * h + 2; i++)
                s[n][i] = back - quick_divide(2.0f * back, quick_exp2(s[n][i] * by) + 1.0f);
    }
}

/* Products -> weights of the largest so far; sums shrink. */
FUNCTION void weigh(struct sixteen *t, float s[PE / 8][4])
{
    UNROLL for (int h = 0; h < 2; h++) {
        const float by = t->step[h];
        float most = s[0][2 * h], less, shrink, all[2] = { 0.0f, 0.0f };
        UNROLL for (int n = 0; n < PE / 8; n++)
            most = fmax(most, fmax(s[n][2 * h], s[n][2 * h + 1]));
        most = fmax(most, from_item(most, 1));
        most = fmax(t->most[h], by * fmax(most, from_item(most, 2)));
        less = most > -INFINITY ? most : 0.0f;
        shrink = quick_exp2(t->most[h] - less);
        t->most[h] = most;
        UNROLL for (int n = 0; n < 2 * K_STEPS; n++) {
            t->sum[n][2 * h] *= shrink;
            t->sum[n][2 * h + 1] *= shrink;
        }
        UNROLL for (int n = 0; n < PE / 8; n++)
            UNROLL for (int i = 0; i < 2; i++) {
                s[n][2 * h + i] = quick_exp2(s[n][2 * h + i] * by - less);
                all[i] += s[n][2 * h + i];
            }
        t->all[h] = t->all[h] * shrink + (all[0] + all[1]);
    }
}

/* Adds a block's values by their weights. */
FUNCTION void add_values(struct sixteen *t, float s[PE / 8][4], IN_LOCAL const uint *tile,
                         int at)
{
    UNROLL for (int e = 0; e < PE / 16; e++) {
        const uint a[4] = { pack_f16(s[2 * e][0], s[2 * e][1]),
                            pack_f16(s[2 * e][2], s[2 * e][3]),
                            pack_f16(s[2 * e + 1][0], s[2 * e + 1][1]),
                            pack_f16(s[2 * e + 1][2], s[2 * e + 1][3]) };
        UNROLL for (int n = 0; n < K_STEPS; n++) {
            uint b[4];
            load_matrices_turned(b, tile + (at ^ 8 * n) + e * 16 * EIGHTS * 4);
            mma(t->sum[2 * n], a, b);
            mma(t->sum[2 * n + 1], a, b + 2);
        }
    }
}

/* The first of an item's two queries */
FUNCTION int query_of(int item)
{
    return item / 32 * 16 + item % 32 / 4;
}

/* Queries first and first + 8 of a KV head's, which are numbered token by token */
FUNCTION void begin_sixteen(WITH_OPTIONS GLOBAL const float *q, int q_stride, int kv, int first,
                            int n_query, int n, int n_tok, int group, float scale, int causal,
                            struct sixteen *t)
{
    UNROLL for (int h = 0; h < 2; h++) {
        const int query = first + h * 8 < n_query ? first + h * 8 : n_query - 1;
        const long at = (long)(query / group) * q_stride + (long)(kv * group + query % group) * HD;
        t->hi[h] = hi_of(n, n_tok, causal, query / group);
        t->most[h] = -INFINITY;
        t->all[h] = 0.0f;
        load_query(OPTIONS q + at, scale, h, t);
    }
    UNROLL for (int n = 0; n < 2 * K_STEPS; n++)
        UNROLL for (int i = 0; i < 4; i++)
            t->sum[n][i] = 0.0f;
}

/* Sums -> out, lse; query h is row `row` of them. */
FUNCTION void end_query(WITH_OPTIONS struct sixteen *t, int h, long row, GLOBAL float *out,
                        GLOBAL float *lse)
{
    const int pair = ITEM() % 4;
    const float by = t->all[h] > 0.0f ? 1.0f / t->all[h] : 0.0f;

    UNROLL for (int n = 0; n < 2 * K_STEPS; n++)
        UNROLL for (int i = 0; i < 2; i++)
            if (8 * n + 2 * pair + i < HD)
                out[row * HD + 8 * n + 2 * pair + i] = t->sum[n][2 * h + i] * by;
    if (pair == 0)
        lse[row] = t->all[h] > 0.0f ? t->most[h] * LN_2 + log(t->all[h]) : -INFINITY;
}

/* The first entry of a split. Eight splits have `per` entries each, four more twice that, the next
 * four twice that again: where they begin does not depend on the context's length. The same in
 * gpu_attention.c. */
FUNCTION int begin_of(int per, int split)
{
    return split < 8 ? split * per : (per * (4 + split % 4)) << (split / 4 - 1);
}

/* As attend, for causal runs that neither leave nor are given logits, of an even HD. Queries, keys,
 * weights and values are halves, sums and what lies between are floats. Entries are taken from
 * multiples of PE on, so a query's result does not depend on the others of the group. */
KERNEL_OF(WARPS * 32, MAX_HD > 128 ? 2 : 3)
void attend_mma(WITH_OPTIONS GLOBAL const struct run *runs, GLOBAL const float *q, int q_stride,
                int n_tok, int n_head, int group, float scale, float softcap, int causal,
                int window, int per, int logit_stride, GLOBAL float *out, GLOBAL float *lse)
{
    LOCAL ALIGNED_16 uint tile_[4 * TILE_WORDS]; /* two blocks of keys and values each */
    LOCAL struct place places_[PLACES][2 * PE];
    LOCAL int odd_[PLACES];
    const int item = ITEM(), split = GROUP(1), kv = GROUP(2), n_query = n_tok * group;
    const int first = ((n_query - 1) / PQ - GROUP(0)) * PQ; /* the longest begin first */
    const int last = first + PQ - 1 < n_query ? first + PQ - 1 : n_query - 1;
    GLOBAL const struct run *run = runs + kv;
    const int n = run->n, hi = hi_of(n, n_tok, causal, last / group);
    const int lo = lo_of(hi_of(n, n_tok, causal, first / group), window);
    const int begin = begin_of(per, split), end = begin_of(per, split + 1);
    const int from = lo / PE * PE > begin ? lo / PE * PE : begin, to = hi < end ? hi : end;
    const int whole = HD == MAX_HD && TYPE == 1 && TYPE_V == 1; /* rows are tiles' rows */
    const int rows = begin_rows();
    struct sixteen t;
    struct place next;

    begin_sixteen(OPTIONS q, q_stride, kv, first + query_of(item), n_query, n, n_tok, group, scale,
                  causal, &t);
    if (item < PLACES)
        odd_[item] = -1;
    BARRIER();
    next = find_place(OPTIONS run, from, lo, to, odd_ + PLACE_OF(from));
    if (item < 2 * PE)
        places_[PLACE_OF(from)][item] = next;
    /* A block is multiplied, the next one arrives, the places after that are looked up. Before the
     * first there is one that is not multiplied. */
    for (int base = from - PE; base < to; base += PE) {
        const int stage = PLACE_OF(base) % 2 * 2 * TILE_WORDS;
        float s[PE / 8][4];
        next = find_place(OPTIONS run, base + 2 * PE, lo, to, odd_ + PLACE_OF(base + 2 * PE));
        COPIES_WAIT(0);
        BARRIER(); /* this block is there, and the one before it is done with */
        bring_rows(OPTIONS run, whole && odd_[PLACE_OF(base + PE)] != base + PE,
                   places_[PLACE_OF(base + PE)], tile_, 2 * TILE_WORDS - stage);
        COPIES_END();
        if (base >= from) {
            multiply_keys(&t, tile_, stage + rows, s);
            if (softcap > 0.0f)
                cap_logits(&t, softcap, s);
            if (base < lo_of(t.hi[1], window) || base + PE > t.hi[0])
                mask(&t, base, window, s);
            if (odd_[PLACE_OF(base)] == base)
                mask_missing(places_[PLACE_OF(base)], s);
            weigh(&t, s);
            add_values(&t, s, tile_, stage + rows + TILE_WORDS);
        }
        if (item < 2 * PE)
            places_[PLACE_OF(base + 2 * PE)][item] = next;
    }
    COPIES_WAIT(0);
    UNROLL for (int h = 0; h < 2; h++) {
        const int query = first + query_of(ITEM_AGAIN()) + h * 8;
        const long row = ((long)split * n_tok + query / group) * n_head + kv * group +
                         query % group;
        t.all[h] += from_item(t.all[h], 1);
        t.all[h] += from_item(t.all[h], 2);
        if (query < n_query)
            end_query(OPTIONS & t, h, row, out, lse);
    }
}
