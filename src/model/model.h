/* SPDX-License-Identifier: MIT */
/* model.h - weights bound into structs, hyper-parameters and the tokenizer; read-only once open. */
#ifndef MODEL_H
#define MODEL_H

#include "base/page_guard.h"
#include "ctxbank.h"
#include "device/device.h"
#include "gguf/gguf.h"
#include "grammar/token_trie.h"
#include "rope.h"
#include "text/tok.h"
#include "trained_blocks.h"

struct cb_model;

enum norm_kind { NORM_RMS, NORM_LAYER };

/* Which layers do not rotate queries and keys */
enum unrotated {
    NOPE_NONE,
    NOPE_FOURTH, /* every fourth */
    NOPE_GLOBAL, /* those without a window, if others have one */
    NOPE_ALL
};

/* Where norms stand: in front of the blocks, after them (of what a block adds), or both */
enum norm_places { NORMS_BEFORE, NORMS_BOTH, NORMS_BEHIND };

/* Attention and feed-forward read the same residual stream */
enum parallel { PARALLEL_NEVER, PARALLEL, PARALLEL_IF_SHARED /* where they share a norm */ };

/* How layers mix tokens that have no keys: a state, or the last few tokens, stand for all earlier
 * ones. */
enum mixer {
    MIX_NONE,   /* the family has no such layers */
    MIX_DELTA,  /* gated delta net (Yang et al. 2024) */
    MIX_KDA,    /* the same with a decay of each channel of the key (Kimi team 2025) */
    MIX_MAMBA2, /* state space model (Dao and Gu 2024) */
    MIX_CONV    /* gated short convolution */
};

/* Which layers mix tokens so */
enum mixed {
    MIXED_BY_HEADS, /* those without KV heads */
    MIXED_LISTED,   /* those that metadata lists, or all but every nth */
    MIXED_BESIDE,   /* all, beside their attention */
    MIXED_ALL       /* all, and there is no attention */
};

/* Tensors that files of a family must have. Others are used wherever a file has them.
 * NORMS_ROTATED: queries and keys are normed after their rotation. VALUES_ARE_KEYS: layers without
 * attn_v have as values the keys before norm and rotation. */
enum {
    HAS_QK_NORM = 1,
    HAS_SINKS = 2,
    NORMS_ROTATED = 4,
    VALUES_ARE_KEYS = 8,
    HAS_GATE = 16,    /* attention's output has a gate: attn_gate, or, without that, what attn_q has
                         beside each head's query */
    HAS_STREAMS = 32, /* several residual streams, which are mixed in place of norms (stream_mix) */
    HAS_COMPRESSED = 64, /* attention as struct compressed has it, and streams as stream_blend */
    HAS_XIELU = 128,     /* feed-forward networks without a gate, with struct xielu */
    HAS_ALTUP = 256,     /* several residual streams, one of which goes through a layer (altup) */
    HAS_TARGET = 512     /* it guesses for another model, whose rows it reads (assistant.h) */
};

/* Queries grow with their position: times 1 + scale * log(1 + floor((position + offset) / length)),
 * in all layers, or in those that do not rotate. scale 0: they do not. */
struct temperature {
    float scale;
    int length, offset, unrotated;
};

/* What a layer's trained selector names for a query to read (selector.c). It scores stored keys of
 * its own, one a token for all heads. */
enum selects {
    SELECTS_NOTHING, /* there is none */
    SELECTS_TOKENS,  /* the best top_k tokens, the same for all heads (DSA, DeepSeek-V3.2). A score
                        is the sum over index heads of w * max(0, q . k) */
    SELECTS_BLOCKS,  /* for each KV head the best top_k blocks, the newest ones among them (MSA,
                        MiniMax-M3). A score is the largest q . k of the block's tokens */
    SELECTS_MEANS    /* the best top_k / ratio complete blocks of `ratio` tokens, the same for all
                        heads, and the tail (QSA, Qwen3.8). A score is the sum over index heads of
                        max(0, q . mean of the block's keys) */
};

