/* SPDX-License-Identifier: MIT */
/* gpu.h - the state of an accelerator, whose driver is OpenCL's or CUDA's (driver.h). An address in
 * its memory is no address of the host's, which never touches that memory. All commands go through
 * one queue in order. */
#ifndef CB_GPU_H
#define CB_GPU_H

#include <pthread.h>

#include "device/device.h"
#include "driver.h"
#include "gpu_left.h"
#include "gpu_note.h"

enum { GPU_MOST_BACK = 64, GPU_ALIGN = 128 }; /* pieces of memory are multiples of GPU_ALIGN */
enum { GPU_AT_ONCE = 3 };                     /* weights that one launch multiplies by */

/* Memory on the device, in ascending order of address */
struct gpu_block {
    uint8_t *p;
    size_t bytes;
};

/* Operands of ops that lie in the host's memory: a piece on the device, and as much of the host's
 * that what is on its way is copied to first. */
struct gpu_stage {
    uint8_t *on, *host;
    size_t bytes;
    size_t used;            /* from the beginning on, until the queue is empty */
    size_t scratch;         /* before the end, until the op ends: the queue keeps the order */
    struct gpu_stage *next; /* older and smaller; freed when the queue is empty */
};

/* A result that goes to the host's memory when the op ends */
struct gpu_back {
    void *to;
    const uint8_t *from;
    size_t bytes, to_stride, from_stride;
    int n;
};

/* Rows on their way to the bank, which the queue copies to a stage's memory of the host first: a
 * driver would wait for copies to other memory. */
struct gpu_home {
    uint8_t *to;
    const uint8_t *from;
    size_t bytes;
};

/* New rows of keys and values, which one kernel stores: each has the address of its numbers, and up
 * to three where it goes. The stage has room for the table. */
struct gpu_new_rows {
    int n, cap, type, hd;
    int last;   /* the first row of the last call, whose rows lie side by side */
    size_t row; /* bytes */
    uint64_t (*host)[4], *on;
};

/* What the device keeps of operands that seldom change (gpu_constants.c) */
struct gpu_constants {
    struct gpu_constant *one;
    int n, asked, hint[509];
    uint8_t *on;
    size_t used, bytes;
};

/* Rows that kernels have brought from the host's memory (gpu_cache.c), and their bytes, modulo 2^32
 */
struct gpu_came {
    const void *on; /* the counts on the device */
    uint32_t *host, had[2];
    int due; /* 1: they have changed since the host looked */
};

/* x[n_tok][n] as sums of two halves (gpu_split.h): to[n_tok][n], divided by scale[n_tok] */
struct gpu_split {
    const float *x; /* NULL: none */
    int n, n_tok;
    const void *to;
    const float *scale;
};

/* What memory is for: copies that there need not be (weights, rows), work space, operands */
enum gpu_use { GPU_COPIES, GPU_WORK, GPU_OPERANDS };

/* device->impl of an accelerator */
struct gpu {
    char name[24];      /* "opencl:0" */
    struct device host; /* the CPU device, which does what this one cannot */
    struct ops ops;
    const struct driver *driver;
    void *own; /* the driver's */
    struct gpu_program *programs;
    char *cache_dir;
    cb_log_fn log;
    void *log_arg;

    struct gpu_block *block;
    int n_block;
    size_t most_block; /* bytes of the largest piece */
    struct device_traffic traffic;
    struct gpu_stage *stage;
    struct gpu_block slab; /* gpu_gemm.c; counts as operands, and gives way to all else */
    struct gpu_back back[GPU_MOST_BACK];
    int n_back;
    struct gpu_home *home;
    int n_home;
    size_t cap_home;
    const uint8_t *home_lo, *home_hi; /* what holds all of their places in the bank */
    struct gpu_home fetch; /* the last of them, side by side in the stage: yet to be copied there */
    int fetch_home;        /* the first one's number */
    struct gpu_constants constants;
    struct gpu_split split;                /* that are known */
    int splits;                            /* 1: a product has asked for some */
    struct gpu_new_rows new_rows;          /* not stored yet; any other command comes after them */
    void (*store_new_rows)(struct gpu *g); /* gpu_new_rows.c */
    int ahead;                             /* 1: copies ahead may be on their way */
    uint64_t emptied;                      /* how often the queue has been waited for */
    int owes; /* 1: results were sent to the host otherwise, and must be there when the op ends */
    struct gpu_mirror *mirror;
    struct gpu_chosen_all *chosen;
    struct gpu_caches *caches;
    struct gpu_came came;
    struct gpu_found found;
    uint64_t lists_sent; /* g->emptied + 1 when a search sent its list last */
    struct gpu_logits logits;
    struct gpu_pack *pack;
    struct gpu_stream *stream;
    struct gpu_ahead *rows_ahead;
    uint64_t pinned_bytes; /* of weights that are copied again and again */
    uint64_t mapped_bytes; /* of rows that kernels read in the host's memory */
    size_t (*copied_at_once)(const struct gpu *g, const void *p, size_t bytes); /* gpu_map.c */
    void (*make_room)(struct gpu *g, size_t bytes, enum gpu_use use);           /* gpu_share.h */
    struct gpu_weight **weight; /* [n_weight] those on the device, as they were loaded */
    int n_weight;
    /* by the op that runs: they do not give way */
    const struct gpu_weight *multiplied[GPU_AT_ONCE];
    int locked;    /* 1: an op holds addresses of mirrored pages, so none may be given up */
    int stream_kv; /* struct device_want */
    uint64_t feed; /* feeds so far: get_rows begins one */

