/* SPDX-License-Identifier: MIT */
/* reader_table.h - the table of readers, and which of them a session's layers have. */
#ifndef READER_TABLE_H
#define READER_TABLE_H

#include "reader.h"

const struct reader *cb_reader_at(int i); /* NULL past the last */
/* The reader that the rows of layer l of a plan of n_layer rows get; y as in struct claim. Where
 * two claim them: NULL, and both -> two[2]. */
const struct reader *cb_reader_of(const struct layer_plan *row, int n_layer, int l,
                                  const struct layer *y, const struct reader *two[2]);
/* Gives each layer its reader; then opens what the readers need. Call close() even after a failure.
 */
int cb_readers_assign(struct attention *a);
int cb_readers_open(struct attention *a);
void cb_readers_close(struct attention *a);

#endif