/* What one family does differently: a row of the table in families.c. */
struct arch {
    const char *text; /* the models of the family */
    const char *name; /* general.architecture, and the prefix of its metadata keys */
    enum rope_kind rope;
    enum act_kind act;
    enum norm_kind norm;
    enum norm_places norms;
    enum parallel parallel;
    enum unrotated nope;
    int has;          /* HAS_... */
    int global_every; /* one layer in this many, the last, has no window; 0: all have one */
    float local_base; /* RoPE base of the layers with a window, unscaled; 0: that of all layers */
    int local_plain;  /* 1: layers with a window rotate unscaled */
    enum mixer mixer;
    enum mixed mixed;
    int tiled; /* value heads of delta nets: 1: head h has the key of head h % n; 0: neighbours
                  share one */
    int sigmoid_gate; /* 1: gates of delta nets are sigmoids; 0: SiLU, or as the kind of net has it
                       */
    int single; /* 1: a layer is one block, with one norm: a mixer, attention, or feed-forward */
    enum selects selects;             /* the layers' trained selectors */
    enum rope_kind selector_rope;     /* of their queries and keys */
    const char *out_norm;             /* tensor of the last norm; NULL = output_norm */
    int (*adapt)(struct cb_model *m); /* after the file's values are read; NULL = nothing */
};

/* Do feed-forward networks of the family do without a gate? Those of LayerNorm families may. */
static inline int cb_arch_ungated(const struct arch *a)
{
    return a->norm == NORM_LAYER || a->act == ACT_RELU2 || (a->has & HAS_XIELU);
}

const struct arch *cb_arch_find(struct gguf_str name); /* NULL: unknown */
const struct arch *cb_arch_at(int i);                  /* NULL past the last */

enum {
    ROPE_TABLES = 2,
    MOST_DRAFT = 16,   /* tokens of a draft, decoded together with the one before */
    MOST_GROUPS = 64,  /* of experts */
    MOST_STREAMS = 16, /* residual streams of hyper-connections */
    NGRAM_MOST = 8,    /* tokens of the longest n-gram that has an embedding */
    NGRAM_HEADS = 256  /* rows that make a token's embedding */
};

/* How a mixture of experts chooses */
struct moe_params {
    int n_expert, n_used; /* n_used: of the layer that uses most */
    int n_group, n_group_used; /* experts are in this many groups of one size, and are chosen within
                                  the best of these; 0 = no groups */
    int sigmoid;    /* 1: an expert's weight is the sigmoid of its logit; 0: a softmax of all */
    int root;       /* 1: it is the square root of the logit's softplus */
    int n_listed;   /* the first layers, in which a table says which experts a token has */
    int of_input;   /* 1: the weight scales what the expert reads, not what it gives */
    int normalises; /* 1: the weights of the chosen experts are scaled to sum 1 */
    int beside;     /* 1: a layer has a dense network beside its experts */
    int limited;    /* 1: networks have limits (struct ffn) */
    int n_latent;   /* numbers that experts read and give in place of n_embd; 0 = n_embd */
    float scale;    /* of the weights */
};

/* Multi-head latent attention (DeepSeek-V2): a token has one stored row for all heads, its n_rot
 * rotated numbers and its latent, which is also its value. A query head is brought into the space
 * of these rows, and what it reads, a latent, out of it, so that n_kv is 1 and hd n_rot + rank. */
struct latent_params {
    int rank;       /* numbers of the latent; 0 = keys and values of their own */
    int low;        /* rank of the queries' own projection; 0 = one matrix makes them */
    int key, value; /* dimensions of a head's unrotated key, and of its value, outside that space */
    float eps;      /* of the norms of latents and of the queries' own projection */
};

/* Trained selectors, keys attention.indexer.* */
struct selector_params {
    int n_head, hd;   /* index heads of queries, and their size, which is that of the one key */
    int top_k;        /* tokens that a query reads; of SELECTS_BLOCKS, blocks */
    int block, local; /* tokens of a block that is chosen whole, and newest blocks that are chosen
                         in any case; 0 = no blocks */
};

/* Attention of DeepSeek-V4. A token has one stored row, its key and its value for all heads, and a
 * query reads those of a window. Beside it, layers have entries: rows that stand for `ratio` tokens
 * each. What heads have read goes through a matrix of low rank, for each group of heads, before the
 * output's. */
struct compress_params {
    int low;                /* rank of the queries' own projection */
    int n_group, group_low; /* groups of heads; numbers that each of them becomes; 0 = no such
                              attention */
    int n_index, index_hd;  /* heads that score entries, and their size */
    int top_k;              /* entries that a query reads where they are scored */
    int n_step;             /* of Sinkhorn's algorithm, for struct stream_blend */
    float stream_eps;
};

