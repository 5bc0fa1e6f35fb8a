/* SPDX-License-Identifier: MIT */
/* split_rows.c - products whose rows are dealt out to ranks.
 *
 * Rows are cut rather than columns: both halves of a layer then share twice what sums of columns
 * would share once, but no sum is cut, and any type of weights can be. */
#include "split_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ints.h"

enum {
    UNIT = 16,          /* rows that kernels take together; ranks begin at multiples */
    AT_ONCE = 1 << 20,  /* floats of a message, where more than one token has more */
    MOST_PRODUCTS = 64, /* of one call */
};

struct split_rows {
    struct ops ops; /* first: the device's table is this one */
    const struct ops *inner;
    struct ranks *team;
    int me, n;
    size_t cap;        /* floats */
    float *mine, *all; /* [cap], [n][cap] */
    int failed;        /* 0, or the status of the first product that could not be shared */
    char why[256];     /* its message */
};

static struct split_rows *split_of(const struct device *d)
{
    return (struct split_rows *)(uintptr_t)d->ops;
}

/* ---- rows ---- */

static int first_row(const struct split_rows *x, int n_out, int rank)
{
    const int unit = (n_out + UNIT - 1) / UNIT;

    return min_int(n_out, (int)((int64_t)unit * rank / x->n) * UNIT);
}

static int rows_of(const struct split_rows *x, int n_out, int rank)
{
    return first_row(x, n_out, rank + 1) - first_row(x, n_out, rank);
}

/* The most rows that a rank has */
static int most_rows(const struct split_rows *x, int n_out)
{
    int most = 0;

    for (int r = 0; r < x->n; r++)
        most = max_int(most, rows_of(x, n_out, r));
    return most;
}

/* This rank's rows of a matrix */
static struct weight slice(const struct split_rows *x, const struct weight *w)
{
    struct weight own = *w;
    const size_t first = (size_t)first_row(x, w->n_out, x->me);

    own.n_out = rows_of(x, w->n_out, x->me);
    own.raw = (const char *)w->raw + first * cb_row_bytes(w->type, w->n_in);
    return own;
}

static int load(struct device *d, struct weight *w)
{
    const struct split_rows *x = split_of(d);
    struct weight own = slice(x, w);

    if (!own.n_out)
        return CB_OK;
    TRY(x->inner->load(d, &own));
    w->packed = own.packed;
    w->packed_bytes = own.packed_bytes;
    return CB_OK;
}

/* ---- messages ---- */

static int fit(struct split_rows *x, size_t n)
{
    if (n <= x->cap)
        return CB_OK;
    free(x->mine);
    free(x->all);
    x->cap = 0;
    x->mine = cb_alloc_aligned(n, sizeof *x->mine);
    x->all = cb_alloc_aligned(n * (size_t)x->n, sizeof *x->all);
    if (!x->mine || !x->all)
        return CB_ENOMEM;
    x->cap = n;
    return CB_OK;
}

static int64_t reserve(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx)
{
    struct split_rows *x = split_of(d);
    const int64_t bytes = x->inner->reserve(d, n_tok, max_in, max_out, n_head, hd, n_ctx);

    if (bytes < 0)
        return bytes;
    TRY(fit(x, AT_ONCE));
    return bytes + (int64_t)(x->cap * sizeof(float)) * (x->n + 1);
}

/* A call of some tokens: its products, of which each has its own rows */
struct call {
    const struct mm *mm;
    int n, n_tok;
    struct mm own[MOST_PRODUCTS];
    struct weight w[MOST_PRODUCTS];
    size_t at[MOST_PRODUCTS]; /* of each product in a message */
    size_t floats;            /* of a message */
};

/* Rows of y from `first` on that a product adds to, or takes */
static void copy_rows(float *to, int to_stride, const float *from, int from_stride, int n,
                      int n_tok)
{
    for (int t = 0; n && t < n_tok; t++)
        memcpy(to + (size_t)t * (size_t)to_stride, from + (size_t)t * (size_t)from_stride,
               (size_t)n * sizeof *to);
}

/* Products of this rank's rows -> mine. A product that is added begins with what is there. */
static int prepare(struct split_rows *x, struct call *c)
{
    c->floats = 0;
    for (int i = 0; i < c->n; i++) {
        c->at[i] = c->floats;
        c->floats += (size_t)most_rows(x, c->mm[i].w->n_out) * (size_t)c->n_tok;
    }
    TRY(fit(x, c->floats));
    for (int i = 0; i < c->n; i++) {
        const struct mm *mm = &c->mm[i];
        const int first = first_row(x, mm->w->n_out, x->me);
        c->w[i] = slice(x, mm->w);
        c->own[i] = *mm;
        c->own[i].w = &c->w[i];
        c->own[i].bias = mm->bias ? mm->bias + first : NULL;
        c->own[i].y = x->mine + c->at[i];
        c->own[i].y_stride = c->w[i].n_out;
        if (mm->add)
            copy_rows(c->own[i].y, c->w[i].n_out, mm->y + first, mm->y_stride, c->w[i].n_out,
                      c->n_tok);
    }
    return CB_OK;
}

/* What all ranks have computed -> y of products i..i+n-1 */
static int share(struct split_rows *x, const struct call *c, int n)
{
    const size_t floats = n < c->n ? c->at[n] : c->floats;

    TRY(cb_ranks_share(x->team, x->mine, floats * sizeof(float), x->all));
    for (int i = 0; i < n; i++)
        for (int r = 0; r < x->n; r++) {
            const int rows = rows_of(x, c->mm[i].w->n_out, r);
            copy_rows(c->mm[i].y + first_row(x, c->mm[i].w->n_out, r), c->mm[i].y_stride,
                      x->all + (size_t)r * floats + c->at[i], rows, rows, c->n_tok);
        }
    return CB_OK;
}

