/* SPDX-License-Identifier: MIT */
/* token_experts.c - the chosen experts of a single token, together. One expert's matrices are so
 * small that the threads lost about a tenth of the time at the ends of its loops. So all
 * first matrices are one loop of the threads, and all second ones another. */
#include "token_experts.h"

#include "gate_limit.h"
#include "product.h"

int cb_token_experts_fit(const struct cb_session *s, const struct ffn *const *f, int n)
{
    const struct ops *op = s->dev->ops;

    if (op->memory || !op->matmul_sets || n > TOKEN_EXPERTS || n > s->chunk)
        return 0;
    for (int i = 0; i < n; i++)
        if (!f[i]->gate.raw || f[i]->sparse || f[i]->gate.lora || f[i]->up.lora || f[i]->down.lora)
            return 0;
    return 1;
}

void cb_token_experts(struct cb_session *s, const struct ffn *const *f, const float *weight, int n,
                      const float *in, int bits, float *out)
{
    const struct ops *op = s->dev->ops;
    const int n_ff = f[0]->up.n_out, width = f[0]->down.n_out;
    float *gate = s->w.gate, *up = s->w.up, *each = s->w.moe.out; /* [n][n_ff] twice, [n][width] */
    struct mm first[2 * TOKEN_EXPERTS] = { { 0 } }, second[TOKEN_EXPERTS] = { { 0 } };

    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * (size_t)n_ff;

        first[2 * i] = (struct mm){ &f[i]->gate, f[i]->gate_bias, gate + at, n_ff, 0, bits };
        first[2 * i + 1] = (struct mm){ &f[i]->up, f[i]->up_bias, up + at, n_ff, 0, bits };
        second[i] =
            (struct mm){ &f[i]->down, f[i]->down_bias, each + (size_t)i * (size_t)width, width, 0,
                         bits };
    }
    cb_product(s, first, 2 * n, in, 1);
    if (f[0]->limit > 0)
        cb_gate_limit(s, n_ff, n, f[0]->limit);
    op->glu(s->dev, s->model->arch->act, gate, up, n_ff, n);
    cb_product_sets(s, second, n, gate, n_ff, n_ff, 1);
    for (int i = 0; i < n; i++)
        op->add(s->dev, out, each + (size_t)i * (size_t)width, weight[i], (size_t)width);
}
