/* SPDX-License-Identifier: MIT */
/* toy.h - a session without weights: the test supplies each layer's queries, keys and values. */
#ifndef TOY_H
#define TOY_H

#include "attention/attend.h"
#include "engine/session.h"

struct toy {
    struct cb_model model;
    struct cb_session *s;
    int n_tok, row;
    float *qkv; /* [n_layer][n_tok][row] queries, keys, values of a token */
};

/* A model's shape: layers, heads, KV heads, channels of a head and those that RoPE rotates, tokens
 */
#define CB_TOY_SHAPE(layers, heads, kv_heads, channels, rotated, tokens)                           \
    {                                                                                              \
        .n_layer = (layers), .n_embd = 32, .n_head = (heads), .n_kv = (kv_heads),                  \
        .hd = (channels), .n_ff = 32, .n_vocab = 16, .n_ctx_train = (tokens), .n_rot = (rotated)   \
    }

/* Opens a model file; NULL: this machine or this build lacks the ISA of p, which is not scalar */
cb_model *cb_toy_open_file(const char *path, const struct cb_model_params *p);
/* A session of policy full with f32 keys and values */
cb_session *cb_toy_exact_session(cb_model *m, int n_ctx, int chunk);
/* Each policy bad[i][0] is refused, and the error has bad[i][1]. */
void cb_toy_all_refused(cb_model *m, const char *const (*bad)[2], size_t n);

/* Random rows for n_tok tokens from a seed: in [-1, 1), in the order of the scripts that compute
 * the formulas (all queries, then keys, then values; layer, head, token). Fails the test if the
 * session does not open. */
void cb_toy_open(struct toy *t, const char *device, int n_threads, const struct hparams *hp,
                 int n_tok, const char *policy, const char *type_k, const char *type_v,
                 unsigned seed);
/* The same with f32 keys and values, two threads and a prefill form. */
void cb_toy_open_prefill(struct toy *t, const char *device, const struct hparams *hp, int n_tok,
                         const char *policy, const char *prefill, unsigned seed);
void cb_toy_close(struct toy *t);
/* The next n tokens as a prompt in chunks, or as one decoded token (n = 1).
 * out[n_layer][n][n_head * hd], or NULL */
void cb_toy_prompt(struct toy *t, int n, int chunk, float *out);
void cb_toy_decode(struct toy *t, float *out);
float *cb_toy_row(struct toy *t, int l, int tok);
/* Runs layer l's attention on rows qkv[n] of tokens at positions pos0.. Fails the test if attention
 * fails. */
void cb_toy_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
                   float *out);

/* Opens a tiny model from a temporary file, which is removed when this returns; then sessions of
 * it. */
struct tiny;
struct cb_model *cb_toy_model(const struct tiny *tiny, const char *device, int n_threads);
struct cb_model *cb_toy_model_with(const struct tiny *tiny, const struct cb_model_params *params);
struct cb_session *cb_toy_session(struct cb_model *m, const char *policy, const char *type_kv,
                                  int chunk);

/* Fails the test unless a session is refused as a wrong argument, with `why` in the message. */
void cb_toy_refused(struct cb_model *m, const struct cb_session_params *params, const char *why);

/* The type of values in a session with these keys: the same, or q8_0 beside planes */
const char *cb_toy_values(const char *type_k);

/* TOY_TEXT tokens without repetition, the same at each call */
enum { TOY_TEXT = 400 };
const int32_t *cb_toy_text(const struct cb_model *m);

#endif
