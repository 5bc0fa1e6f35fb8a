/* SPDX-License-Identifier: MIT */
/* check_recurrence.c - layers that remember without keys, against the reference device: any shape,
 * and the same bits however the tokens are cut into calls and for any number of threads. */
#include "against_ref.h"
#include "device/recurrence.h"

/* ---- convolution ---- */

struct conv_case {
    struct short_conv c;
    size_t n_x, n_y, n_past;
    float *x, *gates, *w, *bias, *past;
};

static struct conv_case conv_case(int i)
{
    struct conv_case k = { .c = {
                               .n_tok = below(20), .n = 1 + below(600), .n_tap = 1 + below(8) } };
    struct short_conv *c = &k.c;

    if (i % 2)
        c->n_tap = 3 + i % 4 / 2;
    c->silu = i % 3 > 0;
    c->x_stride = c->n + below(5);
    c->y_stride = c->n + below(5);
    k.n_x = (size_t)c->n_tok * c->x_stride;
    k.n_y = (size_t)c->n_tok * c->y_stride;
    k.n_past = (size_t)(c->n_tap - 1) * c->n;
    c->x = k.x = floats(k.n_x);
    k.gates = floats(k.n_x);
    c->gate_in = i % 4 == 1 ? k.gates : NULL;
    c->gate_out = i % 4 < 2 ? k.gates : NULL;
    c->w = k.w = floats((size_t)c->n_tap * c->n);
    k.bias = floats(c->n);
    c->bias = i % 5 ? k.bias : NULL;
    c->from = k.past = floats(k.n_past);
    return k;
}

static void conv_free(struct conv_case *k)
{
    free(k->x), free(k->gates), free(k->w), free(k->bias), free(k->past);
}

/* The first m tokens, then the others, after each other in `past` */
static void conv_cut(struct device *d, struct short_conv c, int m, float *past, float *y)
{
    c.from = c.to = past;
    c.y = y;
    for (int n = c.n_tok, at = 0, i = 0; i < 2; i++) {
        struct short_conv part = c;
        const size_t skip = (size_t)at * c.x_stride;
        part.n_tok = i ? n - at : m;
        part.x += skip;
        part.gate_in = c.gate_in ? c.gate_in + skip : NULL;
        part.gate_out = c.gate_out ? c.gate_out + skip : NULL;
        part.y += (size_t)at * c.y_stride;
        d->ops->short_conv(d, &part, 1);
        at = m;
    }
}

START_TEST(convolution)
{
    if (!open_isa(_i, 2))
        return;
    for (int i = 0; i < 80; i++) {
        struct conv_case k = conv_case(i);
        float *y = floats(k.n_y), *z = copy(y, k.n_y), *y2 = copy(y, k.n_y);
        float *to = poisoned(k.n_past), *to2 = poisoned(k.n_past), *past = copy(k.past, k.n_past);
        struct short_conv c = k.c;
        c.y = y, c.to = to;
        dev->ops->short_conv(dev, &c, 1);
        c.y = z, c.to = to2;
        ref->ops->short_conv(ref, &c, 1);
        same("conv", y, z, k.n_y, 3e-6f);
        same("conv state", to, to2, k.n_past, 0);
        conv_cut(dev, k.c, k.c.n_tok ? below(k.c.n_tok + 1) : 0, past, y2);
        same("conv in two pieces", y2, y, k.n_y, 0);
        same("conv state of two pieces", past, to, k.n_past, 0);
        if (k.c.x_stride == k.c.y_stride) { /* in place */
            c.y = k.x, c.to = past;
            dev->ops->short_conv(dev, &c, 1);
            for (int t = 0; t < c.n_tok; t++)
                same("conv in place", k.x + (size_t)t * c.x_stride, z + (size_t)t * c.y_stride, c.n,
                     3e-6f);
        }
        free(y), free(z), free(y2), free(to), free(to2), free(past);
        conv_free(&k);
    }
}
END_TEST

/* ---- decay ---- */

START_TEST(decays)
{
    if (!open_isa(_i, 2))
        return;
    for (int i = 0; i < 60; i++) {
        const int per = i % 3 ? 1 + below(40) : 1, n_head = 1 + below(40), n = per * n_head;
        const int n_tok = below(40), stride = n + below(4);
        const size_t all = (size_t)n_tok * n, n_x = (size_t)n_tok * stride;
        float *x = floats(n_x), *bias = floats(n), *a = floats(n_head);
        float *step = poisoned(all), *step2 = poisoned(all), *y = poisoned(all), *z = poisoned(all);
        for (size_t j = 0; j < n_x; j++)
            x[j] *= j % 11 ? 8.0f : 60.0f;
        for (int h = 0; h < n_head; h++)
            a[h] = -fabsf(a[h]) * (h % 4 ? 1.0f : 16.0f);
        struct decays v = { n_tok, n, per, x, stride, bias, a, i % 2 ? step : NULL, y };
        dev->ops->decays(dev, &v);
        v.step = i % 2 ? step2 : NULL, v.decay = z;
        ref->ops->decays(ref, &v);
        same("decay", y, z, all, 2e-6f);
        if (i % 2)
            same("step", step, step2, all, 1e-6f);
        if (stride == n) {
            v.decay = x;
            dev->ops->decays(dev, &v);
            same("decay in place", x, y, all, 0);
        }
        free(x), free(bias), free(a), free(step), free(step2), free(y), free(z);
    }
}
END_TEST

