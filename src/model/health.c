/* SPDX-License-Identifier: MIT */
/* health.c - numbers that are not finite: in logits and states, and the weight that made them. */
#include "health.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "gguf/dtype.h"
#include "model.h"

enum { INFINITE = 0x7f800000 }; /* the bits of +infinity; NaNs are larger */

static uint32_t bits_of(float x)
{
    uint32_t b;

    memcpy(&b, &x, sizeof b);
    return b;
}

int cb_all_finite(const float *x, size_t n)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= (bits_of(x[i]) & INFINITE) == INFINITE;
    return !bad;
}

int cb_none_absurd(const float *x, size_t n)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < n; i++)
        bad |= (int)((bits_of(x[i]) & INT32_MAX) > INFINITE) | (int)(bits_of(x[i]) == INFINITE);
    return !bad;
}

/* The first row of the tensor with such a number, -1: there is none, or a negative status below */
static int64_t bad_row(const struct gguf_tensor *t)
{
    const int64_t n = t->dim[0], rows = t->dim[1] * t->dim[2] * t->dim[3];
    const size_t bytes = cb_row_bytes(t->type, n);
    float *row = cb_calloc((size_t)n, sizeof *row);
    int64_t at = -1;

    for (int64_t i = 0; row && i < rows && at < 0; i++) {
        cb_dtype[t->type].to_f32((const char *)t->data + (size_t)i * bytes, row, n);
        if (!cb_all_finite(row, (size_t)n))
            at = i;
    }
    free(row);
    return at;
}

int cb_model_not_finite(const struct cb_model *m)
{
    for (uint64_t i = 0; i < cb_gguf_n_tensor(m->gguf); i++) {
        const struct gguf_tensor *t = cb_gguf_tensor_at(m->gguf, i);
        const int64_t row = bad_row(t);
        if (row >= 0)
            return cb_fail(CB_EFORMAT, "%s: damaged: row %lld of the tensor %.*s is not finite",
                           cb_gguf_path(m->gguf), (long long)row, (int)t->name.n, t->name.s);
    }
    return cb_fail(CB_EFORMAT,
                   "%s: the model's results are not finite, though its weights are: they overflow",
                   cb_gguf_path(m->gguf));
}
