/* SPDX-License-Identifier: MIT */
/* parts.c - the list of parts that a call of attention reads. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/err.h"
#include "base/ints.h"
#include "context_split.h"
#include "prefill.h"
#include "state_memory.h"

/* ---- open ---- */

/* n floats of a device's own memory that displace nothing; NULL: there are none */
static float *spare(struct device *d, size_t n)
{
    const uint64_t left = d->ops->memory ? cb_device_spare(d) : 0;

    return left / sizeof(float) > n ? cb_device_alloc(d, n, sizeof(float)) : NULL;
}

int cb_parts_open(struct attention *a)
{
    const size_t n = (size_t)a->chunk * (size_t)a->model->hp.n_head;
    const size_t row = (size_t)a->chunk * cb_attention_row(a);
    struct parts *x = a->parts = cb_state_new(sizeof *x);

    if (!x)
        return CB_ENOMEM;
    x->lse = cb_state_alloc(x, n, sizeof *x->lse);
    x->n_run = (a->traits & READ_BY_HEAD) || (a->prompt.how && a->prompt.how->by_head)
                   ? a->model->hp.n_head
                   : a->bank->n_kv;
    for (int l = 0; l < a->bank->n_layer; l++)
        x->n_run = max_int(x->n_run, a->model->layer[l].n_kv);
    x->far_lse = spare(a->dev, n);
    if (a->prompt.joins || a->traits & READ_JOINS) {
        x->far_out2 = spare(a->dev, row);
        x->far_lse2 = spare(a->dev, n);
        x->out2 = cb_state_alloc(x, row, sizeof *x->out2);
        x->lse2 = cb_state_alloc(x, n, sizeof *x->lse2);
        x->skips = cb_state_calloc(x, (size_t)a->model->hp.n_head, sizeof *x->skips);
    }
    return cb_state_status(x);
}

void cb_parts_close(struct attention *a)
{
    if (!a->parts)
        return;
    free(a->parts->part);
    free(a->parts->run);
    cb_device_free(a->dev, a->parts->far_lse);
    cb_device_free(a->dev, a->parts->far_out2);
    cb_device_free(a->dev, a->parts->far_lse2);
    cb_state_free(a->parts);
}

/* ---- the list ---- */

void cb_parts_clear(struct attention *a)
{
    a->parts->n = 0;
}

int cb_parts_add(struct attention *a, const struct part *p, struct kv_run **run)
{
    struct parts *x = a->parts;
    const size_t n_run = (size_t)x->n_run;
    size_t cap = x->cap;

    TRY(cb_grow(&x->part, &cap, (size_t)x->n + 1, sizeof *x->part));
    TRY(cb_grow(&x->run, &x->cap, (size_t)x->n + 1, n_run * sizeof *x->run));
    x->part[x->n] = *p;
    *run = cb_parts_runs(a, x->n);
    memset(*run, 0, n_run * sizeof **run);
    x->n++;
    return CB_OK;
}

struct part cb_parts_of(const struct attention *a, const struct chunk *c)
{
    return (struct part){ .n = c->n,
                          .q = c->q,
                          .q_stride = c->stride,
                          .causal = !a->bank->decoding,
                          .window = cb_attention_window(a, c->l),
                          .skip = 2 };
}

struct part cb_parts_some(const struct attention *a, const struct chunk *c, int first, int n)
{
    struct part p = cb_parts_of(a, c);

    p.first = first;
    p.n = n;
    p.q += (size_t)first * (size_t)c->stride;
    return p;
}

struct part cb_parts_one(const struct attention *a, const struct chunk *c, int i)
{
    struct part p = cb_parts_some(a, c, i, 1);

    p.causal = 0;
    return p;
}

int cb_parts_add_slots(struct attention *a, const struct chunk *c, const struct part *p, int from,
                       int left, float *logit)
{
    const struct store *st = cb_attention_store(a, c->l);
    const size_t group = (size_t)(a->model->hp.n_head / st->n_kv);
    struct kv_run *run;

    TRY(cb_parts_add(a, p, &run));
    for (int h = 0; h < st->n_kv; h++) {
        /* prepacked rows are all in a run */
        run[h] = cb_store_run(st, h, from, st->n[h] - (st->prepacked ? 0 : left));
        run[h].n = max_int(0, st->n[h] - left - from);
        run[h].logit = logit ? logit + (size_t)h * group * (size_t)a->bank->n_ctx : NULL;
    }
    return CB_OK;
}

int cb_parts_add_first(struct attention *a, const struct chunk *c, int n)
{
    const struct part p = cb_parts_some(a, c, 0, n);

    return cb_parts_add_slots(a, c, &p, 0, c->n - n, NULL);
}

/* KV head h reads the n[h * n_step] slots at list + h * stride. */
static int add_lists(struct attention *a, const struct chunk *c, const struct part *p,
                     const int32_t *list, size_t stride, const int *n, int n_step)
{
    struct kv_run *run;

    TRY(cb_parts_add_slots(a, c, p, 0, 0, NULL));
    run = cb_parts_runs(a, a->parts->n - 1);
    for (int h = 0; h < a->bank->store[c->l].n_kv; h++) {
        run[h].idx = list + (size_t)h * stride;
        run[h].n = n[h * n_step];
    }
    return CB_OK;
}

int cb_parts_add_list(struct attention *a, const struct chunk *c, const struct part *p,
                      const int32_t *list, int n)
{
    return add_lists(a, c, p, list, 0, &n, 0);
}

int cb_parts_add_lists(struct attention *a, const struct chunk *c, const struct part *p,
                       const int32_t *list, size_t stride, const int *n)
{
    return add_lists(a, c, p, list, stride, n, 1);
}

/* How many of a layer's slots the chunk does not see yet: where the layer reads those of an earlier
 * one, which has stored all of a prompt */
static int unseen(const struct attention *a, const struct chunk *c)
{
    return a->model->layer[c->l].kv_back && !a->bank->decoding ? c->pos_end - c->pos0 - c->n : 0;
}

int cb_parts_whole(struct attention *a, const struct chunk *c, float *logit)
{
    struct part p = cb_parts_of(a, c);
    const int left = unseen(a, c) + cb_context_split_unread(a, c, &p.causal);

    return cb_parts_add_slots(a, c, &p, 0, left, logit);
}

/* ---- the op ---- */

struct attn cb_parts_attn(const struct attention *a, int l)
{
    const struct hparams *hp = &a->model->hp;
    const struct layer *y = &a->model->layer[l];

    return (struct attn){ .n_head = hp->n_head,
                          .n_kv = y->n_kv,
                          .hd = y->hd,
                          .scale = hp->attn_scale,
                          .softcap = hp->attn_cap,
                          .causal = 1,
                          .window = cb_attention_window(a, l),
                          .type_k = cb_attention_store(a, l)->type_k,
                          .type_v = cb_attention_store(a, l)->type_v,
                          .q_stride = hp->n_head * y->hd,
                          .logit_stride = a->bank->n_ctx };
}

struct attn cb_parts_attn_of(const struct attention *a, int l, int i)
{
    const struct part *p = cb_parts_at(a, i);
    struct attn at = cb_parts_attn(a, l);

    at.n_kv = p->by_head ? at.n_head : at.n_kv;
    at.n_tok = p->n;
    at.q = p->q;
    at.q_stride = p->q_stride;
    at.causal = p->causal;
    at.prompt = !a->bank->decoding;
    at.window = p->window;
    at.blocks = p->blocks;
    at.logit_later = p->logit_later;
    at.run = cb_parts_runs(a, i);
    return at;
}
