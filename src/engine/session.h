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
    int cap_tok;         /* tokens that x and cs hold */
    float *x;            /* [cap_tok][n_embd] residual stream */
    float *cs;           /* [cap_tok][n_rot/2][2] cos, sin */
    float *norm;         /* [chunk][n_embd] */
    float *qkv;          /* [chunk][(n_head + 2 n_kv) * hd] */
    float *att;          /* [chunk][n_head * hd] */
    float *gate, *up;    /* [chunk][n_ff] */
    float *logits;       /* [n_vocab] of the last token */
    int cap_batch;       /* sessions that batch_logits holds */
    float *batch_logits; /* [cap_batch][n_vocab] */
    uint64_t bytes;
};

/* What of a feed goes through the layers next. */
struct step {
    int layer, token;
};

struct cb_session {
    struct cb_model *model;
    struct device *dev;
    struct cb_session_params params; /* as it was opened; the texts are owned */
    int chunk;                       /* tokens that go through a layer at once, at most */
    int top;                         /* logits that must be right after a decoded token; 0: all */
    struct head_prune_luck luck;
    struct bank bank;
    struct policy *policy;
    struct attention attention;
    struct work w;
    struct step next;      /* of the feed at hand */
    struct cb_prefill how; /* of a prompt that is fed in steps */
    int busy;              /* 1 while a call computes: who calls then is a callback */
    uint64_t device_bytes; /* work space that the device reserved; all sessions share it */
};

/* ---- session.c ---- */

/* With a method that is not in the table; params->policy is not read. */
int cb_session_open_as(cb_model *model, const struct cb_session_params *params,
                       const struct method *m, void *arg, cb_session **out);

size_t cb_session_tok_floats(const struct cb_session *s);   /* of work space, a token of a feed */
int cb_session_work_fit(struct cb_session *s, int n);       /* room for a feed of n tokens */
int cb_session_work_fit_batch(struct cb_session *s, int n); /* for a batch of n sessions */
void cb_session_forget(struct cb_session *s); /* all tokens; the caller holds the device's lock */

/* ---- forward.c ---- */

/* Feeds tokens[n] (they fit). Logits of the last one land in w.logits. */
int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how);
/* The same in steps: one chunk goes through one layer. Returns 1 while any is left, 0 at the end,
 * or a negative status. */
void cb_forward_begin(struct cb_session *s, const int32_t *tokens, int n);
int cb_forward_step(struct cb_session *s, const struct cb_prefill *how);
/* One token of each of n sessions of one model, which decode (they fit): as many rows as one
 * session takes at once, at most. */
int cb_forward_batch(struct cb_session *const *s, const int32_t *tokens, int n);

#endif