/* Ops return nothing: a failure is kept for cb_split_rows_status(). */
static void note(struct split_rows *x, int err)
{
    if (!err || x->failed)
        return;
    x->failed = err;
    snprintf(x->why, sizeof x->why, "%s", cb_error());
}

/* ---- the ops ---- */

/* Tokens that go into one message */
static int at_once(const struct split_rows *x, const struct mm *mm, int n, int n_tok)
{
    size_t floats = 0;

    for (int i = 0; i < n; i++)
        floats += (size_t)most_rows(x, mm[i].w->n_out);
    return max_int(1, (int)min_size((size_t)n_tok, AT_ONCE / floats));
}

/* The products of tokens t..t+n_tok-1, as a list of their own */
static void from_token(const struct mm *mm, int n, int t, struct mm *out)
{
    for (int i = 0; i < n; i++) {
        out[i] = mm[i];
        out[i].y += (size_t)t * (size_t)mm[i].y_stride;
    }
}

/* Products of the same shape have rows on the same ranks: this rank has some of all, or of none. */
static int has_rows(const struct call *c, int i)
{
    return c->w[i].n_out > 0;
}

static int products(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    struct split_rows *s = split_of(d);
    struct call c = { .mm = mm, .n = n, .n_tok = n_tok };
    struct mm some[MOST_PRODUCTS];
    int m = 0;

    TRY(prepare(s, &c));
    for (int i = 0; i < n; i++)
        if (has_rows(&c, i))
            some[m++] = c.own[i];
    if (m)
        s->inner->matmul(d, some, m, x, n_tok);
    return share(s, &c, n);
}

static void matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    struct split_rows *s = split_of(d);
    const int step = at_once(s, mm, n, n_tok);
    struct mm part[MOST_PRODUCTS];

    for (int i = 0; i < n; i += MOST_PRODUCTS)
        for (int t = 0; !s->failed && t < n_tok; t += step) {
            from_token(mm + i, min_int(n - i, MOST_PRODUCTS), t, part);
            note(s, products(d, part, min_int(n - i, MOST_PRODUCTS),
                             x + (size_t)t * (size_t)mm->w->n_in, min_int(step, n_tok - t)));
        }
}

static int sets(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                size_t x_stride, int n_tok)
{
    struct split_rows *s = split_of(d);
    struct call c = { .mm = mm, .n = n, .n_tok = n_tok };

    TRY(prepare(s, &c));
    if (has_rows(&c, 0))
        s->inner->matmul_sets(d, c.own, n, x, x_step, x_stride, n_tok);
    return share(s, &c, n);
}

static void matmul_sets(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                        size_t x_stride, int n_tok)
{
    struct split_rows *s = split_of(d);

    for (int i = 0; !s->failed && i < n; i += MOST_PRODUCTS)
        note(s, sets(d, mm + i, min_int(n - i, MOST_PRODUCTS), x + (size_t)i * x_step, x_step,
                     x_stride, n_tok));
}

/* Gate and up have the same rows on the same rank, so that the rank weighs one by the other. */
static int gated(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                 int n_tok)
{
    struct split_rows *s = split_of(d);
    struct call c = { .mm = mm, .n = 2, .n_tok = n_tok };

    TRY(prepare(s, &c));
    if (has_rows(&c, 0))
        s->inner->matmul_glu(d, c.own, act, x, n_tok);
    return share(s, &c, 1);
}

static void matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok)
{
    struct split_rows *s = split_of(d);
    const int step = at_once(s, mm, 2, n_tok);
    struct mm part[2];

    for (int t = 0; !s->failed && t < n_tok; t += step) {
        from_token(mm, 2, t, part);
        note(s, gated(d, part, act, x + (size_t)t * (size_t)mm->w->n_in, min_int(step, n_tok - t)));
    }
}

/* ---- open ---- */

int cb_split_rows_open(struct device *d, struct ranks *team)
{
    struct split_rows *x;

    if (cb_ranks_n(team) == 1)
        return CB_OK;
    if (d->ops->memory)
        return cb_fail(CB_EUNSUPPORTED,
                       "split tensor: not yet on device %s, which has memory of "
                       "its own",
                       d->name);
    if (!(x = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    *x = (struct split_rows){ .ops = *d->ops,
                              .inner = d->ops,
                              .team = team,
                              .me = cb_ranks_me(team),
                              .n = cb_ranks_n(team) };
    x->ops.load = load;
    x->ops.reserve = reserve;
    x->ops.matmul = matmul;
    x->ops.matmul_sets = d->ops->matmul_sets ? matmul_sets : NULL;
    x->ops.matmul_glu = matmul_glu;
    x->ops.matmul_rows = NULL; /* a few rows are not worth a message */
    d->ops = &x->ops;
    return CB_OK;
}

void cb_split_rows_close(struct device *d)
{
    struct split_rows *x;

    if (!d || !cb_split_rows_is(d))
        return;
    x = split_of(d);
    d->ops = x->inner;
    free(x->mine);
    free(x->all);
    free(x);
}

int cb_split_rows_is(const struct device *d)
{
    return d->ops->load == load;
}

int cb_split_rows_own(const struct device *d, int n)
{
    return cb_split_rows_is(d) ? rows_of(split_of(d), n, split_of(d)->me) : n;
}

int cb_split_rows_most(const struct device *d, int n)
{
    return cb_split_rows_is(d) ? most_rows(split_of(d), n) : n;
}

int cb_split_rows_status(const struct device *d)
{
    const struct split_rows *x = split_of(d);

    return cb_split_rows_is(d) && x->failed ? cb_fail(x->failed, "%s", x->why) : CB_OK;
}
