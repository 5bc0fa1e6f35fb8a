/* SPDX-License-Identifier: MIT */
/* similar.h - work space of cb_view_nearest(), which policy.h declares. */
#ifndef SIMILAR_H
#define SIMILAR_H

#include "session.h"

int cb_similar_open(struct cb_session *s); /* nothing where the method does not merge */
void cb_similar_close(struct cb_session *s);
/* Work space when n_kept slots of n_most stay. */
size_t cb_similar_bytes(const struct cb_session *s, int n_most, int n_kept);

#endif
