/* SPDX-License-Identifier: MIT */
/* cache.cl - rows that a list has chosen, in places on the device: those that are there stay, the
 * others come from the host's memory and push out rows whose last list is the oldest. A part of
 * select.cl, for devices whose kernels read the host's memory. */

#define CACHE_ITEMS 256
#define AGES 64 /* in lists; older ones are alike */

/* As struct lookup in gpu_lookup.c, of one KV head. Rows are counted from the host's first one. */
struct lookup {
    ulong list; /* int[n] rows, ascending, counted from row `first` */
    ulong place_of; /* int[rows] where a row is; -1: not here */
    ulong row_of, turn_of; /* int[cap] a place's row, or -1; the turn that last asked for it */
    ulong place; /* int[n] -> where the list's rows are */
    ulong missing; /* int[n + 1][2] -> rows that come, and their places */
    ulong k_host, v_host, k_on, v_on; /* row 0 there, place 0 here */
    ulong k_new, v_new; /* row `fresh`, where the host does not have it yet; or 0 */
    int first, n, cap, turn;
    int fresh; /* this row has been stored since the last list: it comes in any case; -1: none */
    int n_missing; /* -> */
    int k_bytes, v_bytes; /* of a row */
};

FUNCTION int row_at_entry(GLOBAL const struct lookup *x, int j)
{
    return x->first + ((GLOBAL const int *)x->list)[j];
}

FUNCTION int age_of(GLOBAL const struct lookup *x, int place)
{
    const int age = x->turn - ((GLOBAL const int *)x->turn_of)[place];

    return age < AGES ? age : AGES - 1;
}

/* The places that give way to n rows: all that are older than end[0], and end[1] of that age */
FUNCTION void find_age(IN_LOCAL const uint *count, int n, IN_LOCAL int *end)
{
    int age = AGES - 1;

    for (; age > 1 && n > (int)count[age]; age--)
        n -= (int)count[age];
    end[0] = age;
    end[1] = n;
}

/* Their numbers -> missing[][1] */
FUNCTION void free_places(GLOBAL const struct lookup *x, IN_LOCAL const int *end, IN_LOCAL int *of)
{
    GLOBAL const int *row_of = (GLOBAL const int *)x->row_of;
    GLOBAL int *place_of = (GLOBAL int *)x->place_of, *missing = (GLOBAL int *)x->missing;
    const int each = (x->cap + CACHE_ITEMS - 1) / CACHE_ITEMS, from = ITEM() * each;
    const int to = from + each < x->cap ? from + each : x->cap;
    int older = 0, equal = 0, all_older, all_equal;

    for (int p = from; p < to; p++) {
        older += age_of(x, p) > end[0];
        equal += age_of(x, p) == end[0];
    }
    older = group_before(older, of, CACHE_ITEMS, &all_older);
    equal = group_before(equal, of, CACHE_ITEMS, &all_equal);
    for (int p = from; p < to; p++) {
        const int age = age_of(x, p);
        int at = -1;
        if (age > end[0])
            at = older++;
        else if (age == end[0] && equal++ < end[1])
            at = all_older + equal - 1;
        if (at < 0)
            continue;
        missing[2 * at + 1] = p;
        if (row_of[p] >= 0)
            place_of[row_of[p]] = -1;
    }
}

/* Forgets the copy of a row that was stored again and is not in the list: it is out of date. */
FUNCTION void forget_row(GLOBAL const struct lookup *x, int row)
{
    GLOBAL int *place = (GLOBAL int *)x->place_of + row;

    if (*place < 0)
        return;
    ((GLOBAL int *)x->row_of)[*place] = -1;
    ((GLOBAL int *)x->turn_of)[*place] = 0;
    *place = -1;
}

/* The list of KV head GROUP(0): its places, what is missing, and where that is to go. came[0] +=
 * rows that come from the host, came[1] += their bytes. */
