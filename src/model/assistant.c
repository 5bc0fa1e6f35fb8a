/* SPDX-License-Identifier: MIT */
/* assistant.c - binds what an assistant has beside its layers, and compares it with its target. */
#include "assistant.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hparams.h"

int cb_assistant_bind(struct binder *b)
{
    struct cb_model *m = b->m;
    struct assistant *x;

    if (!cb_model_has_target(m))
        return CB_OK;
    if (!(x = m->assistant = cb_calloc(1, sizeof *x)))
        return CB_ENOMEM;
    TRY(cb_hp_int(m, "embedding_length_out", REQUIRED, 1, 1 << 17, &x->n_target));
    TRY(cb_bind_matrix(b, "nextn.pre_projection.weight", 2 * x->n_target, m->hp.n_embd, &x->join));
    return cb_bind_matrix(b, "nextn.post_projection.weight", m->hp.n_embd, x->n_target, &x->post);
}

void cb_assistant_free(struct assistant *x)
{
    free(x);
}

struct weight *cb_assistant_weight(struct assistant *x, int i)
{
    struct weight *const all[] = { &x->join, &x->post };

    return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL;
}

int cb_assistant_reads(const struct cb_model *m, int l, const struct cb_model *target)
{
    int t = target->hp.n_layer - 1;

    while (t >= 0 && !target->layer[t].window != !m->layer[l].window)
        t--;
    return t < 0 ? -1 : t - target->layer[t].kv_back;
}

static int differ(const char *what, int own, int target)
{
    return own == target ? CB_OK
                         : cb_fail(CB_EARG, "it is for a model of another shape: %s %d, not %d",
                                   what, own, target);
}

/* Layer l reads the rows of the target's layer t. */
static int check_layer(const struct cb_model *m, int l, const struct cb_model *target, int t)
{
    const struct layer *y = &m->layer[l], *z;
    const struct rope_params *r, *s;

    if (t < 0)
        return cb_fail(CB_EARG,
                       "it is for a model of another shape: layer %d reads keys of a layer %s a "
                       "window, and the model has none",
                       l, y->window ? "with" : "without");
    z = &target->layer[t];
    TRY(differ("KV heads", y->n_kv, z->n_kv));
    TRY(differ("head_dim", y->hd, z->hd));
    TRY(differ("window", y->window, z->window));
    if (y->rope < 0 || z->rope < 0)
        return differ("rotation", y->rope >= 0, z->rope >= 0);
    r = &m->hp.rope[y->rope];
    s = &target->hp.rope[z->rope];
    TRY(differ("rotated numbers of a head", r->n_rot, s->n_rot));
    return r->base < s->base || r->base > s->base
               ? cb_fail(CB_EARG, "it is for a model of another shape: rotation's base %g, not %g",
                         (double)r->base, (double)s->base)
               : CB_OK;
}

int cb_assistant_check(const struct cb_model *m, const struct cb_model *target)
{
    const char *of = "gemma4";

    if (strcmp(target->arch->name, of))
        return cb_fail(CB_EARG, "%s guesses for models of family %s alone, not of %s",
                       m->arch->name, of, target->arch->name);
    TRY(differ("embedding", m->assistant->n_target, target->hp.n_embd));
    for (int l = 0; l < m->hp.n_layer; l++)
        TRY(check_layer(m, l, target, cb_assistant_reads(m, l, target)));
    return CB_OK;
}
