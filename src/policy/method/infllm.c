/* SPDX-License-Identifier: MIT */
/* infllm.c - InfLLM (Xiao et al., 2024): nothing is dropped. A query reads the last tokens at their
 * distances. All others are seen from one distance: the first ones, and of the blocks of tokens
 * between, those whose representatives it resembles most. */
#include "policy/policy.h"

enum { LOCAL, SINK, BLOCK, BLOCKS, REPS, CHUNK };

static const struct method_opt opts[] = {
    [LOCAL] = { "local", "tokens",
                "last tokens that a query sees at their distances, itself included; at most what "
                "the model was trained on",
                OPT_INT, 4096, 1, 1e9, NULL },
    [SINK] = { "sink", "tokens", "first tokens, always read", OPT_INT, 128, 0, 65536, NULL },
    [BLOCK] = { "block", "tokens", "tokens of a block", OPT_INT, 128, 1, 65536, NULL },
    [BLOCKS] = { "blocks", NULL, "blocks read", OPT_INT, 16, 1, 1e6, NULL },
    [REPS] = { "reps", "tokens",
               "of a block, in each query head, those that represent it: the ones that had most "
               "attention while they were among the last",
               OPT_INT, 4, 1, 65536, NULL },
    [CHUNK] = { "chunk", "tokens",
                "tokens of a prompt that choose together, at most local and at most what the "
                "session processes together",
                OPT_INT, 512, 1, 65536, NULL },
    { .name = NULL },
};

static int plan_layers(struct policy *p, const struct shape *sh, struct layer_plan *row)
{
    const int local = (int)p->val[LOCAL].num, whole = !p->val[CHUNK].set && local < 512;
    const int chunk = whole ? local : (int)p->val[CHUNK].num;

    if (chunk > local)
        return cb_policy_refuse(p, "chunk=%d: must be at most local=%d", chunk, local);
    if (sh->one_row)
        return cb_policy_refuse(p, "the model stores one row as key and value, so keys cannot be "
                                   "turned without values");
    p->slot_floats = sh->n_head / sh->n_kv;
    for (int l = 0; l < sh->n_layer; l++)
        row[l].far = (struct far_plan){ .block = (int)p->val[BLOCK].num,
                                        .k = (int)p->val[BLOCKS].num,
                                        .reps = (int)p->val[REPS].num,
                                        .local = local,
                                        .sink = (int)p->val[SINK].num,
                                        .chunk = chunk };
    return 0;
}

const struct method cb_method_infllm = {
    .name = "infllm",
    .cite = "Xiao et al., arXiv:2402.04617",
    .brief = "drops nothing; reads the last tokens and the blocks that fit, seen from one distance",
    .opts = opts,
    .slot_floats = 1,
    .plan = plan_layers,
};
