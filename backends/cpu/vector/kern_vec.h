/* SPDX-License-Identifier: MIT */
/* kern_vec.h - the kernels of an ISA except matrix products: the small ops, row by row, and the
 * pieces of attention, block by block. vec_ops.c and attn.c hold the threaded ops over them. */
#ifndef KERN_VEC_H
#define KERN_VEC_H

#include "device/device.h"

enum {
    KEY_BLOCK = KV_PREPACK, /* keys a block of logits */
    KEY_SPLIT = KV_SPLIT,   /* keys a split, summed independently; a multiple of KEY_BLOCK */
    MAX_TILE = 12,          /* most rows of a register tile in any ISA */
    MAX_PANEL = 32,         /* most keys of a panel */
    MAX_HD = KV_MAX_HD,     /* largest head */
    SUB_TILES = 3,          /* register tiles that one block of logits covers */
};

/* Stored rows that a kernel reads, and the next block's rows, which it prefetches meanwhile.
 * Kernels may read whole panels: the addresses past row n point to any valid rows. */
struct kern_rows {
    enum kv_type t;
    int n, n_ahead;
    const char *const *row, *const *ahead;
    size_t bytes; /* bytes a row */
};

/* A block's logits, as powers of 2, which online_softmax() turns into weights */
struct kern_logits {
    float *s;             /* [rows][KEY_BLOCK] */
    int rows, n;          /* rows: at most SUB_TILES * MAX_TILE; n: logits a row, whole panels */
    const int *lo, *seen; /* [rows] entries of the block outside [lo - from, seen) get weight 0 */
    int from;
    float cap;           /* > 0: a logit becomes cap * tanh(logit) */
    float *m, *l;        /* [rows] running maximum and running sum, up to and with this block */
    float *sum, *factor; /* [rows] this block's sum; factor that rescales the earlier sums */
};

/* A block's weights, as online_softmax() leaves them */
struct kern_soft {
    const float *s;      /* [rows][KEY_BLOCK] */
    const float *sum;    /* [rows] sums of the weights */
    const float *factor; /* [rows] factor that rescales the earlier sums */
    const int *seen;     /* [rows]: a row's weights are 0 from this entry on */
    int rows, mr;        /* in tiles of mr */
};

/* Logits of packed queries against packed keys. Queries are packed in tiles of mr rows. */
struct kern_qk {
    size_t (*q_bytes)(int hd); /* of a packed row */
    size_t (*k_bytes)(int hd); /* of a packed key */
    void (*pack_q)(const float *const *q, float scale, int rows, int mr, int hd, void *qp);
    /* rows -> panels of `nk` keys; the last panel's tail is arbitrary */
    void (*pack_k)(const struct kern_rows *k, int hd, void *kp);
    /* s[rows][KEY_BLOCK] = q k for n keys, rounded up to whole panels */
    void (*mul)(const void *qp, int rows, int mr, const void *kp, int n, int hd, float *s);
    /* the same logits for one tile, straight from the stored rows */
    void (*direct)(const void *qp, int rows, const struct kern_rows *k, int hd, float *s);
};

/* Blocks of KEY_BLOCK prepacked entries: the integers that attention computes from stored rows, and
 * the same products with them. hd is a multiple of 32. step[KEY_BLOCK] is NULL for a type whose
 * rows hold their scales. */
struct kern_prepack {
    void (*keys)(const struct kern_rows *k, int hd, void *codes, float *step);
    void (*values)(const struct kern_rows *v, int hd, void *codes, float *step);
    /* prepacks one row as entry j of a block of keys or values */
    void (*put_key)(enum kv_type t, const void *row, int hd, int j, void *codes, float *step);
    void (*put_value)(enum kv_type t, const void *row, int hd, int j, void *codes, float *step);
    /* unpacks entry j of a block of keys or values */
    void (*open_key)(enum kv_type t, const void *codes, const float *step, int hd, int j,
                     void *row);
    void (*open_value)(enum kv_type t, const void *codes, const float *step, int hd, int j,
                       void *row);
    /* ahead: codes to prefetch, or NULL */
    void (*mul)(const void *qp, int rows, int mr, const void *codes, const float *step,
                const void *ahead, int hd, float *s);
    void (*pv)(const struct kern_soft *s, const void *codes, const float *step, const void *ahead,
               int hd, float *o);
};

