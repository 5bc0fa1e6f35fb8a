/* SPDX-License-Identifier: MIT */
/* attend_few.cl - one token's attention, where a warp multiplies small matrices of halves at once;
 * a part of attention.cl, for devices that have such words. */

#define FQ 8  /* queries a group, all of one KV head */
#define FE 16 /* entries that a warp reads at a time */
#define FEW_WARPS 4
#define FQ_STEP (MAX_HD + 4) /* words from one query in LOCAL memory to the next */
#define O_FLOATS (FEW_WARPS * FQ * MAX_HD) /* sums of a group's warps */
/* Groups that an SM is to have at once: the larger the heads, the more numbers an item holds. */
#define FEW_AN_SM (MAX_HD > 128 ? 2 : MAX_HD > 64 ? 3 : 4)

/* Where an entry's key and value lie: k_off and v_off bytes after an address. NULL: the entry is
 * outside of [lo, to), or not there. Addresses from tables of pages are loads, for which nothing
 * waits until they are used. */
struct entry {
    bytes_t k, v;
    int k_off, v_off;
};

FUNCTION bytes_t page_of(GLOBAL const struct rows *r, int slot, int in, int *off)
{
    const int row = slot + r->skew;
    bytes_t at = 0;

    *off = 0;
    if (!r->pages)
        return in ? (bytes_t)r->base + (long)slot * r->bytes : at;
    *off = (row & ((1 << r->shift) - 1)) * r->bytes;
    if (in)
        at = (bytes_t)((GLOBAL const ulong *)r->base)[row >> r->shift];
    return at;
}

FUNCTION struct entry find_entry(GLOBAL const struct run *run, int j, int lo, int to)
{
    const int in = j >= lo && j < to;
    struct entry e;
    int slot = j;

    if (in && run->idx)
        slot = ((GLOBAL const int *)run->idx)[j];
    slot += run->first;
    e.k = page_of(&run->k, slot, in, &e.k_off);
    e.v = page_of(&run->v, slot, in, &e.v_off);
    return e;
}

/* Its key, or its value; NULL if either is missing */
FUNCTION bytes_t row_of(const struct entry *e, int value)
{
    if (!e->k || !e->v)
        return 0;
    return value ? e->v + e->v_off : e->k + e->k_off;
}

/* A query as sums of two halves: to[MAX_HD / 2][2], two channels of the one, the same of what is
 * left. Returns by what both are divided. */
FUNCTION float split_query(WITH_OPTIONS GLOBAL const float *q, IN_LOCAL uint *to)
{
    const int lane = ITEM() % 32;
    float most = 0.0f, factor;

    for (int c = lane; c < HD; c += 32)
        most = fmax(most, fabs(q[c]));
    most = subgroup_max(most);
    factor = 1.0f / half_step(most);
    for (int i = lane; i < MAX_HD / 2; i += 32) {
        const float a = 2 * i < HD ? q[2 * i] * factor : 0.0f;
        const float b = 2 * i + 1 < HD ? q[2 * i + 1] * factor : 0.0f;
        const uint word = pack_f16(a, b);
        to[2 * i] = word;
        to[2 * i + 1] = pack_f16(a - low_half(word), b - high_half(word));
    }
    return half_step(most);
}

/* What a group attends to: queries first..first+n_query-1 of a KV head, entries from..to-1, of
 * which those before lo are not seen. Each of its warps takes every fourth 16 entries, reads a row
 * once for all queries, and has a softmax of its own until the end. */
struct few_part {
    GLOBAL const struct run *run;
    GLOBAL float *logit; /* of the first query, if the host wants them */
    int kv, first, n_query, lo, from, to;
};

