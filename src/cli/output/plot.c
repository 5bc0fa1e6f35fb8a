/* SPDX-License-Identifier: MIT */
/* plot.c - pictures of scores: heat maps by length and depth, and curves over the bytes held. */
#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "svg.h"

enum { MARGIN = 64, CELL_W = 64, CELL_H = 28, GAP = 72, CURVE_W = 560, CURVE_H = 320 };

struct axis {
    int *v; /* [n] ascending, different */
    int n;
};

struct canvas {
    struct buf b;
    int y, width;     /* next free row; widest so far */
    double doublings; /* of the axis of shares */
};

static int ascending(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

static int axis_make(const struct item_list *items, int depth, struct axis *a)
{
    int n = 0;

    *a = (struct axis){ cb_calloc((size_t)items->n + 1, sizeof *a->v), 0 };
    if (!a->v)
        return CB_ENOMEM;
    for (int i = 0; i < items->n; i++)
        if (items->at[i].depth >= 0)
            a->v[n++] = depth ? items->at[i].depth : items->at[i].length;
    if (n)
        qsort(a->v, (size_t)n, sizeof *a->v, ascending);
    for (int i = 0; i < n; i++)
        if (!a->n || a->v[i] != a->v[a->n - 1])
            a->v[a->n++] = a->v[i];
    return CB_OK;
}

/* ---- heat map: red 0, yellow 50, green 100 ---- */

static void colour(double share, int (*rgb)[3])
{
    const double low[3] = { 215, 60, 50 }, mid[3] = { 250, 220, 110 }, high[3] = { 60, 160, 90 };
    const double *a = share < 0.5 ? low : mid, *b = share < 0.5 ? mid : high;
    const double t = share < 0.5 ? 2 * share : 2 * share - 1;

    for (int i = 0; i < 3; i++)
        (*rgb)[i] = (int)(a[i] + t * (b[i] - a[i]) + 0.5);
}

/* Mean score of a cell; NAN where nothing was asked. */
static double cell(const struct item_list *items, const struct answers *have,
                   const struct answerer *by, int length, int depth)
{
    double sum = 0;
    int n = 0;

    for (int i = 0; i < items->n; i++) {
        const struct item *it = &items->at[i];
        const struct answer *a = it->length == length && it->depth == depth
                                     ? cb_answers_find(have, by, it->id, it->hash)
                                     : NULL;
        n += a != NULL;
        sum += a ? a->score : 0;
    }
    return n ? sum / n : NAN;
}

static void heat_map(struct canvas *c, const struct item_list *items, const struct answers *have,
                     const struct answerer *by, const struct axis *len, const struct axis *dep)
{
    char title[320];

    snprintf(title, sizeof title, "%.200s (question-%s)", by->policy,
             cb_question_name(by->question));
    cb_svg_text(&c->b, MARGIN, c->y, "start", title);
    c->y += 10;
    cb_svg_text_up(&c->b, MARGIN - 44, c->y + dep->n * CELL_H / 2.0, "middle", "depth (%)");
    cb_svg_text(&c->b, MARGIN + len->n * CELL_W / 2.0, c->y + dep->n * CELL_H + 32, "middle",
                "length (tokens)");
    for (int d = 0; d < dep->n; d++) {
        const double y = c->y + d * CELL_H;
        cb_svg_number(&c->b, MARGIN - 8, y + CELL_H / 2.0 + 4, "end", 4, dep->v[d]);
        for (int l = 0; l < len->n; l++) {
            const double s = cell(items, have, by, len->v[l], dep->v[d]);
            int rgb[3] = { 235, 235, 235 };
            if (!isnan(s))
                colour(s, &rgb);
            cb_svg_rect(&c->b, MARGIN + l * CELL_W, y, CELL_W - 2, CELL_H - 2, rgb, NULL);
            if (!isnan(s))
                cb_svg_number(&c->b, MARGIN + (l + 0.5) * CELL_W - 1, y + CELL_H / 2.0 + 4,
                              "middle", 4, 100 * s);
        }
    }
    for (int l = 0; l < len->n; l++)
        cb_svg_number(&c->b, MARGIN + (l + 0.5) * CELL_W, c->y + dep->n * CELL_H + 14, "middle", 9,
                      len->v[l]);
    c->y += dep->n * CELL_H + GAP;
    if (MARGIN + len->n * CELL_W > c->width)
        c->width = MARGIN + len->n * CELL_W;
}

/* What the colours mean: a bar from 0 to 100 */
static void scale(struct canvas *c)
{
    enum { STEPS = 50, STEP_W = 4, HIGH = 12 };
    const double x = MARGIN + 72;

    cb_svg_text(&c->b, MARGIN, c->y, "start", "score (%)");
    for (int i = 0; i < STEPS; i++) {
        int rgb[3];
        colour((i + 0.5) / STEPS, &rgb);
        cb_svg_rect(&c->b, x + i * STEP_W, c->y - 10, STEP_W, HIGH, rgb, NULL);
    }
    for (int s = 0; s <= 100; s += 25)
        cb_svg_number(&c->b, x + s * STEPS * STEP_W / 100.0, c->y + 16, "middle", 4, s);
    c->y += 50;
}

static int heat_maps(struct canvas *c, const struct run *r, const struct item_list *items,
                     const struct answers *have)
{
    struct axis len = { 0 }, dep = { 0 };
    int err = axis_make(items, 0, &len);

    if (!err)
        err = axis_make(items, 1, &dep);
    if (!err && dep.n)
        scale(c);
    for (int q = 0; q < 2 && !err && dep.n; q++) {
        struct answerer by = cb_run_full(r, (enum question)q);
        if (!(q == QUESTION_AWARE ? r->aware : r->blind))
            continue;
        heat_map(c, items, have, &by, &len, &dep);
        for (int i = 0; i < r->n_policy; i++) {
            by = cb_run_policy(r, i, (enum question)q);
            if (!cb_run_is_full(r, i))
                heat_map(c, items, have, &by, &len, &dep);
        }
    }
    free(len.v);
    free(dep.v);
    return err;
}

/* ---- curves: score over the share of bytes held, a line a method ---- */

/* Is the row drawn? Only means are, if there are any; else all rows. */
static int drawn(const struct rows *x, const struct row *r)
{
    const int means = x->n && !strcmp(x->at[x->n - 1].task, "mean");
    return !means || !strcmp(r->task, "mean");
}

static int same_line(const struct row *a, const struct row *b)
{
    const size_t n = strcspn(a->policy, ":");
    return a->question == b->question && n == strcspn(b->policy, ":") &&
           !strncmp(a->policy, b->policy, n);
}

/* Doublings between 1/64 of the full cache and the right end, which is beyond the full cache:
 * prepacked blocks take 3 % more, and sketches and f32 more than that. */
static double axis_doublings(const struct rows *x)
{
    double most = 1.03;

    for (int i = 0; i < x->n; i++)
        most = fmax(most, isnan(x->at[i].kv_share) ? 0 : x->at[i].kv_share);
    return 6 + log2(most) + 0.2;
}

/* On a logarithmic axis; shares below 1/64 stand at its left end. */
static double curve_x(const struct canvas *c, double share)
{
    return MARGIN + (6 + log2(fmax(share, 1.0 / 64))) / c->doublings * CURVE_W;
}

static double curve_y(const struct canvas *c, double score)
{
    return c->y + CURVE_H * (1 - score / 100);
}

static void frame(struct canvas *c)
{
    static const char *const tick[] = { "1/64", "1/32", "1/16", "1/8", "1/4", "1/2", "1" };

    cb_svg_text_up(&c->b, MARGIN - 44, c->y + CURVE_H / 2.0, "middle", "score (%)");
    cb_svg_text(&c->b, MARGIN + CURVE_W / 2.0, c->y + CURVE_H + 38, "middle",
                "bytes held, as a share of the full cache at f16");
    for (int i = 0; i <= 6; i++) {
        const double x = curve_x(c, pow(2, i - 6));
        cb_svg_down(&c->b, x, c->y, CURVE_H);
        cb_svg_text(&c->b, x, c->y + CURVE_H + 16, "middle", tick[i]);
    }
    for (int s = 0; s <= 100; s += 20) {
        cb_svg_across(&c->b, MARGIN, curve_y(c, s), CURVE_W, NULL, 0);
        cb_svg_number(&c->b, MARGIN - 8, curve_y(c, s) + 4, "end", 4, s);
    }
    cb_svg_frame(&c->b, MARGIN, c->y, CURVE_W, CURVE_H);
}

static int next_right(const struct rows *x, int first, double after, int at)
{
    int best = -1;

    for (int i = 0; i < x->n; i++) {
        const struct row *r = &x->at[i];
        if (!drawn(x, r) || !same_line(r, &x->at[first]))
            continue;
        if (r->kv_share < after || (r->kv_share <= after && i <= at))
            continue;
        if (best < 0 || r->kv_share < x->at[best].kv_share)
            best = i;
    }
    return best;
}

static void line(struct canvas *c, const struct rows *x, int first, int nth)
{
    const struct row *f = &x->at[first];
    const char *ink = cb_svg_ink(nth);
    const int blind = f->question == QUESTION_BLIND;
    char name[240];

    cb_svg_curve_begin(&c->b);
    for (int i = next_right(x, first, -1, -1); i >= 0;
         i = next_right(x, first, x->at[i].kv_share, i))
        cb_svg_curve_point(&c->b, curve_x(c, x->at[i].kv_share), curve_y(c, x->at[i].score));
    cb_svg_curve_end(&c->b, ink, blind);
    for (int i = 0; i < x->n; i++)
        if (drawn(x, &x->at[i]) && same_line(&x->at[i], f))
            cb_svg_dot(&c->b, curve_x(c, x->at[i].kv_share), curve_y(c, x->at[i].score), ink);
    snprintf(name, sizeof name, "%.*s, question-%s", (int)strcspn(f->policy, ":"), f->policy,
             cb_question_name(f->question));
    cb_svg_across(&c->b, MARGIN + CURVE_W + 60, c->y + 8 + 18 * nth, 24, ink, blind);
    cb_svg_text(&c->b, MARGIN + CURVE_W + 92, c->y + 12 + 18 * nth, "start", name);
}

static void curves(struct canvas *c, const struct rows *x)
{
    int n = 0;

    c->y += 24;
    c->doublings = axis_doublings(x);
    frame(c);
    for (int i = 0; i < x->n; i++) {
        int first = drawn(x, &x->at[i]);
        for (int j = 0; j < i && first; j++)
            first = !(drawn(x, &x->at[j]) && same_line(&x->at[j], &x->at[i]));
        if (first)
            line(c, x, i, n++);
    }
    c->y += (18 * n > CURVE_H ? 18 * n : CURVE_H) + GAP;
    if (MARGIN + CURVE_W + 340 > c->width)
        c->width = MARGIN + CURVE_W + 340;
}

int cb_plot(const char *path, const struct run *r, const struct item_list *items,
            const struct answers *have, const struct rows *rows)
{
    struct canvas c = { .y = 60, .width = 400 };
    int err = heat_maps(&c, r, items, have);

    if (!err)
        curves(&c, rows);
    cb_svg_title(&c.b, MARGIN, 28, r->who);
    if (!err)
        err = cb_svg_save(path, &c.b, c.width + 24, c.y);
    cb_buf_free(&c.b);
    return err;
}
