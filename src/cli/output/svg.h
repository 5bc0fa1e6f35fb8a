/* SPDX-License-Identifier: MIT */
/* svg.h - the elements of a picture as SVG, and the file around them. */
#ifndef SVG_H
#define SVG_H

#include "base/buf.h"

/* A text. anchor: "start", "middle" or "end" */
void cb_svg_text(struct buf *b, double x, double y, const char *anchor, const char *s);
/* The same, turned to run upwards: the name of a vertical axis */
void cb_svg_text_up(struct buf *b, double x, double y, const char *anchor, const char *s);
void cb_svg_title(struct buf *b, double x, double y, const char *s);
void cb_svg_number(struct buf *b, double x, double y, const char *anchor, int digits, double v);
/* A filled rectangle; note: what a browser shows over it, or NULL */
void cb_svg_rect(struct buf *b, double x, double y, int w, int h, const int rgb[3],
                 const char *note);
/* A horizontal or vertical line, for axes (ink NULL: grey) and legends */
void cb_svg_across(struct buf *b, double x, double y, int len, const char *ink, int dashed);
void cb_svg_down(struct buf *b, double x, double y, int len);
void cb_svg_frame(struct buf *b, double x, double y, int w, int h); /* the edge of a diagram */
/* Colour of the i-th curve of a diagram; they repeat */
const char *cb_svg_ink(int i);
/* A curve: begin, its points in order, end */
void cb_svg_curve_begin(struct buf *b);
void cb_svg_curve_point(struct buf *b, double x, double y);
void cb_svg_curve_end(struct buf *b, const char *ink, int dashed);
void cb_svg_dot(struct buf *b, double x, double y, const char *ink);

/* Writes the elements in *b as a picture of that size and empties *b. CB_ENOMEM if memory ran out,
 * also in an earlier call. */
int cb_svg_save(const char *path, struct buf *b, int width, int height);

#endif
