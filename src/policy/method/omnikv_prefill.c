/* SPDX-License-Identifier: MIT */
/* omnikv_prefill.c - how a prompt attends: dense, or as OmniKV-prefill (Hao et al., ICLR 2025,
 * appendix D.10). The prompt is fed in chunks. Filter layers read all tokens and choose, by the
 * queries of a chunk together, the earlier tokens that the layers up to the next filter layer read
 * besides the chunk. */
#include <stdlib.h>

#include "policy/policy.h"

enum { FILTER, WAIT, CHUNK, RATIO, STRIDE };

static const struct method_opt opts[] = {
    [FILTER] = { "filter", "layers",
                 "filter layers, ascending: 2+8+18; default: the policy's if it is omnikv, else "
                 "every "
                 "fifth from 2",
                 OPT_LIST, 0, 0, 0, NULL },
    [WAIT] = { "wait", "layers", "layers after each filter layer that also read all", OPT_INT, 0, 0,
               1000, NULL },
    [CHUNK] = { "chunk", "tokens", "tokens that read the same choice", OPT_INT, 4096, 1, 1 << 20,
                NULL },
    [RATIO] = { "ratio", NULL, "tokens chosen, as a multiple of the chunk", OPT_NUM, 2, 1e-3, 1e6,
                NULL },
    [STRIDE] = { "stride", "tokens", "every n-th query of a chunk chooses", OPT_INT, 8, 1, 1 << 20,
                 NULL },
    { .name = NULL },
};

/* Filter layers: filter=, else the policy's; the default rule if the policy has none */
static int prompt(struct policy *p, const struct shape *sh, struct prompt_plan *plan)
{
    char *is_filter = p->mem = calloc((size_t)sh->n_layer, 1);
    const double k = p->val[RATIO].num * p->val[CHUNK].num;
    int filter = -1, given = p->val[FILTER].set || p->val[WAIT].set, any = 0;

    if (!is_filter)
        return cb_policy_no_memory(p);
    if (p->val[FILTER].set) {
        const int err = cb_policy_layers(p, FILTER, sh, is_filter);
        if (err)
            return err;
    }
    for (int l = 0; l < sh->n_layer; l++) {
        any |= plan->as[l] >= 0;
        if (!p->val[FILTER].set)
            is_filter[l] = plan->as[l] == l;
    }
    if (!p->val[FILTER].set && !any)
        for (int l = sh->n_layer > 2 ? 2 : 0; l < sh->n_layer; l += 5)
            is_filter[l] = 1;
    for (int l = 0; (given || !any) && l < sh->n_layer; l++) {
        filter = is_filter[l] ? l : filter;
        plan->as[l] = filter == l || l > filter + p->val[WAIT].num ? filter : -1;
    }
    plan->chunk = (int)p->val[CHUNK].num;
    plan->k = k < 1 ? 1 : k < 1e9 ? (int)k : 1000000000;
    plan->stride = (int)p->val[STRIDE].num;
    return 0;
}

static const struct method_opt none[] = { { .name = NULL } };

const struct method cb_prompt_dense = {
    .name = "dense",
    .brief = "each token attends to all before it",
    .opts = none,
};

const struct method cb_prompt_omnikv = {
    .name = "omnikv",
    .cite =
        "Hao et al., ICLR 2025: OmniKV, Dynamic Context Selection for Efficient Long-Context LLMs",
    .brief = "most layers read the chunk and what the last filter layer chose for it",
    .opts = opts,
    .prompt = prompt,
};
