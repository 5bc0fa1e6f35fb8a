/* SPDX-License-Identifier: MIT */
/* matmul.c - matrix products of the CPU device. */
#include <string.h>

#include "err.h"
#include "kern.h"

static const void *weight_row(const struct weight *w, int64_t i)
{
    return (const char *)w->raw + (size_t)i * cb_row_bytes(w->type, w->n_in);
}

int cb_cpu_load(struct device *d, struct weight *w)
{
    (void)d;
    w->packed = NULL;
    w->packed_bytes = 0;
    return CB_OK;
}

void cb_cpu_unload(struct device *d, struct weight *w)
{
    (void)d;
    (void)w;
}

size_t cb_cpu_matmul_scratch(int n_tok, int max_in)
{
    (void)n_tok;
    return (size_t)max_in * sizeof(float);
}

struct job {
    struct par *par;
    const struct mm *mm;
    const float *x;
    int n_tok;
};

enum { ROWS = 16 };

/* 16 partial sums, then a tree */
static float dot(const float *a, const float *b, int n)
{
    float s[16] = { 0 };
    int i = 0;

    for (; i + 16 <= n; i += 16)
        for (int j = 0; j < 16; j++)
            s[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        s[i & 15] += a[i] * b[i];
    for (int half = 8; half; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

static void run_rows(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct mm *mm = job->mm;
    const int n = mm->w->n_in, end = (i + 1) * ROWS < mm->w->n_out ? (i + 1) * ROWS : mm->w->n_out;
    float *row = cb_par_scratch(job->par, thread);

    for (int r = i * ROWS; r < end; r++) {
        cb_dtype[mm->w->type].to_f32(weight_row(mm->w, r), row, n);
        for (int t = 0; t < job->n_tok; t++) {
            float *y = mm->y + (size_t)t * (size_t)mm->y_stride + r;
            const float v =
                dot(row, job->x + (size_t)t * (size_t)n, n) + (mm->bias ? mm->bias[r] : 0);
            *y = mm->add ? *y + v : v;
        }
    }
}

void cb_cpu_matmul(struct device *d, const struct mm *mm, int n, const float *x, int n_tok)
{
    for (int i = 0; i < n; i++) {
        struct job job = { d->par, &mm[i], x, n_tok };
        cb_par_for(d->par, (mm[i].w->n_out + ROWS - 1) / ROWS, run_rows, &job);
    }
}

void cb_cpu_get_rows(struct device *d, const struct weight *w, const int32_t *ids, int n, float *y)
{
    (void)d;
    for (int i = 0; i < n; i++)
        cb_dtype[w->type].to_f32(weight_row(w, ids[i]), y + (size_t)i * (size_t)w->n_in, w->n_in);
}
