/* SPDX-License-Identifier: MIT */
/* mixer.c - layers that mix tokens without keys: delta nets, Mamba-2 and short convolutions. A
 * layer is products, a short convolution, decays, the state's op, and a gated norm. Its states are
 * the bank's (bank/states.h); the first session's work space serves all rows. */
#include "attention/reader.h"
#include "attention/state_memory.h"
#include "base/err.h"
#include "base/ints.h"
#include "device/recurrence.h"
#include "model/adapted_product.h"

enum { CALLS = 16 }; /* sessions that an op takes at once */

/* Work space for a chunk of tokens, in the device's memory */
struct mixer_work {
    float *conv;         /* [chunk][n_conv] what the convolution reads and writes */
    float *gate, *out;   /* [chunk][n_head * dv] */
    float *decay, *beta; /* [chunk][n_head or n_head * dk], [chunk][n_head] */
    float *low;          /* [chunk][low rank] */
    /* What layers made of the inputs of a draft's tokens, so that their states can be made once
     * more where the last tokens are taken back: [n_layer][cap_draft][kept_row], the host's; or
     * NULL */
    float *kept;
    size_t kept_row;
    int cap_draft;
};

struct mixing {
    const struct mix_call *c;
    struct device *dev;
    int n_tok;
    const struct recurrent *x;
    const struct mixer_params *p;
    struct mixer_work *w;
    int again; /* 1: what was kept of a draft takes the place of products */
};

/* Floats of the rows that n-grams of layer l remember: those of each of n_most phases,
 * [n_tap - 1][n_stream * n_embd]. They come first among the layer's rows (engine/streams.c). */
static size_t ngrams_past(const struct attention *a, int l)
{
    const struct ngrams *x = a->model->layer[l].ngrams;
    const struct hparams *hp = &a->model->hp;

    return x ? (size_t)x->n_most * (size_t)(x->n_tap - 1) * (size_t)hp->n_stream *
                   (size_t)hp->n_embd
             : 0;
}

/* ---- steps ---- */

static const struct ops *ops(const struct mixing *m)
{
    return m->dev->ops;
}

/* in[n_tok][n_in], by way of `low` where there is one, -> y[n_tok][w->n_out] */
static void product(const struct mixing *m, const struct weight *low, const struct weight *w,
                    const float *in, float *y)
{
    const struct mm mm = { w, NULL, y, w->n_out, 0, m->c->bits };

    if (low && low->raw) {
        const struct mm first = { low, NULL, m->w->low, low->n_out, 0, m->c->bits };
        cb_adapted_product(m->dev, m->c->low, &first, 1, in, m->n_tok);
        in = m->w->low;
    }
    cb_adapted_product(m->dev, m->c->low, &mm, 1, in, m->n_tok);
}

/* What the convolution reads -> w.conv[n_tok][stride] */
static void products_in(const struct mixing *m, const float *in, int stride)
{
    struct mm mm[3];
    int n = 0;
    float *y = m->w->conv;

    for (; n < 3 && m->x->in[n].raw; n++) {
        mm[n] = (struct mm){ &m->x->in[n], NULL, y, stride, 0, m->c->bits };
        y += m->x->in[n].n_out;
    }
    cb_adapted_product(m->dev, m->c->low, mm, n, in, m->n_tok);
}

/* The convolution of call c, whose x, y, gates and strides are set for its first row */
static void convolve(const struct mixing *m, struct short_conv c)
{
    const size_t before = ngrams_past(m->c->a[0], m->c->l);

    c.n_tok = m->c->n > 1 ? 1 : m->n_tok;
    c.n = m->x->n_conv;
    c.n_tap = m->p->n_tap;
    c.w = m->x->tap;
    c.bias = m->x->tap_bias;
    for (int i = 0; i < m->c->n; i += CALLS) {
        struct short_conv call[CALLS];
        const int n = min_int(CALLS, m->c->n - i);
        for (int j = 0; j < n; j++) {
            const size_t row = (size_t)(i + j) * (size_t)c.x_stride;
            call[j] = c;
            call[j].x += row;
            call[j].gate_in = c.gate_in ? c.gate_in + row : NULL;
            call[j].gate_out = c.gate_out ? c.gate_out + row : NULL;
            call[j].y += (size_t)(i + j) * (size_t)c.y_stride;
            call[j].from = cb_states_past(&m->c->a[i + j]->bank->states, m->c->l) + before;
            call[j].to = cb_states_new_past(&m->c->a[i + j]->bank->states, m->c->l) + before;
        }
        ops(m)->short_conv(m->dev, call, n);
    }
}

