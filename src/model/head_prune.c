/* SPDX-License-Identifier: MIT */
/* head_prune.c - the largest few logits without reading the whole output matrix.
 *
 * In a small model the output matrix is a third of the bytes that a generated token reads, but the
 * sampler wants only the largest few logits. A five-bit preview (Q5_0) shows which rows can be
 * among them, and only those rows are multiplied exactly. These are the two passes of SVD-softmax
 * (Shim et al. 2017, section 3), but with quantised rows in the first pass, and with as many
 * candidates as needed. If rounding changes row r by e_r, the preview's logit is off by e_r x. If
 * rounding error and activations are uncorrelated, that error has a standard deviation of |e_r| |x|
 * / sqrt(n_in). Every logit is assumed to lie within SPREADS deviations of its preview. About one
 * in 10^11 does not, and that changes the result only if it is among the largest. */
#include "head_prune.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/ints.h"

enum {
    SPREADS = 7,
    ROWS = 64,      /* rows with common bounds */
    UNIT = 32,      /* blocks of ROWS in a work item */
    MOST_TOP = 256, /* for a larger k all logits are computed */
    MOST_PASS = 64,
    MOST_SLICE = 16
};

/* Four bits leave too many candidates for the top 40. */
static const enum dtype rough_type = DT_Q5_0;

/* Activations have eight bits in the preview: the rounding error of a block of 32 is 0.5% (normally
 * distributed) to 1.3% (one large number). */
static const double act_spread = 0.02;

struct head_prune {
    const struct weight *w;          /* exact */
    struct weight rough[MOST_SLICE]; /* slices of its rows, multiplied in one call */
    int n_slice, slice_rows;
    float *margin;  /* [n_out] SPREADS / sqrt(n_in) times the row's error for |x| = 1 */
    float *lo, *hi; /* [blocks of ROWS] largest lower and upper bound */
    int32_t *row;   /* [most_row] candidates */
    int most_row;
};

/* ---- making it ---- */

struct make {
    struct head_prune *p;
    struct par *par;
    uint8_t *raw;               /* rows of a slice */
    const struct weight *rough; /* the slice */
    int first;                  /* its first row */
};

/* Sums of squares, in columns so that they vectorise; n is a multiple of 32. */
enum { COLS = 16 };

static double sum_up(const float *sum)
{
    double all = 0;
    for (int c = 0; c < COLS; c++)
        all += (double)sum[c];
    return all;
}

static double norm2(const float *x, int n)
{
    float sum[COLS] = { 0 };

    for (int i = 0; i < n; i += COLS)
        for (int c = 0; c < COLS; c++)
            sum[c] += x[i + c] * x[i + c];
    return sum_up(sum);
}

static double distance2(const float *x, const float *y, int n)
{
    float sum[COLS] = { 0 };

    for (int i = 0; i < n; i += COLS)
        for (int c = 0; c < COLS; c++)
            sum[c] += (x[i + c] - y[i + c]) * (x[i + c] - y[i + c]);
    return sum_up(sum);
}

static void make_rows(void *ctx, int i, int thread)
{
    const struct make *m = ctx;
    const struct weight *w = m->p->w, *rough = m->rough;
    const struct dtype_info *from = &cb_dtype[w->type], *to = &cb_dtype[rough->type];
    const size_t from_bytes = cb_row_bytes(w->type, w->n_in);
    const size_t to_bytes = cb_row_bytes(rough->type, w->n_in);
    float *x = cb_par_scratch(m->par, thread), *y = x + w->n_in;

    for (int r = i * ROWS; r < min_int((i + 1) * ROWS, rough->n_out); r++) {
        const size_t row = (size_t)(m->first + r);
        double off;
        from->to_f32((const uint8_t *)w->raw + row * from_bytes, x, w->n_in);
        to->from_f32(x, m->raw + (size_t)r * to_bytes, w->n_in);
        to->to_f32(m->raw + (size_t)r * to_bytes, y, w->n_in);
        off = distance2(x, y, w->n_in) + act_spread * act_spread * norm2(x, w->n_in);
        m->p->margin[row] = (float)(SPREADS * sqrt(off / w->n_in));
    }
}

