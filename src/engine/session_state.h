/* SPDX-License-Identifier: MIT */
/* session_state.h - all that a session remembers, as plain data: counts, then the areas of memory
 * that they describe. A fork copies it, a saved bank holds it. */
#ifndef SESSION_STATE_H
#define SESSION_STATE_H

#include "bank/store_areas.h"
#include "session.h"

/* int32 numbers that give the sizes of the areas */
int cb_session_n_counts(const struct cb_session *s);
void cb_session_counts(const struct cb_session *s, int32_t *out);
int cb_session_counts_seen(const int32_t *counts); /* tokens of the timeline */
/* Gives an empty session these counts; its areas are then still to be filled. After a failure the
 * session can only be closed. Locks a device that has memory of its own. CB_EFORMAT: the counts
 * contradict each other; CB_ENOMEM. */
int cb_session_set_counts(struct cb_session *s, const int32_t *counts);
/* The counts of the timeline alone, as another session has them; errors as above */
int cb_session_adopt_timeline(struct cb_session *s, const struct cb_session *from);
/* The areas in use, in a fixed order -> *out[*n]; the caller frees *out. CB_ENOMEM. */
int cb_session_areas(const struct cb_session *s, struct area **out, int *n);
/* Bytes that the first n tokens take of area a, which begins with them: rows and what stands beside
 * them. For sessions that cb_session_extends(), and n a multiple of KV_PREPACK. */
size_t cb_session_area_of(const struct cb_session *s, const struct area *a, int n);
/* Numbers of a key, where area a has keys in strips (device/index_strips.h); else 0 */
int cb_session_area_strips(const struct cb_session *s, const struct area *a);
/* Call when areas[n] have been filled: a device that mirrors rows learns of them. Locks it. */
void cb_session_wrote(const struct cb_session *s, const struct area *areas, int n);
/* After the areas were filled from a file: CB_EFORMAT if a list leads outside its store. */
int cb_session_check_areas(const struct cb_session *s);

#endif
