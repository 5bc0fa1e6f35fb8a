/* SPDX-License-Identifier: MIT */
/* provider.c - products by a library's sgemm. Each work item unpacks some rows of the file to f32
 * and multiplies them with all tokens, on its own thread. */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "config.h"

enum { ROWS_BYTES = 512 << 10, ROWS_MIN = 16 }; /* bytes of unpacked weights that fit in L2 */

static const struct provider *const table[] = {
#ifdef HAVE_DNNL
    &cb_provider_dnnl,
#endif
#ifdef HAVE_OPENBLAS
    &cb_provider_blas,
#endif
    NULL
};

int cb_provider_choose(const char *name, const struct provider **out)
{
    *out = NULL;
    if (!name || !strcmp(name, "own"))
        return CB_OK;
    for (int i = 0; table[i]; i++)
        if (!strcmp(table[i]->name, name)) {
            table[i]->open();
            *out = table[i];
            return CB_OK;
        }
    return cb_fail(CB_EUNSUPPORTED, "matrix products by %s: unknown, or not built in", name);
}

const char *cb_provider_at(int i)
{
    return table[i] ? table[i]->name : NULL;
}

static int unit_rows(int n_in)
{
    const int n = (int)(ROWS_BYTES / ((size_t)n_in * sizeof(float))) / 16 * 16;
    return n > ROWS_MIN ? n : ROWS_MIN;
}

size_t cb_provider_scratch(int max_in)
{
    const size_t least = (size_t)max_in * ROWS_MIN * sizeof(float);
    return least > ROWS_BYTES ? least : ROWS_BYTES;
}

struct job {
    const struct provider *p;
    struct par *par;
    const struct mm *mm;
    const float *x;
    int n_tok;
};

static void run_rows(void *ctx, int i, int thread)
{
    const struct job *job = ctx;
    const struct mm *mm = job->mm;
    const struct weight *w = mm->w;
    const int step = unit_rows(w->n_in), row = i * step;
    const int n = w->n_out - row < step ? w->n_out - row : step;
    const char *raw = (const char *)w->raw + cb_row_bytes(w->type, (int64_t)row * w->n_in);
    float *f = cb_par_scratch(job->par, thread);

    cb_dtype[w->type].to_f32(raw, f, (int64_t)n * w->n_in);
    job->p->gemm(job->n_tok, n, w->n_in, job->x, f, mm->add, mm->y + row, mm->y_stride);
    for (int t = 0; mm->bias && t < job->n_tok; t++)
        for (int r = 0; r < n; r++)
            mm->y[(size_t)t * (size_t)mm->y_stride + (size_t)(row + r)] += mm->bias[row + r];
}

void cb_provider_matmul(struct device *d, const struct provider *p, const struct mm *mm, int n,
                        const float *x, int n_tok)
{
    for (int i = 0; i < n; i++) {
        struct job job = { p, d->par, &mm[i], x, n_tok };
        const int step = unit_rows(mm[i].w->n_in);
        cb_par_for(d->par, (mm[i].w->n_out + step - 1) / step, run_rows, &job);
    }
}
