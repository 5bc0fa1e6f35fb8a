/* SPDX-License-Identifier: MIT */
/* layer_ahead.h - a prompt's next layer, whose weights come to the device while the last one
 * computes. */
#ifndef LAYER_AHEAD_H
#define LAYER_AHEAD_H

#include "session.h"

/* Before layer l of a prompt whose chunks have n_tok tokens */
void cb_layer_ahead(struct cb_session *s, int l, int n_tok);
void cb_layer_ahead_end(struct cb_session *s); /* there is no next layer */
/* Bytes of the device's memory that prompts take for it */
uint64_t cb_layer_ahead_bytes(const struct cb_model *m);

#endif
