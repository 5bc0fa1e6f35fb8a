/* SPDX-License-Identifier: MIT */
/* experts.c - binds the experts of a layer, their router, the shared one, and the norms round them.
 */
#include "experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "hparams.h"

/* blk.L.NAME.weight [n_expert][n_out][n_in] and blk.L.NAME.bias [n_expert][n_out] -> a matrix and a
 * vector of each expert, at offsets in struct ffn */
static int experts(struct binder *b, int l, const char *name, int n_in, int n_out, size_t weight_at,
                   size_t bias_at, struct ffn *f)
{
    const int n = b->m->hp.moe.n_expert;
    const struct gguf_tensor *t;
    char at[64], buf[72];
    float *bias = NULL;
    int err = CB_OK;

    snprintf(at, sizeof at, "%s", cb_bind_in_layer(b, l, name));
    TRY(cb_bind_need(b, cb_bind_part(&buf, at, "weight"), &t));
    TRY(cb_bind_check_shape(b, t, buf, n_in, n_out, n));
    for (int e = 0; e < n; e++)
        cb_bind_take_rows(b, t, buf, (int64_t)e * n_out, n_out,
                          (struct weight *)(void *)((char *)&f[e] + weight_at));
    if (!cb_bind_find(b, cb_bind_part(&buf, at, "bias")))
        return CB_OK;
    TRY(cb_bind_need(b, buf, &t));
    TRY(cb_bind_check_shape(b, t, buf, n_out, n, 1));
    TRY(cb_bind_f32(b, t, (int64_t)n * n_out, &bias));
    for (int e = 0; !err && e < n; e++)
        err = cb_bind_cut(bias, e * n_out, n_out, (float **)(void *)((char *)&f[e] + bias_at));
    free(bias);
    return err;
}

/* Every token reads the shared expert; its width is that of its matrix. */
static int shared_expert(struct binder *b, int l, struct moe *x)
{
    const int ne = b->m->hp.n_embd;
    const struct gguf_tensor *up = cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_up_shexp.weight"));
    int nf;

    if (!up)
        return CB_OK;
    nf = up->dim[1] > 0 && up->dim[1] < 1 << 20 ? (int)up->dim[1] : 1;
    TRY(cb_bind_matrix(b, b->name, ne, nf, &x->shared.up));
    b->m->hp.n_ff_max = nf > b->m->hp.n_ff_max ? nf : b->m->hp.n_ff_max;
    if (!cb_arch_ungated(b->m->arch))
        TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_gate_shexp.weight"), ne, nf,
                           &x->shared.gate));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_down_shexp.weight"), nf, ne,
                       &x->shared.down));
    if (cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_gate_inp_shexp.weight"))) {
        const struct gguf_tensor *t;
        TRY(cb_bind_need(b, b->name, &t));
        TRY(cb_bind_check_shape(b, t, b->name, ne, 1, 1));
        cb_bind_take_rows(b, t, b->name, 0, 1, &x->shared_gate);
    }
    return CB_OK;
}

/* Numbers of an expert's hidden row: what the file says, or what its matrices have */
static int expert_ff(struct binder *b, int l, int *nf)
{
    struct hparams *hp = &b->m->hp;
    const struct gguf_tensor *t;

    TRY(cb_bind_need(b, cb_bind_in_layer(b, l, "ffn_down_exps.weight"), &t));
    *nf = t->dim[0] > 0 && t->dim[0] < 1 << 20 ? (int)t->dim[0] : 1;
    TRY(cb_hp_at(b->m, "expert_feed_forward_length", OPTIONAL, 1, 1 << 20, l, nf));
    hp->n_ff_max = *nf > hp->n_ff_max ? *nf : hp->n_ff_max;
    return CB_OK;
}

/* The rows of the gate may lie in front of those of up, for each expert. */
static int expert_gates(struct binder *b, int l, int nf, struct moe *x)
{
    const int ne = cb_expert_width(&b->m->hp), n = b->m->hp.moe.n_expert;
    const struct gguf_tensor *t;

    if (!cb_bind_find(b, cb_bind_in_layer(b, l, "ffn_gate_up_exps.weight"))) {
        if (!cb_arch_ungated(b->m->arch))
            TRY(experts(b, l, "ffn_gate_exps", ne, nf, offsetof(struct ffn, gate),
                        offsetof(struct ffn, gate_bias), x->expert));
        return experts(b, l, "ffn_up_exps", ne, nf, offsetof(struct ffn, up),
                       offsetof(struct ffn, up_bias), x->expert);
    }
    TRY(cb_bind_need(b, b->name, &t));
    TRY(cb_bind_check_shape(b, t, b->name, ne, 2 * nf, n));
    for (int e = 0; e < n; e++) {
        cb_bind_take_rows(b, t, b->name, 2 * (int64_t)e * nf, nf, &x->expert[e].gate);
        cb_bind_take_rows(b, t, b->name, (2 * (int64_t)e + 1) * nf, nf, &x->expert[e].up);
    }
    return CB_OK;
}

