/* SPDX-License-Identifier: MIT */
/* gate_limit.c - limits of gates, and of what they multiply. */
#include "gate_limit.h"

struct limited {
    float *gate, *up;
    int n;
    float limit;
};

static void limit_row(void *ctx, int i, int thread)
{
    const struct limited *x = ctx;
    float *g = x->gate + (size_t)i * (size_t)x->n, *u = x->up + (size_t)i * (size_t)x->n;
    const float most = x->limit;

    (void)thread;
    for (int j = 0; j < x->n; j++)
        g[j] = g[j] > most ? most : g[j];
    for (int j = 0; j < x->n; j++)
        u[j] = u[j] > most ? most : u[j] < -most ? -most : u[j];
}

/* Where they are the device's, they pass through the host's memory. */
void cb_gate_limit(struct cb_session *s, int n_ff, int n, float most)
{
    const size_t bytes = (size_t)n * (size_t)n_ff * sizeof(float);
    float *host = s->w.limited;
    struct limited x = { s->w.gate, s->w.up, n_ff, most };

    if (host) {
        x.gate = host;
        x.up = host + (size_t)n * (size_t)n_ff;
        cb_device_copy(s->dev, x.gate, s->w.gate, bytes);
        cb_device_copy(s->dev, x.up, s->w.up, bytes);
    }
    cb_par_for(s->dev->par, n, limit_row, &x);
    if (host) {
        cb_device_copy(s->dev, s->w.gate, x.gate, bytes);
        cb_device_copy(s->dev, s->w.up, x.up, bytes);
    }
}