KERNEL void find_places(GLOBAL struct lookup *all, GLOBAL uint *came)
{
    enum { FRESH_NEW = 1, FRESH_OLD };
    LOCAL int sums_[CACHE_ITEMS], end_[2], fresh_[1];
    LOCAL uint count_[AGES];
    GLOBAL struct lookup *x = all + GROUP(0);
    GLOBAL int *place_of = (GLOBAL int *)x->place_of, *row_of = (GLOBAL int *)x->row_of;
    GLOBAL int *turn_of = (GLOBAL int *)x->turn_of, *place = (GLOBAL int *)x->place;
    GLOBAL int *missing = (GLOBAL int *)x->missing;
    const int item = ITEM(), each = (x->n + CACHE_ITEMS - 1) / CACHE_ITEMS, from = item * each;
    const int to = from + each < x->n ? from + each : x->n;
    int n = 0, before, from_host;

    for (int i = item; i < AGES; i += CACHE_ITEMS)
        count_[i] = 0;
    if (item == 0)
        fresh_[0] = 0;
    for (int j = from; j < to; j++) {
        place[j] = place_of[row_at_entry(x, j)];
        if (place[j] >= 0)
            turn_of[place[j]] = x->turn;
        n += place[j] < 0;
    }
    before = group_before(n, sums_, CACHE_ITEMS, &n);
    for (int p = item; p < x->cap; p += CACHE_ITEMS)
        if (turn_of[p] != x->turn)
            ADD_TO(&count_[age_of(x, p)], 1);
    BARRIER();
    if (item == 0)
        find_age(count_, n, end_);
    BARRIER();
    free_places(x, end_, sums_);
    BARRIER();
    for (int j = from; j < to; j++) {
        const int row = row_at_entry(x, j), is_new = place[j] < 0;
        if (is_new) {
            place[j] = missing[2 * before + 1];
            missing[2 * before++] = row;
            row_of[place[j]] = row;
            turn_of[place[j]] = x->turn;
            place_of[row] = place[j];
        }
        if (row != x->fresh)
            continue;
        fresh_[0] = is_new ? FRESH_NEW : FRESH_OLD;
        if (!is_new) {
            missing[2 * n] = row;
            missing[2 * n + 1] = place[j];
        }
    }
    BARRIER();
    if (item != 0)
        return;
    if (x->fresh >= 0 && !fresh_[0])
        forget_row(x, x->fresh);
    x->n_missing = n + (fresh_[0] == FRESH_OLD);
    from_host = x->n_missing - (fresh_[0] && x->k_new);
    ADD_TO(&came[0], (uint)from_host);
    ADD_TO(&came[1], (uint)(from_host * (x->k_bytes + x->v_bytes)));
}

/* The missing rows of KV head GROUP(1) come: `items` items of all groups, side by side those of one
 * row. Rows whose bytes are no multiple of 16 come two bytes at a time. */
KERNEL void bring_rows(GLOBAL const struct lookup *all, int items)
{
    GLOBAL const struct lookup *x = all + GROUP(1);
    GLOBAL const int *missing = (GLOBAL const int *)x->missing;
    const int unit = (x->k_bytes | x->v_bytes) % 16 ? 2 : 16;
    const int of_key = x->k_bytes / unit, of_row = of_key + x->v_bytes / unit;

    for (int i = (int)THREAD(); i < x->n_missing * of_row; i += items) {
        const int row = missing[2 * (i / of_row)], at = missing[2 * (i / of_row) + 1];
        const int in = i % of_row, v = in >= of_key;
        const long bytes = v ? x->v_bytes : x->k_bytes;
        const ulong fresh = row == x->fresh ? v ? x->v_new : x->k_new : 0;
        const ulong row_at = fresh ? fresh : (v ? x->v_host : x->k_host) + row * bytes;
        const long skip = (long)(v ? in - of_key : in) * unit;
        const ulong to = (v ? x->v_on : x->k_on) + at * bytes + skip;
        uint four[4];
        if (unit == 2) {
            *(GLOBAL ushort *)to = *(GLOBAL const ushort *)(row_at + skip);
            continue;
        }
        load_four(four, (GLOBAL const uint *)(row_at + skip));
        store_four((GLOBAL uint *)to, four[0], four[1], four[2], four[3]);
    }
}

/* Nothing is here. */
KERNEL void clear_places(GLOBAL int *place_of, int rows, GLOBAL int *row_of, GLOBAL int *turn_of,
                         int cap, long n)
{
    const int i = (int)THREAD();

    if (i >= n)
        return;
    if (i < rows)
        place_of[i] = -1;
    if (i >= cap)
        return;
    row_of[i] = -1;
    turn_of[i] = 0;
}

/* Rows first..first+n-1 are not here any more. */
KERNEL void forget_places(GLOBAL int *place_of, GLOBAL int *row_of, GLOBAL int *turn_of, int first,
                          long n)
{
    const long i = THREAD();
    const int place = i < n ? place_of[first + i] : -1;

    if (place < 0)
        return;
    place_of[first + i] = -1;
    row_of[place] = -1;
    turn_of[place] = 0;
}