static int n_block(const struct head_prune *p)
{
    return (p->w->n_out + ROWS - 1) / ROWS;
}

/* Slice by slice, so that rows in the file's layout and in the device's are not both in memory for
 * long. */
static int make_slices(struct device *d, struct make *m)
{
    struct head_prune *p = m->p;

    for (int i = 0; i < p->n_slice; i++, m->first += p->slice_rows) {
        m->rough = &p->rough[i];
        cb_par_for(d->par, (m->rough->n_out + ROWS - 1) / ROWS, make_rows, m);
        p->rough[i].raw = m->raw;
        TRY(d->ops->load(d, &p->rough[i]));
        p->rough[i].raw = NULL;
    }
    return CB_OK;
}

static int make(struct device *d, struct head_prune *p)
{
    struct make m = { .p = p, .par = d->par };
    int err;

    p->margin = cb_alloc_aligned((size_t)p->w->n_out, sizeof *p->margin);
    p->lo = cb_calloc((size_t)n_block(p), 2 * sizeof *p->lo);
    p->row = cb_calloc((size_t)p->most_row, sizeof *p->row);
    m.raw = cb_alloc_aligned((size_t)p->slice_rows * cb_row_bytes(rough_type, p->w->n_in), 1);
    err = p->margin && p->lo && p->row && m.raw ? CB_OK : CB_ENOMEM;
    p->hi = p->lo ? p->lo + n_block(p) : NULL;
    if (!err)
        err = cb_par_reserve(d->par, 2 * (size_t)p->w->n_in * sizeof(float));
    if (!err)
        err = make_slices(d, &m);
    free(m.raw);
    return err;
}

static int pays(const struct device *d, const struct weight *w, uint64_t token_bytes)
{
    const uint64_t exact = (uint64_t)w->n_out * cb_row_bytes(w->type, w->n_in);
    const uint64_t rough = (uint64_t)w->n_out * cb_row_bytes(rough_type, w->n_in);

    return d->ops->matmul_rows && exact > rough && (exact - rough) * 20 >= token_bytes;
}

int cb_head_prune_new(struct device *d, const struct weight *w, uint64_t token_bytes,
                      struct head_prune **out)
{
    struct head_prune *p;
    int err;

    *out = NULL;
    if (w->n_in % cb_dtype[rough_type].block || !pays(d, w, token_bytes))
        return CB_OK;
    p = cb_calloc(1, sizeof *p);
    if (!p)
        return CB_ENOMEM;
    p->w = w;
    p->slice_rows = (n_block(p) + MOST_SLICE - 1) / MOST_SLICE * ROWS;
    for (int from = 0; from < w->n_out; from += p->slice_rows)
        p->rough[p->n_slice++] =
            (struct weight){ .name = "preview",
                             .type = rough_type,
                             .n_in = w->n_in,
                             .n_out = min_int(p->slice_rows, w->n_out - from) };
    p->most_row = w->n_out / 8 + 1;
    err = make(d, p);
    if (err) {
        cb_head_prune_free(d, p);
        return err;
    }
    *out = p;
    return CB_OK;
}

void cb_head_prune_free(struct device *d, struct head_prune *p)
{
    if (!p)
        return;
    for (int i = 0; i < p->n_slice; i++)
        d->ops->unload(d, &p->rough[i]);
    free(p->margin);
    free(p->lo);
    free(p->row);
    free(p);
}

uint64_t cb_head_prune_bytes(const struct head_prune *p)
{
    uint64_t sum = 0;

    for (int i = 0; p && i < p->n_slice; i++)
        sum += p->rough[i].packed_bytes + (uint64_t)p->rough[i].n_out * sizeof *p->margin;
    return sum;
}

/* ---- using it ---- */

struct look {
    const struct head_prune *p;
    const float *y;
    float size; /* |x| */
};

/* Flat logits cannot be pruned: after each preview in vain, back off and skip the next 1, 2, 4 ...
 * 64 tokens. */
