/* SPDX-License-Identifier: MIT */
/* binder.h - for the files that bind the tensors of a model. A part of a tensor's rows is a matrix
 * of its own. */
#ifndef BINDER_H
#define BINDER_H

#include "model.h"

struct binder {
    struct cb_model *m;
    char *bound; /* [n_tensor] */
    char name[64];
};

/* NULL: the file has no such tensor */
const struct gguf_tensor *cb_bind_find(const struct binder *b, const char *name);
/* The same; it is now bound, or missing */
int cb_bind_need(struct binder *b, const char *name, const struct gguf_tensor **out);
int cb_bind_check_shape(const struct binder *b, const struct gguf_tensor *t, const char *name,
                        int64_t d0, int64_t d1, int64_t d2);
/* Rows [row, row + n_out) of all the tensor's rows -> w */
void cb_bind_take_rows(struct binder *b, const struct gguf_tensor *t, const char *name, int64_t row,
                       int n_out, struct weight *w);
/* A matrix [n_out][n_in] */
int cb_bind_matrix(struct binder *b, const char *name, int n_in, int n_out, struct weight *w);
/* All n numbers of a tensor */
int cb_bind_f32(struct binder *b, const struct gguf_tensor *t, int64_t n, float **out);
/* A vector as f32; *out stays NULL when it is optional and absent */
int cb_bind_vector(struct binder *b, const char *name, int must, int n, float **out);
/* A table [n_out][n_in] of numbers 0..below-1, for the caller to free even after a failure */
int cb_bind_table(struct binder *b, const char *name, int n_in, int n_out, int below,
                  int32_t **out);
/* A norm's name with ".weight", or with ".bias" */
const char *cb_bind_part(char (*buf)[72], const char *name, const char *what);
int cb_bind_norm(struct binder *b, const char *name, int must, int n, struct norm *out);
/* blk.L.NAME */
const char *cb_bind_in_layer(struct binder *b, int l, const char *name);

/* ---- recurrent.c ---- */

/* What mixes the tokens of layer l without keys */
int cb_recurrent_bind(struct binder *b, int l, struct layer *y);
/* Matrix i; NULL past the last */
struct weight *cb_recurrent_weight(struct recurrent *x, int i);
void cb_recurrent_free(struct recurrent *x);

/* ---- stream_mix.c ---- */

/* A norm with weights for each residual stream; name: with its suffix */
int cb_stream_norm(struct binder *b, const char *name, struct norm *out);
/* What layer l has as NAME_norm, NAME_down, NAME_up and NAME_inject; l < 0: of no layer, without
 * inject */
int cb_stream_mix_bind(struct binder *b, int l, const char *name, struct stream_mix **out);
/* Matrix i; NULL past the last */
struct weight *cb_stream_mix_weight(struct stream_mix *x, int i);
void cb_stream_mix_free(struct stream_mix *x);

/* ---- altup.c ---- */

/* What layer l does to the residual streams, and how sparse the gates of its network are */
int cb_altup_bind(struct binder *b, int l, struct layer *y);
/* Matrix i; NULL past the last */
struct weight *cb_altup_weight(struct altup *x, int i);
void cb_altup_free(struct altup *x);

/* ---- ngrams.c ---- */

int cb_ngrams_bind(struct binder *b, int l, struct layer *y);
void cb_ngrams_free(struct ngrams *x);

/* ---- latent.c ---- */

/* The attention of layer l of a model whose keys and values are latents */
int cb_latent_bind(struct binder *b, int l, struct layer *y);
void cb_latent_free(struct latent *x);

/* ---- compressed.c ---- */

/* The attention of layer l of a model with compressed rows, and the streams round its blocks */
int cb_compressed_bind(struct binder *b, int l, struct layer *y);
/* Matrix i; NULL past the last */
struct weight *cb_compressed_weight(struct compressed *x, int i);
void cb_compressed_free(struct compressed *x);
int cb_stream_blend_bind(struct binder *b, int l, struct layer *y);
void cb_stream_blend_free(struct stream_blend *x);

/* A norm without weights */
int cb_bind_plain_norm(int n, struct norm *out);
/* Part of a fused bias, rows [from, from + n) of x -> *out; x NULL: nothing */
int cb_bind_cut(const float *x, int from, int n, float **out);
void cb_bind_free_norm(struct norm *x);
void cb_bind_free_ffn(struct ffn *f);

#endif
