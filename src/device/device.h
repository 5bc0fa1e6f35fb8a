/* SPDX-License-Identifier: MIT */
/* device.h - devices, their memory and their op table. An op is one function pointer; forward.c and
 * attend.c call nothing else. Shapes are checked when a session is planned, so ops return nothing.
 * Activations are f32. Rows are contiguous unless a stride (in floats) is given.
 *
 * Addresses that ops take lie in the device's memory (cb_device_alloc) or in the host's. A device
 * whose memory is the host's treats both alike. Another one copies what lies in the host's memory,
 * each time. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include "ctxbank.h"
#include "gguf/dtype.h"
#include "par/par.h"

struct lora;

/* A matrix of the model. y[n_out] = W[n_out][n_in] x[n_in]. */
struct weight {
    char name[64]; /* the tensor's name, for messages */
    enum dtype type;
    int n_in, n_out;
    const void *raw; /* rows as in the file, mapped read-only */
    void *packed;    /* the device's own layout, or NULL; made by load, freed by unload */
    size_t packed_bytes;
    struct lora *lora; /* what adapters add to its products, or NULL; ops do not look at it */
};

/* One product of a matmul call: y[n_tok][n_out] at y + t * y_stride. */
struct mm {
    const struct weight *w;
    const float *bias; /* [n_out] or NULL */
    float *y;
    int y_stride;
    int add;  /* 1: y += instead of y = (residual) */
    int bits; /* of activations where weights are quantised, 8 or 16; all products of a call agree
                 on it. A token's result is the same, bit for bit, for any n_tok. 0, for prompts: 8,
                 or what a library of matrix products uses. */
};

enum rope_kind { ROPE_PAIR, ROPE_HALF }; /* (x0,x1),(x2,x3).. or (x0,x[n/2]),(x1,x[n/2+1]).. */
/* ACT_GELU_TANH is the approximation of ACT_GELU by tanh. ACT_SWIGLU_OAI has both factors limited:
 * g = min(gate, 7), u = max(min(up, 7), -7), g / (1 + e^(-1.702 g)) * (u + 1). ACT_SIGMOID: 1 / (1
 * + e^-gate). ACT_RELU2: max(gate, 0)^2. */
enum act_kind { ACT_SILU, ACT_GELU_TANH, ACT_GELU, ACT_SWIGLU_OAI, ACT_SIGMOID, ACT_RELU2 };

/* Stored forms of keys and values. Row types hold one token's head_dim values in a row. */
enum kv_type { KV_F32, KV_F16, KV_BF16, KV_Q8_0, KV_TYPE_COUNT };
struct kv_type_info {
    const char *name;       /* "f16", as -ctk takes it */
    int block, block_bytes; /* head_dim must be a multiple of block */
};
extern const struct kv_type_info cb_kv_type[KV_TYPE_COUNT];
enum { KV_MAX_HD = 576 };              /* largest head_dim */
int cb_kv_type_find(const char *name); /* -1: unknown */
static inline size_t cb_kv_row_bytes(enum kv_type t, int hd)
{
    return (size_t)(hd / cb_kv_type[t].block) * (size_t)cb_kv_type[t].block_bytes;
}
/* 1: a prepacked row has a step beside it. Types of blocks hold their scales in the rows */
static inline int cb_kv_has_steps(enum kv_type t)
{
    return cb_kv_type[t].block == 1;
}

/* KIVI: the oldest keys and values of a KV head are quantised to 2 or 4 bits, in groups of 32, 64
 * or 128 numbers. A group is its step and its minimum as halves, then the codes (kivi.c). Keys are
 * grouped by channel over adjacent tokens, values by token over adjacent channels. Or keys are in
 * two planes (planes.h). */
