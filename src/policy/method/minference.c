/* SPDX-License-Identifier: MIT */
/* minference.c - MInference 1.0 (Jiang et al. 2024): each query head of a prompt reads by one of
 * three patterns: A-shape, vertical-slash, or block-sparse. */
#include "policy/policy.h"

enum { PATTERN, RECALL, SINK, LOCAL, VERTICAL, SLASH, BLOCKS, LEAST, CHUNK };

static const struct method_opt opts[] = {
    [PATTERN] = { "pattern", NULL,
                  "of all heads; best: for each head and chunk the cheapest one that holds enough",
                  OPT_CHOICE, 0, 0, 0, "best a-shape vertical-slash block-sparse" },
    [RECALL] = { "recall", "",
                 "pattern=best: share of the attention of a chunk's last 64 queries that is enough",
                 OPT_NUM, 0.95, 0, 1, NULL },
    [SINK] = { "sink", "tokens", "a-shape: first tokens read", OPT_INT, 128, 1, 1e6, NULL },
    [LOCAL] = { "local", "tokens", "a-shape: last tokens read", OPT_INT, 3968, 1, 1e9, NULL },
    [VERTICAL] = { "vertical", "tokens", "vertical-slash: columns read", OPT_INT, 1000, 30, 1e9,
                   NULL },
    [SLASH] = { "slash", "tokens", "vertical-slash: diagonals read", OPT_INT, 6096, 100, 1e9,
                NULL },
    [BLOCKS] = { "blocks", "", "block-sparse: blocks of 128 tokens read", OPT_INT, 50, 1, 1e6,
                 NULL },
    [LEAST] = { "least", "tokens", "chunks that end before this many tokens attend densely",
                OPT_INT, 8192, 0, 1e9, NULL },
    [CHUNK] = { "chunk", "tokens", "tokens whose last 64 choose the lines, a multiple of 128",
                OPT_INT, 512, 128, 1 << 20, NULL },
    { .name = NULL },
};

static int prompt(struct policy *p, const struct shape *sh, struct prompt_plan *plan)
{
    (void)sh;
    if ((int)p->val[CHUNK].num % 128)
        return cb_policy_refuse(p, "chunk=%g: must be a multiple of 128", p->val[CHUNK].num);
    plan->blocks = (struct block_plan){ .rule = BLOCKS_BY_PATTERNS,
                                        .pattern = (enum pattern)(int)p->val[PATTERN].num,
                                        .recall = p->val[RECALL].num,
                                        .sink = (int)p->val[SINK].num,
                                        .local = (int)p->val[LOCAL].num,
                                        .vertical = (int)p->val[VERTICAL].num,
                                        .slash = (int)p->val[SLASH].num,
                                        .n_block = (int)p->val[BLOCKS].num,
                                        .least = (int)p->val[LEAST].num,
                                        .chunk = (int)p->val[CHUNK].num };
    return 0;
}

const struct method cb_prompt_minference = {
    .name = "minference",
    .cite = "Jiang et al., arXiv:2407.02490",
    .brief = "each head reads the ends, lines, or blocks of the prompt that it attends to",
    .opts = opts,
    .prompt = prompt,
    .by_blocks = 1,
};
