/* SPDX-License-Identifier: MIT */
/* svg.c - writes pictures as SVG: text, rectangles, lines and curves. */
#include "svg.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/new_file.h"

static void escaped(struct buf *b, const char *s)
{
    for (; *s; s++)
        if (*s == '<')
            cb_buf_text(b, "&lt;");
        else if (*s == '&')
            cb_buf_text(b, "&amp;");
        else
            cb_buf_add(b, s, 1);
}

void cb_svg_text(struct buf *b, double x, double y, const char *anchor, const char *s)
{
    cb_buf_print(b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    escaped(b, s);
    cb_buf_text(b, "</text>\n");
}

void cb_svg_text_up(struct buf *b, double x, double y, const char *anchor, const char *s)
{
    cb_buf_print(b,
                 "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" "
                 "transform=\"rotate(-90 %.1f %.1f)\">",
                 x, y, anchor, x, y);
    escaped(b, s);
    cb_buf_text(b, "</text>\n");
}

void cb_svg_title(struct buf *b, double x, double y, const char *s)
{
    cb_buf_print(b, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"16\">", x, y);
    escaped(b, s);
    cb_buf_text(b, "</text>\n");
}

void cb_svg_number(struct buf *b, double x, double y, const char *anchor, int digits, double v)
{
    char s[32];

    snprintf(s, sizeof s, "%.*g", digits, v);
    cb_svg_text(b, x, y, anchor, s);
}

void cb_svg_rect(struct buf *b, double x, double y, int w, int h, const int rgb[3],
                 const char *note)
{
    cb_buf_print(b,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" "
                 "fill=\"#%02x%02x%02x\"",
                 x, y, w, h, rgb[0], rgb[1], rgb[2]);
    if (!note) {
        cb_buf_text(b, "/>\n");
        return;
    }
    cb_buf_text(b, "><title>");
    escaped(b, note);
    cb_buf_text(b, "</title></rect>\n");
}

/* Stroke of a line: 2 wide in a colour, or thin and grey without one */
static void stroke(struct buf *b, const char *ink, int dashed)
{
    cb_buf_print(b, " stroke=\"%s\"%s%s/>\n", ink ? ink : "#ddd", ink ? " stroke-width=\"2\"" : "",
                 dashed ? " stroke-dasharray=\"6 4\"" : "");
}

void cb_svg_across(struct buf *b, double x, double y, int len, const char *ink, int dashed)
{
    cb_buf_print(b, "<path d=\"M%.1f %.1f h%d\"", x, y, len);
    stroke(b, ink, dashed);
}

void cb_svg_down(struct buf *b, double x, double y, int len)
{
    cb_buf_print(b, "<path d=\"M%.1f %.1f v%d\"", x, y, len);
    stroke(b, NULL, 0);
}

void cb_svg_frame(struct buf *b, double x, double y, int w, int h)
{
    cb_buf_print(b,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" "
                 "stroke=\"#888\"/>\n",
                 x, y, w, h);
}

const char *cb_svg_ink(int i)
{
    static const char *const ink[] = { "#1b6ca8", "#c0392b", "#27853c", "#8e44ad", "#d68910",
                                       "#16808a", "#7f6a4a", "#b03a7c", "#4a5a6a", "#202020" };

    return ink[i % (int)(sizeof ink / sizeof *ink)];
}

void cb_svg_curve_begin(struct buf *b)
{
    cb_buf_text(b, "<polyline points=\"");
}

void cb_svg_curve_point(struct buf *b, double x, double y)
{
    cb_buf_print(b, "%.1f,%.1f ", x, y);
}

void cb_svg_curve_end(struct buf *b, const char *ink, int dashed)
{
    cb_buf_text(b, "\" fill=\"none\"");
    stroke(b, ink, dashed);
}

void cb_svg_dot(struct buf *b, double x, double y, const char *ink)
{
    cb_buf_print(b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x, y, ink);
}

int cb_svg_save(const char *path, struct buf *b, int width, int height)
{
    struct buf all = { 0 };
    int err;

    cb_buf_print(&all,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                 "font-family=\"sans-serif\" font-size=\"12\">\n"
                 "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                 width, height);
    cb_buf_add(&all, b->s ? b->s : "", b->n);
    cb_buf_text(&all, "</svg>\n");
    err = b->failed || all.failed ? CB_ENOMEM : cb_new_file_save(path, all.s, all.n);
    cb_buf_free(&all);
    cb_buf_free(b);
    return err;
}
