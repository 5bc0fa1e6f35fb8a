/* SPDX-License-Identifier: MIT */
/* chart.c - results of an analysis as an SVG picture. */
#include "chart.h"

#include <math.h>
#include <stdio.h>

#include "svg.h"

enum { MARGIN = 56, WIDE = 640, HIGH = 320, CELL = 18, TITLE = 28 };

static const char *const colour[] = { "#1b6ca8", "#c0392b", "#2e8b57",
                                      "#8e44ad", "#b9770e", "#555555" };
enum { N_COLOUR = (int)(sizeof colour / sizeof *colour) };

int cb_chart_curves(const char *path, const char *title, const struct curve *c, int n_curve, int n)
{
    const double step = (double)WIDE / (n > 1 ? n - 1 : 1);
    struct buf b = { 0 };
    double top = 0;

    for (int i = 0; i < n_curve; i++)
        for (int j = 0; j < n; j++)
            top = fmax(top, c[i].y[j]);
    top = top > 0 ? top : 1;
    cb_svg_title(&b, MARGIN, 18, title);
    for (int i = 0; i <= 4; i++) {
        const double y = TITLE + HIGH - HIGH * i / 4.0;
        cb_svg_across(&b, MARGIN, y, WIDE, NULL, 0);
        cb_svg_number(&b, MARGIN - 6, y + 4, "end", 3, top * i / 4);
    }
    for (int j = 0; j<n; j += n> 40 ? 8 : n > 20 ? 4 : 2)
        cb_svg_number(&b, MARGIN + j * step, TITLE + HIGH + 18, "middle", 3, j);
    cb_svg_text(&b, MARGIN + WIDE + 16, TITLE + HIGH + 18, "start", "layer");
    cb_svg_frame(&b, MARGIN, TITLE, WIDE, HIGH);
    for (int i = 0; i < n_curve; i++) {
        const char *ink = colour[i % N_COLOUR];
        cb_svg_curve_begin(&b);
        for (int j = 0; j < n; j++)
            cb_svg_curve_point(&b, MARGIN + j * step, TITLE + HIGH * (1 - c[i].y[j] / top));
        cb_svg_curve_end(&b, ink, 0);
        cb_svg_across(&b, MARGIN + i * 160, TITLE + HIGH + 40, 20, ink, 0);
        cb_svg_text(&b, MARGIN + i * 160 + 26, TITLE + HIGH + 44, "start", c[i].name);
    }
    return cb_svg_save(path, &b, WIDE + 3 * MARGIN, HIGH + TITLE + 2 * MARGIN);
}

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
