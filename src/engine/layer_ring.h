/* SPDX-License-Identifier: MIT */
/* layer_ring.h - rows of the residual stream go from rank to rank, each of which has a range of the
 * layers. Without such a split these do nothing. */
#ifndef LAYER_RING_H
#define LAYER_RING_H

#include "session.h"

int cb_ring_is(const struct cb_session *s);
int cb_ring_embeds(const struct cb_session *s); /* 0: rows come from another rank */
/* 1: the rank's last layer is the model's */
int cb_ring_ends(const struct cb_session *s);
/* Before the rank's first layer: x[n] of the rank before it */
int cb_ring_take(const struct cb_session *s, float *x, int n);
/* After its last one: x[n] to the next rank. The first rank gets the last m rows of the last rank,
 * which takes the place of those that it has sent. */
int cb_ring_give(const struct cb_session *s, float *x, int n, int m);

#endif
