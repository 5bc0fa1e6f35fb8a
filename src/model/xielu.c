/* SPDX-License-Identifier: MIT */
/* xielu.c - the activation xIELU (Huang and Schlag 2024), which Apertus has. */
#include "xielu.h"

#include <math.h>

#include "base/err.h"

/* A number that all layers share, or an array with one for each; it stays where the key is absent
 */
static int read_one(const struct cb_model *m, const char *key, int must, int l, double *out)
{
    const struct gguf_kv *kv = cb_gguf_find(m->gguf, key);
    const char *path = cb_gguf_path(m->gguf);
    float one = 0;

    if (!kv)
        return must ? cb_fail(CB_EFORMAT, "%s: key %s: missing", path, key) : CB_OK;
    if (kv->type != GGUF_ARRAY) {
        if (cb_gguf_f32(m->gguf, key, &one) < 0)
            return CB_EFORMAT;
        *out = (double)one;
    } else if (kv->elem == GGUF_STRING || kv->elem == GGUF_ARRAY ||
               kv->n != (uint64_t)m->hp.n_block) {
        return cb_fail(CB_EFORMAT, "%s: key %s: is no array of a number for each of %d layers",
                       path, key, m->hp.n_block);
    } else {
        *out = cb_gguf_array_num(kv, (uint64_t)l);
    }
    return fabs(*out) <= 1e4 ? CB_OK
                             : cb_fail(CB_EFORMAT, "%s: key %s: %g is not between -10000 and 10000",
                                       path, key, *out);
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

int cb_xielu_read(const struct cb_model *m, int l, struct xielu **out)
{
    double positive = 0, negative = 0, beta = 0.5, eps = -1e-6;

    TRY(read_one(m, "xielu.alpha_p", 1, l, &positive));
    TRY(read_one(m, "xielu.alpha_n", 1, l, &negative));
    TRY(read_one(m, "xielu.beta", 0, l, &beta));
    TRY(read_one(m, "xielu.eps", 0, l, &eps));
    if (!(*out = cb_calloc(1, sizeof **out)))
        return CB_ENOMEM;
    **out = (struct xielu){ .positive = (float)softplus(positive),
                            .negative = (float)(beta + softplus(negative)),
                            .beta = (float)beta,
                            .eps = (float)eps };
    return CB_OK;
}

void cb_xielu(const struct xielu *p, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float v = x[i];
        const float curve =
            v > 0 ? p->positive * v * v : p->negative * (expm1f(v < p->eps ? v : p->eps) - v);
        x[i] = curve + p->beta * v;
    }
}
