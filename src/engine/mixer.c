/* SPDX-License-Identifier: MIT */
/* mixer.c - layers that mix tokens without keys. A layer is products, a short convolution, decays,
 * the state's op, and a gated norm; the first session's work space serves all rows. */
#include "mixer.h"

#include "base/ints.h"
#include "device/recurrence.h"
#include "product.h"

enum { CALLS = 16 }; /* sessions that an op takes at once */

struct mixing {
    struct cb_session *const *s;
    int n_session, l, n_tok, bits;
    const struct recurrent *x;
    const struct mixer_params *p;
    struct mixer_work *w;
    int again; /* 1: what was kept of a draft takes the place of products */
};

/* ---- steps ---- */

static const struct ops *ops(const struct mixing *m)
{
    return m->s[0]->dev->ops;
}

/* in[n_tok][n_in], by way of `low` where there is one, -> y[n_tok][w->n_out] */
static void product(const struct mixing *m, const struct weight *low, const struct weight *w,
                    const float *in, float *y)
{
    const struct mm mm = { w, NULL, y, w->n_out, 0, m->bits };

    if (low && low->raw) {
        const struct mm first = { low, NULL, m->w->low, low->n_out, 0, m->bits };
        cb_product(m->s[0], &first, 1, in, m->n_tok);
        in = m->w->low;
    }
    cb_product(m->s[0], &mm, 1, in, m->n_tok);
}

/* What the convolution reads -> w.conv[n_tok][stride] */
static void products_in(const struct mixing *m, const float *in, int stride)
{
    struct mm mm[3];
    int n = 0;
    float *y = m->w->conv;

    for (; n < 3 && m->x->in[n].raw; n++) {
        mm[n] = (struct mm){ &m->x->in[n], NULL, y, stride, 0, m->bits };
        y += m->x->in[n].n_out;
    }
    cb_product(m->s[0], mm, n, in, m->n_tok);
}

/* The convolution of call c, whose x, y, gates and strides are set for its first row */
static void convolve(const struct mixing *m, struct short_conv c)
{
    const int tokens = m->n_session > 1 ? 1 : m->n_tok;

    c.n_tok = tokens;
    c.n = m->x->n_conv;
    c.n_tap = m->p->n_tap;
    c.w = m->x->tap;
    c.bias = m->x->tap_bias;
    for (int i = 0; i < m->n_session; i += CALLS) {
        struct short_conv call[CALLS];
        const int n = min_int(CALLS, m->n_session - i);
        for (int j = 0; j < n; j++) {
            const size_t row = (size_t)(i + j) * (size_t)c.x_stride;
            call[j] = c;
            call[j].x += row;
            call[j].gate_in = c.gate_in ? c.gate_in + row : NULL;
            call[j].gate_out = c.gate_out ? c.gate_out + row : NULL;
            call[j].y += (size_t)(i + j) * (size_t)c.y_stride;
            call[j].from = cb_states_past(&m->s[i + j]->states, m->l);
            call[j].to = cb_states_new_past(&m->s[i + j]->states, m->l);
        }
        ops(m)->short_conv(m->s[0]->dev, call, n);
    }
}

/* The same for states */
static void remember(const struct mixing *m, struct recurrence r)
{
    r.n_tok = m->n_session > 1 ? 1 : m->n_tok;
    for (int i = 0; i < m->n_session; i += CALLS) {
        struct recurrence call[CALLS];
        const int n = min_int(CALLS, m->n_session - i);
        for (int j = 0; j < n; j++) {
            const size_t row = (size_t)(i + j);
            call[j] = r;
            call[j].q += row * (size_t)r.qk_stride;
            call[j].k += row * (size_t)r.qk_stride;
            call[j].v += row * (size_t)r.v_stride;
            call[j].beta += row * (size_t)r.n_head;
            call[j].decay += row * (size_t)r.n_head * (size_t)(r.by_row ? r.dk : 1);
            call[j].out += row * (size_t)r.out_stride;
            call[j].from = cb_states_matrix(&m->s[i + j]->states, m->l);
            call[j].to = cb_states_new_matrix(&m->s[i + j]->states, m->l);
        }
        ops(m)->recurrence(m->s[0]->dev, call, n);
    }
}

/* n floats a token of work space at x, which states depend on, are kept at *at, or come from there.
 */
static void keep(const struct mixing *m, float **at, float *x, int n)
{
    const size_t all = (size_t)n * (size_t)m->n_tok;

    cb_device_copy(m->s[0]->dev, m->again ? x : *at, m->again ? *at : x, all * sizeof *x);
    *at += (size_t)n * (size_t)m->w->cap_draft;
}

/* The inputs of a draft's tokens, before the convolution; width: numbers a token in w.conv */
static void keep_draft(const struct mixing *m, int width)
{
    float *at = m->w->kept;

    if (!m->again && !m->s[0]->states.apart)
        return;
    at += (size_t)m->l * (size_t)m->w->cap_draft * m->w->kept_row;
    keep(m, &at, m->w->conv, width);
    if (m->x->kind == MIX_CONV)
        return;
    keep(m, &at, m->w->decay, m->x->rate.n_out);
    if (m->x->beta.raw)
        keep(m, &at, m->w->beta, m->p->n_head);
}

/* Norms each row of n numbers of x[n_tok][width], row r with set r % n_set of weights. */
static void norm_rows(const struct mixing *m, const struct norm *w, float *x, int width)
{
    const float eps = m->s[0]->model->hp.norm_eps;

    for (int i = 0; w->w && i < w->n_set; i++)
        ops(m)->rmsnorm(m->s[0]->dev, x + i * w->n, w->w + i * w->n, eps, w->n,
                        w->n_set == 1 ? width / w->n : 1, m->n_tok, width, x + i * w->n, width);
}

