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