enum { KIVI_GROUP = 32, KIVI_MAX_GROUP = 128, KIVI_PLANES = 8 };
struct kv_kivi {
    int bits_k, bits_v;           /* 2 or 4; 0: never quantised; keys: KIVI_PLANES */
    int group_k, group_v;         /* numbers in a group; 0: KIVI_GROUP */
    int lo_k, lo_v, n_k, n_v;     /* slots lo..n-1 are quantised, the others are plain rows */
    const uint8_t *k;             /* [rows / group_k][hd] groups; rows of the second plane */
    const uint8_t *plane;         /* the first plane: sketched blocks from slot 0 on */
    int plane_bits;               /* of the first plane */
    const uint8_t *v;             /* [rows][hd / group_v] groups */
    const int32_t *row_k, *row_v; /* quantised row of each slot, ascending; NULL: slot - lo */
};

/* Slots a prepacked block. The block holds, in place of its rows, the integers that attention
 * multiplies. For f16 and bf16 an array beside it holds each slot's quantisation step. */
enum { KV_PREPACK = 128 };
/* Attention sums each KV_SPLIT slots on their own, so removing whole splits in front leaves the
 * bits of the rest as they were. */
enum { KV_SPLIT = 512 };

/* The entries that one KV head's queries read: rows 0..n-1 of k and v, or rows idx[0..n-1]. With
 * one query (n_tok 1) attention can also write the scaled logits that it computes. Attention and
 * scores can read logits written earlier in place of keys. */
struct kv_run {
    const void *k, *v;
    const int32_t *idx; /* ascending slots, or NULL */
    int n;
    const struct kv_kivi *kivi; /* quantised slots, or NULL */
    int first;                  /* with kivi: the slot of entry 0, or of idx value 0 */
    int prepacked; /* the first entries are prepacked: a multiple of KV_PREPACK, whatever n is; idx
                      is then NULL */
    const float *step_k, *step_v; /* [prepacked]; NULL for types whose rows hold their scales */
    float *logit; /* [group][logit_stride of attn], for entries 0..n-1; NULL = none */
    int given;    /* 1: attention reads logit in place of k */
    const int32_t
        *order; /* for scores with given: entry j's logit is logit[order[j]]; NULL = logit[j] */
};

/* Which blocks of KV_PREPACK entries the queries of each KV head read, reads[n_kv][n_row][n_col].
 * Query i is in row (first + i) / KV_PREPACK, or in row i where each has its own. */
struct attn_blocks {
    const uint8_t *reads; /* 0: the block is skipped */
    int first;            /* below KV_PREPACK */
    int n_row, n_col;
    int each; /* 1: a row for each query; first is 0 */
};

static inline int cb_attn_blocks_row(const struct attn_blocks *b, int i)
{
    return b->each ? i : (b->first + i) / KV_PREPACK;
}

/* Attention of n_tok queries over one part, by online softmax. K and V are read once for all query
 * heads of a KV head. causal: query i (0-based) reads the first n - n_tok + 1 + i entries of a run;
 * every run then has n >= n_tok and no idx. window > 0: a query reads only the last `window` of
 * those entries. A query that reads nothing gets out 0 and lse -inf. */
struct attn {
    int n_tok, n_head, n_kv, hd; /* n_head = group * n_kv; query head h reads KV head h / group */
    float scale, softcap;        /* softcap 0 = none */
    int causal, window;
    int prompt; /* 1: queries of a prompt, so kernels may convert rows first, as if causal */
    enum kv_type type_k, type_v;
    const struct kv_run *run;         /* [n_kv] */
    const struct attn_blocks *blocks; /* NULL: all are read. Attention alone looks at them */
    const float *q;                   /* [n_tok][n_head][hd] at q + t * q_stride, rotated */
    int q_stride;
    int logit_stride; /* floats from one query head's logits to the next, in runs with logits */
    int logit_later;  /* 1: logits need not be there before head_topk() returns 0, or a wait */
    float *out;       /* [n_tok][n_head][hd], contiguous */
    float *lse;       /* [n_tok][n_head] log-sum-exp of the scaled logits, or NULL */
    /* Adjacent calls of the same family are likely to read the same memory, at addresses of their
     * own; NULL: none. Only how soon results come depends on it */
    const void *family;
};

