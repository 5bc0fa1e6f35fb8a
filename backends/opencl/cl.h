/* SPDX-License-Identifier: MIT */
/* cl.h - the state of an OpenCL device. Its memory is shared virtual memory that the host
 * never touches, so an address is a device address; all commands go through one queue in order. */
#ifndef CB_CL_H
#define CB_CL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200
#endif
#include <CL/cl.h>

#include "device/device.h"

enum { CL_MOST_BACK = 64 };

/* Memory on the device, in ascending order of address */
struct cl_block {
    uint8_t *p;
    size_t bytes;
};

/* Operands of ops that lie in the host's memory: a piece on the device, and as much of the host's
 * that what is on its way is copied to first. */
struct cl_stage {
    uint8_t *on, *host;
    size_t bytes, used;
    struct cl_stage *next; /* older and smaller; freed when the queue is empty */
};

/* A result that goes to the host's memory when the op ends */
struct cl_back {
    void *to;
    const uint8_t *from;
    size_t bytes, to_stride, from_stride;
    int n;
};

/* device->impl of an OpenCL device */
struct cl {
    char name[24];      /* "opencl:0" */
    struct device host; /* the CPU device, which does what this one cannot */
    struct ops ops;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    struct cl_program *programs;
    char *cache_dir;
    cb_log_fn log;
    void *log_arg;

    struct cl_block *block;
    int n_block, cap_block;
    size_t most_block; /* bytes of the largest piece */
    struct device_traffic traffic;
    struct cl_stage *stage;
    struct cl_back back[CL_MOST_BACK];
    int n_back;
    int owes; /* 1: results were sent to the host otherwise, and must be there when the op ends */
    struct cl_mirror *mirror;
    void (*give_way)(struct cl *c, size_t bytes); /* frees mirrored pages for an allocation */
    int locked;    /* 1: an op holds addresses of mirrored pages, so none may be given up */
    uint64_t feed; /* feeds so far: get_rows begins one */

    int status; /* the first failure since the last wait */
    char error[256];
    uint32_t said; /* bits of notes that were made */
};

static inline struct cl *cb_cl_of(const struct device *d)
{
    return d->impl;
}

/* ---- cl_memory.c ---- */

/* Remembers that `what` failed with an OpenCL status. Ops do nothing until the next wait reports
 * it.
 */
void cb_cl_fail(struct cl *c, const char *what, cl_int status);
/* A note for the user; once for each bit. */
void cb_cl_say(struct cl *c, int bit, const char *text);

void *cb_cl_alloc(struct cl *c, size_t bytes); /* NULL: no memory, cb_error() says why */
void cb_cl_free(struct cl *c, void *p);
void cb_cl_free_all(struct cl *c);
int cb_cl_is_on(const struct cl *c, const void *p); /* 1: an address in the device's memory */
/* Bytes that may still be allocated */
size_t cb_cl_room(const struct cl *c);

/* Copies in the order of the queue: *to or *from is on the device. Memory of the host must stay
 * until cb_cl_finish(). */
void cb_cl_send(struct cl *c, void *to, const void *from, size_t bytes);
void cb_cl_fetch(struct cl *c, void *to, const void *from, size_t bytes);
void cb_cl_move(struct cl *c, void *to, const void *from, size_t bytes); /* device to device */
void cb_cl_finish(struct cl *c);

/* Operands of an op. Each returns an address on the device: p itself if it is one, else of a copy.
 * NULL stays NULL; after a failure it is NULL too. */
void *cb_cl_in(struct cl *c, const void *p, size_t bytes);
void *cb_cl_out(struct cl *c, void *p, size_t bytes);   /* written whole */
void *cb_cl_inout(struct cl *c, void *p, size_t bytes); /* read or written in part */
int cb_cl_stage_fits(const struct cl *c, size_t bytes); /* 1: an operand of so many bytes does */
void cb_cl_stage_reserve(struct cl *c, size_t bytes); /* operands of so many bytes will not move */
void *cb_cl_room_for(struct cl *c, size_t bytes);     /* work space until the op ends */
/* Copies a result to the host when the op ends. */
void cb_cl_back(struct cl *c, void *to, size_t to_stride, const void *from, size_t from_stride,
                size_t bytes, int n);
/* Ends an op: results for the host are there. */
void cb_cl_done(struct cl *c);

/* The same for ops that the CPU does: an address in the host's memory, with what p holds */
void *cb_cl_to_host(struct cl *c, const void *p, size_t bytes);
/* Copies the host's result to p unless it lies there already, and frees it. */
void cb_cl_from_host(struct cl *c, void *p, void *host, size_t bytes);

