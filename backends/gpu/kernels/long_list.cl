/* SPDX-License-Identifier: MIT */
/* long_list.cl - the k largest of a long list of numbers, which several groups find. A group has a
 * piece of LIST_PIECE numbers. A kernel for each pass counts them by 11, 11 and 10 bits
 * (list_count), one more counts what each piece has of the k (list_part), and with that each group
 * knows where its own belong (list_begin). `items` is a constant, how many a group has;
 * before[items], end[2]. */

#define LIST_PIECE 4096
#define LIST_BUCKETS 2048
#define LIST_PASSES 3
#define LIST_COUNTS (LIST_PASSES * LIST_BUCKETS)

FUNCTION int list_shift(int pass)
{
    return pass == 0 ? 21 : pass == 1 ? 10 : 0;
}

FUNCTION int list_end(int n, int piece)
{
    return (piece + 1) * LIST_PIECE < n ? (piece + 1) * LIST_PIECE : n;
}

/* The upper bits of the k-th largest number, in order, of as many passes as have counted; *equal:
 * how many numbers with these bits are among the k */
FUNCTION uint list_kth(int k, GLOBAL const uint *count, int passes, int items,
                       IN_LOCAL int *before, IN_LOCAL int *end, int *equal)
{
    const int each = LIST_BUCKETS / items, first = LIST_BUCKETS - 1 - ITEM() * each;
    uint bits = 0;

    *equal = k;
    for (int pass = 0; pass < passes; pass++, count += LIST_BUCKETS) {
        int own = 0, above, all;
        for (int i = 0; i < each; i++)
            own += (int)count[first - i];
        above = group_before(own, before, items, &all);
        if (above < *equal && above + own >= *equal) {
            int b = first;
            for (; above + (int)count[b] < *equal; b--)
                above += (int)count[b];
            end[0] = b;
            end[1] = *equal - above;
        }
        BARRIER();
        bits = bits << (pass == 2 ? 10 : 11) | (uint)end[0];
        *equal = end[1];
    }
    return bits;
}

/* No number is counted yet: count[LIST_COUNTS] */
FUNCTION void list_clear(GLOBAL uint *count, int items)
{
    for (int i = ITEM(); i < LIST_COUNTS; i += items)
        count[i] = 0;
}

/* How many of a piece of x[n] have each number in the bits of this pass, of those that have the
 * bits of the passes before it, added to count[LIST_COUNTS]. own[LIST_BUCKETS] */
FUNCTION void list_count(GLOBAL const float *x, int n, int k, int piece, int pass,
                         GLOBAL uint *count, int items, IN_LOCAL uint *own, IN_LOCAL int *before,
                         IN_LOCAL int *end)
{
    const uint mask = pass == 2 ? 1023u : 2047u;
    int equal;
    const uint bits = list_kth(k, count, pass, items, before, end, &equal);

    for (int i = ITEM(); i < LIST_BUCKETS; i += items)
        own[i] = 0;
    BARRIER();
    for (int i = piece * LIST_PIECE + ITEM(); i < list_end(n, piece); i += items) {
        const uint at = in_order(x[i]);
        if (pass == 0 || at >> list_shift(pass - 1) == bits)
            ADD_TO(&own[at >> list_shift(pass) & mask], 1u);
    }
    BARRIER();
    for (int i = ITEM(); i < LIST_BUCKETS; i += items)
        if (own[i])
            ADD_TO(&count[pass * LIST_BUCKETS + i], own[i]);
}

/* How many of a piece are larger than the k-th, and equal to it -> part[n_piece][2] */
FUNCTION void list_part(GLOBAL const float *x, int n, int k, int piece, GLOBAL const uint *count,
                        GLOBAL int *part, int items, IN_LOCAL int *before, IN_LOCAL int *end)
{
    int equal, above = 0, same = 0;
    const uint kth = list_kth(k, count, LIST_PASSES, items, before, end, &equal);

    for (int i = piece * LIST_PIECE + ITEM(); i < list_end(n, piece); i += items) {
        above += in_order(x[i]) > kth;
        same += in_order(x[i]) == kth;
    }
    BARRIER();
    above = group_count(above, before, items);
    BARRIER();
    same = group_count(same, before, items);
    if (ITEM() == 0) {
        part[2 * piece] = above;
        part[2 * piece + 1] = same;
    }
}

/* An item's part of a piece, x[*from .. *to), adjacent ones: how many of the k are before these.
 * The rest is what is_best() wants. */
FUNCTION int list_begin(GLOBAL const float *x, int n, int k, int piece, GLOBAL const uint *count,
                        GLOBAL const int *part, int items, IN_LOCAL int *before,
                        IN_LOCAL int *end, int *from, int *to, uint *kth, int *equal, int *seen)
{
    const int each = LIST_PIECE / items, last = list_end(n, piece);
    int above = 0, same = 0;

    *from = piece * LIST_PIECE + ITEM() * each;
    *to = *from + each < last ? *from + each : last;
    *kth = list_kth(k, count, LIST_PASSES, items, before, end, equal);
    for (int i = ITEM(); i < piece; i += items) {
        above += part[2 * i];
        same += part[2 * i + 1];
    }
    BARRIER();
    above = group_count(above, before, items);
    BARRIER();
    *seen = group_count(same, before, items);
    return above + group_best_before(x, *from, *to, *kth, *equal, before, items, seen);
}
