/* SPDX-License-Identifier: MIT */
/* rope.h - rotary positions: which frequencies a model's heads rotate with, scaled for contexts
 * longer than those of its training. */
#ifndef ROPE_H
#define ROPE_H

/* How frequencies are scaled. ROPE_LONG: two lists of divisors, for contexts up to that of the
 * training and for longer ones (LongRoPE). */
enum rope_scaling { ROPE_NONE, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_YARN, ROPE_LONG };

/* One way of rotating, as the file has it. */
struct rope_params {
    int n_rot; /* dimensions of a head that rotate */
    float base;
    enum rope_scaling scaling;
    float factor;               /* by which positions are divided, or contexts grow */
    int n_ctx_orig;             /* context of the training, in tokens */
    float attn_factor;          /* of cos and sin, beside the one that the scaling implies */
    float log_mul;              /* YaRN: the factor that the scaling implies is divided by that of
                                   its logarithm times this */
    float beta_fast, beta_slow; /* YaRN: turns within n_ctx_orig; above: unscaled, below: linear */
    int whole_ramp;             /* YaRN: 1 = the ramp between them begins and ends at whole dims */
    float *divisor[2]; /* [n_rot / 2] of the frequencies, or NULL; [1]: beyond n_ctx_orig */
};

/* The same for the context of a session. */
struct rope {
    int n_rot;       /* dimensions that rotate */
    float *inv_freq; /* [n_rot / 2] radians for each position */
    float scale;     /* of cos and sin */
};

int cb_rope_scaling_find(const char *name); /* "none", "linear", ...; -1: unknown */
int cb_rope_open(struct rope *r, const struct rope_params *p, int n_ctx);
void cb_rope_close(struct rope *r);
/* cos and sin for positions pos0.. -> cs[n_tok][n_rot / 2][2] */
void cb_rope_table(const struct rope *r, int pos0, int n_tok, float *cs);
/* The same for `by` positions more, without the scale: for a head that has been rotated -> cs */
void cb_rope_turn(const struct rope *r, int by, float *cs);

#endif
