/* SPDX-License-Identifier: MIT */
/* rolling.h - attention with positions as if nothing had been dropped. */
#ifndef ROLLED_H
#define ROLLED_H

#include "session.h"

int cb_rolling_open(struct cb_session *s);
void cb_rolling_close(struct cb_session *s);
size_t cb_rolling_bytes(const struct cb_session *s);
/* Attends as `all` says, whose runs run[n_kv] are all of layer l; lse[n_tok][n_head] is room, or
 * what all asks for. Returns 0, and does nothing, where positions are as they are in any case. */
int cb_rolling(struct cb_session *s, int l, const struct attn *all, struct kv_run *run, float *lse);

#endif