/* Second pass: attention score per stored entry. For each query head h:
 * out[h / per * out_stride + j] += sum over queries i of weight[i] * exp(s_ij - lse_i), masked as
 * in attn. A run of one query may give the logits; causal, window, logit and peak are then 0. */
struct score {
    struct attn a;       /* out unused, lse read unless `logit` */
    const float *weight; /* [n_tok], or NULL = 1 */
    int logit;           /* 1: sum the logits s_ij themselves */
    int peak; /* 1: one row for all heads; each query adds its largest score over the heads. Not
                 with logit; all runs have the same n and every query sees all of it */
    /* 1, with logit: the score of an entry for a query is the sum over the heads of weight[n_tok]
     * [n_head] (or 1), q_stride apart, times max(0, s_ij), added to out[n_tok][out_stride]. n_kv is
     * 1, per 0. Devices with memory of their own do not have it */
    int rectified;
    int most; /* 1: in place of sums, each out becomes the largest of itself and the scores, as
                 logarithms to base 2. Without weights, logit and peak */
    int per;  /* query heads that share a row of out; 0 = 1. More than a KV head's group only where
                 logits are given */
    float *out; /* [n_head / per][out_stride] */
    int out_stride;
    /* > 0, with logit: each query has rows of its own, this many floats apart, and entries that it
     * does not see keep theirs. Devices with memory of their own do not have it */
    size_t tok_stride;
    /* > 0, with tok_stride: in place of logits, the largest one of each piece of entries, where
     * pieces end at multiples of `piece` and of KV_SPLIT. Each out[cb_score_piece()] becomes the
     * larger of itself and these; weights are NULL */
    int piece;
    /* [n_kv][out_stride], or NULL: the squares of each query's scores are added up as well, where a
     * query's score is the sum over the query heads of the row. With per a KV head's group, and
     * without logit, peak, most and given logits */
    float *squares;
};

/* The piece that entry j is in; numbers where both ends meet are left out. */
static inline int cb_score_piece(int piece, int j)
{
    return j / piece + j / KV_SPLIT;
}

/* The slots of each KV head whose sketched keys (sketch.h) score highest for one token's queries. A
 * slot's score is its largest softmax weight over the query heads of its KV head, where the softmax
 * is over all slots scanned. Ties: the lower slot. All of it is integers and fused products in a
 * stated order, so that every device chooses alike (ref_sketch.c). */
struct sketch_topk {
    int n_head, n_kv, hd, bits;
    float scale;           /* of a logit */
    const float *q;        /* [n_head][hd] rotated */
    const uint8_t *sketch; /* KV head h's first block is at sketch + h * head_bytes */
    size_t head_bytes;
    int half; /* 1: scores are made of half of the channels (struct sketch_strips) */
    /* Where others have more slots, and all choose together: SCORES leaves `top` and `sum` of the
     * pieces in the work space (struct sketch_work), and CHOICE, the next call, begins with the
     * heads' `lse` there, and leaves `rank`. Devices with memory of their own have ALL */
    enum sketch_step { SKETCH_ALL, SKETCH_SCORES, SKETCH_CHOICE } step;
    int n_block;  /* blocks scanned */
    int lo, hi;   /* slots lo..hi-1 of them may be chosen */
    int k;        /* most chosen */
    float miss;   /* > 0: as few as leave no query head of the KV head more than this weight */
    int32_t *idx; /* [n_kv][idx_stride] chosen slots, ascending */
    int idx_stride;
    int *n; /* [n_kv] how many */
    /* 1, without miss: idx may be written until cb_device_wait(). With them are the slots before lo
     * and from hi on, which the caller writes there as well: before idx, after the k */
    int later, before, after;
    void *work; /* cb_sketch_work() bytes for SKETCH_MAX_ITEMS, 64-byte aligned */
};

