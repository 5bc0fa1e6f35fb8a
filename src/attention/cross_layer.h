/* SPDX-License-Identifier: MIT */
/* cross_layer.h - layers that take the logits of distant tokens from an earlier layer. */
#ifndef DISTANT_H
#define DISTANT_H

#include "session.h"

int cb_cross_layer_open(struct cb_session *s); /* nothing where the plan has no such layer */
void cb_cross_layer_close(struct cb_session *s);
/* Work space for prompts of n_feed tokens and a context of n_most. */
size_t cb_cross_layer_bytes(const struct cb_session *s, int n_feed, int n_most);
static inline int cb_cross_layer_is(const struct cb_session *s, int l)
{
    return s->plan[l].read.far_as != NULL;
}

/* Layer l's attention, whole: `at` with its own queries and out; lse too where at->lse is not NULL.
 * The first query is at position pos0 of a feed that ends before pos_end; K and V of all its tokens
 * are stored. Counts what is read, and drops the keys that no query will read any more. */
int cb_cross_layer_attention(struct cb_session *s, int l, const struct attn *at, int pos0,
                             int pos_end);
/* A prompt is through all layers. */
void cb_cross_layer_end(struct cb_session *s);
/* Bytes of keys that layer l does not hold when n tokens have been fed, of which it has n_slot
 * left; at least, where that depends on the text. */
uint64_t cb_cross_layer_saved(const struct cb_session *s, int l, int n, int n_slot);
/* Bytes of logits that a decoded token reads in layer l, less those of the keys that it does not.
 */
int64_t cb_cross_layer_read(const struct cb_session *s, int l, int n, int n_slot);

#endif