/* The router's input is normed and scaled number by number, and divided by the root of n_embd. */
int cb_experts_beside(struct binder *b, int l, struct moe *x)
{
    const int ne = b->m->hp.n_embd;
    struct beside *y = x->beside = cb_calloc(1, sizeof *y);

    if (!y)
        return CB_ENOMEM;
    b->m->hp.moe.beside = 1;
    y->router_in = (struct norm){ .n = ne, .n_set = 1 };
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_gate_inp.scale"), REQUIRED, ne,
                       &y->router_in.w));
    for (int i = 0; i < ne; i++)
        y->router_in.w[i] /= sqrtf((float)ne);
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "pre_ffw_norm_2"), REQUIRED, ne, &y->expert_in));
    TRY(cb_bind_norm(b, cb_bind_in_layer(b, l, "post_ffw_norm_1"), REQUIRED, ne, &y->dense_out));
    return cb_bind_norm(b, cb_bind_in_layer(b, l, "post_ffw_norm_2"), REQUIRED, ne, &y->expert_out);
}

/* Gates and what `up` gives may be limited; files of 0 say that they are not. */
static int limits(struct binder *b, int l, struct moe *x)
{
    float limit = 0;

    TRY(cb_hp_float_at(b->m, "swiglu_clamp_exp", 0, 1e6, l, &limit));
    for (int e = 0; e < b->m->hp.moe.n_expert; e++)
        x->expert[e].limit = limit;
    TRY(cb_hp_float_at(b->m, "swiglu_clamp_shexp", 0, 1e6, l, &limit));
    x->shared.limit = limit;
    b->m->hp.moe.limited |= limit > 0 || x->expert->limit > 0;
    return CB_OK;
}

/* Experts may read a few products of what the layer reads, and another matrix undoes that. */
static int latents(struct binder *b, int l, struct moe *x)
{
    const int ne = b->m->hp.n_embd, n = b->m->hp.moe.n_latent;

    if (!n)
        return CB_OK;
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_latent_down.weight"), ne, n, &x->latent_in));
    return cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_latent_up.weight"), n, ne, &x->latent_out);
}

int cb_experts_bind(struct binder *b, int l, struct layer *y)
{
    const int ne = b->m->hp.n_embd, n = b->m->hp.moe.n_expert;
    struct moe *x = y->moe = cb_calloc(1, sizeof *x);
    int nf;

    if (!x || !(x->expert = cb_calloc((size_t)n, sizeof *x->expert)))
        return CB_ENOMEM;
    TRY(expert_ff(b, l, &nf));
    TRY(cb_hp_at(b->m, "expert_used_count", REQUIRED, 1, n, l, &x->n_used));
    TRY(cb_bind_matrix(b, cb_bind_in_layer(b, l, "ffn_gate_inp.weight"), ne, n, &x->router));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_gate_inp.bias"), OPTIONAL, n,
                       &x->router_bias));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "exp_probs_b.bias"), OPTIONAL, n,
                       &x->choice_bias));
    TRY(cb_bind_vector(b, cb_bind_in_layer(b, l, "ffn_down_exps.scale"), OPTIONAL, n,
                       &x->expert_scale));
    if (l < b->m->hp.moe.n_listed)
        TRY(cb_bind_table(b, cb_bind_in_layer(b, l, "ffn_gate_tid2eid.weight"), x->n_used,
                          b->m->hp.n_vocab, n, &x->listed));
    TRY(limits(b, l, x));
    TRY(latents(b, l, x));
    TRY(expert_gates(b, l, nf, x));
    TRY(experts(b, l, "ffn_down_exps", nf, cb_expert_width(&b->m->hp), offsetof(struct ffn, down),
                offsetof(struct ffn, down_bias), x->expert));
    return shared_expert(b, l, x);
}

void cb_experts_free(struct moe *x, int n_expert)
{
    if (!x)
        return;
    for (int e = 0; x->expert && e < n_expert; e++)
        cb_bind_free_ffn(&x->expert[e]);
    free(x->expert);
    free(x->router_bias);
    free(x->choice_bias);
    free(x->expert_scale);
    free(x->listed);
    if (x->beside) {
        cb_bind_free_norm(&x->beside->router_in);
        cb_bind_free_norm(&x->beside->expert_in);
        cb_bind_free_norm(&x->beside->dense_out);
        cb_bind_free_norm(&x->beside->expert_out);
    }
    free(x->beside);
    free(x);
}