FUNCTION struct few_part few_part_of(GLOBAL const struct run *runs, int group, int window, int per,
                                     int logit_stride)
{
    const int split = GROUP(1), first = GROUP(0) * FQ;
    GLOBAL const struct run *run = runs + GROUP(2);
    const int lo = lo_of(run->n, window), begin = lo / FE * FE;
    struct few_part p;

    p.run = run;
    p.logit = (GLOBAL float *)run->logit;
    if (p.logit)
        p.logit += (long)first * logit_stride;
    p.kv = GROUP(2);
    p.first = first;
    p.n_query = group - first < FQ ? group - first : FQ;
    p.lo = lo;
    p.from = begin + split * per;
    p.to = run->n - p.from < per ? run->n : p.from + per;
    return p;
}

/* The group's queries -> to, by what they are divided times `scale` -> scale_. The last takes the
 * place of those that there are not. */
FUNCTION void split_queries(WITH_OPTIONS const struct few_part *p, GLOBAL const float *q,
                            int group, float scale, IN_LOCAL uint *to, IN_LOCAL float *scale_)
{
    for (int i = ITEM() / 32; i < FQ; i += FEW_WARPS) {
        const int query = p->first + (i < p->n_query ? i : p->n_query - 1);
        GLOBAL const float *at = q + (long)(p->kv * group + query) * HD;
        scale_[i] = split_query(OPTIONS at, to + i * FQ_STEP) * scale;
    }
}

/* Products -> logits, which the host may want. s[n][i] is of the entry base + 8 n +
 * 2 (item % 4) + i; it is -INFINITY where that is not there. */
FUNCTION void finish_logits(const struct few_part *p, int base, const int (*there)[2], float scale,
                            float softcap, int logit_stride, float (*s)[2])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;

    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 2; i++) {
            s[n][i] *= scale;
            if (softcap > 0.0f)
                s[n][i] = softcap * tanh(s[n][i] / softcap);
            if (!there[n][i])
                s[n][i] = -INFINITY;
            else if (p->logit && quad < p->n_query)
                p->logit[(long)quad * logit_stride + base + 8 * n + 2 * pair + i] = s[n][i];
        }
}

/* The running softmax of query item % 32 / 4 over a warp's entries. A weight is exp(s - most). */
struct few {
    float most, all; /* of this item's entries */
};

/* s -> weights; returns by what earlier sums shrink. */
FUNCTION float few_weights(struct few *f, float (*s)[2])
{
    float most = fmax(fmax(s[0][0], s[0][1]), fmax(s[1][0], s[1][1])), shrink;

    most = fmax(most, from_item(most, 1));
    most = fmax(f->most, fmax(most, from_item(most, 2)));
    shrink = most > -INFINITY ? exp(f->most - most) : 1.0f;
    f->most = most;
    f->all *= shrink;
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 2; i++) {
            s[n][i] = s[n][i] > -INFINITY ? exp(s[n][i] - most) : 0.0f;
            f->all += s[n][i];
        }
    return shrink;
}

/* The same; shrink[i]: of query 2 (item % 4) + i, which comes by way of shrink_[FQ]. */
FUNCTION void few_softmax(struct few *f, float (*s)[2], IN_LOCAL float *shrink_, float *shrink)
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;
    const float mine = few_weights(f, s);

    if (pair == 0)
        shrink_[quad] = mine;
    WARP_BARRIER();
    shrink[0] = shrink_[2 * pair];
    shrink[1] = shrink_[2 * pair + 1];
}

/* What few_join() wants of this item's query */
FUNCTION void leave_few(struct few *f, IN_LOCAL float *most_, IN_LOCAL float *all_)
{
    const int item = ITEM(), at = item / 32 * FQ + item % 32 / 4;

    f->all += from_item(f->all, 1);
    f->all += from_item(f->all, 2);
    if (item % 4 == 0) {
        most_[at] = f->most;
        all_[at] = f->all;
    }
}