/* Scores of a trained selector's keys (index_strips.h) for each query: the sum over its heads, in
 * the order of struct strip_query, of weight * max(0, q . key), with the keys' 8 bits and queries
 * rounded to 8. */
struct index_scan {
    int n_tok, n_head, hd;
    int n;            /* keys; a query sees them all, or the first n_key[n_tok] of them */
    const int *n_key; /* or NULL */
    int k; /* > 0: the scores of the k best keys of a query are wanted. The others' may be -inf, and
              so may those of a few in a thousand of the k */
    const void *keys;    /* blocks */
    const float *q;      /* [n_tok][n_head][hd] at q + t * stride */
    const float *weight; /* [n_tok][n_head] at weight + t * stride; NULL: 1 */
    int stride;
    float
        *out; /* [n_tok][out_stride]; up to whole blocks of keys, entries from n on are arbitrary */
    size_t out_stride;
    void *work; /* cb_index_scan_bytes(), 64-byte aligned */
};

/* The k of a query's n keys that score highest by all their bits, of the n_near that index_scan
 * scores highest; ties: the earlier key */
struct index_topk {
    struct index_scan s; /* of one query; n_key, k, out and work are not looked at */
    int k, n_near;       /* k <= n_near <= n */
    int per;             /* key j stands for tokens j * per .. (j + 1) * per - 1 */
    int32_t *idx;        /* [k * per] the tokens, ascending */
    int after; /* tokens after all keys', which the list has as well. The caller writes them there
                */
    int later; /* 1: idx may be written until cb_device_wait() */
};

/* The k blocks of each head whose largest q . key is largest; ties: the earlier block */
struct block_topk {
    enum kv_type type;
    const void *keys; /* rows of hd numbers, which all heads score */
    const float *q;   /* [n_head][hd] */
    int n_head, hd;
    int block, n_block, k; /* block b is rows b * block .. (b + 1) * block - 1; 0 < k < n_block */
    int32_t *idx;          /* [n_head][idx_stride] -> their k * block rows, ascending */
    int idx_stride;
    int after; /* rows after all blocks, which lists have as well. The caller writes them there */
    int later; /* 1: idx may be written until cb_device_wait() */
};

/* What no key of a page can exceed: for a query head, the sum over c of max(q[c] * min[c],
 * q[c] * max[c]) with the page's bounds (sketch.h). A score is the largest, or the mean, over `per`
 * query heads: all of a KV head's, or 1. */
struct page_scores {
    int n_head, n_kv, hd;
    const float *q;        /* [n_head][hd] rotated */
    const uint8_t *bounds; /* KV head h's first page is at bounds + h * head_bytes */
    size_t head_bytes;
    int n_page, per, mean;
    float *out; /* [n_head / per][out_stride] */
    int out_stride;
};

/* The k pages of each list that score highest; ties: the earlier page. k < n_page */
struct page_topk {
    struct page_scores s; /* out is not written */
    int page, lo, k;      /* page p is slots lo + p * page .. lo + (p + 1) * page - 1 */
    int32_t *idx;         /* [n_head / per][idx_stride] -> their k * page slots, ascending */
    int idx_stride;
    int later; /* 1: idx may be written until cb_device_wait() */
    /* Slots before the first page and after the last one, which lists have as well: before idx,
     * after the k pages'. The caller writes them there */
    int before, after;
};

/* The k of a token's n candidates with the largest logit of any head, or log softmax over them
 * (normed), as best_head says; ties: the lower slot. 0 < k < n */
struct head_topk {
    const float *logit; /* [n_head][stride] */
    int n_head, stride, n, normed;
    int lo, k;    /* candidate j is slot lo + j */
    int32_t *idx; /* -> k slots, ascending, which may be written until cb_device_wait() */
    int after; /* slots from lo + n on, which the list has as well. The caller writes them there */
};

struct block_mass; /* prompt_blocks.h */
struct line_sums;
struct short_conv; /* recurrence.h */
struct decays;
struct recurrence;
struct device;

