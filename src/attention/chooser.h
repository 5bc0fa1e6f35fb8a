/* SPDX-License-Identifier: MIT */
/* chooser.h - layers that read all and choose what the layers behind them read. */
#ifndef SELECT_H
#define SELECT_H

#include "session.h"

int cb_selects(const struct read *r);     /* 1: such a layer */
int cb_select_open(struct cb_session *s); /* nothing where the plan has no such layer */
void cb_select_close(struct cb_session *s);
void cb_select_clear(struct cb_session *s);
size_t cb_select_bytes(const struct cb_session *s, int n_most); /* work space for so many slots */

/* Queries qkv[n] at a stride of positions pos0.. went through layer l. */
void cb_select_chunk(struct cb_session *s, int l, const float *q, int stride, int n, int pos0);
/* Where layer l's attention is to leave the logits of the token that is decoded, [n_head][n_ctx];
 * NULL: all will be read anyway. */
float *cb_select_logits(struct cb_session *s, int l);
void cb_select_step(struct cb_session *s, int l, const float *q); /* its choice; q[n_head][hd] */
/* What layer l chose -> slots, *n of them; NULL: all. */
const int32_t *cb_select_slots(const struct cb_session *s, int l, int *n);

/* Of n slots, those that a decoded token reads in layer l after a prompt of n_prompt tokens. */
int cb_select_reads(const struct cb_session *s, int l, int n, int n_prompt);

#endif
