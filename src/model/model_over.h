/* SPDX-License-Identifier: MIT */
/* model_over.h - a model that is opened on the ranks of a team. */
#ifndef MODEL_OVER_H
#define MODEL_OVER_H

#include "ctxbank.h"
#include "ranks/ranks.h"

/* What of a model is dealt out to the ranks of a team */
enum model_deal {
    DEAL_NOTHING, /* but ranks of a machine have one copy (device/node_weights.h) */
    DEAL_ROWS,    /* the rows of its matrices (device/split_rows.h) */
    DEAL_LAYERS   /* its layers (layer_share.h) */
};

/* cb_model_open() with a model of the team, which outlives it. NULL: of this process alone */
int cb_model_open_over(const char *path, const struct cb_model_params *params, struct ranks *team,
                       enum model_deal deal, cb_model **out);

#endif