/* What crossed over to a device with memory of its own, and back */
struct device_traffic {
    uint64_t in_bytes, out_bytes;                 /* to the device, from it */
    uint64_t used_bytes, peak_bytes, limit_bytes; /* of its memory: now, at most so far, allowed */
    uint64_t weights_bytes, kv_bytes;             /* of what is used: weights, mirrored rows */
    uint64_t hit_rows, host_rows; /* stored rows that attention read on the device, on the CPU */
    uint64_t hit_sketches, host_sketches; /* blocks that searches scored there, and on the CPU */
    uint64_t weights_in_bytes;            /* of weights that stay with the host, for prompts */
    uint64_t kv_in_bytes, kv_out_bytes;   /* stored rows that were copied there, and back */
    uint64_t kv_ahead_bytes;              /* of those copied there: a layer ahead of need */
    uint64_t gathers, gathered_rows;      /* packed copies of chosen rows, of how many */
    double gather_s;                      /* in which the host packed them */
    uint64_t waits;                       /* of the host until all that was queued is done */
};

/* The weights of a layer */
struct layer_weights {
    const struct weight **w; /* [n] */
    int n;
};

/* A device with memory of its own. All of them are NULL where memory is the host's. */
/* The calls share tables of what lies where: the caller holds the device's lock. */
struct device_memory {
    void *(*alloc)(struct device *d, size_t bytes); /* NULL: no memory; cb_error() says why */
    void (*free)(struct device *d, void *p);
    uint64_t (*spare)(const struct device *d); /* bytes that alloc has without loss to weights */
    /* n pieces of `bytes` bytes at strides in bytes, from and to memory of either kind. What goes
     * to the host is there when the call returns. */
    void (*copy)(struct device *d, void *to, size_t to_stride, const void *from, size_t from_stride,
                 size_t bytes, int n);
    /* Waits for all ops, after which the host may read rows that kv_encode has stored. Fails if
     * something has failed since the last call. */
    int (*wait)(struct device *d);
    /* Host memory that the device may mirror, whole rows at a time. */
    int (*watch)(struct device *d, const void *rows, size_t row_bytes, size_t n_row);
    void (*unwatch)(struct device *d, const void *rows);
    void (*wrote)(struct device *d, const void *from, size_t bytes); /* the host has, there */
    /* Attention of this feed will read the lists of these runs: rows that are not on the device
     * may come meanwhile. Rows that the feed will store by then are not among them. Runs without
     * lists are all rows that the layer after the one that begins now will read; n 0: some that
     * are not known. NULL: rows come when they are read. */
    void (*ahead)(struct device *d, const struct kv_run *run, int n);
    /* A prompt will multiply chunks of n_tok tokens by the weights of these layers: they and the
     * prompt share the memory from here on. rows: bytes of stored rows that it would like to have
     * there. n_layer 0: no longer. */
    void (*weights_share)(struct device *d, const struct layer_weights *layer, int n_layer,
                          int n_tok, uint64_t rows);
    /* The weights of the layer that comes after that of the call before: they may come now. */
    void (*weights_ahead)(struct device *d, const struct weight *const *w, int n);
    /* What weights_share would lead to beside `more` bytes of work space that are still to come:
     * bytes of the weights that stay in the device's memory, and of what others are copied to */
    int (*weights_plan)(struct device *d, const struct layer_weights *layer, int n_layer, int n_tok,
                        uint64_t rows, uint64_t more, uint64_t *weights, uint64_t *ahead);
    void (*traffic)(const struct device *d, struct device_traffic *out);
    /* The CPU's, with the same lock and threads; NULL: there is none */
    struct device *(*host)(struct device *d);
};

