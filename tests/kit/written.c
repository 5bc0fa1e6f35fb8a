/* SPDX-License-Identifier: MIT */
/* written.c - sessions whose queries, keys and values are written down. */
#include "written.h"

#include <check.h>
#include <string.h>

#include "suite.h"
#include "tiny.h"
#include "toy.h"

enum { WIDE = CB_WRITTEN_WIDE };

cb_model *cb_written_model(int n_layer, int n_head, int n_kv, int hd)
{
    struct tiny t = cb_tiny_small("llama");

    t.n_layer = n_layer;
    t.n_head = n_head;
    t.n_kv = n_kv;
    t.hd = hd;
    t.n_embd = n_head * hd;
    return cb_toy_model(&t, "ref", 1);
}

cb_session *cb_written_session(cb_model *m, const char *policy, int n_ctx)
{
    const struct cb_session_params sp = {
        .n_ctx = n_ctx, .type_k = "f32", .type_v = "f32", .policy = policy
    };
    cb_session *s;

    if (cb_session_open(m, &sp, &s))
        ck_abort_msg("%s: %s", policy, cb_error());
    return s;
}

void cb_written_feed(cb_session *s, int l, const float *qkv, int n, int pos0, float *out)
{
    const int last = l == s->model->hp.n_layer - 1;

    s->bank.decoding = n == 1;
    s->bank.n_feed = n;
    cb_toy_attend(s, l, qkv, n, pos0, pos0 + n, out);
    ck_assert_ok(cb_attend_end(&s->attention, l));
    if (last) {
        s->bank.n_seen += n;
        s->bank.n_feed = 0;
        s->bank.prompt_end = n > 1 ? s->bank.n_seen : s->bank.prompt_end;
    }
}

void cb_written_logits(cb_session *s, const double *logit, int stride, const int *tok, int n_tok,
                       int n, int pos0)
{
    static float qkv[WIDE][3 * WIDE];
    float out[WIDE * WIDE];

    memset(qkv, 0, sizeof qkv);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n_tok; j++)
            qkv[i][tok ? tok[j] : j] = 4 * (float)logit[i * stride + j]; /* scale 1/4 */
        qkv[i][WIDE + pos0 + i] = 1;
    }
    cb_written_feed(s, 0, qkv[0], n, pos0, out);
}

void cb_written_holds(const cb_session *s, int l, int kv, const int *tok, int n)
{
    ck_assert_int_eq(s->bank.store[l].n[kv], n);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(cb_store_pos(&s->bank.store[l], kv, i), tok[i]);
}
