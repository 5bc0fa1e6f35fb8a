/* SPDX-License-Identifier: MIT */
/* device.h - devices and their op table. An op is one function pointer; forward.c and attend.c call
 * nothing else. Shapes are checked when a session is planned, so ops return nothing. All floats of
 * activations are f32, rows are contiguous unless a stride (in floats) is given. */
#ifndef BACKEND_H
#define BACKEND_H

#include <stddef.h>
#include <stdint.h>

#include "gguf/dtype.h"
#include "par/par.h"

/* A matrix of the model. y[n_out] = W[n_out][n_in] x[n_in]. */
struct weight {
    char name[64]; /* of the tensor, for messages */
    enum dtype type;
    int n_in, n_out;
    const void *raw; /* rows as in the file, mapped read-only */
    void *packed;    /* the device's own layout, or NULL; made by load, freed by unload */
    size_t packed_bytes;
};

/* One product of a matmul call: y[n_tok][n_out] at y + t * y_stride. */
struct mm {
    const struct weight *w;
    const float *bias; /* [n_out] or NULL */
    float *y;
    int y_stride;
    int add;   /* 1: y += instead of y = (residual) */
    int act16; /* 1: activations with 16 bits where they would have 8; all of a call alike. A
                  token's result is then the same, bit for bit, whatever the n_tok of its call. */
};

enum rope_kind { ROPE_PAIR, ROPE_HALF }; /* (x0,x1),(x2,x3).. or (x0,x[n/2]),(x1,x[n/2+1]).. */
enum act_kind { ACT_SILU, ACT_GELU_TANH };

/* Stored forms of keys and values. Row types hold one token's head_dim values in a row. */
enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_TYPE_COUNT };
struct kv_type_info {
    const char *name;       /* "f16", as -ctk takes it */
    int block, block_bytes; /* head_dim must be a multiple of block */
};
extern const struct kv_type_info cb_kv_type[KV_TYPE_COUNT];
int cb_kv_type_find(const char *name); /* -1: unknown */
static inline size_t cb_kv_row_bytes(enum kv_type t, int hd)
{
    return (size_t)(hd / cb_kv_type[t].block) * (size_t)cb_kv_type[t].block_bytes;
}

/* KIVI: the oldest keys and values of a KV head are quantised on 2 or 4 bits, in blocks of 32
 * numbers: step and smallest as halves, then codes (kivi.c). Keys by channel over 32 tokens, values
 * by token over 32 channels. */
enum { KIVI_GROUP = 32 };
struct kv_kivi {
    int bits_k, bits_v;           /* 2 or 4; 0: never quantised */
    int n_k, n_v;                 /* slots 0.. that are quantised; those behind are rows as ever */
    const uint8_t *k;             /* [rows / 32][hd] blocks */
    const uint8_t *v;             /* [rows][hd / 32] blocks */
    const int32_t *row_k, *row_v; /* quantised row of each slot, ascending; NULL: the slot */
};

/* Blocks of so many slots may be prepacked: in place of their rows stand the integers that
 * attention multiplies, and beside those of f16 and bf16 what one is worth in each slot. */
enum { KV_PREPACK = 128 };

/* What one KV head's queries read: rows 0..n-1 of k and v, or rows idx[0..n-1]. With one query
 * (n_tok 1) attention can also write the scaled logits that it meets; attention and scores can read
 * logits that were written before in place of keys. */
struct kv_run {
    const void *k, *v;
    const int32_t *idx; /* ascending slots, or NULL */
    int n;
    const struct kv_kivi
        *kivi; /* rows are slots, `first` the slot of entry or index 0; NULL = none */
    int first;
    int prepacked; /* entries 0.. that are prepacked, a multiple of KV_PREPACK, n or not; no idx
                      then */
    const float *step_k, *step_v; /* [prepacked]; NULL where rows hold their scales */
    float *logit; /* [group][logit_stride of attn] of entries 0..n-1; NULL = not wanted */
    int given;    /* 1: logit is read, k is not */
    const int32_t
        *order; /* given, for scores: entry j's logit is logit[order[j]]; NULL = logit[j] */
};

/* Attention of n_tok queries over one part. Online softmax; K and V are read once for all query
 * heads of a KV head. causal: query i (0-based) reads the first n - n_tok + 1 + i entries of a run,
 * all runs then have n >= n_tok and no idx. window > 0: of those only the last `window`. A query
 * that reads nothing gets out 0 and lse -inf. */
struct attn {
    int n_tok, n_head, n_kv, hd; /* n_head = group * n_kv; query head h reads KV head h / group */
    float scale, softcap;        /* softcap 0 = none */
    int causal, window;
    enum kv_type type_k, type_v;
    const struct kv_run *run; /* [n_kv] */
    const float *q;           /* [n_tok][n_head][hd] at q + t * q_stride, rotated */
    int q_stride;
    int logit_stride; /* floats from one query head's logits to the next, in runs that have them */
    float *out;       /* [n_tok][n_head][hd], contiguous */
    float *lse;       /* [n_tok][n_head] log-sum-exp of the scaled logits, or NULL */
};

/* Second pass: attention score per stored entry. For each query head h:
 * out[h / per * out_stride + j] += sum over queries i of weight[i] * exp(s_ij - lse_i), masked as
 * in attn. Runs of one query may give the logits (without causal, window, logit or peak). */
struct score {
    struct attn a;       /* out unused, lse read unless `logit` */
    const float *weight; /* [n_tok], or NULL = 1 */
    int logit;           /* 1: sum the logits s_ij themselves */
    int peak;            /* 1: one row for all heads, of each query the largest of any head; not
                            with logit; all runs have the same n and see all of it */
    int per;             /* query heads that share a row of out; 0 = 1. More than those of a KV head
                            only where logits are given */
    float *out;          /* [n_head / per][out_stride] */
    int out_stride;
};

