/* SPDX-License-Identifier: MIT */
/* line_sums.c - attention of a few queries, summed along columns and diagonals. An item is a query
 * head. It goes over the keys twice: for the log-sum-exp of its queries, and for the sums. */
#include <math.h>
#include <string.h>

#include "attn_tile.h"
#include "base/ints.h"
#include "cpu/kern.h"
#include "device/prompt_blocks.h"

struct job {
    struct par *par;
    const struct kern_attn *k;
    const struct line_sums *s;
};

/* A head's queries and its work space */
struct item {
    struct attn a;
    struct kv_run run;
    struct tile t;
    struct block b;
    float *column, *diagonal; /* [run.n] */
    char *kp;                 /* a packed block */
    float *s;                 /* [SUB_TILES * mr][KEY_BLOCK] */
    float *lse;               /* [n_tok] base 2 */
};

static void item_open(const struct job *job, struct item *x, int head, char *mem)
{
    const struct line_sums *s = job->s;

    x->run = s->run[head / (s->n_head / s->n_kv)];
    x->a = (struct attn){ .n_tok = s->n_tok,
                          .n_head = 1,
                          .n_kv = 1,
                          .hd = s->hd,
                          .scale = s->scale,
                          .softcap = s->softcap,
                          .causal = 1,
                          .type_k = s->type_k,
                          .type_v = s->type_k,
                          .run = &x->run,
                          .q = s->q + (int64_t)head * s->hd,
                          .q_stride = s->q_stride };
    cb_tile_open(&x->t, job->k, &x->a, 0, 0, s->n_tok, 0, &mem);
    x->kp = cb_take(&mem, (size_t)KEY_BLOCK * x->t.qk->k_bytes(s->hd));
    x->s = cb_take(&mem, (size_t)(SUB_TILES * job->k->mr * KEY_BLOCK) * sizeof *x->s);
    x->lse = cb_take(&mem, (size_t)s->n_tok * sizeof *x->lse);
    x->b.run = NULL;
}

/* Calls `row` with the logits of each query and the number of entries that it sees of the block at
 * `from`. */
static void each_row(const struct job *job, struct item *x, int from,
                     void (*row)(const struct job *, struct item *, int, int, int, const float *))
{
    const struct tile *t = &x->t;
    const int step = SUB_TILES * t->mr;

    cb_block_open(&x->b, &x->a, &x->run, from, x->run.n);
    if (!x->b.prepacked)
        t->qk->pack_k(&x->b.k, x->a.hd, x->kp);
    for (int r = 0; r < t->rows; r += step) {
        const int m = min_int(step, t->rows - r);
        if (x->b.prepacked)
            cb_prepacked_logits(t, from, r, m, cb_codes_at(t, 0, from), x->s);
        else
            cb_tile_logits(t, r, m, x->kp, x->b.n, x->s);
        for (int i = 0; i < m; i++) {
            const int n = min_int(x->b.n, t->row_hi[r + i] - from);
            if (n > 0)
                row(job, x, r + i, from, n, x->s + i * KEY_BLOCK);
        }
    }
}

/* Joins a block to the log-sum-exp so far. With a cap, logits are at most the cap. */
static void add_lse(const struct job *job, struct item *x, int r, int from, int n, const float *s)
{
    const float most = x->t.cap > 0 ? x->t.cap : job->k->largest(s, n);
    const float old = from ? x->lse[r] : -INFINITY, max = most > old ? most : old;
    float w[KEY_BLOCK] = { 0 }, sum = exp2f(old - max);

    job->k->score(s, 0, n, x->t.cap, max, 1.0f, 0, w);
    for (int j = 0; j < n; j++)
        sum += w[j];
    x->lse[r] = max + log2f(sum);
}

/* Entry j is on the diagonal `last query's entry` - (j + queries after r), which descends with j:
 * sums of diagonals are collected in the order of j. */
static void add_sums(const struct job *job, struct item *x, int r, int from, int n, const float *s)
{
    const int behind = job->s->n_tok - 1 - r;

    job->k->score(s, 0, n, x->t.cap, x->lse[r], 1.0f, 0, x->column + from);
    job->k->score(s, 0, n, x->t.cap, x->lse[r], 1.0f, 0, x->diagonal + from + behind);
}

static void line_item(void *ctx, int head, int thread)
{
    const struct job *job = ctx;
    const struct line_sums *s = job->s;
    struct item x;

    item_open(job, &x, head, cb_par_scratch(job->par, thread));
    x.column = s->column + (size_t)head * (size_t)s->out_stride;
    x.diagonal = s->diagonal + (size_t)head * (size_t)s->out_stride;
    memset(x.column, 0, (size_t)x.run.n * sizeof *x.column);
    memset(x.diagonal, 0, (size_t)x.run.n * sizeof *x.diagonal);
    for (int from = 0; from < x.run.n; from += KEY_BLOCK)
        each_row(job, &x, from, add_lse);
    for (int from = 0; from < x.run.n; from += KEY_BLOCK)
        each_row(job, &x, from, add_sums);
    for (int i = 0, j = x.run.n - 1; i < j; i++, j--) {
        const float y = x.diagonal[i];
        x.diagonal[i] = x.diagonal[j];
        x.diagonal[j] = y;
    }
}

void cb_cpu_line_sums(struct device *d, const struct line_sums *s)
{
    struct job job = { d->par, cb_cpu_vec(d)->attn, s };
    cb_par_for(d->par, s->n_head, line_item, &job);
}