/* ---- state ---- */

struct state_case {
    struct recurrence r;
    size_t n_qk, n_v, n_out, n_state;
    float *q, *k, *v, *beta, *decay, *skip, *state;
};

/* Keys of length 1, as models have them: erasing along longer ones grows without bound. */
static void unit_rows(float *x, int n_tok, int n_row, int n, int stride)
{
    for (int t = 0; t < n_tok; t++)
        for (int h = 0; h < n_row; h++) {
            float *row = x + (size_t)t * stride + (size_t)h * n, sum = 1e-6f;
            for (int i = 0; i < n; i++)
                sum += row[i] * row[i];
            for (int i = 0; i < n; i++)
                row[i] /= sqrtf(sum);
        }
}

static struct state_case state_case(int i)
{
    static const int dks[] = { 16, 128, 1, 33, 64, 256, 12, 20 };
    static const int dvs[] = { 16, 128, 8, 33, 64, 1, 100, 24 };
    struct state_case x = { .r = { .n_tok = i % 7 ? below(40) : 1,
                                   .n_group = 1 + below(3),
                                   .dk = dks[below(8)],
                                   .dv = dvs[below(8)],
                                   .tiled = i & 1,
                                   .erase = i % 3 > 0,
                                   .by_row = i % 4 > 1 } };
    struct recurrence *r = &x.r;
    size_t n_decay;

    r->n_head = r->n_group * (1 + below(3));
    r->qk_stride = r->n_group * r->dk + below(5);
    r->v_stride = r->n_head * r->dv + below(5);
    r->out_stride = r->n_head * r->dv + below(5);
    x.n_qk = (size_t)r->n_tok * r->qk_stride;
    x.n_v = (size_t)r->n_tok * r->v_stride;
    x.n_out = (size_t)r->n_tok * r->out_stride;
    x.n_state = (size_t)r->n_head * cb_state_floats(r->dk, r->dv);
    n_decay = (size_t)r->n_tok * r->n_head * (r->by_row ? r->dk : 1);
    r->q = x.q = floats(x.n_qk);
    r->k = x.k = floats(x.n_qk);
    unit_rows(x.k, r->n_tok, r->n_group, r->dk, r->qk_stride);
    r->v = x.v = floats(x.n_v);
    r->beta = x.beta = floats((size_t)r->n_tok * r->n_head);
    r->decay = x.decay = floats(n_decay);
    for (size_t j = 0; j < n_decay; j++)
        x.decay[j] = j % 9 ? 1 - fabsf(x.decay[j]) * 0.2f : 0;
    for (int j = 0; j < r->n_tok * r->n_head; j++)
        x.beta[j] = fabsf(x.beta[j]);
    x.skip = floats(r->n_head);
    r->skip = i % 2 ? x.skip : NULL;
    r->from = x.state = floats(x.n_state);
    for (size_t j = 0; j < x.n_state; j++) { /* columns past dv are 0 */
        const size_t strip = j / ((size_t)r->dk * STATE_STRIP) % cb_state_strips(r->dv);
        if ((int)(strip * STATE_STRIP + j % STATE_STRIP) >= r->dv)
            x.state[j] = 0;
    }
    return x;
}

static void state_free(struct state_case *x)
{
    free(x->q), free(x->k), free(x->v), free(x->beta), free(x->decay), free(x->skip);
    free(x->state);
}

static void state_cut(struct device *d, struct recurrence r, int m, float *state, float *out)
{
    r.from = r.to = state;
    r.out = out;
    for (int n = r.n_tok, at = 0, i = 0; i < 2; i++) {
        struct recurrence part = r;
        part.n_tok = i ? n - at : m;
        part.q += (size_t)at * r.qk_stride;
        part.k += (size_t)at * r.qk_stride;
        part.v += (size_t)at * r.v_stride;
        part.beta += (size_t)at * r.n_head;
        part.decay += (size_t)at * r.n_head * (r.by_row ? r.dk : 1);
        part.out += (size_t)at * r.out_stride;
        d->ops->recurrence(d, &part, 1);
        at = m;
    }
}

