/* SPDX-License-Identifier: MIT */
/* ref_recurrence.c - layers that remember without keys, in plain C with double sums. States are
 * stored as floats after each token, as on every device. */
#include "ref_recurrence.h"

#include <math.h>
#include <string.h>

#include "device/recurrence.h"

/* ---- convolution ---- */

static void conv_channel(const struct short_conv *c, int i)
{
    float past[CONV_MOST];
    const int n_past = c->n_tap - 1;

    for (int j = 0; j < n_past; j++)
        past[j] = c->from[(size_t)j * (size_t)c->n + (size_t)i];
    for (int64_t t = 0; t < c->n_tok; t++) {
        const int64_t at = t * c->x_stride + i;
        double sum = c->bias ? (double)c->bias[i] : 0;
        past[n_past] = c->gate_in ? c->x[at] * c->gate_in[at] : c->x[at];
        for (int j = 0; j < c->n_tap; j++)
            sum += (double)past[j] * (double)c->w[(size_t)j * (size_t)c->n + (size_t)i];
        if (c->silu)
            sum /= 1 + exp(-sum);
        if (c->gate_out)
            sum *= (double)c->gate_out[at];
        c->y[t * c->y_stride + i] = (float)sum;
        memmove(past, past + 1, (size_t)n_past * sizeof *past);
    }
    for (int j = 0; j < n_past; j++)
        c->to[(size_t)j * (size_t)c->n + (size_t)i] = past[j];
}

void cb_ref_short_conv(struct device *d, const struct short_conv *c, int n)
{
    (void)d;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < c[k].n; i++)
            conv_channel(&c[k], i);
}

/* ---- decay ---- */

void cb_ref_decays(struct device *d, const struct decays *x)
{
    (void)d;
    for (int64_t t = 0; t < x->n_tok; t++)
        for (int i = 0; i < x->n; i++) {
            const double in = (double)x->x[t * x->x_stride + i] + (double)x->bias[i];
            const double step = fmax(in, 0) + log1p(exp(-fabs(in)));
            if (x->step)
                x->step[t * x->n + i] = (float)step;
            x->decay[t * x->n + i] = (float)exp((double)x->a[i / x->per] * step);
        }
}

/* ---- state ---- */

/* One column of a head's state, whose rows are STATE_STRIP floats apart */
static void column(const struct recurrence *r, int h, int j, float *s)
{
    const int group = cb_state_group(r, h);

    for (int64_t t = 0; t < r->n_tok; t++) {
        const float *q = r->q + t * r->qk_stride + (int64_t)group * r->dk;
        const float *k = r->k + t * r->qk_stride + (int64_t)group * r->dk;
        const float *fade = r->decay + (t * r->n_head + h) * (r->by_row ? r->dk : 1);
        const double v = (double)r->v[t * r->v_stride + (int64_t)h * r->dv + j];
        double read = 0, u, out = r->skip ? (double)r->skip[h] * v : 0;
        for (int i = 0; r->erase && i < r->dk; i++)
            read += (double)fade[r->by_row ? i : 0] * (double)s[i * STATE_STRIP] * (double)k[i];
        u = (double)r->beta[t * r->n_head + h] * (v - read);
        for (int i = 0; i < r->dk; i++) {
            const double kept = (double)fade[r->by_row ? i : 0] * (double)s[i * STATE_STRIP];
            s[i * STATE_STRIP] = (float)(kept + (double)k[i] * u);
            out += (double)s[i * STATE_STRIP] * (double)q[i];
        }
        r->out[t * r->out_stride + (int64_t)h * r->dv + j] = (float)out;
    }
}

void cb_ref_recurrence(struct device *d, const struct recurrence *r, int n)
{
    (void)d;
    for (int c = 0; c < n; c++) {
        const size_t each = cb_state_floats(r[c].dk, r[c].dv);
        if (r[c].to != r[c].from)
            memcpy(r[c].to, r[c].from, (size_t)r[c].n_head * each * sizeof *r[c].to);
        for (int h = 0; h < r[c].n_head; h++)
            for (int j = 0; j < r[c].dv; j++)
                column(&r[c], h, j,
                       r[c].to + (size_t)h * each +
                           (size_t)(j / STATE_STRIP * r[c].dk) * STATE_STRIP + j % STATE_STRIP);
    }
}
