/* SPDX-License-Identifier: MIT */
/* block_mass.c - estimated attention between blocks of queries and keys. An item is a block of
 * queries of some heads of a KV head: a row a group of queries and head. A group is one vector, and
 * groups of keys are vectors as they are stored, so the kernels of attention multiply them, in
 * parts where a group has more numbers than these take. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "attn_tile.h"
#include "base/ints.h"
#include "cpu/kern.h"
#include "device/prompt_blocks.h"

enum {
    UNIT = KEY_BLOCK,       /* groups of keys that are multiplied at a time */
    QUERY_FLOATS = 1 << 16, /* of an item's queries, unless one head has more */
    MIN_STRIDE = 2,
    MAX_STRIDE = 16,
};

struct job {
    struct par *par;
    const struct kern_attn *k;
    const struct kern_qk *qk;
    const struct block_mass *s;
    int group, heads, n_part; /* query heads a KV head; of an item; items a KV head and row */
    int per, dims;            /* of a group's tokens, how many are multiplied together; numbers */
    int n_unit;
};

/* An item and its work space */
struct item {
    const struct kv_run *run;
    int head, heads, row;  /* its query heads and block */
    int first, n_group;    /* the block's groups that have a query */
    int rows;              /* heads * n_group */
    const float **q;       /* [rows] */
    float *vec;            /* [rows][dims] */
    char *qp, *kp, *spare; /* packed queries; a unit of packed keys; keys that lie nowhere else */
    float *s, *more;       /* [rows][UNIT]; a register tile's */
    float *top, *sum;      /* [rows][units] and [rows][n_col]: a unit's largest logit, and the sums
                              of a block's weights relative to it; in powers of 2 */
};

static int most_heads(int hd)
{
    return max_int(1, QUERY_FLOATS / (KEY_BLOCK * hd));
}

size_t cb_cpu_block_mass_scratch(const struct kern_attn *k, int hd, int n_ctx)
{
    const size_t heads = (size_t)most_heads(hd), rows = heads * KEY_BLOCK / MIN_STRIDE;
    const size_t f = sizeof(float), query = heads * KEY_BLOCK * (size_t)hd * f;
    const size_t cols = (size_t)n_ctx / KEY_BLOCK + 2;

    return 2 * query + rows * (64 + sizeof(float *) + UNIT * f) + UNIT * (MAX_HD * f + 64) +
           (size_t)(MAX_PANEL * MAX_STRIDE * hd) * f + (size_t)(k->mr * UNIT) * f +
           2 * rows * cols * f + 8 * 64;
}

static void *take_floats(char **mem, int n)
{
    return cb_take(mem, (size_t)n * sizeof(float));
}

static void item_open(const struct job *job, struct item *x, int i, char *mem)
{
    const struct block_mass *s = job->s;
    const int part = i % job->n_part, n = s->first + s->n_tok, rest = i / job->n_part;
    const int kv = rest % s->n_kv, block = s->first / KEY_BLOCK + rest / s->n_kv;
    const int begin = max_int(s->first, block * KEY_BLOCK);
    const int end = min_int(n, (block + 1) * KEY_BLOCK);

    x->run = &s->run[kv];
    x->row = rest / s->n_kv;
    x->head = kv * job->group + part * job->heads;
    x->heads = min_int(job->heads, job->group - part * job->heads);
    x->first = begin / s->stride;
    x->n_group = (end - 1) / s->stride + 1 - x->first;
    x->rows = max_int(0, x->heads) * x->n_group;
    x->q = cb_take(&mem, (size_t)x->rows * sizeof *x->q);
    x->vec = take_floats(&mem, x->rows * job->dims);
    x->qp = cb_take(&mem, (size_t)x->rows * job->qk->q_bytes(job->dims));
    x->kp = cb_take(&mem, UNIT * job->qk->k_bytes(job->dims));
    x->spare = cb_take(&mem, (size_t)(MAX_PANEL * job->per) * cb_kv_row_bytes(s->type_k, s->hd));
    x->s = take_floats(&mem, x->rows * UNIT);
    x->more = take_floats(&mem, job->k->mr * UNIT);
    x->top = take_floats(&mem, x->rows * job->n_unit);
    x->sum = take_floats(&mem, x->rows * s->n_col);
}

