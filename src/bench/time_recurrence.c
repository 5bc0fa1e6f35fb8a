/* SPDX-License-Identifier: MIT */
/* time_recurrence.c - times layers that remember without keys: their convolution, and the state's
 * op, for one token, whose states come from memory, and for a prompt's tokens. */
#include <stdio.h>

#include "base/err.h"
#include "device/recurrence.h"
#include "time_ops.h"

enum { MANY = 512, TAPS = 4, LAYERS = 24 };

static const struct shape {
    const char *model;
    int n_head, n_group, dk, dv, erase;
} shapes[] = {
    { "Qwen3.5-9B", 32, 16, 128, 128, 1 },
    { "Granite-4-Small", 128, 1, 128, 64, 0 },
    { .model = NULL },
};

struct timed {
    struct device *d;
    int layer; /* the next one, so that a token's states are not in caches */
    struct recurrence r;
    struct short_conv c;
    float *x, *y, *state, *fade;
    size_t n_state;
};

static int open_shape(struct op_bench *b, const struct shape *s, struct timed *t)
{
    const int nk = s->n_group * s->dk, nv = s->n_head * s->dv, width = 2 * nk + nv;
    const size_t all = (size_t)MANY * (size_t)width;

    *t = (struct timed){ .d = b->d, .n_state = (size_t)s->n_head * cb_state_floats(s->dk, s->dv) };
    t->x = cb_op_floats(b, all);
    t->y = cb_op_floats(b, all);
    t->fade = cb_op_floats(b, (size_t)MANY * (size_t)s->n_head);
    t->state = cb_op_floats(b, LAYERS * t->n_state);
    if (!t->x || !t->y || !t->fade || !t->state)
        return CB_ENOMEM;
    for (size_t i = 0; i < all; i++) /* short keys, so that states stay finite */
        t->x[i] *= 0.05f;
    for (size_t i = 0; i < (size_t)MANY * (size_t)s->n_head; i++)
        t->fade[i] = 0.9f + 0.05f * t->fade[i];
    t->r = (struct recurrence){ .n_head = s->n_head,
                                .n_group = s->n_group,
                                .dk = s->dk,
                                .dv = s->dv,
                                .erase = s->erase,
                                .q = t->x,
                                .k = t->x + nk,
                                .v = t->x + 2 * nk,
                                .beta = t->fade,
                                .decay = t->fade,
                                .out = t->y,
                                .qk_stride = width,
                                .v_stride = width,
                                .out_stride = nv };
    t->c = (struct short_conv){ .n = width,
                                .n_tap = TAPS,
                                .silu = 1,
                                .w = t->y,
                                .x = t->x,
                                .from = t->state,
                                .to = t->state,
                                .y = t->y,
                                .x_stride = width,
                                .y_stride = width };
    return CB_OK;
}

static void close_shape(struct timed *t)
{
    cb_device_free(t->d, t->x);
    cb_device_free(t->d, t->y);
    cb_device_free(t->d, t->fade);
    cb_device_free(t->d, t->state);
}

static void state(void *ctx)
{
    struct timed *t = ctx;

    t->r.from = t->r.to = t->state + (size_t)(t->layer++ % LAYERS) * t->n_state;
    t->d->ops->recurrence(t->d, &t->r, 1);
}

static void conv(void *ctx)
{
    const struct timed *t = ctx;

    t->d->ops->short_conv(t->d, &t->c, 1);
}

static int emit(struct op_bench *b, struct timed *t, const struct shape *s, int n_tok)
{
    const double each = (double)s->n_head * s->dk * s->dv;
    struct op_row row = { .op = "state", .model = s->model, .n_tok = n_tok };

    t->r.n_tok = t->c.n_tok = n_tok;
    if (cb_op_picked(b, KIND_OP, row.op)) {
        snprintf(row.shape, sizeof row.shape, "%d states of %dx%d", s->n_head, s->dk, s->dv);
        row.bytes = 2.0 * 4.0 * (double)t->n_state;       /* read and written */
        row.flop = (s->erase ? 7.0 : 5.0) * each * n_tok; /* fade, update, and one or two sums */
        row.read = n_tok == 1 ? b->limit[LIMIT_READ] : 0;
        row.peak = b->limit[LIMIT_F32];
        row.s = cb_op_time(b, state, t, 0);
        TRY(cb_op_emit(b, &row));
    }
    row = (struct op_row){ .op = "conv", .model = s->model, .n_tok = n_tok };
    if (!cb_op_picked(b, KIND_OP, row.op))
        return CB_OK;
    snprintf(row.shape, sizeof row.shape, "%d channels, %d taps", t->c.n, TAPS);
    row.bytes = 8.0 * t->c.n * n_tok;
    row.s = cb_op_time(b, conv, t, 0);
    return cb_op_emit(b, &row);
}

int cb_bench_recurrence(struct op_bench *b)
{
    static const char *const names[] = { "state", "conv", NULL };
    const int any = cb_op_any_picked(b, names) && b->d->ops->recurrence && !b->d->ops->memory;

    for (const struct shape *s = shapes; any && s->model; s++) {
        struct timed t;
        int err;
        if (!cb_op_picked(b, KIND_MODEL, s->model))
            continue;
        err = open_shape(b, s, &t);
        if (!err)
            err = emit(b, &t, s, 1);
        if (!err)
            err = emit(b, &t, s, MANY);
        close_shape(&t);
        TRY(err);
    }
    return CB_OK;
}
