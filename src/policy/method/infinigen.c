/* SPDX-License-Identifier: MIT */
/* infinigen.c - InfiniGen (Lee et al., 2024): nothing is dropped. While a layer computes a token,
 * its input guesses the next layer's queries. A few skewed columns of them and of the keys give
 * logits, and the next layer reads the tokens whose logits come near the largest. */
#include "policy/policy.h"

enum { RATIO, ALPHA, MOST, DENSE, GROUP };

static const struct method_opt opts[] = {
    [RATIO] = { "ratio", "", "share of a key's columns that its partial key has", OPT_NUM, 0.3,
                1e-6, 1, NULL },
    [ALPHA] = { "alpha", "",
                "a query head counts the tokens whose logits are at most so far below its largest",
                OPT_NUM, 5, 0, 1e9, NULL },
    [MOST] = { "most", "tokens", "most tokens in each list; below 1, a share of them", OPT_NUM, 0.2,
               1e-6, 1e9, NULL },
    [DENSE] = { "dense", "layers", "first layers, which read all tokens", OPT_INT, 2, 0, 1000,
                NULL },
    [GROUP] = { "group", NULL,
                "max: a KV head's query heads share a list, by the largest of their logits, each "
                "less its head's maximum; each: every query head has a list of its own, as in the "
                "paper, and the lists are read one after the other",
                OPT_CHOICE, 0, 0, 0, "max each" },
    { .name = NULL },
};

static const enum by_heads heads[] = { PER_KV_HEAD_MAX, EACH_HEAD };

/* A layer is guessed by the one before it. */
static int has_before(const struct shape *sh, int l)
{
    return (sh->at ? sh->at[l] : l) > 0;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double most = p->val[MOST].num;
    const int columns = (int)(p->val[RATIO].num * sh->hd);
    const int small = !p->val[DENSE].set && sh->n_layer <= 2; /* than the default */
    const int dense = small ? !has_before(sh, 0) : (int)p->val[DENSE].num;

    if (sh->one_row)
        return cb_policy_refuse(p, "the model has latent attention, whose queries are not the "
                                   "product of one matrix");
    if (dense >= sh->n_layer)
        return cb_policy_refuse(p, "dense=%d: the model has %d layers", dense, sh->n_layer);
    if (!has_before(sh, dense))
        return cb_policy_refuse(p,
                                "dense=%d: no layer comes before the first one to guess its "
                                "queries",
                                dense);
    for (int l = dense; l < sh->n_layer; l++)
        row[l].sketch = (struct sketch_plan){ .columns = columns > 1 ? columns : 1,
                                              .alpha = (float)p->val[ALPHA].num,
                                              .heads = heads[(int)p->val[GROUP].num],
                                              .k = (int)most,
                                              .share = most < 1 ? most : 0 };
    p->at_most = 1; /* how many tokens are read depends on the text */
    return 0;
}

const struct method cb_method_infinigen = {
    .name = "infinigen",
    .cite = "Lee et al., arXiv:2406.19707",
    .brief = "drops nothing; each KV head reads the tokens that the layer before guesses",
    .opts = opts,
    .plan = plan_layers,
};