struct kern_attn {
    int mr; /* rows of a register tile */
    int nk; /* keys of a panel */
    int vw; /* floats a vector; output rows are padded to a multiple of it */
    const struct kern_qk *qk[KV_TYPE_COUNT];
    /* rows -> f32 v[n][hd_pad] */
    void (*pack_v)(const struct kern_rows *k, int hd, int hd_pad, float *v);
    void (*online_softmax)(const struct kern_logits *x); /* in place: 2^(s - m) */
    /* o[rows][hd_pad] = o * factor[rows] + s v, over v->n entries */
    void (*pv)(const struct kern_soft *s, const struct kern_rows *v, int hd_pad, float *o);
    /* q8_0, and with qk_half f16 and bf16 rows as integers, in no more bytes than f32, and the same
     * product with them; NULL = not supported. hd is a multiple of 32. rows become the entries from
     * `at` on, a multiple of 16. pv_i16 reads n of the packed entries. */
    void (*pack_v_i16)(const struct kern_rows *v, int hd, int at, void *vp);
    void (*pv_i16)(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                   float *o);
    /* logits of f16 and bf16 keys in integers, hd a multiple of 16; NULL = use qk */
    const struct kern_qk *qk_half;
    const struct kern_prepack *prepack[KV_TYPE_COUNT]; /* NULL: this type is never prepacked */
    /* joins two partial sums into o, m, l; o[rows][hd_pad] */
    void (*fold)(int rows, int hd_pad, float *o, float *m, float *l, const float *o2,
                 const float *m2, const float *l2);
    /* out[j] += w * 2^(s[j] - lse2) for j in [lo, hi); raw: out[j] += w * s[j] */
    void (*score)(const float *s, int lo, int hi, float cap, float lse2, float w, int raw,
                  float *out);
    /* x[lo..hi) and its squares are added to out and squares; x becomes 0 */
    void (*square)(float *x, int lo, int hi, float *out, float *squares);
    /* top[j] = max(top[j], s[j] - lse2) for j in [0, n) */
    void (*raise)(const float *s, int n, float cap, float lse2, float *top);
    /* out[j] += w * e^(s[j] - lse) for j in [0, n) */
    void (*soft)(const float *s, int n, float lse, float w, float *out);
    float (*largest)(const float *s, int n);
    float (*lse)(const float *s, int n); /* log of the sum of e^s[j] */
};

/* Quantised keys and values (kv_kivi) -> floats, or integers in the form that qk_half and pv_i16
 * read, where the ISA has those */
struct kern_kivi {
    void (*group)(int bits, const uint8_t *group, int hd, float *kp); /* 32 keys -> panels */
    void (*value)(int bits, const uint8_t *row, int hd, float *y); /* one token's value -> y[hd] */
    /* a key in planes (planes.h) -> y[hd], halves */
    void (*planes)(int bits, int hd, const uint8_t *block, int token, const uint8_t *row, void *y);
    void (*group_i16)(int bits, const uint8_t *group, int hd, void *panel);
    void (*values_i16)(int bits, const uint8_t *const *row, int hd, void *vp,
                       int at); /* 16 tokens' values */
    /* Products with quantised keys and values in place, for few queries; NULL = not supported.
     * logits: q[rows][hd] * scale times n groups -> s[rows][KEY_BLOCK]. pv: o[rows][hd] = o *
     * factor + s times the values of KEY_BLOCK tokens. ahead: what to prefetch, as many bytes */
    void (*logits)(int bits, const uint8_t *group, int n, const float *const *q, float scale,
                   int rows, int hd, const uint8_t *ahead, float *s);
    void (*pv)(int bits, const uint8_t *const *row, const struct kern_soft *s, int hd,
               const uint8_t *ahead, float *o);
};

struct sketch_strips;

/* Scores by sketched keys (device/sketch.h). n is a multiple of SKETCH_BLOCK. */
struct kern_sketch {
    /* the scores of n adjacent blocks, made of some strips, for some query heads,
     * q[heads][hd padded] -> score[heads][stride] */
    void (*scan)(int bits, int hd, const struct sketch_strips *strips, const uint8_t *block, int n,
                 const float *q, int heads, int16_t *score, int stride);
    /* the largest of score[n] -> *top, and the sum of the weights below it */
    uint32_t (*weigh)(const int16_t *score, int n, int16_t *top);
    /* score[heads][stride], less lse[heads] -> rank[n], of the best head */
    void (*rank)(const int16_t *score, int stride, const int16_t *lse, int heads, int n,
                 uint16_t *rank);
    /* adds to count[r] how often r is in rank[n]. Only those below `most` need to be counted. n is
     * any number. */
    void (*count)(const uint16_t *rank, int n, int most, uint32_t *count);
    /* from + j for each rank[j] below limit and for the first *n_equal that equal it -> idx;
     * returns how many. n is any number. */
    int (*pick)(const uint16_t *rank, int n, int limit, int *n_equal, int from, int32_t *idx);
};