/* The sums of a group's warps -> out, lse. most_, all_: [FEW_WARPS][FQ], o_: the same [MAX_HD] */
FUNCTION void few_join(WITH_OPTIONS IN_LOCAL const float *most_, IN_LOCAL float *all_,
                       IN_LOCAL const float *o_, int n_query, long row, GLOBAL float *out,
                       GLOBAL float *lse)
{
    const int item = ITEM();

    if (item < FQ) { /* all_ becomes what a warp's sums count */
        float most = -INFINITY, all = 0.0f, by[FEW_WARPS];
        UNROLL for (int w = 0; w < FEW_WARPS; w++)
            most = fmax(most, most_[w * FQ + item]);
        UNROLL for (int w = 0; w < FEW_WARPS; w++) {
            by[w] = most > -INFINITY ? exp(most_[w * FQ + item] - most) : 0.0f;
            all += by[w] * all_[w * FQ + item];
        }
        UNROLL for (int w = 0; w < FEW_WARPS; w++)
            all_[w * FQ + item] = all > 0.0f ? by[w] / all : 0.0f;
        if (item < n_query)
            lse[row + item] = all > 0.0f ? most + log(all) : -INFINITY;
    }
    BARRIER();
    for (int query = item / 32; query < n_query; query += FEW_WARPS)
        for (int c = item % 32; c < HD; c += 32) {
            float x = 0.0f;
            UNROLL for (int w = 0; w < FEW_WARPS; w++)
                x += all_[w * FQ + query] * o_[(w * FQ + query) * MAX_HD + c];
            out[(row + query) * HD + c] = x;
        }
}

/* ---- rows of f16 or bf16, which lie at multiples of 16; HD is a multiple of 8 ---- */

#define K_EIGHTS ((MAX_HD + 31) / 32) /* eights of channels of a key that an item has */
#define V_EIGHTS ((MAX_HD + 63) / 64)

/* Eight channels of a row of halves; after its end, the last ones, which count for nothing. Where
 * heads have MAX_HD numbers, addresses differ by constants. */
FUNCTION void eight_of(bytes_t row, int eight, int last, uint *to)
{
    load_four(to, (GLOBAL const uint *)(row + 16 * (eight < last ? eight : last)));
}

/* An item's share of 16 keys, k_[FE] */
FUNCTION void bring_few_keys(WITH_OPTIONS IN_LOCAL const bytes_t *k_, uint (*k)[K_EIGHTS][4])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;

    UNROLL for (int n = 0; n < 2; n++) {
        bytes_t row = k_[8 * n + quad];
        if (HD == MAX_HD)
            UNROLL for (int c = 0; c < K_EIGHTS; c++)
                load_four(k[n][c], (GLOBAL const uint *)(row + 16 * pair) + 16 * c);
        else
            UNROLL for (int c = 0; c < K_EIGHTS; c++)
                eight_of(row, 4 * c + pair, HD / 8 - 1, k[n][c]);
    }
}

FUNCTION void bring_few_values(WITH_OPTIONS IN_LOCAL const bytes_t *v_, uint (*v)[V_EIGHTS][4])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;

    UNROLL for (int e = 0; e < 4; e++) {
        bytes_t row = v_[2 * pair + e % 2 + e / 2 * 8];
        if (HD == MAX_HD)
            UNROLL for (int c = 0; c < V_EIGHTS; c++)
                load_four(v[e][c], (GLOBAL const uint *)(row + 16 * quad) + 32 * c);
        else
            UNROLL for (int c = 0; c < V_EIGHTS; c++)
                eight_of(row, 8 * c + quad, HD / 8 - 1, v[e][c]);
    }
}

/* n words of two numbers of bf16 as halves; what is beyond the largest half becomes the largest. */
FUNCTION void become_halves(uint *word, int n)
{
    UNROLL for (int i = 0; i < n; i++)
        word[i] = pack_f16_limited(AS_FLOAT(word[i] << 16), AS_FLOAT(word[i] & 0xffff0000u));
}