    pthread_mutex_t wait; /* held by who waits for the queue: kv_decode may be any thread's */
    int status;           /* the first failure since the last wait */
    char error[256];
    uint32_t said; /* bits of notes that were made */
};

static inline size_t cb_gpu_aligned(size_t bytes)
{
    return (bytes + GPU_ALIGN - 1) / GPU_ALIGN * GPU_ALIGN;
}

/* The part of the working set that is left to operands, in bytes */
static inline uint64_t cb_gpu_operand_share(const struct gpu *g)
{
    return g->traffic.limit_bytes / 8;
}

static inline struct gpu *cb_gpu_of(const struct device *d)
{
    return d->impl;
}

/* ---- gpu_memory.c ---- */

/* Remembers that `what` failed with a status of the driver, or for want of host memory. Ops do
 * nothing until the next wait reports it. */
void cb_gpu_fail(struct gpu *g, const char *what, int status);
void cb_gpu_fail_memory(struct gpu *g, const char *what);
/* A note for the user, once */
void cb_gpu_say(struct gpu *g, enum gpu_note note, const char *text);

/* NULL: no memory, cb_error() says why. Mirrored pages give way, weights to work space alone. */
void *cb_gpu_alloc(struct gpu *g, size_t bytes);
void *cb_gpu_alloc_work(struct gpu *g, size_t bytes);
void cb_gpu_free(struct gpu *g, void *p);
void cb_gpu_free_all(struct gpu *g);
int cb_gpu_is_on(const struct gpu *g, const void *p); /* 1: an address in the device's memory */
/* Bytes that may still be allocated */
size_t cb_gpu_room(const struct gpu *g);
size_t cb_gpu_stage_bytes(const struct gpu *g); /* that operands have */
/* Bytes that operands may still take of their share */
uint64_t cb_gpu_operands_left(const struct gpu *g);

/* Copies in the order of the queue: *to or *from is on the device. Memory of the host must stay
 * until cb_gpu_finish(). */
void cb_gpu_send(struct gpu *g, void *to, const void *from, size_t bytes);
void cb_gpu_fetch(struct gpu *g, void *to, const void *from, size_t bytes);
void cb_gpu_move(struct gpu *g, void *to, const void *from, size_t bytes); /* device to device */
/* Rows in work space of this op go to the bank, where they are after cb_gpu_finish(). */
void cb_gpu_fetch_rows(struct gpu *g, void *to, const void *from, size_t bytes);
void cb_gpu_finish(struct gpu *g);
/* Are some of these bytes of the host's memory rows on their way? And waits if they are. */
int cb_gpu_is_on_its_way(const struct gpu *g, const void *p, size_t bytes);
void cb_gpu_settle(struct gpu *g, const void *p, size_t bytes);
/* A copy beside what is queued; `from` must stay until cb_gpu_meet_ahead() and a wait. */
void cb_gpu_send_ahead(struct gpu *g, void *to, const void *from, size_t bytes);
void cb_gpu_ahead_after(struct gpu *g); /* what is sent ahead from here on follows what is queued */
void cb_gpu_meet_ahead(struct gpu *g);  /* what is queued from here on finds what was sent ahead */

/* The lists of the last search are there; */
void cb_gpu_found_home(struct gpu *g);
/* the logits that attention has left, after cb_gpu_finish(). */
void cb_gpu_logits_home(struct gpu *g);

