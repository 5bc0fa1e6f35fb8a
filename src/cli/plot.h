/* SPDX-License-Identifier: MIT */
/* plot.h - what was measured as one SVG picture: a heat map a policy where items have a depth, and
 * scores against the bytes held. */
#ifndef PLOT_H
#define PLOT_H

#include "score_table.h"

int cb_plot(const char *path, const struct run *r, const struct item_list *items,
            const struct answers *have, const struct rows *rows);

#endif
