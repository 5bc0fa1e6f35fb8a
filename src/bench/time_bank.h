/* SPDX-License-Identifier: MIT */
/* time_bank.h - random keys and values of several layers, which attention is timed over. */
#ifndef TIME_BANK_H
#define TIME_BANK_H

#include "time_ops.h"

/* A form of keys and values that has rows of the table */
struct op_form {
    const char *name;
    enum kv_type type;
    int bits; /* KIVI's bits; else 0 */
};
extern const struct op_form cb_op_form[]; /* ends with a NULL name */

enum { OP_BANK_QUERIES = 512 };

/* Keys and values of several layers, so that no call finds the previous call's data in caches. */
struct op_bank {
    const struct op_shape *s;
    const struct op_form *form;
    int n_layer;
    size_t head_bytes, bytes; /* bytes of a KV head's keys or values; of all */
    char *mem;                /* [n_layer][n_kv][2][head_bytes] */
    struct kv_run *run;       /* [n_layer][n_kv] all slots */
    struct kv_kivi *kivi;     /* [n_layer][n_kv] */
    float *step;              /* [n_layer][n_kv][2][n_ctx] steps of prepacked blocks, or NULL */
    float *q, *out;           /* [OP_BANK_QUERIES][n_head][hd] in the device's memory */
};

/* Calls run() with a bank of more than cold_bytes. n_ctx: tokens; 0: as many as the shape has */
int cb_op_bank_with(struct op_bench *b, const struct op_shape *shape, const struct op_form *form,
                    int n_ctx, size_t cold_bytes,
                    int (*run)(struct op_bench *b, struct op_bank *k));
/* Attention of one token; the caller sets run. */
struct attn cb_op_bank_attn(const struct op_bank *k);
/* Prepacks the bank, which then stays prepacked: 1. 0: the device has no such blocks */
int cb_op_bank_prepack(struct device *d, struct op_bank *k);
/* A row: n_tok queries that read n_read slots each, or as a prompt does */
int cb_op_bank_emit(struct op_bench *b, const struct op_bank *k, const char *op, int n_tok,
                    int n_read, double seconds);

#endif