/* Packs tokens from..from+per-1 of each group of queries, in reverse order. */
static void pack_queries(const struct job *job, const struct item *x, int from)
{
    const struct block_mass *s = job->s;
    const size_t bytes = (size_t)s->hd * sizeof(float);

    for (int r = 0; r < x->rows; r++) {
        float *y = x->vec + (size_t)r * (size_t)job->dims;
        const int last = (x->first + r % x->n_group + 1) * s->stride - 1 - from - s->first;
        x->q[r] = y;
        for (int a = 0; a < job->per; a++, y += s->hd) {
            const int i = last - a;
            if (i < 0 || i >= s->n_tok)
                memset(y, 0, bytes);
            else
                memcpy(y,
                       s->q + (int64_t)i * s->q_stride +
                           (int64_t)(x->head + r / x->n_group) * s->hd,
                       bytes);
        }
    }
    job->qk->pack_q(x->q, s->scale / (float)s->stride * 1.44269504f, x->rows, job->k->mr, job->dims,
                    x->qp);
}

/* `per` keys from entry `at` on, as stored rows: where they lie, or copied to `spare` */
static const char *keys_at(const struct job *job, const struct item *x, int at, char *spare)
{
    const struct block_mass *s = job->s;
    const struct kv_run *run = x->run;
    const size_t row = cb_kv_row_bytes(s->type_k, s->hd);
    const char *k = (const char *)run->k + (size_t)at * row;
    const int have = min_int(job->per, run->n - at);

    if (at >= run->prepacked && have == job->per)
        return k;
    memset(spare, 0, (size_t)job->per * row);
    if (at >= run->prepacked && have > 0)
        memcpy(spare, k, (size_t)have * row);
    for (int a = 0; at < run->prepacked && a < job->per; a++) {
        const int block = at / KEY_BLOCK * KEY_BLOCK;
        job->k->prepack[s->type_k]->open_key(s->type_k, (const char *)run->k + (size_t)block * row,
                                             run->step_k ? run->step_k + block : NULL, s->hd,
                                             at % KEY_BLOCK + a, spare + (size_t)a * row);
    }
    return spare;
}

/* Packs tokens from..from+per-1 of n groups of keys, of which group J is the first. */
static void pack_keys(const struct job *job, const struct item *x, int J, int n, int from)
{
    const struct block_mass *s = job->s;
    const size_t bytes = (size_t)job->per * cb_kv_row_bytes(s->type_k, s->hd);
    const char *row[MAX_PANEL];

    for (int j0 = 0; j0 < n; j0 += MAX_PANEL) {
        const int m = min_int(MAX_PANEL, n - j0);
        for (int j = 0; j < m; j++)
            row[j] = keys_at(job, x, (J + j0 + j) * s->stride + from, x->spare + (size_t)j * bytes);
        for (int j = m; j < MAX_PANEL; j++)
            row[j] = row[m - 1];
        job->qk->pack_k(
            &(const struct kern_rows){ .t = s->type_k, .n = m, .row = row, .bytes = bytes },
            job->dims, x->kp + (size_t)j0 * job->qk->k_bytes(job->dims));
    }
}

/* Logits of all rows against n groups of keys; later parts are added to the first one's. */
static void multiply(const struct job *job, const struct item *x, int n, int is_first)
{
    const int mr = job->k->mr;

    for (int r = 0; r < x->rows; r += mr) {
        const int m = min_int(mr, x->rows - r);
        const char *q = x->qp + (size_t)r * job->qk->q_bytes(job->dims);
        float *s = x->s + r * UNIT;
        job->qk->mul(q, m, mr, x->kp, n, job->dims, is_first ? s : x->more);
        for (int i = 0; !is_first && i < m; i++)
            for (int j = 0; j < n; j++)
                s[i * UNIT + j] += x->more[i * UNIT + j];
    }
}

/* n is a multiple of 8. Four chains, so that additions overlap */
static float sum_of(const float *w, int n)
{
    float a = 0, b = 0, c = 0, d = 0;

    for (int j = 0; j < n; j += 4)
        a += w[j], b += w[j + 1], c += w[j + 2], d += w[j + 3];
    return (a + b) + (c + d);
}

