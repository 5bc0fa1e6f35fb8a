/* SPDX-License-Identifier: MIT */
/* gate_limit.h - limits of gates, and of what they multiply. */
#ifndef GATE_LIMIT_H
#define GATE_LIMIT_H

#include "session.h"

/* w.gate up to `most`, and w.up within it on both sides: n rows of n_ff */
void cb_gate_limit(struct cb_session *s, int n_ff, int n, float most);

#endif
