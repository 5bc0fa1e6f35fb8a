/* SPDX-License-Identifier: MIT */
/* time_ops.h - shared by the measurements of single ops: shapes of known models, a row of the
 * table, selection of rows, the clock. */
#ifndef TIME_OPS_H
#define TIME_OPS_H

#include "cpu/tiers.h"
#include "device/device.h"
#include "device/limits.h"
#include "par/affinity.h"

struct op_shape {
    const char *model;
    int n_embd, n_ff, n_head, n_kv, hd, n_vocab;
    int n_ctx; /* tokens that attention reads */
};

/* A row of the table. A value that a row does not have is 0 or "". */
struct op_row {
    const char *isa, *matmul; /* matmul: own, onednn, openblas */
    int threads;
    const char *op, *type, *model;
    char shape[40];
    int n_tok, n_ctx;
    double s;           /* seconds a call */
    double bytes, flop; /* a call's bytes of weights or bank; its operations */
    double read, peak;  /* the machine's limits for these, a second; 0: unknown */
};

/* Selection: comma-separated words that name ops, types, models, ISAs and libraries. A kind that no
 * word names is not limited. */
struct op_pick {
    const char *words;             /* or NULL */
    const struct cpu_tiers *tiers; /* whose names are ISAs */
};

/* Fails on a word that names nothing. */
int cb_op_pick_check(const struct op_pick *p);

/* Takes a row; a negative status ends the run. */
typedef int (*op_emit)(void *arg, const struct op_row *row);

/* ---- between the files of this room ---- */

enum op_kind { KIND_OP, KIND_TYPE, KIND_MODEL, KIND_ISA, KIND_MATMUL, KIND_COUNT };

struct op_bench {
    const struct op_pick *pick;
    const struct team_params *team;
    struct device *d;
    const char *matmul;
    int failed; /* 1: the device has reported a failure */
    double limit[LIMIT_COUNT];
    /* Bytes that a measurement passes over. A session reads the weights and all other layers before
     * it comes to the same layer again, so the caches hold hardly any of that layer then. */
    size_t cold_bytes;
    const char *limit_of; /* the ISA that the limits were measured with */
    op_emit emit;
    void *arg;
};

/* A trained selector */
struct op_index_shape {
    const char *model;
    int n_head, hd, k; /* tokens, or blocks of tokens, that it names */
    int block;         /* tokens a block; 0: it names tokens */
};

extern const struct op_shape cb_op_shape[]; /* these end with a NULL model */
extern const struct op_index_shape cb_op_index_shape[];

int cb_op_picked(const struct op_bench *b, enum op_kind kind, const char *name);
/* Is any of these ops wanted? A NULL ends the names. */
int cb_op_any_picked(const struct op_bench *b, const char *const *names);
/* Seconds of fn(ctx): the best of several rounds. `rough`: two rounds are enough. */
double cb_op_time(struct op_bench *b, void (*fn)(void *ctx), void *ctx, int rough);
int cb_op_emit(struct op_bench *b, struct op_row *row); /* fills in common columns */
/* Fills x[n] with numbers between -1 and 1, the same every time. */
void cb_op_fill(float *x, size_t n);
/* n such numbers in the device's memory; cb_device_free() frees them. NULL: no memory */
float *cb_op_floats(struct op_bench *b, size_t n);
/* Allocates zeroed bytes, in huge pages where available; cb_pages_release() frees them. */
int cb_op_reserve(size_t bytes, void *out);

int cb_bench_matmul(struct op_bench *b);
int cb_bench_attn(struct op_bench *b);
int cb_bench_gather(struct op_bench *b);
int cb_bench_search(struct op_bench *b);
int cb_bench_index(struct op_bench *b);
int cb_bench_small(struct op_bench *b);
int cb_bench_recurrence(struct op_bench *b);

#endif
