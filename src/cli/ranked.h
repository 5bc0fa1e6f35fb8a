/* SPDX-License-Identifier: MIT */
/* ranked.h - commands on several ranks (--split): rank 0 does what the command does alone, the
 * others follow. */
#ifndef RANKED_H
#define RANKED_H

#include "cmd.h"
#include "ranks/ranks.h"

/* Runs the command. With --split, the processes that mpirun has started are joined: rank 0 runs the
 * command, and the others open the model and follow. */
int cb_ranked_run(struct opts *o);
/* --dry-run: the plan of this process, or of each rank */
int cb_ranked_print_plan(const struct opts *o, struct engine *e, int n_prompt, int n_gen);
json_t *cb_ranked_json(const struct opts *o, const struct engine *e); /* what rank 0 has sent */

#endif
