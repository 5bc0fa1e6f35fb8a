/* SPDX-License-Identifier: MIT */
/* ffn.c - the feed-forward of a layer. In a mixture of experts each token chooses a few. The tokens
 * of a chunk are grouped by expert, so an expert that somebody chose is read once, and the others
 * are not read. A token adds up its experts in their order, whatever is fed with it. */
#include "ffn.h"

#include <math.h>

#include "base/err.h"
#include "gate_limit.h"
#include "model/xielu.h"
#include "product.h"
#include "token_experts.h"

/* ---- sparse gates ---- */

struct thinned {
    float *gate;
    int n;
    float deviations;
};

static void thin_row(void *ctx, int i, int thread)
{
    const struct thinned *x = ctx;
    float *g = x->gate + (size_t)i * (size_t)x->n, least;
    double mean = 0, square = 0;

    (void)thread;
    for (int j = 0; j < x->n; j++)
        mean += (double)g[j];
    mean /= x->n;
    for (int j = 0; j < x->n; j++)
        square += ((double)g[j] - mean) * ((double)g[j] - mean);
    least = (float)(mean + sqrt(square / x->n) * (double)x->deviations);
    for (int j = 0; j < x->n; j++)
        g[j] = g[j] > least ? g[j] - least : 0;
}

/* w.gate of n rows of n_ff keeps the largest numbers of each row. */
static void thin(struct cb_session *s, int n_ff, int n, float deviations)
{
    const size_t bytes = (size_t)n * (size_t)n_ff * sizeof(float);
    struct thinned x = { s->w.limited ? s->w.limited : s->w.gate, n_ff, deviations };

    if (s->w.limited)
        cb_device_copy(s->dev, x.gate, s->w.gate, bytes);
    cb_par_for(s->dev->par, n, thin_row, &x);
    if (s->w.limited)
        cb_device_copy(s->dev, s->w.gate, x.gate, bytes);
}

/* ---- activations that no device has ---- */

struct activated {
    const struct xielu *by;
    float *x;
    int n;
};

static void activate_row(void *ctx, int i, int thread)
{
    const struct activated *a = ctx;

    (void)thread;
    cb_xielu(a->by, a->x + (size_t)i * (size_t)a->n, (size_t)a->n);
}

/* w.gate of n rows of n_ff, which are many short ones for the threads of the host */
static void activate(struct cb_session *s, const struct xielu *by, int n_ff, int n)
{
    enum { SHORT = 1024 };
    const size_t all = (size_t)n * (size_t)n_ff;
    const int width = n_ff % SHORT ? n_ff : SHORT;
    struct activated a = { by, s->w.limited ? s->w.limited : s->w.gate, width };

    if (s->w.limited)
        cb_device_copy(s->dev, a.x, s->w.gate, all * sizeof(float));
    cb_par_for(s->dev->par, (int)(all / (size_t)width), activate_row, &a);
    if (s->w.limited)
        cb_device_copy(s->dev, s->w.gate, a.x, all * sizeof(float));
}

void cb_ffn_hidden(struct cb_session *s, const struct ffn *f, const float *in, int n, int bits)
{
    const struct ops *op = s->dev->ops;
    const enum act_kind act = s->model->arch->act;
    const int n_ff = f->up.n_out;
    struct work *w = &s->w;
    const struct mm both[] = { { &f->gate, f->gate_bias, w->gate, n_ff, 0, bits },
                               { &f->up, f->up_bias, w->up, n_ff, 0, bits } };
    const struct mm up = { &f->up, f->up_bias, w->gate, n_ff, 0, bits };

    if (!f->gate.raw) {
        cb_product(s, &up, 1, in, n);
        if (f->xielu)
            activate(s, f->xielu, n_ff, n);
        else
            op->glu(s->dev, act, w->gate, NULL, n_ff, n);
    } else if (f->gate_bias || f->up_bias || f->gate.lora || f->up.lora || f->limit > 0 ||
               f->sparse) {
        cb_product(s, both, 2, in, n);
        if (f->limit > 0)
            cb_gate_limit(s, n_ff, n, f->limit);
        if (f->sparse)
            thin(s, n_ff, n, f->deviations);
        op->glu(s->dev, act, w->gate, w->up, n_ff, n);
    } else {
        op->matmul_glu(s->dev, both, act, in, n);
    }
}

