/* SPDX-License-Identifier: MIT */
/* index_keys.c - the keys that a trained selector scores. */
#include "index_keys.h"

#include "bank/pages.h"
#include "base/err.h"

enum kv_type cb_index_keys_type(enum select_keys asked, enum kv_type type_k, int hd)
{
    const enum kv_type small = hd % cb_kv_type[KV_Q8_0].block ? KV_F16 : KV_Q8_0;
    static const enum kv_type type[] = {
        [SELECT_F32] = KV_F32, [SELECT_F16] = KV_F16, [SELECT_Q8_0] = KV_Q8_0
    };

    return asked == SELECT_AUTO ? type_k == KV_F32 ? KV_F32 : small : type[asked];
}

int cb_index_keys_open(struct index_keys *x, const struct policy *p, enum kv_type type, int hd,
                       int n)
{
    if (hd % cb_kv_type[type].block)
        return cb_policy_refuse(p,
                                "keys=%s: the selector's keys of %d numbers are no whole blocks "
                                "of %d; f16 and f32 fit",
                                cb_kv_type[type].name, hd, cb_kv_type[type].block);
    *x = (struct index_keys){ .type = type, .hd = hd, .row_bytes = cb_kv_row_bytes(type, hd) };
    x->reserved = cb_pages_head((size_t)n * x->row_bytes);
    return cb_pages_reserve(x->reserved, &x->at);
}

void cb_index_keys_close(struct index_keys *x)
{
    cb_pages_release(x->at, x->reserved);
}

void cb_index_keys_put(const struct index_keys *x, struct device *d, const float *k, int stride,
                       int n, int at)
{
    d->ops->kv_encode(d, x->type, k, n, stride, x->hd, x->at + (size_t)at * x->row_bytes);
}

void cb_index_keys_logits(const struct index_keys *x, const struct attention *a,
                          const struct chunk *c, int i, int m, int n, int causal, float *logit,
                          int stride)
{
    const struct selector_params *p = &a->model->hp.selector;
    const struct kv_run run = { .k = x->at, .v = x->at, .n = n };
    const struct score s = { .a = { .n_tok = m,
                                    .n_head = p->n_head,
                                    .n_kv = 1,
                                    .hd = p->hd,
                                    .scale = 1,
                                    .causal = causal,
                                    .type_k = x->type,
                                    .type_v = x->type,
                                    .run = &run,
                                    .q = c->index.q + (size_t)i * (size_t)c->index.stride,
                                    .q_stride = c->index.stride },
                             .logit = 1,
                             .out = logit,
                             .out_stride = stride,
                             .tok_stride = (size_t)p->n_head * (size_t)stride };

    a->dev->ops->score(a->dev, &s);
}

int cb_index_keys_device(const struct attention *a)
{
    return a->dev->ops->memory
               ? cb_fail(CB_EUNSUPPORTED, "policy %s: device %s does not score a selector's keys",
                         a->policy->m->name, a->dev->name)
               : CB_OK;
}

int cb_index_keys_area(const struct index_keys *x, int l, int n, struct area *out)
{
    if (!x->at || !n)
        return 0;
    *out = (struct area){ AREA_INDEX_KEYS, l, 0, 0, x->at, (size_t)n * x->row_bytes };
    return 1;
}
