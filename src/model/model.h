/* SPDX-License-Identifier: MIT */
/* model.h - weights bound into structs, hyper-parameters and the tokenizer; read-only once open. */
#ifndef MODEL_H
#define MODEL_H

#include "ctxbank.h"
#include "device/device.h"
#include "gguf/gguf.h"
#include "text/tok.h"

/* What one family does differently: a row of the table in families.c. */
struct arch {
    const char *text; /* the models of the family */
    const char *name; /* general.architecture, and the prefix of its metadata keys */
    enum rope_kind rope;
    enum act_kind act;
    int qkv_bias; /* 1: q, k and v must have biases */
};

const struct arch *cb_arch_find(struct gguf_str name); /* NULL: unknown */
const struct arch *cb_arch_at(int i);                  /* NULL past the last */

struct hparams {
    int n_layer, n_embd, n_head, n_kv, hd, n_ff, n_vocab, n_ctx_train;
    int n_rot;                             /* dimensions of a head that rotate */
    int window;                            /* sliding window in tokens, 0 = none */
    float norm_eps, rope_base, rope_scale; /* positions are divided by rope_scale */
};

struct layer {
    struct weight q, k, v, o; /* [n_head*hd][n_embd], 2 x [n_kv*hd][n_embd], [n_embd][n_head*hd] */
    struct weight gate, up, down;             /* 2 x [n_ff][n_embd], [n_embd][n_ff] */
    float *attn_norm, *ffn_norm;              /* [n_embd] */
    float *q_bias, *k_bias, *v_bias, *o_bias; /* or NULL */
};

struct cb_model {
    struct gguf *gguf;
    struct tok *tok;
    const struct arch *arch;
    struct device *dev;
    struct hparams hp;
    struct layer *layer;  /* [n_layer] */
    struct weight embd;   /* [n_vocab][n_embd], read by rows */
    struct weight output; /* [n_vocab][n_embd]; the same tensor as embd when tied */
    float *out_norm;      /* [n_embd] */
    float *inv_freq;      /* [n_rot / 2] radians for each position, scaling factors applied */
    uint64_t weights_bytes, packed_bytes;
    /* Preview of `output`; NULL until a session wants it, or if it would not pay. Atomic, because
     * other threads may report memory while it is made. */
    _Atomic(struct head_prune *) head_prune;
    int has_looked; /* 1: whether a preview pays has been decided */
    int64_t n_params;
    char *name;
    char *preset_dir; /* NULL = none */
    int rows_only;    /* 1: stores prepack nothing */
    int small_pages;  /* 1: stores take no huge pages */
    cb_log_fn log;    /* NULL = none */
    void *log_arg;
    uint64_t fingerprint; /* of shape and vocabulary, never 0: the same in every quantisation */
    uint64_t weights_hash; /* 0 until cb_model_weights_hash() has read them */
};

/* Writes a line to the caller's log. */
void cb_model_log(const struct cb_model *m, enum cb_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The type of most bytes in the layers' matrices. */
const char *cb_model_main_type(const struct cb_model *m);

/* Makes the preview of the output matrix, if it pays. */
int cb_model_prune_head(struct cb_model *m);

/* Hash of all weights, their types and names, and of the rotation's frequencies: equal for models
 * that compute the same. The first call reads the whole file; call with the device locked. Negative
 * status: CB_ENOMEM. */
int cb_model_weights_hash(struct cb_model *m, uint64_t *out);

/* cos and sin for positions pos0.. -> cs[n_tok][n_rot / 2][2] */
void cb_model_rope_table(const struct cb_model *m, int pos0, int n_tok, float *cs);

#endif