/* ---- a mixture of experts ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

/* logit[n_expert] -> weight[n_expert]: sigmoids, roots of softplus, or a softmax */
static void gate(const struct moe_params *p, const float *logit, float *weight)
{
    double max = -INFINITY, sum = 0;

    if (p->root) {
        for (int e = 0; e < p->n_expert; e++)
            weight[e] = (float)sqrt(softplus((double)logit[e]));
        return;
    }
    for (int e = 0; e < p->n_expert; e++)
        max = fmax(max, (double)logit[e]);
    for (int e = 0; e < p->n_expert; e++)
        sum += exp((double)logit[e] - max);
    for (int e = 0; e < p->n_expert; e++)
        weight[e] =
            (float)(p->sigmoid ? sigmoid((double)logit[e]) : exp((double)logit[e] - max) / sum);
}

/* How good a group of n experts is: as its best one, or, where weights are sigmoids, as its two
 * best together */
static float group_score(const struct moe_params *p, const float *by, int n)
{
    float first = -INFINITY, second = -INFINITY;

    for (int e = 0; e < n; e++) {
        if (by[e] > first) {
            second = first;
            first = by[e];
        } else if (by[e] > second) {
            second = by[e];
        }
    }
    return p->sigmoid && n > 1 ? first + second : first;
}

/* Experts outside the best groups get -inf; ties: the lower group. */
static void keep_groups(const struct moe_params *p, float *by)
{
    const int n = p->n_group ? p->n_expert / p->n_group : 0;
    float score[MOST_GROUPS];

    for (int g = 0; g < p->n_group; g++)
        score[g] = group_score(p, by + g * n, n);
    for (int g = 0; g < p->n_group; g++) {
        int better = 0;
        for (int i = 0; i < p->n_group; i++)
            better += score[i] > score[g] || (score[i] == score[g] && i < g);
        for (int e = 0; better >= p->n_group_used && e < n; e++)
            by[g * n + e] = -INFINITY;
    }
}

/* Marks the n_used experts of the largest weights (plus `bias`, if given): by[e] becomes NaN. */
static void choose(const struct moe_params *p, int n_used, const float *weight, const float *bias,
                   float *by)
{
    for (int e = 0; e < p->n_expert; e++)
        by[e] = weight[e] + (bias ? bias[e] : 0);
    keep_groups(p, by);
    for (int i = 0; i < n_used; i++) {
        int best = -1;
        for (int e = 0; e < p->n_expert; e++)
            if (!isnan(by[e]) && (best < 0 || by[e] > by[best]))
                best = e;
        by[best < 0 ? i : best] = NAN;
    }
}

/* The same for the experts that a table lists; one that it lists twice weighs twice as much. */
static void choose_listed(const struct moe_params *p, int n_used, const int32_t *listed,
                          float *weight, float *by)
{
    for (int e = 0; e < p->n_expert; e++)
        by[e] = 0;
    for (int i = 0; i < n_used; i++)
        by[listed[i]]++;
    for (int e = 0; e < p->n_expert; e++) {
        weight[e] *= by[e];
        by[e] = by[e] > 0 ? NAN : 0;
    }
}

/* logit[n_expert] of token id, which become work space: NaN = chosen -> its weights; 0: not chosen
 */
static void route(const struct moe_params *p, const struct moe *x, int32_t id, float *logit,
                  float *weight)
{
    double sum = 0;

    gate(p, logit, weight);
    if (x->listed)
        choose_listed(p, x->n_used, x->listed + (size_t)id * (size_t)x->n_used, weight, logit);
    else
        choose(p, x->n_used, weight, x->choice_bias, logit);
    for (int e = 0; e < p->n_expert; e++) {
        weight[e] = isnan(logit[e]) ? weight[e] : 0;
        sum += (double)weight[e];
    }
    if (!p->normalises || !(sum > 0))
        sum = 1;
    for (int e = 0; e < p->n_expert; e++)
        weight[e] = (float)((double)weight[e] / sum * (double)p->scale *
                            (x->expert_scale ? (double)x->expert_scale[e] : 1));
}

/* out[t] += weight[t * stride] * expert(in[t]) for the n tokens t of n_all in `token` */
static void add_expert(struct cb_session *s, const struct ffn *f, const float *in, int n_all,
                       const int *token, int n, const float *weight, int stride, int of_input,
                       int bits, float *out)
{
    const struct ops *op = s->dev->ops;
    const int ne = f->down.n_out;
    struct moe_work *w = &s->w.moe;
    const struct mm down = { &f->down, f->down_bias, w->out, ne, 0, bits };
    const int gather = n < n_all || of_input;

    for (int i = 0; gather && i < n; i++)
        cb_device_copy(s->dev, w->in + (size_t)i * (size_t)ne, in + (size_t)token[i] * (size_t)ne,
                       (size_t)ne * sizeof *in);
    if (of_input)
        for (int i = 0; i < n; i++)
            op->scale(s->dev, w->in + (size_t)i * (size_t)ne,
                      weight[(size_t)token[i] * (size_t)stride], 0, (size_t)ne);
    cb_ffn_hidden(s, f, gather ? w->in : in, n, bits);
    cb_product(s, &down, 1, s->w.gate, n);
    for (int i = 0; i < n; i++)
        op->add(s->dev, out + (size_t)token[i] * (size_t)ne, w->out + (size_t)i * (size_t)ne,
                of_input ? 1 : weight[(size_t)token[i] * (size_t)stride], (size_t)ne);
}

