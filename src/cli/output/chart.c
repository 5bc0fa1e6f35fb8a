/* SPDX-License-Identifier: MIT */
/* chart.c - results of an analysis as an SVG picture. */
#include "chart.h"

#include <math.h>
#include <stdio.h>

#include "base/ints.h"
#include "svg.h"

enum { MARGIN = 56, WIDE = 640, HIGH = 320, CELL = 18, TITLE = 28, LEGEND = 18, NAMES = 420 };

/* ---- curves ---- */

struct scale {
    double low, high, left, right; /* of y and of x; powers of two: of its logarithm */
    int top;
};

static int points(const struct diagram *d, const struct curve *c)
{
    return c->x ? c->n : d->n;
}

static double x_of(const struct diagram *d, const struct curve *c, int j)
{
    return c->x ? log2(c->x[j]) : d->first + j * d->step;
}

static struct scale scale_of(const struct diagram *d, int top)
{
    struct scale s = { INFINITY, -INFINITY, INFINITY, -INFINITY, top };

    for (int i = 0; i < d->n_curve; i++) {
        const struct curve *c = &d->curve[i];
        for (int j = 0; j < points(d, c); j++) { /* NAN loses */
            s.low = fmin(s.low, c->y[j]);
            s.high = fmax(s.high, c->y[j]);
            s.left = fmin(s.left, x_of(d, c, j));
            s.right = fmax(s.right, x_of(d, c, j));
        }
    }
    if (!d->cut || !(s.low < s.high))
        s.low = fmin(0, s.low);
    s.high = s.high > s.low ? s.high : s.low + 1;
    s.right = s.right > s.left ? s.right : s.left + 1;
    return s;
}

static double x_at(const struct scale *s, double x)
{
    return MARGIN + WIDE * (x - s->left) / (s->right - s->left);
}

static double y_at(const struct scale *s, double y)
{
    return s->top + HIGH * (s->high - y) / (s->high - s->low);
}

/* Grid lines and the numbers of both axes */
static void axes(struct buf *b, const struct diagram *d, const struct scale *s)
{
    const int every = max_int(1, (d->n + 9) / 10);

    for (int i = 0; i <= 4; i++) {
        const double v = s->low + (s->high - s->low) * i / 4;
        cb_svg_across(b, MARGIN, y_at(s, v), WIDE, NULL, 0);
        cb_svg_number(b, MARGIN - 6, y_at(s, v) + 4, "end", 3, v);
    }
    for (int j = 0; j < d->n && !d->by_powers; j += every)
        cb_svg_number(b, x_at(s, d->first + j * d->step), s->top + HIGH + 18, "middle", 7,
                      d->first + j * d->step);
    for (double p = ceil(s->left - 1e-9); d->by_powers && p <= s->right + 1e-9; p++) {
        cb_svg_down(b, x_at(s, p), s->top, HIGH);
        cb_svg_number(b, x_at(s, p), s->top + HIGH + 18, "middle", 3, exp2(p));
    }
    cb_svg_text(b, MARGIN + WIDE / 2.0, s->top + HIGH + 36, "middle", d->x_name);
    cb_svg_frame(b, MARGIN, s->top, WIDE, HIGH);
}

/* Gaps part a curve; a point between two gaps is a dot. */
static void draw(struct buf *b, const struct diagram *d, const struct scale *s, int nth)
{
    const struct curve *c = &d->curve[nth];
    const double y0 = s->top + 10 + LEGEND * nth;
    int from = 0;

    for (int j = 0; j <= points(d, c); j++) {
        if (j < points(d, c) && !isnan(c->y[j]))
            continue;
        if (j > from + 1)
            cb_svg_curve_begin(b);
        for (int i = from; i < j; i++) {
            const double x = x_at(s, x_of(d, c, i)), y = y_at(s, c->y[i]);
            if (j > from + 1)
                cb_svg_curve_point(b, x, y);
            else
                cb_svg_dot(b, x, y, cb_svg_ink(c->ink));
        }
        if (j > from + 1)
            cb_svg_curve_end(b, cb_svg_ink(c->ink), c->dashed);
        from = j + 1;
    }
    cb_svg_across(b, MARGIN + WIDE + 20, y0, 24, cb_svg_ink(c->ink), c->dashed);
    cb_svg_text(b, MARGIN + WIDE + 52, y0 + 4, "start", c->name);
}

