/* SPDX-License-Identifier: MIT */
/* mixer.h - layers that mix tokens without keys: delta nets, Mamba-2 and short convolutions. */
#ifndef MIXER_H
#define MIXER_H

#include "session.h"

/* in[n_tok][n_embd] of layer l -> what its last product reads, [n_tok][mixer->out.n_in]. n_tok
 * tokens of one session, or one of each of n_session; their states move on. */
const float *cb_mixer(struct cb_session *const *s, int n_session, int l, const float *in, int n_tok,
                      int bits);
/* Layer l takes the first n tokens of the session's last draft once more: its state, which is that
 * before the draft, moves on. Needs cb_mixer_work_draft(). */
void cb_mixer_again(struct cb_session *s, int l, int n);

#endif
