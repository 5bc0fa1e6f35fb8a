/* SPDX-License-Identifier: MIT */
/* requantize.h - a GGUF file written anew in another type. */
#ifndef QUANTIZE_H
#define QUANTIZE_H

#include "ctxbank.h"
#include "dtype.h"

struct quantize {
    const char *in, *out;
    enum dtype type;
    int n_threads;           /* 0 = default */
    cb_progress_fn progress; /* bytes read; non-zero stops with CB_ECANCEL; may be NULL */
    void *progress_arg;

    /* results */
    uint64_t in_bytes, out_bytes;
    int n_tensor;
    int n_fallback; /* matrices whose rows are no whole blocks of `type`: in a wider type */
    int n_requant;  /* matrices that were quantised already: their errors add up */
};

/* Matrices go to `type`, vectors to f32, metadata is kept (but for general.file_type). The matrix
 * of the output, which errors hurt most, gets Q6_K at least. The file appears under its name when
 * it is whole; after a failure nothing is left of it. Fails when a weight is not finite, and when
 * `out` is `in` or no regular file. */
int cb_quantize(struct quantize *q);

#endif