/* Shapes of the layers that mix tokens without keys */
struct mixer_params {
    int n_tap;           /* tokens that the convolution reads, the current one included */
    int n_group, n_head; /* heads of keys and queries, and of values; 0: a convolution alone */
    int dk, dv;          /* of a head's state */
};

enum { POOL_RANK = 4 }; /* hparams.pooling of models that score pairs of texts */

struct hparams {
    int n_layer, n_embd, n_head, n_ff, n_vocab, n_ctx_train;
    int n_block; /* of the file: n_layer, and those that guess tokens after the next one */
    /* KV heads, head_dim and rotated dimensions of the layers that policies act on. Other layers
     * may have other ones: struct layer has each layer's own. */
    int n_kv, hd, n_rot;
    int heads_differ; /* 1: even layers that policies act on have different heads */
    int n_ff_max;     /* the widest feed-forward network of any layer or expert */
    int hd_max;       /* the largest head_dim of any layer */
    int kv_max;       /* numbers of the widest layer's keys of one token */
    struct latent_params latent;
    struct selector_params selector; /* n_head 0: there is none */
    struct compress_params compress;
    int one_row; /* 1: a token's key and value are one stored row */
    int window;  /* of layers that have one: a query sees the last `window` tokens; 0: no layer has
                  */
    int chunked; /* 1: it sees those of the last tokens that are in its own chunk of `window` */
    int n_shared_kv; /* the last layers, which have no keys and values of their own */
    int parallel;    /* 1: attention and feed-forward read the same residual stream */
    float norm_eps;
    float attn_scale, attn_cap;    /* of logits; cap 0 = none, else cap * tanh(logit / cap) */
    float embd_scale, resid_scale; /* of token embeddings; of what a block adds */
    struct temperature temperature;
    int norms_rotated; /* 1: RMS norm without weights of rotated q and k */
    int norms_values;  /* 1: RMS norm without weights of values */
    int n_input;  /* numbers that each layer is told of a token (struct layer_input); 0: none */
    int n_stream; /* residual streams; 1: there is one, as in most models */
    int altup;    /* 1: one of them, `active`, goes through a layer (struct altup) */
    int active;
    int stream_rank;              /* numbers that the gates of what blocks read are made of */
    enum rope_kind rope_kind;     /* of queries and keys */
    enum unrotated nope;          /* layers without rotation */
    float logit_scale, logit_cap; /* of the output's logits */
    struct rope_params rope[ROPE_TABLES]; /* [1]: of the layers with a window, if base > 0 */
    struct moe_params moe;
    struct mixer_params mix;
    int pooling; /* of embeddings, a value of files; 0 = unsaid */
};

/* w NULL: no norm. w and b are [n_set][n]: rows of n numbers are normed, row r with set r % n_set.
 */
struct norm {
    float *w, *b; /* b may be NULL */
    int n, n_set;
};

/* xIELU (Huang and Schlag 2024): positive * x^2 + beta * x for x > 0, and otherwise
 * negative * (e^min(x, eps) - 1 - x) + beta * x */
struct xielu {
    float positive, negative, beta, eps;
};

/* One feed-forward network, or one expert. gate.raw NULL: the activation of up alone. */
struct ffn {
    struct weight gate, up, down;           /* 2 x [n_ff][n_embd], [n_embd][n_ff] */
    float *gate_bias, *up_bias, *down_bias; /* or NULL */
    float limit; /* of the gate from above, and of what `up` gives on both sides; 0 = none */
    /* sparse 1: of a token's gates, the activation gets what exceeds their mean by `deviations`
     * times their standard deviation, and 0 for the others (Gaussian top-k) */
    int sparse;
    float deviations;
    struct xielu *xielu; /* the activation in place of the family's, or NULL */
};

/* What a layer is told of each token, n_input numbers: the token's row of a table, and a product of
 * its embedding. Their product with those that `gate` makes of the residual stream is added to it.
 */
struct layer_input {
    struct weight of_embd, gate, out; /* 2 x [n_input][n_embd], [n_embd][n_input] */
    struct norm norm, post_norm;      /* of what of_embd gives; of what is added */
};

/* Hyper-connections. With X the normed streams and r a linear map to a few numbers: a block reads
 * the mean over the streams of sigmoid(up silu(down X / n)) X, and stream i gets its result times
 * 2 sigmoid((inject X)_i / n). */