/* What an item has of the logits of query item % 32 / 4: numbers i of tile n are of the entries
 * 8 n + 2 (item % 4) + i. The queries' halves are rows 0..7 of a matrix, what is left rows 8..15.
 */
FUNCTION void few_logits(IN_LOCAL const uint *q_, uint (*k)[K_EIGHTS][4], float (*s)[2])
{
    const int quad = ITEM() % 32 / 4, pair = ITEM() % 4;
    float sum[2][4];

    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 4; i++)
            sum[n][i] = 0.0f;
    UNROLL for (int c = 0; c < K_EIGHTS; c++) {
        IN_LOCAL const uint *at = q_ + quad * FQ_STEP + 8 * (4 * c + pair);
        UNROLL for (int i = 0; i < 2; i++) {
            uint a[4];
            load_four(a, at + 4 * i);
            UNROLL for (int n = 0; n < 2; n++)
                mma(sum[n], a, k[n][c] + 2 * i);
        }
    }
    UNROLL for (int n = 0; n < 2; n++)
        UNROLL for (int i = 0; i < 2; i++)
            s[n][i] = sum[n][i] + sum[n][i + 2];
}

/* sum += the values of 16 entries by their weights p: numbers i of sum[c][k] are of channel
 * 8 (8 c + item % 32 / 4) + k + 4 (i / 2) and query 2 (item % 4) + i % 2. */
FUNCTION void few_values(float (*p)[2], uint (*v)[V_EIGHTS][4], float (*sum)[4][4])
{
    const uint most[2] = { pack_f16(p[0][0], p[0][1]), pack_f16(p[1][0], p[1][1]) };
    uint left[2];

    UNROLL for (int n = 0; n < 2; n++)
        left[n] = pack_f16(p[n][0] - low_half(most[n]), p[n][1] - high_half(most[n]));
    UNROLL for (int c = 0; c < V_EIGHTS; c++)
        UNROLL for (int k = 0; k < 4; k++) {
            const uint of = k % 2 ? 0x7632u : 0x5410u; /* each word's half */
            const int w = k / 2;
            const uint a[4] = { pick_bytes(v[0][c][w], v[1][c][w], of),
                                pick_bytes(v[0][c][w + 2], v[1][c][w + 2], of),
                                pick_bytes(v[2][c][w], v[3][c][w], of),
                                pick_bytes(v[2][c][w + 2], v[3][c][w + 2], of) };
            mma(sum[c][k], a, most);
            mma(sum[c][k], a, left);
        }
}

/* As `attend`, for one token that reads all entries or a window. While a warp multiplies keys,
 * their values are on their way; while it multiplies these, the next keys. What is not there has
 * numbers too, zeros in LOCAL memory, so that no load has to ask. */
