/* SPDX-License-Identifier: MIT */
/* pages.cl - pages of keys that score highest for one token's queries, by bounds or by the keys. A
 * score by bounds is that of struct page_scores, but a mean stays a sum, which has the same order.
 * pick_pages runs after the kernel that scores, or for lists of many pages the four kernels after
 * it, which have several groups for a list. */

#define SCORE_ITEMS 128
#define LANES 16 /* items that share a page */
#define HEADS 8 /* query heads at a time */
#define PICK_ITEMS 256

/* As struct gpu_pages in gpu_pages.c. Page p of KV head h is row first + p of its n_block pieces of
 * 1 << shift rows. */
struct pages {
    int n_page, n_block, first, shift, bytes;
    int hd, group, per, mean;
    int page, lo, k; /* page p is slots lo + p * page on; k pages are chosen */
    int before, after; /* slots before the first page and after the last one: lists have them too */
};

FUNCTION bytes_t bounds_at(GLOBAL const struct pages *s, GLOBAL const ulong *block, int kv, int p)
{
    const int row = s->first + p;

    return (bytes_t)block[kv * s->n_block + (row >> s->shift)] +
           (long)(row & ((1 << s->shift) - 1)) * s->bytes;
}

/* The items that share a page have parts of the sums of HEADS heads: item `lane` of them gets that
 * of head lane, others any number. part[HEADS * (SCORE_ITEMS + 1)] is read until a barrier. */
FUNCTION float sum_lanes(const float *sum, IN_LOCAL float *part)
{
    const int item = ITEM(), lane = item % LANES;
    float all = 0.0f;

    for (int h = 0; h < HEADS; h++)
        part[h * (SCORE_ITEMS + 1) + item] = sum[h];
    BARRIER();
    for (int i = 0; lane < HEADS && i < LANES; i++)
        all += part[lane * (SCORE_ITEMS + 1) + item - lane + i];
    return all;
}

/* Pages of list GROUP(1), from GROUP(0) * SCORE_ITEMS / LANES on -> score[n_list][n_page]. Items
 * whose page is beyond the last take that one, so that all of them do the same. */
KERNEL void score_pages(GLOBAL const struct pages *s, GLOBAL const ulong *block,
                        GLOBAL const float *q, GLOBAL float *score)
{
    LOCAL float part_[HEADS * (SCORE_ITEMS + 1)], head_[SCORE_ITEMS / LANES * HEADS];
    const int item = ITEM(), own = item / LANES, lane = item % LANES, list = GROUP(1);
    const int at = GROUP(0) * (SCORE_ITEMS / LANES) + own, hd = s->hd;
    const int p = at < s->n_page ? at : s->n_page - 1;
    bytes_t x = bounds_at(s, block, list * s->per / s->group, p);
    float all = s->mean ? 0.0f : -INFINITY;

    for (int from = 0; from < s->per; from += HEADS) {
        const int heads = s->per - from < HEADS ? s->per - from : HEADS;
        GLOBAL const float *y = q + (long)(list * s->per + from) * hd;
        float sum[HEADS] = { 0 }, own_head;
        for (int c = lane; c < hd; c += LANES) {
            const float min = load_f16(x + 2 * c), max = load_f16(x + 2 * (hd + c));
            UNROLL for (int h = 0; h < HEADS; h++) {
                const float w = y[(long)(h < heads ? h : 0) * hd + c];
                sum[h] += fmax(w * min, w * max);
            }
        }
        own_head = sum_lanes(sum, part_);
        if (lane < heads)
            head_[own * HEADS + lane] = own_head;
        BARRIER();
        for (int h = 0; h < heads; h++) {
            const float bound = head_[own * HEADS + h];
            all = s->mean ? all + bound : fmax(all, bound);
        }
    }
    if (lane == 0 && at < s->n_page)
        score[(long)list * s->n_page + p] = all;
}

/* Block GROUP(0) of rows of `type`: its largest dot product with each of q[n_head][hd] ->
 * score[n_head][n_page]. Items share a row as they share a page; those past the last row take that
 * one. */
KERNEL void score_blocks(GLOBAL const struct pages *s, GLOBAL const ulong *block, int type,
                         int n_head, GLOBAL const float *q, GLOBAL float *score)
{
    LOCAL float part_[HEADS * (SCORE_ITEMS + 1)], most_[SCORE_ITEMS / LANES * HEADS];
    const int item = ITEM(), own = item / LANES, lane = item % LANES, hd = s->hd;
    const int first = GROUP(0) * s->page, rows = SCORE_ITEMS / LANES;

    for (int from = 0; from < n_head; from += HEADS) {
        const int heads = n_head - from < HEADS ? n_head - from : HEADS;
        GLOBAL const float *y = q + (long)from * hd;
        float most = -INFINITY;
        for (int j = own; j - own < s->page; j += rows) {
            bytes_t x = bounds_at(s, block, 0, first + (j < s->page ? j : s->page - 1));
            float sum[HEADS] = { 0 };
            for (int c = lane; c < hd; c += LANES) {
                const float w = stored(type, x, c);
                UNROLL for (int h = 0; h < HEADS; h++)
                    sum[h] += y[(long)(h < heads ? h : 0) * hd + c] * w;
            }
            most = fmax(most, sum_lanes(sum, part_));
            BARRIER();
        }
        if (lane < heads)
            most_[own * HEADS + lane] = most;
        BARRIER();
        if (item < heads) {
            for (int i = 0; i < rows; i++)
                most = fmax(most, most_[i * HEADS + item]);
            score[(long)(from + item) * s->n_page + GROUP(0)] = most;
        }
        BARRIER();
    }
}

