/* SPDX-License-Identifier: MIT */
/* evict.h - a pending change to one layer's slots, as the core sees it; policy.h has what methods
 * see. */
#ifndef EDIT_H
#define EDIT_H

#include "session.h"

int cb_evict_new(struct cb_session *s, struct eviction **out);
void cb_evict_free(struct eviction *e);
void cb_evict_begin(struct eviction *e, int l, int prompt);
size_t cb_evict_bytes(const struct cb_session *s, int n_most); /* work space for so many slots */
int cb_evict_apply(struct eviction *e); /* all that was asked since begin; merges first */

#endif
