/* SPDX-License-Identifier: MIT */
/* search.cl - the slots whose sketched keys score highest for one token's queries. What is chosen
 * is defined by backends/ref/ref_sketch.c: integers, and products in a stated order. Kernels run
 * one after the other, in the order of this file. */

#define SEARCH_ITEMS 128
#define HEADS 8 /* query heads at a time: STRIP items each open a block */

/* As in src/device/sketch.h */
#define BLOCK 128
#define STRIP 16
#define UNIT 32
#define BUCKETS 2048
#define PIECE 1024
#define MOST_HD 576
#define MOST_STRIPS (MOST_HD / STRIP)

/* As struct gpu_search in gpu_sketch.c. Block b of KV head h lies in page
 * (first + b) >> shift of its n_page pages. */
struct search {
    ulong may_rest; /* a weight that need not be chosen; has_miss 0: all k are */
    uint weight[32], log[32]; /* cb_sketch_weight, cb_sketch_log */
    float unit, unit_mult, middle;
    int group, hd, pad, bits, down; /* down: how far sums of products are shifted */
    int n_block, n_page, first, shift, block_bytes;
    int n_strip, n_all; /* strips that are scored, that there are */
    int lo, hi, k, has_miss;
    int before, after; /* slots before lo, and from hi on, that lists have too */
};

/* The list of a KV head, after their number, in found[n_kv][1 + before + k + after] */
FUNCTION GLOBAL int *list_of(GLOBAL const struct search *s, GLOBAL int *found, int kv)
{
    return found + (long)kv * (1 + s->before + s->k + s->after) + 1;
}

FUNCTION bytes_t block_at(GLOBAL const struct search *s, GLOBAL const ulong *page, int kv, int b)
{
    const int row = s->first + b;

    return (bytes_t)page[kv * s->n_page + (row >> s->shift)] +
           (long)(row & ((1 << s->shift) - 1)) * s->block_bytes;
}

/* Channel c of a query, in score units */
FUNCTION float query(GLOBAL const struct search *s, GLOBAL const float *q, int c)
{
    return c < s->hd ? q[c] * s->unit : 0.0f;
}

/* ---- strips of channels ---- */

/* KV head GROUP(0): its strips, those that are scored first; no rank is counted yet. */
KERNEL void sketch_strips(GLOBAL const struct search *s, GLOBAL const ulong *page,
                          GLOBAL const float *q, GLOBAL int *strips, GLOBAL uint *count)
{
    LOCAL float sum_[MOST_STRIPS];
    LOCAL int out_[MOST_STRIPS];
    const int kv = GROUP(0), item = ITEM(), n_all = s->n_all;
    GLOBAL int *at = strips + kv * MOST_STRIPS;
    bytes_t block = block_at(s, page, kv, s->n_block / 2);

    for (int i = item; i < BUCKETS; i += SEARCH_ITEMS)
        count[kv * BUCKETS + i] = 0;
    for (int i = item; i < n_all; i += SEARCH_ITEMS) {
        float sum = 0.0f;
        for (int h = kv * s->group; h < (kv + 1) * s->group; h++)
            for (int c = i * STRIP; c < (i + 1) * STRIP; c++)
                sum += fabs(query(s, q + (long)h * s->hd, c) * load_f16(block + 2 * c));
        sum_[i] = sum;
        out_[i] = 0;
    }
    BARRIER();
    if (item == 0) {
        int from = 0, behind = s->n_strip;
        for (int n = n_all; n > s->n_strip; n--) { /* the least one goes; a NaN is the least */
            int least = -1;
            for (int i = 0; i < n_all; i++)
                if (!out_[i] && (least < 0 || !(sum_[i] >= sum_[least])))
                    least = i;
            out_[least] = 1;
        }
        for (int i = 0; i < n_all; i++)
            at[out_[i] ? behind++ : from++] = i;
    }
}

/* ---- scores ---- */

FUNCTION int whole(float x, int most)
{
    if (!(x > (float)-most - 1.0f))
        return -most - 1;
    return x < (float)most ? (int)rint(x) : most;
}

FUNCTION int limited(int x)
{
    return x < -32768 ? -32768 : x > 32767 ? 32767 : x;
}

