/* SPDX-License-Identifier: MIT */
/* session.h - one mutable timeline: tokens, bank, policy state, work space. */
#ifndef SESSION_H
#define SESSION_H

#include "ctxbank.h"
#include "model.h"
#include "policy.h"
#include "store.h"

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
    int n_seen; /* tokens fed so far: the next token's position */
    enum kv_type type_k, type_v;
    struct policy *policy;
    struct layer_plan *plan; /* [n_layer] */
    struct store *store;     /* [n_layer] */
    struct attend *attend;   /* attend.c's own */
    struct work w;
    uint64_t kv_peak_bytes, kv_read_bytes;
};

/* ---- forward.c ---- */

/* Feeds tokens[n] (they fit). Logits of the last one land in w.logits. */
int cb_forward(struct cb_session *s, const int32_t *tokens, int n, const struct cb_prefill *how);

/* ---- attend.c: what a layer stores and reads ---- */

int cb_attend_open(struct cb_session *s);
void cb_attend_close(struct cb_session *s);
uint64_t cb_attend_bytes(const struct cb_session *s); /* its work space */
/* Layer l, tokens at positions pos0..pos0+n-1 out of a feed that ends at position pos_end-1:
 * stores their k and v, attends. qkv: [n][(n_head + 2 n_kv) * hd], rotated -> out [n][n_head*hd] */
int cb_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
              float *out);
/* Layer l has seen the whole feed of n tokens: measure, observe, compact. */
int cb_attend_end(struct cb_session *s, int l, int n);

uint64_t cb_session_kv_bytes(const struct cb_session *s);

#endif