struct stream_mix {
    int n;                          /* streams */
    struct norm norm;               /* a set of weights for each stream */
    struct weight down;             /* [stream_rank][n * n_embd] */
    struct weight up[MOST_STREAMS]; /* [n] [n_embd][stream_rank] */
    struct weight inject;           /* [n][n * n_embd]; raw NULL after the last layer */
};

/* Embeddings of a token's last 2, 3, .. n_most tokens. The hash of each n-gram gives `per` rows of
 * a table; all rows side by side make keys and a value, and stream i gets the value by how well its
 * key fits the stream, with a convolution over tokens n_most apart (Qwen4-exp). */
struct ngrams {
    int n_most, per, n_head; /* n_head: rows of a token, (n_most - 1) * per */
    int dim, n_tap;          /* numbers of a row; taps of the convolution */
    int32_t eos;             /* stands for tokens before the text, or before the last one of it */
    int64_t mult[NGRAM_MOST], offset[NGRAM_HEADS], size[NGRAM_HEADS];
    struct weight table;      /* [rows][dim], read by rows */
    struct weight key, value; /* [n_stream * n_embd][n_head * dim], [n_embd][n_head * dim] */
    struct norm key_norm, query_norm, conv_norm; /* a set of weights for each stream */
    float *tap;                                  /* [n_tap][n_stream * n_embd] */
};

/* Hyper-connections (Xie et al. 2025). Products of all streams, divided by their root mean square,
 * are 2 n + n * n numbers m: with p = sigmoid(scale[0] m + base) + eps, a block reads the sum of
 * p_i stream_i. Stream j becomes 2 sigmoid(scale[1] m + base)_j times the block's result, plus the
 * sum of c_ij stream_i, where c is the softmax of each row of scale[2] m + base, made doubly
 * stochastic by Sinkhorn's algorithm. After the last layer there is p alone. */
struct stream_blend {
    struct weight fn;    /* [(2 + n) * n][n * n_embd], or [n][n * n_embd] */
    float *scale, *base; /* [3], or [1]; a number for each of m */
};

/* Alternating updates (Baykal et al. 2023). m = tanh(router norm(x) / n_embd) are n numbers of a
 * stream x. Before a layer, stream i gets the sum over j of (predict m)_ij stream_j; the active
 * stream goes through the layer, and what that changes of it is added to stream i times
 * 1 + (correct m)_i, with m of the layer's result. Beside attention, which reads x, a path of low
 * rank gives x + norm(high low x) (LAuReL). */
struct altup {
    struct norm router_norm, laurel_norm;
    struct weight router;     /* [n][n_embd] */
    float *predict, *correct; /* [n][n][n], [n][n] */
    float *scale;             /* [n_embd] of the active stream, as struct layer_input reads it */
    struct weight low, high;  /* [rank][n_embd], [n_embd][rank] */
    /* [n-1] [n_embd][n_embd]: spread makes the other streams from the first one, merge maps them
     * before all are averaged. Only the first layer has the one and only the last layer has the
     * other; raw is NULL elsewhere. Each result is scaled to the length of the first stream. */
    struct weight spread[MOST_STREAMS], merge[MOST_STREAMS];
};

/* The dense network of a layer works beside the experts. All three read the residual stream through
 * norms of their own, and what dense network and experts give is normed before it is added. */
struct beside {
    struct norm router_in, expert_in, dense_out, expert_out;
};

struct moe {
    int n_used;           /* experts of a token */
    struct weight router; /* [n_expert][n_embd] */
    /* [n_latent][n_embd] what experts read, and [n_embd][n_latent] what their sum goes through; raw
     * NULL = they read and give n_embd numbers */
    struct weight latent_in, latent_out;
    float *router_bias;    /* [n_expert] or NULL */
    float *choice_bias;    /* [n_expert] added to the weights to choose by, or NULL */
    float *expert_scale;   /* [n_expert] of the weights of the chosen ones, or NULL */
    int32_t *listed;       /* [n_vocab][n_used] the experts of each token, or NULL: it chooses */
    struct beside *beside; /* NULL: the layer has no dense network */
    struct ffn *expert;    /* [n_expert] */
    struct ffn shared;     /* read by every token; down.raw NULL = none */
    struct weight shared_gate; /* [1][n_embd] its sigmoid scales the shared one; raw NULL = none */
};