struct strip_query;

/* A selector's keys (device/index_strips.h) in n strips: four numbers of a strip's keys lie
 * together, those of the next four `line` bytes further on */
struct strips {
    const char *at;
    size_t line, next; /* bytes from one strip to the next */
    int n;             /* even */
};

enum { STRIP_LINE_HD = 128 }; /* most numbers of a line */

/* A vector that meets keys in place of several heads: bias + weight * (start + code . key) */
struct strip_line {
    int32_t code[STRIP_LINE_HD / 4]; /* [quads] */
    int32_t start;
    float weight, bias;
};

struct kern_index {
    /* What the line gives n keys, a multiple of STRIP_KEYS, by the upper bits of their codes,
     * upper[n][2 * quads] -> y */
    void (*first)(const struct strip_line *q, int quads, const uint8_t *upper, int n, float *y);
    /* Keys with their upper bits at key[STRIP_KEYS] and the others `lower` bytes later -> a strip
     */
    void (*open)(const uint8_t *const *key, size_t lower, int quads, char *to, size_t line);
    /* sum[n][STRIP_KEYS] and what the line gives each key -> y */
    void (*line)(const struct strip_line *q, int quads, const struct strips *x, const float *sum,
                 float *y);
    /* The sums over the heads of tiles from..to-1 of a query are added to sum[n][STRIP_KEYS]. */
    void (*add)(const struct strip_query *q, int from, int to, const struct strips *x, float *sum);
    /* from + j for each of n keys whose sum[j] * step[j] is not below the floor -> at; returns how
     * many. Up to STRIP_KEYS more are read and written. */
    int (*reach)(const float *sum, const float *step, int n, float floor, int from, int32_t *at);
};

struct short_conv;
struct decays;
struct recurrence;

/* Layers that remember without keys (device/recurrence.h), a piece at a time */
struct kern_recurrence {
    void (*conv)(const struct short_conv *c, int from, int n); /* channels from.. */
    void (*decays)(const struct decays *x, int from, int n);   /* tokens from.. */
    /* strips from.. of head h */
    void (*strips)(const struct recurrence *r, int h, int from, int n);
};

struct kern_vec {
    void (*rmsnorm)(const float *x, const float *w, float eps, int n, float *y);
    void (*layernorm)(const float *x, const float *w, const float *b, float eps, int n, float *y);
    void (*rope)(enum rope_kind kind, float *x, int n_head, int hd, int n_rot, const float *cs);
    void (*glu)(enum act_kind act, float *gate, const float *up, size_t n);
    void (*add)(float *y, const float *x, float a, size_t n);
    void (*scale)(float *x, float a, float cap, size_t n);
    /* out[n] = a * out + b * out2 */
    void (*mix)(float *out, float a, const float *out2, float b, int n);
    void (*encode)(enum kv_type t, const float *x, int hd, void *row);
    void (*decode)(enum kv_type t, const void *row, int hd, float *y);
    /* what no key within a page's bounds (device/sketch.h) exceeds in a product with q[hd] */
    float (*bound)(const void *bounds, const float *q, int hd);
    /* from + j for each of x[n] that is not below the floor -> idx; returns how many */
    int (*at_least)(const float *x, int n, float floor, int from, int32_t *idx);
    const struct kern_attn *attn;
    const struct kern_kivi *kivi;
    const struct kern_sketch *sketch;
    const struct kern_index *index;
    const struct kern_recurrence *recurrence;
};

/* What kern_attn takes from an ISA's dot products; NULL: no such product */
struct kern_dots {
    const struct kern_qk *qk_q8, *qk_half;
    const struct kern_prepack *prepack_half, *prepack_q8;
    void (*pack_v_i16)(const struct kern_rows *v, int hd, int at, void *vp);
    void (*pv_i16)(const struct kern_soft *s, enum kv_type t, const void *vp, int n, int hd_pad,
                   float *o);
    const struct kern_sketch *sketch;
    const struct kern_index *index;
};

/* What kern_kivi takes from dot products of quantised numbers */
struct kern_kivi_dots {
    void (*logits)(int bits, const uint8_t *group, int n, const float *const *q, float scale,
                   int rows, int hd, const uint8_t *ahead, float *s);
    void (*pv)(int bits, const uint8_t *const *row, const struct kern_soft *s, int hd,
               const uint8_t *ahead, float *o);
};

