/* SPDX-License-Identifier: MIT */
/* moe_work.c - work space of a mixture of experts. */
#include "moe_work.h"

#include <stdlib.h>

#include "base/err.h"

int cb_moe_work_open(struct moe_work *w, struct device *d, const struct hparams *hp, int chunk,
                     uint64_t *bytes)
{
    const size_t c = (size_t)chunk, n = (size_t)hp->moe.n_expert,
                 n_latent = (size_t)hp->moe.n_latent;
    const size_t ne = n_latent > (size_t)hp->n_embd ? n_latent : (size_t)hp->n_embd;

    if (!n)
        return CB_OK;
    w->logit = cb_alloc_aligned(c * n, sizeof *w->logit);
    w->weight = cb_alloc_aligned(c * n, sizeof *w->weight);
    w->in = cb_device_alloc(d, c * ne, sizeof *w->in);
    w->out = cb_device_alloc(d, c * ne, sizeof *w->out);
    w->zero = cb_calloc(c * ne, sizeof *w->zero);
    w->token = cb_alloc_aligned(c, sizeof *w->token);
    *bytes += c * (2 * n + 3 * ne + 2 * n_latent + 1) * sizeof(float);
    if (n_latent && !(w->latent = cb_device_alloc(d, 2 * c * n_latent, sizeof *w->latent)))
        return CB_ENOMEM;
    return w->logit && w->weight && w->in && w->out && w->zero && w->token ? CB_OK : CB_ENOMEM;
}

void cb_moe_work_close(struct moe_work *w, struct device *d)
{
    free(w->logit);
    free(w->weight);
    cb_device_free(d, w->in);
    cb_device_free(d, w->out);
    free(w->zero);
    cb_device_free(d, w->latent);
    free(w->token);
}
