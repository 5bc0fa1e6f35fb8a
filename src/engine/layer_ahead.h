/* SPDX-License-Identifier: MIT */
/* layer_ahead.h - prefetches the weights and stored rows of a prompt's next layer to the device,
 * while the present layer computes. */
#ifndef LAYER_AHEAD_H
#define LAYER_AHEAD_H

#include "session.h"

/* Before layer l of a prompt whose chunks have n_tok tokens */
void cb_layer_ahead(struct cb_session *s, int l, int n_tok);
void cb_layer_ahead_end(struct cb_session *s); /* there is no next layer */
/* What the device's memory will have of weights, and for those that come to it, in a prompt of n
 * tokens beside `more` bytes of work space that are still to come */
int cb_layer_ahead_plan(const struct cb_session *s, int n, uint64_t more, uint64_t *weights,
                        uint64_t *ahead);

#endif
