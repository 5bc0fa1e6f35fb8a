/* SPDX-License-Identifier: MIT */
/* rope.c - frequencies of rotary positions and their tables of cos and sin. */
#include "rope.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int cb_rope_scaling_find(const char *name)
{
    static const char *const names[] = { "none", "linear", "dynamic", "yarn", "longrope" };

    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i]))
            return i;
    return -1;
}

/* The dimension that turns `n` times within the context of the training. */
static double dim_of_turns(const struct rope_params *p, int n_rot, double n)
{
    const double pi = 3.14159265358979323846;
    return n_rot * log(p->n_ctx_orig / (n * 2 * pi)) / (2 * log((double)p->base));
}

/* YaRN (Peng et al. 2023, section 3.2): 1 where pair i keeps its frequency, 0 where it is divided
 * by the factor, a ramp between. */
static double yarn_keeps(const struct rope_params *p, int n_rot, int i)
{
    double lo = dim_of_turns(p, n_rot, (double)p->beta_fast);
    double hi = dim_of_turns(p, n_rot, (double)p->beta_slow), at;

    if (p->whole_ramp) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = fmax(lo, 0);
    hi = fmin(hi, n_rot - 1);
    at = (i - lo) / fmax(hi - lo, 1e-3);
    return 1 - fmin(fmax(at, 0), 1);
}

/* Dynamic NTK: the base grows with the context beyond that of the training. */
static double base_of(const struct rope_params *p, int n_rot, int n_ctx)
{
    const double more = (double)n_ctx / p->n_ctx_orig;

    if (p->scaling != ROPE_DYNAMIC || more <= 1 || n_rot <= 2)
        return (double)p->base;
    return (double)p->base *
           pow((double)p->factor * more - ((double)p->factor - 1), n_rot / (n_rot - 2.0));
}

static double divisor_of(const struct rope_params *p, int n_rot, int n_ctx, int i)
{
    const float *own = p->divisor[n_ctx > p->n_ctx_orig && p->divisor[1]];
    const double given = own ? (double)own[i] : 1;
    double keeps;

    if (p->scaling == ROPE_LINEAR)
        return given * (double)p->factor;
    if (p->scaling != ROPE_YARN)
        return given;
    keeps = yarn_keeps(p, n_rot, i);
    return given / (keeps + (1 - keeps) / (double)p->factor);
}

/* YaRN, section 3.3: logits grow with the factor, here by way of cos and sin. */
static double yarn_growth(const struct rope_params *p, double mul)
{
    return p->scaling == ROPE_YARN && p->factor > 1 ? 1 + 0.1 * mul * log((double)p->factor) : 1;
}

static double scale_of(const struct rope_params *p)
{
    return yarn_growth(p, 1) / yarn_growth(p, (double)p->log_mul) * (double)p->attn_factor;
}

int cb_rope_open(struct rope *r, const struct rope_params *p, int n_ctx)
{
    const int n_rot = p->n_rot;
    const double base = base_of(p, n_rot, n_ctx);

    *r = (struct rope){ .n_rot = n_rot, .scale = (float)scale_of(p) };
    r->inv_freq = cb_calloc((size_t)n_rot / 2, sizeof *r->inv_freq);
    if (!r->inv_freq)
        return CB_ENOMEM;
    for (int i = 0; i < n_rot / 2; i++) {
        r->inv_freq[i] = (float)(pow(base, -2.0 * i / n_rot) / divisor_of(p, n_rot, n_ctx, i));
        if (!isfinite(r->inv_freq[i]))
            return cb_fail(CB_EFORMAT, "rotation: frequency %d is %g; base %g, scale %g", i,
                           (double)r->inv_freq[i], base, (double)p->factor);
    }
    return CB_OK;
}

void cb_rope_close(struct rope *r)
{
    free(r->inv_freq);
    *r = (struct rope){ 0 };
}

static void table(const struct rope *r, int pos0, int n_tok, float scale, float *cs)
{
    const int n = r->n_rot / 2;

    for (int t = 0; t < n_tok; t++)
        for (int i = 0; i < n; i++) {
            /* the angle is rounded to f32 as in training; at position 1e5 the error is 4e-3 rad */
            const float a = (float)(pos0 + t) * r->inv_freq[i];
            cs[((size_t)t * (size_t)n + (size_t)i) * 2] = cosf(a) * scale;
            cs[((size_t)t * (size_t)n + (size_t)i) * 2 + 1] = sinf(a) * scale;
        }
}

void cb_rope_table(const struct rope *r, int pos0, int n_tok, float *cs)
{
    table(r, pos0, n_tok, r->scale, cs);
}

void cb_rope_turn(const struct rope *r, int by, float *cs)
{
    table(r, by, 1, 1, cs);
}
