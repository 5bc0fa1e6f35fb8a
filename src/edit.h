/* SPDX-License-Identifier: MIT */
/* edit.h - a pending change to one layer's slots, as the core sees it; policy.h has what methods see. */
#ifndef EDIT_H
#define EDIT_H

#include "session.h"

int cb_edit_new(struct cb_session *s, struct edit **out);
void cb_edit_free(struct edit *e);
void cb_edit_begin(struct edit *e, int l, int prompt);
size_t cb_edit_bytes(const struct cb_session *s, int n_most); /* work space for so many slots */
int cb_edit_apply(struct edit *e); /* all that was asked since begin; merges first */

#endif
