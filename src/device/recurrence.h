/* SPDX-License-Identifier: MIT */
/* recurrence.h - layers that remember without keys: short convolutions, and linear attention, whose
 * memory is one matrix a head. Each op takes a token after the other, and the order of its sums
 * does not depend on how many tokens a call has: a prompt in any pieces, and generated tokens,
 * leave the same bits. */
#ifndef RECURRENCE_H
#define RECURRENCE_H

#include <stddef.h>

enum {
    CONV_MOST = 8,      /* most taps of a convolution */
    STATE_STRIP = 16,   /* columns of a state that lie together */
    STATE_MOST_DK = 512 /* most rows of a state */
};

/* A causal convolution of each channel over its last n_tap tokens:
 *   u[t] = x[t] * gate_in[t],   y[t] = act(sum_j w[j] u[t - n_tap + 1 + j] + bias) * gate_out[t]
 * j ascends, the bias comes first. `from` has the rows of u before the first token, oldest first;
 * `to`, which may be the same, gets the last rows. y may be x. Calls are independent. */
struct short_conv {
    int n_tok, n, n_tap;
    int silu;                        /* 1: act is SiLU; 0: none */
    const float *w;                  /* [n_tap][n] */
    const float *bias;               /* [n] or NULL */
    const float *x;                  /* [n_tok][n] at x_stride */
    const float *gate_in, *gate_out; /* the same shape and stride, or NULL = 1 */
    const float *from;               /* [n_tap - 1][n] */
    float *to;
    float *y; /* [n_tok][n] at y_stride */
    int x_stride, y_stride;
};

/* How fast states fade: step = softplus(x + bias), decay = e^(a step). bias is [n], a [n / per].
 * decay may be x where x_stride is n. */
struct decays {
    int n_tok, n, per;
    const float *x; /* [n_tok][n] at x_stride */
    int x_stride;
    const float *bias, *a;
    float *step;  /* [n_tok][n] or NULL */
    float *decay; /* [n_tok][n] */
};

/* Linear attention with a fading state S[dk][dv] of each head (gated delta net, Yang et al. 2024;
 * KDA, Kimi team 2025; Mamba-2, Dao and Gu 2024). For each token:
 *   S <- decay S;  u = beta (v - S^T k), or beta v where `erase` is 0;  S <- S + k u^T
 *   out = S^T q + skip v
 * Sums run over the rows of S in ascending order. A head's state is [dv / STATE_STRIP, rounded
 * up][dk][STATE_STRIP], and columns past dv stay 0. out may be v. Calls are independent. */
struct recurrence {
    int n_tok, n_head, n_group; /* heads of v, and of q and k */
    int tiled;                  /* 1: head h reads q and k of group h % n_group; 0: adjacent heads
                                   share a group */
    int dk, dv;                 /* dk at most STATE_MOST_DK */
    int erase;
    const float *q, *k; /* [n_tok][n_group][dk] at qk_stride */
    const float *v;     /* [n_tok][n_head][dv] at v_stride */
    const float *beta;  /* [n_tok][n_head] */
    const float *decay; /* [n_tok][n_head], or of each row of S: [n_tok][n_head][dk] */
    int by_row;         /* 1: of each row */
    const float *skip;  /* [n_head] or NULL */
    const float *from;  /* states of all heads before the first token */
    float *to;          /* and after the last one; may be `from` */
    float *out;         /* [n_tok][n_head][dv] at out_stride */
    int qk_stride, v_stride, out_stride;
};

static inline int cb_state_strips(int dv)
{
    return (dv + STATE_STRIP - 1) / STATE_STRIP;
}

/* Floats of one head's state */
static inline size_t cb_state_floats(int dk, int dv)
{
    return (size_t)cb_state_strips(dv) * (size_t)dk * STATE_STRIP;
}

/* The group that head h reads */
static inline int cb_state_group(const struct recurrence *r, int h)
{
    return r->tiled ? h % r->n_group : h / (r->n_head / r->n_group);
}

#endif
