/* SPDX-License-Identifier: MIT */
/* minicache.c - MiniCache (Liu et al., 2024): from the middle of the model on, two adjacent layers
 * share the directions of their keys and values, and each has its own lengths (section 4). Tokens
 * whose directions differ most between the two are retained as they are. */
#include <math.h>

#include "policy/policy.h"

enum { START, T, RETAIN, TAIL };

static const struct method_opt opts[] = {
    [START] = { "start", NULL, "share of the layers, the first ones, that are left alone", OPT_NUM,
                0.5, 0, 1, NULL },
    [T] = { "t", NULL,
            "where the shared direction lies: 0 in the earlier layer's, 1 in the later layer's",
            OPT_NUM, 0.6, 0, 1, NULL },
    [RETAIN] = { "retain", "tokens",
                 "tokens of each KV head that a pair of layers retains unmerged, of keys and of "
                 "values; below 1 a share of the tokens (the paper's gamma is 0.05)",
                 OPT_NUM, 1024, 0, 1e9, NULL },
    [TAIL] = { "tail", "tokens", "generated tokens that are merged at a time; until then they stay",
               OPT_INT, 64, 1, 65536, NULL },
    { .name = NULL },
};

/* Layers l and l + 1 follow each other in the model, too. */
static int adjoin(const struct shape *sh, int l)
{
    return l + 1 < sh->n_layer && (!sh->at || sh->at[l + 1] == sh->at[l] + 1);
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double retain = p->val[RETAIN].num;
    int n = 0;

    if (retain > 1 && retain != floor(retain))
        return cb_policy_refuse(p, "retain=%.10g: must be a share below 1 or a whole number",
                                retain);
    for (int l = (int)(p->val[START].num * sh->n_layer); l < sh->n_layer; l++) {
        if (!adjoin(sh, l))
            continue;
        row[++l].pair = (struct pair_plan){ .tail = (int)p->val[TAIL].num,
                                            .t = p->val[T].num,
                                            .retain = retain };
        n++;
    }
    return n ? 0
             : cb_policy_refuse(p,
                                "start=%.10g: after it no two adjacent layers of the model see "
                                "everything",
                                p->val[START].num);
}

const struct method cb_method_minicache = {
    .name = "minicache",
    .cite = "Liu et al., arXiv:2405.14366",
    .brief = "keeps all; pairs of upper layers share the directions of keys and values",
    .opts = opts,
    .plan = plan_layers,
};