/* Once the queue is empty, the stage begins anew; pieces that were too small are freed. */
void cb_cl_empty_stage(struct cl *c);

/* ---- cl_boundary.c ---- */

extern const struct device_memory cb_cl_memory;
int cb_cl_check(struct cl *c); /* waits; the failure that has been remembered, if there is one */

/* ---- cl_program.c ---- */

/* An argument of a kernel: an address on the device, or a number of `bytes` bytes */
struct cl_arg {
    size_t bytes;
    union {
        const void *p;
        int i;
        long l;
        float f;
    } as;
};
#define CL_P(x)                                                                                    \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            .p = (x)                                                                               \
        }                                                                                          \
    }
#define CL_I(x)                                                                                    \
    {                                                                                              \
        sizeof(cl_int),                                                                            \
        {                                                                                          \
            .i = (x)                                                                               \
        }                                                                                          \
    }
#define CL_L(x)                                                                                    \
    {                                                                                              \
        sizeof(cl_long),                                                                           \
        {                                                                                          \
            .l = (long)(x)                                                                         \
        }                                                                                          \
    }
#define CL_F(x)                                                                                    \
    {                                                                                              \
        sizeof(cl_float),                                                                          \
        {                                                                                          \
            .f = (x)                                                                               \
        }                                                                                          \
    }

enum cl_text { CL_MATMUL, CL_VECTOR, CL_SELECT, CL_ATTENTION };

/* Compiles a text with options, or finds it; NULL, with cb_error() set. */
struct cl_program *cb_cl_program(struct cl *c, enum cl_text text, const char *options);
void cb_cl_free_programs(struct cl *c);
/* Runs a kernel in groups[3] groups of `items` items. `deep`: pieces of memory that it reaches
 * through other pieces, a list that ends with NULL; may be NULL. */
void cb_cl_run(struct cl *c, struct cl_program *p, const char *kernel, const size_t groups[3],
               size_t items, const struct cl_arg *arg, int n_arg, void *const *deep);
/* One item for each of n numbers */
void cb_cl_run_each(struct cl *c, struct cl_program *p, const char *kernel, int64_t n,
                    const struct cl_arg *arg, int n_arg);

/* ---- cl_matmul.c ---- */

int cb_cl_load(struct device *d, struct weight *w);
void cb_cl_unload(struct device *d, struct weight *w);
void cb_cl_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok);
void cb_cl_matmul_glu(struct device *d, const struct mm *mm, enum act_kind act, const float *x,
                      int n_tok);
void cb_cl_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y);

/* ---- cl_vector.c ---- */

void cb_cl_rmsnorm(struct device *d, const float *x, const float *w, float eps, int n, int n_row,
                   int n_tok, int x_stride, float *y, int y_stride);
void cb_cl_rope(struct device *d, enum rope_kind kind, float *x, int n_tok, int n_head, int hd,
                int stride, int n_rot, const float *cs);
void cb_cl_glu(struct device *d, enum act_kind act, float *gate, const float *up, int n, int n_tok);
void cb_cl_layernorm(struct device *d, const float *x, const float *w, const float *b, float eps,
                     int n, int n_row, int n_tok, int x_stride, float *y, int y_stride);
void cb_cl_add(struct device *d, float *y, const float *x, float a, size_t n);
void cb_cl_scale(struct device *d, float *x, float a, float cap, size_t n);
void cb_cl_sink(struct device *d, float *out, float *lse, const float *sink, int n_tok, int n_head,
                int hd);
void cb_cl_join(struct device *d, float *out, float *lse, const float *out2, const float *lse2,
                int n_row, int hd);
/* Joins n_part parts on the device, at strides in floats, to out and lse. */
void cb_cl_join_parts(struct cl *c, float *out, float *lse, const float *out2, const float *lse2,
                      int n_part, int64_t out_stride, int64_t lse_stride, int n_row, int hd);
void cb_cl_kv_encode(struct device *d, enum kv_type t, const float *x, int n, int stride, int hd,
                     void *rows);
void cb_cl_kv_decode(struct device *d, enum kv_type t, const void *rows, const int32_t *idx, int n,
                     int hd, float *y);
void cb_cl_nearest(struct device *d, const float *x, int n, const float *y, int m, int hd,
                   int32_t *idx, float *dot);
void cb_cl_best_head(struct device *d, const float *logit, int stride, int n_head, int n,
                     int normed, float *best);
void cb_cl_topk(struct device *d, const float *x, int n, int k, int32_t *idx);

/* ---- cl_attention.c ---- */

void cb_cl_attention(struct device *d, const struct attn *a, int n);
void cb_cl_score(struct device *d, const struct score *s);

#endif
