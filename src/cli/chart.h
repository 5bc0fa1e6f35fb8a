/* SPDX-License-Identifier: MIT */
/* chart.h - results of an analysis as an SVG picture. */
#ifndef CHART_H
#define CHART_H

struct curve {
    const char *name;
    const double *y; /* [n] */
};

/* Draws curves over 0..n-1, all on one scale. */
int cb_chart_curves(const char *path, const char *title, const struct curve *c, int n_curve, int n);
/* Draws at[n][n], 0 to 1, as shaded squares; NAN and the cells left of the diagonal stay empty. */
int cb_chart_grid(const char *path, const char *title, const double *at, int n);

#endif
