/* SPDX-License-Identifier: MIT */
/* sieve.c - sieve: nothing is dropped. Each KV head of a layer holds its keys a second time, on 2
 * or 4 bits. A decoded token scores these, and reads the tokens that score best besides the first
 * and the newest ones. */
#include <string.h>

#include "policy/policy.h"

enum { BUDGET, BITS, CHANNELS, SINK, RECENT, DENSE, MISS };

static const struct method_opt opts[] = {
    [BUDGET] = { "budget", "tokens",
                 "tokens chosen in each KV head; below 1, a share of them; auto: as many as it "
                 "takes to miss no more than miss= says, 0.05 unless it is given",
                 OPT_NUM, 512, 1e-6, 1e9, "auto" },
    [BITS] = { "bits", "", "bits of a sketched key", OPT_CHOICE, 0, 0, 0, "2 4" },
    [CHANNELS] = { "channels", "",
                   "channels of a sketched key that scores are made of; half: those that weigh "
                   "most for the query",
                   OPT_CHOICE, 0, 0, 0, "all half" },
    [SINK] = { "sink", "tokens", "first tokens, always read", OPT_INT, 4, 0, 1e6, NULL },
    [RECENT] = { "recent", "tokens",
                 "newest tokens, always read, as are those not yet sketched (fewer than 128)",
                 OPT_INT, 32, 1, 1e6, NULL },
    [DENSE] = { "dense", "layers", "first layers, which read all tokens", OPT_INT, 0, 0, 1000,
                NULL },
    [MISS] = { "miss", "",
               "attention that each head may miss by its sketch: fewer tokens than the budget "
               "where they suffice; 0: as many as the budget",
               OPT_NUM, 0, 0, 0.999, NULL },
    { .name = NULL },
};

static double miss(const struct policy *p)
{
    const struct opt_value *budget = &p->val[BUDGET], *x = &p->val[MISS];
    return !x->set && budget->set && !strcmp(budget->text, "auto") ? 0.05 : x->num;
}

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const double budget = p->val[BUDGET].num;
    const int dense = (int)p->val[DENSE].num;

    if (dense >= sh->n_layer)
        return cb_policy_refuse(p, "dense=%d: the model has %d layers", dense, sh->n_layer);
    for (int l = dense; l < sh->n_layer; l++)
        row[l].sketch = (struct sketch_plan){ .bits = p->val[BITS].num > 0 ? 4 : 2,
                                              .half = p->val[CHANNELS].num > 0,
                                              .k = (int)budget,
                                              .share = budget < 1 ? budget : 0,
                                              .miss = miss(p),
                                              .sink = (int)p->val[SINK].num,
                                              .recent = (int)p->val[RECENT].num };
    p->at_most = miss(p) > 0;
    return 0;
}

const struct method cb_method_sieve = {
    .name = "sieve",
    .cite = "ctxbank",
    .brief = "drops nothing; each KV head reads the tokens whose 2-bit keys score best",
    .opts = opts,
    .plan = plan_layers,
};
