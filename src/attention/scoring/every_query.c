/* SPDX-License-Identifier: MIT */
/* every_query.c - a slot's score is the sum of the weights that all queries of a prompt give it. */
#include "attention/parts.h"
#include "attention/scoring.h"
#include "base/err.h"
#include "scores.h"

static int claims(const struct layer_plan *row)
{
    return row->score.when != WHEN_NEVER;
}

static int chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                 const float *lse, int first)
{
    (void)first;
    for (int i = 0; i < cb_parts_n(read); i++)
        cb_scores_add_part(a, c, read, i, lse);
    return CB_OK;
}

const struct scoring cb_scoring_every_query = {
    .shared = 1,
    .claims = claims,
    .chunk = chunk,
    .prompt = cb_scores_summed,
};
