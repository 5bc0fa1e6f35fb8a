/* SPDX-License-Identifier: MIT */
/* plot.h - scores as one SVG picture: a heat map for each policy if items have a depth, and scores
 * against the bytes held. */
#ifndef PLOT_H
#define PLOT_H

#include "score_table.h"

int cb_plot(const char *path, const struct run *r, const struct item_list *items,
            const struct answers *have, const struct rows *rows);

#endif