struct device;

struct ops {
    const char *name;
    /* Prepares a weight (repacks it); the matrix then needs w->raw no more, except for get_rows. */
    int (*load)(struct device *d, struct weight *w);
    void (*unload)(struct device *d, struct weight *w);
    /* Work space that calls up to these sizes need, of attention and scores with any number of
     * queries (an observation window may have more than n_tok); called when a session opens, may
     * fail. Bytes or negative */
    int64_t (*reserve)(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx);

    /* mm[n]: products that share x[n_tok][n_in]; all weights have the same n_in */
    void (*matmul)(struct device *d, const struct mm *mm, int n, const float *x, int n_tok);
    /* One token: y[rows[i]] for i < n, rows ascending; other rows' y stay, or become their
     * products, too. NULL: the device cannot. */
    void (*matmul_rows)(struct device *d, const struct mm *mm, const int32_t *rows, int n,
                        const float *x);
    /* Two products of as many rows, a gate and what it lets through, neither with bias nor add,
     * y_stride n_out: mm[0].y = act(mm[0].y) * mm[1].y. The second y is work space, and undefined
     * afterwards. */
    void (*matmul_glu)(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok);
    /* y[n][n_in] = rows ids[n] of the raw matrix, as f32 */
    void (*get_rows)(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y);
    /* y[t] = x[t] / rms(x[t]) * w; x and y may be the same; rows of n, at strides in floats.
     * n_row rows a token: (for QK norms) token t's row r is at x + t * stride + r * n */
    void (*rmsnorm)(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride);
    /* in place on x[n_tok][n_head][hd] at stride; cs[n_tok][n_rot / 2][2] = cos, sin; the dims
     * after n_rot stay */
    void (*rope)(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs);
    /* gate[n_tok][n] = act(gate) * up, in place */
    void (*glu)(struct device *d, enum act_kind act, float *gate, const float *up, int n,
                int n_tok);
    void (*add)(struct device *d, float *y, const float *x, size_t n); /* y += x */

    void (*attention)(struct device *d, const struct attn *a);
    void (*score)(struct device *d, const struct score *s);
    /* out,lse <- the attention over both parts; rows[n] of hd floats */
    void (*join)(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);
    /* x[n][hd] at stride (floats) -> n stored rows; and back */
    void (*kv_encode)(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows);
    void (*kv_decode)(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y);
    /* Can rows of these types be prepacked? NULL: none */
    int (*can_prepack)(const struct device *d, enum kv_type k, enum kv_type v, int hd);
    /* n_block times KV_PREPACK rows of keys (v = 0) or values, in place -> codes, and step[],
     * NULL for a type whose rows hold their scales. Only attention reads them, by which results do
     * not change where it multiplies integers in any case. */
    void (*prepack)(struct device *d, enum kv_type t, int v, int hd, void *rows, int n_block,
                    float *step);
    /* A row becomes entry j of one block. */
    void (*prepack_row)(struct device *d, enum kv_type t, int v, int hd, const void *row, int j,
                        void *codes, float *step);
    /* Entries j..j+n-1 of one block -> rows again, those without scales rounded; rows may be the
     * block */
    void (*unpack)(struct device *d, enum kv_type t, int v, int hd, const void *codes,
                   const float *step, int j, int n, void *rows);
    /* of each of rows x[n][hd], the row of y[m][hd] with the largest product (the lower one of
     * equals)
     * -> idx[n], dot[n]; m >= 1, hd <= 512 */
    void (*nearest)(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot);
    /* Of each of n stored tokens the largest of any head's logit[n_head][stride] -> best[n];
     * normed: less the head's log-sum-exp over them, which makes it the logarithm of a softmax */
    void (*best_head)(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best);
    /* the k largest of x[n]: ascending indices -> idx[k]; equal values: the lower index first. k <=
     * n */
    void (*topk)(struct device *d, const float *x, int n, int k, int32_t *idx);
};

struct device {
    const char *name, *isa; /* "cpu", "avx512" */
    const struct ops *ops;
    struct par *par;
    struct fair_lock *lock;
    void *impl; /* the backend's own */
};

/* What a device would else choose by itself. */
struct device_want {
    const char *isa; /* instruction set of the kernels; NULL = the best that the machine has */
    const char
        *matmul; /* who multiplies matrices of prompts: "own" (NULL means it), "onednn", ... */
};

/* name: "cpu", "ref", ...; NULL = "cpu". The device owns a team of n_threads. */
int cb_device_open(const char *name, int n_threads, struct device **out);
int cb_device_open_team(const char *name, const struct team_params *t,
                        const struct device_want *want, struct device **out); /* want may be NULL */
void cb_device_close(struct device *d);
/* Held by a thread that calls ops, loops or reserve, or has work space of theirs in use. CB_EARG:
 * the calling thread holds it already, so it is inside a callback. */
int cb_device_lock(struct device *d);
void cb_device_unlock(struct device *d);

/* One row of the registry in backend.c. */
struct backend {
    const char *name, *text;
    /* fills ops, isa, impl; name and par are set */
    int (*open)(struct device *d, const struct device_want *want);
    void (*close)(struct device *d);
    int (*available)(const char **why_not); /* 1 or 0 */
};
extern const struct backend cb_backend_ref, cb_backend_cpu;
const struct backend *cb_backend_at(int i); /* NULL past the last */

#endif
