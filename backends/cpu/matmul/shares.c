/* SPDX-License-Identifier: MIT */
/* shares.c - cuts a pass into the items that the threads take: groups of rows of a matrix times
 * tiles of tokens. Threads take the next item as they come free, so what counts is how long the
 * last one works alone. */
#include "pass.h"

enum {
    UNIT_LEAST = 64 << 10, /* packed weights an item, at least */
    UNIT_MOST = 512 << 10,
    UNIT_BATCH = 256 << 10, /* at most, where several tiles of tokens read the weights from L2 */
    UNIT_START = 8 << 10,   /* bytes that a stream of weights reads while it waits for the first */
    SPLIT_TILES = 8         /* tiles of an item, at least, where tokens are split */
};

/* Costs of an item of panels, in products of a panel and a tile. Unpacking a panel takes 0.7 (AMX)
 * or 0.6 (VNNI) of them; a tile's activations come from L2 or L3, once for all panels. */
static const double unpack_cost = 0.7, tile_cost = 0.15;

/* ---- items ---- */

/* 1: an item unpacks its weights */
static int is_panel(const struct pass *p, const struct weight *w)
{
    return p->use_panel && !mm_is_float(w->type);
}

/* Number of groups, or of wanted rows */
static int n_part(const struct pass *p, const struct weight *w)
{
    return p->some ? p->n_some : mm_n_group(w);
}

static size_t group_bytes(const struct pass *p, const struct weight *w)
{
    return cb_mm_group_bytes(w->type, w->n_in) +
           (p->up ? cb_mm_group_bytes(p->up->type, w->n_in) : 0);
}

/* Groups an item: panels that fit in L2, or enough bytes to make the hand-out cheap. */
static int item_groups(const struct pass *p, const struct weight *w)
{
    const int at_once = pass_groups_at_once(p, w);
    int n;

    if (is_panel(p, w)) {
        const int step = p->k->panel_rows / MM_ROWS, most = cb_pass_panel_groups(p, w);
        return min_int(most, p->panels * step);
    }
    n = (int)(p->unit / group_bytes(p, w)) / at_once * at_once;
    return n > 1 ? n : 1;
}

static int n_item(const struct pass *p, const struct weight *w)
{
    const int groups = item_groups(p, w);
    return (n_part(p, w) + groups - 1) / groups * p->split;
}

int cb_pass_items(const struct pass *p)
{
    int n = 0;

    if (p->n_set > 1)
        return p->n_set * n_item(p, p->mm->w);
    for (int i = 0; i < p->n_mm; i++)
        n += n_item(p, p->mm[i].w);
    return n;
}

/* The matrix of item *i, which becomes an item of the matrix. Those of sets are alike. */
static const struct mm *matrix_of(const struct pass *p, int *i)
{
    const struct mm *mm = p->mm;
    int n = n_item(p, mm->w);

    if (p->n_set > 1) {
        mm += *i / n;
        *i %= n;
        return mm;
    }
    for (; *i >= n; n = n_item(p, mm->w)) {
        *i -= n;
        mm++;
    }
    return mm;
}

struct pass_item cb_pass_item(const struct pass *p, int i)
{
    struct pass_item it = { .mm = matrix_of(p, &i) };
    const int groups = item_groups(p, it.mm->w);

    it.g0 = i / p->split * groups;
    it.g1 = min_int(it.g0 + groups, n_part(p, it.mm->w));
    it.t0 = i % p->split * p->n_tile / p->split;
    it.t1 = (i % p->split + 1) * p->n_tile / p->split;
    return it;
}

/* ---- costs ---- */

/* Bytes of weights, or products of panels and tiles */
static double cost(const struct pass *p, const struct weight *w, int groups, int n_tile)
{
    const int step = p->k->panel_rows / MM_ROWS;

    if (is_panel(p, w)) {
        const double panels = (groups + step - 1) / step * (p->up ? 2 : 1);
        return panels * (unpack_cost + n_tile) + tile_cost * n_tile;
    }
    return (double)groups * (double)group_bytes(p, w) * n_tile + UNIT_START;
}

double cb_pass_item_cost(const struct pass *p, const struct pass_item *it)
{
    return cost(p, it->mm->w, it->g1 - it->g0, it->t1 - it->t0);
}

/* About how long n threads work. With equal items it is the rounds that they make; with others the
 * last thread waits for one item at most. */
