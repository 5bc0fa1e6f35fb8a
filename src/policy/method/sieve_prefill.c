/* SPDX-License-Identifier: MIT */
/* sieve_prefill.c - a prompt's queries read the blocks of tokens whose keys, held on 2 or 4 bits,
 * say that some of these queries attend to them. */
#include "policy/policy.h"

enum { THRESHOLD, BITS, STRIDE, LAST, SAMPLE, UPPER };

static const struct method_opt opts[] = {
    [THRESHOLD] = { "threshold", "",
                    "share of the estimated attention to earlier blocks that the blocks read hold; "
                    "1: all blocks",
                    OPT_NUM, 0.9, 0, 1, NULL },
    [BITS] = { "bits", "", "bits of a sketched key", OPT_CHOICE, 0, 0, 0, "2 4" },
    [STRIDE] = { "stride", "tokens", "every n-th query of a block is estimated", OPT_INT, 16, 1,
                 128, NULL },
    [LAST] = CB_PROMPT_LAST,
    [SAMPLE] = CB_PROMPT_SAMPLE,
    [UPPER] = CB_PROMPT_UPPER,
    { .name = NULL },
};

static int prompt(struct policy *p, const struct shape *sh, struct prompt_plan *plan)
{
    plan->blocks = (struct block_plan){ .rule = BLOCKS_BY_SKETCHES,
                                        .stride = (int)p->val[STRIDE].num,
                                        .bits = p->val[BITS].num > 0 ? 4 : 2,
                                        .keep = p->val[THRESHOLD].num,
                                        .last = (int)p->val[LAST].num,
                                        .sample = cb_prompt_sample(&p->val[SAMPLE]),
                                        .n_upper = cb_prompt_upper(&p->val[UPPER], sh) };
    return 0;
}

const struct method cb_prompt_sieve = {
    .name = "sieve",
    .cite = "ctxbank",
    .brief = "each head reads the blocks of 128 tokens that 2-bit keys find for some queries",
    .opts = opts,
    .prompt = prompt,
    .by_blocks = 1,
};