/* 127 / x for x > 0, rounded to the nearest: a device's division need not be. */
FUNCTION float inverse_127(float x)
{
    uint digits = AS_UINT(x) & 0x7fffffu;
    int e = (int)(AS_UINT(x) >> 23);
    ulong all;

    if (e == 255)
        return 0.0f;
    if (e)
        digits |= 0x800000u;
    else
        e = 1;
    all = (ulong)127 << 50;
    return ldexp((float)((all / digits) << 1 | (all % digits != 0)), 99 - e);
}

/* What one of 16 items has of a query head's form in a block: the sum of query * minimum over the
 * strips' channels at `lane`, and the largest |query * step| of those that are scored */
FUNCTION float open_lane(GLOBAL const struct search *s, GLOBAL const float *q, bytes_t block,
                         GLOBAL const int *at, int lane, float *most)
{
    float sum = 0.0f, top = 0.0f;

    for (int i = 0; i < s->n_all; i++) {
        const int c = at[i] * STRIP + lane;
        const float y = query(s, q, c), step = load_f16(block + 2 * c);
        float min = load_f16(block + 2 * (s->pad + c));
        if (i < s->n_strip) {
            const float w = fabs(step * y);
            top = w > top ? w : top;
        } else {
            min = fma(step, s->middle, min);
        }
        sum = fma(y, min, sum);
    }
    *most = top;
    return sum;
}