static double time_of(const struct pass *p, int n_thread)
{
    const int n_tile = (p->n_tile + p->split - 1) / p->split, n = cb_pass_items(p);
    const int n_mm = p->n_set > 1 ? 1 : p->n_mm;
    double longest = 0, all = 0, rounds;

    for (int i = 0; i < n_mm; i++) {
        const struct weight *w = p->mm[i].w;
        const double one = cost(p, w, min_int(item_groups(p, w), n_part(p, w)), n_tile);

        longest = one > longest ? one : longest;
        all += one * n_item(p, w);
    }
    all *= p->n_set > 1 ? p->n_set : 1;
    rounds = (double)((n + n_thread - 1) / n_thread) * longest;
    all = all / n_thread + longest;
    return rounds < all ? rounds : all;
}

/* ---- the cut ---- */

/* Bytes of packed weights an item. A stream of weights starts slowly, at memory latency: hence two
 * items a thread, up to a limit above which a thread that lost its core would hold up the others. A
 * batch spends more time on each byte: hence smaller items, which the threads share more evenly. */
static size_t first_unit(const struct pass *p, int n_thread)
{
    const size_t least = UNIT_LEAST / (size_t)(p->batch ? min_int(p->n_tok, 8) : 1);
    const size_t most = p->batch && p->n_tile > 1 ? UNIT_BATCH : UNIT_MOST;
    size_t sum = 0;

    for (int i = 0; i < p->n_mm; i++)
        sum += p->mm[i].w->packed_bytes;
    sum += p->up ? p->up->packed_bytes : 0;
    sum /= (p->batch ? 8 : 2) * (size_t)n_thread;
    return sum < least ? least : sum < most ? sum : most;
}

/* Takes the pass's present cut if it is better than the best one by a fiftieth. */
static void try_cut(const struct pass *p, int n_thread, struct pass_cut *best)
{
    const double time = time_of(p, n_thread);

    if (best->time > 0 && time >= 0.98 * best->time)
        return;
    best->unit = p->unit;
    best->panels = p->panels;
    best->split = p->split;
    best->time = time;
}

/* Items of other sizes, where the first size leaves threads without work in the last round */
static void cut_units(struct pass *p, int n_thread, struct pass_cut *best)
{
    static const int part[] = { 16, 20, 14, 12, 11, 10, 9, 8, 6, 4 }; /* of 16 */
    const size_t unit = p->unit;

    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        p->unit = unit * (size_t)part[i] / 16;
        if (p->unit <= UNIT_MOST)
            try_cut(p, n_thread, best);
    }
}

static int most_panels(const struct pass *p)
{
    const int step = p->k->panel_rows / MM_ROWS;
    int most = 1;

    for (int i = 0; i < p->n_mm; i++)
        if (is_panel(p, p->mm[i].w))
            most = max_int(most, cb_pass_panel_groups(p, p->mm[i].w) / step);
    return most;
}

/* Fewer panels an item; or fewer tokens, whose items unpack the same panels again */
static void cut_panels(struct pass *p, int n_thread, struct pass_cut *best)
{
    for (p->split = 1; p->split == 1 || p->n_tile >= SPLIT_TILES * p->split; p->split *= 2)
        for (p->panels = most_panels(p); p->panels; p->panels = p->panels * 3 / 4)
            try_cut(p, n_thread, best);
}

static void search(struct pass *p, int n_thread, struct pass_cut *best)
{
    best->time = 0;
    p->unit = first_unit(p, n_thread);
    p->split = 1;
    p->panels = most_panels(p);
    if (p->use_panel)
        cut_panels(p, n_thread, best);
    else if (n_thread == 1 || p->some)
        try_cut(p, n_thread, best);
    else
        cut_units(p, n_thread, best);
}

/* Where the cut of a pass like this one is remembered. A wrong one costs time and nothing else. */
static struct pass_cut *remembered(const struct pass *p, struct pass_cut *memo)
{
    const uint64_t at = (uintptr_t)p->mm->w / 64 + (uint64_t)p->n_tok * 7 + (uint64_t)p->n_mm;

    return &memo[(at * 0x9e3779b97f4a7c15u >> 32) % PASS_CUTS];
}

void cb_pass_divide(struct pass *p, int n_thread, struct pass_cut *memo)
{
    const struct pass_cut key = { .w = p->mm->w,
                                  .up = p->up,
                                  .n_mm = p->n_mm,
                                  .n_tok = p->n_tok,
                                  .n_set = p->n_set,
                                  .kind = p->act16 | p->batch << 1 | p->use_panel << 2 };
    struct pass_cut own = { 0 }, *c = memo && !p->some ? remembered(p, memo) : &own;

    if (c->time <= 0 || c->w != key.w || c->up != key.up || c->n_mm != key.n_mm ||
        c->n_tok != key.n_tok || c->n_set != key.n_set || c->kind != key.kind) {
        *c = key;
        search(p, n_thread, c);
    }
    p->unit = c->unit;
    p->panels = c->panels;
    p->split = c->split;
}