/* Delta nets. w.conv has queries, keys and values. */
static const float *delta(const struct mixing *m, const float *in)
{
    const struct mixer_params *p = m->p;
    const struct recurrent *x = m->x;
    const int width = x->n_conv, nk = p->n_group * p->dk, nv = p->n_head * p->dv;
    const float eps = 1e-6f / (float)p->dk; /* of the squares' sum, 1e-6 */
    struct mixer_work *w = m->w;
    struct device *d = m->s[0]->dev;
    const struct decays fade = { m->n_tok, x->rate.n_out, x->rate.n_out / p->n_head,
                                 w->decay, x->rate.n_out, x->dt,
                                 x->a,     NULL,          w->decay };
    const struct recurrence r = { .n_head = p->n_head,
                                  .n_group = p->n_group,
                                  .tiled = x->tiled,
                                  .dk = p->dk,
                                  .dv = p->dv,
                                  .erase = 1,
                                  .q = w->conv,
                                  .k = w->conv + nk,
                                  .v = w->conv + 2 * nk,
                                  .beta = w->beta,
                                  .decay = w->decay,
                                  .by_row = x->kind == MIX_KDA,
                                  .out = w->out,
                                  .qk_stride = width,
                                  .v_stride = width,
                                  .out_stride = nv };

    if (!m->again) {
        products_in(m, in, width);
        product(m, &x->gate_low, &x->gate, in, w->gate);
        product(m, &x->rate_low, &x->rate, in, w->decay);
        product(m, NULL, &x->beta, in, w->beta);
    }
    keep_draft(m, width);
    convolve(m, (struct short_conv){
                    .silu = 1, .x = w->conv, .x_stride = width, .y = w->conv, .y_stride = width });
    for (int i = 0; i < 2; i++)
        ops(m)->rmsnorm(d, w->conv + i * nk, x->unit + i * p->dk, eps, p->dk, p->n_group, m->n_tok,
                        width, w->conv + i * nk, width);
    ops(m)->decays(d, &fade);
    ops(m)->glu(d, ACT_SIGMOID, w->beta, NULL, p->n_head, m->n_tok);
    remember(m, r);
    norm_rows(m, &x->norm, w->out, nv);
    ops(m)->glu(d, x->sigmoid_gate ? ACT_SIGMOID : ACT_SILU, w->gate, w->out, nv, m->n_tok);
    return w->gate;
}

/* Mamba-2. w.conv has values, keys and queries; the gate comes before the norm. */
static const float *mamba2(const struct mixing *m, const float *in)
{
    const struct mixer_params *p = m->p;
    const struct recurrent *x = m->x;
    const int width = x->n_conv, nk = p->n_group * p->dk, nv = p->n_head * p->dv;
    struct mixer_work *w = m->w;
    struct device *d = m->s[0]->dev;
    const struct decays fade = { m->n_tok, p->n_head, 1,       w->decay, p->n_head,
                                 x->dt,    x->a,      w->beta, w->decay };
    const struct recurrence r = { .n_head = p->n_head,
                                  .n_group = p->n_group,
                                  .dk = p->dk,
                                  .dv = p->dv,
                                  .q = w->conv + nv + nk,
                                  .k = w->conv + nv,
                                  .v = w->conv,
                                  .beta = w->beta,
                                  .decay = w->decay,
                                  .skip = x->skip,
                                  .out = w->out,
                                  .qk_stride = width,
                                  .v_stride = width,
                                  .out_stride = nv };

    if (!m->again) {
        products_in(m, in, width);
        product(m, &x->gate_low, &x->gate, in, w->gate);
        product(m, &x->rate_low, &x->rate, in, w->decay);
    }
    keep_draft(m, width);
    convolve(m, (struct short_conv){
                    .silu = 1, .x = w->conv, .x_stride = width, .y = w->conv, .y_stride = width });
    ops(m)->decays(d, &fade);
    remember(m, r);
    ops(m)->glu(d, ACT_SILU, w->gate, w->out, nv, m->n_tok);
    norm_rows(m, &x->norm, w->gate, nv);
    return w->gate;
}

/* Short convolutions. w.conv has the gate of what goes in, that of what comes out, and the value.
 */
static const float *conv(const struct mixing *m, const float *in)
{
    const int n = m->x->n_conv;
    struct mixer_work *w = m->w;

    if (!m->again)
        products_in(m, in, 3 * n);
    keep_draft(m, 3 * n);
    convolve(m, (struct short_conv){ .gate_in = w->conv,
                                     .gate_out = w->conv + n,
                                     .x = w->conv + 2 * n,
                                     .x_stride = 3 * n,
                                     .y = w->gate,
                                     .y_stride = n });
    return w->gate;
}

static const float *mix(const struct mixing *m, const float *in)
{
    if (m->x->kind == MIX_CONV)
        return conv(m, in);
    return m->x->kind == MIX_MAMBA2 ? mamba2(m, in) : delta(m, in);
}

const float *cb_mixer(struct cb_session *const *s, int n_session, int l, const float *in, int n_tok,
                      int bits)
{
    const struct cb_model *model = s[0]->model;
    const struct mixing m = {
        s, n_session, l, n_tok, bits, model->layer[l].mixer, &model->hp.mix, &s[0]->w.mixer, 0
    };

    return mix(&m, in);
}

void cb_mixer_again(struct cb_session *s, int l, int n)
{
    const struct cb_model *model = s->model;
    const struct mixing m = {
        &s, 1, l, n, 0, model->layer[l].mixer, &model->hp.mix, &s->w.mixer, 1
    };

    mix(&m, NULL);
}