START_TEST(states)
{
    if (!open_isa(_i, 1 + _i % 3))
        return;
    for (int i = 0; i < 120; i++) {
        struct state_case x = state_case(i);
        float *y = floats(x.n_out), *z = copy(y, x.n_out), *y2 = copy(y, x.n_out);
        float *s = poisoned(x.n_state), *s2 = poisoned(x.n_state), *cut = copy(x.state, x.n_state);
        struct recurrence r = x.r;
        r.out = y, r.to = s;
        dev->ops->recurrence(dev, &r, 1);
        r.out = z, r.to = s2;
        ref->ops->recurrence(ref, &r, 1);
        same("recurrence", y, z, x.n_out, 3e-5f);
        same("state", s, s2, x.n_state, 3e-5f);
        state_cut(dev, x.r, r.n_tok ? below(r.n_tok + 1) : 0, cut, y2);
        same("recurrence in two pieces", y2, y, x.n_out, 0);
        same("state of two pieces", cut, s, x.n_state, 0);
        if (r.out_stride == r.v_stride) { /* in place of v */
            r.out = x.v, r.to = s2;
            dev->ops->recurrence(dev, &r, 1);
            for (int t = 0; t < r.n_tok; t++)
                same("in place", x.v + (size_t)t * r.v_stride, y + (size_t)t * r.out_stride,
                     (size_t)r.n_head * r.dv, 0);
        }
        free(y), free(z), free(y2), free(s), free(s2), free(cut);
        state_free(&x);
    }
}
END_TEST

/* Tokens of several sessions in one call */
START_TEST(batches)
{
    enum { N = 3, HEADS = 4, GROUPS = 2, D = 40, TAPS = 4, WIDE = 300 };
    const size_t n_state = HEADS * cb_state_floats(D, D), n_out = HEADS * D;
    struct recurrence r[N];
    struct short_conv c[N];
    float *q = floats(N * GROUPS * D), *v = floats(N * n_out), *beta = floats(N * HEADS);
    float *state = floats(N * n_state), *to = poisoned(N * n_state), *alone = poisoned(n_state);
    float *out = poisoned(N * n_out), *one = poisoned(n_out), *x = floats(N * WIDE);
    float *w = floats(TAPS * WIDE), *past = floats(N * (TAPS - 1) * WIDE), *y = poisoned(N * WIDE);
    float *left = poisoned(N * (TAPS - 1) * WIDE), *y1 = poisoned(WIDE);

    if (!open_isa(_i, 2))
        goto end;
    for (int i = 0; i < N; i++) {
        r[i] = (struct recurrence){ 1,
                                    HEADS,
                                    GROUPS,
                                    0,
                                    D,
                                    D,
                                    1,
                                    q + i * GROUPS * D,
                                    q + i * GROUPS * D,
                                    v + i * n_out,
                                    beta + i * HEADS,
                                    beta + i * HEADS,
                                    0,
                                    NULL,
                                    state + i * n_state,
                                    to + i * n_state,
                                    out + i * n_out,
                                    GROUPS * D,
                                    HEADS * D,
                                    HEADS * D };
        c[i] = (struct short_conv){ 1,
                                    WIDE,
                                    TAPS,
                                    1,
                                    w,
                                    NULL,
                                    x + i * WIDE,
                                    NULL,
                                    NULL,
                                    past + i * (TAPS - 1) * WIDE,
                                    left + i * (TAPS - 1) * WIDE,
                                    y + i * WIDE,
                                    WIDE,
                                    WIDE };
    }
    dev->ops->recurrence(dev, r, N);
    dev->ops->short_conv(dev, c, N);
    for (int i = 0; i < N; i++) {
        r[i].to = alone, r[i].out = one, c[i].y = y1;
        dev->ops->recurrence(dev, &r[i], 1);
        dev->ops->short_conv(dev, &c[i], 1);
        same("of a batch", out + i * n_out, one, n_out, 0);
        same("state of a batch", to + i * n_state, alone, n_state, 0);
        same("conv of a batch", y + i * WIDE, y1, WIDE, 0);
    }
end:
    free(q), free(v), free(beta), free(state), free(to), free(alone), free(out), free(one);
    free(x), free(w), free(past), free(y), free(left), free(y1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("recurrence");
    TCase *tc = tcase_create("recurrence");

    if (!cb_isa_any())
        return CB_SKIPPED;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_loop_test(tc, convolution, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, decays, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, states, ISA_FROM, ISA_TO);
    tcase_add_loop_test(tc, batches, ISA_FROM, ISA_TO);
    suite_add_tcase(s, tc);
    return cb_suite_run(s);
}
