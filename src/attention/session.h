/* SPDX-License-Identifier: MIT */
/* session.h - one mutable timeline: tokens, bank, policy state, work space. */
#ifndef SESSION_H
#define SESSION_H

#include "bank/store.h"
#include "bank/store_kivi.h"
#include "ctxbank.h"
#include "model/model.h"
#include "policy/policy.h"

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
    cb_model *model;
    struct device *dev;
    int n_ctx, chunk;
    int n_seen;   /* tokens fed so far: the next token's position */
    int n_feed;   /* tokens on their way through the layers, 0 between feeds */
    int ctx_end;  /* tokens fed when the last prompt ended */
    int decoding; /* 1 while one generated token is fed */
    int top;      /* logits that must be right after such a one; 0: all */
    enum kv_type type_k, type_v;
    struct kivi_form kivi_k, kivi_v; /* how the oldest of them are quantised */
    struct policy *policy;
    struct layer_plan *plan;         /* [n_layer] */
    struct layer_plan *plan_opened;  /* [n_layer] before hooks changed it */
    struct store *store;             /* [n_layer] */
    struct attend *attend;           /* attend.c's own */
    struct nearest_key *nearest_key; /* similar.c's own; NULL where nothing is merged */
    struct reading *reading;         /* reading.c's own; NULL when no layer chooses for itself */
    struct rolling *rolling;         /* rolled.c's own; NULL when positions stay */
    struct measured *measured;       /* measure.c's own; NULL when the plan wants nothing */
    struct select *select;           /* select.c's own; NULL when no layer chooses for others */
    struct prompt *prompt;           /* prefill.c's own */
    struct cross_layer
        *cross_layer; /* distant.c's own; NULL when no layer reads logits of another */
    struct work w;
    int n_most; /* slots that a KV head has held, before a policy dropped some */
    uint64_t kv_peak_bytes, kv_read_bytes;
    struct cb_session *const *follower; /* [n_follower] of the prefill at hand; follow.c */
    int n_follower;
    const struct cb_session *led_by; /* the session that computes the prefill at hand, or NULL */
};

/* ---- follow.c: one prefill for many policies ---- */

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

/* ---- memory.c ---- */

uint64_t cb_session_kv_bytes(const struct cb_session *s);

/* ---- forward.c ---- */

/* Feeds tokens[n] (they fit). Logits of the last one land in w.logits. */
int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how);

#endif