struct ops {
    const char *name;
    const struct device_memory *memory; /* NULL: the device's memory is the host's */
    /* Repacks a weight. After that only get_rows reads w->raw. */
    int (*load)(struct device *d, struct weight *w);
    void (*unload)(struct device *d, struct weight *w);
    /* Reserves the work space of calls up to these sizes. Attention and scores may have any number
     * of queries (an observation window may exceed n_tok). Called when a session opens. Returns
     * bytes, or negative on failure. */
    int64_t (*reserve)(struct device *d, int n_tok, int max_in, int max_out, int n_head, int hd,
                       int n_ctx);
    /* The same for block_mass and line_sums, which no other session needs. Returns 0 or negative;
     * NULL: they need none */
    int (*reserve_blocks)(struct device *d, int n_head, int hd, int n_ctx);
    /* cb_device_limits (limits.h). NULL: they are not measured */
    int (*limits)(struct device *d, double *what);

    /* mm[n]: products that share x[n_tok][n_in]; all weights have the same n_in */
    void (*matmul)(struct device *d, const struct mm *mm, int n, const float *x, int n_tok);
    /* mm[n]: products of the same type and shape, each with tokens of its own: mm[i] multiplies
     * x[n_tok][n_in] at x + i * x_step, rows x_stride apart, in floats. The bits are those of n
     * calls of matmul. NULL: not supported. */
    void (*matmul_sets)(struct device *d, const struct mm *mm, int n, const float *x, size_t x_step,
                        size_t x_stride, int n_tok);
    /* One token: y[rows[i]] for i < n, rows ascending. Other rows of y keep their values or get
     * their products. NULL: not supported. */
    void (*matmul_rows)(struct device *d, const struct mm *mm, const int32_t *rows, int n,
                        const float *x);
    /* Two products with equal n_out: mm[0] is the gate, mm[1] the up projection. Neither has bias
     * or add; y_stride is n_out. mm[0].y = act(mm[0].y) * mm[1].y. mm[1].y is work space and
     * undefined afterwards. */
    void (*matmul_glu)(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok);
    /* y[n][n_in] = rows ids[n] of the raw matrix, as f32 */
    void (*get_rows)(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y);
    /* y[t] = x[t] / rms(x[t]) * w for rows of n floats, at strides in floats; x and y may be the
     * same. For QK norms a token has n_row rows: token t's row r is at x + t * stride + r * n */
    void (*rmsnorm)(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride);
    /* y[t] = (x[t] - mean) / deviation * w + b; b may be NULL; rows and strides as in rmsnorm */
    void (*layernorm)(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride);
    /* in place on x[n_tok][n_head][hd] at stride; cs[n_tok][n_rot / 2][2] = cos, sin; dims from
     * n_rot on are unchanged */
    void (*rope)(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs);
    /* gate[n_tok][n] = act(gate) * up, in place; up NULL: act(gate) */
    void (*glu)(struct device *d, enum act_kind act, float *gate, const float *up, int n,
                int n_tok);
    void (*add)(struct device *d, float *y, const float *x, float a, size_t n); /* y += a x */
    /* x = a x; cap > 0: x = cap * tanh(a x / cap) */
    void (*scale)(struct device *d, float *x, float a, float cap, size_t n);

