/* SPDX-License-Identifier: MIT */
/* token_experts.h - the chosen experts of a single token, together. */
#ifndef TOKEN_EXPERTS_H
#define TOKEN_EXPERTS_H

#include "session.h"

/* As many experts as one call may take */
enum { TOKEN_EXPERTS = 32 };

/* 1: these experts can work together: plain gated networks, without adapters, and room for what
 * all of them give */
int cb_token_experts_fit(const struct cb_session *s, const struct ffn *const *f, int n);
/* out += weight[i] * f[i](in), i ascending: in and out are rows of the experts' width. The bits are
 * those of one expert after the other. */
void cb_token_experts(struct cb_session *s, const struct ffn *const *f, const float *weight, int n,
                      const float *in, int bits, float *out);

#endif
