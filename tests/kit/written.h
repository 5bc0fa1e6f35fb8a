/* SPDX-License-Identifier: MIT */
/* written.h - sessions whose queries, keys and values are written down: a small model, one layer's
 * attention at a time, and attention whose logits the test chooses. */
#ifndef WRITTEN_H
#define WRITTEN_H

#include "engine/session.h"

enum { CB_WRITTEN_WIDE = 16 }; /* head size, and most tokens, where logits are chosen */

/* A tiny model of this shape on the reference device. */
cb_model *cb_written_model(int n_layer, int n_head, int n_kv, int hd);
/* Keys and values are f32. */
cb_session *cb_written_session(cb_model *m, const char *policy, int n_ctx);
/* Tokens pos0.. of a feed of n, as qkv[n][stride], go through layer l: one token is a decoded one,
 * several are a prompt. */
void cb_written_feed(cb_session *s, int l, const float *qkv, int n, int pos0, float *out);
/* The same, through layer 0 of a model with one head: query i's logit of token tok[j] (of token j
 * without tok) is logit[i * stride + j], others are 0. The token's key is 1 at its own dimension.
 */
void cb_written_logits(cb_session *s, const double *logit, int stride, const int *tok, int n_tok,
                       int n, int pos0);
/* Fails the test unless the KV head holds these tokens. */
void cb_written_holds(const cb_session *s, int l, int kv, const int *tok, int n);

#endif
