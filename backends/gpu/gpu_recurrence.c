/* SPDX-License-Identifier: MIT */
/* gpu_recurrence.c - layers that remember without keys: the CPU computes them, since their states
 * lie in the host's memory. What they read of the device's memory is fetched, and results are sent
 * back. */
#include "device/recurrence.h"

#include "gpu.h"

/* Bytes of n_tok rows of n floats, `stride` floats apart */
static size_t rows(int n_tok, int stride, size_t n)
{
    return n_tok > 0 ? ((size_t)(n_tok - 1) * (size_t)stride + n) * sizeof(float) : 0;
}

static struct gpu *begin(struct device *d)
{
    struct gpu *g = cb_gpu_of(d);

    cb_gpu_say(g, NOTE_RECURRENCE, "the CPU computes layers that remember without keys");
    return g;
}

static void conv(struct gpu *g, const struct short_conv *c)
{
    const size_t in = rows(c->n_tok, c->x_stride, (size_t)c->n);
    const size_t out = rows(c->n_tok, c->y_stride, (size_t)c->n);
    struct short_conv h = *c;

    h.x = cb_gpu_to_host(g, c->x, in);
    h.gate_in = cb_gpu_to_host(g, c->gate_in, in);
    h.gate_out = cb_gpu_to_host(g, c->gate_out, in);
    h.y = cb_gpu_to_host(g, c->y, out);
    if (h.x && h.y && !h.gate_in == !c->gate_in && !h.gate_out == !c->gate_out)
        g->host.ops->short_conv(&g->host, &h, 1);
    cb_gpu_from_host(g, c->y, h.y, out);
    cb_gpu_from_host(g, (float *)(uintptr_t)c->x, (float *)(uintptr_t)h.x, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)c->gate_in, (float *)(uintptr_t)h.gate_in, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)c->gate_out, (float *)(uintptr_t)h.gate_out, 0);
}

void cb_gpu_short_conv(struct device *d, const struct short_conv *c, int n)
{
    struct gpu *g = begin(d);

    for (int i = 0; i < n; i++)
        if (c[i].n_tok > 0)
            conv(g, &c[i]);
        else /* the state moves, if to is not from */
            g->host.ops->short_conv(&g->host, &c[i], 1);
}

void cb_gpu_decays(struct device *d, const struct decays *x)
{
    const size_t in = rows(x->n_tok, x->x_stride, (size_t)x->n);
    const size_t out = rows(x->n_tok, x->n, (size_t)x->n);
    struct gpu *g = begin(d);
    struct decays h = *x;

    if (x->n_tok < 1)
        return;
    h.x = cb_gpu_to_host(g, x->x, in);
    h.step = cb_gpu_to_host(g, x->step, out);
    h.decay = cb_gpu_to_host(g, x->decay, out);
    if (h.x && h.decay && !h.step == !x->step)
        g->host.ops->decays(&g->host, &h);
    cb_gpu_from_host(g, x->step, h.step, out);
    cb_gpu_from_host(g, x->decay, h.decay, out);
    cb_gpu_from_host(g, (float *)(uintptr_t)x->x, (float *)(uintptr_t)h.x, 0);
}

static void remember(struct gpu *g, const struct recurrence *r)
{
    const size_t qk = rows(r->n_tok, r->qk_stride, (size_t)r->n_group * (size_t)r->dk);
    const size_t heads = (size_t)r->n_head * (size_t)r->dv;
    const size_t v = rows(r->n_tok, r->v_stride, heads);
    const size_t out = rows(r->n_tok, r->out_stride, heads);
    const size_t beta = rows(r->n_tok, r->n_head, (size_t)r->n_head);
    const size_t decay = beta * (size_t)(r->by_row ? r->dk : 1);
    struct recurrence h = *r;

    h.q = cb_gpu_to_host(g, r->q, qk);
    h.k = cb_gpu_to_host(g, r->k, qk);
    h.v = cb_gpu_to_host(g, r->v, v);
    h.beta = cb_gpu_to_host(g, r->beta, beta);
    h.decay = cb_gpu_to_host(g, r->decay, decay);
    h.out = cb_gpu_to_host(g, r->out, out);
    if (h.q && h.k && h.v && h.beta && h.decay && h.out)
        g->host.ops->recurrence(&g->host, &h, 1);
    cb_gpu_from_host(g, r->out, h.out, out);
    cb_gpu_from_host(g, (float *)(uintptr_t)r->q, (float *)(uintptr_t)h.q, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)r->k, (float *)(uintptr_t)h.k, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)r->v, (float *)(uintptr_t)h.v, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)r->beta, (float *)(uintptr_t)h.beta, 0);
    cb_gpu_from_host(g, (float *)(uintptr_t)r->decay, (float *)(uintptr_t)h.decay, 0);
}

void cb_gpu_recurrence(struct device *d, const struct recurrence *r, int n)
{
    struct gpu *g = begin(d);

    for (int i = 0; i < n; i++)
        if (r[i].n_tok > 0)
            remember(g, &r[i]);
        else
            g->host.ops->recurrence(&g->host, &r[i], 1);
}
