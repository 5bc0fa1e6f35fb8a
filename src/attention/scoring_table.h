/* SPDX-License-Identifier: MIT */
/* scoring_table.h - which scoring each layer has, and the steps of a prompt that call it. */
#ifndef SCORING_TABLE_H
#define SCORING_TABLE_H

#include "scoring.h"

/* Call close() even after a failure. */
int cb_scorings_open(struct attention *a);
void cb_scorings_close(struct attention *a);
size_t cb_scorings_bytes(const struct attention *a, int n_most); /* work space for n_most slots */
/* Does layer l score prompts, and can that be done where their tokens are dealt out to ranks? */
int cb_scoring_is(const struct attention *a, int l);
int cb_scoring_shares(const struct attention *a, int l);
/* Does a score depend on the parts that all queries of a chunk read, here or in a follower? */
int cb_scoring_reads_parts(const struct attention *a, int l);
/* Fetches what the other ranks have of a prompt that is dealt out, before cb_scoring_prompt() */
int cb_scoring_share(struct attention *a, int l);
/* Does layer l's scoring read stored rows when a prompt has gone through the layer? */
int cb_scoring_reads(const struct attention *a, int l);

/* Chunk c of a prompt whose scores the policy wants; read, lse: as in struct scoring */
int cb_scoring_chunk(struct attention *a, const struct chunk *c, const struct attention *read,
                     const float *lse);
/* Chunk c of a feed that repeats slots of the prompt */
int cb_scoring_repeated(struct attention *a, const struct chunk *c);
/* Call when a prompt has gone through layer l. */
void cb_scoring_prompt(struct attention *a, int l, struct scores *out);

#endif
