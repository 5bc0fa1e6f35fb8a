/* SPDX-License-Identifier: MIT */
/* attend.h - what a layer stores and reads. */
#ifndef ATTEND_H
#define ATTEND_H

#include "session.h"

int cb_attend_open(struct cb_session *s);
void cb_attend_close(struct cb_session *s);
/* Work space beside struct work: after feeds of up to n_feed tokens, when a KV head has held up to
 * n_most slots before a policy dropped some, and n_kept after it. */
size_t cb_attend_bytes(const struct cb_session *s, int n_feed, int n_most, int n_kept);
void cb_attend_clear(struct cb_session *s);              /* the policy's state is as at the start */
int cb_attend_window(const struct cb_session *s, int l); /* the model's or the plan's; 0 = none */
/* Layer l, tokens at positions pos0..pos0+n-1 out of a feed that ends before position pos_end:
 * stores their k and v, attends. qkv[n][(n_head + 2 n_kv) * hd], rotated -> out[n][n_head * hd] */
int cb_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
              float *out);
/* Layer l has seen the whole feed: measure, observe, compact. */
int cb_attend_end(struct cb_session *s, int l);

#endif