    /* n calls that do not depend on each other */
    void (*attention)(struct device *d, const struct attn *a, int n);
    void (*score)(struct device *d, const struct score *s);
    /* out,lse <- the attention over both parts; rows[n] of hd floats */
    void (*join)(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);
    /* The softmax of head h has one more entry, with logit sink[h] and value 0: out[n_tok][n_head]
     * [hd] and lse[n_tok][n_head] without it -> with it */
    void (*sink)(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd);
    /* x[n][hd] at stride (floats) -> n stored rows; and back. Rows in the host's memory are there
     * after cb_device_wait(). Several threads may decode at once what lies in the host's memory,
     * to there, and where the device has no memory of its own encode some rows each. */
    void (*kv_encode)(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows);
    void (*kv_decode)(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y);
    /* 1: rows of these types can be prepacked. NULL: no type can */
    int (*can_prepack)(const struct device *d, enum kv_type k, enum kv_type v, int hd);
    /* Replaces n_block blocks of KV_PREPACK rows of keys (v = 0) or values by codes, in place, and
     * writes step[] (NULL for a type whose rows hold their scales). Only attention reads the codes.
     * Its results do not change where it multiplies integers anyway. */
    void (*prepack)(struct device *d, enum kv_type t, int v, int hd, void *rows, int n_block,
                    float *step);
    /* Prepacks one row as entry j of a block. */
    void (*prepack_row)(struct device *d, enum kv_type t, int v, int hd, const void *row, int j,
                        void *codes, float *step);
    /* Entries j..j+n-1 of one block -> rows. Types with step[] come back rounded. rows may be the
     * block */
    void (*unpack)(struct device *d, enum kv_type t, int v, int hd, const void *codes,
                   const float *step, int j, int n, void *rows);
    /* For each row of x[n][hd], the row of y[m][hd] with the largest dot product (ties: the lower
     * index) -> idx[n], dot[n]; m >= 1 */
    void (*nearest)(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot);
    /* best[j] = the largest logit[n_head][stride] of stored token j over the heads, j < n; normed:
     * each logit less its head's log-sum-exp over the n tokens, that is, a log softmax */
    void (*best_head)(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best);
    /* 0: the device leaves it to best_head and topk. NULL: it always does */
    int (*head_topk)(struct device *d, const struct head_topk *t);
    /* lse[h] = the log-sum-exp of the n entries of logit[n_head][stride]; none: -inf. NULL: the
     * device has none */
    void (*head_lse)(struct device *d, const float *logit, int stride, int n_head, int n,
                     float *lse);
    /* the k largest of x[n] -> idx[k], ascending indices; ties: the lower index. k <= n */
    void (*topk)(struct device *d, const float *x, int n, int k, int32_t *idx);
    /* n_block blocks of SKETCH_BLOCK rows of keys -> sketches. The first n_out rows of the first
     * block do not count for the range of its channels. Sketches in mirrored memory are written
     * through. */
    void (*sketch)(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch);
    void (*sketch_topk)(struct device *d, const struct sketch_topk *s);
    /* n_page pages of `page` rows of keys -> bounds. Rows that kv_encode has stored need not have
     * been waited for; bounds in mirrored memory are there after cb_device_wait(). */
    void (*bounds)(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds);
    void (*page_scores)(struct device *d, const struct page_scores *s);
    /* 0: the device leaves it to page_scores and topk. NULL: it always does */
    int (*page_topk)(struct device *d, const struct page_topk *t);
    /* NULL: the device has none */
    void (*index_scan)(struct device *d, const struct index_scan *s);
    /* Keys x[n][hd], `stride` floats apart, become keys at.. of strips (index_strips.h) in the
     * host's memory, as kv_encode stores rows. Both are NULL where the device has no such strips of
     * its own, which it mirrors in rows of cb_strip_row_bytes(). */
    void (*strips_put)(struct device *d, const float *x, int n, int stride, int hd, int at,
                       void *strips);
    /* 0: the device leaves it to the CPU. NULL like strips_put, as mean_rows is */
    int (*index_topk)(struct device *d, const struct index_topk *t);
    /* The mean of n stored rows -> mean[hd] in the device's memory. Rows that kv_encode has stored
     * need not have been waited for. 0: the device leaves it to the CPU */
    int (*mean_rows)(struct device *d, enum kv_type t, const void *rows, int n, int hd,
                     float *mean);
    /* 0: the device leaves it to the CPU. NULL: it always does */
    int (*block_topk)(struct device *d, const struct block_topk *t);
    /* These two are NULL where they are not supported. */
    void (*block_mass)(struct device *d, const struct block_mass *s);
    void (*line_sums)(struct device *d, const struct line_sums *s);
    /* Layers that remember without keys; n calls that do not depend on each other */
    void (*short_conv)(struct device *d, const struct short_conv *c, int n);
    void (*decays)(struct device *d, const struct decays *x);
    void (*recurrence)(struct device *d, const struct recurrence *r, int n);
};