static int add_shared(struct cb_session *s, const struct moe *x, const float *in, int n, int bits,
                      float *out)
{
    struct moe_work *w = &s->w.moe;
    const struct mm mm = { &x->shared_gate, NULL, w->weight, 1, 0, bits };

    if (!x->shared.down.raw)
        return CB_OK;
    if (x->shared_gate.raw) {
        cb_product(s, &mm, 1, in, n);
        TRY(cb_device_wait(s->dev));
    }
    for (int i = 0; i < n; i++) {
        w->token[i] = i;
        w->weight[i] = x->shared_gate.raw ? (float)sigmoid((double)w->weight[i]) : 1;
    }
    add_expert(s, &x->shared, in, n, w->token, n, w->weight, 1, 0, bits, out);
    return CB_OK;
}

int cb_ffn_route(struct cb_session *s, const struct moe *x, const float *in, const int32_t *id,
                 int n, int bits)
{
    const struct moe_params *p = &s->model->hp.moe;
    const int n_expert = p->n_expert;
    struct moe_work *w = &s->w.moe;
    const struct mm router = { &x->router, x->router_bias, w->logit, n_expert, 0, bits };

    cb_product(s, &router, 1, in, n);
    TRY(cb_device_wait(s->dev)); /* the host chooses */
    for (int t = 0; t < n; t++)
        route(p, x, id ? id[t] : 0, w->logit + (size_t)t * (size_t)n_expert,
              w->weight + (size_t)t * (size_t)n_expert);
    return CB_OK;
}

/* The same for one token, all experts at once. 0: they cannot work together */
static int add_together(struct cb_session *s, const struct moe *x, const float *in, int bits,
                        float *out)
{
    const struct moe_params *p = &s->model->hp.moe;
    const struct ffn *chosen[TOKEN_EXPERTS];
    float weight[TOKEN_EXPERTS];
    int n = 0;

    for (int e = 0; e < p->n_expert; e++) {
        if (!isnan(s->w.moe.logit[e]))
            continue;
        if (n == TOKEN_EXPERTS)
            return 0;
        chosen[n] = &x->expert[e];
        weight[n++] = s->w.moe.weight[e];
    }
    if (!n || p->of_input || !cb_token_experts_fit(s, chosen, n))
        return 0;
    cb_token_experts(s, chosen, weight, n, in, bits, out);
    return 1;
}

/* The sum of each token's chosen experts: in[n][width] -> out[n][width] */
static void add_chosen(struct cb_session *s, const struct moe *x, const float *in, int n, int bits,
                       float *out)
{
    const struct moe_params *p = &s->model->hp.moe;
    const int n_expert = p->n_expert, width = cb_expert_width(&s->model->hp);
    struct moe_work *w = &s->w.moe;

    cb_device_copy(s->dev, out, w->zero, (size_t)n * (size_t)width * sizeof *out);
    if (n == 1 && add_together(s, x, in, bits, out))
        return;
    for (int e = 0; e < n_expert; e++) {
        int m = 0;
        for (int t = 0; t < n; t++)
            if (isnan(w->logit[(size_t)t * (size_t)n_expert + (size_t)e]))
                w->token[m++] = t;
        if (m)
            add_expert(s, &x->expert[e], in, n, w->token, m, w->weight + e, n_expert, p->of_input,
                       bits, out);
    }
}

int cb_ffn_experts(struct cb_session *s, const struct moe *x, const float *in, int n, int bits,
                   float *out)
{
    const int n_latent = s->model->hp.moe.n_latent;
    float *low = s->w.moe.latent, *sum = low ? low + (size_t)s->chunk * (size_t)n_latent : NULL;
    const struct mm down = { &x->latent_in, NULL, low, n_latent, 0, bits };
    const struct mm up = { &x->latent_out, NULL, out, s->model->hp.n_embd, 0, bits };

    if (n_latent) {
        cb_product(s, &down, 1, in, n);
        add_chosen(s, x, low, n, bits, sum);
        cb_product(s, &up, 1, sum, n);
    } else {
        add_chosen(s, x, in, n, bits, out);
    }
    return add_shared(s, x, in, n, bits, out);
}