/* The slots of page p, the at-th that was chosen */
FUNCTION void put_page(GLOBAL const struct pages *s, int p, int at, GLOBAL int *out)
{
    for (int i = 0; i < s->page; i++)
        out[at * s->page + i] = s->lo + p * s->page + i;
}

/* Where the slots of a list's pages go: after its number of slots and those before all pages. These
 * and the slots after all pages are written where `whole` is 1. */
FUNCTION GLOBAL int *begin_list(GLOBAL const struct pages *s, GLOBAL int *found, int list,
                                int whole)
{
    const int n_found = s->k * s->page, n_all = s->before + n_found + s->after;
    GLOBAL int *out = found + (long)list * (n_all + 1) + 1 + s->before;

    if (!whole)
        return out;
    if (ITEM() == 0)
        found[(long)list * (n_all + 1)] = n_all;
    for (int i = ITEM(); i < s->before; i += PICK_ITEMS)
        out[i - s->before] = s->lo - s->before + i;
    for (int i = ITEM(); i < s->after; i += PICK_ITEMS)
        out[n_found + i] = s->lo + s->n_page * s->page + i;
    return out;
}

/* List GROUP(0): the slots of its k best pages, the earlier one of equals, and those before and
 * after all pages, ascending -> found[n_list], after their number. An item has adjacent pages. */
KERNEL void pick_pages(GLOBAL const struct pages *s, GLOBAL const float *score, GLOBAL int *found)
{
    LOCAL int before_[PICK_ITEMS], end_[2];
    LOCAL uint count_[PICK_ITEMS];
    const int item = ITEM(), n = s->n_page, each = (n + PICK_ITEMS - 1) / PICK_ITEMS;
    const int from = item * each, to = from + each < n ? from + each : n;
    GLOBAL const float *x = score + (long)GROUP(0) * n;
    GLOBAL int *out = begin_list(s, found, GROUP(0), 1);
    int equal, seen = 0;
    const uint kth = group_kth(x, n, s->k, count_, before_, end_, &equal);
    int at = group_best_before(x, from, to, kth, equal, before_, PICK_ITEMS, &seen);

    for (int p = from; p < to; p++)
        if (is_best(x[p], kth, equal, &seen))
            put_page(s, p, at++, out);
}

/* ---- the same for long lists: piece GROUP(0) of list GROUP(1) ---- */

/* List GROUP(0) of count[n_list][LIST_COUNTS] */
KERNEL void clear_counts(GLOBAL uint *count)
{
    list_clear(count + (long)GROUP(0) * LIST_COUNTS, PICK_ITEMS);
}

KERNEL void count_pages(GLOBAL const struct pages *s, GLOBAL const float *score, int pass,
                        GLOBAL uint *count)
{
    LOCAL uint count_[LIST_BUCKETS];
    LOCAL int before_[PICK_ITEMS], end_[2];
    const long list = GROUP(1);

    list_count(score + list * s->n_page, s->n_page, s->k, GROUP(0), pass,
               count + list * LIST_COUNTS, PICK_ITEMS, count_, before_, end_);
}

/* -> part[n_list][n_piece][2] */
KERNEL void part_pages(GLOBAL const struct pages *s, GLOBAL const float *score,
                       GLOBAL const uint *count, int n_piece, GLOBAL int *part)
{
    LOCAL int before_[PICK_ITEMS], end_[2];
    const long list = GROUP(1);

    list_part(score + list * s->n_page, s->n_page, s->k, GROUP(0), count + list * LIST_COUNTS,
              part + list * n_piece * 2, PICK_ITEMS, before_, end_);
}

KERNEL void list_pages(GLOBAL const struct pages *s, GLOBAL const float *score,
                       GLOBAL const uint *count, int n_piece, GLOBAL const int *part,
                       GLOBAL int *found)
{
    LOCAL int before_[PICK_ITEMS], end_[2];
    const long list = GROUP(1);
    GLOBAL const float *x = score + list * s->n_page;
    GLOBAL int *out = begin_list(s, found, GROUP(1), GROUP(0) == 0);
    int from, to, equal, seen, at;
    uint kth;

    at = list_begin(x, s->n_page, s->k, GROUP(0), count + list * LIST_COUNTS,
                    part + list * n_piece * 2, PICK_ITEMS, before_, end_, &from, &to, &kth,
                    &equal, &seen);
    for (int p = from; p < to; p++)
        if (is_best(x[p], kth, equal, &seen))
            put_page(s, p, at++, out);
}