extern const struct kern_vec cb_vec_scalar, cb_vec_avx2, cb_vec_avx512, cb_vec_neon;
extern const struct kern_attn cb_attn_scalar, cb_attn_avx2, cb_attn_avx512, cb_attn_neon;
extern const struct kern_kivi cb_kivi_scalar, cb_kivi_avx2, cb_kivi_avx512, cb_kivi_neon;
extern const struct kern_sketch cb_sketch_kern_avx2, cb_sketch_kern_avxvnni, cb_sketch_kern_avx512,
    cb_sketch_kern_avx512vnni, cb_sketch_kern_neon;
/* What a product of the upper bits of codes stands for: 16 times it, 7.5 for the other bits, and
 * less the 128 that codes have added */
static inline float cb_index_dot(const struct strip_line *q, int dot)
{
    return (float)(16 * dot) + (float)q->start * (120.5f / 128);
}

extern const struct kern_index cb_index_kern_plain, cb_index_kern_avx2, cb_index_kern_avxvnni,
    cb_index_kern_avx512, cb_index_kern_avx512vnni;
extern const struct kern_dots cb_dots_scalar, cb_dots_avx2, cb_dots_avxvnni, cb_dots_avx512,
    cb_dots_avx512vnni, cb_dots_neon;
extern const struct kern_kivi_dots cb_kivi_dots_avx512vbmi;

extern const struct kern_recurrence cb_recurrence_scalar, cb_recurrence_avx2, cb_recurrence_avx512,
    cb_recurrence_neon;

/* vec_ops.c */
void cb_cpu_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride);
void cb_cpu_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride);
void cb_cpu_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs);
void cb_cpu_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n,
                int n_tok);
void cb_cpu_add(struct device *d, float *y, const float *x, float a, size_t n);
void cb_cpu_scale(struct device *d, float *x, float a, float cap, size_t n);
void cb_cpu_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd);
void cb_cpu_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);
void cb_cpu_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows);
void cb_cpu_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y);

/* recurrence.c */
void cb_cpu_short_conv(struct device *d, const struct short_conv *c, int n);
void cb_cpu_decays(struct device *d, const struct decays *x);
void cb_cpu_recurrence(struct device *d, const struct recurrence *r, int n);

/* prepack.c */
int cb_cpu_can_prepack(const struct device *d, enum kv_type k, enum kv_type v, int hd);
void cb_cpu_prepack(struct device *d, enum kv_type t, int v, int hd, void *rows, int n_block,
                    float *step);
void cb_cpu_prepack_row(struct device *d, enum kv_type t, int v, int hd, const void *row, int j,
                        void *codes, float *step);
void cb_cpu_unpack(struct device *d, enum kv_type t, int v, int hd, const void *codes,
                   const float *step, int j, int n, void *rows);

/* page_scores.c */
void cb_cpu_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds);
void cb_cpu_page_scores(struct device *d, const struct page_scores *s);

/* topk.c */
size_t cb_cpu_topk_scratch(int n_ctx, int n_head);
void cb_cpu_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best);
void cb_cpu_head_lse(struct device *d, const float *logit, int stride, int n_head, int n,
                     float *lse);
void cb_cpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx);

/* sketch_topk.c */
void cb_cpu_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch);
void cb_cpu_sketch_topk(struct device *d, const struct sketch_topk *s);

/* attn.c, score.c */
size_t cb_cpu_attn_scratch(const struct device *d, int n_head, int hd);
size_t cb_cpu_attn_shared(const struct device *d, int n_head, int hd, int n_ctx);
void cb_cpu_attention(struct device *d, const struct attn *a, int n);
size_t cb_cpu_score_scratch(const struct kern_attn *k, int rows, int hd);
void cb_cpu_score(struct device *d, const struct score *s);

/* block_mass.c */
size_t cb_cpu_block_mass_scratch(const struct kern_attn *k, int hd, int n_ctx);
void cb_cpu_block_mass(struct device *d, const struct block_mass *s);

/* line_sums.c */
void cb_cpu_line_sums(struct device *d, const struct line_sums *s);

/* sketch_mass.c */
size_t cb_cpu_sketch_mass_scratch(int hd, int n_head, int n_ctx);
void cb_cpu_sketch_mass(struct device *d, const struct block_mass *m);

/* index_cascade.c */
void cb_cpu_index_scan(struct device *d, const struct index_scan *s);

/* nearest.c */
size_t cb_cpu_nearest_scratch(const struct kern_attn *k, int hd);
void cb_cpu_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot);

#endif
