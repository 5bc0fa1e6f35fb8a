/* SPDX-License-Identifier: MIT */
/* similar.h - work space of cb_view_nearest(), which policy.h declares. */
#ifndef SIMILAR_H
#define SIMILAR_H

#include "session.h"

int cb_similar_open(struct cb_session *s);
void cb_similar_close(struct cb_session *s);

#endif
