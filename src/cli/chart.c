/* SPDX-License-Identifier: MIT */
/* chart.c - what an analysis measured as an SVG picture. */
#include "chart.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"

enum { MARGIN = 56, WIDE = 640, HIGH = 320, CELL = 18, TITLE = 28 };

static const char *const colour[] = { "#1b6ca8", "#c0392b", "#2e8b57",
                                      "#8e44ad", "#b9770e", "#555555" };
enum { N_COLOUR = (int)(sizeof colour / sizeof *colour) };

static void number(struct buf *b, double x, double y, const char *anchor, double v)
{
    char s[32];

    snprintf(s, sizeof s, "%.3g", v);
    cb_buf_svg_text(b, x, y, anchor, s);
}

static void begin(struct buf *b, int width, int height, const char *title)
{
    cb_buf_print(b,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 width, height);
    cb_buf_svg_text(b, MARGIN, 18, "start", title);
}

static int save(struct buf *b, const char *path)
{
    FILE *f;
    char *s;
    int err = CB_OK;

    cb_buf_text(b, "</svg>\n");
    s = cb_buf_take(b);
    if (!s)
        return CB_ENOMEM;
    f = fopen(path, "we");
    if (!f || fputs(s, f) < 0)
        err = cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    if (f && fclose(f) && !err)
        err = cb_fail(CB_EIO, "%s: %s", path, strerror(errno));
    free(s);
    return err;
}

int cb_chart_curves(const char *path, const char *title, const struct curve *c, int n_curve, int n)
{
    const double step = (double)WIDE / (n > 1 ? n - 1 : 1);
    struct buf b = { 0 };
    double top = 0;

    for (int i = 0; i < n_curve; i++)
        for (int j = 0; j < n; j++)
            top = fmax(top, c[i].y[j]);
    top = top > 0 ? top : 1;
    begin(&b, WIDE + 3 * MARGIN, HIGH + TITLE + 2 * MARGIN, title);
    for (int i = 0; i <= 4; i++) {
        const double y = TITLE + HIGH - HIGH * i / 4.0;
        cb_buf_print(&b, "<path d=\"M%d %.1fh%d\" stroke=\"#ddd\"/>\n", MARGIN, y, WIDE);
        number(&b, MARGIN - 6, y + 4, "end", top * i / 4);
    }
    for (int j = 0; j<n; j += n> 40 ? 8 : n > 20 ? 4 : 2)
        number(&b, MARGIN + j * step, TITLE + HIGH + 18, "middle", j);
    for (int i = 0; i < n_curve; i++) {
        cb_buf_print(&b, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"",
                     colour[i % N_COLOUR]);
        for (int j = 0; j < n; j++)
            cb_buf_print(&b, "%.1f,%.1f ", MARGIN + j * step, TITLE + HIGH * (1 - c[i].y[j] / top));
        cb_buf_text(&b, "\"/>\n");
        cb_buf_print(&b, "<path d=\"M%d %dh20\" stroke-width=\"2\" stroke=\"%s\"/>\n",
                     MARGIN + i * 160, TITLE + HIGH + 40, colour[i % N_COLOUR]);
        cb_buf_svg_text(&b, MARGIN + i * 160 + 26, TITLE + HIGH + 44, "start", c[i].name);
    }
    return save(&b, path);
}

int cb_chart_grid(const char *path, const char *title, const double *at, int n)
{
    struct buf b = { 0 };

    begin(&b, 2 * MARGIN + (n * CELL > WIDE ? n * CELL : WIDE), 2 * MARGIN + n * CELL, title);
    for (int i = 0; i < n; i++) {
        number(&b, MARGIN - 6, TITLE + i * CELL + 13, "end", i);
        number(&b, MARGIN + (i + 0.5) * CELL, TITLE + n * CELL + 14, "middle", i);
        for (int j = i; j < n; j++) {
            const double x = at[i * n + j];
            const int shade = (int)(255 - 215 * fmin(1, fmax(0, x)) + 0.5);
            if (!isnan(x))
                cb_buf_print(&b,
                             "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                             "fill=\"#%02x%02xff\"><title>%d, %d: %.3f</title></rect>\n",
                             MARGIN + j * CELL, TITLE + i * CELL, CELL - 1, CELL - 1, shade, shade,
                             i, j, x);
        }
    }
    return save(&b, path);
}