int cb_chart_diagrams(const char *path, const struct diagram *d, int n)
{
    struct buf b = { 0 };
    int top = 0;

    for (int k = 0; k < n; k++) {
        const struct scale s = scale_of(&d[k], top + TITLE);
        cb_svg_title(&b, MARGIN, top + 18, d[k].title);
        axes(&b, &d[k], &s);
        for (int i = 0; i < d[k].n_curve; i++)
            draw(&b, &d[k], &s, i);
        top += TITLE + max_int(HIGH, LEGEND * d[k].n_curve) + MARGIN + MARGIN / 2;
    }
    return cb_svg_save(path, &b, WIDE + MARGIN + NAMES, top);
}

int cb_chart_curves(const char *path, const char *title, const struct curve *c, int n_curve, int n)
{
    const struct diagram d = {
        .title = title, .x_name = "layer", .curve = c, .n_curve = n_curve, .n = n, .step = 1
    };

    return cb_chart_diagrams(path, &d, 1);
}

/* ---- cells ---- */

int cb_chart_grid(const char *path, const char *title, const double *at, int n)
{
    struct buf b = { 0 };

    cb_svg_title(&b, MARGIN, 18, title);
    cb_svg_text_up(&b, MARGIN - 36, TITLE + n * CELL / 2.0, "middle", "layer");
    cb_svg_text(&b, MARGIN + n * CELL / 2.0, TITLE + n * CELL + 32, "middle",
                "layer; colour: 0 white, 1 blue");
    for (int i = 0; i < n; i++) {
        cb_svg_number(&b, MARGIN - 6, TITLE + i * CELL + 13, "end", 3, i);
        cb_svg_number(&b, MARGIN + (i + 0.5) * CELL, TITLE + n * CELL + 14, "middle", 3, i);
        for (int j = i; j < n; j++) {
            const double x = at[i * n + j];
            const int shade = (int)(255 - 215 * fmin(1, fmax(0, x)) + 0.5);
            char note[64];
            snprintf(note, sizeof note, "%d, %d: %.3f", i, j, x);
            if (!isnan(x))
                cb_svg_rect(&b, MARGIN + j * CELL, TITLE + i * CELL, CELL - 1, CELL - 1,
                            (const int[]){ shade, shade, 255 }, note);
        }
    }
    return cb_svg_save(path, &b, 2 * MARGIN + (n * CELL > WIDE ? n * CELL : WIDE),
                       2 * MARGIN + n * CELL);
}

/* White to red */
static void shade(double x, int (*rgb)[3])
{
    const double full[3] = { 192, 57, 43 };

    for (int i = 0; i < 3; i++)
        (*rgb)[i] = (int)(255 + (full[i] - 255) * fmin(1, fmax(0, x)) + 0.5);
}

int cb_chart_map(const char *path, const char *title, const double *at, int n_layer, int stride,
                 int first, int n, int most)
{
    enum { ROW = 12 };
    const int each = (n + most - 1) / most, n_cell = (n + each - 1) / each,
              wide = max_int(1, WIDE / n_cell);
    const int bottom = TITLE + n_layer * ROW;
    struct buf b = { 0 };

    cb_svg_title(&b, MARGIN, 18, title);
    cb_svg_text_up(&b, MARGIN - 36, TITLE + n_layer * ROW / 2.0, "middle", "layer");
    cb_svg_text(&b, MARGIN + n_cell * wide / 2.0, bottom + 32, "middle",
                "token; colour: 0 white, 1 red");
    for (int c = 0; c < n_cell; c += max_int(1, (n_cell + 7) / 8))
        cb_svg_number(&b, MARGIN + c * wide, bottom + 14, "middle", 9, first + c * each);
    for (int l = 0; l < n_layer; l++) {
        if (l % 4 == 0)
            cb_svg_number(&b, MARGIN - 6, TITLE + l * ROW + 10, "end", 3, l);
        for (int c = 0; c < n_cell; c++) {
            const int from = c * each, to = min_int(n, from + each);
            char note[64];
            double sum = 0;
            int rgb[3];
            for (int j = from; j < to; j++)
                sum += at[(size_t)l * (size_t)stride + (size_t)j] / (to - from);
            snprintf(note, sizeof note, "layer %d, token %d: %.3f", l, first + from, sum);
            shade(sum, &rgb);
            cb_svg_rect(&b, MARGIN + c * wide, TITLE + l * ROW, wide, ROW, rgb, note);
        }
    }
    cb_svg_frame(&b, MARGIN, TITLE, n_cell * wide, n_layer * ROW);
    return cb_svg_save(path, &b, WIDE + 5 * MARGIN, bottom + MARGIN);
}
