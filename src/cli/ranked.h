/* SPDX-License-Identifier: MIT */
/* ranked.h - commands on several ranks (--split): rank 0 does what the command does alone, the
 * others follow. */
#ifndef RANKED_H
#define RANKED_H

#include "cmd.h"
#include "ranks/ranks.h"

/* With --split, joins the processes that mpirun has started -> *out; NULL without. out stays where
 * it is until cb_ranked_leave(). */
int cb_ranked_join(const struct opts *o, struct ranks **out);
/* cb_engine_open() on a rank of the team, whose ranks share the weights with --split tensor; team
 * NULL: alone (app.c) */
int cb_engine_open_over(const struct opts *o, struct ranks *team, struct engine *e);
/* On the other ranks, with the model open: makes what rank 0 tells until it ends. */
int cb_ranked_follow(const struct opts *o, struct engine *e);
/* On rank 0, when its command is done and has not failed */
int cb_ranked_end(const struct engine *e);
/* Leaves the others; after a failure prints it and ends them all. Returns rc. */
int cb_ranked_leave(struct ranks *team, int rc);

/* --dry-run: the plan of each rank */
int cb_ranked_print_plan(const struct opts *o, struct engine *e, int n_prompt, int n_gen);
json_t *cb_ranked_json(const struct opts *o, const struct engine *e); /* what rank 0 has sent */

#endif
