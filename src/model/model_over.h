/* SPDX-License-Identifier: MIT */
/* model_over.h - a model that is opened on the ranks of a team. */
#ifndef MODEL_OVER_H
#define MODEL_OVER_H

#include "ctxbank.h"
#include "ranks/ranks.h"

/* cb_model_open() with matrices that are dealt out to the team by rows (device/split_rows.h). The
 * team outlives the model. NULL: they are not dealt out */
int cb_model_open_over(const char *path, const struct cb_model_params *params, struct ranks *team,
                       cb_model **out);

#endif