/* Turns a row's logits of unit u into its sums. */
static void weigh(const struct job *job, const struct item *x, int r, int u)
{
    const struct block_mass *s = job->s;
    const int per_block = KEY_BLOCK / s->stride, n_col = s->n_col;
    const int n = min_int(UNIT, x->first + r % x->n_group + 1 - u * UNIT);
    float *top = &x->top[r * job->n_unit + u], w[UNIT] = { 0 };

    *top = -INFINITY;
    if (n > 0) {
        *top = job->k->largest(x->s + r * UNIT, n);
        job->k->score(x->s + r * UNIT, 0, n, 0.0f, *top, 1.0f, 0, w);
    }
    for (int b = 0; b < s->stride && u * s->stride + b < n_col; b++)
        x->sum[r * n_col + u * s->stride + b] = n > 0 ? sum_of(w + b * per_block, per_block) : 0;
}

/* Adds a row's share in each block to out[n_col]. */
static void add_row(const struct job *job, const struct item *x, int r, float *out)
{
    const struct block_mass *s = job->s;
    const float *top = x->top + r * job->n_unit, *sum = x->sum + r * s->n_col;
    const float max = job->k->largest(top, job->n_unit);
    float total = 0;

    for (int u = 0; u < job->n_unit; u++) {
        const int end = min_int(s->n_col, (u + 1) * s->stride);
        const float factor = exp2f(top[u] - max);
        for (int b = u * s->stride; b < end; b++)
            total += sum[b] * factor;
    }
    for (int u = 0; u < job->n_unit; u++) {
        const int end = min_int(s->n_col, (u + 1) * s->stride);
        const float factor = exp2f(top[u] - max) / total;
        for (int b = u * s->stride; b < end; b++)
            out[b] += sum[b] * factor;
    }
}

static void mass_item(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct block_mass *s = job->s;
    struct item x;
    int n;

    item_open(job, &x, i, cb_par_scratch(job->par, thread));
    if (!x.rows)
        return;
    n = x.first + x.n_group; /* groups of keys that the last row sees */
    for (int u = 0; u < job->n_unit; u++) {
        const int m = min_int(UNIT, n - u * UNIT);
        for (int from = 0; m > 0 && from < s->stride; from += job->per) {
            if (!u || job->per < s->stride)
                pack_queries(job, &x, from);
            pack_keys(job, &x, u * UNIT, m, from);
            multiply(job, &x, m, !from);
        }
        for (int r = 0; r < x.rows; r++)
            weigh(job, &x, r, u);
    }
    for (int h = 0; h < x.heads; h++) {
        float *out =
            s->out + ((size_t)(x.head + h) * (size_t)s->n_row + (size_t)x.row) * (size_t)s->n_col;
        memset(out, 0, (size_t)s->n_col * sizeof *out);
        for (int r = h * x.n_group; r < (h + 1) * x.n_group; r++)
            add_row(job, &x, r, out);
    }
}

void cb_cpu_block_mass(struct device *d, const struct block_mass *s)
{
    const struct kern_attn *k = cb_cpu_vec(d)->attn;
    struct job job = { .par = d->par, .k = k, .s = s, .group = s->n_head / s->n_kv };
    const int n_item = s->n_kv * s->n_row, busy = 4 * cb_par_threads(d->par);

    if (s->bits) {
        cb_cpu_sketch_mass(d, s);
        return;
    }
    assert(s->stride >= MIN_STRIDE && s->stride <= MAX_STRIDE && KEY_BLOCK % s->stride == 0);
    job.per = s->stride;
    while (job.per * s->hd > MAX_HD)
        job.per /= 2;
    job.dims = job.per * s->hd;
    job.qk = k->qk_half && (s->type_k == KV_F16 || s->type_k == KV_BF16) && job.dims % 16 == 0
                 ? k->qk_half
                 : k->qk[s->type_k];
    job.n_unit = (s->n_col + s->stride - 1) / s->stride;
    job.n_part = min_int(job.group, max_int(1, busy / n_item));
    job.heads = min_int(most_heads(s->hd), (job.group + job.n_part - 1) / job.n_part);
    job.n_part = (job.group + job.heads - 1) / job.heads;
    cb_par_for(d->par, n_item * job.n_part, mass_item, &job);
}
