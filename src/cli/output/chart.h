/* SPDX-License-Identifier: MIT */
/* chart.h - results of an analysis as an SVG picture. */
#ifndef CHART_H
#define CHART_H

struct curve {
    const char *name;
    const double *y; /* [n]; NAN: no point there */
    int dashed, ink; /* ink: the number of its colour */
    const double *x; /* [n] > 0, ascending; NULL: those of the diagram */
    int n;           /* points, with x */
};

struct diagram {
    const char *title, *x_name;
    const struct curve *curve; /* [n_curve], all on one scale */
    int n_curve, n;
    double first, step; /* x of point j is first + j * step */
    int cut;            /* 1: the scale begins at the lowest point; 0: at 0 */
    int by_powers;      /* 1: curves have an x of their own, on a logarithmic scale */
};

/* Draws diagrams, one below the other. */
int cb_chart_diagrams(const char *path, const struct diagram *d, int n);
/* One diagram, over layers 0..n-1 */
int cb_chart_curves(const char *path, const char *title, const struct curve *c, int n_curve, int n);
/* Draws at[n][n], 0 to 1, as shaded squares; NAN and the cells left of the diagonal stay empty. */
int cb_chart_grid(const char *path, const char *title, const double *at, int n);
/* Draws a row for each layer of at[n_layer][stride], of tokens first..first+n-1: 0 is white, 1 red.
 * Of more than `most` tokens, adjacent ones are drawn as their mean. */
int cb_chart_map(const char *path, const char *title, const double *at, int n_layer, int stride,
                 int first, int n, int most);

#endif