/* The matrices of latent attention beside struct layer's q [n_head*(key+n_rot)][low or n_embd] and
 * k [rank][n_embd], which makes the latent; there is no v. */
struct latent {
    struct weight q_low; /* [low][n_embd] what q reads; raw NULL = q reads the block's input */
    struct norm q_low_norm;
    struct weight k_rot;   /* [n_rot][n_embd] */
    struct norm norm;      /* of the latent */
    struct weight *absorb; /* [n_head] [rank][key]: a head's unrotated query -> the latent's */
    struct weight *expand; /* [n_head] [value][rank]: what a head has read -> its value */
    int n_head;
    void *own; /* the numbers of `absorb` where the file has them transposed, or NULL */
};

/* What names the tokens that a layer's queries read. Sizes are those of the model's hparams. */
struct selector {
    enum selects selects;
    int ratio; /* tokens of a block, of SELECTS_MEANS */
    int back;  /* > 0: it has no matrices, and the choice of the layer `back` before it is read */
    struct weight q;     /* [n_head*hd][low or n_embd] of the queries' own projection, or of x */
    struct weight k;     /* [hd][n_embd] */
    struct weight weigh; /* [n_head][n_embd] weights of the index heads; raw NULL = none */
    struct norm q_norm, k_norm;
};

/* Makes rows that stand for `ratio` tokens. A token gives two vectors of n numbers: values, and
 * logits, to which those of its place are added. An entry is, number by number, the sum of its
 * tokens' values by the softmax of their logits; then it is normed. With overlap a token gives two
 * of each: the second ones are for the entry of its own tokens, and the first ones for the next. */
struct compressor {
    int n, overlap;
    struct weight value, logit; /* 2 x [n or 2n][n_embd] */
    float *place;               /* [ratio][n or 2n] */
    struct norm norm;
};

/* Floats that remember what the tokens of incomplete entries have given (entry_maker.c) */
static inline size_t cb_entry_state(const struct compressor *x)
{
    return (x->overlap ? 2u : 1u) * 3u * (size_t)x->n;
}

/* The matrices of struct compress_params beside struct layer's q [n_head*hd][low], k [hd][n_embd]
 * and o [n_embd][n_group*group_low]; there is no v. */
struct compressed {
    struct weight q_low; /* [low][n_embd] what q reads */
    struct norm q_low_norm;
    struct weight *group; /* [n_group] [group_low][n_head/n_group*hd] */
    int n_group;
    int ratio;                      /* tokens of an entry; 0 = the layer has none */
    struct compressor entry, index; /* index.n 0 = every entry is read */
    struct weight index_q;          /* [n_index*index_hd][low] */
    struct weight weigh;            /* [n_index][n_embd] weights of the scoring heads */
};

/* What a layer with entries makes of a token, as columns of one row: values and logits of both
 * compressors, and queries and weights of the scoring heads */
struct entry_columns {
    int value, logit, index_value, index_logit, q, weight, n;
};

static inline struct entry_columns cb_entry_columns(const struct compressed *x)
{
    const int entry = x->entry.value.n_out, index = x->index.value.n_out;
    const int scored = 2 * entry + 2 * index, weight = scored + x->index_q.n_out;

    return (struct entry_columns){
        0, entry, 2 * entry, 2 * entry + index, scored, weight, weight + x->weigh.n_out
    };
}

/* A layer that mixes tokens without keys. What the convolution reads, n_conv numbers a token:
 * queries, keys and values of delta nets, in this order; values, keys and queries of Mamba-2; the
 * gates and the value of a short convolution. */
struct recurrent {
    enum mixer kind;
    int n_conv, tiled;
    int sigmoid_gate;    /* 1: the output's gate is a sigmoid; 0: SiLU */
    struct weight in[3]; /* side by side: what the convolution reads; raw NULL = fewer */
    struct weight gate;  /* of the output, [n_head*dv][n_embd or low] */
    struct weight rate;  /* of which decays are made: [n_head or n_head*dk][n_embd or low] */
    struct weight beta;  /* [n_head][n_embd]; raw NULL = steps take its place */
    struct weight gate_low,
        rate_low;          /* [low][n_embd] what gate and rate read; raw NULL = the input */
    struct weight out;     /* [n_embd][n_head*dv] */
    float *tap, *tap_bias; /* [n_tap][n_conv], [n_conv] or NULL */
    float *a, *dt, *skip;  /* as in device/recurrence.h: a[n_head]; skip or NULL */
    float *unit;      /* [2][dk] what scales queries and keys of length 1, as weights of a norm */
    struct norm norm; /* of each head's output, or of each group's; w NULL = none */
    void *own;        /* rows of matrices in another order than the file's, or NULL */
    size_t own_bytes;
};