static void learn(struct head_prune_stats *p, int helped)
{
    p->vain = helped ? 0 : min_int(p->vain + 1, 7);
    p->pass = p->vain ? min_int(1 << (p->vain - 1), MOST_PASS) : 0;
}

/* Largest lower and upper bound of n logits */
static void bounds(const float *y, const float *margin, float size, int n, float *lo, float *hi)
{
    float a[COLS], b[COLS];

    for (int c = 0; c < COLS; c++)
        a[c] = b[c] = -INFINITY;
    for (int i = 0; i + COLS <= n; i += COLS)
        for (int c = 0; c < COLS; c++) {
            const float m = size * margin[i + c], l = y[i + c] - m, h = y[i + c] + m;
            a[c] = l > a[c] ? l : a[c];
            b[c] = h > b[c] ? h : b[c];
        }
    for (int i = n / COLS * COLS; i < n; i++) {
        a[0] = fmaxf(a[0], y[i] - size * margin[i]);
        b[0] = fmaxf(b[0], y[i] + size * margin[i]);
    }
    for (int c = 1; c < COLS; c++) {
        a[0] = fmaxf(a[0], a[c]);
        b[0] = fmaxf(b[0], b[c]);
    }
    *lo = a[0];
    *hi = b[0];
}

static void look_at(void *ctx, int i, int thread)
{
    const struct look *k = ctx;
    const struct head_prune *p = k->p;

    (void)thread;
    for (int b = i * UNIT; b < min_int((i + 1) * UNIT, n_block(p)); b++) {
        const size_t r = (size_t)b * ROWS;
        bounds(k->y + r, p->margin + r, k->size, min_int(ROWS, p->w->n_out - (int)r), &p->lo[b],
               &p->hi[b]);
    }
}

/* The k-th largest of x[n]; with x the blocks' lower bounds, at least k logits are no smaller. */
static float kth_largest(const float *x, int n, int k)
{
    float best[MOST_TOP];
    int m = 0;

    for (int i = 0; i < n; i++) {
        int j;
        if (m == k && !(x[i] > best[m - 1]))
            continue;
        m += m < k;
        for (j = m - 1; j > 0 && best[j - 1] < x[i]; j--)
            best[j] = best[j - 1];
        best[j] = x[i];
    }
    return best[m - 1];
}

/* Rows that can be among the k largest -> p->row; returns their number, or -1: too many, or some
 * logit is not finite */
static int candidates(struct head_prune *p, const struct look *look, int k)
{
    const float least = kth_largest(p->lo, n_block(p), k);
    int n = 0;

    if (!isfinite(least))
        return -1;
    for (int b = 0; b < n_block(p); b++) {
        if (!(p->hi[b] >= least))
            continue;
        for (int r = b * ROWS; r < min_int((b + 1) * ROWS, p->w->n_out); r++) {
            if (!(look->y[r] + look->size * p->margin[r] >= least))
                continue;
            if (n == p->most_row)
                return -1;
            p->row[n++] = r;
        }
    }
    return n;
}

void cb_head_prune_top(struct device *d, struct head_prune *p, struct head_prune_stats *stats,
                       int k, int bits, const float *x, float *y)
{
    const struct mm exact = { .w = p->w, .y = y, .y_stride = p->w->n_out, .bits = bits };
    struct look look = { p, y, (float)sqrt(norm2(x, p->w->n_in)) };
    struct mm rough[MOST_SLICE];
    int n = -1;

    if (stats->pass > 0) {
        stats->pass--;
    } else if (k <= MOST_TOP && k <= n_block(p)) {
        for (int i = 0; i < p->n_slice; i++)
            rough[i] = (struct mm){ &p->rough[i], NULL, y + (size_t)i * (size_t)p->slice_rows,
                                    p->w->n_out,  0,    0 };
        d->ops->matmul(d, rough, p->n_slice, x, 1);
        cb_par_for(d->par, (n_block(p) + UNIT - 1) / UNIT, look_at, &look);
        n = candidates(p, &look, k);
        learn(stats, n >= 0);
    }
    if (n < 0)
        d->ops->matmul(d, &exact, 1, x, 1);
    else
        d->ops->matmul_rows(d, &exact, p->row, n, x);
}
