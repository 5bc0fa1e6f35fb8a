/* SPDX-License-Identifier: MIT */
/* group.cl - what the items of a group agree on. The items of a sub-group exchange numbers without
 * a barrier; in a language that has no sub-groups each item is one. All items call these together,
 * which return the same to all. */

/* of_subgroup joins the items of a sub-group by join(x, y), as a tree. of_group joins those of a
 * group: each sub-group leaves its result in of[items], which must not be written again before a
 * barrier. `items` is a constant, so that compilers know how long the loop is. */
#define AGREE(type, of_subgroup, of_group, join)                                                   \
    FUNCTION type of_subgroup(type x)                                                              \
    {                                                                                              \
        for (int mask = 1; mask < SUBGROUP_ITEMS(); mask *= 2) {                                   \
            const type y = from_item(x, mask);                                                     \
            x = join;                                                                              \
        }                                                                                          \
        return x;                                                                                  \
    }                                                                                              \
    FUNCTION type of_group(type x, IN_LOCAL type *of, int items)                                   \
    {                                                                                              \
        of[SUBGROUP()] = of_subgroup(x);                                                           \
        BARRIER();                                                                                 \
        x = of[0];                                                                                 \
        for (int i = 1; i < SUBGROUPS(items); i++) {                                               \
            const type y = of[i];                                                                  \
            x = join;                                                                              \
        }                                                                                          \
        return x;                                                                                  \
    }

AGREE(float, subgroup_sum, group_sum, x + y)
AGREE(float, subgroup_max, group_max, fmax(x, y))
AGREE(int, subgroup_count, group_count, x + y)
AGREE(ulong, subgroup_total, group_total, x + y)

/* The sum of x over the items before this one, of `items`; *all: over all of them */
FUNCTION int group_before(int x, IN_LOCAL int *of, int items, int *all)
{
    const int item = ITEM();
    int sum = x;

    BARRIER();
    of[item] = x;
    BARRIER();
    for (int step = 1; step < items; step *= 2) {
        const int more = item >= step ? of[item - step] : 0;
        BARRIER();
        sum += more;
        of[item] = sum;
        BARRIER();
    }
    *all = of[items - 1];
    return sum - x;
}

/* ---- the largest of many numbers ---- */

/* A number as an integer of the same order; both zeros are one. */
FUNCTION uint in_order(float x)
{
    const uint u = AS_UINT(x + 0.0f);

    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The k-th largest of x[n], in order, found eight bits at a time by a group of 256 items; *equal:
 * how many of the k are equal to it. count[256], before[256], end[2] */
FUNCTION uint group_kth(GLOBAL const float *x, int n, int k, IN_LOCAL uint *count,
                        IN_LOCAL int *before, IN_LOCAL int *end, int *equal)
{
    const int item = ITEM();
    uint least = 0;
    int all;

    for (int shift = 24; shift >= 0; shift -= 8) {
        int own, above;
        count[item] = 0;
        BARRIER();
        for (int i = item; i < n; i += 256) {
            const uint at = in_order(x[i]);
            if (shift == 24 || (at ^ least) >> (shift + 8) == 0)
                ADD_TO(&count[at >> shift & 255], 1u);
        }
        BARRIER();
        own = (int)count[255 - item];
        above = group_before(own, before, 256, &all);
        if (above < k && above + own >= k) {
            end[0] = 255 - item;
            end[1] = k - above;
        }
        BARRIER();
        least |= (uint)end[0] << shift;
        k = end[1];
    }
    *equal = k;
    return least;
}

/* How many of the k largest of a list lie before x[from..to), the part of this item. Among numbers
 * equal to the k-th largest the earlier ones count, group_kth's *equal of them. *seen, which was of
 * the first item: how many equal ones lie before the part; is_best() counts on. before[items] */
FUNCTION int group_best_before(GLOBAL const float *x, int from, int to, uint kth, int equal,
                               IN_LOCAL int *before, int items, int *seen)
{
    int above = 0, same = 0, all;

    for (int i = from; i < to; i++) {
        above += in_order(x[i]) > kth;
        same += in_order(x[i]) == kth;
    }
    above = group_before(above, before, items, &all);
    *seen += group_before(same, before, items, &all);
    return above + (*seen < equal ? *seen : equal);
}

/* Is x, the next one of an item, among the k? */
FUNCTION int is_best(float x, uint kth, int equal, int *seen)
{
    const uint at = in_order(x);

    return at > kth || (at == kth && (*seen)++ < equal);
}