struct layer {
    int n_kv, hd;     /* KV heads, 0 = it stores no keys and values; head_dim */
    int n_ff;         /* of its own feed-forward network */
    int window, rope; /* 0 = sees everything; the table that rotates it, -1 = none */
    /* > 0: it reads the keys and values of the layer `kv_back` before it. Where none is so far
     * before it, they are another model's (assistant.h). */
    int kv_back;
    int lends;                /* 1: later layers read its keys and values */
    struct weight q, k, v, o; /* [n_head*hd][n_embd], 2 x [n_kv*hd][n_embd], [n_embd][n_head*hd] */
    struct norm attn_norm, ffn_norm;           /* of what blocks read */
    struct norm attn_post_norm, ffn_post_norm; /* of what blocks add */
    struct norm q_norm, k_norm, v_norm;
    struct latent *latent;         /* or NULL */
    struct selector *selector;     /* or NULL */
    struct compressed *compressed; /* or NULL */
    struct recurrent *mixer;       /* or NULL */
    int gated;                     /* 1: what heads have read is weighed by gates */
    /* [n_head*hd][n_embd] these gates; raw NULL: where there are any, q has 2*n_head*hd rows, for
     * each head hd of its query, then hd of its gate */
    struct weight gate;
    struct norm rotated_norm;                 /* of q and k, after their rotation */
    float *q_bias, *k_bias, *v_bias, *o_bias; /* or NULL */
    float *sinks;                             /* [n_head] or NULL */
    struct ffn ffn;                           /* unused with moe, unless that is beside it */
    struct moe *moe;                          /* or NULL */
    struct layer_input *input;                /* or NULL */
    struct stream_mix *mix[3];     /* before attention, before the feed-forward, and after the last
                                      layer; NULL: norms stand there */
    struct stream_blend *blend[3]; /* the same, before norms; NULL: there is one stream, or mix */
    struct ngrams *ngrams;         /* or NULL */
    struct altup *altup;           /* or NULL */
    float scale;                   /* of the residual stream after the layer */
};

/* What a checkpoint keeps of a layer's window (readers/entries.c) */
static inline size_t cb_window_floats(const struct layer *y)
{
    return (size_t)(y->window - 1) * (size_t)y->hd + 1;
}

/* What a file has beside the text model, in bytes: blocks that guess tokens after the next one,
 * what reads images and sound, and tables that are made again */
struct unused {
    uint64_t later, senses, tables;
};

struct mtp_head;

/* The layers of a model that one rank has (layer_share.h) */
struct layer_share {
    int first, n_all;           /* the first one, among all; n_all 0: the rank has all layers */
    int policy_first, n_policy; /* the same of those that policies act on */
    int n_own, *at;             /* as n_global and global are of all layers; [n_own] or NULL */
};