/* Operands of an op. Each returns an address on the device: p itself if it is one, else of a copy.
 * NULL stays NULL; after a failure it is NULL too. */
void *cb_gpu_in(struct gpu *g, const void *p, size_t bytes);
void *cb_gpu_out(struct gpu *g, void *p, size_t bytes);   /* written whole */
void *cb_gpu_inout(struct gpu *g, void *p, size_t bytes); /* read or written in part */
/* Bytes that the stage has left as it is */
static inline size_t cb_gpu_stage_room(const struct gpu *g)
{
    const struct gpu_stage *s = g->stage;
    return s ? s->bytes - s->used - s->scratch : 0;
}
int cb_gpu_stage_fits(const struct gpu *g, size_t bytes); /* 1: an operand of these bytes does */
/* 1: the end of this op waits, and empties the stage */
static inline int cb_gpu_stage_ends(const struct gpu *g)
{
    const struct gpu_stage *s = g->stage;
    return s && (s->next || s->used > s->bytes / 2);
}
void cb_gpu_stage_reserve(struct gpu *g,
                          size_t bytes);            /* operands of this many bytes will not move */
void *cb_gpu_room_for(struct gpu *g, size_t bytes); /* work space, until the queue is empty */
/* Work space that this op's kernels alone write and read */
void *cb_gpu_scratch(struct gpu *g, size_t bytes);
/* Work space that every op finds again as it is, unless it is asked for more */
void *cb_gpu_slab(struct gpu *g, size_t bytes);
void cb_gpu_slab_free(struct gpu *g);
/* The same as cb_gpu_room_for, and *host: the host's memory that is to be copied there */
void *cb_gpu_room_beside(struct gpu *g, size_t bytes, void **host);
/* Copies a result to the host when the op ends. */
void cb_gpu_back(struct gpu *g, void *to, size_t to_stride, const void *from, size_t from_stride,
                 size_t bytes, int n);
/* Ends an op: results for the host are there. */
void cb_gpu_done(struct gpu *g);

/* The same for ops that the CPU does: an address in the host's memory, with what p holds, or for
 * what is written whole */
void *cb_gpu_to_host(struct gpu *g, const void *p, size_t bytes);
void *cb_gpu_host_for(struct gpu *g, void *p, size_t bytes);
/* Copies the host's result to p unless it lies there already, and frees it. */
void cb_gpu_from_host(struct gpu *g, void *p, void *host, size_t bytes);

/* The device writes to p, or p is freed: what was known of the numbers there is void. */
void cb_gpu_rewritten(struct gpu *g, const void *p, size_t bytes);

/* Once the queue is empty, the stage starts again; pieces that were too small are freed. */
void cb_gpu_empty_stage(struct gpu *g);

/* ---- gpu_constants.c ---- */

/* As cb_gpu_in(), for operands that most calls find as they were: the device keeps them. */
void *cb_gpu_constant(struct gpu *g, const void *p, size_t bytes);
void cb_gpu_constants_forget(struct gpu *g); /* after a failure */
void cb_gpu_constants_close(struct gpu *g);

/* ---- gpu_boundary.c ---- */

extern const struct device_memory cb_gpu_memory;
int cb_gpu_check(struct gpu *g); /* waits; the failure that has been remembered, if there is one */

/* ---- gpu_new_rows.c ---- */

/* New rows x[n][hd], `stride` numbers apart: -> on, in work space, and where cb_gpu_move() brings
 * some of them from there. Only if they fit (1): else they have to be stored by themselves. */
int cb_gpu_new_rows_fit(struct gpu *g, enum kv_type t, const float *x, int hd, int n);
void cb_gpu_new_rows(struct gpu *g, const float *x, int stride, void *on, size_t row, int n);
void cb_gpu_store_new_rows(struct gpu *g); /* before any other command */

/* ---- gpu_program.c ---- */

#define GPU_P(x)                                                                                   \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            .p = (x)                                                                               \
        }                                                                                          \
    }
#define GPU_I(x)                                                                                   \
    {                                                                                              \
        sizeof(int32_t),                                                                           \
        {                                                                                          \
            .i = (x)                                                                               \
        }                                                                                          \
    }
#define GPU_L(x)                                                                                   \
    {                                                                                              \
        sizeof(int64_t),                                                                           \
        {                                                                                          \
            .l = (long)(x)                                                                         \
        }                                                                                          \
    }
