/* SPDX-License-Identifier: MIT */
/* own.c - the model's trained selector names the tokens that each query reads, or the rows that
 * stand for several tokens, in prompts as well. The policy drops nothing (DeepSeek-V3.2,
 * DeepSeek-AI 2025, section 2.1, and others); layers of DeepSeek-V4 keep the rows of their windows
 * alone. */
#include "policy/policy.h"

enum { KEYS };

static const struct method_opt opts[] = {
    [KEYS] = { "keys", "",
               "how the selector's own keys are stored; auto: f32 where the cache's keys are f32, "
               "else 12 bits a number, of which 8 are scanned, or q8_0 where each KV head chooses",
               OPT_CHOICE, SELECT_AUTO, 0, 0, "auto f32 f16 q8_0" },
    { .name = NULL },
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *lay)
{
    if (!sh->selects)
        return cb_policy_refuse(p, "the model has no trained selector; full reads every token, and "
                                   "sieve or omnikv find tokens without one");
    for (int l = 0; l < sh->n_layer; l++)
        lay[l].select = (struct select_plan){ 1, (enum select_keys)p->val[KEYS].num };
    return 0;
}

const struct method cb_method_own = {
    .name = "own",
    .cite = "DeepSeek-AI, 2025: DeepSeek-V3.2, section 2.1, and the papers of other such models",
    .brief = "the model's own trained selector names the tokens that each query reads; the default "
             "of models that have one, and for them alone; drops nothing",
    .opts = opts,
    .plan = plan_layers,
    .selected = 1,
};