FUNCTION float tree(IN_LOCAL const float *lane)
{
    float x[STRIP];

    for (int i = 0; i < STRIP; i++)
        x[i] = lane[i];
    for (int n = STRIP / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x[i] += x[i + n];
    return x[0];
}

/* The sums of products of one token and `heads` query heads, a constant, whose weights are
 * MOST_HD / 4 words apart */
FUNCTION void add_products(GLOBAL const struct search *s, GLOBAL const int *at, bytes_t code,
                           IN_LOCAL const uint *w, int heads, int *sum)
{
    const int bits = s->bits, each = bits / 2, n = 8 / bits;
    const uint mask = bits == 2 ? 0x03030303u : 0x0f0f0f0fu;

    for (int i = 0; i < s->n_strip * each; i++) {
        const uint x = *(GLOBAL const uint *)(code + (at[i / each] * each + i % each) * 128);
        for (int k = 0; k < n; k++) {
            const uint c = x >> (bits * k) & mask;
            UNROLL for (int h = 0; h < heads; h++)
                sum[h] = dot4(c, w[h * (MOST_HD / 4) + i * n + k], sum[h]);
        }
    }
}

/* Block GROUP(0) of KV head GROUP(1), a token an item -> score[n_head][n]. Items without a query
 * head open the first one, so that all of them do the same. */
KERNEL void sketch_scan(GLOBAL const struct search *s, GLOBAL const ulong *page,
                        GLOBAL const float *q, GLOBAL const int *strips, GLOBAL short *score)
{
    LOCAL float lane_[SEARCH_ITEMS], most_[SEARCH_ITEMS];
    LOCAL uint word_[HEADS * (MOST_HD / 4)];
    LOCAL int mult_[HEADS], base_[HEADS];
    const int b = GROUP(0), kv = GROUP(1), item = ITEM(), own = item / STRIP, lane = item % STRIP;
    IN_LOCAL signed char *w = (IN_LOCAL signed char *)(word_ + own * (MOST_HD / 4));
    const long n = (long)s->n_block * BLOCK;
    GLOBAL const int *at = strips + kv * MOST_STRIPS;
    bytes_t block = block_at(s, page, kv, b);
    bytes_t code = block + 4 * s->pad + item / 32 * (s->pad / (32 / s->bits)) * 128 +
                   item / 4 % 2 * 64 + item % 32 / 8 * 16 + item % 4 * 4;

    for (int from = 0; from < s->group; from += HEADS) {
        const int heads = s->group - from < HEADS ? s->group - from : HEADS;
        const int head = kv * s->group + from;
        GLOBAL const float *y = q + (long)(head + (own < heads ? own : 0)) * s->hd;
        GLOBAL short *to = score + head * n + b * BLOCK + item;
        float most, top = 0.0f, inv;
        int sum[HEADS] = { 0 };

        lane_[item] = open_lane(s, y, block, at, lane, &most);
        most_[item] = most;
        BARRIER();
        for (int i = 0; i < STRIP; i++)
            top = fmax(top, most_[own * STRIP + i]);
        inv = top > 0.0f ? inverse_127(top) : 0.0f;
        for (int i = 0; i < s->n_strip; i++) {
            const int c = at[i] * STRIP + lane;
            w[i * STRIP + lane] =
                (signed char)whole(load_f16(block + 2 * c) * query(s, y, c) * inv, 127);
        }
        if (lane == 0) {
            mult_[own] = whole(top * s->unit_mult, 32767);
            base_[own] = whole(tree(lane_ + own * STRIP), 32767);
        }
        BARRIER();
        if (heads > 4)
            add_products(s, at, code, word_, 8, sum);
        else if (heads > 1)
            add_products(s, at, code, word_, 4, sum);
        else
            add_products(s, at, code, word_, 1, sum);
        for (int h = 0; h < heads; h++)
            to[h * n] = (short)limited(
                base_[h] + ((limited(sum[h] >> s->down) * mult_[h] + 0x4000) >> 15));
        BARRIER();
    }
}

/* ---- weights ---- */

FUNCTION int tokens_of(GLOBAL const struct search *s, int piece)
{
    const int left = s->n_block * BLOCK - piece * PIECE;

    return left < PIECE ? left : PIECE;
}

/* Piece GROUP(0) of query head GROUP(1): its largest score, and the sum of the weights below it ->
 * top, sum[n_head][n_piece] */
KERNEL void sketch_weigh(GLOBAL const struct search *s, GLOBAL const short *score,
                         GLOBAL int *top, GLOBAL uint *sum, int n_piece)
{
    LOCAL float most_[SEARCH_ITEMS];
    LOCAL int sum_[SEARCH_ITEMS];
    const int piece = GROUP(0), head = GROUP(1), n = tokens_of(s, piece), item = ITEM();
    GLOBAL const short *x = score + (long)head * s->n_block * BLOCK + piece * PIECE;
    float most = -32768.0f;
    int all = 0;

    for (int j = item; j < n; j += SEARCH_ITEMS)
        most = fmax(most, (float)x[j]);
    most = group_max(most, most_, SEARCH_ITEMS);
    for (int j = item; j < n; j += SEARCH_ITEMS) {
        const int below = (int)most - x[j], down = below / UNIT;
        all += (int)(s->weight[below % UNIT] >> (down < 31 ? down : 31));
    }
    all = group_count(all, sum_, SEARCH_ITEMS);
    if (item == 0) {
        top[head * n_piece + piece] = (int)most;
        sum[head * n_piece + piece] = (uint)all;
    }
}

/* A sum of weights below the score `top`, as a score */
FUNCTION int log_of(GLOBAL const struct search *s, ulong all, int top)
{
    int i = 0, lse = top + UNIT;

    for (; all >> 32; all >>= 1)
        lse += UNIT;
    for (; all && !(all >> 31); all <<= 1)
        lse -= UNIT;
    while (i < 32 && all >= s->log[i])
        i++;
    return lse + i > 32767 ? 32767 : lse + i;
}

/* ---- ranks ---- */

/* Piece GROUP(0) of KV head GROUP(1): how far its tokens are from weight 1 -> rank[n_kv][n], and
 * how many candidates have each rank, added to count[n_kv][BUCKETS] */
KERNEL void sketch_rank(GLOBAL const struct search *s, GLOBAL const short *score,
                        GLOBAL const int *top, GLOBAL const uint *sum, int n_piece,
                        GLOBAL ushort *rank, GLOBAL uint *count)
{
    LOCAL float most_[SEARCH_ITEMS];
    LOCAL ulong all_[SEARCH_ITEMS];
    LOCAL uint count_[BUCKETS];
    const int piece = GROUP(0), kv = GROUP(1), n = tokens_of(s, piece), item = ITEM();
    const long n_all = (long)s->n_block * BLOCK, first = (long)piece * PIECE;
    int best[PIECE / SEARCH_ITEMS];

    for (int i = item; i < BUCKETS; i += SEARCH_ITEMS)
        count_[i] = 0;
    for (int i = 0; i < PIECE / SEARCH_ITEMS; i++)
        best[i] = BUCKETS - 1;
    for (int h = kv * s->group; h < (kv + 1) * s->group; h++) {
        GLOBAL const short *x = score + h * n_all + first;
        float most = -32768.0f;
        ulong all = 0;
        int lse;
        for (int p = item; p < n_piece; p += SEARCH_ITEMS)
            most = fmax(most, (float)top[h * n_piece + p]);
        most = group_max(most, most_, SEARCH_ITEMS);
        for (int p = item; p < n_piece; p += SEARCH_ITEMS) {
            const int below = (int)most - top[h * n_piece + p], down = below / UNIT;
            all += (ulong)sum[h * n_piece + p] * s->weight[below % UNIT] >>
                   (down < 63 ? down : 63);
        }
        lse = log_of(s, group_total(all, all_, SEARCH_ITEMS), (int)most);
        for (int i = 0; i < PIECE / SEARCH_ITEMS; i++) {
            const int j = i * SEARCH_ITEMS + item, below = j < n ? lse - x[j] : BUCKETS;
            best[i] = below >= best[i] ? best[i] : below > 0 ? below : 0;
        }
        BARRIER();
    }
    for (int i = 0; i < PIECE / SEARCH_ITEMS; i++) {
        const int j = i * SEARCH_ITEMS + item;
        if (j < n)
            rank[kv * n_all + first + j] = (ushort)best[i];
        if (j < n && first + j >= s->lo && first + j < s->hi)
            ADD_TO(&count_[best[i]], 1u);
    }
    BARRIER();
    for (int i = item; i < BUCKETS; i += SEARCH_ITEMS)
        if (count_[i])
            ADD_TO(&count[kv * BUCKETS + i], count_[i]);
}

/* ---- choosing ---- */

#define STRETCH (BUCKETS / SEARCH_ITEMS) /* buckets an item adds up */

FUNCTION ulong weight_of(GLOBAL const struct search *s, int bucket, uint n)
{
    return n * ((ulong)s->weight[bucket % UNIT] << 24 >> (bucket / UNIT));
}

/* Where the chosen of a KV head end, from the numbers and weights in each stretch of buckets: ranks
 * below end[0], and the first end[1] of those equal to it; end[2]: how many */
FUNCTION void find_end(GLOBAL const struct search *s, GLOBAL const uint *count,
                       IN_LOCAL const uint *number, IN_LOCAL const ulong *weight, IN_LOCAL int *end)
{
    ulong rest = 0;
    int n = 0, i = 0, b, ends = 0;

    for (int j = 0; j < SEARCH_ITEMS; j++)
        rest += weight[j];
    for (; i < SEARCH_ITEMS && n + (int)number[i] <= s->k; i++) {
        if (s->has_miss && rest - weight[i] <= s->may_rest)
            break;
        n += (int)number[i];
        rest -= weight[i];
    }
    for (b = i * STRETCH; b < BUCKETS; b++) {
        ends = s->has_miss && rest <= s->may_rest;
        if (ends || n + (int)count[b] > s->k)
            break;
        n += (int)count[b];
        rest -= s->has_miss ? weight_of(s, b, count[b]) : 0;
    }
    end[0] = b;
    end[1] = b < BUCKETS && !ends ? s->k - n : 0;
    end[2] = n + end[1];
}

/* Is slot j of its KV head a candidate with this rank, and below or equal to where they end? */
FUNCTION int is_below(GLOBAL const struct search *s, long j, int rank, int limit)
{
    return j >= s->lo && j < s->hi && rank < limit;
}

/* Piece GROUP(0) of KV head GROUP(1): how many of its candidates are below the end, and at it ->
 * part[n_kv][n_piece][2]; the end -> end[n_kv][2], the number of chosen -> found[n_kv][1 + k] */
KERNEL void sketch_count(GLOBAL const struct search *s, GLOBAL const ushort *rank,
                         GLOBAL const uint *count, int n_piece, GLOBAL int *part, GLOBAL int *end,
                         GLOBAL int *found)
{
    LOCAL uint number_[SEARCH_ITEMS];
    LOCAL ulong weight_[SEARCH_ITEMS];
    LOCAL int end_[3], below_[SEARCH_ITEMS], equal_[SEARCH_ITEMS];
    const int piece = GROUP(0), kv = GROUP(1), item = ITEM();
    const long n = tokens_of(s, piece), first = (long)piece * PIECE;
    GLOBAL const ushort *x = rank + (long)kv * s->n_block * BLOCK;
    int below = 0, equal = 0;

    count += kv * BUCKETS;
    number_[item] = 0;
    weight_[item] = 0;
    for (int b = item * STRETCH; b < (item + 1) * STRETCH; b++) {
        number_[item] += count[b];
        weight_[item] += s->has_miss ? weight_of(s, b, count[b]) : 0;
    }
    BARRIER();
    if (item == 0)
        find_end(s, count, number_, weight_, end_);
    BARRIER();
    for (long j = first + item; j < first + n; j += SEARCH_ITEMS) {
        below += is_below(s, j, x[j], end_[0]);
        equal += is_below(s, j, x[j], end_[0] + 1);
    }
    below = group_count(below, below_, SEARCH_ITEMS);
    equal = group_count(equal, equal_, SEARCH_ITEMS) - below;
    if (item == 0) {
        part[2 * (kv * n_piece + piece)] = below;
        part[2 * (kv * n_piece + piece) + 1] = equal;
    }
    if (item < 2 && piece == 0)
        end[2 * kv + item] = end_[item];
    if (item == 0 && piece == 0)
        list_of(s, found, kv)[-1] = end_[2];
}

/* Piece GROUP(0) of KV head GROUP(1): its chosen slots, after those of the pieces before it ->
 * found. An item has PIECE / SEARCH_ITEMS adjacent tokens. */
KERNEL void sketch_pick(GLOBAL const struct search *s, GLOBAL const ushort *rank,
                        GLOBAL const int *part, GLOBAL const int *end, int n_piece,
                        GLOBAL int *found)
{
    LOCAL int before_[2][SEARCH_ITEMS], below_[SEARCH_ITEMS], equal_[SEARCH_ITEMS];
    const int piece = GROUP(0), kv = GROUP(1), item = ITEM(), each = PIECE / SEARCH_ITEMS;
    const int limit = end[2 * kv], most = end[2 * kv + 1], n = tokens_of(s, piece);
    const long first = (long)piece * PIECE + item * each;
    const long last = item * each < n ? first + each : first;
    GLOBAL const ushort *x = rank + (long)kv * s->n_block * BLOCK;
    GLOBAL int *to = list_of(s, found, kv) + s->before;
    int below = 0, equal = 0;

    for (int i = item; i < s->before && piece == 0; i += SEARCH_ITEMS)
        to[i - s->before] = s->lo - s->before + i;
    for (int i = item; i < s->after && piece == 0; i += SEARCH_ITEMS)
        to[s->k + i] = s->hi + i;
    for (int p = item; p < piece; p += SEARCH_ITEMS) {
        below += part[2 * (kv * n_piece + p)];
        equal += part[2 * (kv * n_piece + p) + 1];
    }
    below = group_count(below, before_[0], SEARCH_ITEMS);
    equal = group_count(equal, before_[1], SEARCH_ITEMS);
    below_[item] = 0;
    equal_[item] = 0;
    for (long j = first; j < last; j++) {
        const int is = is_below(s, j, x[j], limit);
        below_[item] += is;
        equal_[item] += is_below(s, j, x[j], limit + 1) - is;
    }
    BARRIER();
    for (int i = 0; i < item; i++) {
        below += below_[i];
        equal += equal_[i];
    }
    to += below + (equal < most ? equal : most);
    for (long j = first; j < last; j++) {
        const int is = is_below(s, j, x[j], limit);
        if (is || (is_below(s, j, x[j], limit + 1) && equal++ < most))
            *to++ = (int)j;
    }
}
