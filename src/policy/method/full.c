/* SPDX-License-Identifier: MIT */
/* full.c - every token is kept and read: the baseline of all methods. */
#include "policy/policy.h"

static const struct method_opt opts[] = { { .name = NULL } };

const struct method cb_method_full = {
    .name = "full",
    .cite = "Vaswani et al., 2017, section 3.2.1",
    .brief = "keeps and reads every token",
    .opts = opts,
};