struct cb_model {
    struct gguf *gguf;
    struct tok *tok;
    const struct arch *arch;
    struct device *dev;
    int stream_kv;                  /* 1: keys and values lie on the device a layer at a time */
    int n_threads, n_threads_batch; /* of the device's that work: at generated tokens, at prompts */
    struct hparams hp;
    struct layer *layer;  /* [n_layer], and one more: that of `mtp` */
    int draft_mtp;        /* most tokens of a draft by the file's own head; 0: it is not used */
    struct mtp_head *mtp; /* mtp_head.h, or NULL: there is none, or it is not used */
    const struct cb_model *mtp_of; /* the model whose head this is (mtp_head.h), or NULL */
    struct assistant *assistant;   /* assistant.h, or NULL: it is a model by itself */
    struct adapter *adapter;       /* [n_adapter] */
    int n_adapter;
    int max_rank; /* of the adapters' matrices; 0: there are none */
    /* The layers that policies act on, or NULL: all. They store keys, and have no window of the
     * model's own if others that store keys have none. */
    int *global, n_global;
    struct layer_share share;
    struct trained_blocks blocks;
    struct weight embd;   /* [n_vocab][n_embd], read by rows */
    struct weight inputs; /* [n_vocab][n_layer * n_input], the same; raw NULL: hp.n_input is 0 */
    struct weight output; /* [n_vocab][n_embd]; the same tensor as embd when tied */
    float *output_bias;   /* [n_vocab] or NULL */
    struct norm out_norm;
    struct weight classifier; /* [1 or 2 labels][n_embd], of models that rank texts; or raw NULL */
    uint64_t weights_bytes, packed_bytes;
    uint64_t open_bytes; /* most that a weight has in the file, of those that were packed */
    struct unused unused;
    /* Preview of `output`; NULL until a session wants it, or if it would not pay. Atomic, because
     * other threads may report memory while it is made. */
    _Atomic(struct head_prune *) head_prune;
    int has_looked; /* 1: whether a preview pays has been decided */
    /* The vocabulary as grammars want it; NULL until the first one is used */
    _Atomic(struct token_trie *) token_trie;
    int64_t n_params;
    char *name;
    char *preset_dir;        /* NULL = none */
    char matmul[16];         /* the library that multiplies prompts, "own" for none */
    int rows_only;           /* 1: stores prepack nothing */
    int small_pages;         /* 1: stores take no huge pages */
    struct in_step *in_step; /* engine/in_step.h: other ranks make the same calls; NULL: alone */
    cb_log_fn log;           /* NULL = none */
    void *log_arg;
    struct page_guard guard; /* of rows that lie in saved banks, of all sessions */
    uint64_t fingerprint;    /* of shape and vocabulary, never 0: the same in every quantisation */
    uint64_t weights_hash;   /* 0 until cb_model_weights_hash() has read them */
};

/* Writes a line to the caller's log. */
void cb_model_log(const struct cb_model *m, enum cb_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The type of most bytes in the layers' matrices. */
const char *cb_model_main_type(const struct cb_model *m);

/* Makes the preview of the output matrix, if it pays. */
int cb_model_prune_head(struct cb_model *m);

/* The trie of the vocabulary, made by the first call; any thread may call. CB_ENOMEM */
int cb_model_token_trie(struct cb_model *m, const struct token_trie **out);

/* Hash of all weights, their types and names, and of the rotation's frequencies: equal for models
 * that compute the same. The first call reads the whole file; call with the device locked. Negative
 * status: CB_ENOMEM. */
int cb_model_weights_hash(struct cb_model *m, uint64_t *out);

/* Numbers that an expert reads and gives */
static inline int cb_expert_width(const struct hparams *hp)
{
    return hp->moe.n_latent ? hp->moe.n_latent : hp->n_embd;
}

/* Do queries and gates of layer y come from one matrix? */
static inline int cb_queries_have_gates(const struct layer *y)
{
    return y->gated && !y->gate.raw;
}

/* What m->inputs tells layer l of token id -> out[n_input] */
void cb_model_input_row(const struct cb_model *m, int32_t id, int l, float *out);

/* last[n_most]: a token's id, and the ids before it, `eos` past a text's begin -> row[n_head] of
 * the table */
void cb_ngrams_rows(const struct ngrams *x, const int32_t *last, int32_t *row);

/* 1: layers have trained selectors */
static inline int cb_model_selects(const struct cb_model *m)
{
    return m->hp.selector.n_head > 0 || m->hp.compress.n_group > 0;
}

/* Floats of a token's row of selectors: queries of the index heads, the key, the heads' weights; 0
 * where there are none */
static inline size_t cb_selector_row(const struct hparams *hp)
{
    const struct selector_params *p = &hp->selector;

    return (size_t)p->n_head * (size_t)(p->hd + 1) + (size_t)p->hd;
}

/* The policy of sessions for which none is named */
static inline const char *cb_model_policy(const struct cb_model *m)
{
    return cb_model_selects(m) ? "own" : "full";
}

/* How many layers policies act on: all, or those in m->global */
static inline int cb_model_policy_layers(const struct cb_model *m)
{
    return m->global ? m->n_global : m->hp.n_layer;
}

/* Tables of rotation for sessions of n_ctx tokens; inv_freq NULL where no layer uses one */
int cb_model_rope(const struct cb_model *m, int n_ctx, struct rope rope[ROPE_TABLES]);

#endif
