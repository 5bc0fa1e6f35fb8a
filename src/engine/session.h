/* SPDX-License-Identifier: MIT */
/* session.h - one timeline: its bank, policy and attention, and the work space of a feed. */
#ifndef SESSION_H
#define SESSION_H

#include "attention/attention.h"
#include "ctxbank.h"
#include "model/head_prune.h"

/* Work space of the forward pass; sizes are known when the session opens, but for x and cs, which
 * grow with the longest prompt. */
struct work {
    int cap_tok;      /* tokens that x and cs hold */
    float *x;         /* [cap_tok][n_embd] residual stream */
    float *cs;        /* [cap_tok][n_rot/2][2] cos, sin */
    float *norm;      /* [chunk][n_embd] */
    float *qkv;       /* [chunk][(n_head + 2 n_kv) * hd] */
    float *att;       /* [chunk][n_head * hd] */
    float *gate, *up; /* [chunk][n_ff] */
    float *logits;    /* [n_vocab] of the last token */
    uint64_t bytes;
};

struct cb_session {
    struct cb_model *model;
    struct device *dev;
    int chunk; /* tokens that go through a layer at once, at most */
    int top;   /* logits that must be right after a decoded token; 0: all */
    struct head_prune_luck luck;
    struct bank bank;
    struct policy *policy;
    struct attention attention;
    struct work w;
    uint64_t device_bytes; /* work space that the device reserved; all sessions share it */
};

/* ---- shared_prefill.c: one prefill for many policies ---- */

/* May f take over the keys, values and queries of the prompt that `lead` computes? Both are empty,
 * store in the same form, and attend to the whole prompt densely. */
int cb_session_can_follow(const struct cb_session *f, const struct cb_session *lead);
/* As cb_session_prefill; follower i ends up as if it had been fed the first upto[i] of the tokens
 * (NULL: all). One that was fed fewer has no logits before its next feed. After a failure the
 * followers are empty. */
int cb_session_prefill_shared(struct cb_session *lead, struct cb_session *const *follower,
                              const int *upto, int n, const int32_t *tokens, int n_tok,
                              const struct cb_prefill *how);

/* ---- session.c ---- */

/* With a method that is not in the table; params->policy is not read. */
int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out);

size_t cb_session_tok_floats(const struct cb_session *s); /* of work space, a token of a feed */

/* ---- forward.c ---- */

/* Feeds tokens[n] (they fit). Logits of the last one land in w.logits. */
int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how);

#endif
