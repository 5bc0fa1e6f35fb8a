/* SPDX-License-Identifier: MIT */
/* device_answer.h - for tests of devices: random models, what they answer to two prompts and some
 * tokens, and how far two answers are apart. */
#ifndef DEVICE_ANSWER_H
#define DEVICE_ANSWER_H

#include "engine/session.h"

/* A small model of a family, with heads of 32 numbers, which all types of keys and values take.
 * n_layer: 0 = as the family has */
struct cb_model *cb_answer_model(const char *family, int n_layer, const struct cb_model_params *p);
/* The same on a device with two threads; working_set as in struct cb_model_params */
struct cb_model *cb_answer_model_on(const char *family, int n_layer, const char *device,
                                    uint64_t working_set);

/* Tokens of the first and of the second prompt, and decoded ones */
struct answer_size {
    int prompt, second, tokens;
};
extern const struct answer_size cb_answer_long; /* more than a thousand tokens at most */

/* What a layer chose for the last token */
struct answer_chosen {
    int layer;    /* 0: none */
    int n, fresh; /* slots; of them those that the token before did not have, but for its own */
    int32_t slot[1024];
};

/* CB_OK and an open session with chunks of 64 tokens and keys and values of one type, or the status
 * of a refusal */
int cb_answer_open(struct cb_model *m, const char *policy, const char *prefill, const char *type_kv,
                   struct cb_session **s);
/* Logits after each prompt and each token: [tokens + 2][n_vocab]. Caller frees. chosen[n_chosen]:
 * their layers are given */
float *cb_answer(struct cb_session *s, const struct answer_size *size, struct answer_chosen *chosen,
                 int n_chosen);
/* The same of cb_answer_long in a session of its own, and the memory that it took */
float *cb_answer_long_of(struct cb_model *m, const char *policy, const char *prefill,
                         const char *type_kv, struct answer_chosen *chosen, int n_chosen,
                         struct cb_memory *mem);
/* The largest difference of two answers' logits, as a share of b's largest logit */
double cb_answer_apart(const struct cb_model *m, const struct answer_size *size, const float *a,
                       const float *b);

#endif