/* The same for states */
static void remember(const struct mixing *m, struct recurrence r)
{
    r.n_tok = m->c->n > 1 ? 1 : m->n_tok;
    for (int i = 0; i < m->c->n; i += CALLS) {
        struct recurrence call[CALLS];
        const int n = min_int(CALLS, m->c->n - i);
        for (int j = 0; j < n; j++) {
            const size_t row = (size_t)(i + j);
            call[j] = r;
            call[j].q += row * (size_t)r.qk_stride;
            call[j].k += row * (size_t)r.qk_stride;
            call[j].v += row * (size_t)r.v_stride;
            call[j].beta += row * (size_t)r.n_head;
            call[j].decay += row * (size_t)r.n_head * (size_t)(r.by_row ? r.dk : 1);
            call[j].out += row * (size_t)r.out_stride;
            call[j].from = cb_states_matrix(&m->c->a[i + j]->bank->states, m->c->l);
            call[j].to = cb_states_new_matrix(&m->c->a[i + j]->bank->states, m->c->l);
        }
        ops(m)->recurrence(m->dev, call, n);
    }
}

/* n floats a token of work space at x, which states depend on, are kept at *at, or come from there.
 */
static void keep(const struct mixing *m, float **at, float *x, int n)
{
    const size_t all = (size_t)n * (size_t)m->n_tok;

    cb_device_copy(m->dev, m->again ? x : *at, m->again ? *at : x, all * sizeof *x);
    *at += (size_t)n * (size_t)m->w->cap_draft;
}