struct device {
    const char *name, *isa; /* "cpu", "avx512" */
    int index;              /* which of the backend's devices */
    const struct ops *ops;
    struct par *par;
    struct fair_lock *lock;
    void *impl; /* the backend's own */
};

/* Choices that a device otherwise makes by itself. */
struct device_want {
    const char *isa; /* instruction set of the kernels; NULL = the best that the machine supports */
    const char *matmul; /* library for the matrix products of prompts: "own" (NULL: the same),
                           "onednn", ... */
    uint64_t
        working_set; /* most bytes of the device's own memory; 0 = what it has, less a reserve */
    int stream_kv;   /* 1: rows are copied to the device whenever a layer reads them; none stay */
    const char *cache_dir; /* folder for compiled kernels; NULL = none is kept */
    cb_log_fn log;         /* for notes, such as an op that the CPU does instead; NULL = none */
    void *log_arg;
};

/* Whether there is such a device, or kind of device: CB_EARG, CB_EUNSUPPORTED. "auto" is one. */
int cb_device_check(const char *name);
/* name: "cpu", "ref", "opencl:1" (a backend and which of its devices, counted from 0), ...; NULL =
 * "cpu". The device owns a team of threads. */
int cb_device_open_team(const char *name, const struct team_params *t,
                        const struct device_want *want, struct device **out); /* want may be NULL */
void cb_device_close(struct device *d);
/* A thread holds the lock while it calls ops, loops or reserve, or uses their work space. CB_EARG:
 * the calling thread already holds it, that is, it is inside a callback. */
int cb_device_lock(struct device *d);
void cb_device_unlock(struct device *d);
/* 1: the calling thread may use the device: it holds the lock, or opens the device, which nobody
 * else knows yet. For asserts */
int cb_device_is_mine(const struct device *d);
/* For a caller that needs no op but the tables of a device's own memory: a fork, a plan, a bank
 * that is filled. 1: locked, for cb_device_unlock(); 0: the memory is the host's, or the calling
 * thread holds the lock already. */
int cb_device_lock_memory(struct device *d);

/* ---- memory: of a device that has its own, with the lock ---- */

/* 64-byte aligned, not zeroed. The host may not touch it, only copy. NULL: no memory, cb_error()
 * says why. */
void *cb_device_alloc(struct device *d, size_t n, size_t size);
void cb_device_free(struct device *d, void *p);   /* NULL is allowed */
uint64_t cb_device_spare(const struct device *d); /* UINT64_MAX where memory is the host's */
/* As in struct device_memory */
void cb_device_copy(struct device *d, void *to, const void *from, size_t bytes);
void cb_device_copy_rows(struct device *d, void *to, size_t to_stride, const void *from,
                         size_t from_stride, size_t bytes, int n);
int cb_device_wait(struct device *d);
/* The device whose ops compute in the host's memory, of what they have computed: d itself, or the
 * CPU beside it; NULL: there is none */
struct device *cb_device_host(struct device *d);
/* All 0 where the device's memory is the host's */
struct device_traffic cb_device_traffic(const struct device *d);

/* One row of the registry in device.c. */
struct backend {
    const char *name, *text;
    /* fills ops, isa and impl; name, index and par are already set */
    int (*open)(struct device *d, const struct device_want *want);
    void (*close)(struct device *d);
    int (*available)(const char **why_not); /* 1 or 0 */
    int own_memory;                         /* 1: its devices have memory of their own */
    /* The model of device j, and its bytes; 0: there are fewer. NULL: they have no numbers */
    int (*unit_at)(int j, char *text, size_t size, uint64_t *bytes);
};
extern const struct backend cb_backend_ref, cb_backend_cpu, cb_backend_opencl, cb_backend_cuda;
const struct backend *cb_backend_at(int i); /* NULL past the last */

#endif
