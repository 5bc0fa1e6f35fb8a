/* SPDX-License-Identifier: MIT */
/* requantize.h - rewrites a GGUF file in another type. */
#ifndef REQUANTIZE_H
#define REQUANTIZE_H

#include "ctxbank.h"
#include "dtype.h"

struct quantize {
    const char *in, *out;
    enum dtype type;
    const char *imatrix;     /* importance matrix (imatrix.h), or NULL */
    int n_threads;           /* 0 = default */
    cb_progress_fn progress; /* bytes read; non-zero stops with CB_ECANCEL; may be NULL */
    void *progress_arg;
    /* names a matrix that gets another type than `type`, because its rows are not whole blocks; may
     * be NULL */
    void (*fallback)(void *arg, const char *tensor, int64_t row, enum dtype became);
    void *fallback_arg;

    /* results */
    uint64_t in_bytes, out_bytes;
    int n_tensor;
    int n_fallback; /* matrices stored in a wider type, because their rows are not whole blocks of
                       `type` */
    int n_weighted; /* matrices whose errors were weighed by the importance matrix */
    int n_requant;  /* matrices that were already quantised: their errors add up */
};

/* Matrices are converted to `type`, vectors to f32; metadata is copied, except general.file_type.
 * The output matrix, which is most sensitive to errors, gets at least Q6_K. The file appears under
 * its name only when complete; a failure leaves no file. Fails if a weight is not finite or too
 * large for its new type, if `out` is `in` or not a regular file, or if the importance matrix is of
 * another model. */
int cb_quantize(struct quantize *q);

#endif
