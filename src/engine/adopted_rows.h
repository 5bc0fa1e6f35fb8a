/* SPDX-License-Identifier: MIT */
/* adopted_rows.h - a session continues with the rows that a session of another policy has stored.
 * Policies that drop and change nothing store the same rows; what they have beside them (sketches,
 * bounds of pages, choices) is made from the rows, or by the next token. */
#ifndef ADOPTED_ROWS_H
#define ADOPTED_ROWS_H

#include "session.h"
#include "session_state.h"

/* Do all layers of s store rows in this way, or a state? */
int cb_session_shares_rows(const struct cb_session *s);
/* Gives the empty session s the counts that `from` has, of the timeline and of stored rows and
 * states; both share rows. Areas with cb_adopts_area() are then to be filled. */
int cb_session_adopt_counts(struct cb_session *s, const struct cb_session *from);
/* Is the area part of rows and states, rather than what a policy has beside them? */
int cb_adopts_area(const struct area *a);
/* After the areas were filled: rows that are read one by one are unpacked, and keys sketched. */
int cb_session_adopted(struct cb_session *s);

#endif
