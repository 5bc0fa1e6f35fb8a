/* SPDX-License-Identifier: MIT */
/* attend.c - turns a plan row into parts, attends to each, joins them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "session.h"

struct attend {
    struct kv_run *run; /* [n_kv] */
};

int cb_attend_open(struct cb_session *s)
{
    s->attend = cb_calloc(1, sizeof *s->attend);
    if (!s->attend)
        return CB_ENOMEM;
    s->attend->run = cb_calloc((size_t)s->model->hp.n_kv, sizeof *s->attend->run);
    return s->attend->run ? CB_OK : CB_ENOMEM;
}

void cb_attend_close(struct cb_session *s)
{
    if (s->attend)
        free(s->attend->run);
    free(s->attend);
}

uint64_t cb_attend_bytes(const struct cb_session *s)
{
    (void)s;
    return 0;
}

int cb_attend(struct cb_session *s, int l, const float *qkv, int n, int pos0, int pos_end,
              float *out)
{
    const struct hparams *hp = &s->model->hp;
    struct store *st = &s->store[l];
    const int nq = hp->n_head * hp->hd, nkv = hp->n_kv * hp->hd;
    struct attn a = { .n_tok = n,
                      .n_head = hp->n_head,
                      .n_kv = hp->n_kv,
                      .hd = hp->hd,
                      .scale = 1.0f / sqrtf((float)hp->hd),
                      .causal = 1,
                      .window = hp->window,
                      .type_k = st->type_k,
                      .type_v = st->type_v,
                      .run = s->attend->run,
                      .q = qkv,
                      .q_stride = nq + 2 * nkv,
                      .out = out };

    (void)pos_end;
    TRY(cb_store_append(st, s->dev, qkv + nq, qkv + nq + nkv, nq + 2 * nkv, n, pos0));
    for (int h = 0; h < hp->n_kv; h++)
        s->attend->run[h] = cb_store_run(st, h);
    s->dev->ops->attention(s->dev, &a);
    s->kv_read_bytes += cb_store_bytes(st);
    return CB_OK;
}

int cb_attend_end(struct cb_session *s, int l, int n)
{
    (void)l;
    (void)n;
    const uint64_t now = cb_session_kv_bytes(s);
    if (now > s->kv_peak_bytes)
        s->kv_peak_bytes = now;
    return CB_OK;
}