#define GPU_F(x)                                                                                   \
    {                                                                                              \
        sizeof(float),                                                                             \
        {                                                                                          \
            .f = (x)                                                                               \
        }                                                                                          \
    }

/* Compiles a text, or finds it; NULL, with cb_error() set. */
struct gpu_program *cb_gpu_program(struct gpu *g, enum gpu_text text, struct gpu_options o);
void cb_gpu_free_programs(struct gpu *g);
/* Runs a kernel (driver.h). */
void cb_gpu_run(struct gpu *g, struct gpu_program *p, const char *kernel, const size_t groups[3],
                size_t items, const struct gpu_arg *arg, int n_arg, void *const *deep);
/* One item for each of n numbers */
void cb_gpu_run_each(struct gpu *g, struct gpu_program *p, const char *kernel, int64_t n,
                     const struct gpu_arg *arg, int n_arg);

/* ---- gpu_device.c ---- */

int cb_gpu_open(struct device *d, const struct device_want *want, const struct driver *driver);
void cb_gpu_close(struct device *d);

/* ---- gpu_peak.c ---- */

int cb_gpu_limits(struct device *d, double *what);

/* ---- gpu_matmul.c ---- */

int cb_gpu_load(struct device *d, struct weight *w);
void cb_gpu_unload(struct device *d, struct weight *w);
void cb_gpu_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok);
void cb_gpu_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                       int n_tok);
void cb_gpu_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y);

/* ---- gpu_stream.c: as in struct device_memory ---- */

void cb_gpu_weights_share(struct device *d, const struct layer_weights *layer, int n_layer,
                          int n_tok, uint64_t rows);
void cb_gpu_weights_ahead(struct device *d, const struct weight *const *w, int n);
int cb_gpu_weights_plan(struct device *d, const struct layer_weights *layer, int n_layer, int n_tok,
                        uint64_t rows, uint64_t more, uint64_t *weights, uint64_t *ahead);

/* ---- gpu_vector.c ---- */

void cb_gpu_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                    int n_tok, int x_stride, float *y, int y_stride);
void cb_gpu_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                 int stride, int n_rot, const float *cs);
void cb_gpu_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n,
                int n_tok);
void cb_gpu_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                      int n, int n_row, int n_tok, int x_stride, float *y, int y_stride);
void cb_gpu_add(struct device *d, float *y, const float *x, float a, size_t n);
void cb_gpu_scale(struct device *d, float *x, float a, float cap, size_t n);
void cb_gpu_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                 int hd);
void cb_gpu_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                 int n_row, int hd);
/* Joins n_part parts on the device, at strides in floats, to out and lse. */
void cb_gpu_join_parts(struct gpu *g, float *out, float *lse, const float *out2, const float *lse2,
                       int n_part, int64_t out_stride, int64_t lse_stride, int n_row, int hd);
void cb_gpu_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                      void *rows);
void cb_gpu_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                      int hd, float *y);
void cb_gpu_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                    int32_t *idx, float *dot);
void cb_gpu_topk(struct device *d, const float *x, int n, int k, int32_t *idx);

/* ---- gpu_sketch.c ---- */

void cb_gpu_sketch(struct device *d, enum kv_type t, const void *rows, int n_block, int hd,
                   int bits, int n_out, void *sketch);
void cb_gpu_sketch_topk(struct device *d, const struct sketch_topk *s);

/* ---- gpu_heads.c ---- */

void cb_gpu_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                      int normed, float *best);
int cb_gpu_head_topk(struct device *d, const struct head_topk *t);

/* ---- gpu_bounds.c ---- */

void cb_gpu_bounds(struct device *d, enum kv_type t, const void *rows, int n_page, int page, int hd,
                   void *bounds);

/* ---- gpu_pages.c ---- */

void cb_gpu_page_scores(struct device *d, const struct page_scores *s);
int cb_gpu_page_topk(struct device *d, const struct page_topk *t);

/* ---- gpu_recurrence.c ---- */

void cb_gpu_short_conv(struct device *d, const struct short_conv *c, int n);
void cb_gpu_decays(struct device *d, const struct decays *x);
void cb_gpu_recurrence(struct device *d, const struct recurrence *r, int n);

/* ---- gpu_attention.c ---- */

void cb_gpu_attention(struct device *d, const struct attn *a, int n);
void cb_gpu_score(struct device *d, const struct score *s);

#endif
