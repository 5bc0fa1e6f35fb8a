/* SPDX-License-Identifier: MIT */
/* quest.c - Quest (Tang et al., 2024): nothing is dropped. The smallest and the largest key of each
 * channel bound the logits of a page of tokens. A decoded token reads the current page and the
 * pages whose bounds are largest. */
#include "policy/policy.h"

enum { BUDGET, PAGE, DENSE, GROUP };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens",
                 "tokens read in each KV head, as whole pages, at least 3; below 1, a share of "
                 "them",
                 OPT_NUM, 1024, 1e-6, 1e9, NULL },
    [PAGE] = { "page", "tokens", "tokens of a page", OPT_INT, 16, 1, 4096, NULL },
    [DENSE] = { "dense", "layers", "first layers, which read all tokens", OPT_INT, 2, 0, 1000,
                NULL },
    [GROUP] = { "group", NULL,
                "how the bounds of a KV head's query heads combine; each: every "
                "query head has pages of its own, which are read one after the other",
                OPT_CHOICE, 0, 0, 0, "max mean each" },
    { .name = NULL },
};

static const enum by_heads heads[] = { PER_KV_HEAD_MAX, PER_KV_HEAD_MEAN, EACH_HEAD };

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double budget = p->val[BUDGET].num;
    const int small = !p->val[DENSE].set && sh->n_layer <= 2; /* than the default */
    const int dense = small ? 0 : (int)p->val[DENSE].num;

    if (dense >= sh->n_layer)
        return cb_policy_refuse(p, "dense=%d: the model has %d layers", dense, sh->n_layer);
    for (int l = dense; l < sh->n_layer; l++)
        row[l].sketch = (struct sketch_plan){ .page = (int)p->val[PAGE].num,
                                              .heads = heads[(int)p->val[GROUP].num],
                                              .k = (int)budget,
                                              .share = budget < 1 ? budget : 0 };
    return 0;
}

const struct method cb_method_quest = {
    .name = "quest",
    .cite = "Tang et al., arXiv:2406.10774",
    .brief = "drops nothing; each KV head reads the pages with the largest bounds",
    .opts = opts,
    .plan = plan_layers,
};