/* The inputs of a draft's tokens, before the convolution; width: numbers a token in w.conv */
static void keep_draft(const struct mixing *m, int width)
{
    float *at = m->w->kept;

    if (!m->again && !m->c->a[0]->bank->states.drafting)
        return;
    at += (size_t)m->c->l * (size_t)m->w->cap_draft * m->w->kept_row;
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
    const float eps = m->c->a[0]->model->hp.norm_eps;

    for (int i = 0; w->w && i < w->n_set; i++)
        ops(m)->rmsnorm(m->dev, x + i * w->n, w->w + i * w->n, eps, w->n,
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
    struct device *d = m->dev;
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
    struct device *d = m->dev;
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

/* Short convolutions. w.conv has the gate of the input, the gate of the output, and the value. */
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

static const float *run(const struct mix_call *c, int again)
{
    const struct attention *a = c->a[0];
    const struct recurrent *x = a->model->layer[c->l].mixer;
    const struct mixing m = {
        c, a->dev, c->n_tok, x, &a->model->hp.mix, a->beside[c->l]->x, again
    };

    if (x->kind == MIX_CONV)
        return conv(&m, c->in);
    return x->kind == MIX_MAMBA2 ? mamba2(&m, c->in) : delta(&m, c->in);
}

static const float *mix(const struct mix_call *c)
{
    return run(c, 0);
}

static void passed(struct attention *a, int l, int pos)
{
    if (!a->bank->decoding && !a->repeated.to)
        cb_states_passed(&a->bank->states, l, pos);
}

/* ---- a feed ---- */

static void begin(struct attention *a)
{
    struct bank *b = a->bank;

    if (b->decoding) {
        if (b->n_feed > 1 || (b->states.holding && !b->states.draft))
            cb_states_drafting(&b->states);
        return;
    }
    cb_states_keep(&b->states);
    if (!a->repeated.to)
        cb_states_prompt(&b->states, b->n_seen, b->n_seen + b->n_feed);
}

static int room(const struct attention *a, int l, int i)
{
    (void)l;
    return a->repeated.to ? INT32_MAX : cb_states_room(&a->bank->states, a->bank->n_seen + i);
}

/* No checkpoint makes room for one of a draft. */
static void fed(struct attention *a, int n)
{
    if (a->bank->decoding && n == 1 && a->bank->states.holding) {
        cb_states_held(&a->bank->states);
        return;
    }
    cb_states_drop(&a->bank->states);
    if (a->bank->decoding && n > 1)
        cb_states_drafted(&a->bank->states, n);
    else if (a->bank->decoding)
        cb_states_generated(&a->bank->states, a->bank->n_seen);
}

/* Takes back the last tokens of a draft: the layers take those before n once more. */
static void cut(struct attention *a, void *x, int n)
{
    struct states *s = &a->bank->states;
    const int left = n - (a->bank->n_seen - s->draft);

    (void)x;
    if (!n || !cb_states_in_draft(s, a->bank->n_seen, n))
        return;
    cb_states_undraft(s);
    for (int l = 0; left && l < a->model->hp.n_layer; l++)
        if (a->model->layer[l].mixer)
            run(&(struct mix_call){ .a = &a, .n = 1, .l = l, .n_tok = left }, 1);
}

/* ---- open ---- */

static int claims(const struct claim *c)
{
    return c->y && (c->y->mixer || c->y->ngrams);
}

static int open_work(const struct attention *a, const struct recurrent *x, struct mixer_work *w)
{
    const size_t c = (size_t)a->chunk, conv = c * (size_t)x->n_conv, size = sizeof(float);
    const size_t out = c * (size_t)x->out.n_in,
                 low = c * (size_t)max_int(x->gate_low.n_out, x->rate_low.n_out);
    struct device *d = a->dev;

    w->conv = cb_state_device(w, d, x->kind == MIX_CONV ? 3 * conv : conv, size);
    w->gate = cb_state_device(w, d, out, size);
    if (x->kind == MIX_CONV)
        return cb_state_status(w);
    w->out = cb_state_device(w, d, out, size);
    w->decay = cb_state_device(w, d, c * (size_t)x->rate.n_out, size);
    w->beta = cb_state_device(w, d, c * (size_t)a->model->hp.mix.n_head, size);
    w->low = low ? cb_state_device(w, d, low, size) : NULL;
    return cb_state_status(w);
}

/* All layers have one shape. NULL: n-grams alone remember */
static const struct recurrent *any_mixer(const struct attention *a)
{
    for (int l = 0; l < a->model->hp.n_layer; l++)
        if (a->model->layer[l].mixer)
            return a->model->layer[l].mixer;
    return NULL;
}

static int fit_draft(struct attention *a, void *x, int n)
{
    const struct recurrent *r = any_mixer(a);
    const size_t layers = (size_t)a->model->hp.n_layer;
    struct mixer_work *w = x;

    if (!r || n < 2 || n <= w->cap_draft)
        return CB_OK;
    w->cap_draft = 0;
    cb_state_drop(w, w->kept);
    w->kept_row = (size_t)r->n_conv * (r->kind == MIX_CONV ? 3 : 1);
    if (r->kind != MIX_CONV)
        w->kept_row += (size_t)r->rate.n_out + (size_t)a->model->hp.mix.n_head;
    w->kept = cb_state_alloc(w, layers * (size_t)n * w->kept_row, sizeof *w->kept);
    if (!w->kept)
        return CB_ENOMEM;
    w->cap_draft = n;
    return CB_OK;
}

static size_t floats_of(const void *arg, int l, size_t *past)
{
    const struct attention *a = arg;
    const struct mixer_params *p = &a->model->hp.mix;
    const struct recurrent *x = a->model->layer[l].mixer;

    *past = ngrams_past(a, l);
    if (!x)
        return *past;
    *past += (size_t)(p->n_tap - 1) * (size_t)x->n_conv;
    return *past + (size_t)p->n_head * cb_state_floats(p->dk, p->dv);
}

static int open(struct attention *a, void *x)
{
    if (any_mixer(a))
        TRY(open_work(a, any_mixer(a), x));
    return cb_states_open(&a->bank->states, a->model->hp.n_layer, floats_of, a,
                          a->bank->checkpoint_bytes);
}

const struct reader cb_reader_mixer = {
    .name = "a state instead of keys",
    .traits = READ_STATE | READ_DENSE | READ_EXTENDS,
    .claims = claims,
    .state = sizeof(struct mixer_work),
    .open = open,
    .fit_draft = fit_draft,
    .cut = cut,
    .begin = begin,
    .room = room,
    .mix = mix,
    .passed = passed,
    .fed = fed,
};
