/* SPDX-License-Identifier: MIT */
/* xattention.c - XAttention (Xu et al. 2025): a prompt's queries read the blocks of tokens that
 * sums over antidiagonals of query and key say hold most of their attention. */
#include "policy/policy.h"

enum { THRESHOLD, STRIDE, LAST, SAMPLE, UPPER };

static const struct method_opt opts[] = {
    [THRESHOLD] = { "threshold", "",
                    "share of the estimated attention that the blocks read hold; 1: all blocks",
                    OPT_NUM, 0.9, 0, 1, NULL },
    [STRIDE] = { "stride", "tokens", "every n-th query meets each key, in the estimate", OPT_CHOICE,
                 1, 0, 0, "4 8 16" },
    [LAST] = CB_PROMPT_LAST,
    [SAMPLE] = CB_PROMPT_SAMPLE,
    [UPPER] = CB_PROMPT_UPPER,
    { .name = NULL },
};

static int prompt(struct policy *p, const struct shape *sh, struct prompt_plan *plan)
{
    plan->blocks = (struct block_plan){ .rule = BLOCKS_BY_ANTIDIAGONALS,
                                        .stride = 4 << (int)p->val[STRIDE].num,
                                        .keep = p->val[THRESHOLD].num,
                                        .last = (int)p->val[LAST].num,
                                        .sample = cb_prompt_sample(&p->val[SAMPLE]),
                                        .n_upper = cb_prompt_upper(&p->val[UPPER], sh) };
    return 0;
}

const struct method cb_prompt_xattention = {
    .name = "xattention",
    .cite = "Xu et al., arXiv:2503.16428",
    .brief = "each head reads the blocks of 128 tokens that sums over antidiagonals find",
    .opts = opts,
    .prompt = prompt,
    .by_blocks = 1,
};