FUNCTION void few_halves(WITH_OPTIONS int bf16, GLOBAL const struct run *runs,
                         GLOBAL const float *q, int n_head, int group, float scale, float softcap,
                         int window, int per, int logit_stride, GLOBAL float *out,
                         GLOBAL float *lse)
{
    LOCAL ALIGNED_16 uint q_[FQ * FQ_STEP];
    LOCAL float o_[O_FLOATS], most_[FEW_WARPS * FQ], all_[FEW_WARPS * FQ], scale_[FQ];
    LOCAL float shrink_[FEW_WARPS * FQ];
    LOCAL bytes_t k_[2][FEW_WARPS * FE], v_[2][FEW_WARPS * FE];
    LOCAL ALIGNED_16 uint zero_[MAX_HD / 2];
    const int item = ITEM(), warp = item / 32, quad = item % 32 / 4, pair = item % 4;
    const int first = warp * FE, mine = first + item % FE; /* two items write the same */
    const struct few_part p = few_part_of(runs, group, window, per, logit_stride);
    bytes_t none = (bytes_t)zero_;
    uint k[2][K_EIGHTS][4], v[4][V_EIGHTS][4];
    float sum[V_EIGHTS][4][4];
    struct entry next;
    struct few f;

    f.most = -INFINITY;
    f.all = 0.0f;
    UNROLL for (int c = 0; c < V_EIGHTS; c++)
        UNROLL for (int j = 0; j < 4; j++)
            UNROLL for (int i = 0; i < 4; i++)
                sum[c][j][i] = 0.0f;
    next = find_entry(p.run, p.from + mine, p.lo, p.to);
    k_[0][mine] = next.k && next.v ? row_of(&next, 0) : none;
    v_[0][mine] = next.k && next.v ? row_of(&next, 1) : none;
    WARP_BARRIER();
    bring_few_keys(OPTIONS k_[0] + first, k); /* keys that are not there may be any numbers */
    next = find_entry(p.run, p.from + FEW_WARPS * FE + mine, p.lo, p.to);
    for (int i = item; i < MAX_HD / 2; i += FEW_WARPS * 32)
        zero_[i] = 0u;
    split_queries(OPTIONS &p, q, group, scale, q_, scale_);
    BARRIER();
    for (int base = p.from, now = 0; base < p.to; base += FEW_WARPS * FE, now = !now) {
        float s[2][2], shrink[2];
        int there[2][2];
        k_[!now][mine] = next.k && next.v ? row_of(&next, 0) : none;
        v_[!now][mine] = next.k && next.v ? row_of(&next, 1) : none;
        WARP_BARRIER();
        bring_few_values(OPTIONS v_[now] + first, v);
        next = find_entry(p.run, base + 2 * FEW_WARPS * FE + mine, p.lo, p.to);
        if (bf16)
            become_halves(&k[0][0][0], 2 * K_EIGHTS * 4);
        few_logits(q_, k, s);
        bring_few_keys(OPTIONS k_[!now] + first, k);
        UNROLL for (int i = 0; i < 4; i++)
            there[i / 2][i % 2] = v_[now][first + i / 2 * 8 + 2 * pair + i % 2] != none;
        finish_logits(&p, base + first, there, scale_[quad], softcap, logit_stride, s);
        few_softmax(&f, s, shrink_ + warp * FQ, shrink);
        UNROLL for (int c = 0; c < V_EIGHTS; c++)
            UNROLL for (int j = 0; j < 4; j++)
                UNROLL for (int i = 0; i < 4; i++)
                    sum[c][j][i] *= shrink[i % 2];
        if (bf16)
            become_halves(&v[0][0][0], 4 * V_EIGHTS * 4);
        few_values(s, v, sum);
        WARP_BARRIER();
    }
    leave_few(&f, most_, all_);
    UNROLL for (int c = 0; c < V_EIGHTS; c++)
        UNROLL for (int j = 0; j < 4; j++)
            UNROLL for (int i = 0; i < 4; i++)
                o_[(warp * FQ + 2 * pair + i % 2) * MAX_HD + 8 * (8 * c + quad) + j + i / 2 * 4] =
                    sum[c][j][i];
    BARRIER();
    few_join(OPTIONS most_, all_, o_, p.n_query, (long)GROUP(1) * n_head + p.kv * group + p.first,
             out, lse);
}

#define FEW_HALVES(name, bf16)                                                                     \
    KERNEL_OF(FEW_WARPS * 32, FEW_AN_SM)                                                           \
    void name(WITH_OPTIONS GLOBAL const struct run *runs, GLOBAL const float *q, int q_stride,     \
              int n_tok, int n_head, int group, float scale, float softcap, int causal,            \
              int window, int per, int logit_stride, GLOBAL float *out, GLOBAL float *lse)         \
    {                                                                                              \
        few_halves(OPTIONS bf16, runs, q, n_head, group, scale, softcap, window, per,              \
                   logit_stride, out, lse);                                                        \
    }

FEW_HALVES(attend_few, 0)
FEW_HALVES(attend_few_bf16, 1)
