/* SPDX-License-Identifier: MIT */
/* gpu_split.c - tokens' numbers as sums of two halves. A norm or a gate leaves them beside its
 * results; they are known until something writes there, or until the stage that they lie in is
 * emptied. */
#include "gpu_split.h"

enum { PAD = 8 * 8 + 2 }; /* blocks of 32 numbers that kernels may read after the last token */

static size_t bytes_of(int n, int n_tok)
{
    return ((size_t)n * (size_t)n_tok + 32 * PAD) * sizeof(float);
}

static int place(struct gpu *g, const float *x, int n, int n_tok, struct gpu_split *s)
{
    *s = (struct gpu_split){ .x = x, .n = n, .n_tok = n_tok };
    s->to = cb_gpu_room_for(g, bytes_of(n, n_tok));
    s->scale = cb_gpu_room_for(g, (size_t)n_tok * sizeof(float));
    return s->to && s->scale && !g->status;
}

int cb_gpu_split(struct gpu *g, const float *x, int n, int n_tok, struct gpu_split *out)
{
    const size_t groups[3] = { (size_t)n_tok, 1, 1 };

    g->splits = 1;
    if (g->split.x == x && x && g->split.n == n && g->split.n_tok >= n_tok) {
        *out = g->split;
        return 1;
    }
    if ((uintptr_t)x % 16) { /* the kernel reads 16 bytes at a time */
        const size_t bytes = (size_t)n * (size_t)n_tok * sizeof(float);
        float *aligned = cb_gpu_room_for(g, bytes);
        if (aligned)
            cb_gpu_move(g, aligned, x, bytes);
        x = aligned;
    }
    if (!x || !place(g, x, n, n_tok, out))
        return 0;
    const struct gpu_arg arg[] = { GPU_P(x), GPU_P(NULL),    GPU_I(0),
                                   GPU_I(n), GPU_P(out->to), GPU_P(out->scale) };
    cb_gpu_run(g, cb_gpu_program(g, GPU_VECTOR, (struct gpu_options){ 0 }), "split", groups,
               SPLIT_ITEMS, arg, 6, NULL);
    return 1;
}

int cb_gpu_split_beside(struct gpu *g, const float *x, int n, int n_tok, struct gpu_split *out)
{
    *out = (struct gpu_split){ 0 };
    if (g->status || !g->splits || n_tok > SPLIT_MOST_TOK ||
        !cb_gpu_stage_fits(g, bytes_of(n, n_tok) + 1024) || !place(g, x, n, n_tok, out))
        return 0;
    g->split = *out;
    return 1;
}
