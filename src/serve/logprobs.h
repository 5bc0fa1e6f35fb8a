/* SPDX-License-Identifier: MIT */
/* logprobs.h - how likely the model found a token, and which ones it found likeliest. */
#ifndef LOGPROBS_H
#define LOGPROBS_H

#include <stdint.h>

enum { CB_LOGPROBS_MOST = 20 }; /* likeliest tokens that a request may ask for */

struct token_logprob {
    int32_t id;
    float logprob; /* natural logarithm; -infinity for a token that cannot come */
};
struct job_token {
    struct token_logprob at;                    /* the sampled token */
    int n_top;                                  /* at most CB_LOGPROBS_MOST */
    struct token_logprob top[CB_LOGPROBS_MOST]; /* [n_top] the likeliest first */
};

/* logits[n_vocab] -> *out, of the distribution at temperature 1 */
void cb_logprobs(const float *logits, int n_vocab, int32_t id, int n_top, struct job_token *out);

#endif
