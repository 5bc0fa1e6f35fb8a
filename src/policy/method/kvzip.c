/* SPDX-License-Identifier: MIT */
/* kvzip.c - KVzip (Kim et al., 2025): the model is asked to repeat the context. What it attends to
 * while it does so is kept, for any question that follows. */
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"

enum { BUDGET, SINK, RECENT, PIECE, AMONG };
enum { AMONG_ALL, AMONG_LAYER, AMONG_HEAD };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens",
                 "tokens of the first prompt kept, in the mean; below 1 a share", OPT_NUM, 1024,
                 1e-6, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, which are kept and not repeated", OPT_INT, 4, 0,
               65536, NULL },
    [RECENT] = { "recent", "tokens", "last tokens of the prompt, kept whatever their scores",
                 OPT_INT, 0, 0, 65536, NULL },
    [PIECE] = { "chunk", "tokens", "tokens that are repeated at a time", OPT_INT, 2048, 1, 65536,
                NULL },
    [AMONG] = { "among", NULL,
                "which slots compete by their scores: those of all layers, of a layer, or of a KV "
                "head",
                OPT_CHOICE, AMONG_ALL, 0, 0, "all layer head" },
    { .name = NULL },
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double ends = p->val[SINK].num + p->val[RECENT].num;

    if (p->val[BUDGET].num >= 1 && p->val[BUDGET].num <= ends)
        return cb_policy_refuse(p, "budget=%.10g: must be more than sink + recent = %.10g",
                                p->val[BUDGET].num, ends);
    /* how many slots each KV head keeps, while they are being dropped */
    p->mem = calloc((size_t)sh->n_layer * (size_t)sh->n_kv, sizeof(int));
    if (!p->mem)
        return cb_policy_no_memory(p);
    for (int l = 0; l < sh->n_layer; l++) {
        row[l].repeat.piece = (int)p->val[PIECE].num;
        row[l].repeat.sink = (int)p->val[SINK].num;
        row[l].late = 1;
    }
    return 0;
}

/* ---- slots that compete ---- */

/* Rows of KV heads, counted over the layers */
struct rivals {
    struct policy *p;
    int first, end; /* rows */
    int lo, hi;     /* slots that compete in each */
};

static const float *row_of(const struct rivals *r, int i)
{
    return cb_view_col(r->p, i / r->p->sh.n_kv, i % r->p->sh.n_kv, 0);
}

/* Non-negative floats are in the order of their bits. */
static uint32_t bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

/* Slots of row i whose scores have at least these bits */
static int64_t count_row(const struct rivals *r, int i, uint32_t from)
{
    const float *s = row_of(r, i);
    int64_t n = 0;

    for (int j = r->lo; j < r->hi; j++)
        n += bits(s[j]) >= from;
    return n;
}

static int64_t count(const struct rivals *r, uint32_t from)
{
    int64_t n = 0;

    for (int i = r->first; i < r->end; i++)
        n += count_row(r, i, from);
    return n;
}

/* The best k of all: how many of each row -> keep[row]. Of equal ones the first rows have more. */
static void share_out(const struct rivals *r, int64_t k, int *keep)
{
    uint32_t last = 0; /* of those kept: the largest that leaves k */
    int64_t ties;

    for (uint32_t bit = 1u << 30; bit; bit >>= 1)
        if (count(r, last | bit) >= k)
            last |= bit;
    ties = k - count(r, last + 1);
    for (int i = r->first; i < r->end; i++) {
        const int64_t above = count_row(r, i, last + 1);
        int64_t equal = count_row(r, i, last) - above;
        equal = equal < ties ? equal : ties;
        ties -= equal;
        keep[i] = (int)(above + equal);
    }
}

/* Chooses `budget` slots a KV head among the slots lo..hi-1 -> p->mem: how many each one keeps */
static void choose(struct policy *p, int lo, int hi, int budget)
{
    const int n_kv = p->sh.n_kv, rows = p->sh.n_layer * n_kv;
    const int among = (int)p->val[AMONG].num;
    const int step = among == AMONG_ALL ? rows : among == AMONG_LAYER ? n_kv : 1;

    for (int first = 0; first < rows; first += step) {
        const struct rivals r = { p, first, first + step, lo, hi };
        share_out(&r, (int64_t)step * budget, p->mem);
    }
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Scores come after the first prompt alone; what follows is kept. */
static int compact(struct policy *p, int l, void *state, const struct scores *s, struct eviction *e)
{
    const int *keep = p->mem;
    int n, share = 0, budget, sink, recent;

    (void)state;
    if (!s || !cb_evict_at_prompt(e))
        return 0;
    n = cb_view_seen(p);
    budget = cb_policy_budget(p, p->val[BUDGET].num, 1, &share);
    if (budget < 0 || n <= budget)
        return budget < 0 ? budget : 0;
    recent = least((int)p->val[RECENT].num, budget);
    sink = least((int)p->val[SINK].num, budget - recent);
    if (l == 0)
        choose(p, sink, n - recent, budget - sink - recent);
    for (int h = 0; h < p->sh.n_kv; h++) {
        const float *row = s->s + (size_t)h * (size_t)s->stride;
        const int k = sink + recent + keep[l * p->sh.n_kv + h];
        const int err = k < n ? cb_evict_keep_top(e, h, row, NULL, n, k, sink, recent) : 0;
        if (err < 0)
            return err;
    }
    return 0;
}

static int slots_after(const struct policy *p, int l, int n_prompt, int n_gen)
{
    (void)l;
    return cb_keep_slots(p->val[BUDGET].num, n_prompt, n_gen, 1);
}

const struct method cb_method_kvzip = {
    .name = "kvzip",
    .cite = "Kim et al., arXiv:2505.23416",
    .brief = "keeps what the model attends to while it repeats the first prompt",
    .opts = opts,
    .slot_floats = 1,
    .plan = plan_layers,
    .compact = compact,
    .slots = slots_after,
};
